//! Sandboxes that go away, nodes that boot anew, ledgers that are lost (RULE-11, RALL-33..39, VEC-33).

use std::time::Duration;

use super::{
    restart_all::{ALL_FOUR, FOUR, Halt, RULE_42, bring_up, counts, ended, last, up},
    world::World,
};
use crate::{
    Evidence, Stage,
    evidence::EndingCause,
    observed::{Before, InstanceState, Known},
    operation::{KillReason, Operation},
    restart::{RestartAllStage, count_from_logs},
    status::{ConditionType, Phase, PodStatus},
};

fn lose_sandbox(world: &mut World) {
    for sandbox in &mut world.observed.sandboxes {
        sandbox.ready = false;
    }
    world.settle();
}

fn pod(pod_policy: &str, containers: &[(&str, &str)]) -> World {
    let lines: Vec<String> =
        containers.iter().map(|(name, more)| format!("  - {{name: {name}, image: 'app:1'{more}}}\n")).collect();
    up(&format!("  restartPolicy: {pod_policy}\n  containers:\n{}", lines.concat()))
}

const RESTART_1: &str =
    ", restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]";

/// RULE-11, RULE-15, DEF-8, DEF-25: after a reboot a pod is rebuilt if some container is restartable by its own policy or rules,
/// whatever the pod's policy; else it has failed, and says so.
#[test]
fn a_reboot_rebuilds_a_pod_with_a_restartable_container() {
    type Row = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);
    let rows: [Row; 6] = [
        ("Never", &[("a", ", restartPolicy: Always"), ("b", ", restartPolicy: Always")], &["a", "b"]),
        ("Never", &[("a", ", restartPolicy: OnFailure"), ("b", "")], &["a"]),
        ("Always", &[("a", ""), ("b", ", restartPolicy: Never")], &["a"]),
        ("Never", &[("a", ""), ("b", "")], &[]),
        ("Always", &[("a", ", restartPolicy: Never"), ("b", ", restartPolicy: Never")], &[]),
        ("OnFailure", &[("a", ""), ("b", "")], &["a", "b"]),
    ];
    for (pod_policy, containers, running) in rows {
        let mut world = pod(pod_policy, containers);
        world.seconds(30).reboot().settle();
        let label = format!("{pod_policy} {containers:?}");
        assert_eq!(world.running(), running.iter().copied().collect(), "{label}");
        if running.is_empty() {
            assert_eq!((world.status().phase, world.stage()), (Phase::Failed, Stage::Ended), "{label}");
            assert_eq!(world.observed.sandboxes.len(), 1, "{label}: no new sandbox");
        } else {
            assert_eq!((world.status().phase, world.stage()), (Phase::Running, Stage::Live), "{label}");
            assert_eq!(world.observed.sandboxes[0].attempt, 1, "{label}");
            for name in running {
                assert_eq!((world.container(name).restart_count, last(&world, name).exit_code), (1, 255), "{label}");
            }
        }
    }
}

/// RULE-11, SIDE-10: an init container that has failed by itself and may not run again has failed its pod, also if the
/// sandbox is gone when the exit is seen; one that went down with its sandbox or with the node runs again.
#[test]
fn a_lost_sandbox_does_not_take_back_the_failure_of_an_init_container() {
    let rows = [
        ("Never", Some(1), false),
        ("Never", Some(137), true),
        ("Never", None, true),
        ("OnFailure", Some(1), true),
        ("OnFailure", None, true),
    ];
    for (policy, exit_code, runs_again) in rows {
        let mut world = World::with_spec(&format!(
            "  restartPolicy: Never
  initContainers:
  - {{name: setup, image: 'tool:1', restartPolicy: {policy}}}
  containers:
  - {{name: main, image: 'app:1', restartPolicy: Always}}
"
        ));
        world.settle();
        assert_eq!(world.running(), ["setup"].into(), "{policy} {exit_code:?}");
        match exit_code {
            Some(exit_code) => lose_sandbox(world.exit_only("setup", exit_code)),
            None => _ = world.reboot().settle(),
        }
        assert_eq!(world.running().contains("setup"), runs_again, "{policy} {exit_code:?}");
        let (phase, stage) = if runs_again { (Phase::Pending, Stage::Live) } else { (Phase::Failed, Stage::Ended) };
        assert_eq!((world.status().phase, world.stage()), (phase, stage), "{policy} {exit_code:?}");
    }
}

/// RULE-11, SIDE-10: the same during a restart of all containers, once it has started the init container again.
#[test]
fn a_lost_sandbox_does_not_take_back_a_failure_during_a_restart_of_all() {
    let mut world = World::with_spec(
        "  restartPolicy: Never
  initContainers:
  - {name: setup, image: 'tool:1'}
  containers:
  - {name: main, image: 'app:1', restartPolicy: Always}
",
    );
    world.settle();
    world.exit("setup", 0).request_restart("r1");
    assert_eq!(world.running(), ["setup"].into());
    lose_sandbox(world.exit_only("setup", 1));
    assert_eq!((world.status().phase, world.stage()), (Phase::Failed, Stage::Ended));
    assert!(world.running().is_empty());
}

/// RULE-11, SCN-R11: containers whose instances are gone after the boot are restarted if they may be; a rule counts.
#[test]
fn a_container_that_is_gone_after_a_reboot_comes_back_if_it_may() {
    for (container, comes_back) in [("", false), (RESTART_1, true), (", restartPolicy: OnFailure", true)] {
        let mut world = pod("Never", &[("a", container)]);
        world.reboot().lose("a").settle();
        assert_eq!(world.running().contains("a"), comes_back, "{container}");
        assert_eq!(world.status().phase, if comes_back { Phase::Running } else { Phase::Failed }, "{container}");
        if comes_back {
            assert_eq!((counts(&world, ["a"]), last(&world, "a").exit_code), ([1], 137));
        }
    }
}

/// SCN-R11, RULE-11: with the sandbox dead everything is made anew but what had succeeded under OnFailure.
#[test]
fn a_dead_sandbox_is_replaced_with_all_that_has_not_succeeded() {
    let mut world = pod("OnFailure", &[("a", ""), ("done", ""), ("c", "")]);
    world.exit("done", 0);
    let mark = world.mark();
    lose_sandbox(&mut world);
    let operations: Vec<String> = super::restart_all::actions(&world, mark);
    assert_eq!(operations, ["stop a", "stop c", "remove sandbox", "create sandbox", "launch a", "launch c"]);
    assert_eq!(world.running(), ["a", "c"].into());
    assert_eq!(counts(&world, ["a", "done", "c"]), [1, 0, 1]);
    assert_eq!(ended(&world, "done").exit_code, 0);
    for operation in world.since(mark) {
        if let Operation::Stop { timeout, reason, .. } = operation {
            assert_eq!((*timeout, *reason), (Duration::from_secs(30), KillReason::SandboxGone), "with normal grace");
        }
    }
}

/// SCN-R11: a container that was stopped because of its sandbox and left with 0 has not succeeded.
#[test]
fn a_graceful_exit_because_of_a_dead_sandbox_is_no_success() {
    for (policy, comes_back) in [("OnFailure", true), ("Always", true), ("Never", false)] {
        let mut world = pod("Always", &[("keep", ""), ("a", &format!(", restartPolicy: {policy}"))]);
        world.hold(|operation| matches!(operation, Operation::Stop { container, .. } if container == "a"));
        lose_sandbox(&mut world);
        world.exit("a", 0).release();
        assert_eq!(world.running().contains("a"), comes_back, "{policy}");
        assert!(world.running().contains("keep"));
    }
}

/// RULE-11, RULE-15, DEF-25: a pod under Never whose sandbox dies while its containers run ends: a sidecar, which always
/// restarts, does not make it one that does.
#[test]
fn a_pod_that_is_not_rebuilt_has_failed() {
    for sidecar in ["", "  initContainers: [{name: s, image: 'proxy:1', restartPolicy: Always}]\n"] {
        let mut world = up(&format!("  restartPolicy: Never\n{sidecar}  containers: [{{name: a, image: 'app:1'}}]\n"));
        lose_sandbox(&mut world);
        assert_eq!((world.status().phase, world.stage()), (Phase::Failed, Stage::Ended), "{sidecar:?}");
        assert_eq!(world.launches("a"), [0], "{sidecar:?}");
        assert!(world.running().is_empty());
    }
    // During initialization too, where no container has failed yet.
    let mut world = World::with_spec(
        "  restartPolicy: Never\n  initContainers: [{name: i, image: 'a:1'}]\n  containers: [{name: a, image: 'a:1'}]\n",
    );
    world.settle().reboot().settle();
    assert_eq!((world.status().phase, world.stage()), (Phase::Failed, Stage::Ended));
    let cause = world.evidence.durable.ending.clone().unwrap().cause;
    assert_eq!(cause, EndingCause::NotRebuilt);
}

/// RALL-33..RALL-35, RALL-39, SCN-A26: the sandbox is lost, or the node boots anew, at any point of a restart: the pod is
/// rebuilt even under Never, and every container starts.
#[test]
fn a_sandbox_lost_during_a_restart_is_replaced() {
    for halt in Halt::ALL {
        for reboot in [false, true] {
            let mut world = up(FOUR);
            halt.reach(&mut world);
            if reboot {
                world.reboot();
            }
            for sandbox in &mut world.observed.sandboxes {
                sandbox.ready = false;
            }
            halt.go_on(&mut world);
            world.pass(Duration::from_millis(500));
            bring_up(&mut world);
            let label = format!("{halt:?} reboot: {reboot}");
            assert_eq!(world.running(), ["other", "side", "source"].into(), "{label}");
            assert_eq!(world.status().phase, Phase::Running, "{label}");
            let attempts: Vec<u32> = world.observed.sandboxes.iter().map(|sandbox| sandbox.attempt).collect();
            assert_eq!(attempts, [1], "{label}");
            // The running launch takes effect in the lost sandbox, unless the node goes down with it.
            let lived = halt == Halt::Initializing || (halt == Halt::Removed && !reboot);
            let setup = if lived { 2 } else { 1 };
            assert_eq!(counts(&world, ALL_FOUR), [setup, 1, 1, 1], "{label}");
            assert_eq!(last(&world, "source").exit_code, 42, "{label}");
        }
    }
}

/// RALL-39: a regular container that had started again before the sandbox was lost starts once more with the others.
#[test]
fn a_container_that_was_ahead_of_the_others_starts_once_more() {
    let hook = "    lifecycle: {postStart: {exec: {command: [hello]}}}\n";
    let spec = FOUR.replace("    image: app:1\n", &format!("    image: app:1\n{hook}"));
    let mut world = up(&spec);
    world.exit("source", 42);
    world.hold(|operation| matches!(operation, Operation::PostStart { .. }));
    bring_up(&mut world);
    assert_eq!(world.running(), ["side", "source"].into());
    lose_sandbox(&mut world);
    world.release();
    bring_up(&mut world);
    assert_eq!(world.running(), ["other", "side", "source"].into());
    assert_eq!(counts(&world, ALL_FOUR), [2, 2, 2, 1]);
}

/// RALL-32: a trigger that is found dead after a boot restarts all; one that is gone is judged by its policy.
#[test]
fn a_trigger_found_dead_after_a_boot_restarts_all() {
    let mut world = up(FOUR);
    world.exit_only("source", 42).reboot().settle();
    bring_up(&mut world);
    assert_eq!(world.running(), ["other", "side", "source"].into());
    assert_eq!((counts(&world, ALL_FOUR), last(&world, "source").exit_code), ([1; 4], 42));
    let mut world = up(FOUR);
    world.exit_only("source", 42).reboot().lose("source").settle();
    assert_eq!(world.status().phase, Phase::Failed);
}

// --- the API server's copy as the only memory ---

fn forget(world: &mut World) {
    let copy: PodStatus = world.status().clone();
    world.observed.agent.before = Before::Cluster(Known::Copy(Box::new(copy)));
    world.evidence = Evidence::default();
    world.restart_agent();
}

/// RALL-33..RALL-35, RALL-37: the ledger is lost at any point; the copy has the progress of the restart.
#[test]
fn the_copy_has_the_progress_of_a_restart() {
    for halt in Halt::ALL {
        let mut world = up(FOUR);
        halt.reach(&mut world);
        forget(&mut world);
        halt.go_on(&mut world);
        world.pass(Duration::from_millis(500));
        bring_up(&mut world);
        assert_eq!(world.running(), ["other", "side", "source"].into(), "{halt:?}");
        assert_eq!(counts(&world, ALL_FOUR), [1; 4], "{halt:?}");
        assert_eq!(last(&world, "source").exit_code, 42, "{halt:?}");
        assert!(world.statuses.iter().all(|status| !status.phase.is_terminal()), "{halt:?}");
    }
}

/// DEF-13, RALL-3: ledger and condition are lost, and the trigger's instance was removed: the exit code in the copy
/// alone restarts all containers, unless another instance of the container has started since.
#[test]
fn the_exit_code_in_the_copy_is_enough() {
    for restarted in [false, true] {
        let mut world = up(FOUR);
        Halt::Announced.reach(&mut world);
        let mut copy = world.status().clone();
        copy.conditions.retain(|condition| condition.kind != ConditionType::AllContainersRestarting);
        world.observed.agent.before = Before::Cluster(Known::Copy(Box::new(copy)));
        world.evidence = Evidence::default();
        if restarted {
            let instance = world.observed.containers.iter_mut().find(|instance| instance.name == "source").unwrap();
            instance.id.push_str("-again");
            instance.attempt = 1;
            instance.state = InstanceState::Running { started_at: world.now.wall };
        } else {
            world.lose("source");
        }
        let other = world.id("other");
        world.restart_agent();
        world.pass(Duration::from_millis(500));
        bring_up(&mut world);
        assert_eq!(world.running(), ["other", "side", "source"].into());
        assert_eq!(world.id("other") == other, restarted);
        let others = u32::from(!restarted);
        assert_eq!(counts(&world, ALL_FOUR), [others, others, 1, others], "restarted since: {restarted}");
        assert_eq!((last(&world, "source").exit_code, last(&world, "source").reason.as_str()), (42, "Error"));
    }
}

/// RALL-37, RALL-24: the ledger is lost while the restart waits for its backoff: the wait is forgotten, the restart not.
#[test]
fn the_copy_shows_a_restart_that_waits() {
    let mut world = up(FOUR);
    world.exit("source", 42);
    bring_up(&mut world);
    world.exit("source", 42);
    assert_eq!(world.waiting_reason("source"), Some("CrashLoopBackOff"));
    forget(&mut world);
    world.seconds(10);
    bring_up(&mut world);
    assert_eq!(world.running(), ["other", "side", "source"].into());
    assert_eq!(counts(&world, ALL_FOUR), [2; 4]);
}

/// RALL-15, RALL-37: a container that waited for its backoff at the trigger was not counted, and the copy shows that
/// too.
#[test]
fn the_copy_shows_which_containers_were_counted() {
    let spec = FOUR.replace("{name: other, image: 'app:1'}", "{name: other, image: 'app:1', restartPolicy: OnFailure}");
    let mut world = up(&spec);
    world.exit("other", 1).exit("other", 2).exit("source", 42);
    assert_eq!(counts(&world, ALL_FOUR), [1, 1, 1, 1]);
    forget(&mut world);
    bring_up(&mut world);
    assert_eq!(counts(&world, ALL_FOUR), [1, 1, 1, 2]);
}

/// RALL-37, DEF-18: a victim that cannot be started after its removal shows why; it is to be started all the same.
#[test]
fn the_copy_shows_a_victim_that_cannot_be_started() {
    let mut world = up(FOUR);
    world.exit("source", 42);
    world.fail("Launch { container: \"other\"", "RunContainerError");
    bring_up(&mut world);
    assert_eq!((world.waiting_reason("other"), world.status().phase), (Some("RunContainerError"), Phase::Pending));
    forget(&mut world);
    assert_eq!(world.status().phase, Phase::Pending);
    world.failing.clear();
    world.seconds(10);
    assert_eq!(world.running(), ["other", "side", "source"].into());
    assert_eq!((counts(&world, ALL_FOUR), world.status().phase), ([1; 4], Phase::Running));
}

/// RALL-37: an ordinary backoff is not evidence of a restart of all containers.
#[test]
fn the_copy_of_a_crashing_container_shows_no_restart() {
    let mut world =
        up(&FOUR.replace("{name: other, image: 'app:1'}", "{name: other, image: 'app:1', restartPolicy: OnFailure}"));
    world.exit("other", 1).exit("other", 2);
    assert_eq!(world.waiting_reason("other"), Some("CrashLoopBackOff"));
    let source = world.id("source");
    forget(&mut world);
    assert_eq!(world.evidence.durable.restart_all.stage, RestartAllStage::Idle { last: None });
    assert_eq!(world.status().phase, Phase::Running);
    world.seconds(10);
    assert_eq!((world.id("source"), counts(&world, ALL_FOUR)), (source, [0, 0, 0, 2]));
}

/// CON-4, RALL-36: another agent was in charge and finished our restart; its word counts, nothing is restarted again.
#[test]
fn a_restart_that_another_agent_finished_is_over() {
    for halt in [Halt::Killing, Halt::Initializing] {
        let mut world = up(FOUR);
        halt.reach(&mut world);
        let ledger = world.evidence.clone();
        halt.go_on(&mut world);
        world.seconds(1);
        bring_up(&mut world);
        let copy = world.status().clone();
        let (ids, mark) = (ALL_FOUR.map(|name| world.id(name)), world.mark());
        world.evidence = ledger;
        world.observed.agent.before = Before::Cluster(Known::Copy(Box::new(copy)));
        world.restart_agent();
        world.seconds(5);
        assert_eq!(ALL_FOUR.map(|name| world.id(name)), ids, "{halt:?}");
        assert_eq!((world.mark(), counts(&world, ALL_FOUR)), (mark, [1; 4]), "{halt:?}");
        assert!(matches!(world.evidence.durable.restart_all.stage, RestartAllStage::Idle { .. }), "{halt:?}");
        assert!(!world.holds(ConditionType::AllContainersRestarting), "{halt:?}");
    }
}

/// RALL-3, RALL-28, STAT-20: a pod that has ended is not brought back by the exit code of a sidecar it stopped.
#[test]
fn an_ended_pod_is_not_restarted_by_an_exit_code() {
    let spec = FOUR.replace("restartPolicy: Always}", &format!("restartPolicy: Always, {RULE_42}}}"));
    let mut world = up(&spec);
    world.hold(|operation| matches!(operation, Operation::Stop { .. }));
    world.exit("source", 0).exit("other", 0).exit("side", 42);
    world.release();
    assert_eq!((world.status().phase, world.stage()), (Phase::Succeeded, Stage::Ended));
    let mark = world.mark();
    forget(&mut world);
    world.seconds(5);
    assert_eq!(world.since(mark), Vec::<&Operation>::new());
    assert_eq!((world.status().phase, world.stage()), (Phase::Succeeded, Stage::Ended));
}

// --- restart counts from log files ---

/// VEC-33, STAT-8: the next restart count by the names of log files.
#[test]
fn log_files_give_the_restart_count() {
    let rows: [(&[&str], u32); 13] = [
        (&[], 0),
        (&["0.log"], 1),
        (&["0.log", "1.log", "2.log"], 3),
        (&["2.log", "0.log", "1.log"], 3),
        (&["5.log.rotated", "6.log"], 7),
        (&["145.log.log.rotated"], 146),
        (&["a.log", "12log", "rotated.23.log", "mylog42.log", "-42.log", "23a.log", "+7.log", ".log", "9.logs"], 0),
        (&["a.log", "3.log"], 4),
        (&["99999999999999999999999.log", "3.log"], 4),
        (&["7.log", "7.log", "7.log.20260101-000000.gz"], 8),
        (&["007.log"], 8),
        (&["4294967295.log"], u32::MAX),
        (&["4294967296.log"], 0),
    ];
    for (names, expected) in rows {
        assert_eq!(count_from_logs(names.iter().copied()), expected, "{names:?}");
    }
}

/// VEC-33, STAT-8, RALL-16: where runtime, ledger and API server have no count, the log files have the next restart
/// count.
#[test]
fn a_new_instance_is_numbered_after_the_log_files() {
    let mut world = World::with_spec("  containers: [{name: a, image: 'app:1'}]\n");
    world.observed.log_counts.insert("a".to_owned(), 7);
    world.settle();
    assert_eq!(counts(&world, ["a"]), [7]);
    assert!(world.started.iter().any(|(_, operation)| matches!(operation, Operation::Launch { attempt: 7, .. })));
}

/// STAT-8: the agent dies before it starts the container. The next one has a ledger, so it does not read log files, and knows what they
/// showed: no log is overwritten.
#[test]
fn what_log_files_show_is_recorded_before_the_first_start() {
    let mut world = World::with_spec("  containers: [{name: a, image: 'app:1'}, {name: b, image: 'app:1'}]\n");
    world.observed.log_counts.extend([("a".to_owned(), 7)]);
    world.hold(|operation| matches!(operation, Operation::Launch { .. })).settle();
    assert_eq!(counts(&world, ["a", "b"]), [7, 0]);
    world.observed.log_counts.clear();
    world.hold(|_| false).restart_agent().seconds(5);
    assert_eq!(world.running(), ["a", "b"].into());
    assert_eq!(counts(&world, ["a", "b"]), [7, 0]);
    world.exit("a", 1).seconds(5);
    assert_eq!(counts(&world, ["a", "b"]), [8, 0]);
}

/// BACK-5, CON-3: a wall clock that comes back an hour slow after a reboot does not make a backoff an hour longer, for
/// one container or for all.
#[test]
fn a_slow_clock_after_a_reboot_lengthens_no_backoff() {
    let hour_back = |world: &mut World| {
        world.reboot();
        world.now.wall = crate::Wall::from_millis(world.now.wall.as_millis() - 3_600_000);
    };
    let mut world = World::with_spec("  containers: [{name: a, image: x}]\n");
    world.settle().exit("a", 1).exit("a", 1);
    assert_eq!(world.waiting_reason("a"), Some("CrashLoopBackOff"));
    hour_back(&mut world);
    world.seconds(11);
    assert_eq!(world.running(), ["a"].into());

    let mut world = up(FOUR);
    world.exit("source", 42);
    bring_up(&mut world);
    world.exit("source", 42);
    assert_eq!(world.waiting_reason("source"), Some("CrashLoopBackOff"));
    hour_back(&mut world);
    world.seconds(11);
    assert_eq!(world.running(), ["setup"].into());
}
