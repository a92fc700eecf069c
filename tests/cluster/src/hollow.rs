//! A fleet of nodes without an agent.

use std::{sync::Arc, time::Duration};

use keelet_hollow::{Pace, Shape, fleet};
use kube::Client;
use tokio::task::JoinHandle;

/// Nodes that are kept alive until this is dropped; the objects stay.
#[derive(Debug)]
pub struct Hollow {
    keeper: JoinHandle<()>,
}

/// As a kubelet renews its lease, and with a heartbeat that tests of minutes see.
const PACE: Pace = Pace { lease: Duration::from_secs(10), heartbeat: Duration::from_secs(30), in_flight: 16 };

// === impl Hollow ===

impl Hollow {
    /// Creates the nodes, and waits until the controller manager has accepted them.
    pub async fn create(client: &Client, shape: &Shape) -> Self {
        let tally = Arc::new(fleet::Tally::default());
        fleet::create(client, shape, PACE.in_flight, &tally).await.expect("nodes are created");
        let keeper = {
            let (client, shape) = (client.clone(), shape.clone());
            tokio::spawn(async move { fleet::keep_alive(&client, &shape, &PACE, &tally).await })
        };
        let patience = keelet_harness::patience();
        let accepted = tokio::time::timeout(patience, fleet::accepted(client, shape)).await;
        accepted.expect("the controller manager removes the not-ready taint").expect("nodes are watched");
        Self { keeper }
    }
}

impl Drop for Hollow {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}
