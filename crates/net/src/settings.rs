//! Settings of the pod network.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use crate::{Error, addresses};

/// Settings of the pod network. Start from [`Settings::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The directory for records. Survives restarts of the agent; after a reboot it is swept.
    pub state_dir: PathBuf,
    /// The directory of CNI configurations. While there is one, new pods do not use the bridge.
    pub cni_conf_dir: PathBuf,
    /// Directories of CNI plugins, in search order.
    pub cni_bin_dirs: Vec<PathBuf>,
    /// How long one CNI plugin may take.
    pub cni_timeout: Duration,
    /// The name of the bridge, which is created for the first pod, and of the nftables tables.
    pub bridge: String,
    /// The directory of the program that created the bridge. The bridge carries it, so that a bridge whose program was killed can be
    /// traced back.
    pub owner: Option<PathBuf>,
    /// The address ranges of pods: one IPv4 range, one IPv6 range, or both; the first one is the primary family. Empty: an IPv4 range that no
    /// route of this node overlaps.
    pub ranges: Vec<IpNet>,
    /// MTU of the pods' interfaces. None: that of the interface with the default route.
    pub mtu: Option<u32>,
}

// === impl Settings ===

impl Settings {
    /// The defaults, with state under `state_dir`.
    pub fn new(state_dir: impl Into<PathBuf>) -> Settings {
        Settings {
            state_dir: state_dir.into(),
            cni_conf_dir: "/etc/cni/net.d".into(),
            cni_bin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            // Plugins that wait for a control plane take seconds; the kubelet's own limit for a whole sandbox is 4 min.
            cni_timeout: Duration::from_secs(60),
            bridge: "keelet0".to_owned(),
            owner: None,
            ranges: Vec::new(),
            mtu: None,
        }
    }

    /// Validates the settings.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_bridge_name(&self.bridge)?;
        for (index, range) in self.ranges.iter().enumerate() {
            check_range(range)?;
            if self.ranges[..index].iter().any(|other| other.addr().is_ipv4() == range.addr().is_ipv4()) {
                return Err(invalid("ranges", range, "only one range per address family is possible"));
            }
        }
        match self.mtu {
            // 1280 is the least that IPv6 works with, 576 the least that every IPv4 host takes.
            Some(mtu) if !(576..=65535).contains(&mtu) => Err(invalid("mtu", &mtu, "must be 576 to 65535")),
            _ => Ok(()),
        }
    }
}

fn check_bridge_name(name: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 15 || !name.bytes().all(allowed) || name.starts_with('.') {
        let problem = "must be 1 to 15 letters, digits, '-', '_' or '.', and not begin with '.'";
        return Err(invalid("bridge", &name, problem));
    }
    Ok(())
}

fn check_range(range: &IpNet) -> Result<(), Error> {
    if range.addr() != range.network() {
        let problem = format!("has bits beyond its prefix; did you mean {}?", range.trunc());
        return Err(invalid("ranges", range, problem));
    }
    let special = range.addr().is_multicast() || range.addr().is_loopback() || range.addr().is_unspecified();
    if special {
        return Err(invalid("ranges", range, "not a range of unicast addresses"));
    }
    if addresses::capacity(*range) == 0 {
        let problem = "too small: needs a gateway and at least one pod (an IPv4 /30 or an IPv6 /126 at least)";
        return Err(invalid("ranges", range, problem));
    }
    Ok(())
}

fn invalid(field: &'static str, value: &dyn ToString, problem: impl Into<String>) -> Error {
    Error::Setting { field, value: value.to_string(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::new("/nowhere");
        change(&mut settings);
        settings.check().err().map(|error| error.to_string()).unwrap_or_default()
    }

    fn range(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(error_of(|_| ()), "");
    }

    #[test]
    fn two_families_are_valid_and_two_ranges_of_one_are_not() {
        assert_eq!(error_of(|s| s.ranges = vec![range("10.9.0.0/24"), range("fd00:9::/64")]), "");
        let error = error_of(|s| s.ranges = vec![range("10.9.0.0/24"), range("10.8.0.0/24")]);
        assert!(error.contains("10.8.0.0/24") && error.contains("one range per address family"), "{error}");
    }

    #[test]
    fn the_error_for_an_invalid_range_names_it() {
        for (text, why) in [
            ("10.9.0.1/24", "did you mean 10.9.0.0/24?"),
            ("10.9.0.0/31", "too small"),
            ("fd00::/127", "too small"),
            ("127.0.0.0/16", "not a range of unicast"),
            ("224.0.0.0/8", "not a range of unicast"),
            ("0.0.0.0/0", "not a range of unicast"),
        ] {
            let error = error_of(|s| s.ranges = vec![range(text)]);
            assert!(error.contains(text) && error.contains(why), "{text}: {error}");
        }
        assert_eq!(error_of(|s| s.ranges = vec![range("10.9.0.0/30"), range("fd00::/126")]), "");
    }

    #[test]
    fn a_bridge_name_must_fit_into_an_interface_name() {
        for name in ["", "sixteen-letters-", "a/b", "a b", "."] {
            assert!(error_of(|s| s.bridge = name.to_owned()).contains("1 to 15"), "{name:?}");
        }
    }

    #[test]
    fn an_mtu_has_bounds() {
        assert_eq!(error_of(|s| s.mtu = Some(1400)), "");
        assert!(error_of(|s| s.mtu = Some(575)).contains("576 to 65535"));
        assert!(error_of(|s| s.mtu = Some(65536)).contains("576 to 65535"));
    }
}
