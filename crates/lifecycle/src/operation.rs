//! Operations: what a plan starts and cancels, and their results.
//!
//! An operation runs beside the pod's task, which never awaits it. The plan that starts one records it as [`Pending`]
//! in the evidence; the observation of a later plan has its state or its result. A result is absorbed once, because it
//! needs a pending operation with the same sequence number.

use std::{fmt, time::Duration};

use keelet_pod::ProbeKind;
use serde::{Deserialize, Serialize};

use crate::time::Moment;

/// The sequence number of an operation of a pod; never used twice in one run of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpId(pub u64);

/// Something to be done outside of the planner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    /// Make directories and mount volumes.
    PrepareVolumes,
    /// Create and start the pod's sandbox.
    CreateSandbox {
        /// How many sandboxes this pod had before.
        attempt: u32,
    },
    /// Stop a sandbox and its network.
    StopSandbox {
        /// Its ID.
        sandbox: String,
    },
    /// Remove a stopped sandbox.
    RemoveSandbox {
        /// Its ID.
        sandbox: String,
    },
    /// Make sure that the image is on the node, by the pull policy.
    EnsureImage {
        /// The container that needs it.
        container: String,
        /// The image.
        image: String,
    },
    /// Create and start a container.
    Launch {
        /// Its name.
        container: String,
        /// Its restart count.
        attempt: u32,
        /// The sandbox it joins.
        sandbox: String,
    },
    /// Start a container that an interrupted launch left created.
    StartCreated {
        /// Its name.
        container: String,
        /// Its ID.
        id: String,
    },
    /// Run the hook after the start.
    PostStart {
        /// The container's name.
        container: String,
        /// Its ID.
        id: String,
    },
    /// Run the hook before the stop signal.
    PreStop {
        /// The container's name.
        container: String,
        /// Its ID.
        id: String,
        /// What is left of the grace period.
        #[serde(with = "serde_millis")]
        timeout: Duration,
    },
    /// Send the stop signal, and SIGKILL after the timeout.
    Stop {
        /// The container's name.
        container: String,
        /// Its ID.
        id: String,
        /// Zero means SIGKILL at once.
        #[serde(with = "serde_millis")]
        timeout: Duration,
        /// Why it has to stop.
        reason: KillReason,
    },
    /// Remove a container that is not running; its logs stay.
    Remove {
        /// The container's name.
        container: String,
        /// Its ID.
        id: String,
    },
    /// Run a probe once.
    Probe {
        /// The container's name.
        container: String,
        /// Its ID.
        id: String,
        /// Which of its probes.
        probe: ProbeKind,
        /// Whether the attempt is between the scheduled ones, because the probe has not passed yet.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        eager: bool,
    },
}

/// Why a container is stopped. There is no stop without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KillReason {
    /// Its liveness or startup probe failed.
    Probe(ProbeKind),
    /// Its post-start hook failed.
    PostStartFailed,
    /// Name or image in the spec changed.
    DefinitionChanged,
    /// All containers of the pod are restarting.
    RestartAll,
    /// The pod is being deleted, or has nothing left to do.
    PodEnding,
    /// Its sandbox was lost.
    SandboxGone,
    /// The runtime does not know its state.
    StateUnknown,
    /// A newer container of the same name is running.
    Superseded,
}

/// An instruction of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Start an operation under this number.
    Start {
        /// Its number.
        id: OpId,
        /// What to do.
        operation: Operation,
    },
    /// Cancel the operation of this number. It counts as running until it is reported as finished.
    Cancel {
        /// Its number.
        id: OpId,
    },
}

/// An operation started by an earlier plan and not yet observed as finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Its number.
    pub id: OpId,
    /// What it does.
    pub operation: Operation,
    /// When it was started.
    pub since: Moment,
    /// Whether its cancellation was asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
}

/// The state of an operation in an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpReport {
    /// Its number.
    pub id: OpId,
    /// How far it is.
    pub state: OpState,
}

/// The state of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpState {
    /// Not finished.
    InFlight,
    /// Finished, then and so.
    Finished {
        /// When.
        at: Moment,
        /// How.
        result: OpResult,
    },
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// It succeeded.
    Done,
    /// A probe attempt was made, with this outcome.
    Probed(ProbeReport),
    /// It failed.
    Failed(OpFailure),
    /// It was cancelled before it took effect, or its effect is unknown.
    Cancelled,
}

/// Why an operation failed, in the terms of a waiting reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpFailure {
    /// `ErrImagePull`, `CreateContainerConfigError`, `RunContainerError`, ...
    pub reason: String,
    /// The runtime's message.
    pub message: String,
}

/// One probe attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// Its outcome.
    pub outcome: Outcome,
    /// How long the target took.
    #[serde(with = "serde_millis")]
    pub latency: Duration,
    /// What it said, shortened.
    pub output: String,
}

/// The outcome of one probe attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It passed.
    Success,
    /// It passed, with a remark worth an event (a redirect to another host).
    Warning,
    /// It failed.
    Failure,
    /// The attempt could not be made: an unknown port name, an exec that does not start.
    Error,
    /// Inconclusive: the node is the reason that there is no result in time (no permit, no descriptor, a busy CPU, a silent
    /// runtime). It says nothing about the target and never counts.
    Late,
    /// The container exited meanwhile, or the attempt was cancelled.
    Cancelled,
}

/// The key of an operation: at most one per key runs at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OpKey {
    /// Volumes.
    Volumes,
    /// Creating a sandbox.
    NewSandbox,
    /// Stopping or removing this sandbox.
    Sandbox(String),
    /// The image of this container.
    Image(String),
    /// Launching or starting this container, by name.
    Launch(String),
    /// The post-start hook of this container ID.
    PostStart(String),
    /// The pre-stop hook of this container ID.
    PreStop(String),
    /// Stopping this container ID.
    Stop(String),
    /// Removing this container ID.
    Remove(String),
    /// A probe of this container ID.
    Probe(String, ProbeKind),
}

// === impl OpFailure ===

impl OpFailure {
    /// Whether a pull failed, which is retried after a backoff.
    pub(crate) fn is_of_pull(&self) -> bool {
        matches!(self.reason.as_str(), "ErrImagePull" | "RegistryUnavailable")
    }

    /// Whether the lookup of an image on the node failed. A lookup is cheap and is repeated every second, so that an
    /// image that a person imports is used at once (BACK-10).
    pub(crate) fn is_of_lookup(&self) -> bool {
        matches!(self.reason.as_str(), "ErrImageNeverPull" | "ImageInspectError")
    }
}

// === impl KillReason ===

/// The cause in a few words, for logs and sentences.
impl fmt::Display for KillReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Probe(probe) => return write!(f, "its {probe} probe failed"),
            Self::PostStartFailed => "its postStart hook failed",
            Self::DefinitionChanged => "its image or name in the spec changed",
            Self::RestartAll => "all containers are restarting",
            Self::PodEnding => "the pod is ending",
            Self::SandboxGone => "its sandbox is gone",
            Self::StateUnknown => "the runtime does not know its state",
            Self::Superseded => "a newer container of the same name runs",
        })
    }
}

// === impl Operation ===

impl Operation {
    /// The key of the operation.
    pub fn key(&self) -> OpKey {
        match self {
            Self::PrepareVolumes => OpKey::Volumes,
            Self::CreateSandbox { .. } => OpKey::NewSandbox,
            Self::StopSandbox { sandbox } | Self::RemoveSandbox { sandbox } => OpKey::Sandbox(sandbox.clone()),
            Self::EnsureImage { container, .. } => OpKey::Image(container.clone()),
            Self::Launch { container, .. } | Self::StartCreated { container, .. } => OpKey::Launch(container.clone()),
            Self::PostStart { id, .. } => OpKey::PostStart(id.clone()),
            Self::PreStop { id, .. } => OpKey::PreStop(id.clone()),
            Self::Stop { id, .. } => OpKey::Stop(id.clone()),
            Self::Remove { id, .. } => OpKey::Remove(id.clone()),
            Self::Probe { id, probe, .. } => OpKey::Probe(id.clone(), *probe),
        }
    }

    /// The container it concerns, by name.
    pub fn container(&self) -> Option<&str> {
        match self {
            Self::PrepareVolumes
            | Self::CreateSandbox { .. }
            | Self::StopSandbox { .. }
            | Self::RemoveSandbox { .. } => None,
            Self::EnsureImage { container, .. }
            | Self::Launch { container, .. }
            | Self::StartCreated { container, .. }
            | Self::PostStart { container, .. }
            | Self::PreStop { container, .. }
            | Self::Stop { container, .. }
            | Self::Remove { container, .. }
            | Self::Probe { container, .. } => Some(container),
        }
    }

    /// Whether it can start a container.
    pub fn starts_container(&self) -> bool {
        matches!(self, Self::Launch { .. } | Self::StartCreated { .. })
    }
}

/// Durations as whole milliseconds.
pub(crate) mod serde_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        crate::time::millis(*duration).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
