//! From a validated pod to what a runtime is asked for.
//!
//! ```text
//! Pod, Placement           --sandbox_config-->    PodSandboxConfig
//! Container, Image, ...    --container_config-->  ContainerConfig
//! ```
//!
//! Everything here is a function: no files, no clock, no runtime. What has to be read from the node comes in as
//! [`NodeFacts`]; what has to be made on it (directories, files) is named in [`Placement`] by the caller, which made
//! it. Labels, annotations, log paths and limits are the kubelet's, so that `crictl`, log collectors and a kubelet that
//! takes the node over can read what keelet made.
//!
//! | what | where |
//! | --- | --- |
//! | labels and annotations | [`labels`], `marks` |
//! | name, resolver, ports, namespaces of a sandbox | `sandbox`, `dns`, `hostname` |
//! | what a pod needs from elsewhere | `carried`, `objects`, `pull` |
//! | variables and `$(NAME)` in commands | `env`, `services`, `downward`, `expand` |
//! | volumes, `/etc/hosts`, the termination message | `mounts` |
//! | users, capabilities, profiles | `security` |
//! | shares, quotas, limits, OOM scores | `resources`, `qos`, `amount` |

mod amount;
mod carried;
mod container;
mod dns;
mod downward;
mod env;
mod expand;
mod hostname;
pub mod labels;
mod marks;
mod mounts;
mod objects;
mod pull;
mod qos;
mod resources;
mod sandbox;
mod security;
mod services;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{PodSecurityContext, PodSpec};
use keelet_cri::v1;
use keelet_pod::Pod;

pub use self::{
    carried::{TokenSource, pod_objects, pod_tokens},
    container::container_config,
    downward::{DownwardError, file as downward_file},
    env::references,
    mounts::{SubPath, Writer, has_contents, sub_paths, wants_recursive_read_only},
    objects::{Data, ObjectKind, Objects, Reference},
    pull::{pull_credentials, pull_secrets},
    qos::qos_class,
    resources::memory_limit,
    sandbox::sandbox_config,
    services::{Service, ServicePort, is_linked, service_variables},
};

/// Where a pod is put: everything a launch needs to know besides the container.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Where its volumes are on the node, by name.
    pub volumes: &'a BTreeMap<String, PathBuf>,
    /// What leads to parts of volumes, by where they were asked for.
    pub parts: &'a BTreeMap<PathBuf, PathBuf>,
    /// The config maps and secrets that the container's variables come from.
    pub objects: &'a Objects,
    /// The pod's log directory: `/var/log/pods/<namespace>_<name>_<uid>`.
    pub logs: &'a Path,
    /// The hosts file made for the pod; without one it keeps what the runtime gives it.
    pub etc_hosts: Option<&'a Path>,
    /// The file that is to catch the termination message of this attempt of the container.
    pub termination_file: Option<&'a Path>,
    /// The ID of the container whose processes an ephemeral container asks to see.
    pub target: Option<&'a str>,
    /// The pod's addresses, the first one first; none before there is a sandbox.
    pub pod_ips: &'a [String],
    /// The IDs of its users on the node, if it has its own.
    pub users: Option<IdRange>,
    /// Whether the runtime can make what is mounted below a read-only mount read-only too.
    pub recursive_read_only: bool,
    /// The node.
    pub node: &'a NodeFacts,
}

/// IDs of the node that are the users and groups of a pod, which count from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The pod's root.
    pub first: u32,
    /// How many there are.
    pub length: u32,
}

/// What a launch has to know of the node. The default is a node of which nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node's name.
    pub name: String,
    /// The node's own address.
    pub address: Option<String>,
    /// The text of the node's `resolv.conf`; none where pods are to get nothing from it.
    pub resolv_conf: Option<String>,
    /// The cluster's DNS servers. Without any, `ClusterFirst` means what `Default` means.
    pub cluster_dns: Vec<String>,
    /// The domain of the cluster's services, such as `cluster.local`; may be empty.
    pub cluster_domain: String,
    /// Processors in thousandths: what a container that has no limit may use.
    pub cpu_millis: i64,
    /// Memory.
    pub memory_bytes: i64,
    /// Room for images, logs and writable layers.
    pub storage_bytes: i64,
    /// Sizes of huge pages, in bytes.
    pub huge_page_sizes: Vec<i64>,
    /// How limits are written down.
    pub cgroups: Cgroups,
    /// Whether use of swap can be limited.
    pub swap_limits: bool,
    /// Where seccomp profiles of the type Localhost are, such as `/var/lib/kubelet/seccomp`.
    pub seccomp_root: PathBuf,
    /// What a container is confined to that asks for no seccomp profile.
    pub seccomp_default: SeccompDefault,
}

/// What a container is confined to that asks for no seccomp profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeccompDefault {
    /// To nothing, as the API has it.
    #[default]
    Unconfined,
    /// To the runtime's own profile.
    Runtime,
}

/// The two generations of cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cgroups {
    /// One hierarchy per controller, or unknown.
    #[default]
    V1,
    /// The unified hierarchy, whose files can be named one by one.
    V2,
}

/// An image on the node, as the runtime describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// What to run: the runtime's own reference.
    pub id: String,
    /// The name in the manifest.
    pub name: String,
    /// The user it runs as, if it says so by number.
    pub uid: Option<i64>,
    /// The user it runs as, if it says so by name; else empty.
    pub user: String,
}

/// Why something cannot be launched as its pod wants it. Trying again helps only if something else changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    /// `CreateContainerConfigError` or `CreatePodSandboxError`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// Whether a pod wants users of its own.
pub fn has_own_users(pod: &Pod) -> bool {
    pod.source.spec.as_ref().is_some_and(|spec| spec.host_users == Some(false))
}

// === impl Placement ===

impl Placement<'_> {
    /// The pod's spec in the API's form. Validation has seen that there is one.
    fn spec(&self) -> Option<&PodSpec> {
        self.pod.source.spec.as_ref()
    }

    /// How the users of the pod are said to a runtime, in a list of one; empty if they are the node's.
    fn mappings(&self) -> Vec<v1::IdMapping> {
        let mapping = |range: IdRange| v1::IdMapping { host_id: range.first, container_id: 0, length: range.length };
        self.users.map(mapping).into_iter().collect()
    }

    /// The pod's security context.
    fn security(&self) -> Option<&PodSecurityContext> {
        self.spec()?.security_context.as_ref()
    }
}

// === impl ConfigError ===

impl ConfigError {
    fn container(message: impl Into<String>) -> Self {
        Self { reason: "CreateContainerConfigError", message: message.into() }
    }

    fn sandbox(message: impl Into<String>) -> Self {
        Self { reason: "CreatePodSandboxError", message: message.into() }
    }
}
