//! Where the agent touches the world. Everything behind these traits can be simulated; nothing else is touched.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use keelet_lifecycle::{Moment, Severity, status::PodStatus};
use keelet_pod::Pod;
use keelet_prober::Dial;
use serde::{Deserialize, Serialize};

use crate::{
    objects::{Objects, Reference},
    readers::{GonePod, Told},
    slot::Acknowledge,
};

/// All doors of one agent.
#[derive(Clone, Debug)]
pub struct Doors<D> {
    /// The container runtime.
    pub runtime: keelet_cri::Runtime,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Connections to probe targets.
    pub dial: Arc<dyn Dial>,
    /// Where the ledger is written.
    pub disk: D,
    /// Directories and files of pods on the node.
    pub host: Arc<dyn Host>,
    /// Readers of statuses and events.
    pub readers: Arc<dyn Readers>,
    /// Runs the agent's tasks.
    pub tasks: Arc<dyn Tasks>,
}

/// The time. Waiting is tokio's business, which a simulation pauses; what time it is, is asked here.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment.
    fn now(&self) -> Moment;
}

/// Runs the agent's tasks, so that a simulation can stop them all between two steps.
pub trait Tasks: Send + Sync + fmt::Debug {
    /// Runs a task beside the others until it ends.
    fn spawn(&self, task: BoxFuture<'static, ()>);
    /// Runs something that may block on the disk, off the tasks' own threads. A simulation runs it in place.
    fn block(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()>;
}

/// Directories and files of pods on the node.
pub trait Host: Send + Sync + fmt::Debug {
    /// Makes a pod's directories and volumes. May be called again for the same pod, and finds them in place then.
    fn prepare<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<Volumes, HostError>>;
    /// Fills the pod's volumes with what should be in them by now. Those that the pod writes to itself, and those that
    /// were never made, are left alone.
    fn refresh<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<(), HostError>>;
    /// The config maps and secrets that are asked for, of the pod's namespace, as far as they are there.
    fn objects<'a>(&'a self, pod: &'a Pod, wanted: &'a [Reference]) -> BoxFuture<'a, Result<Objects, HostError>>;
    /// The IDs of the node that are the users of a pod that has its own: the same ones as long as it has directories, and
    /// no other pod's. Only after `prepare`.
    fn user_range<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<IdRange, HostError>>;
    /// The pod's log directory.
    fn log_dir(&self, pod: &Pod) -> Result<PathBuf, HostError>;
    /// Makes the files of one life of a container.
    fn prepare_life<'a>(&'a self, life: LifeOf<'a>) -> BoxFuture<'a, Result<LifeFiles, HostError>>;
    /// What the log files of a pod say of the restart counts of its containers: the next count, by container name.
    fn log_counts<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, BTreeMap<String, u32>>;
    /// The last words of a life that ended with this exit code: what is in its termination message file, or the end of
    /// its log where the pod asks for that. Empty if there are none.
    fn last_words<'a>(&'a self, pod: &'a Pod, life: Ended<'a>) -> BoxFuture<'a, String>;
    /// The sizes of log files, in the order of the question; `None` for one that is not there.
    fn log_sizes<'a>(&'a self, logs: &'a [LogFile]) -> BoxFuture<'a, Vec<Option<u64>>>;
    /// Gives a log the name of a rotated one, with this time in it, and drops or compresses earlier ones so that there
    /// are never more than so many files.
    fn rotate_log<'a>(
        &'a self,
        log: &'a LogFile,
        max_files: u32,
        stamp: &'a str,
    ) -> BoxFuture<'a, Result<(), HostError>>;
    /// Gives a rotated log its name back, unless there is another one by now.
    fn unrotate_log<'a>(&'a self, log: &'a LogFile, stamp: &'a str) -> BoxFuture<'a, Result<(), HostError>>;
    /// Drops the logs and termination messages of all lives but the newest ones of each container.
    fn drop_old_logs<'a>(&'a self, pod: &'a Pod, keep: u32) -> BoxFuture<'a, Result<(), HostError>>;
    /// The room on the file system that a path is on; `None` if nobody knows.
    fn space<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Option<Space>>;
    /// The UIDs of pods that an agent with these directories made some for, this one or an earlier one.
    fn pods_with_directories(&self) -> BoxFuture<'_, BTreeSet<String>>;
    /// Resolves when that process ends; `None` where it cannot be watched.
    fn process_end(&self, pid: u32) -> Option<BoxFuture<'static, ()>>;
    /// Removes what `prepare` made. It is no error if nothing is there.
    fn clean_up<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), HostError>>;
}

/// IDs of the node that are the users and groups of a pod, which count from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The pod's root.
    pub first: u32,
    /// How many there are.
    pub length: u32,
}

/// The log of one life of a container.
#[derive(Clone, Debug)]
pub struct LogFile {
    /// Its pod.
    pub pod: Arc<Pod>,
    /// Its name.
    pub container: String,
    /// Its restart count.
    pub attempt: u32,
}

/// The room on a file system, in bytes and in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub capacity: u64,
    /// What is left for whoever is not root.
    pub available: u64,
    /// Files that it can have; 0 if there is no fixed number.
    pub inodes: u64,
    /// What is left of them.
    pub inodes_free: u64,
}

/// A pod's volumes on the node: the directory or file to mount, by volume name.
pub type Volumes = BTreeMap<String, PathBuf>;

/// One life of a container that is about to begin.
#[derive(Clone, Copy, Debug)]
pub struct LifeOf<'a> {
    /// Its pod.
    pub pod: &'a Pod,
    /// Its name.
    pub container: &'a str,
    /// Its restart count.
    pub attempt: u32,
    /// The pod's addresses.
    pub addresses: &'a [String],
    /// The parts of volumes that it mounts.
    pub sub_paths: &'a [SubPath],
}

/// A part of a volume that a container mounts. It has to be there before the container is made, and it must not lead
/// out of the volume: whoever can write to the volume can put a symbolic link in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPath {
    /// The volume's name.
    pub name: String,
    /// The volume on the node.
    pub volume: PathBuf,
    /// The part: relative, without `..`.
    pub path: PathBuf,
    /// Who writes to the volume.
    pub writer: Writer,
}

/// Who writes to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The pod, or somebody else: what is in it cannot be trusted.
    Pod,
    /// The agent alone. Its links are its own, and a part that is not there will not come from the pod.
    Agent,
}

/// One life of a container that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// Its name.
    pub container: &'a str,
    /// Its restart count.
    pub attempt: u32,
    /// How it ended.
    pub exit_code: i32,
}

/// The files of one life of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifeFiles {
    /// What is to be mounted at its `terminationMessagePath`.
    pub termination: Option<PathBuf>,
    /// What is to be mounted at `/etc/hosts`.
    pub etc_hosts: Option<PathBuf>,
    /// What leads to the parts of volumes, and not to what somebody puts in their place, by where they were asked for.
    pub parts: BTreeMap<PathBuf, PathBuf>,
}

/// A directory or volume that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HostError {
    /// `FailedMount` and the like.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

// === impl LogFile ===

impl fmt::Display for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.pod.namespace, self.pod.name, self.container, self.attempt)
    }
}

/// Readers of statuses and events: the local socket, subscribers, an API server.
pub trait Readers: Send + Sync + fmt::Debug {
    /// The status that readers had of a pod when this agent started; `None` if they know none, or keep none.
    fn known(&self, pod: &Pod) -> Option<PodStatus>;
    /// Takes a status. `acknowledge` is called with its version once readers can see it, now or later. A newer status
    /// replaces one that is still on its way.
    fn publish(&self, pod: &Arc<Pod>, version: u64, status: &PodStatus, acknowledge: Acknowledge);
    /// Takes an event.
    fn event(&self, pod: &Arc<Pod>, event: &EventRecord);
    /// Somebody asked for the pod to go away. Readers that hear it from elsewhere need not listen.
    fn leaving(&self, _pod: &Arc<Pod>, _departure: Departure) {}
    /// The pod is gone for good, and nothing of it is left.
    fn gone(&self, pod: &Arc<Pod>, at: Moment);
    /// What readers of an earlier agent were told, before anything else. Readers that keep a memory of their own need not
    /// listen.
    fn recall(&self, _events: Vec<Told>, _gone: Vec<GonePod>) {}
    /// The newest events, if there are some that were not returned here before: to be kept for the next agent.
    fn news(&self) -> Option<Vec<Arc<Told>>> {
        None
    }
    /// The events of a pod that an earlier agent told, oldest first.
    fn told_of(&self, _uid: &str) -> Vec<EventRecord> {
        Vec::new()
    }
}

/// A pod's way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When it was asked for, as far as this agent knows.
    pub asked: Moment,
    /// How long its containers may take.
    pub grace: Duration,
}

/// What happened, as readers get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRecord {
    /// When.
    pub at: Moment,
    /// The container it is about; the pod if there is none.
    pub container: Option<String>,
    /// `Unhealthy`, `Killing`, `BackOff`, ...
    pub reason: String,
    /// Whether somebody should worry.
    pub severity: Severity,
    /// For people.
    pub message: String,
    /// How often it happened since the first time, this time included.
    pub count: u32,
}
