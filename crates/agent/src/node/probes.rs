//! Probes of components of the node: one task for each, for as long as the agent runs.
//!
//! The task makes an attempt when one is due. What it means is decided in [`keelet_lifecycle::node`], what follows for the node in
//! [`super::Node`]. An attempt has permits of its own ([`keelet_prober::Prober::attempt_on_node`]), so that components and pods do not compete
//! from each other.

use std::sync::Arc;

use super::publish;
use crate::shared::Shared;

/// Starts the tasks.
pub(crate) fn start(shared: &Arc<Shared>) {
    for index in 0..shared.node.probes().len() {
        shared.tasks.spawn(Box::pin(run(Arc::clone(shared), index)));
    }
}

async fn run(shared: Arc<Shared>, index: usize) {
    let Some(probe) = shared.node.probes().get(index).cloned() else { return };
    let mut stopping = shared.stopping.clone();
    loop {
        let now = shared.clock.now();
        if let Some(due) = shared.node.due(&probe).filter(|due| !now.has_reached(due)) {
            if !shared.pause(due.since(&now)).await {
                return;
            }
            continue;
        }
        let attempted = tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => return,
            attempted = shared.prober.attempt_on_node(&probe.name, &probe.probe) => attempted,
        };
        let settled = shared.node.take(&probe, &attempted.report, shared.clock.now());
        publish(&shared, settled).await;
    }
}
