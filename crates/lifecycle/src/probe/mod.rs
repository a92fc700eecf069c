//! Probes: what their results add up to, and when the next attempt is due.
//!
//! A [`ProbeMemory`] belongs to one container ID. A new container starts with an empty one, so no streak of a former
//! life ever counts (PROBE-13).

mod schedule;
mod threshold;

use std::time::Duration;

use keelet_pod::Probe;
use serde::{Deserialize, Serialize};

use crate::{
    operation::{Outcome, serde_millis},
    time::Moment,
};

pub(crate) use self::{
    schedule::{after_attempt, after_restart, first_due},
    threshold::{Effect, take},
};

/// A probe is overdue when all its attempts were late for longer than so many periods, and
const LATE_PERIODS: u32 = 3;
/// for longer than this.
const LATE_AT_LEAST: Duration = Duration::from_secs(30);

/// What is remembered of one probe of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeMemory {
    /// What the results so far add up to.
    pub verdict: Verdict,
    /// Equal results in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Attempts in a row that could not be made.
    #[serde(skip_serializing_if = "is_zero")]
    pub errors: u32,
    /// Attempts of the current round that could not be made; the third ends the round.
    #[serde(skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// When the next attempt is due; `None` until its clock has started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Moment>,
    /// The next attempt is out of turn, because the agent has just started.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub off_beat: bool,
    /// When the first attempt was due of those that were all late since; `None` if the newest one was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_since: Option<Moment>,
    /// Not to be run again in this life.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub on_hold: bool,
    /// The newest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Attempt>,
}

/// What the results of a probe add up to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// No threshold has been reached in this life.
    #[default]
    NeverProbed,
    /// Known from before the agent started; no threshold has been reached since.
    Carried {
        /// What is known.
        passed: bool,
        /// What it rests on.
        basis: Basis,
    },
    /// A threshold was reached under this agent.
    Probed {
        /// Which one.
        passed: bool,
        /// When it was reached first, with this value.
        at: Moment,
        /// Results in a row it took.
        run: u32,
        /// What the deciding attempt said.
        output: String,
    },
}

/// What a carried verdict rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// A probe decided it, under an earlier run of the agent.
    Probe {
        /// When.
        at: Moment,
        /// Results in a row it took.
        run: u32,
        /// What the deciding attempt said.
        output: String,
    },
    /// The status last published says so, and nobody here knows better.
    Status,
    /// Neither the ledger nor an API server knows the container, and it ran for more than 10 s before this run of the agent
    /// began: it is no new one (CON-3).
    Age,
    /// Somebody else set the pod's Ready condition while the agent was away, so readiness has to be shown again.
    ForeignWrite,
    /// The agent was away for longer than the node monitor grace period, so readiness has to be shown again.
    Absence {
        /// For how long.
        #[serde(with = "serde_millis")]
        away: Duration,
    },
    /// The legacy gate `ChangeContainerStatusOnKubeletRestart` asks for this value at an agent start.
    LegacyReset,
}

/// Equal results in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Which result.
    pub passed: bool,
    /// How many.
    pub length: u32,
    /// When the newest came in.
    pub last: Moment,
}

/// A probe attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it ended.
    pub at: Moment,
    /// What it showed.
    pub outcome: Outcome,
    /// How long the target took.
    #[serde(with = "serde_millis")]
    pub latency: Duration,
    /// What it said, shortened.
    pub output: String,
}

// === impl ProbeMemory ===

impl ProbeMemory {
    /// For how long the node has not managed to ask, if that is too long: the verdict is then older than it should be, and
    /// people have to know. A few late attempts of a busy minute are no news.
    pub fn overdue(&self, probe: &Probe, now: Moment) -> Option<Duration> {
        let late = now.since(&self.late_since?);
        (late > (LATE_PERIODS * probe.period).max(LATE_AT_LEAST)).then_some(late)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

// === impl Verdict ===

impl Verdict {
    /// What is known, if anything.
    pub fn passed(&self) -> Option<bool> {
        match self {
            Self::NeverProbed => None,
            Self::Carried { passed, .. } | Self::Probed { passed, .. } => Some(*passed),
        }
    }

    /// The same verdict in the eyes of an agent that has just started.
    pub(crate) fn carry(&mut self) {
        if let Self::Probed { passed, at, run, output } = self {
            let basis = Basis::Probe { at: *at, run: *run, output: std::mem::take(output) };
            *self = Self::Carried { passed: *passed, basis };
        }
    }
}
