//! Rights: what fails without each of them, and what is said about it.

use keelet_control_plane::audit;
use keelet_gates::api::Permission;
use keelet_harness::eventually;
use serde_json::json;

use crate::bed::{Bed, Controller, GATE, merge, report, taints};

/// These permissions without one verb of one of them.
fn without(all: &[Permission], index: usize, verb: &str) -> Vec<Permission> {
    let mut rest = all.to_vec();
    rest[index].verbs.retain(|found| *found != verb);
    rest
}

/// Waits for the sign that what needs this verb does not work.
async fn fails(bed: &Bed, controller: &Controller, permission: &Permission, verb: &str) {
    let forbidden = "is forbidden: User";
    match (permission.resource, verb) {
        (resource @ ("nodes" | "nodereadinessrules"), "list") => {
            let resource = format!("resource=\"{resource}\"");
            controller.says(&["cannot list objects; retrying", &resource, forbidden]).await;
        }
        ("nodes", "watch") => {
            let broken = "keelet_gates_watches_total{resource=\"nodes\",end=\"broken\"}";
            controller.shows(broken, |times| times > 0.0).await;
        }
        ("nodes", "patch") => {
            controller.says(&["the API server refuses to change the node", forbidden]).await;
            let node = bed.node("rights-0", "it is there", |_| true).await;
            assert!(taints(&node).contains(&GATE.to_owned()));
        }
        ("events", "create") => {
            controller.shows("keelet_gates_events_total{outcome=\"failed\"}", |times| times > 0.0).await
        }
        ("leases", "create" | "get" | "patch") => {
            let operation = match verb {
                "create" => "create",
                "get" => "read",
                _ => "renew",
            };
            controller
                .says(&["lease request failed; retrying", &format!("operation=\"{operation}\""), forbidden])
                .await;
        }
        // These are needed for what comes second: a conflict, the same event again, a handover, a rule. crates/gates shows
        // them on the simulated API server.
        ("nodes", "get")
        | ("events", "patch")
        | ("leases", "watch")
        | ("nodereadinessrules", "watch" | "patch")
        | ("nodereadinessrules/status", "patch") => {}
        other => panic!("what fails without {other:?}?"),
    }
}

/// CTRL-18: without any one verb the log names it, with the rule that grants it, and what needs it fails. As soon as the rule is there
/// everything works, without a restart.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_missing_verb_is_named_and_missed_until_it_is_granted() {
    let bed = Bed::without_rights("rights").await;
    let all = bed.options().permissions();
    let (_, _nodes) = bed.gated("rights", 1, &[]).await;
    let mut number = 0;
    for (index, permission) in all.iter().enumerate() {
        for verb in &permission.verbs {
            number += 1;
            bed.grant(&without(&all, index, verb)).await;
            // The first leader creates a new lease.
            bed.forget_lease().await;
            report(&bed.admin, "rights-0", "CNIReady", "True").await;
            let record = json!({"keelet.dev/gates": null, GATE: null});
            let gate = json!({"metadata": {"annotations": record}, "spec": {"taints": [{"key": GATE, "effect": "NoSchedule"}]}});
            merge(&bed.admin, "rights-0", gate).await;
            let controller = bed.controller(&format!("{number}"), &[]).await;
            let missing = Permission { verbs: vec![verb], ..permission.clone() };
            let line = controller.says(&["permission missing", &format!("permission={missing} role=")]).await;
            let rule = format!("{:?}", missing.rule());
            assert!(line.contains(&rule) && line.contains(missing.role()), "{rule} is not in {line}");
            let (status, body) = controller.get("/readyz").await;
            assert!(status == 503 && body.contains(&missing.to_string()), "{status} {body}");
            let said = controller.process.log().lines().filter(|line| line.contains("permission missing")).count();
            assert_eq!(said, 1, "only what is missing, and once:\n{}", controller.process.log());
            fails(&bed, &controller, &missing, verb).await;

            bed.grant(&all).await;
            controller.says(&["all permissions are granted"]).await;
            let controller = controller.ready().await;
            bed.opens("rights-0", GATE).await;
            let Controller { process, .. } = controller;
            assert!(process.terminate().await.success());
        }
    }
    assert_eq!(number, 14);
}

/// SCN-G6, CTRL-18: a dry run with rights to list and watch says what it would do, counts it, and asks for no change.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn a_dry_run_needs_no_right_to_change_anything() {
    let bed = Bed::without_rights("dry").await;
    let of_nodes = Permission::of_cluster(&["list", "watch"], "", "nodes");
    let of_rules = Permission::of_cluster(&["list", "watch"], "readiness.node.x-k8s.io", "nodereadinessrules");
    bed.grant(&[of_nodes, of_rules]).await;
    let (_, _nodes) = bed.gated("dry", 1, &[GATE]).await;
    let controller = bed.controller("a", &["--dry-run"]).await.ready().await;
    report(&bed.admin, "dry-0", "CNIReady", "True").await;
    controller.says(&["dry run: nothing is changed", "dry-0", "ReadinessGatePassed"]).await;
    controller.shows("keelet_gates_would_total{change=\"remove\"}", |times| times == 1.0).await;
    assert!(taints(&bed.node("dry-0", "it is there", |_| true).await).contains(&GATE.to_owned()));
    let Controller { process, .. } = controller;
    assert!(process.terminate().await.success());
    let writes = eventually("its requests in the audit log", async || {
        let entries = audit::entries(&bed.cluster.audit_log(), &bed.account.user);
        if entries.iter().any(|entry| entry.verb == "watch" || entry.verb == "list") {
            Ok(entries)
        } else {
            Err("there are none")
        }
    })
    .await;
    let writes: Vec<_> =
        writes.iter().filter(|entry| entry.is_write()).map(|entry| &entry.object_ref.resource).collect();
    assert!(writes.iter().all(|resource| *resource == "selfsubjectaccessreviews"), "{writes:?}");
}
