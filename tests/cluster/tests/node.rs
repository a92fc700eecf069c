//! `keelet agent --kubeconfig` as a node of a real cluster, on the embedded runtime.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Pod},
};
use keelet_control_plane::{Worker, gone, is_ready, pods, probed_pod, ready_node, until};
use keelet_harness::eventually;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

/// CLU-8, CLU-14, CLU-15, CLU-23, CLU-24, CLU-25, CLU-27, KEEP-10: the node registers, the scheduler assigns a pod to it, the pod becomes
/// Ready in the API; the agent is killed and started again, and writes nothing about the pod; the pod is deleted, and so is its object.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_pod_of_the_cluster_runs_here_and_an_agent_restart_writes_nothing_about_it() {
    let worker = Worker::new("joined").await;
    let admin = worker.cluster.admin().client().await;
    let agent =
        worker.start(&["--node-labels", "pool=blue", "--register-with-taints", "example.com/new=yes:PreferNoSchedule"]);
    let node = ready_node(&admin, "joined").await;
    let labels = node.metadata.labels.clone().unwrap_or_default();
    assert_eq!(
        (labels.get("pool").map(String::as_str), labels.get("kubernetes.io/os").map(String::as_str)),
        (Some("blue"), Some("linux"))
    );
    let node = serde_json::to_value(&node).expect("JSON");
    assert!(
        node["spec"]["taints"]
            .as_array()
            .is_some_and(|taints| taints.iter().any(|taint| taint["key"] == "example.com/new")),
        "{node}"
    );
    assert_eq!(node["status"]["declaredFeatures"], json!(["RestartAllContainersOnContainerExits"]));
    until(&admin, Some("kube-node-lease"), "joined", "renewed", |lease: &Lease| {
        lease.spec.as_ref().is_some_and(|spec| spec.renew_time.is_some())
    })
    .await;
    worker.import().await;
    pods(&admin).create(&PostParams::default(), &probed_pod("first", "joined")).await.expect("a pod");
    let first = until(&admin, Some("default"), "first", "Ready", is_ready).await;
    let status = first.status.clone().expect("a status");
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert!(status.host_ip.is_some() && status.pod_ip.is_some() && status.qos_class.is_some(), "{status:?}");

    // An agent that is killed takes with it the events that it has not sent.
    let events: Api<Event> = Api::namespaced(admin.clone(), "default");
    eventually("an event of the pod", async || {
        let of_pod = ListParams::default().fields("involvedObject.name=first,reason=Started");
        let found = events.list(&of_pod).await.map_err(|error| error.to_string())?;
        if found.items.is_empty() { Err("none".to_owned()) } else { Ok(()) }
    })
    .await;
    agent.kill().await;
    let before = worker.status_writes("first");
    assert!(before > 0, "the audit log has the writes of the first agent");
    let agent = worker.start(&[]);
    // The next agent works once a new pod is Ready; the audit log is complete up to there.
    pods(&admin).create(&PostParams::default(), &probed_pod("second", "joined")).await.expect("a pod");
    until(&admin, Some("default"), "second", "Ready", is_ready).await;
    assert_eq!(
        worker.status_writes("first"),
        before,
        "an agent restart writes nothing about a pod that has not changed"
    );
    let after = pods(&admin).get("first").await.expect("the pod");
    assert_eq!(after.metadata.resource_version, first.metadata.resource_version);

    for name in ["first", "second"] {
        pods(&admin).delete(name, &DeleteParams::default()).await.expect("deleted");
        gone::<Pod>(&admin, Some("default"), name).await;
    }
    agent.terminate().await;
}

/// CLU-1, CLU-19, KEEP-26: without the API server pods keep running and are probed; what changed meanwhile is published afterwards.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn an_api_server_that_is_away_changes_nothing_for_running_pods() {
    let worker = Worker::new("patient").await;
    let admin = worker.cluster.admin().client().await;
    let agent = worker.start(&[]);
    ready_node(&admin, "patient").await;
    worker.import().await;
    pods(&admin).create(&PostParams::default(), &probed_pod("steady", "patient")).await.expect("a pod");
    let steady = until(&admin, Some("default"), "steady", "Ready", is_ready).await;
    worker.cluster.kill("kube-apiserver").await;
    agent.kill().await;
    let agent = worker.start(&[]);
    eventually("an agent that says that it cannot reach the API server", async || {
        let log = agent.log();
        if log.contains("cannot register the node") { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    worker.cluster.start("kube-apiserver").await;
    eventually("the API server is reached", async || {
        if agent.log().contains("reached the API server") { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    let after = until(&admin, Some("default"), "steady", "Ready", is_ready).await;
    let started = |pod: &Pod| {
        serde_json::to_value(&pod.status).expect("JSON").pointer("/containerStatuses/0/containerID").cloned()
    };
    assert_eq!(started(&after), started(&steady), "the container is the same");
    pods(&admin).delete("steady", &DeleteParams::default()).await.expect("deleted");
    gone::<Pod>(&admin, Some("default"), "steady").await;
    agent.terminate().await;
}

/// KEEP-10, CLU-8: agents are killed again and again under several pods, and the audit log has no write about any of them.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn twenty_agents_killed_in_a_row_write_nothing_about_five_pods() {
    let worker = Worker::new("restless").await;
    let admin = worker.cluster.admin().client().await;
    let mut agent = worker.start(&[]);
    ready_node(&admin, "restless").await;
    worker.import().await;
    let names: Vec<_> = (1..=5).map(|number| format!("kept-{number}")).collect();
    for name in &names {
        pods(&admin).create(&PostParams::default(), &probed_pod(name, "restless")).await.expect("a pod");
    }
    let mut versions = Vec::new();
    for name in &names {
        let ready = until(&admin, Some("default"), name, "Ready", is_ready).await;
        versions.push(ready.metadata.resource_version);
    }
    let writes = || names.iter().map(|name| worker.status_writes(name)).collect::<Vec<_>>();
    let before = writes();
    for reached in 2..=21 {
        agent.kill().await;
        agent = worker.start(&[]);
        eventually("the API server is reached", async || match agent.log().matches("reached the API server").count() {
            count if count == reached => Ok(()),
            count => Err(format!("{count} of {reached} times")),
        })
        .await;
    }
    // The last agent works once a new pod is Ready; the audit log is complete up to there.
    pods(&admin).create(&PostParams::default(), &probed_pod("canary", "restless")).await.expect("a pod");
    until(&admin, Some("default"), "canary", "Ready", is_ready).await;
    assert_eq!(writes(), before);
    for (name, version) in names.iter().zip(versions) {
        let after = pods(&admin).get(name).await.expect("the pod");
        assert_eq!(after.metadata.resource_version, version, "{name}");
    }
    for name in names.iter().map(String::as_str).chain(["canary"]) {
        pods(&admin).delete(name, &DeleteParams::default()).await.expect("deleted");
        gone::<Pod>(&admin, Some("default"), name).await;
    }
    agent.terminate().await;
}
