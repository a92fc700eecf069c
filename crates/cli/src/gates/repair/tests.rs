use keelet_sim_api::Verb;
use serde_json::{Value, json};

use super::*;
use crate::gates::testing::{World, condition, now, simulate, taint};

fn args(words: &[&str]) -> Args {
    use clap::{Args as _, FromArgMatches as _};
    let command = Args::augment_args(clap::Command::new("repair"));
    let matches = command.try_get_matches_from([&["repair"], words].concat()).unwrap();
    Args::from_arg_matches(&matches).unwrap()
}

/// A person who reads nothing.
fn person<'a>(ask: &'a dyn Fn() -> Result<Answer>) -> Person<'a> {
    Person { show: &|_| Ok(()), tell: &|_| {}, ask }
}

/// Repairs as a person who says yes.
fn repaired(world: &World, words: &[&str]) -> Result<ExitStatus> {
    answered(world, words, Answer::Yes)
}

fn answered(world: &World, words: &[&str], answer: Answer) -> Result<ExitStatus> {
    let args = args(words);
    simulate(async {
        let cluster = world.cluster();
        let mut survey = world.survey(&cluster).await;
        repair(&args, &mut survey, now(), &person(&|| Ok(answer))).await
    })
}

/// What would be done: steps and notes.
fn steps(world: &World, words: &[&str]) -> (Vec<String>, Vec<String>) {
    let args = args(words);
    simulate(async {
        let cluster = world.cluster();
        let mut survey = world.survey(&cluster).await;
        let seen = survey.node(&args.node).await.unwrap();
        let choices = Choices { open: args.open.clone(), gate_again: args.gate_again.clone() };
        let Plan { steps, notes, .. } = planned(&survey, &seen, &choices, now()).unwrap();
        (steps, notes)
    })
}

/// A node whose gate has passed, and whose taint was added afterwards.
fn by_hand() -> World {
    let world = World::new();
    let annotations = json!({"readiness.k8s.io/CNIReady": "passed"});
    let foreign = json!({"key": "team", "value": "a", "effect": "NoExecute"});
    let uid = world.node("n", &json!([foreign, taint("CNIReady")]), &annotations)["metadata"]["uid"].clone();
    let record =
        json!({"node": uid, "gates": {"readiness.k8s.io/CNIReady:NoSchedule": {"passed": "2026-03-01T11:00:00Z"}}});
    world.patch("n", &json!({"metadata": {"annotations": {"keelet.dev/gates": record.to_string()}}}));
    world
}

fn annotation(world: &World, key: &str) -> Value {
    world.get("n")["metadata"]["annotations"][key].clone()
}

fn patches(world: &World) -> usize {
    world.api.with_log(|log| {
        log.requests().filter(|(client, request)| *client == "alice" && request.verb == Some(Verb::Patch)).count()
    })
}

/// GN-2, VEC-70: the taint goes, the record stays, and foreign taints are not touched.
#[test]
fn a_taint_that_was_set_by_hand_is_removed() {
    let world = by_hand();
    let (steps, _) = steps(&world, &["n"]);
    assert_eq!(
        steps,
        [
            "remove the taint readiness.k8s.io/CNIReady:NoSchedule, which was added after the gate had passed at 2026-03-01T11:00:00Z; \
          --gate-again CNIReady keeps it instead"
        ]
    );
    assert_eq!(repaired(&world, &["n"]).unwrap(), ExitStatus::Success);
    assert_eq!(world.taints("n"), ["team:NoExecute"]);
    assert_eq!(annotation(&world, "readiness.k8s.io/CNIReady"), "passed");
    assert_eq!(repaired(&world, &["n"]).unwrap(), ExitStatus::Success, "there is nothing left to do");
    assert_eq!(patches(&world), 1);
}

/// GN-2: the other way out: the gate waits for its condition again.
#[test]
fn a_gate_can_be_made_to_wait_again() {
    let world = by_hand();
    repaired(&world, &["n", "--gate-again", "CNIReady"]).unwrap();
    assert_eq!(world.taints("n"), ["team:NoExecute", "readiness.k8s.io/CNIReady:NoSchedule"]);
    assert_eq!(annotation(&world, "readiness.k8s.io/CNIReady"), Value::Null);
    let (again, notes) = steps(&world, &["n"]);
    assert_eq!(again, Vec::<String>::new());
    assert!(notes[0].contains("stays: the node has no condition CNIReady"), "{notes:?}");
}

#[test]
fn nothing_is_changed_without_a_yes_or_in_a_dry_run() {
    let world = by_hand();
    let before = world.get("n");
    assert_eq!(answered(&world, &["n"], Answer::No).unwrap(), ExitStatus::Failure);
    assert_eq!(patches(&world), 0);
    assert_eq!(answered(&world, &["n", "--dry-run"], Answer::No).unwrap(), ExitStatus::Success);
    assert_eq!(patches(&world), 1, "the API server has checked it");
    assert_eq!(world.get("n"), before);
}

/// The way out of a misconfigured probe (KEP-5233, risks): a person opens the gate, and it stays open.
#[test]
fn a_gate_that_waits_is_opened_only_by_name() {
    let world = World::new();
    world.node("n", &json!([taint("CNIReady"), taint("GPUReady")]), &json!({}));
    let (none, notes) = steps(&world, &["n"]);
    assert_eq!((none.len(), notes.len()), (0, 2));
    assert!(notes[1].ends_with("To open it anyway: --open GPUReady"), "{notes:?}");
    repaired(&world, &["n", "--open", "GPUReady"]).unwrap();
    assert_eq!(world.taints("n"), ["readiness.k8s.io/CNIReady:NoSchedule"]);
    assert_eq!(annotation(&world, "readiness.k8s.io/GPUReady"), "passed");
    let record: Value = serde_json::from_str(annotation(&world, "keelet.dev/gates").as_str().unwrap()).unwrap();
    assert_eq!(record["node"], world.get("n")["metadata"]["uid"]);
    assert_eq!(record["gates"]["readiness.k8s.io/GPUReady:NoSchedule"]["passed"], "2026-03-01T12:00:00Z");
}

/// CTRL-8, CTRL-9, GN-3: taints that no controller handles, and records that count for nothing.
#[test]
fn what_no_controller_handles_is_repaired() {
    let world = World::new();
    let taints = json!([{"key": "readiness.k8s.io/A", "effect": "NoExecute", "value": "v"}, {"key": "readiness.k8s.io/B", "effect": "PreferNoSchedule"},
                        taint("B")]);
    world.node("n", &taints, &json!({"keelet.dev/gates": "{\"node\":\"another\"}"}));
    let (steps, _) = steps(&world, &["n"]);
    assert_eq!(
        steps,
        [
            "the taint readiness.k8s.io/A:NoExecute is no gate, because of its effect: make it NoSchedule",
            "the taint readiness.k8s.io/B:PreferNoSchedule is no gate, because of its effect: remove it: the gate of this name is there",
            "remove the record keelet.dev/gates of another node object (another)",
        ]
    );
    repaired(&world, &["n"]).unwrap();
    assert_eq!(world.taints("n"), ["readiness.k8s.io/A:NoSchedule", "readiness.k8s.io/B:NoSchedule"]);
    assert_eq!(annotation(&world, "keelet.dev/gates"), Value::Null);
}

/// GN-2: without a controller the command does what one would do, in the same patch.
#[test]
fn a_gate_that_should_open_is_opened_as_the_controller_does() {
    let world = World::new();
    world.node("n", &json!([taint("CNIReady")]), &json!({}));
    world.report("n", &condition("CNIReady", "True", "Up"));
    repaired(&world, &["n"]).unwrap();
    assert_eq!(world.taints("n"), Vec::<String>::new());
    assert_eq!(annotation(&world, "readiness.k8s.io/CNIReady"), "passed");
}

/// GN-1: a node that has changed since it was read is not overwritten; the same repair is made again from a fresh object.
#[test]
fn a_concurrent_taint_is_not_lost() {
    let world = by_hand();
    let args = args(&["n"]);
    simulate(async {
        let cluster = world.cluster();
        let mut survey = world.survey(&cluster).await;
        // While the person thinks, another writer adds a taint.
        let meanwhile = || {
            let taints = json!([{"key": "new", "effect": "NoSchedule"}, taint("CNIReady")]);
            world.patch("n", &json!({"spec": {"taints": taints}}));
            Ok(Answer::Yes)
        };
        repair(&args, &mut survey, now(), &person(&meanwhile)).await.unwrap();
    });
    assert_eq!(world.taints("n"), ["new:NoSchedule"]);
    // A node under another UID is another node.
    let world = by_hand();
    let error = simulate(async {
        let cluster = world.cluster();
        let mut survey = world.survey(&cluster).await;
        let meanwhile = || {
            world.api.act("DELETE", "/api/v1/nodes/n", &json!({}));
            world.node("n", &json!([taint("CNIReady")]), &json!({}));
            Ok(Answer::Yes)
        };
        repair(&args, &mut survey, now(), &person(&meanwhile)).await.unwrap_err().to_string()
    });
    assert_eq!(
        error,
        "node n has changed meanwhile, and something else would be done now: nothing was changed; repeat the command"
    );
}

#[test]
fn names_that_mean_no_gate_are_refused() {
    let world = World::new();
    world.node("n", &json!([taint("CNIReady")]), &json!({}));
    for (words, expected) in [
        (["n", "--open", "GPU"], "--open: gate \"GPU\" not found on node n; gates: CNIReady"),
        (
            ["n", "--gate-again", "CNIReady"],
            "--gate-again: gate CNIReady of node n waits for its condition already: Taint readiness.k8s.io/CNIReady:NoSchedule stays: \
             the node has no condition CNIReady",
        ),
    ] {
        assert_eq!(repaired(&world, &words).unwrap_err().to_string(), expected);
    }
    assert_eq!(patches(&world), 0);
}

/// CTRL-18
#[test]
fn a_missing_permission_to_patch_is_named() {
    let world = World::granting(&["get", "list"]);
    world.node("n", &json!([{"key": "readiness.k8s.io/A", "effect": "NoExecute"}]), &json!({}));
    let error = repaired(&world, &["n"]).unwrap_err().to_string();
    assert!(error.starts_with("not allowed:\n  patch nodes\n    granted by this rule of a ClusterRole:"), "{error}");
}
