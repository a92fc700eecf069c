//! Everything that an explanation may rest on.

use std::borrow::Cow;

use keelet_ledger::Recovered;
use keelet_lifecycle::{
    Because, Evidence, Moment, ProbeRecord, Subject, Why,
    evidence::{ContainerRecord, Exit, RunningInstance},
    journal::{Note, What},
    operation::KillReason,
    restart::Trigger,
    status::{ContainerStatus, PodStatus},
};
use keelet_pod::{Container, Features, Origin, Pod, ProbeKind, Strictness, read_manifest};

/// What is known of a pod.
#[derive(Clone, Debug)]
pub struct Known<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name; its UID, and no namespace, if the name is lost.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// Its spec, where a copy of it can be read. Without it rules and thresholds are named by number only.
    pub spec: Option<Cow<'a, Pod>>,
    /// What is remembered.
    pub evidence: &'a Evidence,
    /// The reasons of the newest status.
    pub why: &'a [Why],
    /// Results of probes; per probe, oldest first.
    pub history: &'a [ProbeRecord],
    /// What changed when, oldest first.
    pub journal: &'a [Note],
}

// === impl Known ===

impl<'a> Known<'a> {
    /// What a ledger has of a pod.
    pub fn from_ledger(found: &'a Recovered) -> Self {
        Self { spec: spec_in(found).map(Cow::Owned), ..Self::without_spec(found) }
    }

    /// The same without the pod's spec, for callers that have read it already.
    pub fn without_spec(found: &'a Recovered) -> Self {
        // One whose name is lost goes by its UID.
        let (namespace, name) = found.pod.as_ref().map_or(("", &*found.uid), |pod| (&pod.namespace, &pod.name));
        Self {
            namespace,
            name,
            uid: &found.uid,
            spec: None,
            evidence: &found.evidence,
            why: found.explanation.as_ref().map_or(&[], |explanation| &explanation.why),
            history: &found.history,
            journal: &found.journal,
        }
    }

    /// The status last published.
    pub fn status(&self) -> Option<&'a PodStatus> {
        self.evidence.durable.published.as_ref()
    }

    pub(crate) fn container_status(&self, name: &str) -> Option<&'a ContainerStatus> {
        self.status()?.container(name)
    }

    pub(crate) fn container(&self, name: &str) -> Option<&Container> {
        self.spec.as_ref()?.container(name)
    }

    pub(crate) fn record(&self, name: &str) -> Option<&'a ContainerRecord> {
        self.evidence.durable.container(name)
    }

    pub(crate) fn instance(&self, name: &str) -> Option<&'a RunningInstance> {
        self.evidence.volatile.instances.get(name).map(Box::as_ref)
    }

    /// The evidence that a part of the status rests on: as the newest plan said, else as the journal remembers.
    pub(crate) fn because(&self, subject: &Subject) -> Option<&'a Because> {
        let newest = self.why.iter().find(|why| why.subject == *subject).map(|why| &why.because);
        newest.or_else(|| self.last_change(subject).and_then(|note| note.because.as_ref()))
    }

    /// The newest change of a part of the status that the journal has.
    pub(crate) fn last_change(&self, subject: &Subject) -> Option<&'a Note> {
        self.journal.iter().rev().find(|note| is_about(note, subject))
    }

    /// How the instance of that ID ended.
    pub(crate) fn exit(&self, id: &str) -> Option<&'a Exit> {
        let records = self.evidence.durable.containers.values();
        let known = records.flat_map(|record| [&record.last_exit, &record.previous_exit]).flatten();
        let noted = self.journal.iter().rev().filter_map(|note| match &note.what {
            What::Exited { exit, .. } => Some(exit),
            _ => None,
        });
        known.chain(noted).find(|exit| exit.id == id)
    }

    /// What had the instance of that ID stopped for that reason, as its kill was noted.
    pub(crate) fn kill(&self, id: &str, reason: KillReason) -> Option<&'a Note> {
        let is_it = |note: &&Note| matches!(&note.what, What::Killing { id: killed, reason: why, .. } if killed == id && *why == reason);
        self.journal.iter().rev().find(is_it)
    }

    /// Whether the journal, which has the newest changes only, does not reach back to the start of that instance.
    pub(crate) fn is_older_than_journal(&self, id: &str) -> bool {
        let began = |note: &Note| matches!(&note.what, What::Running { id: running, .. } if running == id);
        !self.journal.iter().any(began)
    }

    /// What asked for the restart of all containers that ended the instance of that ID, as the message of its end says it.
    pub(crate) fn restart_behind(&self, id: &str) -> &'a str {
        let victim = self.exit(id).filter(|exit| exit.reason == "RestartingAllContainers");
        victim.map_or("", |exit| exit.message.as_str())
    }

    /// What triggered the present or the newest restart of all containers.
    pub(crate) fn triggers(&self) -> &'a [Trigger] {
        let remembered = self.evidence.durable.restart_all.stage.triggers();
        let noted = || {
            self.journal.iter().rev().find_map(|note| match &note.what {
                What::RestartAll { triggers, .. } => Some(&triggers[..]),
                _ => None,
            })
        };
        if remembered.is_empty() { noted().unwrap_or_default() } else { remembered }
    }

    /// The newest start of the agent that the journal has, with when an agent was last seen before it.
    pub(crate) fn agent_start(&self) -> Option<(Moment, Option<Moment>)> {
        self.journal.iter().rev().find_map(|note| match &note.what {
            What::AgentStarted { last_seen, .. } => Some((note.at, *last_seen)),
            _ => None,
        })
    }

    /// The results of one probe of one instance, oldest first.
    pub(crate) fn attempts(&self, container: &str, id: Option<&str>, probe: ProbeKind) -> Vec<&'a ProbeRecord> {
        let is_it = |record: &&ProbeRecord| {
            record.container == container && record.probe == probe && id.is_none_or(|id| record.id == id)
        };
        self.history.iter().filter(is_it).collect()
    }
}

/// The pod behind the copy that a ledger has.
pub fn spec_in(found: &Recovered) -> Option<Pod> {
    found.copy.as_ref().and_then(spec_of)
}

/// The pod behind the copy in a ledger. Feature gates that were off when it was admitted do not matter to sentences.
fn spec_of(copy: &serde_json::Value) -> Option<Pod> {
    let origin = Origin::api_server();
    let bytes = serde_json::to_vec(copy).ok()?;
    read_manifest(&bytes, &origin, Strictness::ApiServer, &Features::default()).pods.pop()
}

fn is_about(note: &Note, subject: &Subject) -> bool {
    match (&note.what, subject) {
        (What::Started { container, .. }, Subject::Started(name))
        | (What::Ready { container, .. }, Subject::Ready(name))
        | (What::RestartCount { container, .. }, Subject::RestartCount(name))
        | (
            What::Waiting { container, .. }
            | What::Running { container, .. }
            | What::Exited { container, .. }
            | What::ShownEnded { container, .. },
            Subject::State(name),
        ) => container == name,
        (What::Condition { kind, .. }, Subject::Condition(wanted)) => kind == wanted,
        (What::Phase { .. }, Subject::Phase) => true,
        _ => false,
    }
}
