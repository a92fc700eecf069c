//! Pod networks: CNI where it is configured, else a bridge of our own.
//!
//! What comes in: the path of a network namespace that somebody else made, and who lives in it. What goes out: an
//! interface in that namespace, its addresses, and rules for the ports that the node forwards. What is remembered is
//! in the state directory, one file per sandbox; the kernel's own links are the second witness.
//!
//! - [`Network`] is the door: attach, detach, sweep, status.
//! - `bridge` makes links, addresses and routes through netlink; `firewall` makes nftables rules, also through netlink.
//! - `cni` finds a configuration and runs its plugins.
//! - `store` keeps the books; `addresses` picks from a range. Both are plain code that needs no root.
//! - [`dial`] looks into a namespace from outside.
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
//! Every operation runs on a thread of its own, to its end: a caller that stops waiting leaves no half-made interface
//! behind. A thread that enters a namespace never comes back from it.

mod addresses;
mod bridge;
mod cni;
mod dial;
mod error;
mod failpoint;
mod firewall;
mod kernel;
mod listeners;
mod names;
mod network;
mod pod;
mod ranges;
mod settings;
mod store;
mod sysctl;
mod threads;

pub use dial::dial;
pub use error::Error;
pub use network::{Kind, Network};
pub use pod::{Attached, PodNetwork, PortMapping, Protocol};
pub use settings::Settings;

/// What is read from CNI, by itself. For fuzz targets.
#[doc(hidden)]
pub mod reading {
    use std::net::IpAddr;

    use crate::cni;

    /// The name of the network that a configuration describes, and what each of its plugins is given.
    pub fn network(bytes: &[u8], named_list: bool) -> Result<(String, Vec<String>), String> {
        let list = cni::parse(bytes, named_list)?;
        let again = cni::parse_list(&list.to_value())?;
        assert_eq!(again.to_value(), list.to_value(), "what is written down reads the same");
        let nothing = serde_json::Value::Null;
        let inputs = list.plugins.iter().map(|plugin| plugin.input(&list, &nothing, &nothing).to_string());
        Ok((list.name.clone(), inputs.collect()))
    }

    /// The addresses in the result of a plugin, or what is told about its failure.
    pub fn result(output: &[u8], errors: &[u8]) -> Result<Vec<IpAddr>, String> {
        match serde_json::from_slice(output) {
            Ok(result) => Ok(cni::addresses(&result)),
            Err(_) => Err(cni::failure(output, errors, "exit status 1")),
        }
    }
}

#[cfg(test)]
mod tests;
