use serde_json::json;

use super::*;
use crate::gates::testing::{World, condition, now, simulate, taint};

fn args(words: &[&str]) -> Args {
    use clap::{Args as _, FromArgMatches as _};
    let command = Args::augment_args(clap::Command::new("explain"));
    let matches = command.try_get_matches_from([&["explain"], words].concat()).unwrap();
    Args::from_arg_matches(&matches).unwrap()
}

fn explained(world: &World, words: &[&str]) -> Result<String> {
    let args = args(words);
    simulate(async { answer(&args, &world.cluster(), args.flags.settings()?, now()).await })
}

/// The part of an explanation that is about one gate.
fn section<'a>(text: &'a str, gate: &str) -> &'a str {
    let from = text.find(&format!("Gate {gate} ")).unwrap_or_else(|| panic!("no gate {gate} in\n{text}"));
    text[from..].split("\n\n").next().unwrap()
}

fn lease(world: &World, renewed: &str) {
    let lease = json!({"metadata": {"name": "keelet-gates", "namespace": "kube-system"}, "spec": {
        "holderIdentity": "gates-1_0123", "leaseDurationSeconds": 15, "acquireTime": "2026-03-01T09:00:00.000000Z",
        "renewTime": renewed, "leaseTransitions": 0,
    }});
    let (code, answer) = world.api.act("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", &lease);
    assert_eq!(code, 201, "{answer}");
}

/// CTRL-15: the whole chain of a gate that waits.
#[test]
fn a_gate_that_waits_is_explained_down_to_its_condition() {
    let world = World::new();
    lease(&world, "2026-03-01T11:59:58.000000Z");
    let uid = world.node("n", &json!([taint("CNIReady"), taint("GPUReady")]), &json!({}))["metadata"]["uid"].clone();
    world.report("n", &condition("GPUReady", "False", "DriverMissing"));
    let text = explained(&world, &["n"]).unwrap();
    let mut lines = text.lines();
    let head = format!(", UID {}", uid.as_str().unwrap());
    let first = lines.next().unwrap();
    assert!(first.starts_with("Node n: held by 2 of 2 gates") && first.ends_with(&head), "{first}");
    assert_eq!(
        lines.next().unwrap(),
        "Other taints, which gates do not touch: node.kubernetes.io/not-ready:NoSchedule"
    );
    assert_eq!(
        section(&text, "GPUReady"),
        "\
Gate GPUReady  Closed
  taint       readiness.k8s.io/GPUReady:NoSchedule
  condition   GPUReady is False (DriverMissing) since 2026-03-01T11:55:00Z (5m ago): as reported
              reported 2026-03-01T11:59:48Z (12s ago)
  annotation  none
  record      none (keelet.dev/gates)
  decision    Taint readiness.k8s.io/GPUReady:NoSchedule stays: condition GPUReady is False (DriverMissing) since 2026-03-01T11:55:00Z
  next        the taint is removed when condition GPUReady becomes True. To open it anyway: keelet gates repair n --open GPUReady"
    );
    let cni = section(&text, "CNIReady");
    assert!(cni.contains("  condition   the node has no condition CNIReady\n"), "{cni}");
    assert!(cni.contains(
        "a reporter sets condition CNIReady to True (is one running, and is that the type it reports?). To open"
    ));
    assert_eq!(
        text.lines().last().unwrap(),
        "Controller: gates-1_0123 leads since 2026-03-01T09:00:00Z (3h ago); lease kube-system/keelet-gates renewed at \
         2026-03-01T11:59:58Z (2s ago)"
    );
}

/// CTRL-14, CTRL-15: a gate that only a controller can open says so if none leads.
#[test]
fn a_gate_that_should_open_says_whether_a_controller_leads() {
    let world = World::new();
    world.node("n", &json!([taint("CNIReady")]), &json!({}));
    world.report("n", &condition("CNIReady", "True", "Up"));
    let text = explained(&world, &["node/n"]).unwrap();
    assert!(text.contains("  next        a controller would remove the taint, and none leads\n"), "{text}");
    assert!(text.contains("Controller: none leads: there is no lease kube-system/keelet-gates;"), "{text}");
    lease(&world, "2026-03-01T11:59:58.000000Z");
    let text = explained(&world, &["n"]).unwrap();
    assert!(text.contains("  next        the controller removes the taint now; if that does not happen, an event on the node says why\n"), "{text}");
}

/// GN-2, VEC-70: what only a person can decide, with the command that does it.
#[test]
fn a_taint_that_was_set_by_hand_is_explained_by_annotation_and_record() {
    let world = World::new();
    let annotations = json!({"readiness.k8s.io/CNIReady": "passed"});
    let uid = world.node("n", &json!([taint("CNIReady")]), &annotations)["metadata"]["uid"].clone();
    let record = json!({"node": uid, "gates": {"readiness.k8s.io/CNIReady:NoSchedule": {"passed": "2026-03-01T11:00:00Z", "boot": "b"}}});
    world.patch("n", &json!({"metadata": {"annotations": {"keelet.dev/gates": record.to_string()}}}));
    let text = explained(&world, &["n"]).unwrap();
    let gate = section(&text, "CNIReady");
    for line in [
        "  annotation  readiness.k8s.io/CNIReady: passed",
        "  record      keelet removed the taint at 2026-03-01T11:00:00Z (keelet.dev/gates)",
        "  next        nothing, until a person decides: keelet gates repair n removes the taint, --gate-again CNIReady lets it wait for \
         its condition",
    ] {
        assert!(gate.lines().any(|found| found == line), "{line} is missing in\n{gate}");
    }
}

/// GN-4: with the controller's own options the same decision.
#[test]
fn options_of_the_controller_change_the_decision() {
    let world = World::new();
    world.node("n", &json!([taint("CNIReady")]), &json!({}));
    world.report("n", &condition("CNIReady", "True", "Up"));
    let text = explained(&world, &["n", "--condition-max-age", "10s"]).unwrap();
    assert!(text.contains("Gate CNIReady  Closed"), "{text}");
    assert!(text.contains("the taint is removed when the reporter of condition CNIReady writes it again"), "{text}");
}

#[test]
fn the_shape_for_machines_has_the_same_chain() {
    let world = World::new();
    world.node("n", &json!([taint("CNIReady")]), &json!({}));
    let text = explained(&world, &["n", "-o", "json"]).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["kind"], "GateExplanation");
    assert_eq!(
        (&value["gates"][0]["status"], &value["gates"][0]["record"]),
        (&json!("Closed"), &json!("none (keelet.dev/gates)"))
    );
    assert_eq!(value["controller"], json!({"lease": "kube-system/keelet-gates", "state": "none"}));
    assert_eq!(value["node"]["otherTaints"], json!(["node.kubernetes.io/not-ready:NoSchedule"]));
}

#[test]
fn a_node_that_is_not_there_is_an_error_with_those_that_are() {
    let world = World::new();
    let error = explained(&world, &["n"]).unwrap_err().to_string();
    assert_eq!(error, "node \"n\" not found: the cluster https://cluster.example has no nodes");
    world.node("gpu-1", &json!([]), &json!({}));
    let error = explained(&world, &["gpu-2"]).unwrap_err().to_string();
    assert_eq!(error, "node \"gpu-2\" not found; did you mean gpu-1?; nodes of https://cluster.example: gpu-1");
    let error = explained(&world, &["pod/x"]).unwrap_err().to_string();
    assert_eq!(error, "invalid node \"pod/x\": use node/NAME or NAME");
}
