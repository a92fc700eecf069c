//! The agent's side: everything it hands over is put aside, and the connection is notified. Nothing here waits.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use keelet_agent::{
    board::PodEvent,
    events::EventRecord,
    publish::{Answers, Publisher},
};
use keelet_lifecycle::{Moment, observed::Known, status::PodStatus};
use keelet_pod::{Features, Pod, Trust};
use tokio::sync::Notify;

use crate::{events::Events, outbox::Outbox, pods::Pods};

/// Makes statuses and events visible at an API server, as far as a [`Cluster`](crate::Cluster) delivers them.
#[derive(Clone, Debug)]
pub struct ClusterPublisher(pub(crate) Arc<Shared>);

/// What the agent's side and the side of the API server share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Notified when there may be something to send.
    pub(crate) bell: Notify,
    /// Rung when there is an event to write.
    pub(crate) events_bell: Notify,
}

/// One owner of everything that is known and everything that waits.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pods: Pods,
    pub(crate) outbox: Outbox,
    pub(crate) events: Events,
}

// === impl ClusterPublisher ===

impl ClusterPublisher {
    /// One that knows nothing of the API server yet.
    pub fn new(features: Features) -> Self {
        let state = State { pods: Pods::new(features), outbox: Outbox::default(), events: Events::default() };
        Self(Arc::new(Shared { state: Mutex::new(state), bell: Notify::new(), events_bell: Notify::new() }))
    }
}

/// Whether the API server has an object of the pod. Those of manifests have none.
fn is_known_there(pod: &Pod) -> bool {
    pod.trust == Trust::Cluster
}

impl Publisher for ClusterPublisher {
    fn known(&self, pod: &Arc<Pod>, answers: Answers) -> Known {
        if !is_known_there(pod) {
            return Known::NoCopy;
        }
        let mut state = self.0.lock();
        let known = state.pods.known(&pod.uid);
        if known == Known::NotAskedYet {
            state.outbox.ask(&pod.uid, answers);
        }
        known
    }

    fn publish(&self, pod: &Arc<Pod>, version: u64, status: &PodStatus, answers: Answers) {
        if !is_known_there(pod) {
            answers.acknowledge(version);
            return;
        }
        self.0.lock().outbox.publish(&pod.uid, version, status, answers);
        self.0.bell.notify_one();
    }

    fn event(&self, pod: &Arc<Pod>, event: &EventRecord) {
        if is_known_there(pod) {
            self.0.lock().events.push(PodEvent::new(pod, event.clone()));
            self.0.events_bell.notify_one();
        }
    }

    fn node_event(&self, node: &str, event: &EventRecord) {
        self.0.lock().events.push(PodEvent::of_node(node, event.clone()));
        self.0.events_bell.notify_one();
    }

    fn gone(&self, pod: &Arc<Pod>, _: Moment) {
        let mut state = self.0.lock();
        if state.pods.finish(&pod.uid) {
            state.outbox.delete(&pod.uid);
            drop(state);
            self.0.bell.notify_one();
        }
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}
