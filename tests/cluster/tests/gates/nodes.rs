//! Nodes: created again, reported on by others, held again.

use k8s_openapi::api::core::v1::Node;
use keelet_control_plane::gone;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::bed::{Bed, GATE, NAMESPACE, annotation, merge, object, report, taints};

/// GN-6, VEC-78, CTRL-12, GN-3: a node with the name of one that has passed is another node, even if it claims to have passed. Labels and
/// cordons do not affect a gate.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_node_that_is_created_again_is_gated_again() {
    let bed = Bed::new("again").await;
    let _controller = bed.controller("a", &[]).await.ready().await;
    let nodes: Api<Node> = Api::all(bed.admin.clone());
    let node: Node = object(json!({
        "metadata": {"name": "again", "annotations": {GATE: "passed"}},
        "spec": {"taints": [{"key": GATE, "effect": "NoSchedule"}]},
    }));
    nodes.create(&PostParams::default(), &node).await.expect("a node");
    report(&bed.admin, "again", "CNIReady", "True").await;
    let first = bed.opens("again", GATE).await;
    nodes.delete("again", &DeleteParams::default()).await.expect("deleted");
    gone::<Node>(&bed.admin, None, "again").await;

    nodes.create(&PostParams::default(), &node).await.expect("a node");
    report(&bed.admin, "again", "CNIReady", "False").await;
    merge(&bed.admin, "again", json!({"metadata": {"labels": {"rack": "1"}}, "spec": {"unschedulable": true}})).await;
    // What comes later has been done: so has what comes first.
    let (_, _other) = bed.gated("again-other", 1, &[GATE]).await;
    report(&bed.admin, "again-other-0", "CNIReady", "True").await;
    bed.opens("again-other-0", GATE).await;
    let second = bed.node("again", "it is there", |_| true).await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    assert!(taints(&second).contains(&GATE.to_owned()), "{:?}", taints(&second));
    report(&bed.admin, "again", "CNIReady", "True").await;
    let second = bed.opens("again", GATE).await;
    assert_eq!(second.spec.and_then(|spec| spec.unschedulable), Some(true), "the cordon is a person's");
    nodes.delete("again", &DeleteParams::default()).await.expect("deleted");
}

/// GATE-22, CTRL-11: another program reports under a name of its own, with a service account that may write node statuses and nothing else.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn the_condition_of_a_foreign_reporter_opens_the_gate() {
    let bed = Bed::new("foreign").await;
    let (_, _nodes) = bed.gated("foreign", 1, &[GATE, "readiness.k8s.io/Storage"]).await;
    let _controller = bed.controller("a", &[]).await.ready().await;
    let reporter = bed.cluster.service_account(NAMESPACE, "reporter").await;
    let rbac = "rbac.authorization.k8s.io";
    let rules = json!({"rules": [{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}]});
    bed.apply(&format!("{rbac}/v1"), "ClusterRole", None, "reporter", rules).await;
    let binding = json!({
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "reporter"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": reporter.user}],
    });
    bed.apply(&format!("{rbac}/v1"), "ClusterRoleBinding", None, "reporter", binding).await;
    let client = reporter.client().await;
    report(&client, "foreign-0", "vendor.example.com/CNIReady", "True").await;
    let node = bed.opens("foreign-0", GATE).await;
    assert_eq!(taints(&node), ["readiness.k8s.io/Storage"], "the other gate waits for its own condition");
    report(&client, "foreign-0", "a.example.com/Storage", "True").await;
    let node = bed.opens("foreign-0", "readiness.k8s.io/Storage").await;
    assert_eq!(annotation(&node, "readiness.k8s.io/Storage"), Some("passed"));
}

/// CTRL-17, SCN-G3: with `--enforcement=continuous` a taint returns, but never on more nodes than `--max-held`.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn continuous_enforcement_holds_no_more_nodes_than_it_may() {
    let bed = Bed::new("continuous").await;
    let (fleet, _nodes) = bed.gated("held", 3, &[GATE]).await;
    let controller = bed.controller("a", &["--enforcement=continuous", "--max-held=1"]).await.ready().await;
    for node in (0..3).map(|index| fleet.name(index)) {
        report(&bed.admin, &node, "CNIReady", "True").await;
        bed.opens(&node, GATE).await;
    }
    report(&bed.admin, "held-0", "CNIReady", "False").await;
    let is_held = |node: &Node| taints(node).contains(&GATE.to_owned());
    bed.node("held-0", "its taint returns", is_held).await;
    controller.shows("keelet_gates_held_nodes", |held| held == 1.0).await;
    report(&bed.admin, "held-1", "CNIReady", "False").await;
    let message = bed.event("held-1", "ReadinessGateMaxHeld").await;
    assert!(message.contains("1 of at most 1 nodes are held already"), "{message}");
    controller.shows("keelet_gates_waiting{reason=\"max-held\"}", |waiting| waiting == 1.0).await;
    assert!(!is_held(&bed.node("held-1", "it is there", |_| true).await));
    // The first one is free: there is room for the second.
    report(&bed.admin, "held-0", "CNIReady", "True").await;
    bed.opens("held-0", GATE).await;
    bed.node("held-1", "its taint returns", is_held).await;
    controller.shows("keelet_gates_held_nodes", |held| held == 1.0).await;
    report(&bed.admin, "held-1", "CNIReady", "True").await;
    bed.opens("held-1", GATE).await;
}
