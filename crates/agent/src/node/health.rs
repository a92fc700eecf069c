//! Looking at the node: what the runtime says of itself, how full the disks are, which probes are late.

use std::{sync::Arc, time::Duration};

use keelet_cri::v1::RuntimeCondition;
use keelet_pod::Pod;

use super::{DiskPressure, publish};
use crate::{board::OverdueProbe, shared::Shared};

/// How often the node is observed: as often as a kubelet may report a change.
const PERIOD: Duration = Duration::from_secs(10);

/// One observation of the node.
#[derive(Clone, Debug)]
pub struct Health {
    /// What the runtime says of itself.
    pub runtime: RuntimeHealth,
    /// Whether a disk is nearly full.
    pub disk: DiskPressure,
    /// Probes that the node cannot keep up with, with their pods.
    pub overdue: Vec<(Arc<Pod>, OverdueProbe)>,
}

/// What a container runtime says of itself.
#[derive(Clone, Debug)]
pub enum RuntimeHealth {
    /// It was not asked since the agent started.
    NotAskedYet,
    /// It does not answer, and why.
    Silent(String),
    /// It answers.
    Answers {
        /// `RuntimeReady`, `NetworkReady`, and what else it has.
        conditions: Vec<RuntimeCondition>,
        /// Its name and version, `containerd://2.4.0`.
        version: Option<String>,
    },
}

/// Looks at the node for as long as the agent runs, so that transitions of its conditions have their times although no client asks.
pub(crate) async fn watch(shared: Arc<Shared>) {
    loop {
        observe(&shared).await;
        if !shared.pause(PERIOD).await {
            return;
        }
    }
}

/// Looks at the node now, and keeps what follows.
pub(crate) async fn observe(shared: &Shared) {
    let (version, status) = tokio::join!(shared.runtime.version(), shared.runtime.status());
    let version = version.ok().map(|version| format!("{}://{}", version.runtime_name, version.runtime_version));
    let runtime = match status {
        Ok(status) => RuntimeHealth::Answers { conditions: status.conditions, version },
        Err(error) => RuntimeHealth::Silent(error.to_string()),
    };
    let health = Health { runtime, disk: shared.pressure.borrow().clone(), overdue: shared.board.overdue_probes() };
    publish(shared, shared.node.note(health, shared.clock.now())).await;
}
