//! Kernel parameters that pods may set.
//!
//! Safe are those that are namespaced and cannot harm another pod: the kubelet's list as of Kubernetes 1.37. What the
//! operator allows beside them must at least be namespaced.

use keelet_pod::Pod;

/// What may be set beside the safe ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sysctls {
    /// names, or beginnings with `*` at their end
    allowed: Vec<String>,
}

/// A pattern of `allowedUnsafeSysctls` that covers parameters of the whole node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} covers kernel parameters that are not namespaced")]
pub struct NotNamespaced(pub String);

/// A namespace that kernel parameters belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Network,
    Ipc,
}

/// All of them are a namespace's own since Linux 4.15, which is older than any kernel that keelet runs on.
const SAFE: [&str; 14] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// Parameters that belong to a namespace.
pub const NAMESPACED: [&str; 5] = ["kernel.shm*", "kernel.msg*", "kernel.sem", "fs.mqueue.*", "net.*"];

/// The namespace of a parameter, or of all that begin like a pattern.
fn namespace(name: &str) -> Option<Namespace> {
    let name = name.trim_end_matches('*');
    let of_ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|start| name.starts_with(start));
    match name {
        "kernel.sem" => Some(Namespace::Ipc),
        _ if of_ipc => Some(Namespace::Ipc),
        _ if name.starts_with("net.") => Some(Namespace::Network),
        _ => None,
    }
}

/// The name with dots. The first of `.` and `/` in it is what separates its parts, as with sysctl(8); the other is part of
/// a name.
fn with_dots(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => {
            let swapped = |letter| match letter {
                '/' => '.',
                '.' => '/',
                other => other,
            };
            name.chars().map(swapped).collect()
        }
        _ => name.to_owned(),
    }
}

// === impl Sysctls ===

impl Sysctls {
    /// Allows the parameters that match these patterns.
    pub fn allowing(patterns: Vec<String>) -> Result<Self, NotNamespaced> {
        let is_wrong = |pattern: &&String| {
            let inner = pattern.strip_suffix('*').unwrap_or(pattern);
            namespace(&with_dots(pattern)).is_none() || inner.is_empty() || inner.contains('*')
        };
        match patterns.iter().find(is_wrong) {
            Some(wrong) => Err(NotNamespaced(wrong.clone())),
            None => Ok(Self { allowed: patterns.iter().map(|pattern| with_dots(pattern)).collect() }),
        }
    }

    /// The first parameter that a pod must not set, and why.
    pub(crate) fn forbidden(&self, pod: &Pod) -> Option<String> {
        let spec = pod.source.spec.as_ref()?;
        let shares = |namespace| match namespace {
            Namespace::Network => spec.host_network == Some(true),
            Namespace::Ipc => spec.host_ipc == Some(true),
        };
        let asked = spec.security_context.iter().flat_map(|context| context.sysctls.iter().flatten());
        asked.into_iter().find_map(|sysctl| {
            let name = with_dots(&sysctl.name);
            if !SAFE.contains(&name.as_str()) && !self.allows(&name) {
                return Some(format!(
                    "{name:?} is not a safe sysctl, and allowedUnsafeSysctls of this node does not allow it"
                ));
            }
            let shared = namespace(&name).is_none_or(shares);
            shared.then(|| format!("{name:?} belongs to a namespace that the pod shares with the node"))
        })
    }

    fn allows(&self, name: &str) -> bool {
        self.allowed.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        })
    }
}
