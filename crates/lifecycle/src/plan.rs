//! What a plan contains.

use std::time::Duration;

use keelet_pod::ProbeKind;
use serde::{Deserialize, Serialize};

use crate::{
    evidence::{EndingCause, Evidence, ExitCause},
    observed::PendingGate,
    operation::{KillReason, Outcome, Step, serde_millis},
    probe::Basis,
    status::{ConditionType, PodStatus},
    time::Moment,
};

/// What to do, what to publish, what to record, and when to plan again.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Operations to start and to cancel, in this order, once the evidence is recorded.
    pub operations: Vec<Step>,
    /// The pod's status.
    pub status: PodStatus,
    /// The version of that status. It rises when the status changes.
    pub version: u64,
    /// The reason of each part of the status.
    pub why: Vec<Why>,
    /// The evidence, to be recorded before anything is acted upon.
    pub evidence: Evidence,
    /// Probe results that were absorbed, for the history.
    pub results: Vec<ProbeRecord>,
    /// Events to emit.
    pub events: Vec<Event>,
    /// When to plan again if nothing is observed before.
    pub wake_at: Option<Moment>,
    /// The stage of the pod.
    pub stage: Stage,
}

/// The stage of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is running or starting.
    Live,
    /// It is being stopped.
    Ending,
    /// No container is running, and the phase is terminal. Exited containers are kept for their logs.
    Ended,
    /// It was deleted and nothing of it is left in the runtime.
    Gone,
}

/// A part of the status and its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The part.
    pub subject: Subject,
    /// The evidence.
    pub because: Because,
}

/// A part of the status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    /// `started` of a container.
    Started(String),
    /// `ready` of a container.
    Ready(String),
    /// `state` of a container.
    State(String),
    /// `restartCount` of a container.
    RestartCount(String),
    /// A condition of the pod.
    Condition(ConditionType),
    /// The phase of the pod.
    Phase,
}

/// The evidence behind a part of the status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Because {
    /// A probe reached its threshold.
    Probe {
        /// Which probe.
        probe: ProbeKind,
        /// Whether it passed.
        passed: bool,
        /// When the threshold was reached.
        at: Moment,
        /// The consecutive results.
        #[serde(rename = "run")]
        streak: u32,
        /// The output of the deciding attempt.
        output: String,
    },
    /// The value was known before the agent started, and nothing observed since changes it.
    Carried {
        /// Which probe it belongs to.
        probe: ProbeKind,
        /// The value.
        passed: bool,
        /// Its evidence.
        basis: Basis,
    },
    /// The probe has not reached a threshold for this instance.
    NotYetProbed {
        /// Which probe.
        probe: ProbeKind,
        /// Consecutive results so far.
        #[serde(rename = "run")]
        streak: u32,
        /// Whether these passed.
        passing: bool,
    },
    /// The container has no such probe, so running is enough.
    NoProbe,
    /// The container is not running.
    NotRunning,
    /// The container is running but its startup probe has not succeeded.
    NotStarted,
    /// The container was started.
    Running {
        /// When.
        since: Moment,
        /// Its ID.
        id: String,
    },
    /// The container exited.
    Exited {
        /// Its ID.
        id: String,
        /// Its exit code.
        exit_code: i32,
        /// When.
        at: Moment,
        /// What ended it.
        cause: ExitCause,
        /// The index of the restart rule that matched.
        rule: Option<usize>,
    },
    /// The container waits for its backoff.
    Backoff {
        /// Until when.
        until: Moment,
        /// How long in all.
        #[serde(with = "serde_millis")]
        delay: Duration,
    },
    /// The container could not be started.
    StartFailed {
        /// In a word.
        reason: String,
        /// For people.
        message: String,
        /// When.
        at: Moment,
    },
    /// Other containers start first, or its start is in progress.
    Pending,
    /// It is being stopped.
    Stopping {
        /// Why.
        reason: KillReason,
        /// Since when.
        since: Moment,
    },
    /// All containers are restarting.
    RestartAll {
        /// The trigger.
        trigger: String,
        /// Since when.
        since: Moment,
    },
    /// The aggregate of these containers, each with its own evidence.
    Containers {
        /// The ones that decide.
        names: Vec<String>,
    },
    /// Readiness gates, whose conditions other components own.
    ReadinessGates {
        /// The ones that are not True.
        pending: Vec<String>,
    },
    /// Readiness gates of the node hold the pod back, which it does not tolerate.
    NodeGates {
        /// Those that are closed.
        pending: Vec<PendingGate>,
        /// Since when they do.
        since: Moment,
    },
    /// The state of the sandbox.
    Sandbox {
        /// The one in use.
        id: Option<String>,
        /// What the runtime found missing in the newest one, if that is the reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost: Option<String>,
    },
    /// The pod is ending.
    Ending {
        /// Why.
        cause: EndingCause,
        /// Since when.
        since: Moment,
    },
    /// It follows from the spec.
    Spec,
    /// Kept as it was: once true, always true.
    Kept,
}

/// A probe attempt whose result a plan absorbed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeRecord {
    /// The container's name.
    pub container: String,
    /// Its ID.
    pub id: String,
    /// Which probe.
    pub probe: ProbeKind,
    /// Whether the attempt was between the scheduled ones: if it did not pass, it counts for nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub eager: bool,
    /// When the attempt was made.
    pub at: Moment,
    /// Its outcome.
    pub outcome: Outcome,
    /// How long the target took.
    #[serde(with = "serde_millis")]
    pub latency: Duration,
    /// Its output, shortened.
    pub output: String,
}

/// An event to emit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The container it is about; the pod if there is none.
    pub container: Option<String>,
    /// `Unhealthy`, `Killing`, `BackOff`, ...
    pub reason: &'static str,
    /// Whether it is a warning.
    pub severity: Severity,
    /// For people.
    pub message: String,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Severity {
    /// Nothing is wrong.
    Normal,
    /// Something is wrong.
    Warning,
}
