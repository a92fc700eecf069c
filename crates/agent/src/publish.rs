//! The publisher: a door to where others than this node see statuses and events, an API server. At most one, and none on a
//! node of its own.
//!
//! A publisher may be slow or away for hours. It never delays a pod: the task of a pod hands a status over and goes on, and
//! hears later, through the pod's slot, what others can see and what they knew before.

use std::{fmt, sync::Arc};

use keelet_lifecycle::{Moment, observed::Known, status::PodStatus};
use keelet_pod::Pod;

use crate::{events::EventRecord, slot::Slot};

/// Makes statuses and events visible to others.
pub trait Publisher: Send + Sync + fmt::Debug {
    /// What others know of a pod's status. A publisher that has not reached them answers [`Known::NotAskedYet`], and gives the
    /// answer through `answers` when it has. It need not deliver what it got before: the pod publishes again then, because a
    /// copy that was not known may change its status. Asked once, at the start of the pod's task.
    fn known(&self, pod: &Arc<Pod>, answers: Answers) -> Known;
    /// Takes a status. Its version is acknowledged once others can see it, now or later. A newer status replaces one that is
    /// still on its way.
    fn publish(&self, pod: &Arc<Pod>, version: u64, status: &PodStatus, answers: Answers);
    /// Takes an event.
    fn event(&self, pod: &Arc<Pod>, event: &EventRecord);
    /// Takes an event of the node itself.
    fn node_event(&self, node: &str, event: &EventRecord);
    /// Nothing of the pod is left on the node, neither in the runtime nor in its directories.
    fn gone(&self, pod: &Arc<Pod>, at: Moment);
}

/// The way from a publisher to the task of a pod. Nothing here waits.
#[derive(Clone)]
pub struct Answers(Arc<Slot>);

// === impl Answers ===

impl Answers {
    pub(crate) fn new(slot: &Arc<Slot>) -> Self {
        Self(Arc::clone(slot))
    }

    /// Others can see the status of this version, and every one before it.
    pub fn acknowledge(&self, version: u64) {
        self.0.acknowledge(version);
    }

    /// What others knew of the pod when the publisher first reached them. Only the first word counts.
    pub fn known(&self, known: Known) {
        self.0.known(known);
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answers")
    }
}
