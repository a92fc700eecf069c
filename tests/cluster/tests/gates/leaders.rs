//! Several replicas: killed, frozen, stopped.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use keelet_control_plane::audit;
use keelet_gates::engine::IN_FLIGHT;
use keelet_harness::eventually;
use keelet_hollow::Shape;
use kube::{Api, api::ListParams};

use crate::bed::{Bed, Controller, GATE, annotation, report, taints};

/// A lease that others wait for no longer than a test does.
const SHORT: [&str; 3] =
    ["--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"];

/// A lease that others never wait for: it changes hands only if it is given away.
const LONG: [&str; 2] = ["--leader-elect-lease-duration=1h", "--leader-elect-renew-deadline=10s"];

/// Replicas, with the leader first.
async fn replicas(bed: &Bed, names: &[&str], arguments: &[&str]) -> Vec<Controller> {
    let mut all = Vec::new();
    for name in names {
        all.push(bed.controller(name, arguments).await.ready().await);
    }
    let leader = eventually("a leader", async || {
        for (index, controller) in all.iter().enumerate() {
            if controller.metric("keelet_gates_leader").await == Some(1.0) {
                return Ok(index);
            }
        }
        Err("none leads")
    })
    .await;
    all.swap(0, leader);
    all
}

/// Reports all nodes of a fleet ready, a few at once.
async fn report_all(bed: &Bed, fleet: &Shape) {
    for index in 0..fleet.nodes {
        report(&bed.admin, &fleet.name(index), "CNIReady", "True").await;
    }
}

/// Every gate has passed, and no node was released by two patches.
async fn all_pass_once(bed: &Bed, fleet: &Shape) {
    for index in 0..fleet.nodes {
        bed.opens(&fleet.name(index), GATE).await;
    }
    let nodes: Api<Node> = Api::all(bed.admin.clone());
    let listed = nodes.list(&ListParams::default().labels(&fleet.selector())).await.expect("nodes");
    assert_eq!(listed.items.len(), fleet.nodes);
    for node in &listed.items {
        assert_eq!((taints(node), annotation(node, GATE)), (Vec::new(), Some("passed")), "{:?}", node.metadata.name);
    }
    eventually("a patch of every node in the audit log", async || {
        let mut released: BTreeMap<String, usize> = BTreeMap::new();
        for entry in audit::entries(&bed.cluster.audit_log(), &bed.account.user) {
            let is_release = entry.object_ref.resource == "nodes" && entry.request_object["spec"]["taints"].is_array();
            if entry.verb == "patch" && entry.response_status.code == 200 && is_release {
                *released.entry(entry.object_ref.name).or_default() += 1;
            }
        }
        let twice: Vec<_> = released.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "released twice: {twice:?}");
        // A patch of a leader that was killed may have been applied without an answer, and then has no entry.
        let answered = released.len();
        if answered + IN_FLIGHT >= fleet.nodes { Ok(()) } else { Err(format!("{answered} of {}", fleet.nodes)) }
    })
    .await;
}

/// CTRL-14, GN-5, VEC-79: a leader that is killed among its requests is replaced, and every node is released by exactly one patch.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_killed_leader_is_replaced_under_load() {
    let bed = Bed::new("killed").await;
    let (fleet, _nodes) = bed.gated("killed", 100, &[GATE]).await;
    let mut replicas = replicas(&bed, &["a", "b", "c"], &SHORT).await;
    let leader = replicas.remove(0);
    let kill = async {
        leader.shows("readiness_gate_controller_taints_removed_total", |removed| removed > 10.0).await;
        leader.process.kill().await;
    };
    tokio::join!(report_all(&bed, &fleet), kill);
    all_pass_once(&bed, &fleet).await;
}

/// CTRL-14, GN-5: a leader that is frozen among its requests and wakes up after another one took over changes nothing any more.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_frozen_leader_that_wakes_up_is_a_follower() {
    let bed = Bed::new("frozen").await;
    let (fleet, _nodes) = bed.gated("frozen", 100, &[GATE]).await;
    let mut replicas = replicas(&bed, &["a", "b"], &SHORT).await;
    let (new, old) = (replicas.remove(1), replicas.remove(0));
    let before = bed.holder("it is held", |holder| !holder.is_empty()).await;
    let freeze = async {
        old.shows("readiness_gate_controller_taints_removed_total", |removed| removed > 10.0).await;
        old.process.freeze();
    };
    tokio::join!(report_all(&bed, &fleet), freeze);
    bed.holder("another one holds it", |holder| !holder.is_empty() && holder != before).await;
    new.shows("keelet_gates_leader", |leads| leads == 1.0).await;
    old.process.thaw();
    old.shows("keelet_gates_leader", |leads| leads == 0.0).await;
    old.shows("readiness_gate_controller_nodes_unready_total", |nodes| nodes == 0.0).await;
    all_pass_once(&bed, &fleet).await;
    // It still follows, and takes over when the other one is gone.
    assert!(new.process.terminate().await.success());
    bed.holder("the first one holds it again", |holder| holder == before).await;
}

/// CTRL-14: a leader that is asked to stop gives the lease away. The lease lasts an hour, so nothing else makes it change hands.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_leader_that_stops_gives_the_lease_away() {
    let bed = Bed::new("stopped").await;
    let (fleet, _nodes) = bed.gated("stopped", 100, &[GATE]).await;
    let mut replicas = replicas(&bed, &["a", "b"], &LONG).await;
    let before = bed.holder("it is held", |holder| !holder.is_empty()).await;
    let old = replicas.remove(0);
    let stop = async {
        old.shows("readiness_gate_controller_taints_removed_total", |removed| removed > 10.0).await;
        let Controller { process, .. } = old;
        assert!(process.terminate().await.success());
    };
    tokio::join!(report_all(&bed, &fleet), stop);
    bed.holder("the other one holds it", |holder| !holder.is_empty() && holder != before).await;
    all_pass_once(&bed, &fleet).await;
    // The last one leaves it free.
    let Controller { process, .. } = replicas.remove(0);
    assert!(process.terminate().await.success());
    bed.holder("it is free", str::is_empty).await;
}
