//! Restarting all containers, step by step: the triggers, the actions and their order (RALL-1..13, RALL-22..28).

use std::time::Duration;

use keelet_pod::ProbeKind;

use super::{
    restart_all::{ALL_FOUR, FOUR, Halt, RULE_42, actions, bring_up, counts, ended, last, restarting, up},
    world::{World, manifest},
};
use crate::{
    Severity, Stage,
    evidence::ExitCause,
    observed::{Acknowledged, InstanceState},
    operation::{KillReason, Operation, Outcome, Step},
    restart::{RestartAllStage, Trigger},
    status::{ConditionType, ContainerState, Phase},
};

/// RALL-9, CON-12: the condition is said, and seen or half a second old, before anything is killed.
#[test]
fn the_condition_is_seen_before_the_first_kill() {
    let mut world = up(FOUR);
    world.acknowledges = false;
    world.seconds(5);
    let (mark, begun) = (world.mark(), world.now);
    world.exit("source", 42);
    assert_eq!(restarting(&world), (true, "ContainerExited", "container source exited with code 42 (restart rule 0)"));
    assert_eq!(world.status().phase, Phase::Pending);
    let plan = world.plan.clone().unwrap();
    assert_eq!(plan.wake_at, Some(begun.plus(Duration::from_millis(500))));
    world.pass(Duration::from_millis(499));
    assert_eq!(actions(&world, mark), Vec::<String>::new(), "not a single operation before half a second");
    world.observed.acknowledged = Acknowledged::UpTo(plan.version - 1);
    world.settle();
    assert_eq!(world.mark(), mark, "an older status was seen, not this one");
    world.pass(Duration::from_millis(1));
    assert_eq!(actions(&world, mark)[..3], ["remove setup", "stop side", "stop other"], "then it goes on");
}

/// RALL-9, CON-12: once the status is published, the half second is not waited for.
#[test]
fn kills_follow_the_acknowledgement_at_once() {
    let mut world = up(FOUR);
    world.acknowledges = false;
    let mark = world.mark();
    world.exit("source", 42);
    world.pass(Duration::from_millis(120));
    assert_eq!(world.mark(), mark);
    world.observed.acknowledged = Acknowledged::UpTo(world.plan.clone().unwrap().version);
    world.settle();
    assert_eq!(actions(&world, mark)[..3], ["remove setup", "stop side", "stop other"]);
    assert_eq!(world.running(), ["setup"].into(), "and the rest follows at once (RALL-10)");
}

/// RALL-2, RALL-4..RALL-6, RALL-10, RALL-11, SCN-A15 (superseded: victims go in parallel), SCN-A16, SCN-A19: kills and
/// removals together, the trigger's instance last, then the first init container, all in one moment.
#[test]
fn all_are_killed_and_removed_and_the_pod_starts_from_the_first_init_container() {
    let mut world = up(FOUR);
    world.seconds(5);
    let (mark, now) = (world.mark(), world.now);
    world.exit("source", 42);
    assert_eq!(
        actions(&world, mark),
        ["remove setup", "stop side", "stop other", "remove side", "remove other", "remove source", "launch setup"]
    );
    assert_eq!(world.now, now);
    assert_eq!(world.running(), ["setup"].into());
    assert_eq!(world.observed.containers.len(), 1, "no former instance is left");
    assert!(matches!(world.evidence.durable.restart_all.stage, RestartAllStage::Starting(_)));
}

fn crowd(victims: usize) -> World {
    let hook = "lifecycle: {preStop: {exec: {command: [bye]}}}";
    let names: Vec<String> = (0..victims).map(|n| format!("  - {{name: v{n}, image: 'app:1', {hook}}}\n")).collect();
    up(&format!(
        "  restartPolicy: Never\n  containers:\n  - {{name: source, image: 'app:1', restartPolicy: Never, {RULE_42}}}\n{}",
        names.concat()
    ))
}

/// DEF-7, CON-14..CON-16, RALL-6, RALL-7, RALL-25, SCN-A24 (superseded: no 2 s), SCN-A27: ten victims get their SIGKILL
/// in one plan, without pre-stop hooks and without a grace period.
#[test]
fn ten_victims_are_killed_at_once_and_without_grace() {
    let mut world = crowd(10);
    world.hold(|operation| matches!(operation, Operation::Stop { .. }));
    world.exit_only("source", 42);
    world.plan_once();
    let plan = world.plan_once();
    let kills: Vec<&Operation> = plan
        .operations
        .iter()
        .map(|step| match step {
            Step::Start { operation, .. } => operation,
            Step::Cancel { .. } => panic!("no operation was running"),
        })
        .collect();
    assert_eq!(kills.len(), 10);
    for kill in kills {
        let Operation::Stop { timeout, reason, .. } = kill else { panic!("{kill:?}") };
        assert_eq!((*timeout, *reason), (Duration::ZERO, KillReason::RestartAll));
    }
    let mark = world.mark();
    world.release();
    assert!(
        actions(&world, mark)[..10].iter().all(|action| action.starts_with("remove v")),
        "{:?}",
        actions(&world, mark)
    );
    assert_eq!(actions(&world, mark)[10], "remove source");
    assert_eq!(world.running().len(), 11, "all within one moment");
    assert!(world.started.iter().all(|(_, operation)| !matches!(operation, Operation::PreStop { .. })));
}

/// RALL-7, RALL-25, TERM-10, DEF-22: a victim that is being stopped already does not keep the grace period of that stop.
#[test]
fn a_stop_under_way_does_not_hold_up_a_restart_of_all() {
    let spec = FOUR.replace(
        "{name: other, image: 'app:1'}",
        "{name: other, image: 'app:1', livenessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 1}}",
    );
    let mut world = up(&spec);
    world.hold(|operation| matches!(operation, Operation::Stop { container, .. } if container == "other"));
    world.answer("other", ProbeKind::Liveness, Outcome::Failure).seconds(1);
    let mark = world.mark();
    world.exit("source", 42).seconds(1);
    assert!(matches!(world.cancelled.as_slice(), [.., Operation::Stop { .. }]), "{:?}", world.cancelled);
    let stops: Vec<Duration> = world
        .since(mark)
        .into_iter()
        .filter_map(|operation| match operation {
            Operation::Stop { container, timeout, .. } if container == "other" => Some(*timeout),
            _ => None,
        })
        .collect();
    assert_eq!(stops, [Duration::ZERO]);
}

/// CON-16: the annotation asks for SIGTERM and a wait; nothing else changes, and still no hook is run.
#[test]
fn a_pod_may_ask_for_a_soft_stop() {
    let spec = FOUR.replace(
        "{name: other, image: 'app:1'}",
        "{name: other, image: 'app:1', lifecycle: {preStop: {sleep: {seconds: 1}}}}",
    );
    let text = manifest(&spec)
        .replace("uid: uid-1", "uid: uid-1, annotations: {keelet.dev/restart-all-grace-period-seconds: '7'}");
    let mut world = World::new(&text);
    bring_up(&mut world);
    let mark = world.mark();
    world.exit("source", 42);
    let stops: Vec<Duration> = world
        .since(mark)
        .into_iter()
        .filter_map(|operation| if let Operation::Stop { timeout, .. } = operation { Some(*timeout) } else { None })
        .collect();
    assert_eq!(stops, [Duration::from_secs(7); 2]);
    assert!(!actions(&world, mark).iter().any(|action| action.starts_with("pre-stop")));
    assert_eq!(last(&world, "other").exit_code, 143);
}

/// RALL-5, RALL-27, SCN-A5: a container restarted in place earlier triggers later; every dead instance goes.
#[test]
fn older_exited_instances_are_removed_too() {
    let rules = "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}, \
                 {action: RestartAllContainers, exitCodes: {operator: In, values: [1, 42]}}]";
    let mut world = up(&format!(
        "  containers:\n  - {{name: source, image: 'app:1', restartPolicy: Always, {rules}}}\n  - {{name: other, image: 'app:1'}}\n"
    ));
    let other = world.id("other");
    world.exit("source", 1);
    assert_eq!((world.id("other"), counts(&world, ["source", "other"])), (other, [1, 0]), "the first match decides");
    world.exit("source", 1).seconds(10);
    world.exit("other", 3);
    assert_eq!(counts(&world, ["source", "other"]), [2, 1]);
    assert_eq!(world.observed.containers.len(), 4, "of the dead ones the newest of each");
    let (mark, trigger) = (world.mark(), world.id("source"));
    world.exit("source", 42);
    assert_eq!(
        actions(&world, mark),
        [
            "remove other",
            "remove source",
            "stop other",
            "remove other",
            "remove source",
            "launch source",
            "launch other"
        ]
    );
    let removed: Vec<&Operation> = world.since(mark);
    assert!(matches!(removed[4], Operation::Remove { id, .. } if *id == trigger), "the trigger's instance is the last");
    assert_eq!(world.observed.containers.len(), 2);
    assert_eq!(counts(&world, ["source", "other"]), [3, 2]);
}

/// RALL-1, RALL-12, SCN-A1..SCN-A3, SCN-A10, SCN-A11, SCN-A13: any kind of container may trigger; all that had run are
/// restarted once, in the same sandbox.
#[test]
fn every_kind_of_container_may_trigger() {
    let spec = |trigger: &str| {
        let rule = |name: &str, policy: &str| match (name == trigger, policy) {
            (true, "") => format!(", restartPolicy: Never, {RULE_42}"),
            (true, _) => format!(", restartPolicy: {policy}, {RULE_42}"),
            (false, "") => String::new(),
            (false, _) => format!(", restartPolicy: {policy}"),
        };
        format!(
            "  restartPolicy: Never\n  initContainers:\n  - {{name: first, image: 'a:1'{}}}\n  - {{name: side, image: 'a:1'{}}}\n  \
             - {{name: second, image: 'a:1'{}}}\n  containers:\n  - {{name: main, image: 'a:1'{}}}\n",
            rule("first", ""),
            rule("side", "Always"),
            rule("second", ""),
            rule("main", "")
        )
    };
    let names = ["first", "side", "second", "main"];
    for (trigger, expected) in [("first", [1, 0, 0, 0]), ("side", [1; 4]), ("second", [1, 1, 1, 0]), ("main", [1; 4])] {
        let mut world = World::with_spec(&spec(trigger));
        world.settle();
        for name in ["first", "second"] {
            if name == trigger {
                break;
            }
            world.exit(name, 0);
        }
        let sandbox = world.observed.sandboxes.clone();
        let ip = world.status().pod_ip.clone();
        world.seconds(3).exit(trigger, 42);
        assert_eq!(world.running(), ["first"].into(), "{trigger}");
        bring_up(&mut world);
        assert_eq!(world.running(), ["main", "side"].into(), "{trigger}");
        assert_eq!(counts(&world, names), expected, "{trigger}");
        assert_eq!((world.status().phase, &world.observed.sandboxes), (Phase::Running, &sandbox), "{trigger}");
        assert_eq!(world.status().pod_ip, ip);
        assert_eq!(last(&world, trigger).exit_code, 42, "{trigger}");
        assert!(world.statuses.iter().any(|status| status.is_true(&ConditionType::AllContainersRestarting)));
        assert!(!world.holds(ConditionType::AllContainersRestarting));
    }
}

/// SCN-A13: an exit that no rule matches restarts no other container.
#[test]
fn an_exit_without_a_match_leaves_the_others_alone() {
    let mut world = up(FOUR);
    let other = world.id("other");
    world.exit("source", 41);
    assert_eq!(world.id("other"), other);
    assert!(!world.evidence.durable.restart_all.stage.is_under_way());
    assert_eq!(world.running(), ["other", "side"].into());
    world.exit("other", 42);
    assert_eq!(world.status().phase, Phase::Failed, "nor does the code of a container without the rule");
}

/// RALL-12: containers that had ended for good run again, whatever their policy.
#[test]
fn containers_that_had_ended_for_good_run_again() {
    let mut world = up(&format!(
        "  restartPolicy: Never\n  containers:\n  - {{name: source, image: 'a:1', restartPolicy: Never, {RULE_42}}}\n  \
         - {{name: done, image: 'a:1', restartPolicy: OnFailure}}\n  - {{name: never, image: 'a:1'}}\n  - {{name: failed, image: 'a:1'}}\n"
    ));
    world.exit("done", 0).exit("never", 0).exit("failed", 7);
    assert_eq!(world.running(), ["source"].into());
    world.exit("source", 42);
    assert_eq!(world.running(), ["done", "failed", "never", "source"].into());
    assert_eq!(counts(&world, ["source", "done", "never", "failed"]), [1; 4]);
    assert_eq!((last(&world, "done").exit_code, last(&world, "failed").exit_code), (0, 7));
}

/// RALL-26, SCN-A4: two containers that exit together cause one restart, both named.
#[test]
fn two_triggers_at_once_cause_one_restart() {
    let spec = FOUR.replace(
        "{name: other, image: 'app:1'}",
        &format!("{{name: other, image: 'app:1', restartPolicy: Never, {RULE_42}}}"),
    );
    let mut world = up(&spec);
    let mark = world.mark();
    world.exit_only("source", 42).exit("other", 42);
    assert_eq!(
        restarting(&world).2,
        "container source exited with code 42 (restart rule 0); container other exited with code 42 (restart rule 0)"
    );
    assert_eq!(
        actions(&world, mark),
        ["remove setup", "stop side", "remove side", "remove source", "remove other", "launch setup"]
    );
    bring_up(&mut world);
    world.seconds(700);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4], "and no loop");
    assert_eq!((last(&world, "source").exit_code, last(&world, "other").exit_code), (42, 42));
    assert_eq!(last(&world, "other").reason, "Error", "a trigger keeps its own reason");
    assert_eq!(last(&world, "side").reason, "RestartingAllContainers");
}

/// RALL-26, SCN-A4: a second trigger that comes while the others are being killed joins the first.
#[test]
fn a_late_trigger_joins_the_restart_under_way() {
    let spec = FOUR.replace(
        "{name: other, image: 'app:1'}",
        &format!("{{name: other, image: 'app:1', restartPolicy: Never, {RULE_42}}}"),
    );
    let mut world = up(&spec);
    world.acknowledges = false;
    world.exit("source", 42);
    let mark = world.mark();
    world.exit("other", 42);
    world.pass(Duration::from_millis(500));
    let order = actions(&world, mark);
    assert_eq!(order, ["remove setup", "stop side", "remove side", "remove source", "remove other", "launch setup"]);
    assert_eq!(world.evidence.durable.restart_all.stage.triggers().len(), 2);
    bring_up(&mut world);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
}

/// RALL-26: a victim whose 137 matches its own rule triggers nothing.
#[test]
fn the_kill_of_a_victim_is_no_trigger() {
    let any = "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: NotIn, values: [0]}}]";
    let spec = FOUR.replace(
        "{name: other, image: 'app:1'}",
        &format!("{{name: other, image: 'app:1', restartPolicy: Never, {any}}}"),
    );
    let mut world = up(&spec);
    world.exit("source", 42);
    bring_up(&mut world);
    let triggers = world.evidence.durable.restart_all.stage.triggers().to_vec();
    assert!(matches!(&triggers[..], [Trigger::Exit { container, .. }] if container == "source"), "{triggers:?}");
    world.seconds(700);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
    assert_eq!(world.events.iter().filter(|(reason, _)| reason == "RestartAllContainers").count(), 1);
    assert_eq!(last(&world, "other").exit_code, 137);
    assert_eq!(last(&world, "other").reason, "RestartingAllContainers");
}

/// RALL-1: a probe's kill as such does not trigger, but its exit code may match.
#[test]
fn the_exit_code_of_a_probe_kill_may_trigger() {
    for (code, expected) in [(143, [1, 1]), (42, [0, 0])] {
        let mut world = up(&format!(
            "  restartPolicy: Never\n  containers:\n  - name: source\n    image: app:1\n    restartPolicy: Never\n    \
             restartPolicyRules: [{{action: RestartAllContainers, exitCodes: {{operator: In, values: [{code}]}}}}]\n    \
             livenessProbe: {{tcpSocket: {{port: 80}}, periodSeconds: 1, failureThreshold: 1}}\n  - {{name: other, image: 'app:1'}}\n"
        ));
        world.answer("source", ProbeKind::Liveness, Outcome::Failure);
        world.seconds(1);
        world.answer("source", ProbeKind::Liveness, Outcome::Success).seconds(1);
        assert_eq!(counts(&world, ["source", "other"]), expected, "rule for {code}");
        assert_eq!(world.running().contains("source"), code == 143);
    }
}

/// RALL-5, RALL-22, SCN-A20: while containers are removed nothing is started, probed or killed for its probes; the new
/// instances are probed without former evidence.
#[test]
fn nothing_else_happens_while_containers_are_removed() {
    let spec = FOUR.replace(
        "{name: other, image: 'app:1'}",
        "{name: other, image: 'app:1', livenessProbe: {tcpSocket: {port: 80}, periodSeconds: 1, failureThreshold: 2}, \
         startupProbe: {tcpSocket: {port: 80}, periodSeconds: 1, failureThreshold: 5}}",
    );
    let mut world = up(&spec);
    world.seconds(3).answer("other", ProbeKind::Liveness, Outcome::Failure);
    world.seconds(1);
    world.hold(|operation| matches!(operation, Operation::Stop { .. } | Operation::Probe { .. }));
    world.seconds(1);
    let mark = world.mark();
    world.exit("source", 42);
    assert!(
        world.cancelled.iter().any(|operation| matches!(operation, Operation::Probe { .. })),
        "its probe is cut off"
    );
    world.seconds(5);
    assert_eq!(actions(&world, mark), ["remove setup", "stop side", "stop other"]);
    assert_eq!(world.probes_since(mark, "other", ProbeKind::Liveness), 0);
    world.answer("other", ProbeKind::Startup, Outcome::Failure).release();
    bring_up(&mut world);
    assert_eq!(world.container("other").started, Some(false), "startup is probed anew");
    world.answer("other", ProbeKind::Startup, Outcome::Success).answer("other", ProbeKind::Liveness, Outcome::Success);
    world.seconds(5);
    assert_eq!((counts(&world, ALL_FOUR), world.container("other").started), ([1; 4], Some(true)));
    let why = world.evidence.durable.container("other").unwrap().last_exit.clone().unwrap();
    assert_eq!(why.cause, ExitCause::Killed(KillReason::RestartAll), "the failing probe killed no container");
}

/// RALL-18: a container with unknown state during the restart was ended by the restart.
#[test]
fn an_unknown_state_during_the_restart_is_explained_by_it() {
    let mut world = up(FOUR);
    world.acknowledges = false;
    world.exit("source", 42);
    world.running_instance("other").state = InstanceState::Unknown;
    world.settle();
    let lost = ended(&world, "other");
    assert_eq!((lost.exit_code, lost.reason.as_str()), (137, "RestartingAllContainers"));
    Halt::Announced.go_on(&mut world);
    world.pass(Duration::from_millis(500));
    bring_up(&mut world);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
    assert_eq!(last(&world, "other").reason, "RestartingAllContainers");
}

/// RALL-16, RALL-5: a launch that is running at the trigger is cancelled; if the cancellation comes too late, the new
/// instance is killed with the others.
#[test]
fn a_launch_under_way_is_called_off() {
    for too_late in [false, true] {
        let mut world = up(FOUR);
        world.exit("side", 1);
        world.hold(|operation| matches!(operation, Operation::Launch { .. }));
        world.exit("side", 1).seconds(10);
        assert_eq!(world.in_flight().len(), 1, "the third instance of side is being started");
        world.cancels_too_late = too_late;
        world.exit("source", 42);
        assert!(matches!(&world.cancelled[..], [Operation::Launch { container, .. }] if container == "side"));
        world.cancels_too_late = false;
        world.hold(|_| false).release();
        bring_up(&mut world);
        assert_eq!(world.running(), ["other", "side", "source"].into());
        let side = if too_late { 3 } else { 2 };
        assert_eq!(counts(&world, ALL_FOUR), [1, side, 1, 1], "too late: {too_late}");
    }
}

/// EVT-3, EVT-8, RALL-8: events name the trigger and the containers that are killed.
#[test]
fn events_name_the_trigger() {
    let mut world = up(FOUR);
    world.exit_only("source", 42);
    let plan = world.plan_once();
    let [event] = &plan.events[..] else { panic!("{:?}", plan.events) };
    assert_eq!(
        (event.reason, event.severity, event.container.as_deref()),
        ("RestartAllContainers", Severity::Normal, Some("source"))
    );
    assert!(event.message.contains("container source exited with code 42"), "{}", event.message);
    world.settle();
    let kills: Vec<&String> =
        world.events.iter().filter(|(reason, _)| reason == "Killing").map(|(_, text)| text).collect();
    assert_eq!(kills.len(), 2);
    assert!(world.saw_event("Killing", "Stopping container other: container source exited with code 42"), "{kills:?}");
}

/// RALL-28, SCN-A25: deletion ends a restart at any point; what still runs is stopped with the normal grace period.
#[test]
fn deletion_wins_at_any_point() {
    for halt in Halt::ALL {
        let mut world = up(FOUR);
        halt.reach(&mut world);
        let (mark, launches) = (world.mark(), world.launches("setup").len());
        world.delete(30);
        halt.go_on(&mut world);
        assert_eq!(world.stage(), Stage::Gone, "{halt:?}");
        assert_eq!(world.launches("setup").len(), launches, "{halt:?}: nothing is started any more");
        assert_eq!(world.status().phase, Phase::Failed, "{halt:?}");
        assert!(!world.evidence.durable.restart_all.stage.is_under_way());
        assert!(!world.holds(ConditionType::AllContainersRestarting), "{halt:?}");
        for operation in world.since(mark) {
            if let Operation::Stop { timeout, reason, .. } = operation {
                assert_eq!((*timeout, *reason), (Duration::from_secs(30), KillReason::PodEnding), "{halt:?}");
            }
        }
    }
    // A trigger that exits while the pod is ending restarts nothing.
    let mut world = up(FOUR);
    world.hold(|operation| matches!(operation, Operation::Stop { .. })).delete(30);
    world.exit("source", 42);
    assert!(!world.evidence.durable.restart_all.stage.is_under_way());
    world.release();
    assert_eq!(world.stage(), Stage::Gone);
    assert!(matches!(world.container("source").state, ContainerState::Terminated(_)));
}
