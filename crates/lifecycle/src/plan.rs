//! What a plan contains.

use std::time::Duration;

use keelet_pod::ProbeKind;
use serde::{Deserialize, Serialize};

use crate::{
    evidence::{EndingCause, Evidence, ExitCause},
    operation::{KillReason, Outcome, Step, serde_millis},
    probe::Basis,
    status::{ConditionType, PodStatus},
    time::Moment,
};

/// What to do, what to say, what to remember, and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Operations to start and to cancel, in this order, once the evidence is recorded.
    pub operations: Vec<Step>,
    /// The pod's status.
    pub status: PodStatus,
    /// The number of that status. It rises when the status changes.
    pub version: u64,
    /// Why each part of the status is as it is.
    pub why: Vec<Why>,
    /// What to remember, to be recorded before anything is acted upon.
    pub evidence: Evidence,
    /// Probe results that were taken, for the history.
    pub results: Vec<ProbeRecord>,
    /// What happened, for people.
    pub events: Vec<Event>,
    /// When to plan again if nothing is observed before.
    pub wake_at: Option<Moment>,
    /// How far the pod is on its way through life.
    pub stage: Stage,
}

/// How far a pod is on its way through life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It runs, or tries to.
    Live,
    /// It is being stopped.
    Ending,
    /// Nothing of it runs any more, and its phase is final. Dead containers are kept for their logs.
    Ended,
    /// It was deleted and nothing of it is left in the runtime.
    Gone,
}

/// A part of the status and the evidence it rests on.
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

/// The evidence a part of the status rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Because {
    /// A probe reached its threshold.
    Probe {
        /// Which probe.
        probe: ProbeKind,
        /// Whether it passed.
        passed: bool,
        /// When it was decided.
        at: Moment,
        /// Results in a row that decided it.
        run: u32,
        /// What the deciding attempt said.
        output: String,
    },
    /// The value was known before the agent started, and nothing has been seen that changes it.
    Carried {
        /// Which probe it belongs to.
        probe: ProbeKind,
        /// What it was.
        passed: bool,
        /// What it rests on.
        basis: Basis,
    },
    /// The probe has not decided yet in this life.
    NotYetProbed {
        /// Which probe.
        probe: ProbeKind,
        /// Results in a row so far.
        run: u32,
        /// Whether these passed.
        passing: bool,
    },
    /// The container has no such probe, so running is enough.
    NoProbe,
    /// The container does not run.
    NotRunning,
    /// The container runs but has not started up.
    NotStarted,
    /// The container was started.
    Running {
        /// When.
        since: Moment,
        /// Its ID.
        id: String,
    },
    /// The container ended.
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
    /// Its turn has not come, or its start is under way.
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
        /// Who or what asked for it.
        trigger: String,
        /// Since when.
        since: Moment,
    },
    /// The sum over these containers, each with its own evidence.
    Containers {
        /// The ones that decide.
        names: Vec<String>,
    },
    /// Readiness gates that others own.
    ReadinessGates {
        /// The ones that are not True.
        pending: Vec<String>,
    },
    /// The state of the sandbox.
    Sandbox {
        /// The one in use.
        id: Option<String>,
        /// What the runtime found missing of the newest one, if that is why none is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost: Option<String>,
    },
    /// The pod is on its way out.
    Ending {
        /// Why.
        cause: EndingCause,
        /// Since when.
        since: Moment,
    },
    /// The spec alone decides.
    Spec,
    /// Kept as it was: once true, always true.
    Kept,
}

/// A probe attempt whose result a plan took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeRecord {
    /// The container's name.
    pub container: String,
    /// Its ID.
    pub id: String,
    /// Which probe.
    pub probe: ProbeKind,
    /// When the attempt was made.
    pub at: Moment,
    /// What it showed.
    pub outcome: Outcome,
    /// How long the target took.
    #[serde(with = "serde_millis")]
    pub latency: Duration,
    /// What it said, shortened.
    pub output: String,
}

/// What happened, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The container it is about; the pod if there is none.
    pub container: Option<String>,
    /// `Unhealthy`, `Killing`, `BackOff`, ...
    pub reason: &'static str,
    /// Whether somebody should worry.
    pub severity: Severity,
    /// For people.
    pub message: String,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Severity {
    /// All is as it should be.
    Normal,
    /// Something is wrong.
    Warning,
}
