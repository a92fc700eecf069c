//! What changed from one evidence to the next: the journal of a pod, for people.
//!
//! Evidence says how things are, the journal how they came to be so. It is derived from two consecutive evidences and
//! the reasons of the newer one, so whoever keeps evidence can keep a journal beside it. Nothing is ever decided from
//! it, and it holds no prose: sentences are made by whoever shows it.

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
    /// When it happened; where that is not known, when it was noticed.
    pub at: Moment,
    /// What changed.
    pub what: What,
    /// The evidence it rests on, where it is not evidence itself.
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
        /// When the run before was last known to be alive.
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
    /// Somebody's request to restart all containers was taken.
    RequestTaken {
        /// The request.
        id: String,
        /// Who asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The legacy reset of an agent start: first everything counts as well, then nothing is known.
    LegacyReset {
        /// Whether this is the second half.
        done: bool,
    },
    /// A life ended.
    Exited {
        /// The container.
        container: String,
        /// How.
        exit: Exit,
        /// The index of the restart rule that matched.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<usize>,
    },
    /// The pod is on its way out, or its grace period has shrunk.
    Ending {
        /// Why.
        cause: EndingCause,
        /// The grace period.
        #[serde(with = "serde_millis")]
        grace: Duration,
        /// Whether its remains are to be removed.
        deleted: bool,
    },
    /// A restart of all containers went one step on.
    RestartAll {
        /// Which one.
        step: RestartAllStep,
        /// Who or what asked for it.
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
    /// A sandbox was asked for.
    SandboxRequested {
        /// How many there were before.
        attempt: u32,
    },
    /// There is a usable sandbox, or none any more.
    Sandbox {
        /// Which one.
        id: Option<String>,
        /// What the runtime found missing of the one before, if that is why there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost: Option<String>,
    },
    /// A container's start was asked for. Tries after one that failed are not noted.
    Launching {
        /// The container.
        container: String,
        /// Its restart count, once it runs.
        attempt: u32,
    },
    /// A life began.
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
        /// What it is now.
        count: u32,
    },
    /// A container has come to wait for something.
    Waiting {
        /// The container.
        container: String,
        /// For what, in a word.
        reason: String,
        /// For what, for people.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// A container is shown ended, although no end was seen.
    ShownEnded {
        /// The container.
        container: String,
        /// The exit code that stands in.
        exit_code: i32,
        /// In a word.
        reason: String,
    },
    /// `started` of a container.
    Started {
        /// The container.
        container: String,
        /// What it is now.
        value: bool,
    },
    /// `ready` of a container.
    Ready {
        /// The container.
        container: String,
        /// What it is now.
        value: bool,
    },
    /// The phase of the pod.
    Phase {
        /// What it is now.
        phase: Phase,
    },
    /// A condition of the pod.
    Condition {
        /// Which one.
        #[serde(rename = "type")]
        kind: ConditionType,
        /// What it is now.
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
    /// Somebody asked for it: containers are being killed and removed.
    Begun,
    /// Somebody else asked for it too.
    Joined,
    /// All are removed; the pod starts again.
    Removed,
    /// The backoff is over.
    Released,
    /// Every regular container has been started again.
    Finished,
    /// It does not go on.
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
