//! What goes over the socket. Fields may be added; none is renamed or dropped while the path begins with `/v1`.
//!
//! Pods, events and the node have the shape of the Kubernetes API, so that whatever reads one can read the other.
//! Containers, images and usage are what the runtime reports, in the shapes below.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A list of things.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct List<T> {
    /// All of them.
    pub items: Vec<T>,
}

/// A line of a stream that reports changes.
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

/// A pod that is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GonePod {
    /// Since when.
    pub gone_at: String,
    /// The pod as it last was.
    pub pod: Value,
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

/// How far a pull has come. All is zero until the registry has reported what there is to fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pulling {
    /// The image, as it was asked for.
    pub image: String,
    /// Layers that are not on the node yet.
    pub layers: usize,
    /// Those of them that have arrived and are unpacked.
    pub unpacked_layers: usize,
    /// Bytes of these layers, as the registry sends them.
    pub bytes: u64,
    /// Bytes that have arrived.
    pub fetched_bytes: u64,
}

/// A line of a pull that reports how far it has come. The last one reports how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "UPPERCASE")]
pub enum PullLine {
    /// It goes on.
    Pulling(Pulling),
    /// The image is there.
    Pulled(Pulled),
    /// It is not.
    Failed(Failure),
}

/// Images that were brought in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Their names.
    pub images: Vec<String>,
}

/// Where the log of a container is, for clients that can read it there themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogFiles {
    /// The container.
    pub container: String,
    /// The pod's UID.
    pub pod_uid: String,
    /// The directory with its files, one for each instance; there once there is a log.
    pub directory: PathBuf,
    /// The directory itself, or the nearest one above it that is there. A client that finds another one at that path
    /// sees other files than the agent.
    pub anchor: Anchor,
    /// Whether the container may write more.
    pub open: bool,
}

/// A directory, and what distinguishes it from another one at the same path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// Where it is.
    pub path: PathBuf,
    /// The device it is on.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
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
    /// Processors at the moment, in thousandths of a thousandth of a thousandth; not every runtime reports it.
    pub cpu_nano_cores: Option<u64>,
    /// Memory that cannot be given back easily, in bytes.
    pub memory_working_set_bytes: Option<u64>,
}

/// A command to be run in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecSession {
    /// The container; none is the pod's usual one.
    #[serde(default)]
    pub container: Option<String>,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Whether it gets input.
    #[serde(default)]
    pub stdin: bool,
    /// Whether it gets a terminal.
    #[serde(default)]
    pub tty: bool,
}

/// A session that waits for its client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Where to connect, once and within a minute; it speaks Kubernetes' streaming protocols.
    pub url: String,
    /// The container it is in.
    pub container: String,
}

// === impl Anchor ===

impl Anchor {
    /// The nearest directory at or above a path that is there.
    pub fn above(path: &Path) -> io::Result<Self> {
        let found = path.ancestors().find_map(|path| Some((path, path.metadata().ok()?)));
        let (path, metadata) = found.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() })
    }

    /// Whether the same directory is at that path here.
    pub fn is_here(&self) -> bool {
        self.path.metadata().is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode))
    }
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
