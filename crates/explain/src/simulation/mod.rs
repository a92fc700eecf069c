//! What a simulation says about a pod.
//!
//! In comes a [`Record`]: what the agent wrote down and published while a simulated world passed, and the spec. Out come the [`Summary`] of what
//! happened, the [`Moment`]s that matter with their reasons, the [`Outlook`] that follows from the probes of the spec alone, and the
//! [`Finding`]s, which are sentences on all of it.

mod findings;
mod moments;
mod outlook;
mod summary;

use std::{borrow::Cow, sync::Arc, time::Duration};

use keelet_lifecycle::{Evidence, Moment as Instant, ProbeRecord, Why, journal::Note, status::PodStatus};
use keelet_pod::Pod;

pub use self::{
    findings::{Finding, findings},
    moments::{Moment, moments},
    outlook::{Budget, Detection, Fit, Outlook, outlooks},
    summary::{AgentReturn, ContainerSummary, Summary},
};
use crate::Known;

/// What is left of a simulation.
#[derive(Clone, Debug)]
pub struct Record {
    /// The pod.
    pub pod: Arc<Pod>,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
    /// Everything that changed, oldest first.
    pub journal: Vec<Note>,
    /// Every probe attempt; per look, by container and probe.
    pub history: Vec<ProbeRecord>,
    /// What the agent remembered at the end.
    pub evidence: Evidence,
    /// The reasons of the last status.
    pub why: Vec<Why>,
    /// The statuses that were published, with the run of the agent.
    pub statuses: Vec<(Duration, u32, Arc<PodStatus>)>,
}

/// A time without an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    /// When it began, counted from the start of the simulation.
    pub from: Duration,
    /// How long it lasted.
    pub lasts: Duration,
    /// Why there was no agent.
    pub cause: Cause,
}

/// Why there is no agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was killed.
    Killed,
    /// The node went down.
    Reboot,
}

// === impl Record ===

impl Record {
    /// All of it, to be explained.
    pub fn known(&self) -> Known<'_> {
        Known {
            namespace: &self.pod.namespace,
            name: &self.pod.name,
            uid: &self.pod.uid,
            spec: Some(Cow::Borrowed(&*self.pod)),
            evidence: &self.evidence,
            why: &self.why,
            history: &self.history,
            journal: &self.journal,
        }
    }

    /// How long after the beginning something was.
    pub fn since_beginning(&self, moment: Instant) -> Duration {
        moment.wall.since(self.began.wall)
    }
}
