use keelet_gates::settings::Settings;
use serde_json::{Value, json};

use super::*;
use crate::gates::testing::{World, condition, now, simulate, taint};

fn args(words: &[&str]) -> Args {
    use clap::{Args as _, FromArgMatches as _};
    let command = Args::augment_args(clap::Command::new("status"));
    let matches = command.try_get_matches_from([&["status"], words].concat()).unwrap();
    Args::from_arg_matches(&matches).unwrap()
}

/// A cluster in which gates are in every state.
fn world() -> World {
    let world = World::new();
    world.node("waits", &json!([taint("CNIReady"), taint("GPUReady")]), &json!({}));
    world.report("waits", &condition("vendor.example.com/CNIReady", "False", "Starting"));
    world.node("opens", &json!([taint("CNIReady")]), &json!({}));
    world.report("opens", &condition("CNIReady", "True", "Up"));
    world.node("wrong", &json!([{"key": "readiness.k8s.io/CNIReady", "effect": "NoExecute"}]), &json!({}));
    let uid =
        world.node("passed", &json!([]), &json!({"readiness.k8s.io/CNIReady": "passed"}))["metadata"]["uid"].clone();
    let record =
        json!({"node": uid, "gates": {"readiness.k8s.io/CNIReady:NoSchedule": {"passed": "2026-03-01T11:00:00Z"}}});
    world.patch("passed", &json!({"metadata": {"annotations": {"keelet.dev/gates": record.to_string()}}}));
    world.node("claims", &json!([]), &json!({"readiness.k8s.io/CNIReady": "passed"}));
    world.node("plain", &json!([]), &json!({}));
    world
}

/// What is printed, and what is said of nodes that are not there.
fn printed(world: &World, words: &[&str]) -> (String, Vec<String>) {
    let args = args(words);
    simulate(async {
        let cluster = world.cluster();
        let mut survey = world.survey(&cluster).await;
        let found = find(&args, &mut survey).await.unwrap();
        let mut printer = Printer::new(&args);
        let gates = found.nodes.iter().flat_map(|seen| gates(&survey, seen, now()));
        let gates: Vec<_> = gates.filter(|gate| printer.shows(gate)).collect();
        (printer.text(&gates, now()).unwrap(), found.missing)
    })
}

/// CTRL-15: what holds a node, since when, and when its condition was last reported.
#[test]
fn every_gate_is_shown_with_what_holds_it() {
    let (text, _) = printed(&world(), &[]);
    assert_eq!(
        text,
        "\
NODE     GATE       STATUS    REASON             CONDITION                           SINCE    REPORTED
claims   CNIReady   Open      claimed            CNIReady <none>                     <none>   <none>
opens    CNIReady   Opening   passes             CNIReady=True                       5m       12s
passed   CNIReady   Open      passed             CNIReady <none>                     <none>   <none>
waits    CNIReady   Closed    condition-false    vendor.example.com/CNIReady=False   5m       12s
waits    GPUReady   Closed    condition-absent   GPUReady <none>                     <none>   <none>
wrong    CNIReady   Ignored   wrong-effect       CNIReady <none>                     <none>   <none>
"
    );
}

#[test]
fn nodes_are_chosen_by_name_by_label_and_by_state() {
    let world = world();
    let nodes = |words: &[&str]| {
        let (text, missing) = printed(&world, words);
        let nodes: Vec<_> = text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        (nodes.join(" "), missing)
    };
    assert_eq!(nodes(&["--no-headers", "--closed"]).0, "opens waits waits wrong");
    assert_eq!(nodes(&["--no-headers", "-l", "pool in (opens, passed)"]).0, "opens passed");
    assert_eq!(nodes(&["--no-headers", "node/opens", "passed"]).0, "opens passed");
    let (found, missing) = nodes(&["--no-headers", "opens", "wait"]);
    let nodes = "claims, opens, passed, plain, waits, wrong";
    assert_eq!(found, "opens");
    assert_eq!(
        missing,
        [format!("node \"wait\" not found; did you mean waits?; nodes of https://cluster.example: {nodes}")]
    );
}

#[test]
fn wide_shows_reporter_taint_rules_and_message() {
    let (text, _) = printed(&world(), &["-o", "wide", "opens"]);
    assert_eq!(
        text,
        "\
NODE    GATE       STATUS    REASON   CONDITION       SINCE   REPORTED   REPORTER   TAINT                                  RULES    MESSAGE
opens   CNIReady   Opening   passes   CNIReady=True   5m      12s        <none>     readiness.k8s.io/CNIReady:NoSchedule   <none>   Up: as reported
"
    );
}

#[test]
fn json_and_yaml_have_all_of_it() {
    let world = world();
    let (text, _) = printed(&world, &["-o", "json", "waits"]);
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("GateList"), 2));
    assert_eq!(
        list["items"][0],
        json!({
            "node": "waits", "gate": "CNIReady", "status": "Closed", "reason": "condition-false",
            "taint": {"key": "readiness.k8s.io/CNIReady", "effect": "NoSchedule", "present": true},
            "decision": "Taint readiness.k8s.io/CNIReady:NoSchedule stays: condition vendor.example.com/CNIReady is False (Starting) \
                         since 2026-03-01T11:55:00Z",
            "conditions": [{
                "wanted": "CNIReady", "required": "True",
                "found": {
                    "type": "vendor.example.com/CNIReady", "status": "False", "reason": "Starting", "message": "as reported",
                    "since": "2026-03-01T11:55:00Z", "reported": "2026-03-01T11:59:48Z", "reporter": null,
                },
            }],
        })
    );
    let (text, _) = printed(&world, &["-o", "yaml", "opens"]);
    assert!(text.contains("- conditions:\n") && text.contains("  status: Opening\n"), "{text}");
}

/// CTRL-18, CTRL-22: no object and no permission beyond reading nodes is needed.
#[test]
fn a_missing_permission_is_named_with_the_rule_that_grants_it() {
    let world = World::granting(&["get"]);
    let error = simulate(async {
        let cluster = world.cluster();
        let mut survey = Survey::begin(&cluster, Settings::default()).await.unwrap();
        format!("{:#}", survey.list("").await.unwrap_err())
    });
    assert_eq!(
        error,
        "not allowed:\n  list nodes\n    granted by this rule of a ClusterRole: {apiGroups: [\"\"], resources: [nodes], verbs: [list]}\n\
         The API server https://cluster.example says: nodes is forbidden: User \"alice\" cannot list resource \"nodes\" in API group \"\" \
         at the cluster scope"
    );
}

/// What `-w` prints after the list: changes of gates, no heartbeats, and nodes that go.
#[test]
fn a_watch_prints_changes_and_no_heartbeats() {
    let world = world();
    let args = args(&["--no-headers"]);
    let rows = simulate(async {
        let cluster = world.cluster();
        let mut survey = world.survey(&cluster).await;
        let mut known = watch::Known::new();
        let mut rows = Vec::new();
        let mut look = async |what: &str| {
            let seen = survey.node("waits").await.unwrap();
            let news = watch::change(&mut known, &survey, &seen, now());
            let shown = news.iter().map(|gate| format!("{} {}", gate.gate, gate.reason)).collect::<Vec<_>>();
            rows.push(format!("{what}: {}", shown.join(", ")));
        };
        look("list").await;
        let mut beat = condition("vendor.example.com/CNIReady", "False", "Starting");
        beat[0]["lastHeartbeatTime"] = json!("2026-03-01T12:00:00Z");
        world.report("waits", &beat);
        look("heartbeat").await;
        world.report("waits", &condition("GPUReady", "True", "Installed"));
        look("condition").await;
        world.patch("waits", &json!({"spec": {"taints": [taint("CNIReady")]}}));
        look("taint removed").await;
        let gone = watch::removed(&mut known, "waits");
        rows.extend(gone.iter().map(|gate| format!("deleted: {} {}", gate.gate, gate.reason)));
        rows
    });
    assert_eq!(
        rows,
        [
            "list: CNIReady condition-false, GPUReady condition-absent",
            "heartbeat: ",
            "condition: GPUReady passes",
            "taint removed: GPUReady gate-removed",
            "deleted: CNIReady node-deleted"
        ]
    );
    assert_eq!(query(&args), "");
}

#[test]
fn nothing_is_said_in_words() {
    assert_eq!(nothing(&args(&[]), 3), "No gates on the 3 nodes: none has a taint below readiness.k8s.io/, or had one");
    assert_eq!(nothing(&args(&["--closed"]), 1), "No closed gates on the node");
}
