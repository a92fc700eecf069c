//! The node's side of readiness gates, on a real control plane: `keelet agent` probes, `keelet controller` opens the gate.

use std::{fs, path::Path};

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use keelet_control_plane::{Process, Worker, audit, condition, gone, is_ready, pods, probed_pod, ready_node, until};
use keelet_harness::eventually;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
};

/// A component of the node: an HTTP server on loopback that answers every request.
async fn component(port: u16) -> tokio::task::JoinHandle<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("the port is free");
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let _ = connection.read(&mut request).await;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
                let _ = connection.write_all(answer).await;
            });
        }
    })
}

fn is_tainted(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == key)
}

/// GATE-1, GATE-2, GATE-4, GATE-5, GATE-7, GATE-10, GATE-11, GATE-13, GATE-14, GATE-16, GATE-20, GATE-21, CLU-26, CLU-28, SCN-G18: from the birth of a node to its
/// first pod, with the API server's NodeRestriction on: the agent registers with the gate, pods wait, the component comes up, the probe
/// passes, the condition is True, the controller removes the taint, the pod runs. A restart of the agent then writes nothing about the node.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_node_takes_its_first_pod_when_its_component_answers_and_an_agent_restart_changes_nothing() {
    const GATE: &str = "readiness.k8s.io/NetworkReady";
    const CONDITION: &str = "example.com/NetworkReady";
    // On tmpfs: a disk of this machine that is nearly full would be a condition of the node, with a message that changes.
    let worker = Worker::within("newborn", Path::new("/dev/shm")).await;
    let admin = worker.cluster.admin().client().await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let config = worker.path("config.yaml");
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nnodeReadinessProbes:\n  - name: network\n    \
         conditionType: {CONDITION}\n    probe: {{httpGet: {{port: {port}, path: /healthz}}}}\n    periodSeconds: 1\n    failureThreshold: 2\n"
    );
    fs::write(&config, text).expect("written");
    let gates = ["--bind-address", "127.0.0.1:0", "--leader-elect-resource-namespace", "kube-system"];
    let controller = Process::controller(&worker.cluster, "newborn-gates", &worker.cluster.admin(), &gates);
    let arguments = ["--config", &config, "--register-with-taints", &format!("{GATE}:NoSchedule")];
    let agent = worker.start(&arguments);

    let node = ready_node(&admin, "newborn").await;
    assert!(is_tainted(&node, GATE), "{:?}", node.spec);
    pods(&admin).create(&PostParams::default(), &probed_pod("firstborn", "newborn")).await.expect("a pod");
    until(&admin, Some("default"), "firstborn", "unschedulable", |pod: &Pod| {
        condition(&serde_json::to_value(pod).expect("JSON"), "PodScheduled").as_deref() == Some("False")
    })
    .await;
    let of_probe = |node: &Node, status: &str| {
        condition(&serde_json::to_value(node).expect("JSON"), CONDITION).as_deref() == Some(status)
    };
    let node = until(&admin, None, "newborn", "condition False", |node: &Node| of_probe(node, "False")).await;
    assert!(is_tainted(&node, GATE), "{:?}", node.spec);
    let events: Api<Event> = Api::namespaced(admin.clone(), "default");
    for reason in ["NodeProbeFailed", "ReadinessGateLabelForbidden"] {
        eventually(&format!("event {reason} on the node"), async || {
            let of_node = format!("involvedObject.kind=Node,involvedObject.name=newborn,reason={reason}");
            let found =
                events.list(&ListParams::default().fields(&of_node)).await.map_err(|error| error.to_string())?;
            if found.items.is_empty() { Err("none".to_owned()) } else { Ok(()) }
        })
        .await;
    }

    let component = component(port).await;
    let node = until(&admin, None, "newborn", "free", |node: &Node| !is_tainted(node, GATE)).await;
    assert!(of_probe(&node, "True"), "the taint went with its condition: {:?}", node.status);
    let (labels, annotations) = (node.metadata.labels.clone(), node.metadata.annotations.clone());
    assert_eq!(labels.unwrap_or_default().get(GATE).map(String::as_str), Some("true"), "the controller sets the label");
    assert_eq!(annotations.unwrap_or_default().get(GATE).map(String::as_str), Some("passed"));
    worker.import().await;
    let first = until(&admin, Some("default"), "firstborn", "Ready", is_ready).await;

    let socket = format!("{}/keelet.sock", worker.path("state"));
    let mut why = Command::new(std::env::var("KEELET_E2E_AGENT").expect("a keelet"));
    let answer = why.args(["why", "node", "--socket", &socket]).output().await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    let because = format!("because probe network (http://127.0.0.1:{port}/healthz) passed (successThreshold 1) at ");
    assert!(answer.contains(&format!("{CONDITION}=True since ")) && answer.contains(&because), "{answer}");

    // Nothing else is left to be said of the node: the disks were looked at too.
    until(&admin, None, "newborn", "looked at", |node: &Node| {
        condition(&serde_json::to_value(node).expect("JSON"), "DiskPressure").as_deref() == Some("False")
    })
    .await;
    agent.kill().await;
    let writes = || {
        let entries = audit::entries(&worker.cluster.audit_log(), "system:node:newborn");
        let of_node = |entry: &&audit::AuditRecord| entry.verb == "patch" && entry.object_ref.resource == "nodes";
        entries.iter().filter(of_node).count()
    };
    let entries = audit::entries(&worker.cluster.audit_log(), "system:node:newborn");
    let edits_spec = |entry: &&audit::AuditRecord| entry.verb == "patch" && !entry.request_object["spec"].is_null();
    let edits: Vec<_> =
        entries.iter().filter(edits_spec).filter(|entry| entry.object_ref.resource == "nodes").collect();
    assert!(edits.is_empty(), "the agent touches no taint: {edits:?}");
    let nodes: Api<Node> = Api::all(admin.clone());
    let (before, writes_before) = (nodes.get("newborn").await.expect("the node"), writes());
    let agent = worker.start(&arguments);
    // The next agent works once a new pod is Ready; the audit log is complete up to there.
    pods(&admin).create(&PostParams::default(), &probed_pod("secondborn", "newborn")).await.expect("a pod");
    until(&admin, Some("default"), "secondborn", "Ready", is_ready).await;
    let after = nodes.get("newborn").await.expect("the node");
    assert_eq!(writes(), writes_before, "an agent restart writes nothing about a node that has not changed");
    assert_eq!(
        serde_json::to_value(&after.status).expect("JSON")["conditions"],
        serde_json::to_value(&before.status).expect("JSON")["conditions"]
    );
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert!(!is_tainted(&after, GATE), "a gate that has passed does not come back");
    let still = pods(&admin).get("firstborn").await.expect("the pod");
    assert_eq!(still.metadata.resource_version, first.metadata.resource_version);

    // The component fails: the condition follows, the pods stay.
    component.abort();
    until(&admin, None, "newborn", "condition False", |node: &Node| of_probe(node, "False")).await;
    for name in ["firstborn", "secondborn"] {
        assert!(is_ready(&pods(&admin).get(name).await.expect("the pod")), "{name}");
        pods(&admin).delete(name, &DeleteParams::default()).await.expect("deleted");
        gone::<Pod>(&admin, Some("default"), name).await;
    }
    agent.terminate().await;
    controller.terminate().await;
}
