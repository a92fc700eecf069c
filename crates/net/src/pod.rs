//! Requests for networks, and their results.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Error;

/// A request to attach a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNetwork {
    /// The ID of the sandbox. The same ID again means the same network.
    pub sandbox_id: String,
    /// Its network namespace: `/proc/PID/ns/net`, or a bind mount of it.
    pub netns: PathBuf,
    /// Name of the pod.
    pub name: String,
    /// Kubernetes namespace of the pod.
    pub namespace: String,
    /// UID of the pod.
    pub uid: String,
    /// Port mappings. Those with a host port of 0 are ignored.
    pub ports: Vec<PortMapping>,
    /// Annotations of the pod, for CNI plugins that ask for them.
    pub annotations: BTreeMap<String, String>,
}

/// A host port that is forwarded to a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    /// The transport protocol.
    pub protocol: Protocol,
    /// Port inside the pod.
    pub container_port: u16,
    /// Port on the node.
    pub host_port: u16,
    /// Which address of the node; all of them if it is not set or unspecified (`0.0.0.0`, `::`).
    pub host_ip: Option<IpAddr>,
}

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// An attached sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// Its addresses; the first one is the primary address of the pod.
    pub ips: Vec<IpAddr>,
    /// The name of its interface in the namespace.
    pub interface: String,
}

/// Validates a sandbox ID, which is used as a file name.
pub(crate) fn check_sandbox_id(id: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    // The ID has to fit into an interface's alias (255 bytes) beside two addresses.
    if id.is_empty() || id.len() > 128 || !id.bytes().all(allowed) || !id.as_bytes()[0].is_ascii_alphanumeric() {
        return Err(Error::request(
            id,
            "the sandbox ID must be 1 to 128 letters, digits, '-', '_' or '.', and begin with a letter or digit",
        ));
    }
    Ok(())
}

// === impl PodNetwork ===

impl PodNetwork {
    /// The ports that are forwarded.
    pub(crate) fn forwarded(&self) -> Vec<PortMapping> {
        self.ports.iter().filter(|port| port.host_port != 0).cloned().collect()
    }

    /// Validates the request before anything is changed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_sandbox_id(&self.sandbox_id)?;
        for (index, port) in self.ports.iter().enumerate() {
            if port.container_port == 0 {
                return Err(Error::request(
                    &self.sandbox_id,
                    format!("ports[{index}].container_port: 0: must be 1 to 65535"),
                ));
            }
        }
        let forwarded = self.forwarded();
        for (index, port) in forwarded.iter().enumerate() {
            if forwarded[..index].iter().any(|other| other.conflicts_with(port)) {
                return Err(Error::request(&self.sandbox_id, format!("host port {port} is requested twice")));
            }
        }
        Ok(())
    }
}

// === impl PortMapping ===

impl PortMapping {
    /// Its host address, unless that is unspecified.
    pub(crate) fn only_for(&self) -> Option<IpAddr> {
        self.host_ip.filter(|ip| !ip.is_unspecified())
    }

    /// Whether it is forwarded to pod addresses of this family.
    pub(crate) fn serves(&self, ip: IpAddr) -> bool {
        self.host_ip.is_none_or(|host| host.is_ipv4() == ip.is_ipv4())
    }

    /// Whether a packet could match both.
    pub(crate) fn conflicts_with(&self, other: &PortMapping) -> bool {
        let families_overlap = match (self.host_ip, other.host_ip) {
            (Some(one), Some(two)) => one.is_ipv4() == two.is_ipv4(),
            _ => true,
        };
        let addresses_overlap = match (self.only_for(), other.only_for()) {
            (Some(one), Some(two)) => one == two,
            _ => families_overlap,
        };
        self.protocol == other.protocol && self.host_port == other.host_port && addresses_overlap
    }
}

impl fmt::Display for PortMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.only_for() {
            Some(ip) => write!(f, "{ip} {}/{}", self.host_port, self.protocol),
            None => write!(f, "{}/{}", self.host_port, self.protocol),
        }
    }
}

// === impl Protocol ===

impl Protocol {
    /// Its number in IP headers.
    pub(crate) fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        })
    }
}
