//! The journal of a pod: the changes from one evidence to the next, for people.
//!
//! Evidence is the present state, the journal is the history. It is derived from two consecutive evidences and the
//! reasons of the newer one, so any keeper of evidence can keep a journal beside it. No decision depends on it, and it
//! contains no prose: `keelet-explain` makes the sentences.

mod between;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::between::between;
use crate::{
    Because,
    evidence::{EndingCause, Exit},
    operation::{KillReason, serde_millis},
    restart::Trigger,
    status::{ConditionType, Phase, Truth},
    time::Moment,
};

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// When it happened, or if that is unknown, when it was observed.
    pub at: Moment,
    /// What changed.
    pub what: What,
    /// The evidence behind it, unless the change is evidence itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Because>,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum What {
    /// The agent saw the pod for the first time.
    Seen,
    /// Another run of the agent began.
    AgentStarted {
        /// When the previous run was last alive.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_seen: Option<Moment>,
        /// Whether the node was rebooted in between.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        rebooted: bool,
    },
    /// The pod may not run here.
    Rejected {
        /// In a word.
        reason: String,
        /// For people.
        message: String,
    },
    /// A request to restart all containers was accepted.
    RequestTaken {
        /// The request.
        id: String,
        /// The requester.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The legacy reset at an agent start: first everything is started and ready, then nothing is known.
    LegacyReset {
        /// Whether this is the second half.
        done: bool,
    },
    /// An instance exited.
    Exited {
        /// The container.
        container: String,
        /// The exit.
        exit: Exit,
        /// The index of the restart rule that matched.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
    },
    /// The pod is ending, or its grace period has shrunk.
    Ending {
        /// Why.
        cause: EndingCause,
        /// The grace period.
        #[serde(with = "serde_millis")]
        grace: Duration,
        /// Whether its containers are to be removed.
        deleted: bool,
    },
    /// A restart of all containers advanced one step.
    RestartAll {
        /// Which one.
        step: RestartAllStep,
        /// The trigger.
        triggers: Vec<Trigger>,
    },
    /// A container has to stop.
    Killing {
        /// The container.
        container: String,
        /// Its ID.
        id: String,
        /// Why.
        reason: KillReason,
        /// The grace period.
        #[serde(with = "serde_millis")]
        grace: Duration,
    },
    /// The creation of a sandbox was started.
    SandboxRequested {
        /// How many there were before.
        attempt: u32,
    },
    /// There is a usable sandbox, or none any more.
    Sandbox {
        /// Which one.
        id: Option<String>,
        /// What the runtime found missing in the previous one, if that is the reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost: Option<String>,
    },
    /// The start of a container was requested. Retries are not recorded.
    Launching {
        /// The container.
        container: String,
        /// Its restart count, once it is running.
        attempt: u32,
    },
    /// An instance started.
    Running {
        /// The container.
        container: String,
        /// Its ID.
        id: String,
        /// Its restart count.
        attempt: u32,
    },
    /// `restartCount` of a container rose.
    RestartCount {
        /// The container.
        container: String,
        /// The new value.
        count: u32,
    },
    /// A container began to wait.
    Waiting {
        /// The container.
        container: String,
        /// The reason, in a word.
        reason: String,
        /// The reason, for people.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// A container is reported as terminated although its exit was not observed.
    ShownEnded {
        /// The container.
        container: String,
        /// The placeholder exit code.
        exit_code: i32,
        /// In a word.
        reason: String,
    },
    /// `started` of a container.
    Started {
        /// The container.
        container: String,
        /// The new value.
        value: bool,
    },
    /// `ready` of a container.
    Ready {
        /// The container.
        container: String,
        /// The new value.
        value: bool,
    },
    /// The phase of the pod.
    Phase {
        /// The new value.
        phase: Phase,
    },
    /// A condition of the pod.
    Condition {
        /// Which one.
        #[serde(rename = "type")]
        kind: ConditionType,
        /// The new value.
        status: Truth,
        /// Why, in a word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// A step of a restart of all containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestartAllStep {
    /// It was triggered: containers are being killed and removed.
    Begun,
    /// It was triggered again.
    Joined,
    /// All are removed; the pod starts again.
    Removed,
    /// The backoff is over.
    Released,
    /// Every regular container has been started again.
    Finished,
    /// It was abandoned.
    Abandoned,
}

// === impl Note ===

impl Note {
    /// The container it is about; the pod if there is none.
    pub fn container(&self) -> Option<&str> {
        match &self.what {
            What::Exited { container, .. }
            | What::Killing { container, .. }
            | What::Launching { container, .. }
            | What::Running { container, .. }
            | What::RestartCount { container, .. }
            | What::Waiting { container, .. }
            | What::ShownEnded { container, .. }
            | What::Started { container, .. }
            | What::Ready { container, .. } => Some(container),
            What::Seen
            | What::AgentStarted { .. }
            | What::Rejected { .. }
            | What::RequestTaken { .. }
            | What::LegacyReset { .. }
            | What::Ending { .. }
            | What::RestartAll { .. }
            | What::SandboxRequested { .. }
            | What::Sandbox { .. }
            | What::Phase { .. }
            | What::Condition { .. } => None,
        }
    }
}
