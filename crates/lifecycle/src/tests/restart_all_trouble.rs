//! Restarts of all containers that repeat, fail, are asked for or forbidden (RALL-23..31, CON-15..17).

use std::time::Duration;

use super::{
    restart_all::{ALL_FOUR, FOUR, Halt, RULE_42, actions, bring_up, condition, counts, ended, last, restarting, up},
    world::{BEGINNING, World},
};
use crate::{
    Stage, Wall,
    evidence::Admission,
    observed::InstanceState,
    operation::{KillReason, OpReport, OpResult, OpState, Operation},
    restart::{RestartAllRule, RestartAllStage},
    status::{ConditionType, ContainerState, Phase, Truth},
};

/// The starts of a container that always exits at once with 42, in seconds since the first.
fn looping(spec: &str, name: &str, seconds: u64) -> World {
    let mut world = World::with_spec(spec);
    world.exits_at_once.insert(name.to_owned(), 42);
    world.seconds(seconds);
    world
}

const PAIR: &str = "
  restartPolicy: Never
  containers:
  - name: source
    image: app:1
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
  - {name: other, image: 'app:1'}
";

/// RALL-24, CON-17, BACK-13, DEF-5, SCN-A21: the first restart is immediate, then they are 10, 20, 40 ... 300 s apart.
#[test]
fn a_loop_of_restarts_is_slowed_down() {
    let world = looping(PAIR, "source", 1300);
    assert_eq!(world.launches("source"), [0, 0, 10, 30, 70, 150, 310, 610, 910, 1210]);
    assert_eq!(world.launches("other"), world.launches("source"), "all start together");
    let mut world = World::with_spec(PAIR);
    world.rules.crash_backoff = world.rules.crash_backoff.with_cap(Duration::from_secs(30));
    world.exits_at_once.insert("source".to_owned(), 42);
    world.seconds(120);
    assert_eq!(world.launches("source"), [0, 0, 10, 30, 60, 90, 120], "the node's cap holds here too");
}

/// RALL-24, CON-17: the wait comes after the cleanup and before the start; the trigger names the next attempt.
#[test]
fn the_wait_comes_between_cleanup_and_start() {
    let mut world = up(FOUR);
    world.exit("source", 42);
    bring_up(&mut world);
    world.seconds(5).exit("source", 42);
    assert_eq!(world.observed.containers.len(), 0, "the old containers are stopped and removed at once");
    assert!(!restarting(&world).0);
    assert_eq!(world.status().phase, Phase::Pending);
    let ContainerState::Waiting(waiting) = world.container("source").state.clone() else { panic!("it waits") };
    let next = Wall::from_millis(BEGINNING + 15_000);
    assert_eq!(waiting.reason, "CrashLoopBackOff");
    assert_eq!(waiting.message, format!("back-off 10 s restarting all containers, next attempt at {next}"));
    for other in ["setup", "side", "other"] {
        assert_eq!(world.waiting_reason(other), Some("RestartingAllContainers"), "{other}");
    }
    assert_eq!(world.plan.as_ref().unwrap().wake_at.map(|at| at.wall), Some(next));
    assert_eq!(counts(&world, ALL_FOUR), [2; 4]);
    let released = |world: &World| {
        let stage = &world.evidence.durable.restart_all.stage;
        matches!(stage, RestartAllStage::Starting(startup) if startup.released)
    };
    world.pass(Duration::from_millis(9_999));
    assert_eq!((world.launches("setup"), released(&world)), (vec![0, 0], false));
    world.pass(Duration::from_millis(1));
    assert_eq!((world.launches("setup"), released(&world)), (vec![0, 0, 15], true));
    assert_eq!(world.waiting_reason("source"), Some("RestartingAllContainers"));
}

/// RALL-24, BACK-3: more than 600 s without a restart, and the next one is immediate again; another image too.
#[test]
fn quiet_minutes_or_another_image_reset_the_wait() {
    let mut world = up(PAIR);
    world.exit("source", 42).exit("source", 42).seconds(10);
    assert_eq!(world.launches("other"), [0, 0, 10]);
    world.seconds(600).exit("source", 42);
    world.seconds(20);
    assert_eq!(world.launches("other"), [0, 0, 10, 630], "600 s are not more than 600 s");
    world.seconds(601).exit("source", 42);
    assert_eq!(world.launches("other"), [0, 0, 10, 630, 1231]);
    world.exit("source", 42).seconds(2);
    assert_eq!(world.launches("other").len(), 5);
    world.pod.containers[0].image = "app:2".to_owned();
    world.settle();
    assert_eq!(world.launches("other"), [0, 0, 10, 630, 1231, 1233]);
}

/// RALL-24, BACK-5, DEF-12: agent restarts and a reboot do not shorten the wait.
#[test]
fn the_wait_survives_agent_restarts_and_reboots() {
    let mut world = World::with_spec(PAIR);
    world.exits_at_once.insert("source".to_owned(), 42);
    for _ in 0..40 {
        world.seconds(8).restart_agent();
    }
    assert_eq!(world.launches("source"), [0, 0, 10, 30, 70, 150, 310]);
    let mut world = looping(PAIR, "source", 75);
    assert_eq!(world.launches("source"), [0, 0, 10, 30, 70]);
    world.reboot().settle();
    assert_eq!(world.waiting_reason("source"), Some("CrashLoopBackOff"));
    assert_eq!(world.launches("source").len(), 5, "booted at second 95");
    world.seconds(54);
    assert_eq!(world.launches("source").len(), 5);
    world.seconds(1);
    assert_eq!(world.launches("source"), [0, 0, 10, 30, 70, 150]);
}

/// CON-18d, RALL-1, RALL-24, RULE-5: an init container whose success restarts all does so again and again, slowed down.
#[test]
fn an_init_container_whose_success_restarts_all_is_slowed_down() {
    let rule = "restartPolicy: Never, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [0]}}]";
    let mut world = World::with_spec(&format!(
        "  restartPolicy: Never\n  initContainers: [{{name: i, image: 'tool:1', {rule}}}]\n  containers: [{{name: a, image: 'app:1'}}]\n"
    ));
    world.exits_at_once.insert("i".to_owned(), 0);
    world.seconds(70);
    assert_eq!(world.launches("i"), [0, 0, 10, 30, 70]);
    assert!(world.launches("a").is_empty());
    assert_eq!(world.status().phase, Phase::Pending);
    world.exits_at_once.clear();
    world.seconds(80).exit("i", 1);
    assert_eq!(world.status().phase, Phase::Failed, "a code that does not match is judged normally");
}

/// RALL-24: with two triggers the longer wait counts.
#[test]
fn two_triggers_wait_for_the_longer_of_their_delays() {
    let spec = PAIR.replace(
        "{name: other, image: 'app:1'}",
        &format!("{{name: other, image: 'app:1', restartPolicy: Never, {RULE_42}}}"),
    );
    let mut world = up(&spec);
    world.exit("source", 42).exit("source", 42).seconds(10);
    assert_eq!(world.launches("other"), [0, 0, 10]);
    world.exit("other", 42);
    assert_eq!(world.launches("other"), [0, 0, 10, 10], "other has not triggered before");
    world.exit_only("other", 42).exit("source", 42);
    world.seconds(19);
    assert_eq!(world.launches("other").len(), 4);
    world.seconds(1);
    assert_eq!(world.launches("other"), [0, 0, 10, 10, 30]);
}

/// RALL-23, SCN-A11: what fails after the restart is judged as ever.
#[test]
fn failures_after_the_restart_are_judged_normally() {
    let mut world = up(FOUR);
    world.exit("source", 42).exit("setup", 1);
    assert_eq!(world.status().phase, Phase::Failed);
    assert_eq!(world.stage(), Stage::Ended);
    assert_eq!(ended(&world, "setup").exit_code, 1);
    assert_eq!(restarting(&world), (false, "PodFailed", ""));
    for policy in ["Always", "OnFailure"] {
        let mut world = up(&FOUR.replace(
            "  restartPolicy: Never\n  initContainers",
            &format!("  restartPolicy: {policy}\n  initContainers"),
        ));
        world.exit("source", 42);
        world.exit("setup", 1);
        assert_eq!(world.running(), ["setup"].into(), "its first failure: at once");
        world.exit("setup", 1);
        assert_eq!((world.waiting_reason("setup"), world.status().phase), (Some("CrashLoopBackOff"), Phase::Pending));
        world.seconds(10).exit("setup", 0);
        assert_eq!(world.running(), ["other", "side", "source"].into());
        assert_eq!(counts(&world, ALL_FOUR), [3, 1, 1, 1]);
    }
    let mut world = up(FOUR);
    world.exit("source", 42);
    bring_up(&mut world);
    world.exit("source", 1).exit("other", 0);
    assert_eq!(world.status().phase, Phase::Failed);
}

fn tries(world: &World, verb: &str) -> Vec<u64> {
    let beginning = Wall::from_millis(BEGINNING);
    let is_it = |operation: &Operation| super::restart_all::action(operation) == verb;
    let tries = world.started.iter().filter(|(_, operation)| is_it(operation));
    tries.map(|(at, _)| at.wall.since(beginning).as_secs()).collect()
}

/// CON-15, CON-16, RALL-5: a kill or a removal that keeps failing is tried after 1, 2, 4, 8, then every 10 s; condition and
/// events name it; the pod never looks healthy; the rest goes on once it works.
#[test]
fn a_kill_or_removal_that_keeps_failing_is_named() {
    for (pattern, verb, what) in [
        ("Stop { container: \"other\"", "stop other", "stopping container other"),
        ("Remove { container: \"other\"", "remove other", "removing container other"),
    ] {
        let mut world = up(FOUR);
        world.fail(pattern, "DeadlineExceeded");
        world.inspector = Some(Box::new(|_, plan| {
            let under_way = plan.evidence.durable.restart_all.stage.is_under_way();
            assert!(!(under_way && plan.status.is_true(&ConditionType::Ready)), "{:#?}", plan.status);
            assert!(!under_way || plan.status.phase == Phase::Pending);
        }));
        world.exit("source", 42).seconds(45);
        assert_eq!(tries(&world, verb), [0, 1, 3, 7, 15, 25, 35, 45]);
        let (holds, reason, message) = restarting(&world);
        assert_eq!((holds, reason), (true, "ContainerExited"));
        assert!(message.starts_with("container source exited with code 42 (restart rule 0); "), "{message}");
        assert!(message.ends_with(&format!("{what} failed 8 times: {pattern} does not work")), "{message}");
        assert_eq!(world.events.iter().filter(|(reason, _)| reason == "FailedKillPod").count(), 8);
        assert!(world.saw_event("FailedKillPod", "DeadlineExceeded"));
        let announced =
            world.events.iter().filter(|(reason, text)| reason == "Killing" && text.contains("container other:"));
        assert_eq!(announced.count(), 1, "the decision is announced once, not each attempt");
        assert_eq!(world.observed.containers.len(), 2, "all but the stubborn one and the trigger are gone");
        world.failing.clear();
        world.seconds(10);
        assert_eq!(world.running(), ["setup"].into(), "{verb}");
        assert_eq!(
            restarting(&world),
            (false, "ContainersRemoved", "container source exited with code 42 (restart rule 0)")
        );
        bring_up(&mut world);
        assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
        assert!(world.holds(ConditionType::Ready));
    }
}

/// CON-16, RALL-31: that holds for a restart that a person asked for too, where every container is still running.
#[test]
fn a_pod_whose_kills_fail_is_not_ready() {
    let mut world = up("  containers: [{name: a, image: 'app:1'}, {name: b, image: 'app:1'}]\n");
    world.fail("Stop", "DeadlineExceeded");
    assert!(world.holds(ConditionType::Ready));
    world.request_restart("1").seconds(60);
    assert_eq!(world.running(), ["a", "b"].into());
    let ready = world.condition(ConditionType::Ready);
    assert_eq!((ready.status, ready.reason.as_deref()), (Truth::False, Some("AllContainersRestarting")));
    assert_eq!(ready.message.as_deref(), Some("restart requested by tester"));
    assert!(world.container("a").ready, "of the containers nothing new is known");
    assert_eq!(world.status().phase, Phase::Pending);
    assert!(restarting(&world).2.contains("stopping container a failed"), "{:?}", restarting(&world));
    assert!(restarting(&world).2.contains("stopping container b failed"), "{:?}", restarting(&world));
    world.failing.clear();
    world.seconds(10);
    assert!(world.holds(ConditionType::Ready));
    assert_eq!(counts(&world, ["a", "b"]), [1, 1]);
}

/// RALL-31: a person may restart any pod under any policy, with the same machine, and never waits for a backoff.
#[test]
fn a_restart_may_be_asked_for_under_every_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut world = up(&format!(
            "  restartPolicy: {policy}\n  initContainers: [{{name: i, image: 'tool:1'}}]\n  \
             containers: [{{name: a, image: 'app:1'}}, {{name: b, image: 'app:1'}}]\n"
        ));
        assert_eq!(condition(&world), None);
        world.exit("b", 0);
        let before = counts(&world, ["i", "a", "b"]);
        world.acknowledges = false;
        let mark = world.mark();
        world.request_restart("one");
        assert_eq!(restarting(&world), (true, "RestartRequested", "restart requested by tester"), "{policy}");
        assert_eq!(world.mark(), mark, "announced first");
        world.acknowledges = true;
        world.pass(Duration::from_millis(500));
        assert_eq!(world.running(), ["i"].into(), "{policy}");
        bring_up(&mut world);
        assert_eq!(world.running(), ["a", "b"].into(), "{policy}");
        assert_eq!(counts(&world, ["i", "a", "b"]), before.map(|count| count + 1), "{policy}");
        assert_eq!(restarting(&world), (false, "ContainersRemoved", "restart requested by tester"));
        assert_eq!(last(&world, "a").reason, "RestartingAllContainers");
        world.restart_agent();
        world.seconds(1);
        assert_eq!(counts(&world, ["i"]), [before[0] + 1], "a request is taken once, also over an agent restart");
        for id in ["two", "three"] {
            world.request_restart(id);
            bring_up(&mut world);
        }
        assert_eq!(counts(&world, ["i", "a", "b"]), before.map(|count| count + 3), "no backoff for people: {policy}");
    }
}

/// RALL-31, RALL-26: a request during a restart joins it, and the reason says that a container exited.
#[test]
fn a_request_joins_a_restart_under_way() {
    let mut world = up(FOUR);
    Halt::Killing.reach(&mut world);
    world.request_restart("one");
    let (holds, reason, message) = restarting(&world);
    assert_eq!((holds, reason), (true, "ContainerExited"));
    assert_eq!(message, "container source exited with code 42 (restart rule 0); restart requested by tester");
    Halt::Killing.go_on(&mut world);
    bring_up(&mut world);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
}

/// RALL-6, RALL-11: a created container whose start is in progress is not removed: it may be running by the time the
/// removal arrives, and would be killed unseen. It is observed again once the start has ended.
#[test]
fn a_container_whose_start_is_under_way_is_not_removed() {
    let is_launch =
        |operation: &Operation| matches!(operation, Operation::Launch { container, .. } if container == "other");
    let mut world = World::with_spec(PAIR);
    world.hold(is_launch).seconds(1);
    let mut made = world.running_instance("source").clone();
    (made.name, made.id, made.state) = ("other".to_owned(), "made".to_owned(), InstanceState::Created);
    world.observed.containers.push(made);
    let launch = world.in_flight().iter().find(|(_, operation)| is_launch(operation)).map(|(id, _)| *id).unwrap();
    let mark = world.mark();
    let removed = |world: &World| {
        let removals = |operation: &&Operation| matches!(operation, Operation::Remove { id, .. } if id == "made");
        world.since(mark).into_iter().filter(removals).count()
    };
    world.exit_only("source", 42);
    for _ in 0..5 {
        world.plan_once();
        // The launch was cancelled; the runtime goes on with it for a while.
        world.observed.operations.retain(|report| report.id != launch);
        world.observed.operations.push(OpReport { id: launch, state: OpState::InFlight });
    }
    assert!(world.cancelled.iter().any(is_launch), "the launch is cancelled");
    assert_eq!(removed(&world), 0, "removed during its start");
    world.conclude(launch, OpResult::Cancelled);
    world.seconds(2);
    assert_eq!(removed(&world), 1, "{:?}", world.since(mark));
    world.release().seconds(2);
    assert_eq!(world.running(), ["other", "source"].into());
}

/// RALL-13, RALL-24: an ephemeral container that is added while a restart of all containers waits for its backoff is
/// started at once; the others go on waiting.
#[test]
fn an_ephemeral_container_does_not_wait_for_the_backoff() {
    let mut world = up(FOUR);
    world.exit("source", 42);
    bring_up(&mut world);
    world.exit("source", 42);
    assert_eq!(world.waiting_reason("source"), Some("CrashLoopBackOff"));
    let with_debugger = format!("{FOUR}  ephemeralContainers: [{{name: debug, image: 'tool:1'}}]\n");
    world.pod = World::with_spec(&with_debugger).pod;
    let mark = world.mark();
    world.settle();
    assert_eq!(actions(&world, mark), ["image debug", "launch debug"]);
    assert_eq!((world.running(), world.waiting_reason("source")), (["debug"].into(), Some("CrashLoopBackOff")));
    world.seconds(10);
    bring_up(&mut world);
    assert_eq!(world.running(), ["debug", "other", "side", "source"].into());
    assert_eq!(counts(&world, ALL_FOUR), [2; 4]);
    assert_eq!(world.container("debug").restart_count, 0);
}

/// API-21, RALL-29, SYNC-6: with the feature gate off a new pod with the rule is rejected, and says why.
#[test]
fn with_the_gate_off_a_new_pod_with_the_rule_is_rejected() {
    let mut world = World::with_spec(FOUR);
    world.rules.restart_all = RestartAllRule::Ignored;
    world.settle();
    assert_eq!((world.status().phase, world.stage()), (Phase::Failed, Stage::Ended));
    assert_eq!(world.status().reason.as_deref(), Some("PodFeatureUnsupported"));
    let message = world.status().message.clone().unwrap();
    assert!(message.starts_with("Pod was rejected: ") && message.contains("RestartAllContainersOnContainerExits"));
    assert!(world.started.is_empty());
    assert!(world.saw_event("PodFeatureUnsupported", "Pod was rejected"));
    assert!(
        matches!(&world.evidence.durable.admission, Admission::Rejected { reason, .. } if reason == "PodFeatureUnsupported")
    );
    world.rules.restart_all = RestartAllRule::Honoured;
    world.restart_agent();
    assert_eq!(world.status().phase, Phase::Failed, "a final phase is final");
    let mut world = World::with_spec("  containers: [{name: a, image: 'app:1'}]\n");
    world.rules.restart_all = RestartAllRule::Ignored;
    world.settle();
    assert_eq!(world.running(), ["a"].into(), "a pod without the rule is none of its business");
}

/// RALL-29, SYNC-6, SCN-A29: a pod that already runs keeps running with the rule ignored, also where only the runtime knows it;
/// with the feature gate back on the rule works again.
#[test]
fn with_the_gate_off_a_running_pod_keeps_running() {
    for ledger_lost in [false, true] {
        let spec = FOUR.replace("    restartPolicy: Never\n", "    restartPolicy: Always\n");
        let mut world = up(&spec);
        world.rules.restart_all = RestartAllRule::Ignored;
        if ledger_lost {
            world.evidence = crate::Evidence::default();
        }
        world.restart_agent();
        assert_eq!(world.status().phase, Phase::Running);
        assert_eq!(condition(&world), None, "the condition is no longer ours");
        world.exit("source", 42);
        assert_eq!(
            (world.running(), counts(&world, ["source", "other"])),
            (["other", "side", "source"].into(), [1, 0])
        );
        world.rules.restart_all = RestartAllRule::Honoured;
        world.restart_agent().exit("source", 42);
        bring_up(&mut world);
        assert_eq!(counts(&world, ["source", "other", "side"]), [2, 1, 1], "ledger lost: {ledger_lost}");
    }
}

/// RALL-29: the feature gate goes off half-way. While containers are being removed the restart is given up, and what it has
/// killed comes back; once all are removed it is brought to its end.
#[test]
fn a_gate_that_goes_off_half_way_leaves_no_pod_dead() {
    for halt in Halt::ALL {
        let mut world = up(FOUR);
        halt.reach(&mut world);
        world.rules.restart_all = RestartAllRule::Ignored;
        // An API server allows what is in use, also with the feature gate off (API-14): this one change is not checked.
        world.plan = None;
        world.restart_agent();
        halt.go_on(&mut world);
        bring_up(&mut world);
        assert!(!world.evidence.durable.restart_all.stage.is_under_way(), "{halt:?}");
        assert!(world.running().is_superset(&["other", "side"].into()), "{halt:?}: {:?}", world.running());
        assert_eq!(world.status().phase, Phase::Running, "{halt:?}");
        assert_eq!(world.running().contains("source"), !halt.is_terminating(), "{halt:?}: its own policy is Never");
        assert!(world.statuses.iter().all(|status| !status.phase.is_terminal()), "{halt:?}");
        let given_up = halt.is_terminating();
        assert_eq!(counts(&world, ["setup"]), [u32::from(!given_up)], "{halt:?}: init containers are not run again");
    }
    // What a person asked for goes on.
    let mut world = up(FOUR);
    world.acknowledges = false;
    world.request_restart("one");
    world.rules.restart_all = RestartAllRule::Ignored;
    Halt::Announced.go_on(&mut world);
    world.pass(Duration::from_millis(500));
    bring_up(&mut world);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
}

/// RALL-3, RALL-32, DEF-13: a trigger that exited while the agent was down is noticed from any evidence that is left.
#[test]
fn a_trigger_that_exited_while_the_agent_was_down_is_noticed() {
    let mut world = up(FOUR);
    world.exit_only("source", 42).restart_agent();
    assert!(matches!(world.evidence.durable.restart_all.stage, RestartAllStage::Starting(_)));
    bring_up(&mut world);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
    // The ledger is lost with the condition; only the runtime knows.
    let mut world = up(FOUR);
    world.exit_only("source", 42);
    world.evidence = crate::Evidence::default();
    let mark = world.mark();
    world.restart_agent();
    assert!(actions(&world, mark).contains(&"stop other".to_owned()), "{:?}", actions(&world, mark));
    assert!(
        world
            .started
            .iter()
            .any(|(_, operation)| matches!(operation, Operation::Stop { reason: KillReason::RestartAll, .. }))
    );
}
