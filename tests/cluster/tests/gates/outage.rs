//! An API server that goes away, and one that is not there yet.

use crate::bed::{Bed, GATE, annotation, report};

/// CTRL-14: it stays alive, changes nothing, and goes on by itself. A replica that is started meanwhile waits.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn the_api_server_goes_away_and_comes_back() {
    let bed = Bed::new("outage").await;
    let (_, _nodes) = bed.gated("outage", 3, &[GATE]).await;
    let controller = bed.controller("a", &[]).await.ready().await;
    report(&bed.admin, "outage-0", "CNIReady", "True").await;
    bed.opens("outage-0", GATE).await;
    report(&bed.admin, "outage-1", "CNIReady", "True").await;
    bed.cluster.kill("kube-apiserver").await;
    let late = bed.controller("late", &[]).await;
    late.says(&["cannot list objects; retrying", "Connection refused"]).await;
    for replica in [&controller, &late] {
        assert_eq!(replica.get("/healthz").await.0, 200);
    }
    assert_eq!(late.get("/readyz").await.0, 503);
    bed.cluster.start("kube-apiserver").await;
    bed.cluster.ready().await;
    let _late = late.ready().await;
    report(&bed.admin, "outage-2", "CNIReady", "True").await;
    for node in ["outage-1", "outage-2"] {
        assert_eq!(annotation(&bed.opens(node, GATE).await, GATE), Some("passed"));
    }
}
