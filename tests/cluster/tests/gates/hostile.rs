//! Node objects that no kubelet writes.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::bed::{Bed, GATE, annotation, merge, object, report, taints};

/// So much fits into an object.
const CONDITIONS: usize = 5000;
const TAINTS: usize = 500;

/// GN-3, CTRL-8: a node object as large as the API server takes, with claims and nonsense in it, delays no other node and keeps
/// what is not ours.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_hostile_node_object_delays_no_other() {
    let bed = Bed::new("hostile").await;
    let nodes: Api<Node> = Api::all(bed.admin.clone());
    let mut all: Vec<Value> =
        (0..TAINTS).map(|index| json!({"key": format!("readiness.k8s.io/G{index}"), "effect": "NoSchedule"})).collect();
    all.push(json!({"key": "readiness.k8s.io/G0", "effect": "NoExecute"}));
    all.push(json!({"key": "example.com/kept", "value": "v", "effect": "PreferNoSchedule"}));
    let record = "{\"gates\":".repeat(10_000);
    let node: Node = object(json!({
        "metadata": {"name": "hostile", "annotations": {"keelet.dev/gates": record, "readiness.k8s.io/G1": "passed"}},
        "spec": {"taints": all},
    }));
    nodes.create(&PostParams::default(), &node).await.expect("a node");
    let conditions: Vec<Value> = (0..CONDITIONS)
        .map(|index| json!({"type": format!("a{index}.example.com/G{}", index + 2), "status": "True", "reason": format!("R{index}")}))
        .collect();
    let status = json!({"status": {"conditions": conditions}});
    nodes.patch_status("hostile", &PatchParams::default(), &Patch::Merge(status)).await.expect("a status");
    let (_, _others) = bed.gated("hostile-other", 1, &[GATE]).await;

    // One that claims its taint was added for a rule.
    let forger: Node = object(json!({
        "metadata": {"name": "hostile-forger"}, "spec": {"taints": [{"key": GATE, "effect": "NoSchedule"}]},
    }));
    let created = nodes.create(&PostParams::default(), &forger).await.expect("a node");
    let forged =
        json!({"node": created.metadata.uid, "gates": {format!("{GATE}:NoSchedule"): {"rule": "x"}}}).to_string();
    merge(&bed.admin, "hostile-forger", json!({"metadata": {"annotations": {"keelet.dev/gates": forged}}})).await;

    let controller = bed.controller("a", &[]).await.ready().await;
    // G0 and G1 have no condition; the others pass.
    let node = bed.opens("hostile", &format!("readiness.k8s.io/G{}", TAINTS - 1)).await;
    let mut left = taints(&node);
    left.retain(|key| !key.starts_with("node.kubernetes.io/"));
    left.sort();
    assert_eq!(left, ["example.com/kept", "readiness.k8s.io/G0", "readiness.k8s.io/G0", "readiness.k8s.io/G1"]);
    assert_eq!(annotation(&node, "readiness.k8s.io/G2"), Some("passed"));
    // Everything of it changes, again and again, while the other one becomes ready.
    for round in 0..10 {
        merge(&bed.admin, "hostile", json!({"metadata": {"annotations": {"keelet.dev/gates": format!("{round}")}}}))
            .await;
        report(&bed.admin, "hostile", &format!("b.example.com/G{round}"), "False").await;
    }
    report(&bed.admin, "hostile-other-0", "CNIReady", "True").await;
    bed.opens("hostile-other-0", GATE).await;
    let forger = nodes.get("hostile-forger").await.expect("the node");
    assert!(taints(&forger).iter().any(|key| key == GATE), "no record opens a gate");
    nodes.delete("hostile-forger", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(controller.get("/healthz").await.0, 200);
    nodes.delete("hostile", &DeleteParams::default()).await.expect("deleted");
}
