//! What an agent asks of the node for its pods. A simulation answers it with directories of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::pending,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use keelet_launch::{IdRange, Objects, Reference, SubPath};
use keelet_pod::Pod;

/// Directories and files of pods on the node.
pub trait Host: Send + Sync + fmt::Debug {
    /// Makes a pod's directories and volumes. May be called again for the same pod, and finds them in place then.
    fn prepare<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<Volumes, HostError>>;
    /// Fills the pod's volumes with what should be in them by now. Those that the pod writes to itself, and those that
    /// were never made, are left alone.
    fn refresh<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<(), HostError>>;
    /// The config maps and secrets that are asked for, of the pod's namespace, as far as they are there, and the variables of services.
    fn objects<'a>(&'a self, pod: &'a Pod, wanted: &'a [Reference]) -> BoxFuture<'a, Result<Objects, HostError>>;
    /// Resolves when something that a pod may have in a volume has changed since the last time. Where nothing tells, never.
    fn contents_changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(pending())
    }
    /// The IDs of the node that are the users of a pod that has its own: the same ones as long as it has directories, and
    /// no other pod's. Only after `prepare`.
    fn user_range<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, Result<IdRange, HostError>>;
    /// The pod's log directory.
    fn log_dir(&self, pod: &Pod) -> Result<PathBuf, HostError>;
    /// Makes the files of one instance of a container.
    fn prepare_instance<'a>(&'a self, instance: InstanceOf<'a>) -> BoxFuture<'a, Result<InstanceFiles, HostError>>;
    /// What the log files of a pod say of the restart counts of its containers: the next count, by container name.
    fn log_counts<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, BTreeMap<String, u32>>;
    /// The termination message of an instance that ended with this exit code: what is in its termination message file, or the
    /// end of its log where the pod asks for that. Empty if there are none.
    fn termination_message<'a>(&'a self, pod: &'a Pod, instance: Ended<'a>) -> BoxFuture<'a, String>;
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
    /// Drops the logs and termination messages of all instances but the newest ones of each container.
    fn drop_old_logs<'a>(&'a self, pod: &'a Pod, keep: u32) -> BoxFuture<'a, Result<(), HostError>>;
    /// The room on the file system that a path is on; `None` if unknown.
    fn space<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Option<Space>>;
    /// The UIDs of pods that an agent with these directories made some for, this one or an earlier one.
    fn pods_with_directories(&self) -> BoxFuture<'_, BTreeSet<String>>;
    /// Resolves when that process ends; `None` where it cannot be watched.
    fn process_end(&self, pid: u32) -> Option<BoxFuture<'static, ()>>;
    /// Removes what `prepare` made. It is no error if nothing is there.
    fn clean_up<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), HostError>>;
}

/// The log of one instance of a container.
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
    /// What is left for processes that are not root.
    pub available: u64,
    /// Files that it can have; 0 if there is no fixed number.
    pub inodes: u64,
    /// What is left of them.
    pub inodes_free: u64,
}

/// A pod's volumes on the node: the directory or file to mount, by volume name.
pub type Volumes = BTreeMap<String, PathBuf>;

/// One instance of a container that is about to begin.
#[derive(Clone, Copy, Debug)]
pub struct InstanceOf<'a> {
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

/// One instance of a container that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// Its name.
    pub container: &'a str,
    /// Its restart count.
    pub attempt: u32,
    /// How it ended.
    pub exit_code: i32,
}

/// The files of one instance of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceFiles {
    /// What is to be mounted at its `terminationMessagePath`.
    pub termination: Option<PathBuf>,
    /// What is to be mounted at `/etc/hosts`.
    pub etc_hosts: Option<PathBuf>,
    /// What leads to the parts of volumes, and not to what another process puts in their place, by where they were
    /// asked for.
    pub parts: BTreeMap<PathBuf, PathBuf>,
}

/// A directory or volume that could not be made: the reason and the message of the event and of the pod's status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HostError {
    /// `FailedMount` and the like.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

// === impl HostError ===

impl HostError {
    /// An error of this reason, in the words of another one.
    pub(crate) fn new(reason: &'static str, error: impl fmt::Display) -> Self {
        Self { reason, message: error.to_string() }
    }
}

// === impl LogFile ===

impl fmt::Display for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.pod.namespace, self.pod.name, self.container, self.attempt)
    }
}
