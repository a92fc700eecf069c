//! The board: the newest status of every pod, the evidence behind it, the newest events and the newest pods that are gone.
//!
//! It is always there, in memory, and belongs to the agent. Everything local reads it: the socket, `keelet run`, metrics, the page.
//! What an earlier agent emitted is recalled from the ledger. What others than this node see is the publisher's business
//! ([`crate::publish`]).

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use keelet_ledger::{Gone, PodRef};
use keelet_lifecycle::{Evidence, Moment, Severity, status::PodStatus};
use keelet_pod::{Features, Pod, ProbeKind, Role};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{events::EventRecord, metrics::ContainerCounts};

/// Events kept for the whole node. A page of a terminal for each of the pods of a busy minute.
const EVENTS: usize = 512;

/// Pods that are gone, as many as the ledger keeps.
const GONE: usize = 20;

/// The newest of every pod in memory. Subscribers hear when something is new.
#[derive(Debug)]
pub struct Board {
    kept: Mutex<Kept>,
    recall: Recall,
    observer: Option<Arc<dyn Observer>>,
    changes: watch::Sender<u64>,
}

/// Whether a board shows what an earlier agent emitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recall {
    /// The events of earlier runs are shown, and those of this run are kept for the next one.
    #[default]
    AllRuns,
    /// Only what this run emits.
    ThisRun,
}

/// Sees every change of a board in its order, none left out. Subscribers of [`Board::changes`] may miss what lies in between.
pub trait Observer: Send + Sync + fmt::Debug {
    /// A status is on the board.
    fn published(&self, published: &Published);
    /// An event is on the board.
    fn event(&self, event: &PodEvent);
    /// A pod has left the board, and nothing of it is on the node.
    fn gone(&self, uid: &str);
}

/// A pod that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When it was asked for, as far as this agent knows.
    pub asked: Moment,
    /// How long its containers may take.
    pub grace: Duration,
}

#[derive(Debug, Default)]
struct Kept {
    pods: BTreeMap<String, Arc<Published>>,
    /// What the newest status of each pod rests on.
    evidence: BTreeMap<String, Arc<Evidence>>,
    /// What of each pod ran when the runtime was last asked, by UID.
    running: BTreeMap<String, Running>,
    /// Pods with probes that this node cannot ask, by UID.
    overdue: BTreeMap<String, (Arc<Pod>, Vec<OverdueProbe>)>,
    /// Those on their way out, by UID.
    leaving: BTreeMap<String, Departure>,
    events: VecDeque<Arc<PodEvent>>,
    /// Whether the newest events are not yet kept for the next agent.
    unsaved: bool,
    /// The newest last.
    gone: VecDeque<Arc<GonePod>>,
}

/// A status as it was published.
#[derive(Clone, Debug)]
pub struct Published {
    /// Whose.
    pub pod: Arc<Pod>,
    /// Its number.
    pub version: u64,
    /// The status.
    pub status: PodStatus,
    /// Set once the removal of the pod was requested.
    pub leaving: Option<Departure>,
}

/// What of a pod ran when the runtime was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Whether it had a sandbox in use.
    pub sandbox: bool,
    /// How many containers did what.
    pub containers: ContainerCounts,
}

/// A probe of whose attempts none was made for too long, because this node could not keep up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverdueProbe {
    /// The container's name.
    pub container: String,
    /// Which of its probes.
    pub kind: ProbeKind,
    /// When the first attempt was due that was not made.
    pub since: Moment,
}

/// An event and the pod it is about, which may be gone by now; or an event of the node itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodEvent {
    /// What it is about.
    #[serde(default, skip_serializing_if = "Involved::is_pod")]
    pub involved: Involved,
    /// The pod; or the node, under its name in the namespace of its events.
    pub pod: PodRef,
    /// The part of the pod it is about: `spec.containers{main}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
    /// What happened.
    pub event: EventRecord,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Involved {
    /// A pod.
    #[default]
    Pod,
    /// The node.
    Node,
}

/// A pod that is gone.
#[derive(Clone, Debug)]
pub struct GonePod {
    /// Since when.
    pub at: Moment,
    /// Its last status.
    pub published: Arc<Published>,
}

// === impl PodEvent ===

impl PodEvent {
    /// An event of that pod.
    pub fn new(pod: &Pod, event: EventRecord) -> Self {
        let field_path = event.container.as_ref().map(|name| {
            let list = match pod.container(name).map(|container| container.role) {
                Some(Role::Init | Role::Sidecar) => "initContainers",
                Some(Role::Ephemeral) => "ephemeralContainers",
                Some(Role::Regular) | None => "containers",
            };
            format!("spec.{list}{{{name}}}")
        });
        let pod = PodRef { uid: pod.uid.clone(), namespace: pod.namespace.clone(), name: pod.name.clone() };
        Self { involved: Involved::Pod, pod, field_path, event }
    }

    /// An event of the node. As the kubelet's, it is in the default namespace, and the name of the node stands for its UID.
    pub fn of_node(name: &str, event: EventRecord) -> Self {
        let node = PodRef { uid: name.to_owned(), namespace: "default".to_owned(), name: name.to_owned() };
        Self { involved: Involved::Node, pod: node, field_path: None, event }
    }
}

// === impl Involved ===

impl Involved {
    /// The API's name of its kind.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Node => "Node",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_pod(&self) -> bool {
        *self == Self::Pod
    }
}

// === impl GonePod ===

impl GonePod {
    /// What the ledger kept of a pod; none if that does not make one.
    pub(crate) fn recalled(gone: Gone, features: &Features) -> Option<Self> {
        let Gone { at, pod } = gone;
        let durable = pod.evidence.durable;
        let published = Published {
            pod: Arc::new(Pod::from_json(pod.copy?, features).ok()?),
            version: durable.version,
            status: durable.published?,
            leaving: None,
        };
        Some(Self { at, published: Arc::new(published) })
    }
}

// === impl Board ===

impl Board {
    pub(crate) fn new(recall: Recall, observer: Option<Arc<dyn Observer>>) -> Self {
        Self { kept: Mutex::default(), recall, observer, changes: watch::Sender::new(0) }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest status of every pod, by UID.
    pub fn statuses(&self) -> BTreeMap<String, Arc<Published>> {
        self.kept().pods.clone()
    }

    /// What the newest status of a pod rests on: the newest results of its probes, among others.
    pub fn evidence(&self, uid: &str) -> Option<Arc<Evidence>> {
        self.kept().evidence.get(uid).cloned()
    }

    /// Pods with a sandbox in use, and containers by what they do, when the runtime was last asked.
    pub fn running(&self) -> (usize, ContainerCounts) {
        let kept = self.kept();
        let mut total = ContainerCounts::default();
        for ContainerCounts { created, running, exited, unknown } in kept.running.values().map(|pod| pod.containers) {
            total.created += created;
            total.running += running;
            total.exited += exited;
            total.unknown += unknown;
        }
        (kept.running.values().filter(|pod| pod.sandbox).count(), total)
    }

    /// Probes of which no attempt was made for longer than three periods and half a minute, because this node cannot keep
    /// up, with their pods.
    pub fn overdue_probes(&self) -> Vec<(Arc<Pod>, OverdueProbe)> {
        let kept = self.kept();
        let of_pod = |(pod, probes): &(Arc<Pod>, Vec<OverdueProbe>)| -> Vec<_> {
            probes.iter().map(|probe| (Arc::clone(pod), probe.clone())).collect()
        };
        kept.overdue.values().flat_map(of_pod).collect()
    }

    /// The newest events, oldest first.
    pub fn events(&self) -> Vec<Arc<PodEvent>> {
        self.kept().events.iter().cloned().collect()
    }

    /// The newest pods that are gone, the newest last.
    pub fn gone_pods(&self) -> Vec<Arc<GonePod>> {
        self.kept().gone.iter().cloned().collect()
    }

    /// Changes whenever a status, an event or the set of pods does. A subscriber learns that something changed, not how
    /// often, so a slow one delays nothing.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    pub(crate) fn publish(&self, pod: &Arc<Pod>, version: u64, status: &PodStatus) {
        let mut kept = self.kept();
        let leaving = kept.leaving.get(&pod.uid).copied();
        let published = Arc::new(Published { pod: Arc::clone(pod), version, status: status.clone(), leaving });
        kept.pods.insert(pod.uid.clone(), Arc::clone(&published));
        drop(kept);
        self.changed();
        if let Some(observer) = &self.observer {
            observer.published(&published);
        }
    }

    /// What a pod's status rests on has changed. Subscribers are not woken: most of it is one more probe that passed.
    pub(crate) fn note(&self, uid: &str, evidence: &Arc<Evidence>) {
        self.kept().evidence.insert(uid.to_owned(), Arc::clone(evidence));
    }

    /// What of a pod runs, as the runtime has just said.
    pub(crate) fn note_running(&self, uid: &str, running: Running) {
        self.kept().running.insert(uid.to_owned(), running);
    }

    /// The probes of a pod that this node cannot ask, from now on.
    pub(crate) fn note_overdue(&self, pod: &Arc<Pod>, overdue: Vec<OverdueProbe>) {
        let mut kept = self.kept();
        match overdue.is_empty() {
            true => drop(kept.overdue.remove(&pod.uid)),
            false => drop(kept.overdue.insert(pod.uid.clone(), (Arc::clone(pod), overdue))),
        }
    }

    pub(crate) fn event(&self, pod: &Arc<Pod>, event: &EventRecord) {
        let EventRecord { container, reason, message, count, severity, .. } = event;
        let name = format!("{}/{}", pod.namespace, pod.name);
        let container = container.as_deref();
        match severity {
            Severity::Warning => tracing::warn!(pod = name, container, reason, count, note = %message, "pod event"),
            Severity::Normal => tracing::info!(pod = name, container, reason, count, note = %message, "pod event"),
        }
        self.add(PodEvent::new(pod, event.clone()));
    }

    pub(crate) fn node_event(&self, node: &str, event: &EventRecord) {
        let EventRecord { reason, message, count, severity, .. } = event;
        match severity {
            Severity::Warning => tracing::warn!(node, reason, count, note = %message, "node event"),
            Severity::Normal => tracing::info!(node, reason, count, note = %message, "node event"),
        }
        self.add(PodEvent::of_node(node, event.clone()));
    }

    fn add(&self, event: PodEvent) {
        let event = Arc::new(event);
        let mut kept = self.kept();
        kept.add(Arc::clone(&event));
        kept.unsaved = true;
        drop(kept);
        self.changed();
        if let Some(observer) = &self.observer {
            observer.event(&event);
        }
    }

    /// The pod is to be deleted.
    pub(crate) fn leaving(&self, pod: &Arc<Pod>, departure: Departure) {
        let mut kept = self.kept();
        kept.leaving.insert(pod.uid.clone(), departure);
        if let Some(published) = kept.pods.get_mut(&pod.uid) {
            Arc::make_mut(published).leaving = Some(departure);
        }
        drop(kept);
        self.changed();
    }

    /// Nothing of the pod is left on the node.
    pub(crate) fn gone(&self, pod: &Arc<Pod>, at: Moment) {
        let mut kept = self.kept();
        kept.leaving.remove(&pod.uid);
        kept.evidence.remove(&pod.uid);
        kept.running.remove(&pod.uid);
        kept.overdue.remove(&pod.uid);
        if let Some(published) = kept.pods.remove(&pod.uid) {
            kept.bury(GonePod { at, published });
        }
        drop(kept);
        self.changed();
        if let Some(observer) = &self.observer {
            observer.gone(&pod.uid);
        }
    }

    /// What earlier agents emitted, before anything else.
    pub(crate) fn recall(&self, events: Vec<PodEvent>, gone: Vec<GonePod>) {
        if self.recall == Recall::ThisRun {
            return;
        }
        let mut kept = self.kept();
        events.into_iter().for_each(|event| kept.add(Arc::new(event)));
        gone.into_iter().for_each(|pod| kept.bury(pod));
    }

    /// The newest events, if there are some that were not returned here before: to be kept for the next agent.
    pub(crate) fn unsaved(&self) -> Option<Vec<Arc<PodEvent>>> {
        let mut kept = self.kept();
        let unsaved = std::mem::take(&mut kept.unsaved) && self.recall == Recall::AllRuns;
        unsaved.then(|| kept.events.iter().cloned().collect())
    }

    /// The events of a pod, oldest first.
    pub(crate) fn events_of(&self, uid: &str) -> Vec<EventRecord> {
        self.kept()
            .events
            .iter()
            .filter(|event| event.involved == Involved::Pod && event.pod.uid == uid)
            .map(|event| event.event.clone())
            .collect()
    }
}

// === impl Kept ===

impl Kept {
    fn add(&mut self, event: Arc<PodEvent>) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn bury(&mut self, pod: GonePod) {
        if self.gone.len() == GONE {
            self.gone.pop_front();
        }
        self.gone.push_back(Arc::new(pod));
    }
}

#[cfg(test)]
mod tests;
