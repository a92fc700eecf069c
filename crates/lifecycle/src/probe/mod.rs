//! Probes: from results to verdicts, and when the next attempt is due.
//!
//! A [`ProbeMemory`] belongs to one container ID. A new container starts with an empty one, so a streak of a former
//! instance never counts (PROBE-13).

mod eager;
mod schedule;
mod threshold;

use std::time::Duration;

use keelet_pod::Probe;
use serde::{Deserialize, Serialize};

use crate::{
    operation::{Outcome, serde_millis},
    time::{Moment, Wall},
};

pub use self::eager::Eager;
pub(crate) use self::{
    schedule::{after_attempt, after_restart, first_due},
    threshold::{Effect, take},
};

/// A probe is overdue when all its attempts were late for longer than this many periods and than [`LATE_AT_LEAST`].
const LATE_PERIODS: u32 = 3;
/// A probe is not overdue before its attempts were late for this long, however short its period is.
const LATE_AT_LEAST: Duration = Duration::from_secs(30);

/// The state of one probe of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeMemory {
    /// The verdict of the results so far.
    pub verdict: Verdict,
    /// Equal results in a row.
    #[serde(rename = "run", skip_serializing_if = "Option::is_none")]
    pub streak: Option<Streak>,
    /// Consecutive rounds in which no attempt could be made.
    #[serde(skip_serializing_if = "is_zero")]
    pub errors: u32,
    /// Attempts of the current round that could not be made; the third ends the round.
    #[serde(skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// When the next attempt is due; `None` until its clock has started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Moment>,
    /// The next attempt is outside of the schedule, because the agent has just started.
    #[serde(rename = "offBeat", skip_serializing_if = "std::ops::Not::not")]
    pub unscheduled: bool,
    /// Attempts between the scheduled ones.
    #[serde(skip_serializing_if = "Eager::is_not_yet")]
    pub eager: Eager,
    /// When the first of the late attempts was due, if all attempts since were late; `None` if the newest was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_since: Option<Moment>,
    /// Not to be run again for this instance.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub on_hold: bool,
    /// The newest attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Attempt>,
}

/// The verdict of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// No threshold has been reached for this instance.
    #[default]
    NeverProbed,
    /// Known from before the agent started; no threshold has been reached since.
    Carried {
        /// The value.
        passed: bool,
        /// Its evidence.
        basis: Basis,
    },
    /// A threshold was reached under this agent.
    Probed {
        /// Whether it passed.
        passed: bool,
        /// When the verdict first got this value.
        at: Moment,
        /// The consecutive results.
        #[serde(rename = "run")]
        streak: u32,
        /// The output of the deciding attempt.
        output: String,
    },
}

/// The evidence behind a carried verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// A probe decided it, under an earlier run of the agent.
    Probe {
        /// When.
        at: Moment,
        /// The consecutive results.
        #[serde(rename = "run")]
        streak: u32,
        /// The output of the deciding attempt.
        output: String,
    },
    /// It is in the status that was last published, and there is no better evidence.
    Status,
    /// Neither the ledger nor an API server knows the container, and it ran for more than 10 s before this run of the
    /// agent began, so it is not a new one (CON-3).
    Age,
    /// Another client changed the pod's Ready condition while the agent was down, so readiness must be probed again.
    ForeignWrite,
    /// The same, noticed when the API server was first reached, which was after the start of the agent.
    LateForeignWrite {
        /// When the condition was written, by its own account.
        written: Wall,
        /// When this agent saw it.
        seen: Moment,
    },
    /// The agent was down for longer than the node monitor grace period, so readiness must be probed again.
    Absence {
        /// For how long.
        #[serde(with = "serde_millis")]
        away: Duration,
    },
    /// The legacy feature gate `ChangeContainerStatusOnKubeletRestart` sets this value at an agent start.
    LegacyReset,
}

/// Equal results in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streak {
    /// Which result.
    pub passed: bool,
    /// How many.
    pub length: u32,
    /// When the newest result came in.
    pub last: Moment,
}

/// A probe attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it ended.
    pub at: Moment,
    /// Its outcome.
    pub outcome: Outcome,
    /// How long the target took.
    #[serde(with = "serde_millis")]
    pub latency: Duration,
    /// Its output, shortened.
    pub output: String,
}

// === impl ProbeMemory ===

impl ProbeMemory {
    /// For how long the node could not run the probe, if that is too long: the verdict is outdated then, and people
    /// have to know. A few late attempts in a busy minute are not reported.
    pub fn overdue(&self, probe: &Probe, now: Moment) -> Option<Duration> {
        let late = now.since(&self.late_since?);
        (late > (LATE_PERIODS * probe.period).max(LATE_AT_LEAST)).then_some(late)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

// === impl Verdict ===

impl Verdict {
    /// The value, if it is known.
    pub fn passed(&self) -> Option<bool> {
        match self {
            Self::NeverProbed => None,
            Self::Carried { passed, .. } | Self::Probed { passed, .. } => Some(*passed),
        }
    }

    /// The same verdict, as an agent that has just started carries it over.
    pub(crate) fn carry(&mut self) {
        if let Self::Probed { passed, at, streak, output } = self {
            let basis = Basis::Probe { at: *at, streak: *streak, output: std::mem::take(output) };
            *self = Self::Carried { passed: *passed, basis };
        }
    }
}
