//! The commands for people, `keelet gates`, on a real API server: managed fields, optimistic locks, refusals, watches; and what
//! `deploy/gates` and `examples/gates` install.

use std::{
    path::{Path, PathBuf},
    process::Output,
};

use k8s_openapi::api::core::v1::Node;
use keelet_control_plane::{Cluster, Identity, Process, until};
use keelet_harness::eventually;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::process::Command;

const GATE: &str = "readiness.k8s.io/CNIReady";

fn nodes(client: &Client) -> Api<Node> {
    Api::all(client.clone())
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A node that its agent registers with the gate.
async fn gated(cluster: &Cluster, name: &str) -> Client {
    let agent = cluster.node(name).await.client().await;
    let node = json!({"metadata": {"name": name, "labels": {"fleet": name}}, "spec": {"taints": [{"key": GATE, "effect": "NoSchedule"}]}});
    let node = serde_json::from_value(node).expect("a node");
    let agent_as = PostParams { field_manager: Some("kubelet".to_owned()), ..PostParams::default() };
    nodes(&agent).create(&agent_as, &node).await.expect("an agent registers its node");
    agent
}

/// A reporter, which calls itself so, writes the condition.
async fn report(client: &Client, name: &str, status: &str) {
    let patch = json!({"status": {"conditions": [{
        "type": "vendor.example.com/CNIReady", "status": status, "reason": "Probed", "message": "on port 9099",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let reporter = PatchParams { field_manager: Some("cni-reporter".to_owned()), ..PatchParams::default() };
    nodes(client).patch_status(name, &reporter, &Patch::Strategic(patch)).await.expect("a condition");
}

async fn merge(client: &Client, name: &str, patch: Value) -> Node {
    nodes(client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a change")
}

/// Runs `keelet gates`.
async fn keelet(identity: &Identity, arguments: &[&str]) -> Output {
    let program = std::env::var("KEELET_E2E_AGENT").expect("these tests are run by `make e2e`");
    let kubeconfig = identity.kubeconfig.to_string_lossy();
    let all = [&["gates"], arguments, &["--kubeconfig", &kubeconfig]].concat();
    Command::new(program).args(all).env_remove("KUBECONFIG").output().await.expect("keelet runs")
}

fn out(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn error(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let shown = taints.map(|taint| format!("{}:{}", taint.key, taint.effect));
    shown.filter(|taint| !taint.starts_with("node.kubernetes.io/")).collect()
}

async fn kubectl(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("kubectl").args(arguments).output().await.expect("kubectl is in the PATH of the bed");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// CTRL-15: the chain has the writers of the taint and of the condition, from the fields that a real API server keeps.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn explain_names_each_writer() {
    let cluster = Cluster::here();
    let admin = cluster.admin();
    let client = admin.client().await;
    let agent = gated(&cluster, "explained").await;
    report(&agent, "explained", "False").await;
    let text = out(&keelet(&admin, &["explain", "explained"]).await);
    let line = |label: &str| {
        text.lines().find(|line| line.trim_start().starts_with(label)).unwrap_or_else(|| panic!("{label}:\n{text}"))
    };
    // The node lifecycle controller may have written the list since, for a taint of its own.
    let by = ["kubelet", "kube-controller-manager"]
        .map(|manager| format!("{GATE}:NoSchedule, last written by {manager} at 20"));
    assert!(by.iter().any(|by| line("taint ").contains(by)), "{text}");
    assert!(
        line("condition ").contains("vendor.example.com/CNIReady is False (Probed) since 2026-01-01T00:00:00Z"),
        "{text}"
    );
    assert!(line("reported ").contains("last written by cni-reporter at 20"), "{text}");
    assert!(line("Controller").contains("none leads: there is no lease kube-system/keelet-gates"), "{text}");

    report(&agent, "explained", "True").await;
    let json: Value =
        serde_json::from_str(&out(&keelet(&admin, &["status", "explained", "-o", "json"]).await)).expect("JSON");
    let gate = &json["items"][0];
    assert_eq!(
        (&gate["status"], &gate["conditions"][0]["found"]["reporter"]["manager"]),
        (&json!("Opening"), &json!("cni-reporter"))
    );
    nodes(&client).delete("explained", &Default::default()).await.expect("deleted");
}

/// CTRL-18: the refusal of a real API server, with the rule that would grant it; and nodes that do not exist.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn refusals_are_explained() {
    let cluster = Cluster::here();
    gated(&cluster, "there").await;
    let stranger = cluster.identity("gates-stranger", &[]).await;
    let said = error(&keelet(&stranger, &["status"]).await);
    assert!(said.contains("not allowed:\n  list nodes\n"), "{said}");
    assert!(said.contains(r#"{apiGroups: [""], resources: [nodes], verbs: [list]}"#), "{said}");
    assert!(said.contains(r#"User "gates-stranger" cannot list resource "nodes""#), "{said}");
    let said = error(&keelet(&cluster.admin(), &["explain", "ther"]).await);
    assert!(said.contains("node \"ther\" not found; did you mean there?"), "{said}");
    let said = error(&keelet(&cluster.admin(), &["status", "-l", "not a selector"]).await);
    assert!(said.contains("answered 400 BadRequest"), "{said}");
}

/// GN-1, GN-2: a repair is one patch for exactly this version of the node.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn repair_removes_a_taint_that_was_set_by_hand() {
    let cluster = Cluster::here();
    let admin = cluster.admin();
    let client = admin.client().await;
    let agent = gated(&cluster, "repaired").await;
    report(&agent, "repaired", "True").await;
    // Without a controller the command does what one would do.
    out(&keelet(&admin, &["repair", "repaired", "--yes"]).await);
    let node = nodes(&client).get("repaired").await.expect("the node");
    assert_eq!(taints(&node), Vec::<String>::new());
    assert_eq!(node.metadata.annotations.as_ref().and_then(|all| all.get(GATE)).map(String::as_str), Some("passed"));

    let by_hand = json!([{"key": "team", "effect": "NoSchedule"}, {"key": GATE, "effect": "NoSchedule"}]);
    merge(&client, "repaired", json!({"spec": {"taints": by_hand}})).await;
    let said = out(&keelet(&admin, &["repair", "repaired", "--dry-run"]).await);
    assert!(said.contains("which was added after the gate had passed at"), "{said}");
    let node = nodes(&client).get("repaired").await.expect("the node");
    assert_eq!(taints(&node), ["team:NoSchedule".to_owned(), format!("{GATE}:NoSchedule")], "a dry run stores nothing");
    // Standard input is not a terminal here, so the command cannot ask.
    let said = error(&keelet(&admin, &["repair", "repaired"]).await);
    assert!(said.contains("standard input is not a terminal"), "{said}");
    out(&keelet(&admin, &["repair", "repaired", "--yes"]).await);
    let node = nodes(&client).get("repaired").await.expect("the node");
    assert_eq!(taints(&node), ["team:NoSchedule"]);
    let managers: Vec<_> =
        node.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.clone()).collect();
    assert!(managers.contains(&"keelet-gates-repair".to_owned()), "{managers:?}");
}

/// A watch shows a gate open, and nothing for a heartbeat.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_watch_shows_changes() {
    let cluster = Cluster::here();
    let admin = cluster.admin();
    let agent = gated(&cluster, "watched").await;
    let kubeconfig = admin.kubeconfig.to_string_lossy().into_owned();
    let arguments = ["gates", "status", "-w", "--no-headers", "-l", "fleet=watched", "--kubeconfig", &kubeconfig];
    let process = Process::keelet(&cluster, "gates-watch", &arguments);
    let reasons = |log: &str| {
        log.lines().map(|line| line.split_whitespace().nth(3).unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let seen = async |expected: &[&str]| {
        eventually("rows", async || match reasons(&process.log()) {
            found if found == expected => Ok(()),
            found => Err(format!("{found:?}")),
        })
        .await;
    };
    seen(&["condition-absent"]).await;
    report(&agent, "watched", "False").await;
    seen(&["condition-absent", "condition-false"]).await;
    report(&agent, "watched", "True").await;
    seen(&["condition-absent", "condition-false", "passes"]).await;
    out(&keelet(&admin, &["repair", "watched", "--yes"]).await);
    seen(&["condition-absent", "condition-false", "passes", "passed"]).await;
    process.kill().await;
}

/// PEER-28, CTRL-18: what is installed is accepted, and the account has the rights of the controller and no others.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn what_is_installed_is_accepted() {
    let cluster = Cluster::here();
    let base = in_repository("deploy/gates/base");
    let (done, said) = kubectl(&["apply", "-k", &base.to_string_lossy()]).await;
    assert!(done, "{said}");
    for example in ["cni", "gpu-driver", "security-agent"] {
        let path = in_repository(&format!("examples/gates/{example}.yaml"));
        let (done, said) = kubectl(&["apply", "--filename", &path.to_string_lossy()]).await;
        assert!(done, "{example}: {said}");
    }
    let account = cluster.service_account("kube-system", "keelet-gates").await;
    let kubeconfig = account.kubeconfig.to_string_lossy().into_owned();
    let may = async |verb: &str, what: &[&str]| {
        let all = [&["--kubeconfig", &kubeconfig, "auth", "can-i", verb], what].concat();
        kubectl(&all).await.0
    };
    assert!(may("patch", &["nodes"]).await);
    assert!(may("patch", &["leases.coordination.k8s.io/keelet-gates", "--namespace", "kube-system"]).await);
    assert!(may("create", &["events", "--namespace", "default"]).await);
    for (verb, what) in [
        ("patch", &["nodes", "--subresource=status"][..]),
        ("delete", &["nodes"]),
        ("patch", &["leases.coordination.k8s.io/another", "--namespace", "kube-system"]),
        ("create", &["events", "--namespace", "kube-system"]),
        ("list", &["secrets", "--all-namespaces"]),
    ] {
        assert!(!may(verb, what).await, "may {verb} {what:?}");
    }
    // The deployment's pods are made by the real controller manager: nothing in them is refused.
    let client = cluster.admin().client().await;
    let name = "keelet-gates";
    until::<k8s_openapi::api::apps::v1::Deployment>(
        &client,
        Some("kube-system"),
        name,
        "its pods exist",
        |deployment| deployment.status.as_ref().and_then(|status| status.replicas) == Some(2),
    )
    .await;
}
