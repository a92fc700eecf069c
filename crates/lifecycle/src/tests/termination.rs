//! Stopping containers: grace periods, hooks, and a grace period that shrinks (TERM-2..5, TERM-10).

use std::time::Duration;

use keelet_pod::ProbeKind;

use super::world::{BEGINNING, World};
use crate::{
    Stage,
    observed::Deletion,
    operation::{KillReason, OpResult, Operation, Outcome},
    status::{ContainerState, Phase},
};

/// Every stop so far: milliseconds since the beginning, container, timeout in milliseconds.
fn stops(world: &World) -> Vec<(i64, &str, u128)> {
    let all = world.started.iter().filter_map(|(at, operation)| match operation {
        Operation::Stop { container, timeout, .. } => {
            Some((at.wall.as_millis() - BEGINNING, container.as_str(), timeout.as_millis()))
        }
        _ => None,
    });
    all.collect()
}

/// The same for hooks.
fn pre_stops(world: &World) -> Vec<(i64, &str, u128)> {
    let all = world.started.iter().filter_map(|(at, operation)| match operation {
        Operation::PreStop { container, timeout, .. } => {
            Some((at.wall.as_millis() - BEGINNING, container.as_str(), timeout.as_millis()))
        }
        _ => None,
    });
    all.collect()
}

/// Carries out the operation in flight whose debug form contains the text.
fn finish(world: &mut World, text: &str) {
    let (id, _) = in_flight(world, text).unwrap_or_else(|| panic!("{text} is not in flight: {:?}", world.in_flight()));
    world.finish(id);
    world.settle();
}

fn in_flight(world: &World, text: &str) -> Option<(crate::operation::OpId, Operation)> {
    world.in_flight().into_iter().find(|(_, operation)| format!("{operation:?}").contains(text))
}

const HOOKED: &str = "
  containers:
  - {name: main, image: x, lifecycle: {preStop: {exec: {command: [bye]}}}}
";

/// VEC-34, SCN-T6, TERM-2, TERM-3, PROBE-30: the deletion's grace period comes first, then the probe's, then the
/// pod's, and no stop gets less than two seconds. (VEC-34's floor is superseded for a restart of all containers.)
#[test]
fn the_grace_period_is_the_most_specific_one() {
    let probes = "livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 30}, \
                  startupProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 10}";
    let bare = "livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 1}";
    let long = "livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 90}";
    let short = "livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 1}";
    let restart_all = "restartPolicy: Never, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
    type Happening = fn(&mut World);
    let changed: Happening = |world| {
        world.settle();
        world.pod.containers[0].hash += 1;
        world.settle();
    };
    let unhealthy: Happening = |world| {
        world.settle().answer("main", ProbeKind::Liveness, Outcome::Failure).seconds(3);
    };
    let not_started: Happening = |world| {
        world.answer("main", ProbeKind::Startup, Outcome::Failure).settle();
    };
    let deleted: Happening = |world| {
        world.settle().delete(5);
    };
    let deleted_at_once: Happening = |world| {
        world.settle().delete(0);
    };
    let unhealthy_then_deleted: Happening = |world| {
        world.hold(|operation| matches!(operation, Operation::Stop { .. }));
        world.settle().answer("main", ProbeKind::Liveness, Outcome::Failure).seconds(3);
        world.delete(5).release();
    };
    let triggered: Happening = |world| {
        world.settle().exit("other", 42);
    };
    for (name, pod, container, happening, reason, expected) in [
        ("unknown reason", 60, probes, changed, KillReason::DefinitionChanged, 60),
        ("liveness", 60, probes, unhealthy, KillReason::Probe(ProbeKind::Liveness), 30),
        ("startup", 60, probes, not_started, KillReason::Probe(ProbeKind::Startup), 10),
        ("probe without its own", 60, bare, unhealthy, KillReason::Probe(ProbeKind::Liveness), 60),
        ("probe's larger than the pod's", 60, long, unhealthy, KillReason::Probe(ProbeKind::Liveness), 90),
        ("probe's below the floor", 60, short, unhealthy, KillReason::Probe(ProbeKind::Liveness), 2),
        ("nothing set", 0, bare, changed, KillReason::DefinitionChanged, 2),
        ("floor", 1, bare, changed, KillReason::DefinitionChanged, 2),
        ("just above the floor", 3, bare, changed, KillReason::DefinitionChanged, 3),
        ("deletion", 60, probes, deleted, KillReason::PodEnding, 5),
        ("deletion of a pod with less", 2, bare, deleted, KillReason::PodEnding, 5),
        ("deletion without grace", 60, bare, deleted_at_once, KillReason::PodEnding, 2),
        (
            "deletion during a liveness kill",
            60,
            probes,
            unhealthy_then_deleted,
            KillReason::Probe(ProbeKind::Liveness),
            5,
        ),
        ("restart of all containers (VEC-34's floor superseded)", 60, bare, triggered, KillReason::RestartAll, 0),
    ] {
        let mut world = World::with_spec(&format!(
            "\n  terminationGracePeriodSeconds: {pod}\n  containers: [{{name: main, image: x, {container}}}, {{name: other, image: x, {restart_all}}}]\n"
        ));
        happening(&mut world);
        let stop = world.started.iter().rev().find_map(|(_, operation)| match operation {
            Operation::Stop { container, timeout, reason, .. } if container == "main" => Some((*timeout, *reason)),
            _ => None,
        });
        assert_eq!(stop, Some((Duration::from_secs(expected), reason)), "{name}");
    }
}

/// TERM-3, PROC-4, SCN-T1: the pre-stop hook runs inside the grace period; whole seconds that it took are missing from
/// the time between the stop signal and SIGKILL.
#[test]
fn the_hook_runs_inside_the_grace_period() {
    for (took, left) in [(0, 30_000), (999, 30_000), (1000, 29_000), (10_700, 20_000), (28_500, 2000), (29_500, 2000)] {
        let mut world = World::with_spec(HOOKED);
        world.hold(|operation| matches!(operation, Operation::PreStop { .. })).settle().delete(30);
        assert_eq!(pre_stops(&world), [(0, "main", 30_000)]);
        assert!(stops(&world).is_empty());
        assert!(world.saw_event("Killing", "Stopping container main"));
        world.pass(Duration::from_millis(took));
        finish(&mut world, "PreStop");
        assert_eq!(stops(&world), [(i64::try_from(took).unwrap(), "main", left)]);
        assert_eq!(pre_stops(&world).len(), 1, "the hook runs once");
        assert_eq!(world.events.iter().filter(|(reason, _)| reason == "Killing").count(), 1);
    }
}

/// TERM-4, TERM-7, SCN-T1: a hook that hangs is cut off at the end of the grace period, not before, and the stop gets
/// its two seconds.
#[test]
fn a_hanging_hook_is_cut_off_when_the_grace_period_ends() {
    let mut world = World::with_spec(HOOKED);
    world.hold(|operation| matches!(operation, Operation::PreStop { .. })).settle().delete(30);
    world.pass(Duration::from_millis(29_999));
    assert!(world.cancelled.is_empty());
    assert!(stops(&world).is_empty());
    world.pass(Duration::from_millis(1));
    assert!(matches!(world.cancelled.as_slice(), [Operation::PreStop { .. }]));
    assert_eq!(stops(&world), [(30_000, "main", 2000)]);
    assert_eq!(world.stage(), Stage::Gone);
    let mut world = World::with_spec(HOOKED);
    world.hold(|operation| matches!(operation, Operation::PreStop { .. })).settle().delete(30).seconds(100);
    assert_eq!(stops(&world), [(30_000, "main", 2000)], "no plan at the exact moment is needed");
}

/// TERM-4, EVT-5: a hook that fails does not hold up the stop, and what it said stays out of the event.
#[test]
fn a_failing_hook_does_not_hold_up_the_stop() {
    let mut world = World::with_spec(HOOKED);
    world.hold(|operation| matches!(operation, Operation::PreStop { .. })).settle().delete(30);
    world.seconds(4).fail("PreStop", "password=hunter2");
    finish(&mut world, "PreStop");
    assert_eq!(stops(&world), [(4000, "main", 26_000)]);
    let event = world.events.iter().find(|(reason, _)| reason == "FailedPreStopHook").unwrap();
    assert!(!event.1.contains("hunter2") && !event.1.contains("does not work"), "{event:?}");
    assert_eq!(pre_stops(&world).len(), 1, "it is not tried again");
}

/// TERM-5, SCN-T4: the hook is not run for a container that has exited already, nor without a grace period.
#[test]
fn the_hook_is_not_run_in_vain() {
    let mut world = World::with_spec(&format!("  restartPolicy: Never{HOOKED}"));
    world.settle().exit_only("main", 1).delete(30);
    assert_eq!(pre_stops(&world), []);
    assert_eq!(stops(&world), []);
    assert_eq!(world.stage(), Stage::Gone);
    let mut world = World::with_spec(&format!("  terminationGracePeriodSeconds: 0{HOOKED}"));
    world.settle();
    world.pod.containers[0].hash += 1;
    world.settle();
    assert_eq!(pre_stops(&world), []);
    assert_eq!(stops(&world), [(0, "main", 2000)]);
    let mut world = World::with_spec(HOOKED);
    world.settle().delete(0);
    assert_eq!(pre_stops(&world), [(0, "main", 1000)], "a deletion has at least one second");
}

/// DEF-22, TERM-10, TERM-2: a smaller grace period takes effect on the stop in flight; a larger one does not.
#[test]
fn a_smaller_grace_period_shortens_the_stop_in_flight() {
    let mut world = World::with_spec("  containers: [{name: main, image: x}]\n");
    world.hold(|operation| matches!(operation, Operation::Stop { .. })).settle().delete(30);
    assert_eq!(stops(&world), [(0, "main", 30_000)]);
    world.seconds(5).delete(60).seconds(5);
    assert!(world.cancelled.is_empty(), "a grace period does not grow");
    world.delete(20);
    assert!(world.cancelled.is_empty(), "twenty seconds are left anyway");
    world.delete(5);
    assert!(matches!(world.cancelled.as_slice(), [Operation::Stop { .. }]));
    assert_eq!(stops(&world)[1..], [(10_000, "main", 5000)]);
    world.seconds(4).delete(5);
    assert_eq!(stops(&world).len(), 2, "one second is left, not five");
    world.delete(1);
    assert_eq!(stops(&world).len(), 2, "and a stop is never shorter than two seconds");
    assert_eq!(world.evidence.durable.ending.as_ref().unwrap().grace, Duration::from_secs(15));
    world.release();
    assert_eq!(world.stage(), Stage::Gone);
}

/// DEF-22: what is left of a stop is compared to the second: one second less is rounding, more is a decision.
#[test]
fn rounding_does_not_restart_a_stop() {
    for (grace, restarted) in [(30, false), (29, false), (28, true)] {
        let mut world = World::with_spec("  containers: [{name: main, image: x}]\n");
        world.hold(|operation| matches!(operation, Operation::Stop { .. })).settle().delete(30);
        world.delete(grace);
        assert_eq!(!world.cancelled.is_empty(), restarted, "{grace} s");
        for _ in 0..20 {
            world.pass(Duration::from_millis(450));
        }
        assert_eq!(stops(&world).len(), if restarted { 2 } else { 1 });
    }
}

/// DEF-22, TERM-10, SCN-T4: a smaller grace period cuts a sleeping hook short, too.
#[test]
fn a_smaller_grace_period_shortens_the_hook_in_flight() {
    let mut world = World::with_spec(HOOKED);
    world.hold(|operation| matches!(operation, Operation::PreStop { .. })).settle().delete(30);
    world.seconds(10).delete(5);
    assert!(world.cancelled.is_empty());
    world.pass(Duration::from_millis(4999));
    assert!(world.cancelled.is_empty());
    world.pass(Duration::from_millis(1));
    assert!(matches!(world.cancelled.as_slice(), [Operation::PreStop { .. }]));
    assert_eq!(stops(&world), [(15_000, "main", 2000)]);
}

/// TERM-9, SCN-T5, STAT-4: a container that had to be killed shows 137 and `Error`.
#[test]
fn a_killed_container_shows_137_and_error() {
    let mut world = World::with_spec("\n  restartPolicy: Never\n  containers: [{name: main, image: x}]\n");
    world.hold(|operation| matches!(operation, Operation::Stop { .. })).settle().delete(5);
    world.seconds(5).exit_only("main", 137).release();
    let ContainerState::Terminated(terminated) = &world.container("main").state else { panic!("it has ended") };
    assert_eq!((terminated.exit_code, terminated.reason.as_str()), (137, "Error"));
    assert_eq!(world.status().phase, Phase::Failed);
}

/// PROC-4, TERM-3: a stop that fails is tried again after 1, 2, 4, 8 and then every 10 s, and the pod does not go away
/// before it has worked.
#[test]
fn a_stop_that_fails_is_tried_again() {
    let mut world = World::with_spec("  containers: [{name: main, image: x}]\n");
    world.fail("Stop {", "Unavailable").settle().delete(30);
    world.seconds(40);
    let at: Vec<i64> = stops(&world).into_iter().map(|(at, _, _)| at).collect();
    assert_eq!(at, [0, 1000, 3000, 7000, 15_000, 25_000, 35_000]);
    assert!(world.saw_event("FailedKillPod", "Unavailable"));
    assert_eq!(world.stage(), Stage::Ending);
    assert_eq!(world.status().phase, Phase::Running);
    world.failing.clear();
    world.seconds(5);
    assert_eq!(world.stage(), Stage::Gone);
}

/// TERM-12, SCN-K23: an agent that restarts in the middle of a termination goes on with what is left of it.
#[test]
fn a_termination_goes_on_after_an_agent_restart() {
    let mut world = World::with_spec(HOOKED);
    world.hold(|operation| matches!(operation, Operation::PreStop { .. })).settle().delete(30);
    world.seconds(12).restart_agent();
    assert_eq!(pre_stops(&world), [(0, "main", 30_000), (12_000, "main", 18_000)], "the hook died with the agent");
    world.seconds(3);
    finish(&mut world, "PreStop");
    assert_eq!(stops(&world), [(15_000, "main", 15_000)]);
    assert_eq!(world.stage(), Stage::Gone);
    assert_eq!(world.events.iter().filter(|(reason, _)| reason == "Killing").count(), 1);
}

/// TERM-12, SCN-K23: a pod that has ended, or whose node has been rebooted, goes away when its deletion is found at
/// the next agent start.
#[test]
fn a_pod_deleted_while_the_agent_was_down_goes_away() {
    let mut world = World::with_spec("\n  restartPolicy: Never\n  containers: [{name: main, image: x}]\n");
    world.settle().exit("main", 0);
    assert_eq!((world.stage(), world.status().phase), (Stage::Ended, Phase::Succeeded));
    let removed = |world: &World| world.started.iter().filter(|(_, o)| matches!(o, Operation::Remove { .. })).count();
    assert_eq!((removed(&world), world.observed.containers.len()), (0, 1), "its remains are kept for their logs");
    world.observed.deletion = Some(Deletion { grace: Duration::from_secs(30) });
    world.restart_agent();
    assert_eq!((world.stage(), world.status().phase), (Stage::Gone, Phase::Succeeded));
    assert_eq!(removed(&world), 1);
    let mut world = World::with_spec("  containers: [{name: main, image: x}]\n");
    world.settle();
    world.observed.deletion = Some(Deletion { grace: Duration::from_secs(30) });
    world.reboot().settle();
    assert_eq!((world.stage(), world.status().phase), (Stage::Gone, Phase::Failed));
    assert_eq!(world.launches("main").len(), 1, "nothing is started for a deleted pod");
}

/// TERM-3, PROC-4, EVT-3: a kill for a probe runs the hook within the probe's grace period, and a hook without a result
/// (the agent cancelled it) counts as run.
#[test]
fn a_kill_for_a_probe_runs_the_hook_first() {
    let mut world = World::with_spec(
        "
  containers:
  - name: main
    image: x
    livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 20}
    lifecycle: {preStop: {exec: {command: [bye]}}}
",
    );
    world.hold(|operation| matches!(operation, Operation::PreStop { .. })).settle();
    world.answer("main", ProbeKind::Liveness, Outcome::Failure).seconds(1);
    assert_eq!(pre_stops(&world), [(1000, "main", 20_000)]);
    assert!(world.saw_event("Killing", "Container main failed liveness probe, will be restarted"));
    world.seconds(5);
    let (id, _) = in_flight(&world, "PreStop").unwrap();
    world.conclude(id, OpResult::Cancelled);
    world.settle();
    assert_eq!(stops(&world), [(6000, "main", 15_000)]);
    assert_eq!(world.container("main").restart_count, 1);
}
