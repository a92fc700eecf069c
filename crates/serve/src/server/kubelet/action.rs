//! What a request to the kubelet's API asks for, by its path alone. Pure.
//!
//! A path is read once, here. Authorization and handlers both work on the [`Action`] that comes out, so that they cannot understand a path
//! differently.

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The log of a container.
    ContainerLogs(ContainerRef),
    /// A command in a container.
    Exec(ContainerRef),
    /// Attaching to a container.
    Attach(ContainerRef),
    /// Connections to ports of a pod.
    PortForward(PodRef),
    /// A command whose output is the answer. Known for its authorization; not served.
    Run,
    /// The pods of this node.
    Pods,
    /// The pods that the runtime has.
    RunningPods,
    /// Whether the agent is well.
    Healthz,
    /// The configuration in effect.
    Configz,
    /// Numbers of one kind.
    Metrics(Numbers),
    /// Usage of node, pods and containers.
    Summary,
    /// Files of the node's log directory. Known for its authorization; not served.
    NodeLogs,
    /// A path that is not served, below one that has a permission of its own, or below none.
    Unknown(Area),
}

/// A container that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRef {
    /// Its pod.
    pub pod: PodRef,
    /// Its name.
    pub container: String,
}

/// A pod that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, if the path names one: then no other pod of that name is meant.
    pub uid: Option<String>,
}

/// A set of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// The agent's own.
    Agent,
    /// CPU and memory, as metrics-server reads them.
    Resource,
    /// Results of probes.
    Probes,
    /// Containers under cAdvisor's names.
    Cadvisor,
}

/// What the paths that are not served are below of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// `/stats/`
    Stats,
    /// `/metrics/`
    Metrics,
    /// `/checkpoint/`
    Checkpoint,
    /// `/pods/`, `/runningpods/`, `/allocatedPods`
    Pods,
    /// `/configz/`, `/flagz`
    Configz,
    /// `/statusz`
    Statusz,
    /// All others.
    Elsewhere,
}

/// A path that is not understood, because another program could understand it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// It does not begin with a slash.
    #[error("the path does not begin with /")]
    Relative,
    /// It is encoded. No name in a path of this API needs that.
    #[error("the path has an encoded character (%): names of pods, containers and namespaces need none")]
    Encoded,
    /// It has an empty part.
    #[error("the path has two slashes in a row")]
    EmptyPart,
    /// It has `.` or `..`.
    #[error("the path has a part . or ..")]
    Dots,
    /// It has a character that no name has.
    #[error("the path has a character other than letters, digits, - . and _")]
    Character,
}

// === impl Action ===

impl Action {
    /// What a path asks for. Every path has an answer.
    pub fn of(path: &str) -> Result<Self, BadPath> {
        let parts = parts(path)?;
        Ok(match parts.as_slice() {
            ["containerLogs", namespace, pod, container] => {
                Self::ContainerLogs(container_ref(namespace, pod, None, container))
            }
            ["exec", rest @ ..] => of_container(rest).map_or(Self::Unknown(Area::Elsewhere), Self::Exec),
            ["attach", rest @ ..] => of_container(rest).map_or(Self::Unknown(Area::Elsewhere), Self::Attach),
            ["portForward", namespace, pod] => Self::PortForward(pod_ref(namespace, pod, None)),
            ["portForward", namespace, pod, uid] => Self::PortForward(pod_ref(namespace, pod, Some(uid))),
            ["run", ..] => Self::Run,
            ["pods"] => Self::Pods,
            ["runningpods"] => Self::RunningPods,
            ["healthz", ..] => Self::Healthz,
            ["configz"] => Self::Configz,
            ["metrics"] => Self::Metrics(Numbers::Agent),
            ["metrics", "resource"] => Self::Metrics(Numbers::Resource),
            ["metrics", "probes"] => Self::Metrics(Numbers::Probes),
            ["metrics", "cadvisor"] => Self::Metrics(Numbers::Cadvisor),
            ["stats", "summary"] => Self::Summary,
            ["logs", ..] => Self::NodeLogs,
            ["stats", ..] => Self::Unknown(Area::Stats),
            ["metrics", ..] => Self::Unknown(Area::Metrics),
            ["checkpoint", ..] => Self::Unknown(Area::Checkpoint),
            ["pods" | "runningpods" | "allocatedPods", ..] => Self::Unknown(Area::Pods),
            ["configz" | "flagz", ..] => Self::Unknown(Area::Configz),
            ["statusz", ..] => Self::Unknown(Area::Statusz),
            _ => Self::Unknown(Area::Elsewhere),
        })
    }

    /// The pod of what lasts for as long as its client likes: a session or a log.
    pub fn session_of(&self) -> Option<&PodRef> {
        match self {
            Self::ContainerLogs(of) | Self::Exec(of) | Self::Attach(of) => Some(&of.pod),
            Self::PortForward(of) => Some(of),
            _ => None,
        }
    }
}

/// The parts between slashes. One slash at the end is left out, as the kubelet's own `/runningpods/` has one.
fn parts(path: &str) -> Result<Vec<&str>, BadPath> {
    let inner = path.strip_prefix('/').ok_or(BadPath::Relative)?;
    if inner.contains('%') {
        return Err(BadPath::Encoded);
    }
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if inner.is_empty() && path == "/" {
        return Ok(Vec::new());
    }
    inner.split('/').map(part).collect()
}

fn part(part: &str) -> Result<&str, BadPath> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match part {
        "" => Err(BadPath::EmptyPart),
        "." | ".." => Err(BadPath::Dots),
        _ if !part.bytes().all(plain) => Err(BadPath::Character),
        _ => Ok(part),
    }
}

fn of_container(parts: &[&str]) -> Option<ContainerRef> {
    match parts {
        [namespace, pod, container] => Some(container_ref(namespace, pod, None, container)),
        [namespace, pod, uid, container] => Some(container_ref(namespace, pod, Some(uid), container)),
        _ => None,
    }
}

fn container_ref(namespace: &str, pod: &str, uid: Option<&str>, container: &str) -> ContainerRef {
    ContainerRef { pod: pod_ref(namespace, pod, uid), container: container.to_owned() }
}

fn pod_ref(namespace: &str, name: &str, uid: Option<&str>) -> PodRef {
    PodRef { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-39, CLU-40
    #[test]
    fn a_path_names_one_action() {
        let container = |uid| container_ref("shop", "web-0", uid, "main");
        for (path, action) in [
            ("/containerLogs/shop/web-0/main", Action::ContainerLogs(container(None))),
            ("/exec/shop/web-0/main", Action::Exec(container(None))),
            ("/exec/shop/web-0/u-1/main", Action::Exec(container(Some("u-1")))),
            ("/attach/shop/web-0/main", Action::Attach(container(None))),
            ("/portForward/shop/web-0", Action::PortForward(pod_ref("shop", "web-0", None))),
            ("/portForward/shop/web-0/u-1", Action::PortForward(pod_ref("shop", "web-0", Some("u-1")))),
            ("/run/shop/web-0/main", Action::Run),
            ("/pods", Action::Pods),
            ("/pods/", Action::Pods),
            ("/runningpods/", Action::RunningPods),
            ("/healthz", Action::Healthz),
            ("/healthz/ping", Action::Healthz),
            ("/configz", Action::Configz),
            ("/metrics", Action::Metrics(Numbers::Agent)),
            ("/metrics/resource", Action::Metrics(Numbers::Resource)),
            ("/metrics/probes", Action::Metrics(Numbers::Probes)),
            ("/metrics/cadvisor", Action::Metrics(Numbers::Cadvisor)),
            ("/stats/summary", Action::Summary),
            ("/logs/syslog", Action::NodeLogs),
            ("/stats", Action::Unknown(Area::Stats)),
            ("/metrics/other", Action::Unknown(Area::Metrics)),
            ("/checkpoint/shop/web-0/main", Action::Unknown(Area::Checkpoint)),
            ("/pods/shop", Action::Unknown(Area::Pods)),
            ("/flagz", Action::Unknown(Area::Configz)),
            ("/", Action::Unknown(Area::Elsewhere)),
            ("/exec", Action::Unknown(Area::Elsewhere)),
            ("/exec/shop/web-0", Action::Unknown(Area::Elsewhere)),
            ("/Exec/shop/web-0/main", Action::Unknown(Area::Elsewhere)),
            ("/podsandmore", Action::Unknown(Area::Elsewhere)),
        ] {
            assert_eq!(Action::of(path), Ok(action), "{path}");
        }
    }

    /// CLU-39: a path that a proxy and a server could read differently is not read at all.
    #[test]
    fn hostile_paths_are_refused() {
        for (path, why) in [
            ("", BadPath::Relative),
            ("*", BadPath::Relative),
            ("exec/shop/web/main", BadPath::Relative),
            ("//exec/shop/web/main", BadPath::EmptyPart),
            ("/exec//web/main", BadPath::EmptyPart),
            ("/exec/shop/web/main//", BadPath::EmptyPart),
            ("//", BadPath::EmptyPart),
            ("/logs/..%2f..%2fetc/shadow", BadPath::Encoded),
            ("/logs/%2e%2e/x", BadPath::Encoded),
            ("/exec%2fshop/web/main", BadPath::Encoded),
            ("/metrics%00", BadPath::Encoded),
            ("/metrics/../exec/shop/web/main", BadPath::Dots),
            ("/./exec/shop/web/main", BadPath::Dots),
            ("/logs/..", BadPath::Dots),
            ("/metrics\\..\\exec", BadPath::Character),
            ("/metrics;x=/exec", BadPath::Character),
            ("/exec/shop/web/main\u{e9}", BadPath::Character),
            ("/pods\n", BadPath::Character),
        ] {
            assert_eq!(Action::of(path), Err(why), "{path:?}");
        }
    }
}
