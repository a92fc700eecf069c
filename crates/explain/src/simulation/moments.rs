//! The moments that matter: a journal without what only the machinery cares for.

use keelet_lifecycle::{
    Because,
    journal::{Note, What},
    status::{ConditionType, Phase, Truth},
};
use serde::Serialize;

use super::Record;
use crate::{Known, because_of_note, note_sentence, timeline::Tone};

/// A moment that matters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// Since the beginning.
    pub at_ms: u64,
    /// What happened.
    pub text: String,
    /// What it rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Whether it is good or bad news.
    pub tone: Tone,
}

/// The moments of a record, oldest first.
pub fn moments(record: &Record) -> Vec<Moment> {
    let known = record.known();
    let mut notes: Vec<&Note> = record.journal.iter().filter(|note| matters(note, &known)).collect();
    notes.sort_by_key(|note| note.at.wall);
    // A pod that has not begun is not ready, and another reason for the same condition status is no moment.
    let mut ready = Truth::False;
    notes.retain(|note| match &note.what {
        What::Condition { status, .. } => std::mem::replace(&mut ready, *status) != *status,
        _ => true,
    });
    let moment = |note: &&Note| Moment {
        at_ms: u64::try_from(record.since_beginning(note.at).as_millis()).unwrap_or(u64::MAX),
        text: sentence(note),
        because: because_of_note(note, &known, note.at).filter(|_| tells_more(note)),
        tone: tone(&note.what),
    };
    notes.iter().map(moment).collect()
}

/// What a note says, without what means nothing in a simulation.
pub(super) fn sentence(note: &Note) -> String {
    match &note.what {
        What::Running { container, attempt: 0, .. } => format!("container {container:?} runs"),
        What::Running { container, attempt, .. } => format!("container {container:?} runs again (restart {attempt})"),
        // Its evidence says why, in more words.
        What::Killing { .. } if note.because.is_some() => {
            let told = note_sentence(note, note.at);
            told.split_once(", because ").map_or(told.clone(), |(what, _)| what.to_owned())
        }
        _ => note_sentence(note, note.at).replace(" (just now)", ""),
    }
}

fn matters(note: &Note, known: &Known<'_>) -> bool {
    let container = note.container().and_then(|name| known.spec.as_ref()?.container(name));
    match &note.what {
        // What a container without probes does all by itself shows in its other moments.
        What::Started { value, .. } => *value && container.is_some_and(|container| container.startup.is_some()),
        What::Ready { value, .. } => {
            container.is_some_and(|container| container.readiness.is_some())
                && (*value || matches!(note.because, Some(Because::Probe { .. } | Because::Carried { .. })))
        }
        What::Waiting { reason, .. } => {
            !matches!(reason.as_str(), "" | "ContainerCreating" | "PodInitializing" | "RestartingAllContainers")
        }
        What::ShownEnded { .. } => !matches!(note.because, Some(Because::Exited { .. })),
        What::Condition { kind, .. } => *kind == ConditionType::Ready,
        What::AgentStarted { last_seen, .. } => last_seen.is_some(),
        What::Phase { phase } => *phase != Phase::Pending,
        What::Rejected { .. }
        | What::RequestTaken { .. }
        | What::LegacyReset { .. }
        | What::Exited { .. }
        | What::Ending { .. }
        | What::RestartAll { .. }
        | What::Killing { .. }
        | What::Running { .. } => true,
        What::Seen
        | What::SandboxRequested { .. }
        | What::Sandbox { .. }
        | What::Launching { .. }
        | What::RestartCount { .. } => false,
    }
}

/// Whether the evidence says more than the moment and those around it do.
pub(super) fn tells_more(note: &Note) -> bool {
    !matches!(
        (&note.what, &note.because),
        (What::Running { .. } | What::Phase { .. }, _)
            | (_, Some(Because::Spec | Because::Pending))
            | (What::Condition { .. }, Some(Because::Containers { .. }))
    )
}

fn tone(what: &What) -> Tone {
    match what {
        What::Ready { value: true, .. }
        | What::Started { value: true, .. }
        | What::Condition { status: Truth::True, .. } => Tone::Good,
        What::Exited { exit, .. } if exit.exit_code == 0 => Tone::Plain,
        What::Exited { .. } | What::Killing { .. } | What::Rejected { .. } | What::Waiting { .. } => Tone::Bad,
        What::Ready { .. } => Tone::Bad,
        _ => Tone::Plain,
    }
}
