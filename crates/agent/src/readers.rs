//! Readers on this node: the newest status of every pod, the newest events and the newest pods that are gone, for whoever
//! asks. What an earlier agent told is recalled from the ledger.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use keelet_ledger::{Gone, PodRef};
use keelet_lifecycle::{Moment, Severity, status::PodStatus};
use keelet_pod::{Features, Pod, Role};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{
    doors::{Departure, EventRecord, Readers},
    slot::Acknowledge,
};

/// Events kept for the whole node. A page of a terminal for each of the pods of a busy minute.
const EVENTS: usize = 512;

/// Pods that are gone, as many as the ledger keeps.
const GONE: usize = 20;

/// Keeps the newest status of every pod in memory and tells subscribers when something is new.
#[derive(Debug)]
pub struct LocalReaders {
    kept: Mutex<Kept>,
    memory: Memory,
    changes: watch::Sender<u64>,
}

/// Whether readers know what an earlier agent told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    OfAllRuns,
    OfThisRun,
}

#[derive(Debug, Default)]
struct Kept {
    pods: BTreeMap<String, Arc<Published>>,
    /// Those on their way out, by UID.
    leaving: BTreeMap<String, Departure>,
    events: VecDeque<Arc<Told>>,
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
    /// Set once somebody asked for the pod to go away.
    pub leaving: Option<Departure>,
}

/// An event and the pod it is about, which may be gone by now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// The pod.
    pub pod: PodRef,
    /// The part of the pod it is about: `spec.containers{main}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
    /// What happened.
    pub event: EventRecord,
}

/// A pod that is gone.
#[derive(Clone, Debug)]
pub struct GonePod {
    /// Since when.
    pub at: Moment,
    /// Its last status.
    pub published: Arc<Published>,
}

// === impl Told ===

impl Told {
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
        Self { pod, field_path, event }
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

// === impl LocalReaders ===

impl LocalReaders {
    /// Readers that know only what this run of the agent told.
    pub fn of_this_run() -> Self {
        Self { memory: Memory::OfThisRun, ..Self::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest status of every pod, by UID.
    pub fn statuses(&self) -> BTreeMap<String, Arc<Published>> {
        self.kept().pods.clone()
    }

    /// The newest events, oldest first.
    pub fn events(&self) -> Vec<Arc<Told>> {
        self.kept().events.iter().cloned().collect()
    }

    /// The newest pods that are gone, the newest last.
    pub fn gone_pods(&self) -> Vec<Arc<GonePod>> {
        self.kept().gone.iter().cloned().collect()
    }

    /// Changes whenever a status, an event or the set of pods does. Only that it changed is told, never how often, so a
    /// slow subscriber holds nobody up.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Default for LocalReaders {
    fn default() -> Self {
        Self { kept: Mutex::default(), memory: Memory::OfAllRuns, changes: watch::Sender::new(0) }
    }
}

impl Readers for LocalReaders {
    fn known(&self, _pod: &Pod) -> Option<PodStatus> {
        None
    }

    fn publish(&self, pod: &Arc<Pod>, version: u64, status: &PodStatus, acknowledge: Acknowledge) {
        let mut kept = self.kept();
        let leaving = kept.leaving.get(&pod.uid).copied();
        let published = Published { pod: Arc::clone(pod), version, status: status.clone(), leaving };
        kept.pods.insert(pod.uid.clone(), Arc::new(published));
        drop(kept);
        self.changed();
        acknowledge.seen(version);
    }

    fn event(&self, pod: &Arc<Pod>, event: &EventRecord) {
        let EventRecord { container, reason, message, count, severity, .. } = event;
        let name = format!("{}/{}", pod.namespace, pod.name);
        let container = container.as_deref().unwrap_or("");
        match severity {
            Severity::Warning => tracing::warn!(pod = name, container, reason, count, "{message}"),
            Severity::Normal => tracing::info!(pod = name, container, reason, count, "{message}"),
        }
        let mut kept = self.kept();
        kept.note(Told::new(pod, event.clone()));
        kept.unsaved = true;
        drop(kept);
        self.changed();
    }

    fn leaving(&self, pod: &Arc<Pod>, departure: Departure) {
        let mut kept = self.kept();
        kept.leaving.insert(pod.uid.clone(), departure);
        if let Some(published) = kept.pods.get_mut(&pod.uid) {
            Arc::make_mut(published).leaving = Some(departure);
        }
        drop(kept);
        self.changed();
    }

    fn gone(&self, pod: &Arc<Pod>, at: Moment) {
        let mut kept = self.kept();
        kept.leaving.remove(&pod.uid);
        if let Some(published) = kept.pods.remove(&pod.uid) {
            kept.bury(GonePod { at, published });
        }
        drop(kept);
        self.changed();
    }

    fn recall(&self, events: Vec<Told>, gone: Vec<GonePod>) {
        if self.memory == Memory::OfThisRun {
            return;
        }
        let mut kept = self.kept();
        events.into_iter().for_each(|told| kept.note(told));
        gone.into_iter().for_each(|pod| kept.bury(pod));
    }

    fn news(&self) -> Option<Vec<Arc<Told>>> {
        let mut kept = self.kept();
        let news = std::mem::take(&mut kept.unsaved) && self.memory == Memory::OfAllRuns;
        news.then(|| kept.events.iter().cloned().collect())
    }

    fn told_of(&self, uid: &str) -> Vec<EventRecord> {
        self.kept().events.iter().filter(|told| told.pod.uid == uid).map(|told| told.event.clone()).collect()
    }
}

// === impl Kept ===

impl Kept {
    fn note(&mut self, told: Told) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Arc::new(told));
    }

    fn bury(&mut self, pod: GonePod) {
        if self.gone.len() == GONE {
            self.gone.pop_front();
        }
        self.gone.push_back(Arc::new(pod));
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use keelet_lifecycle::{BootId, Event, Moment, Severity, Wall, status::PodStatus};
    use keelet_pod::{Pod, parse_one};

    use super::{EVENTS, LocalReaders, Told};
    use crate::{
        doors::{Departure, EventRecord, Readers},
        events::Recorder,
        slot::Slot,
    };

    fn pod() -> Arc<Pod> {
        let manifest =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: web, uid: u1}\nspec: {containers: [{name: a, image: b}]}";
        Arc::new(parse_one(manifest).expect("valid"))
    }

    #[test]
    fn the_newest_status_is_kept_until_the_pod_is_gone_and_seen_at_once() {
        let (readers, pod, slot) = (LocalReaders::default(), pod(), Arc::new(Slot::default()));
        let mut changes = readers.changes();
        for version in 1..=2 {
            readers.publish(&pod, version, &PodStatus::default(), slot.acknowledge());
        }
        assert_eq!(readers.statuses()["u1"].version, 2);
        assert_eq!(readers.statuses()["u1"].leaving, None);
        let asked = Moment { boot_ms: 0, wall: Wall::default(), boot_id: BootId::default() };
        let departure = Departure { asked, grace: Duration::from_secs(30) };
        readers.leaving(&pod, departure);
        assert_eq!(readers.statuses()["u1"].leaving, Some(departure));
        readers.publish(&pod, 2, &PodStatus::default(), slot.acknowledge());
        assert_eq!(readers.statuses()["u1"].leaving, Some(departure), "a newer status takes nothing back");
        assert_eq!(slot.take().acknowledged, 2);
        assert!(changes.has_changed().expect("open"));
        changes.mark_unchanged();
        readers.gone(&pod, asked);
        assert!(readers.statuses().is_empty());
        assert_eq!(
            readers.gone_pods().iter().map(|gone| (gone.at, gone.published.version)).collect::<Vec<_>>(),
            [(asked, 2)]
        );
        assert!(changes.has_changed().expect("open"));
    }

    #[test]
    fn events_are_bounded_and_the_oldest_go_first() {
        let (readers, pod) = (LocalReaders::default(), pod());
        let at = Moment { boot_ms: 0, wall: Wall::default(), boot_id: BootId::default() };
        for number in 0..=EVENTS {
            readers.event(
                &pod,
                &EventRecord {
                    at,
                    container: None,
                    reason: "Killing".to_owned(),
                    severity: Severity::Normal,
                    message: number.to_string(),
                    count: 1,
                },
            );
        }
        let events = readers.events();
        assert_eq!(events.len(), EVENTS);
        assert_eq!(events[0].event.message, "1");
    }

    /// EVT-12: what one agent told, the next one knows, and counts on from there.
    #[test]
    fn what_an_earlier_agent_told_is_recalled() {
        let at = Moment { boot_ms: 0, wall: Wall::default(), boot_id: BootId::default() };
        let record = |message: &str, count| EventRecord {
            at,
            container: Some("a".to_owned()),
            reason: "BackOff".to_owned(),
            severity: Severity::Warning,
            message: message.to_owned(),
            count,
        };
        let (first, pod) = (LocalReaders::default(), pod());
        assert!(first.news().is_none(), "nothing happened");
        for count in 1..=3 {
            first.event(&pod, &record("again", count));
        }
        let kept = first.news().expect("something happened");
        assert!(first.news().is_none(), "nothing happened since");
        // As it goes through the ledger.
        let json: Vec<_> = kept.iter().map(|told| serde_json::to_value(&**told).expect("JSON")).collect();
        let kept: Vec<Told> = json.into_iter().map(|told| serde_json::from_value(told).expect("the same")).collect();
        assert_eq!(kept[0].field_path.as_deref(), Some("spec.containers{a}"));
        let second = LocalReaders::default();
        second.recall(kept.clone(), Vec::new());
        assert_eq!(second.events().iter().map(|told| (**told).clone()).collect::<Vec<_>>(), kept);
        assert!(second.news().is_none(), "it is kept already");
        assert_eq!(second.told_of("u1").len(), 3);
        let mut recorder = Recorder::recalling(second.told_of("u1"));
        let event = Event {
            container: Some("a".to_owned()),
            reason: "BackOff",
            severity: Severity::Warning,
            message: "again".to_owned(),
        };
        assert_eq!(recorder.record(&event, at).map(|record| record.count), Some(4));
        let alone = LocalReaders::of_this_run();
        alone.recall(kept, Vec::new());
        alone.event(&pod, &record("again", 1));
        assert!(alone.news().is_none() && alone.events().len() == 1, "a run on its own");
    }
}
