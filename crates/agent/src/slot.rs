//! What other tasks report to a pod's task: latest values, never a queue. No writer waits for the pod.
//!
//! Watcher, source, publisher and the pod's own operations write into the slot and notify it; the task empties it
//! when it comes round. What piles up is bounded by what the task itself started: one result for each operation in
//! flight, and the few events of these.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use keelet_lifecycle::{
    Event, Moment,
    observed::{Deletion, Known, RestartRequest},
    operation::{OpId, OpResult},
};
use keelet_pod::Pod;
use tokio::sync::Notify;

/// A pod as its source wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Set once the deletion of the pod was requested.
    pub deletion: Option<Deletion>,
    /// Conditions that others own, by type: whether their status is True.
    pub foreign_conditions: BTreeMap<String, bool>,
}

/// Where others leave word for a pod's task.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    inbox: Mutex<Inbox>,
    changed: Notify,
}

/// What is new since the task last took it.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// The pod as its source wants it now.
    pub(crate) wanted: Option<Wanted>,
    /// A request to restart all containers.
    pub(crate) restart_request: Option<RestartRequest>,
    /// Something may have changed in the runtime.
    pub(crate) hinted: bool,
    /// The newest status version that the publisher acknowledged.
    pub(crate) acknowledged: u64,
    /// What the publisher found when it first reached its API server.
    pub(crate) known: Option<Known>,
    /// Operations that ended.
    pub(crate) finished: Vec<Finished>,
    /// Events that operations emit for people.
    pub(crate) events: Vec<Event>,
    /// How many operations have ended in all. An observation that begins at this count shows what they did.
    pub(crate) ended: u64,
}

/// An operation that ended.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) id: OpId,
    pub(crate) at: Moment,
    pub(crate) result: OpResult,
    /// [`Inbox::ended`] with this one counted.
    pub(crate) number: u64,
}

// === impl Wanted ===

impl Wanted {
    /// A pod whose deletion was not requested.
    pub fn new(pod: Arc<Pod>) -> Self {
        Self { pod, deletion: None, foreign_conditions: BTreeMap::new() }
    }
}

// === impl Slot ===

impl Slot {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // Nothing that holds the lock can panic half-way through a change.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, change: impl FnOnce(&mut Inbox)) {
        change(&mut self.inbox());
        self.changed.notify_one();
    }

    pub(crate) fn want(&self, wanted: Wanted) {
        self.write(|inbox| inbox.wanted = Some(wanted));
    }

    pub(crate) fn request_restart(&self, request: RestartRequest) {
        self.write(|inbox| inbox.restart_request = Some(request));
    }

    /// Something may have changed in the runtime.
    pub(crate) fn hint(&self) {
        self.write(|inbox| inbox.hinted = true);
    }

    pub(crate) fn emit(&self, event: Event) {
        self.write(|inbox| inbox.events.push(event));
    }

    pub(crate) fn finish(&self, id: OpId, at: Moment, result: OpResult) {
        self.write(|inbox| {
            inbox.ended += 1;
            let number = inbox.ended;
            inbox.finished.push(Finished { id, at, result, number });
        });
    }

    /// Takes what is new. Counts stay.
    pub(crate) fn take(&self) -> Inbox {
        let mut inbox = self.inbox();
        let rest = Inbox { acknowledged: inbox.acknowledged, ended: inbox.ended, ..Inbox::default() };
        std::mem::replace(&mut *inbox, rest)
    }

    /// How many operations have ended so far.
    pub(crate) fn ended(&self) -> u64 {
        self.inbox().ended
    }

    /// Waits until another task has written.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Others can see the status of this version, and every one before it.
    pub(crate) fn acknowledge(&self, version: u64) {
        self.write(|inbox| inbox.acknowledged = inbox.acknowledged.max(version));
    }

    /// What others knew of the pod when the publisher first reached them.
    pub(crate) fn known(&self, known: Known) {
        self.write(|inbox| {
            inbox.known.get_or_insert(known);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keelet_lifecycle::{BootId, Wall};

    use super::*;

    /// SYNC-2: whatever arrives between two iterations of the task is taken together: the newest wanted pod, one observation, every end.
    #[tokio::test]
    async fn what_arrives_meanwhile_is_taken_together() {
        let slot = Slot::default();
        let at = Moment { boot_ms: 0, wall: Wall::from_millis(0), boot_id: BootId::default() };
        let pod = keelet_pod::parse_one(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: main, image: app}]}\n",
        );
        let wanted = Wanted::new(Arc::new(pod.unwrap()));
        let deleted = Wanted { deletion: Some(Deletion { grace: Duration::ZERO }), ..wanted.clone() };
        slot.want(wanted);
        slot.want(deleted.clone());
        for id in 1..=3 {
            slot.hint();
            slot.finish(OpId(id), at, OpResult::Done);
        }
        slot.changed().await;
        let inbox = slot.take();
        assert_eq!((inbox.wanted, inbox.hinted, inbox.ended), (Some(deleted), true, 3));
        assert_eq!(inbox.finished.iter().map(|finished| finished.number).collect::<Vec<_>>(), [1, 2, 3]);
        let empty = slot.take();
        assert!(empty.wanted.is_none() && !empty.hinted && empty.finished.is_empty());
        assert_eq!(empty.ended, 3, "counts stay");
        let again = tokio::time::timeout(Duration::ZERO, slot.changed()).await;
        assert!(again.is_err(), "one notification for all of it");
    }
}
