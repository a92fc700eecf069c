//! What a node does not take, on a real control plane and without its scheduler: pods that name their node.

use k8s_openapi::api::core::v1::Pod;
use keelet_control_plane::{IMAGE, Worker, gone, is_ready, pods, ready_node, until};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

fn pod(name: &str, container: Value) -> Pod {
    let mut main = json!({
        "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"],
    });
    main.as_object_mut().expect("an object").extend(container.as_object().cloned().unwrap_or_default());
    let value = json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": "cramped", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1, "containers": [main],
        },
    });
    serde_json::from_value(value).expect("a pod")
}

/// CLU-20: a pod that asks for more than the node has, and one whose port is taken, are Failed with the kubelet's reasons and messages; the pods that
/// run stay, also under the next agent.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn pods_that_do_not_fit_are_rejected_and_those_that_run_stay() {
    let worker = Worker::new("cramped").await;
    let admin = worker.cluster.admin().client().await;
    let agent = worker.start(&[]);
    ready_node(&admin, "cramped").await;
    worker.import().await;
    let port = json!({ "ports": [{ "containerPort": 80, "hostPort": 30080 }] });
    pods(&admin).create(&PostParams::default(), &pod("holder", port.clone())).await.expect("a pod");
    let holder = until(&admin, Some("default"), "holder", "Ready", is_ready).await;
    let large = json!({ "resources": { "requests": { "cpu": "5k" } } });
    let wanted = [
        (
            "large",
            large,
            "OutOfcpu",
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 5000000, used: ",
        ),
        ("rival", port, "NodePorts", "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports"),
    ];
    for (name, container, reason, message) in wanted {
        pods(&admin).create(&PostParams::default(), &pod(name, container)).await.expect("a pod");
        let failed = until(&admin, Some("default"), name, "Failed", |pod: &Pod| {
            pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"))
        })
        .await;
        let status = failed.status.expect("a status");
        assert_eq!(status.reason.as_deref(), Some(reason), "{status:?}");
        assert!(status.message.as_deref().is_some_and(|found| found.starts_with(message)), "{status:?}");
    }
    agent.kill().await;
    let agent = worker.start(&[]);
    pods(&admin).create(&PostParams::default(), &pod("canary", json!({}))).await.expect("a pod");
    until(&admin, Some("default"), "canary", "Ready", is_ready).await;
    let after = pods(&admin).get("holder").await.expect("the pod");
    assert_eq!(after.metadata.resource_version, holder.metadata.resource_version);
    for name in ["holder", "large", "rival", "canary"] {
        pods(&admin).delete(name, &DeleteParams::default()).await.expect("deleted");
        gone::<Pod>(&admin, Some("default"), name).await;
    }
    agent.terminate().await;
}
