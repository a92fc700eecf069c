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

#[cfg(test)]
mod tests;
