//! Names and hardware addresses that are derived from sandbox IDs and addresses, so that they are found again after a crash.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Prefix of the name of every host end.
const HOST_END_PREFIX: &str = "kl";

/// The interface of a pod.
pub(crate) const POD_INTERFACE: &str = "eth0";

/// Prefix of the alias of every host end.
const ALIAS_PREFIX: &str = "keelet sandbox ";

/// Prefix of the alias of every bridge.
const BRIDGE_ALIAS_PREFIX: &str = "keelet bridge of ";

/// The kernel's IFALIASZ, which includes the terminating zero byte.
const LONGEST_ALIAS: usize = 256;

/// The host end of a sandbox's veth pair: 15 characters, the longest that the kernel allows.
pub(crate) fn host_end(sandbox: &str) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let hash = fnv1a(sandbox.as_bytes());
    // 13 digits of 5 bits hold 64 bits; the first one has the 4 that are left over.
    let digits = (0..13).rev().map(|place| char::from(DIGITS[(hash >> (5 * place)) as usize & 31]));
    HOST_END_PREFIX.chars().chain(digits).collect()
}

/// Whether a name may come from [`host_end`].
pub(crate) fn is_host_end(name: &str) -> bool {
    name.len() == 15
        && name
            .strip_prefix(HOST_END_PREFIX)
            .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'v').contains(&byte)))
}

/// The alias of a host end, for people, and for an agent whose records are lost.
pub(crate) fn alias(sandbox: &str, ips: &[IpAddr]) -> String {
    let ips: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
    format!("{ALIAS_PREFIX}{sandbox} {}", ips.join(","))
}

/// The alias of a bridge, which names the directory of the program that created it; none if the kernel has no room for it.
pub(crate) fn bridge_alias(owner: &Path) -> Option<String> {
    let alias = format!("{BRIDGE_ALIAS_PREFIX}{}", owner.to_str()?);
    (alias.len() < LONGEST_ALIAS).then_some(alias)
}

/// The directory in the alias of a bridge; none if keelet did not set the alias.
pub(crate) fn owner_in(alias: &str) -> Option<PathBuf> {
    alias.strip_prefix(BRIDGE_ALIAS_PREFIX).map(PathBuf::from)
}

/// The addresses in an alias; none in an alias that keelet did not set.
pub(crate) fn addresses_in(alias: &str) -> Vec<IpAddr> {
    let Some((_, ips)) = alias.strip_prefix(ALIAS_PREFIX).and_then(|rest| rest.split_once(' ')) else {
        return Vec::new();
    };
    ips.split(',').filter_map(|ip| ip.parse().ok()).collect()
}

/// A locally administered hardware address that is derived from an IP address, so that neighbour caches stay valid when another pod gets the
/// address.
pub(crate) fn hardware_address(ip: IpAddr) -> [u8; 6] {
    let last = match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => {
            let [.., a, b, c, d] = ip.octets();
            [a, b, c, d]
        }
    };
    [0x0a, 0x6b, last[0], last[1], last[2], last[3]]
}

/// FNV-1a: a hash that is the same in every build, unlike the standard library's.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ends_fit_into_an_interface_name_and_differ() {
        let names: std::collections::BTreeSet<String> = (0..1000).map(|n| host_end(&format!("sandbox-{n}"))).collect();
        assert_eq!(names.len(), 1000);
        for name in &names {
            assert_eq!(name.len(), 15, "{name}");
            assert!(is_host_end(name), "{name}");
        }
    }

    /// No file has the name: another build must derive the same one.
    #[test]
    fn a_host_end_has_the_same_name_in_every_build() {
        assert_eq!(host_end("0123456789abcdef"), "kl2sdpp2fiqqprt");
    }

    #[test]
    fn other_interfaces_are_not_mistaken_for_host_ends() {
        for name in ["eth0", "klondike", "kl", "kl0123456789abz", "veth0123456789a", "kl0123456789ABC"] {
            assert!(!is_host_end(name), "{name}");
        }
    }

    #[test]
    fn an_alias_has_the_addresses() {
        let ips: Vec<IpAddr> = vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        assert_eq!(addresses_in(&alias("some-id", &ips)), ips);
        assert_eq!(addresses_in("an alias of another program 10.0.0.2"), Vec::<IpAddr>::new());
    }

    #[test]
    fn the_alias_of_a_bridge_names_its_owner() {
        let owner = Path::new("/srv/my pods");
        assert_eq!(owner_in(&bridge_alias(owner).expect("short enough")).as_deref(), Some(owner));
        assert_eq!(owner_in(&alias("some-id", &[])), None);
        assert_eq!(owner_in("an alias of another program"), None);
        let long = |length: usize| PathBuf::from(format!("/{}", "x".repeat(length - BRIDGE_ALIAS_PREFIX.len() - 1)));
        assert_eq!(bridge_alias(&long(LONGEST_ALIAS - 1)).map(|alias| alias.len()), Some(LONGEST_ALIAS - 1));
        assert_eq!(bridge_alias(&long(LONGEST_ALIAS)), None, "the kernel would refuse it");
    }

    #[test]
    fn hardware_addresses_are_local_and_unicast() {
        for ip in ["10.1.2.3", "fd00::1:2"] {
            let mac = hardware_address(ip.parse().unwrap());
            assert_eq!(mac[0] & 0b11, 0b10, "{ip}");
        }
    }
}
