//! Choosing a range for pods that nothing on this host uses.

use ipnet::{IpNet, Ipv4Net};

use crate::Error;

/// Tried in this order. All are private; none is a default of a common container network, VPN or home router.
fn candidates() -> [IpNet; 8] {
    [(10, 213), (10, 171), (10, 139), (172, 29), (10, 59), (172, 23), (10, 251), (10, 7)]
        .map(|(first, second)| IpNet::V4(Ipv4Net::new_assert([first, second, 0, 0].into(), 16)))
}

/// The range of before if it is still good, else the first candidate that overlaps no route. A range that pods live in
/// stays, whatever routes came up since: moving it would cut them off.
pub(crate) fn choose(before: Option<IpNet>, in_use: bool, routes: &[IpNet]) -> Result<IpNet, Error> {
    let candidates = candidates();
    match before {
        Some(range) if in_use => Ok(range),
        _ => before
            .iter()
            .chain(&candidates)
            .find(|range| !collides(range, routes))
            .copied()
            .ok_or_else(|| Error::NoRange { candidates: candidates.to_vec() }),
    }
}

/// Whether a route leads somewhere into the range. The default route leads everywhere and does not count.
pub(crate) fn collides(range: &IpNet, routes: &[IpNet]) -> bool {
    routes.iter().any(|route| route.prefix_len() > 0 && (route.contains(range) || range.contains(route)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_candidate_is_taken_on_a_plain_host() {
        let routes = [net("0.0.0.0/0"), net("192.168.1.0/24"), net("fe80::/64")];
        assert_eq!(choose(None, false, &routes).unwrap(), net("10.213.0.0/16"));
    }

    #[test]
    fn a_candidate_that_overlaps_a_route_is_left_out() {
        assert_eq!(choose(None, false, &[net("10.213.4.0/24")]).unwrap(), net("10.171.0.0/16"));
        assert_eq!(choose(None, false, &[net("10.0.0.0/8")]).unwrap(), net("172.29.0.0/16"));
    }

    #[test]
    fn the_choice_of_before_stays_while_it_is_good() {
        assert_eq!(choose(Some(net("10.59.0.0/16")), false, &[]).unwrap(), net("10.59.0.0/16"));
        assert_eq!(choose(Some(net("10.59.0.0/16")), false, &[net("10.59.1.1/32")]).unwrap(), net("10.213.0.0/16"));
    }

    #[test]
    fn the_choice_of_before_stays_while_pods_live_in_it() {
        assert_eq!(choose(Some(net("10.59.0.0/16")), true, &[net("10.59.1.1/32")]).unwrap(), net("10.59.0.0/16"));
    }

    #[test]
    fn a_host_with_all_ranges_in_use_is_told_so() {
        let said = choose(None, false, &[net("10.0.0.0/8"), net("172.16.0.0/12")]).unwrap_err().to_string();
        assert!(said.contains("10.213.0.0/16") && said.contains("set a range"), "{said}");
    }
}
