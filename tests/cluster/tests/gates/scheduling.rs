//! Gates and the scheduler.

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use keelet_control_plane::until;
use keelet_hollow::{Shape, objects::LABEL};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use crate::bed::{Bed, GATE, annotation, object, report, taints};

/// A pod for the nodes of one fleet. It never starts: the nodes are hollow.
fn pod(name: &str, fleet: &Shape) -> Pod {
    object(json!({
        "metadata": {"name": name},
        "spec": {"nodeSelector": {LABEL: fleet.prefix}, "containers": [{"name": "main", "image": "keelet.test/none"}]},
    }))
}

fn is_held(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn at_once() -> DeleteParams {
    DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }
}

/// GATE-1, GATE-19, CTRL-3, CTRL-4, CTRL-16, CTRL-19, SCN-G1, SCN-G2, EVT-9, GATE-4, GATE-5: the pod waits for the condition, which the node
/// itself reports. A flap evicts nothing and brings no taint back.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn pods_wait_until_the_gate_passes_and_a_flap_changes_nothing() {
    let bed = Bed::new("scheduling").await;
    let (fleet, _nodes) = bed.gated("scheduled", 2, &[GATE]).await;
    let _controller = bed.controller("a", &[]).await.ready().await;
    let pods: Api<Pod> = Api::default_namespaced(bed.admin.clone());
    pods.create(&PostParams::default(), &pod("scheduled", &fleet)).await.expect("a pod");
    until(&bed.admin, Some("default"), "scheduled", "the scheduler finds no node", is_held).await;

    let kubelet = bed.cluster.node("scheduled-0").await.client().await;
    for status in ["False", "Unknown"] {
        report(&kubelet, "scheduled-0", "CNIReady", status).await;
    }
    report(&kubelet, "scheduled-0", "CNIReady", "True").await;
    let bound = |pod: &Pod| node_of(pod) == Some("scheduled-0");
    until(&bed.admin, Some("default"), "scheduled", "it is bound", bound).await;
    let node = bed.opens("scheduled-0", GATE).await;
    assert_eq!(annotation(&node, GATE), Some("passed"));
    // A kubelet may not set this label itself.
    assert_eq!(node.metadata.labels.as_ref().and_then(|labels| labels.get(GATE)).map(String::as_str), Some("true"));
    let message = bed.event("scheduled-0", "ReadinessGatePassed").await;
    assert!(message.contains(GATE), "{message}");

    report(&kubelet, "scheduled-0", "CNIReady", "False").await;
    // What comes later has been done: so has what comes first.
    report(&bed.admin, "scheduled-1", "CNIReady", "True").await;
    bed.opens("scheduled-1", GATE).await;
    let node = bed.node("scheduled-0", "it is there", |_| true).await;
    assert_eq!(taints(&node), Vec::<String>::new());
    assert!(node.spec.and_then(|spec| spec.unschedulable) != Some(true), "it is not cordoned");
    until(&bed.admin, Some("default"), "scheduled", "it is still bound", bound).await;
    pods.delete("scheduled", &at_once()).await.expect("deleted");
}

/// GATE-23: what makes a node ready has to run before the node is ready.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn daemon_set_pods_with_a_toleration_are_scheduled_before_the_gate_passes() {
    let bed = Bed::new("daemons").await;
    let (fleet, _nodes) = bed.gated("daemon", 2, &[GATE]).await;
    let _controller = bed.controller("a", &[]).await.ready().await;
    let sets: Api<DaemonSet> = Api::default_namespaced(bed.admin.clone());
    let set = |name: &str, tolerations: serde_json::Value| -> DaemonSet {
        object(json!({
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"set": name}},
                "template": {"metadata": {"labels": {"set": name}}, "spec": {
                    "nodeSelector": {LABEL: fleet.prefix}, "tolerations": tolerations,
                    "containers": [{"name": "main", "image": "keelet.test/none"}],
                }},
            },
        }))
    };
    let tolerations = json!([{"key": GATE, "operator": "Exists", "effect": "NoSchedule"}]);
    sets.create(&PostParams::default(), &set("cni", tolerations)).await.expect("a daemon set");
    let pods: Api<Pod> = Api::default_namespaced(bed.admin.clone());
    pods.create(&PostParams::default(), &pod("regular", &fleet)).await.expect("a pod");
    let scheduled = |set: &DaemonSet| set.status.as_ref().map(|status| status.current_number_scheduled);
    until(&bed.admin, Some("default"), "cni", "a pod on every node", |set: &DaemonSet| scheduled(set) == Some(2)).await;
    let of_set = ListParams::default().labels("set=cni");
    for pod in pods.list(&of_set).await.expect("pods") {
        let name = pod.metadata.name.unwrap_or_default();
        until(&bed.admin, Some("default"), &name, "it is bound", |pod: &Pod| node_of(pod).is_some()).await;
    }
    until(&bed.admin, Some("default"), "regular", "it waits", |pod: &Pod| is_held(pod) && node_of(pod).is_none()).await;
    for node in ["daemon-0", "daemon-1"] {
        assert_eq!(taints(&bed.node(node, "it is there", |_| true).await), [GATE]);
    }
    report(&bed.admin, "daemon-1", "CNIReady", "True").await;
    until(&bed.admin, Some("default"), "regular", "it is bound", |pod: &Pod| node_of(pod) == Some("daemon-1")).await;
    sets.delete("cni", &DeleteParams::foreground()).await.expect("deleted");
    pods.delete("regular", &at_once()).await.expect("deleted");
}
