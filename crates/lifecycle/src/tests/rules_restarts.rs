//! Restart rules at work: restarts in place, init containers, phases (RULE-*, SCN-R*).

use keelet_pod::ProbeKind;

use super::world::World;
use crate::{
    Stage,
    evidence::{EndingCause, ExitCause},
    observed::InstanceState,
    operation::{KillReason, Operation, Outcome},
    restart::RestartAllRule,
    status::{ContainerState, Phase},
};

const IN_42: &str = "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]";

fn one(pod_policy: &str, container: &str) -> World {
    let mut world = World::with_spec(&format!(
        "  restartPolicy: {pod_policy}\n  containers:\n  - {{name: a, image: app{container}}}\n"
    ));
    world.settle();
    world
}

/// SCN-R1..SCN-R5, RULE-4, RULE-7, RULE-10, RULE-12: which containers are restarted in place, and the phase of the pod.
#[test]
fn an_exit_restarts_the_container_or_ends_the_pod() {
    let rule = format!(", restartPolicy: Never, {IN_42}");
    let zero =
        ", restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [0]}}]";
    let rows = [
        ("SCN-R1", "Never", rule.as_str(), 42, true, Phase::Running),
        ("SCN-R2", "Never", rule.as_str(), 1, false, Phase::Failed),
        ("SCN-R2", "Never", rule.as_str(), 0, false, Phase::Succeeded),
        ("SCN-R3", "Always", ", restartPolicy: Never", 1, false, Phase::Failed),
        ("SCN-R3", "Always", ", restartPolicy: Never", 0, false, Phase::Succeeded),
        ("SCN-R4", "Never", ", restartPolicy: Always", 1, true, Phase::Running),
        ("SCN-R4", "Never", ", restartPolicy: Always", 0, true, Phase::Running),
        ("SCN-R5", "Always", "", 1, true, Phase::Running),
        ("RULE-7", "Never", zero, 0, true, Phase::Running),
        ("RULE-7", "Never", zero, 1, false, Phase::Failed),
    ];
    for (row, pod_policy, container, exit_code, restarts, phase) in rows {
        let mut world = one(pod_policy, container);
        let first = world.id("a");
        world.seconds(5).exit("a", exit_code);
        let label = format!("{row} {pod_policy} {container} {exit_code}");
        assert_eq!(world.status().phase, phase, "{label}");
        assert_eq!(world.container("a").restart_count, u32::from(restarts), "{label}");
        assert_eq!(world.running().contains("a"), restarts, "{label}");
        if restarts {
            assert_ne!(world.id("a"), first, "{label}");
            assert_eq!(world.launches("a"), [0, 5], "{label}");
            let last = world.container("a").last_state.terminated.clone().unwrap();
            assert_eq!((last.exit_code, last.container_id), (exit_code, Some(first)), "{label}");
            assert_eq!(world.stage(), Stage::Live, "{label}");
        } else {
            assert_eq!(world.stage(), Stage::Ended, "{label}");
            let ending = world.evidence.durable.ending.clone().unwrap();
            assert_eq!(ending.cause, EndingCause::Finished, "{label}");
            assert!(world.observed.sandboxes.iter().all(|sandbox| !sandbox.ready), "{label}: the sandbox is stopped");
        }
    }
}

const PAIR: &str = "{name: a, image: app, restartPolicy: POLICY}, {name: b, image: app, restartPolicy: OTHER}";

/// SCN-R10, RULE-4: the phase follows the policies of the containers, not the pod's.
#[test]
fn the_phase_follows_the_policies_of_the_containers() {
    let rows = [
        ("Never", "Never", 1, 1, Phase::Failed),
        ("OnFailure", "OnFailure", 1, 1, Phase::Running),
        ("Always", "Always", 1, 1, Phase::Running),
        ("Never", "OnFailure", 1, 1, Phase::Running),
        ("Never", "OnFailure", 1, 0, Phase::Failed),
        ("OnFailure", "OnFailure", 0, 0, Phase::Succeeded),
        ("Never", "Never", 0, 0, Phase::Succeeded),
        ("Never", "Never", 0, 1, Phase::Failed),
        ("Never", "Always", 0, 0, Phase::Running),
    ];
    for pod_policy in ["Always", "Never"] {
        for (policy, other, first, second, phase) in rows {
            let containers = PAIR.replace("POLICY", policy).replace("OTHER", other);
            let mut world = World::with_spec(&format!("  restartPolicy: {pod_policy}\n  containers: [{containers}]\n"));
            world.settle().hold(|operation| matches!(operation, Operation::Launch { .. }));
            world.exit_only("a", first).exit("b", second);
            assert_eq!(world.status().phase, phase, "{pod_policy}: {policy} {first}, {other} {second}");
        }
    }
}

fn with_init(pod_policy: &str, init: &str) -> World {
    let mut world = World::with_spec(&format!(
        "  restartPolicy: {pod_policy}\n  initContainers:\n  - {{name: i, image: tool{init}}}\n  \
         containers:\n  - {{name: a, image: app}}\n"
    ));
    world.settle();
    world
}

/// SCN-R10, RULE-5: a failed init container is run again while its policy or rule says so; else the pod has failed.
#[test]
fn a_failed_init_container_is_run_again_or_fails_the_pod() {
    let rule = format!(", restartPolicy: Never, {IN_42}");
    let rows = [
        ("Always", ", restartPolicy: Never", 1, false),
        ("Never", "", 1, false),
        ("Never", ", restartPolicy: OnFailure", 1, true),
        ("OnFailure", "", 1, true),
        ("Always", "", 1, true),
        ("Never", rule.as_str(), 42, true),
        ("Never", rule.as_str(), 41, false),
    ];
    for (pod_policy, init, exit_code, again) in rows {
        let mut world = with_init(pod_policy, init);
        world.exit("i", exit_code);
        let label = format!("{pod_policy} {init} {exit_code}");
        assert_eq!(world.running().contains("i"), again, "{label}");
        assert!(!world.running().contains("a"), "{label}");
        if again {
            assert_eq!(world.status().phase, Phase::Pending, "{label}");
            assert_eq!(world.container("i").restart_count, 1, "{label}");
            world.exit("i", 0);
            assert_eq!(world.running(), ["a"].into(), "{label}");
        } else {
            assert_eq!(world.status().phase, Phase::Failed, "{label}");
            let cause = world.evidence.durable.ending.clone().unwrap().cause;
            assert_eq!(cause, EndingCause::InitFailed { container: "i".to_owned() }, "{label}");
            assert!(world.launches("a").is_empty(), "{label}");
        }
    }
}

/// RULE-5, CON-18d: exit 0 of an init container means done, also if a `Restart` rule matches it.
#[test]
fn a_rule_does_not_run_a_successful_init_container_again() {
    let zero =
        ", restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [0]}}]";
    let mut world = with_init("Never", zero);
    world.exit("i", 0);
    assert_eq!(world.running(), ["a"].into());
    assert_eq!(world.launches("i"), [0]);
    assert_eq!(world.container("i").restart_count, 0);
}

fn out_of_memory(world: &mut World, name: &str) {
    world.exit_only(name, 0);
    let instance = world.observed.containers.iter_mut().rfind(|instance| instance.name == name).unwrap();
    let InstanceState::Exited { reason, .. } = &mut instance.state else { panic!("it has ended") };
    *reason = "OOMKilled".to_owned();
    world.settle();
}

/// RULE-5: an init container that the OOM killer took has failed, even if it managed to return 0.
#[test]
fn an_init_container_killed_for_its_memory_has_failed() {
    let mut world = with_init("OnFailure", "");
    out_of_memory(&mut world, "i");
    assert_eq!(world.running(), ["i"].into());
    assert_eq!(world.container("i").restart_count, 1);
    let mut world = with_init("Never", "");
    out_of_memory(&mut world, "i");
    assert_eq!(world.status().phase, Phase::Failed);
    assert!(world.launches("a").is_empty());
}

/// RULE-3: a signal counts as 128 plus its number, also where a probe's kill caused it.
#[test]
fn the_exit_code_of_a_probe_kill_is_judged_by_the_rules() {
    let spec = |code: i32| {
        format!(
            "  restartPolicy: Never\n  containers:\n  - name: a\n    image: app\n    restartPolicy: Never\n    \
             restartPolicyRules: [{{action: Restart, exitCodes: {{operator: In, values: [{code}]}}}}]\n    \
             livenessProbe: {{tcpSocket: {{port: 80}}, periodSeconds: 1, failureThreshold: 1}}\n"
        )
    };
    for (code, restarts) in [(143, true), (137, false), (15, false)] {
        let mut world = World::with_spec(&spec(code));
        world.settle().answer("a", ProbeKind::Liveness, Outcome::Failure);
        world.seconds(1);
        world.answer("a", ProbeKind::Liveness, Outcome::Success);
        let exit = world.evidence.durable.container("a").unwrap().last_exit.clone().unwrap();
        assert_eq!((exit.exit_code, exit.cause), (143, ExitCause::Killed(KillReason::Probe(ProbeKind::Liveness))));
        assert_eq!(world.running().contains("a"), restarts, "rule for {code}");
        assert_eq!(world.status().phase, if restarts { Phase::Running } else { Phase::Failed });
    }
}

/// RULE-9: an init container with unknown state is run again by policy alone; rules have no exit code to match.
#[test]
fn rules_do_not_judge_an_init_container_of_unknown_state() {
    let any =
        ", restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: NotIn, values: []}}]";
    let rows = [
        ("Always", "", true),
        ("OnFailure", "", true),
        ("Never", "", false),
        ("Never", ", restartPolicy: OnFailure", true),
        ("Always", ", restartPolicy: Never", false),
        ("Always", any, false),
    ];
    for (pod_policy, init, again) in rows {
        let mut world = with_init(pod_policy, init);
        let lost = world.id("i");
        world.running_instance("i").state = InstanceState::Unknown;
        let mark = world.mark();
        world.settle();
        let label = format!("{pod_policy} {init}");
        assert!(matches!(world.since(mark)[0], Operation::Stop { id, .. } if *id == lost), "{label}");
        assert_eq!(world.running().contains("i"), again, "{label}");
        assert_eq!(world.status().phase, if again { Phase::Pending } else { Phase::Failed }, "{label}");
    }
}

/// RULE-12, SCN-R11: with nothing kept and nothing to start, the sidecars are stopped and the pod finishes.
#[test]
fn a_pod_with_nothing_left_to_run_stops_its_sidecars() {
    let mut world = World::with_spec(
        "  restartPolicy: Never\n  initContainers:\n  - {name: s, image: proxy, restartPolicy: Always}\n  \
         containers: [{name: a, image: app}, {name: b, image: app}]\n",
    );
    world.settle().exit("a", 0);
    assert_eq!(world.running(), ["b", "s"].into());
    assert_eq!(world.status().phase, Phase::Running);
    world.exit("b", 0);
    assert_eq!(world.running(), [].into());
    assert_eq!(world.status().phase, Phase::Succeeded);
    assert_eq!(world.launches("s"), [0]);
}

/// SCN-R11: exited, failed and merely created containers start as their own policy says; none under Never.
#[test]
fn actions_follow_the_policy_of_each_container() {
    let rows = [("Always", 0, true), ("Always", 1, true), ("OnFailure", 0, false), ("OnFailure", 1, true)];
    let rows = rows.into_iter().chain([("Never", 0, false), ("Never", 1, false)]);
    for (policy, exit_code, restarts) in rows {
        let mut world = World::with_spec(&format!(
            "  restartPolicy: Always\n  containers: [{{name: a, image: app, restartPolicy: {policy}}}, \
             {{name: keep, image: app}}]\n"
        ));
        world.settle();
        let mark = world.mark();
        world.exit("a", exit_code);
        let sandbox = world.observed.sandboxes[0].id.clone();
        let pull = Operation::EnsureImage { container: "a".to_owned(), image: "app".to_owned() };
        let launch = Operation::Launch { container: "a".to_owned(), attempt: 1, sandbox };
        let expected: Vec<&Operation> = if restarts { vec![&pull, &launch] } else { vec![] };
        assert_eq!(world.since(mark), expected, "{policy} {exit_code}");
        assert!(world.running().contains("keep"));
    }
    for policy in ["Always", "OnFailure", "Never"] {
        let mut world = one("Never", &format!(", restartPolicy: {policy}"));
        // An agent that died between making a container and starting it leaves one that is merely created.
        world.running_instance("a").state = InstanceState::Created;
        world.evidence = crate::Evidence::default();
        let (id, mark) = (world.id("a"), world.mark());
        world.restart_agent();
        let start = Operation::StartCreated { container: "a".to_owned(), id: id.clone() };
        assert!(world.since(mark).contains(&&start), "{policy}");
        assert_eq!(world.id("a"), id);
        assert_eq!(world.running(), ["a"].into());
    }
}

/// RULE-13: a container that restarts is probed again from nothing; one that stays down is not probed.
#[test]
fn probes_go_on_for_a_container_that_restarts_only() {
    let spec = |policy: &str| {
        format!(
            "  restartPolicy: Always\n  containers:\n  - {{name: keep, image: app}}\n  - name: a\n    image: app\n    \
             restartPolicy: {policy}\n    readinessProbe: {{tcpSocket: {{port: 80}}, periodSeconds: 1}}\n"
        )
    };
    for (policy, probes) in [("Always", 4), ("Never", 0)] {
        let mut world = World::with_spec(&spec(policy));
        world.seconds(3);
        world.exit_only("a", 1);
        let mark = world.mark();
        world.settle().seconds(3);
        assert_eq!(world.probes_since(mark, "a", ProbeKind::Readiness), probes, "{policy}");
        assert_eq!(world.container("a").ready, probes > 0, "{policy}");
    }
}

/// RULE-1, RULE-2, VEC-13: with the feature gate off a match of the rule for all is skipped, and later rules do not count.
#[test]
fn with_the_gate_off_the_containers_policy_decides() {
    let all = "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
    for (policy, restarts) in [("Always", true), ("OnFailure", true), ("Never", false)] {
        let mut world = World::with_spec(&format!(
            "  restartPolicy: Never\n  containers: [{{name: a, image: app, restartPolicy: {policy}, {all}}}, \
             {{name: b, image: app}}]\n"
        ));
        world.settle();
        world.rules.restart_all = RestartAllRule::Ignored;
        let other = world.id("b");
        world.seconds(1).exit("a", 42);
        assert_eq!(world.running().contains("a"), restarts, "{policy}");
        assert_eq!(world.id("b"), other, "{policy}: the other one is left alone");
        if !restarts {
            assert!(matches!(&world.container("a").state, ContainerState::Terminated(ended) if ended.exit_code == 42));
        }
    }
}
