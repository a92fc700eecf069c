//! What all pods of one agent share.

use std::{path::PathBuf, sync::Arc, time::Duration};

use keelet_cri::Runtime;
use keelet_host::Host;
use keelet_launch::NodeFacts;
use keelet_lifecycle::{
    Moment, Rules,
    observed::{Absence, AgentRun, Before},
};
use keelet_pod::{Features, Pod};
use keelet_prober::Prober;
use tokio::sync::{Notify, OnceCell, Semaphore, watch};

use crate::{
    board::Board,
    doors::{Clock, Tasks},
    ledger_writer::LedgerWriter,
    metrics::Metrics,
    node::{DiskPressure, Node, admission::Claims},
    publish::{Answers, Publisher},
    registry::Registry,
    slot::Slot,
    upkeep::Upkeep,
};

/// What all pods of one agent share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) runtime: Runtime,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tasks: Arc<dyn Tasks>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) board: Arc<Board>,
    /// In a cluster, where others keep a copy of every status and may write it.
    pub(crate) publisher: Option<Arc<dyn Publisher>>,
    pub(crate) ledger: LedgerWriter,
    pub(crate) prober: Prober,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) registry: Registry,
    /// What admitted pods have taken of the node.
    pub(crate) claims: Claims,
    pub(crate) rules: Rules,
    pub(crate) features: Features,
    pub(crate) node: Node,
    /// When this agent started.
    pub(crate) started: Moment,
    /// How long no agent was there before; `None` if there was none, or the duration is unknown.
    pub(crate) absence: Option<Duration>,
    /// A long absence before an earlier run, for pods that no run has planned since.
    pub(crate) missed: Option<Absence>,
    /// Turns true when the agent is to stop.
    pub(crate) stopping: watch::Receiver<bool>,
    /// The runtime's own name, asked for once.
    pub(crate) runtime_name: OnceCell<String>,
    /// Pulls of images that may begin; none for no limit.
    pub(crate) pulls: Option<Semaphore>,
    /// A directory on the disk that the agent's own files are on.
    pub(crate) disk: PathBuf,
    /// Whether a disk of the node is nearly full.
    pub(crate) pressure: watch::Sender<DiskPressure>,
    /// What the node's upkeep goes by.
    pub(crate) upkeep: watch::Receiver<Upkeep>,
    /// Notified when config maps and secrets may have changed.
    pub(crate) refresh_objects: Notify,
}

// === impl Node ===

impl Shared {
    /// This run of the agent, as the rules want to know it for a pod.
    pub(crate) fn agent_run(&self, pod: &Arc<Pod>, slot: &Arc<Slot>) -> AgentRun {
        let before = match &self.publisher {
            None => Before::Standalone(self.absence),
            Some(publisher) => Before::Cluster(publisher.known(pod, Answers::new(slot))),
        };
        AgentRun { started: self.started, before, missed: self.missed }
    }

    /// What pods may know of the node.
    pub(crate) fn facts(&self) -> &NodeFacts {
        &self.node.facts.for_pods
    }

    /// Waits; `false` if the agent stops meanwhile.
    pub(crate) async fn pause(&self, time: Duration) -> bool {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => false,
            () = tokio::time::sleep(time) => true,
        }
    }

    /// The scheme of container IDs: the runtime's name.
    pub(crate) async fn scheme(&self) -> Result<&str, keelet_cri::Error> {
        let name = self.runtime_name.get_or_try_init(|| async { Ok(self.runtime.version().await?.runtime_name) });
        name.await.map(String::as_str)
    }
}

/// A container's ID as the runtime knows it, without the scheme.
pub(crate) fn bare(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, bare)| bare)
}
