//! Pod networks: CNI where it is configured, else a built-in bridge.
//!
//! What comes in: the path of a network namespace that the runtime created, and the pod that it belongs to. What goes out: an interface in
//! that namespace, its addresses, and rules for host ports. The state directory has one record per sandbox; where a record is lost, the
//! links of the kernel have the same information.
//!
//! - [`Network`] is the entry point: attach, detach, sweep, status.
//! - `bridge` creates links, addresses and routes through netlink; `firewall` creates nftables rules, also through netlink.
//! - `cni` finds a configuration and runs its plugins.
//! - `store` has the records; `addresses` allocates from a range. Neither needs root.
//! - [`dial`] connects to a port inside a namespace.
//!
//! ```no_run
//! # async fn example() -> Result<(), keelet_net::Error> {
//! use keelet_net::{Network, PodNetwork, Settings};
//!
//! let network = Network::open(Settings::new("/var/lib/keelet/network"))?;
//! let pod = PodNetwork {
//!     sandbox_id: "6a1f".to_owned(),
//!     netns: "/proc/4711/ns/net".into(),
//!     name: "web".to_owned(),
//!     namespace: "default".to_owned(),
//!     uid: "0e5a".to_owned(),
//!     ports: Vec::new(),
//!     annotations: Default::default(),
//! };
//! let attached = network.attach(&pod).await?;
//! assert_eq!(attached.interface, "eth0");
//! network.detach(&pod.sandbox_id, Some(&pod.netns)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Every operation runs on a thread of its own to completion: a caller that is cancelled leaves no incomplete interface behind. A thread
//! that enters a namespace exits in it.

mod addresses;
mod bridge;
mod cni;
mod dial;
mod error;
mod failpoint;
mod firewall;
mod kernel;
mod listeners;
mod loopback;
mod names;
mod network;
mod pod;
mod ranges;
mod settings;
mod store;
mod sysctl;
mod threads;

pub use cni::{CniConfigError, CniFileError, CniPluginError};
pub use dial::dial;
pub use error::Error;
pub use firewall::FirewallError;
pub use network::{Kind, Network, OwnedBridge};
pub use pod::{Attached, PodNetwork, PortMapping, Protocol};
pub use settings::Settings;

/// Parsers of CNI files and results, for fuzz targets.
#[doc(hidden)]
pub mod reading {
    use std::net::IpAddr;

    use crate::{CniConfigError, CniPluginError, cni};

    /// The name of the network that a configuration describes, and what each of its plugins is given.
    pub fn network(bytes: &[u8], named_list: bool) -> Result<(String, Vec<String>), CniConfigError> {
        let list = cni::parse(bytes, named_list)?;
        let again = cni::parse_list(&list.to_value())?;
        assert_eq!(again.to_value(), list.to_value(), "a stored list is parsed to the same list");
        let nothing = serde_json::Value::Null;
        let inputs = list.plugins.iter().map(|plugin| plugin.input(&list, &nothing, &nothing).to_string());
        Ok((list.name.clone(), inputs.collect()))
    }

    /// The addresses in the result of a plugin, or its failure.
    pub fn result(output: &[u8], errors: &[u8]) -> Result<Vec<IpAddr>, CniPluginError> {
        match serde_json::from_slice(output) {
            Ok(result) => Ok(cni::addresses(&result)),
            Err(_) => Err(CniPluginError::Failed(cni::failure(output, errors, "exit status 1"))),
        }
    }
}

#[cfg(test)]
mod tests;
