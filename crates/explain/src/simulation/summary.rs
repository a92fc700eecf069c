//! What a record says of readiness, restarts, backoffs, and of agents that came and went.

use std::time::Duration;

use keelet_lifecycle::{
    Because,
    journal::{Note, What},
    operation::KillReason,
    status::{ConditionType, Phase, Truth},
};
use keelet_pod::ProbeKind;

use super::{
    Absence, Record,
    moments::{sentence, tells_more},
};
use crate::because_of_note;

/// What became of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The phase at the end.
    pub phase: Phase,
    /// Since when.
    pub phase_since: Duration,
    /// When it was ready for the first time.
    pub first_ready: Option<Duration>,
    /// Whether it was ready at the end.
    pub ready_at_end: bool,
    /// How long it was not ready, from its first readiness on.
    pub unready: Duration,
    /// Its containers, in the order of the spec.
    pub containers: Vec<ContainerSummary>,
    /// What every agent found that came back.
    pub returns: Vec<AgentReturn>,
}

/// What became of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSummary {
    /// Its name.
    pub name: String,
    /// Its restart count.
    pub restarts: u32,
    /// The probes that had it killed, in order.
    pub killed_by: Vec<ProbeKind>,
    /// The backoffs it waited for, in order.
    pub backoffs: Vec<Duration>,
}

/// The return of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentReturn {
    /// When and why there was no agent.
    pub absence: Absence,
    /// What was different in the first status after it, in sentences; `None` if there was no agent any more.
    pub changes: Option<Vec<String>>,
    /// When the pod turned ready after it.
    pub ready: Option<Duration>,
}

// === impl Summary ===

impl Summary {
    /// Reads a record of a simulation that lasted so long, with these times without an agent.
    pub fn of(record: &Record, absences: &[Absence], lasted: Duration) -> Self {
        let changes = ready_changes(record);
        let last = record.statuses.last().map(|(_, _, status)| status);
        let first_ready = changes.iter().find(|(_, ready)| *ready).map(|(at, _)| *at);
        Self {
            phase: last.map(|status| status.phase).unwrap_or_default(),
            phase_since: phase_since(record),
            first_ready,
            ready_at_end: changes.last().is_some_and(|(_, ready)| *ready),
            unready: first_ready.map_or(Duration::ZERO, |first| unready(&changes, first, lasted)),
            containers: record.pod.all_containers().map(|container| of_container(record, &container.name)).collect(),
            returns: (2..).zip(absences).map(|(run, absence)| came_back(record, *absence, run, &changes)).collect(),
        }
    }
}

fn phase_since(record: &Record) -> Duration {
    let newest = record.journal.iter().rev().find(|note| matches!(note.what, What::Phase { .. }));
    newest.map_or(Duration::ZERO, |note| record.since_beginning(note.at))
}

/// When the Ready condition turned to what.
fn ready_changes(record: &Record) -> Vec<(Duration, bool)> {
    let change = |note: &Note| match note.what {
        What::Condition { kind: ConditionType::Ready, status, .. } => {
            Some((record.since_beginning(note.at), status == Truth::True))
        }
        _ => None,
    };
    record.journal.iter().filter_map(change).collect()
}

fn unready(changes: &[(Duration, bool)], first: Duration, end: Duration) -> Duration {
    let (mut total, mut since) = (Duration::ZERO, None);
    for (at, ready) in changes.iter().filter(|(at, _)| *at >= first) {
        match (ready, since) {
            (false, None) => since = Some(*at),
            (true, Some(began)) => {
                total += at.saturating_sub(began);
                since = None;
            }
            (true, None) | (false, Some(_)) => {}
        }
    }
    total + since.map_or(Duration::ZERO, |began| end.saturating_sub(began))
}

fn of_container(record: &Record, name: &str) -> ContainerSummary {
    let own = || record.journal.iter().filter(|note| note.container() == Some(name));
    let killed_by = own().filter_map(|note| match note.what {
        What::Killing { reason: KillReason::Probe(probe), .. } => Some(probe),
        _ => None,
    });
    let backoffs = own().filter_map(|note| match (&note.what, &note.because) {
        (What::Waiting { .. }, Some(Because::Backoff { delay, .. })) => Some(*delay),
        _ => None,
    });
    let status = record.statuses.last().and_then(|(_, _, status)| status.container(name));
    ContainerSummary {
        name: name.to_owned(),
        restarts: status.map_or(0, |status| status.restart_count),
        killed_by: killed_by.collect(),
        backoffs: backoffs.collect(),
    }
}

fn came_back(record: &Record, absence: Absence, run: u32, changes: &[(Duration, bool)]) -> AgentReturn {
    let before = record.statuses.iter().rev().find(|(_, of, _)| *of < run).map(|(_, _, status)| status);
    let first = record.statuses.iter().find(|(_, of, _)| *of == run);
    let back = absence.from + absence.lasts;
    let ready = changes.iter().find(|(at, ready)| *at >= back && *ready).map(|(at, _)| *at);
    let changes = first.map(|(at, _, status)| match before {
        Some(before) if before == status => Vec::new(),
        _ => noted_then(record, back, *at),
    });
    AgentReturn { absence, changes, ready }
}

/// What the journal says of the time between an agent's start and its first status.
fn noted_then(record: &Record, back: Duration, until: Duration) -> Vec<String> {
    let known = record.known();
    let started = record
        .journal
        .iter()
        .position(|note| matches!(note.what, What::AgentStarted { .. }) && record.since_beginning(note.at) >= back);
    let notes = record.journal.iter().skip(started.map_or(usize::MAX, |at| at + 1));
    let notes = notes.take_while(|note| record.since_beginning(note.at) <= until);
    let told = notes.filter(|note| shows_in_status(&note.what)).map(|note| {
        let because = because_of_note(note, &known, note.at).filter(|_| tells_more(note));
        let because = because.map(|because| format!(", because {because}"));
        format!("{}{}", sentence(note), because.unwrap_or_default())
    });
    told.collect()
}

fn shows_in_status(what: &What) -> bool {
    matches!(
        what,
        What::Exited { .. }
            | What::Waiting { .. }
            | What::Running { .. }
            | What::ShownEnded { .. }
            | What::Started { .. }
            | What::Ready { .. }
            | What::Phase { .. }
            | What::RestartCount { .. }
            | What::Condition { kind: ConditionType::Ready, .. }
    )
}
