//! What goes over the socket. Fields may be added; none is renamed or dropped while the path begins with `/v1`.
//!
//! Pods, events and the node have the shape of the Kubernetes API, so that whatever reads one can read the other.
//! Containers, images and usage are what the runtime tells, in the shapes below.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A list of things.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct List<T> {
    /// All of them.
    pub items: Vec<T>,
}

/// A line of a stream that tells changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What happened.
    #[serde(rename = "type")]
    pub kind: ChangeKind,
    /// The thing as it is now, or as it last was.
    pub object: Value,
}

/// What happened to a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ChangeKind {
    /// It is new, or was there when the stream began.
    Added,
    /// It has changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// Why a request was not served: a `Status` of the Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Always `v1`.
    pub api_version: String,
    /// Always `Status`.
    pub kind: String,
    /// Always `Failure`.
    pub status: String,
    /// For people.
    pub message: String,
    /// In a word: `NotFound`, `BadRequest`, ...
    pub reason: String,
    /// The status of the response.
    pub code: u16,
}

/// A container, as the runtime knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// The runtime's own ID.
    pub id: String,
    /// Its name in the pod.
    pub name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub pod_uid: String,
    /// The sandbox it is in.
    pub sandbox_id: String,
    /// Its image, as the manifest names it if the runtime knows.
    pub image: String,
    /// Its image, as the runtime resolved it.
    pub image_ref: String,
    /// `Created`, `Running`, `Exited` or `Unknown`.
    pub state: String,
    /// The restart count it was made with.
    pub attempt: u32,
    /// When it was made.
    pub created_at: Option<String>,
}

/// An image on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    /// The runtime's own ID.
    pub id: String,
    /// Its names.
    pub tags: Vec<String>,
    /// Its names with digests.
    pub digests: Vec<String>,
    /// Bytes.
    pub size: u64,
    /// Whether it is never collected.
    pub pinned: bool,
}

/// A request to fetch an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    /// Its name.
    pub image: String,
}

/// An image that was fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pulled {
    /// What the runtime knows it by.
    pub image_ref: String,
}

/// Images that were brought in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Their names.
    pub images: Vec<String>,
}

/// What is used at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stats {
    /// The whole node.
    pub node: NodeUsage,
    /// Each container that runs.
    pub containers: Vec<ContainerUsage>,
}

/// What the node uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeUsage {
    /// Its name.
    pub name: String,
    /// Milliseconds since 1970.
    pub taken_at_ms: i64,
    /// Time that all processors together were busy, since boot, in milliseconds.
    pub cpu_busy_ms: Option<u64>,
    /// Processors, in thousandths.
    pub cpu_capacity_millis: i64,
    /// Memory that is not available, in bytes.
    pub memory_used_bytes: Option<u64>,
    /// Memory, in bytes.
    pub memory_capacity_bytes: u64,
}

/// What a container uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerUsage {
    /// The runtime's own ID.
    pub id: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// Its name in the pod.
    pub container: String,
    /// When the processor time was read, in nanoseconds since 1970.
    pub cpu_taken_at_ns: i64,
    /// Processor time since its start, in nanoseconds.
    pub cpu_total_ns: Option<u64>,
    /// Processors at the moment, in thousandths of a thousandth of a thousandth; not every runtime tells.
    pub cpu_nano_cores: Option<u64>,
    /// Memory that cannot be given back easily, in bytes.
    pub memory_working_set_bytes: Option<u64>,
}

// === impl Failure ===

impl Failure {
    /// A failure with that status.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            api_version: "v1".to_owned(),
            kind: "Status".to_owned(),
            status: "Failure".to_owned(),
            message: message.into(),
            reason: reason.to_owned(),
            code,
        }
    }
}
