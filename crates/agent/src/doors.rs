//! Where the agent touches the world. Everything behind these traits can be simulated; nothing else is touched.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use keelet_host::Host;
use keelet_lifecycle::{Moment, Severity, status::PodStatus};
use keelet_pod::Pod;
use keelet_prober::Dial;
use serde::{Deserialize, Serialize};

use crate::{
    readers::{GonePod, Told},
    slot::Acknowledge,
};

/// All doors of one agent.
#[derive(Clone, Debug)]
pub struct Doors<D> {
    /// The container runtime.
    pub runtime: keelet_cri::Runtime,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Connections to probe targets.
    pub dial: Arc<dyn Dial>,
    /// Where the ledger is written.
    pub disk: D,
    /// Directories and files of pods on the node.
    pub host: Arc<dyn Host>,
    /// Readers of statuses and events.
    pub readers: Arc<dyn Readers>,
    /// Runs the agent's tasks.
    pub tasks: Arc<dyn Tasks>,
}

/// The time. Waiting is tokio's business, which a simulation pauses; what time it is, is asked here.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment.
    fn now(&self) -> Moment;
}

/// Runs the agent's tasks, so that a simulation can stop them all between two steps.
pub trait Tasks: Send + Sync + fmt::Debug {
    /// Runs a task beside the others until it ends.
    fn spawn(&self, task: BoxFuture<'static, ()>);
    /// Runs something that may block on the disk, off the tasks' own threads. A simulation runs it in place.
    fn block(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()>;
}

/// Readers of statuses and events: the local socket, subscribers, an API server.
pub trait Readers: Send + Sync + fmt::Debug {
    /// The status that readers had of a pod when this agent started; `None` if they know none, or keep none.
    fn known(&self, pod: &Pod) -> Option<PodStatus>;
    /// Takes a status. `acknowledge` is called with its version once readers can see it, now or later. A newer status
    /// replaces one that is still on its way.
    fn publish(&self, pod: &Arc<Pod>, version: u64, status: &PodStatus, acknowledge: Acknowledge);
    /// Takes an event.
    fn event(&self, pod: &Arc<Pod>, event: &EventRecord);
    /// Somebody asked for the pod to go away. Readers that hear it from elsewhere need not listen.
    fn leaving(&self, _pod: &Arc<Pod>, _departure: Departure) {}
    /// The pod is gone for good, and nothing of it is left.
    fn gone(&self, pod: &Arc<Pod>, at: Moment);
    /// What readers of an earlier agent were told, before anything else. Readers that keep a memory of their own need not
    /// listen.
    fn recall(&self, _events: Vec<Told>, _gone: Vec<GonePod>) {}
    /// The newest events, if there are some that were not returned here before: to be kept for the next agent.
    fn news(&self) -> Option<Vec<Arc<Told>>> {
        None
    }
    /// The events of a pod that an earlier agent told, oldest first.
    fn told_of(&self, _uid: &str) -> Vec<EventRecord> {
        Vec::new()
    }
}

/// A pod's way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When it was asked for, as far as this agent knows.
    pub asked: Moment,
    /// How long its containers may take.
    pub grace: Duration,
}

/// What happened, as readers get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRecord {
    /// When.
    pub at: Moment,
    /// The container it is about; the pod if there is none.
    pub container: Option<String>,
    /// `Unhealthy`, `Killing`, `BackOff`, ...
    pub reason: String,
    /// Whether somebody should worry.
    pub severity: Severity,
    /// For people.
    pub message: String,
    /// How often it happened since the first time, this time included.
    pub count: u32,
}
