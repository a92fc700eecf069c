//! Why a status is as it is: every part of it, followed down to what was observed.
//!
//! An [`Answer`] is about one part of the status, a subject. Below it hang [`Link`]s: each says what the one above rests
//! on, and the last ones of every chain are evidence: an exit, a probe attempt, a request, the spec. Where nothing is
//! recorded a link says so; [`check_chains`] counts on that never to happen.

mod chain;
mod check;
mod instances;
mod order;
mod text;

use keelet_lifecycle::{
    Because, Moment, ProbeRecord, Subject,
    journal::What,
    status::{ConditionType, ContainerState, ContainerStatus},
};
use serde::Serialize;

use self::chain::Chain;
pub use self::{
    check::check_chains,
    text::{Detail, text},
};
use crate::{
    known::Known,
    sentence::{condition_name, truth},
    words::{span, time, time_ago},
};

/// The answers about a pod, or about one of its containers.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// The shape of this document. While it stays the same, fields may be added and none is renamed or dropped.
    pub format: &'static str,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's UID.
    pub uid: String,
    /// When the question was asked.
    pub as_of: Moment,
    /// What bears on all answers.
    pub remarks: Vec<String>,
    /// One for each part of the status.
    pub answers: Vec<Answer>,
}

/// Why one part of the status is as it is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The part.
    pub subject: Subject,
    /// The pod or the container it belongs to, for people.
    pub of: String,
    /// The part and its value, for people: `Ready=False`.
    pub value: String,
    /// Since when it has this value, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Moment>,
    /// The reason in a word, as the status has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it rests on.
    pub because: Vec<Link>,
}

/// What something rests on.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// A sentence.
    pub text: String,
    /// When it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
    /// The part of the status that this link is, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// The evidence in machine-readable form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Because>,
    /// Probe attempts that show it, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<ProbeRecord>,
    /// Whether the chain may end here.
    pub ground: Ground,
    /// What this rests on in turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<Link>,
}

/// What a chain has reached with a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Ground {
    /// Something that was observed, asked for or specified.
    Evidence,
    /// A conclusion: what it rests on has to follow.
    Conclusion,
    /// Nothing is recorded.
    Missing,
}

/// The conditions, in the order in which people ask.
const CONDITIONS: [ConditionType; 6] = [
    ConditionType::Ready,
    ConditionType::ContainersReady,
    ConditionType::AllContainersRestarting,
    ConditionType::Initialized,
    ConditionType::PodReadyToStartContainers,
    ConditionType::PodScheduled,
];

/// Answers why the status of a pod is as it is; of one container only, if one is named.
pub fn explain(known: &Known<'_>, container: Option<&str>, now: Moment) -> Explained {
    let chain = Chain::new(known, now);
    let mut answers = Vec::new();
    if container.is_none() {
        for subject in pod_subjects(known) {
            answers.extend(answer(known, &chain, &subject, now));
        }
    }
    for status in known.status().into_iter().flat_map(|status| status.all_containers()) {
        if container.is_none_or(|wanted| wanted == status.name) {
            for subject in container_subjects(status) {
                answers.extend(answer(known, &chain, &subject, now));
            }
        }
    }
    Explained {
        format: "keelet.dev/why/v1",
        namespace: known.namespace.to_owned(),
        name: known.name.to_owned(),
        uid: known.uid.to_owned(),
        as_of: now,
        remarks: remarks(known, now),
        answers,
    }
}

/// The parts of a pod's status that are not those of a container.
pub(crate) fn pod_subjects(known: &Known<'_>) -> Vec<Subject> {
    let Some(status) = known.status() else { return Vec::new() };
    let foreign = status.conditions.iter().map(|condition| &condition.kind).filter(|kind| !CONDITIONS.contains(kind));
    let ours = CONDITIONS.iter().filter(|kind| status.condition(kind).is_some());
    let mut subjects: Vec<Subject> = ours.chain(foreign).cloned().map(Subject::Condition).collect();
    subjects.insert(subjects.len().min(1), Subject::Phase);
    subjects
}

/// The parts of a container's status.
pub(crate) fn container_subjects(status: &ContainerStatus) -> Vec<Subject> {
    let name = || status.name.clone();
    let mut subjects = vec![Subject::State(name())];
    // A container whose status has neither `started` nor restarts has a state only.
    if status.started.is_some() {
        subjects.extend([Subject::Started(name()), Subject::Ready(name())]);
    }
    if status.restart_count > 0 {
        subjects.push(Subject::RestartCount(name()));
    }
    subjects
}

fn answer(known: &Known<'_>, chain: &Chain<'_, '_>, subject: &Subject, now: Moment) -> Option<Answer> {
    let (value, reason) = value(known, subject)?;
    let of = match crate::sentence::container_of(subject) {
        Some(name) => format!("container {name:?}"),
        None => format!("pod {}", crate::words::pod_name(known.namespace, known.name)),
    };
    let because = chain.of(subject);
    Some(Answer { subject: subject.clone(), of, value, since: since(known, subject, now), reason, because })
}

/// What a part of the status says, and its reason in a word.
fn value(known: &Known<'_>, subject: &Subject) -> Option<(String, String)> {
    let status = known.status()?;
    let bool = |value: bool| if value { "True" } else { "False" };
    Some(match subject {
        Subject::Condition(kind) => {
            let condition = status.condition(kind)?;
            let value = format!("{}={}", condition_name(kind), truth(condition.status));
            (value, condition.reason.clone().unwrap_or_default())
        }
        Subject::Phase => (format!("phase={:?}", status.phase), status.reason.clone().unwrap_or_default()),
        Subject::Started(name) => {
            (format!("started={}", bool(status.container(name)?.started == Some(true))), String::new())
        }
        Subject::Ready(name) => (format!("ready={}", bool(status.container(name)?.ready)), String::new()),
        Subject::RestartCount(name) => {
            (format!("restartCount={}", status.container(name)?.restart_count), String::new())
        }
        Subject::State(name) => match &status.container(name)?.state {
            ContainerState::Waiting(waiting) => ("waiting".to_owned(), waiting.reason.clone()),
            ContainerState::Running(_) => ("running".to_owned(), String::new()),
            ContainerState::Terminated(end) => (format!("ended with exit code {}", end.exit_code), end.reason.clone()),
        },
    })
}

/// Since when a part of the status says what it says.
fn since(known: &Known<'_>, subject: &Subject, now: Moment) -> Option<Moment> {
    if let Some(note) = known.last_change(subject) {
        return Some(note.at);
    }
    match subject {
        Subject::Condition(kind) => known.status()?.condition(kind)?.last_transition_time.map(|wall| now.dated(wall)),
        _ => None,
    }
}

/// What bears on all answers: runs of the agent, and how old all this is.
fn remarks(known: &Known<'_>, now: Moment) -> Vec<String> {
    let mut remarks = Vec::new();
    let note = known.journal.iter().rev().find(|note| matches!(note.what, What::AgentStarted { .. }));
    if let Some(note) = note
        && let What::AgentStarted { last_seen, rebooted } = &note.what
    {
        let away = last_seen.map(|seen| span(note.at.since(&seen)));
        let away = away.map(|away| format!("; before that none was there for {away}")).unwrap_or_default();
        let boot = if *rebooted { ", after a reboot of the node" } else { "" };
        remarks.push(format!("an agent started at {}{boot}{away}", time_ago(note.at, now)));
    }
    let boot = known.evidence.volatile.boot_id;
    if known.status().is_none() {
        // There is no before.
    } else if known.evidence.volatile.agent_started.is_none() {
        remarks.push("no agent has observed the pod since the node was booted: this is its state before".to_owned());
    } else if boot != now.boot_id {
        remarks.push("this is from another boot of the node".to_owned());
    }
    if known.namespace.is_empty() {
        remarks.push("its name is lost; it is shown by its UID".to_owned());
    }
    if known.spec.is_none() {
        remarks.push("there is no copy of the pod, so rules and thresholds are named by number only".to_owned());
    }
    if known.why.is_empty() && known.status().is_some() {
        remarks.push("the reasons of the newest status are lost; these are the ones in the journal".to_owned());
    }
    if let Some(first) = known.journal.first().filter(|note| !matches!(note.what, What::Seen)) {
        remarks.push(format!("the journal begins at {}", time(first.at.wall, now)));
    }
    remarks
}

// === impl Link ===

impl Link {
    pub(crate) fn evidence(text: impl Into<String>) -> Self {
        Self::new(text.into(), Ground::Evidence)
    }

    pub(crate) fn conclusion(text: impl Into<String>, because: Vec<Self>) -> Self {
        let mut link = Self::new(text.into(), Ground::Conclusion);
        link.because = because;
        link
    }

    pub(crate) fn missing(text: impl Into<String>) -> Self {
        Self::new(text.into(), Ground::Missing)
    }

    fn new(text: String, ground: Ground) -> Self {
        let (because, attempts) = (Vec::new(), Vec::new());
        Self { text, at: None, subject: None, evidence: None, attempts, ground, because }
    }

    pub(crate) fn at(mut self, at: Moment) -> Self {
        self.at = Some(at);
        self
    }

    pub(crate) fn with(mut self, because: Vec<Self>) -> Self {
        self.because = because;
        self
    }

    pub(crate) fn proof(mut self, evidence: &Because) -> Self {
        self.evidence = Some(evidence.clone());
        self
    }
}
