//! Allocating an address from a range. Pure: the owned addresses come in, the next one goes out.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The state of allocation in one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// Which range.
    pub(crate) range: IpNet,
    /// The address that was allocated last.
    pub(crate) given: Option<IpAddr>,
    /// The address that was freed last. Peers may still send to it, so it is the last choice.
    pub(crate) freed: Option<IpAddr>,
}

/// The first address of a range, which the bridge has.
pub(crate) fn gateway(range: IpNet) -> IpAddr {
    at(range, 1)
}

/// How many pods fit into a range: without the network address, the gateway, and the broadcast address (IPv6 has none, but its last address
/// is left out all the same).
pub(crate) fn capacity(range: IpNet) -> u128 {
    let bits = u32::from(range.max_prefix_len() - range.prefix_len());
    1_u128.checked_shl(bits).unwrap_or(u128::MAX).saturating_sub(3)
}

/// The next free address after the one allocated last, wrapping around; none if all are taken.
pub(crate) fn pick(cursor: &Cursor, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    let range = cursor.range;
    let capacity = capacity(range);
    let after = cursor.given.and_then(|ip| index_of(range, ip)).map_or(0, |place| place + 1);
    // With more candidates than there are taken ones (and the one freed last) there must be a free one.
    let enough = capacity.min(taken.len() as u128 + 2);
    let mut last_choice = None;
    for step in 0..enough {
        let candidate = at(range, 2 + (after + step) % capacity);
        if taken.contains(&candidate) {
            continue;
        }
        if cursor.freed != Some(candidate) {
            return Some(candidate);
        }
        last_choice = Some(candidate);
    }
    last_choice
}

/// The index of an address, counted from the first one for pods; none if it is not for pods.
fn index_of(range: IpNet, ip: IpAddr) -> Option<u128> {
    let place = number(ip).checked_sub(number(range.network()))?.checked_sub(2)?;
    (range.contains(&ip) && place < capacity(range)).then_some(place)
}

fn at(range: IpNet, offset: u128) -> IpAddr {
    let value = number(range.network()).saturating_add(offset);
    match range {
        IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(value).unwrap_or(u32::MAX))),
        IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(value)),
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

// === impl Cursor ===

impl Cursor {
    /// A range without allocations.
    pub(crate) fn new(range: IpNet) -> Cursor {
        Cursor { range, given: None, freed: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cursor(range: &str) -> Cursor {
        Cursor::new(range.parse().unwrap())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_pod_comes_after_the_gateway() {
        assert_eq!(gateway("10.1.0.0/16".parse().unwrap()), ip("10.1.0.1"));
        assert_eq!(pick(&cursor("10.1.0.0/16"), &BTreeSet::new()), Some(ip("10.1.0.2")));
        assert_eq!(pick(&cursor("fd00::/64"), &BTreeSet::new()), Some(ip("fd00::2")));
    }

    #[test]
    fn neither_network_nor_gateway_nor_broadcast_is_allocated() {
        let mut cursor = cursor("10.1.0.0/29");
        let mut taken = BTreeSet::new();
        while let Some(ip) = pick(&cursor, &taken) {
            cursor.given = Some(ip);
            assert!(taken.insert(ip));
        }
        let all: Vec<String> = taken.iter().map(IpAddr::to_string).collect();
        assert_eq!(all, ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"]);
        assert_eq!(capacity(cursor.range), 5);
    }

    #[test]
    fn the_whole_range_goes_round_before_an_address_comes_back() {
        let mut cursor = cursor("10.1.0.0/29");
        let mut seen = Vec::new();
        for _ in 0..6 {
            let ip = pick(&cursor, &BTreeSet::new()).unwrap();
            cursor = Cursor { given: Some(ip), freed: Some(ip), ..cursor };
            seen.push(ip.to_string());
        }
        assert_eq!(seen, ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6", "10.1.0.2"]);
    }

    #[test]
    fn the_address_freed_last_is_the_last_choice() {
        let cursor = Cursor { given: Some(ip("10.1.0.2")), freed: Some(ip("10.1.0.3")), ..cursor("10.1.0.0/29") };
        let taken: BTreeSet<IpAddr> = ["10.1.0.2", "10.1.0.4", "10.1.0.6"].map(ip).into();
        assert_eq!(pick(&cursor, &taken), Some(ip("10.1.0.5")));
        let taken: BTreeSet<IpAddr> = ["10.1.0.2", "10.1.0.4", "10.1.0.5", "10.1.0.6"].map(ip).into();
        assert_eq!(pick(&cursor, &taken), Some(ip("10.1.0.3")));
    }

    #[test]
    fn a_cursor_outside_the_range_starts_at_the_beginning() {
        let cursor = Cursor { given: Some(ip("192.168.7.7")), ..cursor("10.1.0.0/29") };
        assert_eq!(pick(&cursor, &BTreeSet::new()), Some(ip("10.1.0.2")));
    }

    proptest! {
        /// For any history, the allocated address is free, in the range, and not the one freed last unless no other is left; none is allocated
        /// only when all are taken.
        #[test]
        fn a_pick_is_free_and_found_whenever_there_is_one(
            taken in proptest::collection::btree_set(2_u8..15, 0..14),
            given in proptest::option::of(0_u8..17),
            freed in proptest::option::of(0_u8..17),
        ) {
            let at = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 1, 0, last));
            let cursor = Cursor { given: given.map(at), freed: freed.map(at), ..cursor("10.1.0.0/28") };
            let taken: BTreeSet<IpAddr> = taken.into_iter().map(at).collect();
            let free: BTreeSet<IpAddr> = (2..15).map(at).filter(|ip| !taken.contains(ip)).collect();
            match pick(&cursor, &taken) {
                None => prop_assert!(free.is_empty(), "free: {free:?}"),
                Some(ip) => {
                    prop_assert!(free.contains(&ip), "{ip} is not one of {free:?}");
                    prop_assert!(cursor.freed != Some(ip) || free.len() == 1, "{ip} was just freed: {free:?}");
                }
            }
        }
    }
}
