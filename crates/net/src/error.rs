//! What can go wrong with a pod's network, each with what it was about.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

/// Why a pod has no network, or keeps one that it should not have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting has a value that cannot work.
    #[error("network setting {field}: {value:?}: {problem}")]
    Setting {
        /// Which setting.
        field: &'static str,
        /// What it says.
        value: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// A request has a value that cannot work.
    #[error("pod network of sandbox {sandbox:?}: {problem}")]
    Request {
        /// Whose network.
        sandbox: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// The state directory could not be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    State {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
    /// The namespace is not there, or cannot be entered.
    #[error("cannot enter the network namespace {}: {source}", path.display())]
    Namespace {
        /// Which namespace.
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
    /// No thread or no runtime of our own could be made.
    #[error("cannot start the thread {name}: {source}")]
    Thread {
        /// What the thread was for.
        name: &'static str,
        /// How it failed.
        source: io::Error,
    },
    /// A netlink socket could not be opened.
    #[error("cannot talk to the kernel over netlink: {0}")]
    Netlink(#[source] io::Error),
    /// The kernel refused.
    #[error("cannot {doing}: {}", kernel_says(source))]
    Kernel {
        /// What was tried.
        doing: String,
        /// What the kernel answered.
        source: rtnetlink::Error,
    },
    /// The name of the bridge belongs to something else.
    #[error("the interface {name} is there already and is not a bridge; choose another bridge name")]
    NotABridge {
        /// Which interface.
        name: String,
    },
    /// All ranges that could be chosen collide with routes of this host.
    #[error("no range for pods: each of {} overlaps a route of this host; set a range", tried(candidates))]
    NoRange {
        /// What was tried.
        candidates: Vec<IpNet>,
    },
    /// No address is left.
    #[error("no free address in {range}: all {size} are taken by pods")]
    RangeFull {
        /// In which range.
        range: IpNet,
        /// How many addresses for pods it has.
        size: u128,
    },
    /// Another pod has the port already.
    #[error("host port {port} is taken by sandbox {holder}")]
    HostPortTaken {
        /// Port, protocol and address.
        port: String,
        /// Who has it.
        holder: String,
    },
    /// A process of the node listens on the port already, and would lose its clients.
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
        /// Where it should listen.
        host_ip: IpAddr,
    },
    /// Host ports need packet rules, and these cannot be made here.
    #[error("the pod wants host ports, but this host cannot forward them: {reason}")]
    HostPortUnsupported {
        /// What the kernel said.
        reason: String,
    },
    /// There are CNI configurations, but none can be used.
    #[error("no usable CNI configuration in {}: {}", dir.display(), problems.join("; "))]
    CniConfiguration {
        /// Where they are.
        dir: PathBuf,
        /// What is wrong with each file.
        problems: Vec<String>,
    },
    /// A CNI plugin is not installed.
    #[error("CNI plugin {plugin:?} of network {network:?} is not in {}", searched(dirs))]
    CniPluginMissing {
        /// Which plugin.
        plugin: String,
        /// Named by which network.
        network: String,
        /// Where it was looked for.
        dirs: Vec<PathBuf>,
    },
    /// A CNI plugin failed.
    #[error("CNI plugin {plugin:?} of network {network:?} failed to {command}: {problem}")]
    CniPlugin {
        /// Which plugin.
        plugin: String,
        /// Of which network.
        network: String,
        /// ADD, DEL or STATUS.
        command: &'static str,
        /// Its own words, whole.
        problem: String,
    },
    /// Stopped by a test, as by `kill -9`.
    #[cfg(test)]
    #[error("stopped at {0}")]
    Stopped(&'static str),
}

/// The text of an answer without the envelope around it.
fn kernel_says(error: &rtnetlink::Error) -> String {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io().to_string(),
        other => other.to_string(),
    }
}

fn tried(candidates: &[IpNet]) -> String {
    candidates.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ")
}

fn searched(dirs: &[PathBuf]) -> String {
    dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
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

    /// For `map_err` on requests that say something impossible.
    pub(crate) fn request(sandbox: &str, problem: impl Into<String>) -> Error {
        Error::Request { sandbox: sandbox.to_owned(), problem: problem.into() }
    }
}
