//! The control plane that other tests rely on: does it forbid, restrict, record and schedule as a real cluster does?

use std::path::Path;

use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use keelet_control_plane::{Cluster, Hollow, audit, gone, until};
use keelet_harness::eventually;
use keelet_hollow::{
    Shape,
    flip::{self, FlipSettings, Rate, Remover},
    parse_taint,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

const GATE: &str = "readiness.k8s.io/NetworkReady";

/// The answer of an API server that refuses a request: its HTTP status and message.
fn refusal<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> (u16, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("expected a refusal, but the answer is {other:?}"),
    }
}

fn nodes(client: &Client) -> Api<Node> {
    Api::all(client.clone())
}

fn bare_node(name: &str) -> Node {
    serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a node")
}

/// A pod for the nodes of one fleet. Pause is never started: the nodes are hollow.
fn pod(name: &str, fleet: &Shape) -> Pod {
    let value = json!({
        "metadata": { "name": name },
        "spec": {
            "nodeSelector": { keelet_hollow::objects::LABEL: fleet.prefix },
            "containers": [{ "name": "main", "image": "keelet.test/none" }],
        },
    });
    serde_json::from_value(value).expect("a pod")
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

async fn merge(client: &Client, name: &str, patch: Value) -> Result<Node, kube::Error> {
    nodes(client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn the_api_server_is_the_one_that_was_built() {
    let version = Cluster::here().admin().client().await.apiserver_version().await.expect("a version");
    let module =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../peers/kubernetes/go.mod")).expect("a go.mod");
    let required = module.lines().find_map(|line| line.strip_prefix("require k8s.io/kubernetes ")).expect("a version");
    assert_eq!(version.git_version, required);
}

#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_user_without_a_role_may_do_nothing() {
    let client = Cluster::here().identity("stranger", &[]).await.client().await;
    let (code, message) = refusal(nodes(&client).list(&ListParams::default()).await);
    assert_eq!(code, 403, "{message}");
    assert!(message.contains(r#"User "stranger" cannot list resource "nodes""#), "{message}");
}

/// A controller gets its identity from the manifests that are shipped: it may do what they say, and nothing else.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_service_account_may_do_what_its_manifests_say() {
    let cluster = Cluster::here();
    cluster.apply(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rbac.yaml"))).await;
    let client = cluster.service_account("keelet-test", "reader").await.client().await;
    nodes(&client).list(&ListParams::default()).await.expect("its role allows to list nodes");
    let (code, message) = refusal(nodes(&client).create(&PostParams::default(), &bare_node("forbidden")).await);
    assert_eq!(code, 403, "{message}");
}

#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_node_agent_may_change_its_own_node_only() {
    let cluster = Cluster::here();
    let admin = cluster.admin().client().await;
    nodes(&admin).create(&PostParams::default(), &bare_node("other")).await.expect("a node");
    let agent = cluster.node("own").await.client().await;
    nodes(&agent).create(&PostParams::default(), &bare_node("own")).await.expect("an agent registers its node");

    let label = |key: &str| json!({ "metadata": { "labels": { key: "x" } } });
    merge(&agent, "own", label("example.com/rack")).await.expect("an agent labels its node");
    for (name, patch, expected) in [
        ("other", label("example.com/rack"), r#"node "own" is not allowed to modify node "other""#),
        ("own", label("node-restriction.kubernetes.io/zone"), "is not allowed to modify labels"),
        ("own", label(GATE), "is not allowed to modify labels"),
        (
            "own",
            json!({ "spec": { "taints": [{ "key": GATE, "effect": "NoSchedule" }] } }),
            "is not allowed to modify taints",
        ),
    ] {
        let (code, message) = refusal(merge(&agent, name, patch.clone()).await);
        assert_eq!(code, 403, "{name} {patch}: {message}");
        assert!(message.contains(expected), "{name} {patch}: {message}");
    }
    let secrets: Api<Secret> = Api::namespaced(agent, "default");
    assert_eq!(refusal(secrets.list(&ListParams::default()).await).0, 403);
}

#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn writes_of_agents_are_recorded_with_their_bodies_and_those_of_administrators_are_not() {
    let cluster = Cluster::here();
    let identity = cluster.node("recorded").await;
    let agent = identity.client().await;
    nodes(&agent).create(&PostParams::default(), &bare_node("recorded")).await.expect("a node");
    let admin = cluster.admin().client().await;
    merge(&admin, "recorded", json!({ "metadata": { "labels": { "by": "admin" } } })).await.expect("a label");
    merge(&agent, "recorded", json!({ "metadata": { "labels": { "by": "agent" } } })).await.expect("a label");

    let log = cluster.audit_log();
    let written = eventually("two writes in the audit log", async || {
        let entries = audit::entries(&log, &identity.user);
        let writes: Vec<_> = entries.into_iter().filter(audit::AuditRecord::is_write).collect();
        if writes.len() == 2 { Ok(writes) } else { Err(format!("there are {}: {writes:?}", writes.len())) }
    })
    .await;
    let seen: Vec<_> = written.iter().map(|entry| (entry.verb.as_str(), entry.response_status.code)).collect();
    assert_eq!(seen, [("create", 201), ("patch", 200)]);
    assert_eq!(written[1].object_ref.name, "recorded");
    assert_eq!(written[1].request_object["metadata"]["labels"]["by"], "agent");
    // The entries are in order, and the administrator's write was between these two.
    assert_eq!(audit::entries(&log, &cluster.admin().user).len(), 0);
}

#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_pod_waits_for_a_node_without_a_taint() {
    let client = Cluster::here().admin().client().await;
    let mut fleet = Shape::new("gated", 1);
    fleet.taints = vec![parse_taint(&format!("{GATE}:NoSchedule")).expect("a taint")];
    let _nodes = Hollow::create(&client, &fleet).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("waiting", &fleet)).await.expect("a pod");

    let held = until(&client, Some("default"), "waiting", "the scheduler finds no node", |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
    })
    .await;
    assert_eq!(node_of(&held), None);
    let said = serde_json::to_string(&held.status).expect("a status");
    assert!(said.contains("1 node(s) had untolerated taint(s)"), "{said}");

    merge(&client, "gated-0", json!({ "spec": { "taints": null } })).await.expect("the taint goes");
    until(&client, Some("default"), "waiting", "it is bound", |pod: &Pod| node_of(pod) == Some("gated-0")).await;
    pods.delete("waiting", &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
        .await
        .expect("deleted");
    gone::<Pod>(&client, Some("default"), "waiting").await;
}

#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_pod_is_bound_to_a_node_without_taints() {
    let client = Cluster::here().admin().client().await;
    let fleet = Shape::new("free", 1);
    let _nodes = Hollow::create(&client, &fleet).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("bound", &fleet)).await.expect("a pod");
    until(&client, Some("default"), "bound", "it is bound", |pod: &Pod| node_of(pod) == Some("free-0")).await;
}

/// The bare client of the benchmark removes every taint, and the watch sees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a control plane: make e2e"]
async fn flips_of_the_bare_client_are_all_seen() {
    let client = Cluster::here().admin().client().await;
    let shape = Shape::new("flipped", 20);
    let _nodes = Hollow::create(&client, &shape).await;
    for rate in [Rate::Full, Rate::PerSecond(200.0)] {
        let settings = FlipSettings {
            shape: shape.clone(),
            condition: "NetworkReady".to_owned(),
            taint: GATE.to_owned(),
            rate,
            in_flight: 8,
            remover: Remover::Bare,
            patience: keelet_harness::patience(),
        };
        let report = flip::measure(&client, &settings).await.expect("a report");
        assert_eq!((report.latency.count(), report.missed), (20, 0), "{report:?}");
    }
}

/// Tests of controllers take the API server away. What they wait with must outlast that.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_watch_outlasts_the_api_server() {
    let cluster = Cluster::here();
    let client = cluster.admin().client().await;
    nodes(&client).create(&PostParams::default(), &bare_node("lasting")).await.expect("a node");
    let watching = tokio::spawn({
        let client = client.clone();
        async move {
            let labelled =
                |node: &Node| node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("later"));
            until(&client, None, "lasting", "it has a label", labelled).await
        }
    });
    cluster.kill("kube-apiserver").await;
    cluster.start("kube-apiserver").await;
    cluster.ready().await;
    merge(&client, "lasting", json!({ "metadata": { "labels": { "later": "yes" } } })).await.expect("a label");
    watching.await.expect("the watch has seen it");
}
