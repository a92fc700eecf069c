//! What the agent observes of a pod: the runtime's containers, operations, requests, and the API server's copy.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    operation::OpReport,
    status::PodStatus,
    time::{Moment, Wall},
};

/// One dated observation of a pod. The caller guarantees that it began after the last operation that it reports as
/// finished, so it includes all effects of that operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The agent process that observes.
    pub agent: AgentRun,
    /// The pod's sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// The pod's containers in the runtime, dead ones included.
    pub containers: Vec<Instance>,
    /// Running operations, and finished ones whose result no plan has absorbed yet.
    pub operations: Vec<OpReport>,
    /// Set once the pod is deleted.
    pub deletion: Option<Deletion>,
    /// A request to restart all containers that no plan has absorbed yet.
    pub restart_request: Option<RestartRequest>,
    /// Conditions that others own, by type: whether their status is True.
    pub foreign_conditions: BTreeMap<String, bool>,
    /// Which statuses others can see.
    pub acknowledged: Acknowledged,
    /// For containers that neither the runtime nor the evidence knows: the next restart count by their log files.
    pub log_counts: BTreeMap<String, u32>,
    /// Readiness gates of the node that are closed and that the pod does not tolerate.
    pub pending_gates: Vec<PendingGate>,
    /// Why the pod does not fit on the node, as long as it is not decided whether it may run here.
    pub objection: Option<Objection>,
}

/// Why a pod does not fit on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// In a word: `OutOfcpu`, `NodePorts`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// A readiness gate of the node that holds a pod back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingGate {
    /// Its taint: `readiness.k8s.io/CNIReady:NoSchedule`.
    pub taint: String,
    /// What it waits for.
    pub waits_for: String,
}

/// The agent process that observes, and what it found when it started.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentRun {
    /// When the process started; it distinguishes two runs of the agent.
    pub started: Moment,
    /// What it knows of the time before.
    pub before: Before,
    /// The newest long absence before an earlier run. A run may die before it has planned every pod, and a pod that no run has
    /// planned since has yet to absorb that absence.
    pub missed: Option<Absence>,
}

/// A time during which no agent ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Absence {
    /// When the run after it started.
    pub until: Moment,
    /// How long it was.
    pub away: Duration,
}

/// Which clients could have changed the pod's status while the agent was down.
#[derive(Clone, Debug, PartialEq)]
pub enum Before {
    /// In a cluster: the API server's copy of the status, as it was when this run of the agent first saw it.
    Cluster(Known),
    /// Standalone: how long the agent was down, if it ever ran.
    Standalone(Option<Duration>),
}

/// What a publisher knows of the status that others see of a pod. "Not asked yet" is never "has none": an API server that
/// cannot be reached may have a copy.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// The publisher has not reached its API server since the agent started.
    NotAskedYet,
    /// The API server answered that it has no status of the pod.
    NoCopy,
    /// The API server's copy when it was first reached.
    Copy(Box<PodStatus>),
}

/// Which statuses have reached the readers that must see them before the agent acts on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    /// Nothing waits for an acknowledgement: no publisher is there, and everything local sees a status at once.
    NotNeeded,
    /// The newest version that the publisher acknowledged, and all before it: [`crate::Plan::version`].
    UpTo(u64),
}

/// A pod sandbox in the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its ID.
    pub id: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Its attempt number.
    pub attempt: u32,
    /// When it was created.
    pub created_at: Wall,
    /// Its addresses, the primary one first; the node's own with host network.
    pub ips: Vec<String>,
    /// Whether it uses the node's network.
    pub host_network: bool,
    /// What the runtime found missing in it, such as its network or its files, if that is why it is not ready.
    pub lost: Option<String>,
}

/// A container in the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its ID, with the runtime's scheme (`containerd://...`).
    pub id: String,
    /// The name in the spec.
    pub name: String,
    /// The sandbox it belongs to.
    pub sandbox: String,
    /// Its restart count, as labelled when it was created.
    pub attempt: u32,
    /// The container hash it was labelled with; `None` if it carries none.
    pub hash: Option<u32>,
    /// The image as the runtime reports it.
    pub image: String,
    /// The image's ID.
    pub image_id: String,
    /// When it was created.
    pub created_at: Wall,
    /// Its state.
    pub state: InstanceState,
}

/// The state of a container in the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// Created, never started.
    Created,
    /// Running since then.
    Running {
        /// Its start.
        started_at: Wall,
    },
    /// It has exited.
    Exited {
        /// Its start.
        started_at: Wall,
        /// Its end.
        finished_at: Wall,
        /// The exit code; 128 plus the signal if a signal killed it.
        exit_code: i32,
        /// `Completed`, `Error`, `OOMKilled`, ...
        reason: String,
        /// The termination message.
        message: String,
    },
    /// The runtime does not know its state.
    Unknown,
}

/// A request to delete the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The grace period as it is now; it may shrink, never grow.
    pub grace: Duration,
}

/// A request to restart all containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartRequest {
    /// Distinguishes two requests.
    pub id: String,
    /// The requester, for people.
    pub by: String,
}

// === impl Observed ===

impl Observed {
    /// An observation without any content.
    pub fn nothing(agent: AgentRun) -> Self {
        Self {
            agent,
            sandboxes: Vec::new(),
            containers: Vec::new(),
            operations: Vec::new(),
            deletion: None,
            restart_request: None,
            foreign_conditions: BTreeMap::new(),
            acknowledged: Acknowledged::UpTo(0),
            log_counts: BTreeMap::new(),
            pending_gates: Vec::new(),
            objection: None,
        }
    }

    /// The newest container of that name.
    pub fn newest(&self, name: &str) -> Option<&Instance> {
        self.containers.iter().filter(|c| c.name == name).max_by_key(|c| c.age_key())
    }

    /// Whether this container exists and has exited.
    pub(crate) fn has_ended(&self, id: &str) -> bool {
        self.containers.iter().any(|c| c.id == id && matches!(c.state, InstanceState::Exited { .. }))
    }
}

// === impl Acknowledged ===

impl Acknowledged {
    /// Whether a status of this version may be acted upon; one that has not been planned yet only if nothing has to see it.
    pub(crate) fn covers(self, version: Option<u64>) -> bool {
        match self {
            Self::NotNeeded => true,
            Self::UpTo(seen) => version.is_some_and(|version| seen >= version),
        }
    }
}

// === impl Instance ===

impl Instance {
    /// Orders the instances of one name from oldest to newest. The attempt decides, because two creation times may
    /// fall into the same tick or straddle a step of the wall clock.
    pub(crate) fn age_key(&self) -> (u32, Wall, &str) {
        (self.attempt, self.created_at, &self.id)
    }

    /// Whether it may have a process.
    pub fn may_run(&self) -> bool {
        matches!(self.state, InstanceState::Running { .. } | InstanceState::Unknown)
    }
}
