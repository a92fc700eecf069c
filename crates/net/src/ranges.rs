//! Choosing an address range for pods that this node does not use.

use ipnet::{IpNet, Ipv4Net};

use crate::Error;

/// Candidates in order. All are private; none is a default of a common container network, VPN or home router.
fn candidates() -> [IpNet; 8] {
    [(10, 213), (10, 171), (10, 139), (172, 29), (10, 59), (172, 23), (10, 251), (10, 7)]
        .map(|(first, second)| IpNet::V4(Ipv4Net::new_assert([first, second, 0, 0].into(), 16)))
}

/// The former range if no route overlaps it, else the first candidate without overlap. A range in which pods have addresses is kept whatever
/// routes exist: changing it would disconnect them.
pub(crate) fn choose(before: Option<IpNet>, in_use: bool, routes: &[IpNet]) -> Result<IpNet, Error> {
    let candidates = candidates();
    match before {
        Some(range) if in_use => Ok(range),
        _ => before
            .iter()
            .chain(&candidates)
            .find(|range| !overlaps(range, routes))
            .copied()
            .ok_or_else(|| Error::NoRange { candidates: candidates.to_vec() }),
    }
}

/// Whether a route other than the default route overlaps the range.
pub(crate) fn overlaps(range: &IpNet, routes: &[IpNet]) -> bool {
    routes.iter().any(|route| route.prefix_len() > 0 && (route.contains(range) || range.contains(route)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_candidate_is_taken_without_conflicting_routes() {
        let routes = [net("0.0.0.0/0"), net("192.168.1.0/24"), net("fe80::/64")];
        assert_eq!(choose(None, false, &routes).unwrap(), net("10.213.0.0/16"));
    }

    #[test]
    fn a_candidate_that_overlaps_a_route_is_skipped() {
        assert_eq!(choose(None, false, &[net("10.213.4.0/24")]).unwrap(), net("10.171.0.0/16"));
        assert_eq!(choose(None, false, &[net("10.0.0.0/8")]).unwrap(), net("172.29.0.0/16"));
    }

    #[test]
    fn the_former_range_is_kept_while_no_route_overlaps_it() {
        assert_eq!(choose(Some(net("10.59.0.0/16")), false, &[]).unwrap(), net("10.59.0.0/16"));
        assert_eq!(choose(Some(net("10.59.0.0/16")), false, &[net("10.59.1.1/32")]).unwrap(), net("10.213.0.0/16"));
    }

    #[test]
    fn the_former_range_is_kept_while_pods_have_addresses_in_it() {
        assert_eq!(choose(Some(net("10.59.0.0/16")), true, &[net("10.59.1.1/32")]).unwrap(), net("10.59.0.0/16"));
    }

    #[test]
    fn no_free_range_is_an_error_that_lists_the_candidates() {
        let error = choose(None, false, &[net("10.0.0.0/8"), net("172.16.0.0/12")]).unwrap_err().to_string();
        assert!(error.contains("10.213.0.0/16") && error.contains("configure a range"), "{error}");
    }
}
