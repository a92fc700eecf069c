//! Errors of pod networks.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use crate::cni::{CniConfigError, CniFileError, CniPluginError};
use crate::firewall::FirewallError;

/// Why a pod has no network, or why its network was not removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is invalid.
    #[error("invalid network setting {field} {value:?}: {problem}")]
    Setting {
        /// Which setting.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// A request is invalid.
    #[error("invalid network request for sandbox {sandbox:?}: {problem}")]
    Request {
        /// The sandbox.
        sandbox: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// The state directory could not be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    State {
        /// What was tried.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The network namespace does not exist, or cannot be entered.
    #[error("cannot enter the network namespace {}: {source}", path.display())]
    Namespace {
        /// Which namespace.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A thread cannot be started, or panicked.
    #[error("cannot run the thread {name}: {source}")]
    Thread {
        /// The name of the thread.
        name: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A netlink socket could not be opened.
    #[error("cannot open a netlink socket: {0}")]
    Netlink(#[source] io::Error),
    /// The kernel refused.
    #[error("cannot {doing}: {}", kernel_message(source))]
    Kernel {
        /// What was tried.
        doing: String,
        /// What the kernel answered.
        source: rtnetlink::Error,
    },
    /// An interface that was just created is missing.
    #[error("interface {name} does not exist")]
    NoInterface {
        /// Which interface.
        name: String,
    },
    /// The name of the bridge belongs to another interface.
    #[error("interface {name} exists and is not a bridge; choose another bridge name")]
    NotABridge {
        /// Which interface.
        name: String,
    },
    /// All candidate ranges overlap routes of this node.
    #[error(
        "no free address range for pods: each of {} overlaps a route of this node; configure a range",
        list_with(", ", candidates)
    )]
    NoRange {
        /// What was tried.
        candidates: Vec<IpNet>,
    },
    /// No address is left.
    #[error("no free address in {range}: all {size} are used by pods")]
    RangeFull {
        /// In which range.
        range: IpNet,
        /// How many addresses for pods it has.
        size: u128,
    },
    /// Another pod uses the port.
    #[error("host port {port} is already used by sandbox {holder}")]
    HostPortTaken {
        /// Port, protocol and address.
        port: String,
        /// The sandbox of the other pod.
        holder: String,
    },
    /// A process of the node listens on the port, and would lose its clients.
    #[error("host port {port} is taken by a process of the node: {holder} listens on it")]
    HostPortInUse {
        /// Port, protocol and address.
        port: String,
        /// The process.
        holder: String,
    },
    /// A host port is for an address family that the pod does not have.
    #[error("host port {port} is for the address {host_ip}, but the pod has no address of that family")]
    HostPortFamily {
        /// Port and protocol.
        port: String,
        /// The address in the request.
        host_ip: IpAddr,
    },
    /// Host ports need packet rules, which this kernel refuses.
    #[error("cannot forward the host ports of the pod: {0}")]
    HostPortUnsupported(#[source] FirewallError),
    /// All CNI configurations are invalid.
    #[error("no usable CNI configuration in {}: {}", dir.display(), list_with("; ", problems))]
    CniConfiguration {
        /// Where they are.
        dir: PathBuf,
        /// What is wrong with each file.
        problems: Vec<CniFileError>,
    },
    /// The CNI configuration was removed while a sandbox was attached again.
    #[error("the CNI configuration in {} was removed", dir.display())]
    CniConfigurationRemoved {
        /// Where it was.
        dir: PathBuf,
    },
    /// The stored CNI configuration of a sandbox is invalid.
    #[error("the stored CNI configuration of sandbox {sandbox:?} is invalid: {source}")]
    CniRecord {
        /// The sandbox.
        sandbox: String,
        /// What is wrong with it.
        source: CniConfigError,
    },
    /// A CNI plugin is not installed.
    #[error("CNI plugin {plugin:?} of network {network:?} is not in {}", list_with(", ", dirs.iter().map(|dir| dir.display())))]
    CniPluginMissing {
        /// Which plugin.
        plugin: String,
        /// Named by which network.
        network: String,
        /// The searched directories.
        dirs: Vec<PathBuf>,
    },
    /// A CNI plugin failed.
    #[error("CNI plugin {plugin:?} of network {network:?} failed to {command}: {source}")]
    CniPlugin {
        /// Which plugin.
        plugin: String,
        /// Of which network.
        network: String,
        /// ADD, DEL or STATUS.
        command: &'static str,
        /// How it failed, with its own message.
        source: CniPluginError,
    },
    /// Stopped by a test, as by `kill -9`.
    #[cfg(test)]
    #[error("stopped at {0}")]
    Stopped(&'static str),
}

/// The answer of the kernel, without the netlink message around it.
fn kernel_message(error: &rtnetlink::Error) -> String {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io().to_string(),
        other => other.to_string(),
    }
}

fn list_with(separator: &str, items: impl IntoIterator<Item = impl ToString>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}

// === impl Error ===

impl Error {
    /// For `map_err` on file operations.
    pub(crate) fn state(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::State { doing, path, source }
    }

    /// For `map_err` on netlink requests.
    pub(crate) fn kernel(doing: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Error {
        let doing = doing.into();
        move |source| Error::Kernel { doing, source }
    }

    /// An invalid request.
    pub(crate) fn request(sandbox: &str, problem: impl Into<String>) -> Error {
        Error::Request { sandbox: sandbox.to_owned(), problem: problem.into() }
    }
}
