//! What the agent records of a pod.
//!
//! The durable part survives a reboot and is written only on transitions. The volatile part is about running
//! containers: it changes with every probe result and is invalid after a reboot, because containers do not survive one
//! either.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    observed::Instance,
    operation::{KillReason, OpFailure, OpKey, Pending, serde_millis},
    probe::ProbeMemory,
    restart::{Backoff, RestartAll},
    status::PodStatus,
    time::{BootId, Moment, Wall},
};

/// Everything that plans depend on besides the spec and the newest observation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What survives a reboot.
    pub durable: Durable,
    /// What concerns running containers.
    pub volatile: Volatile,
}

/// Evidence that survives a reboot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Durable {
    /// When the agent first saw the pod.
    pub first_seen: Option<Moment>,
    /// Whether the pod may run here.
    pub admission: Admission,
    /// The number of sandboxes created so far.
    pub sandbox_attempts: u32,
    /// The sandbox in which a regular container has been started: from then on the pod is initialized there.
    pub initialized_in: Option<String>,
    /// By container name. Boxed, here and in [`Volatile`], because a B-tree node has room for eleven values.
    pub containers: BTreeMap<String, Box<ContainerRecord>>,
    /// The progress of a restart of all containers.
    pub restart_all: RestartAll,
    /// Set permanently once the pod is ending.
    pub ending: Option<Ending>,
    /// The status last planned.
    pub published: Option<PodStatus>,
    /// The version of that status; the next different status gets the next version.
    pub version: u64,
    /// The newest values of the Ready condition that this agent published, oldest first. A value at the API server that
    /// is not among them was written by another client.
    pub ready_marks: Vec<ReadyMark>,
}

/// Whether the pod may run here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Admission {
    /// Not decided yet.
    #[default]
    Undecided,
    /// It may.
    Admitted,
    /// It may not.
    Rejected {
        /// In a word.
        reason: String,
        /// For people.
        message: String,
    },
}

/// A value that the Ready condition had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyMark {
    /// Whether it was True.
    pub ready: bool,
    /// Its transition time.
    pub since: Wall,
}

/// The record of a container over all its instances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRecord {
    /// How often it was restarted.
    pub restart_count: u32,
    /// Whether `restart_count` already includes the next instance, which has not started: the last one was lost, or all
    /// containers restart.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub counted_ahead: bool,
    /// The newest instance ever seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<String>,
    /// The instance that was running when last observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningRecord>,
    /// The exit of the newest instance that exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<Exit>,
    /// The exit before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_exit: Option<Exit>,
    /// Crash backoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// The sandbox in which this ordinary init container has succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_in: Option<String>,
    /// The image and its ID, as last observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
}

/// An instance that was running when last observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningRecord {
    /// Its ID.
    pub id: String,
    /// Its start.
    pub started_at: Wall,
    /// Its sandbox.
    pub sandbox: String,
}

/// The exit of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// The instance's ID.
    pub id: String,
    /// The sandbox it belonged to.
    pub sandbox: String,
    /// Its exit code.
    pub exit_code: i32,
    /// `Completed`, `Error`, `OOMKilled`, `ContainerStatusUnknown`, `RestartingAllContainers`, ...
    pub reason: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its start, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Wall>,
    /// Its end.
    pub finished: Moment,
    /// What ended it.
    pub cause: ExitCause,
    /// Whether a restart of all containers has answered it, so that it triggers no other one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
}

/// What ended an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ExitCause {
    /// The container itself.
    Own,
    /// The agent stopped it.
    Killed(KillReason),
    /// Unknown: it disappeared, or the runtime lost track of it. The exit code is a placeholder.
    Lost,
}

/// An ending pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// Why.
    pub cause: EndingCause,
    /// Since when.
    pub since: Moment,
    /// The grace period, counted from then.
    #[serde(with = "serde_millis")]
    pub grace: Duration,
    /// Whether the pod was deleted, so that its containers are removed too.
    pub deleted: bool,
}

/// Why a pod is ending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EndingCause {
    /// It was deleted.
    Deleted,
    /// No regular container runs, and none will.
    Finished,
    /// An init container failed permanently.
    InitFailed {
        /// The container.
        container: String,
    },
    /// Its sandbox was lost and nothing in it may run again.
    NotRebuilt,
    /// It may not run here.
    Rejected,
}

/// Evidence about running containers; valid for one boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volatile {
    /// The boot it is valid for.
    pub boot_id: BootId,
    /// The agent run that wrote it.
    pub agent_started: Option<Moment>,
    /// Running containers, by name.
    #[serde(rename = "lives")]
    pub instances: BTreeMap<String, Box<RunningInstance>>,
    /// Containers that are being started, by name.
    pub launches: BTreeMap<String, Box<Launch>>,
    /// Whether readiness gates of the node hold the pod back. Belongs to one boot, as the gates do.
    #[serde(skip_serializing_if = "GateHold::is_undecided")]
    pub gate_hold: GateHold,
    /// Operations that have not been observed as finished.
    pub pending: Vec<Pending>,
    /// Failed operations to be retried.
    pub retries: Vec<Retry>,
    /// The sequence number of the next operation.
    pub next_operation: u64,
    /// Whether volumes and directories are in place.
    pub volumes_ready: bool,
    /// Whether the legacy reset at an agent start (the feature gate `ChangeContainerStatusOnKubeletRestart`) is still due.
    #[serde(rename = "resetOwed", skip_serializing_if = "std::ops::Not::not")]
    pub reset_due: bool,
    /// The restart request that was accepted last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_request: Option<String>,
    /// Set while the API server's copy of the status has not been compared with the ledger, because the API server could not
    /// be reached: the values of the Ready condition that were ours when it last could. Kept over runs of the agent.
    #[serde(rename = "copyOwed", skip_serializing_if = "Option::is_none")]
    pub copy_unchecked: Option<Vec<ReadyMark>>,
}

/// Whether readiness gates of the node hold a pod back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GateHold {
    /// Not decided in this boot.
    #[default]
    Undecided,
    /// They do.
    Held {
        /// Since when.
        since: Moment,
    },
    /// They let it go. Gates hold no pod back that has begun to start.
    Released,
}

/// What is remembered of a running container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningInstance {
    /// The instance.
    pub id: String,
    /// When it started; the field `started` of a status is the verdict of its startup probe.
    pub started: Moment,
    /// Its startup probe.
    #[serde(default)]
    pub startup: ProbeMemory,
    /// Its readiness probe.
    #[serde(default)]
    pub readiness: ProbeMemory,
    /// Its liveness probe.
    #[serde(default)]
    pub liveness: ProbeMemory,
    /// Its post-start hook.
    pub post_start: HookProgress,
    /// Set once it has to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<Kill>,
}

/// The progress of a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HookProgress {
    /// Not finished, perhaps not begun.
    #[default]
    #[serde(rename = "owed")]
    Due,
    /// Finished, or there is none.
    Done,
    /// It failed.
    Failed,
}

/// A container that has to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kill {
    /// Why.
    pub reason: KillReason,
    /// Since when.
    pub since: Moment,
    /// The grace period, counted from then.
    #[serde(with = "serde_millis")]
    pub grace: Duration,
    /// Its pre-stop hook.
    pub pre_stop: HookProgress,
}

/// A container that is being started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Launch {
    /// The image that is known to be on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Image pulls that failed in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_backoff: Option<Backoff>,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<StartFailure>,
    /// The agent died during its start, and no instance has started since. Runtimes abandon a start whose caller
    /// disconnects and show a container that never ran as exited.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
}

/// Why a container could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartFailure {
    /// What failed.
    #[serde(flatten)]
    pub failure: OpFailure,
    /// When.
    pub at: Moment,
}

/// A failed operation to be retried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Its key.
    pub key: OpKey,
    /// Consecutive failures.
    pub failures: u32,
    /// The earliest retry.
    pub not_before: Moment,
    /// The last failure.
    pub failure: OpFailure,
}

// === impl Durable ===

impl Durable {
    /// The record of a container.
    pub fn container(&self, name: &str) -> Option<&ContainerRecord> {
        self.containers.get(name).map(Box::as_ref)
    }
}

// === impl GateHold ===

impl GateHold {
    fn is_undecided(&self) -> bool {
        *self == Self::Undecided
    }
}

// === impl RunningInstance ===

impl RunningInstance {
    /// A new instance.
    pub(crate) fn new(id: String, started: Moment) -> Self {
        Self {
            id,
            started,
            startup: ProbeMemory::default(),
            readiness: ProbeMemory::default(),
            liveness: ProbeMemory::default(),
            post_start: HookProgress::Due,
            kill: None,
        }
    }

    /// The state of a probe.
    pub fn probe(&self, kind: keelet_pod::ProbeKind) -> &ProbeMemory {
        match kind {
            keelet_pod::ProbeKind::Startup => &self.startup,
            keelet_pod::ProbeKind::Readiness => &self.readiness,
            keelet_pod::ProbeKind::Liveness => &self.liveness,
        }
    }

    pub(crate) fn probe_mut(&mut self, kind: keelet_pod::ProbeKind) -> &mut ProbeMemory {
        match kind {
            keelet_pod::ProbeKind::Startup => &mut self.startup,
            keelet_pod::ProbeKind::Readiness => &mut self.readiness,
            keelet_pod::ProbeKind::Liveness => &mut self.liveness,
        }
    }
}

// === impl Launch ===

impl Launch {
    /// When the backoff after a failed pull is over.
    pub(crate) fn pulls_again_at(&self) -> Option<Moment> {
        self.pull_backoff.as_ref().map(|backoff| backoff.advanced.plus(backoff.delay))
    }
}

// === impl ContainerRecord ===

impl ContainerRecord {
    /// Whether the container ever had an instance.
    pub fn has_lived(&self) -> bool {
        self.running.is_some() || self.last_exit.is_some()
    }

    /// Records the exit of an instance.
    pub(crate) fn ended(&mut self, exit: Exit) {
        self.running = None;
        self.previous_exit = self.last_exit.replace(exit);
    }

    /// Whether an instance is a leftover of an earlier one. It appears as the newest if the last one is lost.
    pub(crate) fn has_outlived(&self, instance: &Instance) -> bool {
        self.newest.as_ref().is_some_and(|newest| *newest != instance.id) && instance.attempt < self.restart_count
    }

    /// The restart count of the next instance.
    pub(crate) fn next_attempt(&self) -> u32 {
        if self.counted_ahead || !self.has_lived() { self.restart_count } else { self.restart_count.saturating_add(1) }
    }
}
