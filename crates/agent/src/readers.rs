//! Readers on this node: the newest status of every pod and the newest events, for whoever asks.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use keelet_lifecycle::{Severity, status::PodStatus};
use keelet_pod::Pod;
use tokio::sync::watch;

use crate::{
    doors::{Departure, EventRecord, Readers},
    slot::Acknowledge,
};

/// Events kept for the whole node. A page of a terminal for each of the pods of a busy minute.
const EVENTS: usize = 512;

/// Keeps the newest status of every pod in memory and tells subscribers when something is new.
#[derive(Debug)]
pub struct LocalReaders {
    kept: Mutex<Kept>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    pods: BTreeMap<String, Arc<Published>>,
    /// Those on their way out, by UID.
    leaving: BTreeMap<String, Departure>,
    events: VecDeque<Arc<Told>>,
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

/// An event and the pod it is about.
#[derive(Clone, Debug)]
pub struct Told {
    /// The pod.
    pub pod: Arc<Pod>,
    /// What happened.
    pub event: EventRecord,
}

// === impl LocalReaders ===

impl LocalReaders {
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
        Self { kept: Mutex::default(), changes: watch::Sender::new(0) }
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
        if kept.events.len() == EVENTS {
            kept.events.pop_front();
        }
        kept.events.push_back(Arc::new(Told { pod: Arc::clone(pod), event: event.clone() }));
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

    fn gone(&self, pod: &Arc<Pod>) {
        let mut kept = self.kept();
        kept.pods.remove(&pod.uid);
        kept.leaving.remove(&pod.uid);
        drop(kept);
        self.changed();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use keelet_lifecycle::{BootId, Moment, Severity, Wall, status::PodStatus};
    use keelet_pod::{Pod, parse_one};

    use super::{EVENTS, LocalReaders};
    use crate::{
        doors::{Departure, EventRecord, Readers},
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
        readers.gone(&pod);
        assert!(readers.statuses().is_empty());
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
}
