//! The way out of a whole pod: order, operations in flight, remains (TERM-1, TERM-6..8, STAT-21..23).

use std::time::Duration;

use keelet_pod::ProbeKind;

use super::world::{BEGINNING, World};
use crate::{
    Stage,
    evidence::EndingCause,
    operation::{KillReason, Operation},
    restart::RestartAllRule,
    status::{ConditionType, ContainerState, Phase},
};

const HOOK: &str = "lifecycle: {preStop: {exec: {command: [bye]}}}";

fn two_and_two(policy: &str, more: &str) -> World {
    World::with_spec(&format!(
        "
  restartPolicy: {policy}
  terminationGracePeriodSeconds: 40
  initContainers:
  - {{name: s1, image: x, restartPolicy: Always{more}}}
  - {{name: s2, image: x, restartPolicy: Always{more}}}
  containers:
  - {{name: c1, image: x{more}}}
  - {{name: c2, image: x{more}}}
"
    ))
}

/// Operations of one kind in flight, by container.
fn flying(world: &World, kind: &str) -> Vec<String> {
    let of_kind = |(_, operation): &(_, Operation)| format!("{operation:?}").starts_with(&format!("{kind} {{"));
    let name = |(_, operation): (_, Operation)| operation.container().unwrap_or_default().to_owned();
    world.in_flight().into_iter().filter(of_kind).map(name).collect()
}

/// Carries out what is in flight for this container.
fn finish(world: &mut World, kind: &str, container: &str) {
    let is_it = |operation: &Operation| {
        format!("{operation:?}").starts_with(&format!("{kind} {{")) && operation.container() == Some(container)
    };
    let (id, _) = world.in_flight().into_iter().find(|(_, operation)| is_it(operation)).expect("in flight");
    world.finish(id);
    world.settle();
}

fn timeout(world: &World, name: &str) -> Duration {
    let stop = world.started.iter().rev().find_map(|(_, operation)| match operation {
        Operation::Stop { container, timeout, .. } if container == name => Some(*timeout),
        _ => None,
    });
    stop.unwrap_or_else(|| panic!("{name} was not stopped"))
}

/// TERM-6, SCN-S19, SCN-S14: regular containers are stopped at once; each sidecar waits for all of them and for the
/// sidecars after it, and gets what is then left of the grace period.
#[test]
fn sidecars_are_stopped_last_and_in_reverse_order() {
    let mut world = two_and_two("Always", "");
    world.hold(|operation| matches!(operation, Operation::Stop { .. })).settle().delete(30);
    assert_eq!(flying(&world, "Stop"), ["c1", "c2"]);
    world.seconds(3);
    finish(&mut world, "Stop", "c1");
    assert_eq!(flying(&world, "Stop"), ["c2"]);
    world.seconds(2);
    finish(&mut world, "Stop", "c2");
    assert_eq!(flying(&world, "Stop"), ["s2"]);
    assert_eq!(timeout(&world, "s2"), Duration::from_secs(25));
    world.seconds(5);
    finish(&mut world, "Stop", "s2");
    assert_eq!(flying(&world, "Stop"), ["s1"]);
    assert_eq!(timeout(&world, "s1"), Duration::from_secs(20));
    assert_eq!(world.stage(), Stage::Ending);
    finish(&mut world, "Stop", "s1");
    assert_eq!(world.stage(), Stage::Gone);
}

/// TERM-6, TERM-7, SCN-S19: when the grace period is used up no container waits any longer, and those still running
/// are stopped together with two seconds each.
#[test]
fn sidecars_do_not_wait_beyond_the_grace_period() {
    let mut world = two_and_two("Always", "");
    world.hold(|operation| matches!(operation, Operation::Stop { .. })).settle().delete(30);
    world.pass(Duration::from_millis(29_999));
    assert_eq!(flying(&world, "Stop"), ["c1", "c2"]);
    world.pass(Duration::from_millis(1));
    assert_eq!(flying(&world, "Stop"), ["c1", "c2", "s1", "s2"]);
    for name in ["s1", "s2"] {
        assert_eq!(timeout(&world, name), Duration::from_secs(2));
    }
    assert_eq!(timeout(&world, "c1"), Duration::from_secs(30), "the stop in flight has had its time");
    assert!(world.cancelled.is_empty());
}

/// TERM-6, TERM-7, SCN-S14: the hooks of all containers start at once, only the stop signals wait; with hooks that
/// hang, all are stopped together at the end of the grace period.
#[test]
fn all_hooks_start_at_once() {
    let mut world = two_and_two("Always", &format!(", {HOOK}"));
    world.hold(|operation| matches!(operation, Operation::PreStop { .. } | Operation::Stop { .. })).settle().delete(30);
    assert_eq!(flying(&world, "PreStop"), ["s1", "s2", "c1", "c2"]);
    assert_eq!(flying(&world, "Stop").len(), 0);
    world.seconds(2);
    finish(&mut world, "PreStop", "s1");
    assert_eq!(flying(&world, "Stop").len(), 0, "its hook is done, its turn has not come");
    finish(&mut world, "PreStop", "c1");
    assert_eq!(flying(&world, "Stop"), ["c1"]);
    world.seconds(27);
    assert_eq!(flying(&world, "PreStop"), ["s2", "c2"]);
    world.seconds(1);
    assert_eq!(flying(&world, "PreStop").len(), 0);
    assert_eq!(world.cancelled.len(), 2);
    let mut stopping = flying(&world, "Stop");
    stopping.sort();
    assert_eq!(stopping, ["c1", "c2", "s1", "s2"]);
}

/// TERM-6, SCN-S14: a sidecar whose own hook still runs is not stopped when its turn comes, and is when it has ended.
#[test]
fn a_sidecar_is_stopped_when_its_turn_has_come_and_its_hook_is_done() {
    let mut world = two_and_two("Always", &format!(", {HOOK}"));
    world.hold(|operation| matches!(operation, Operation::PreStop { container, .. } if container == "s2")).settle();
    world.delete(30);
    assert_eq!(world.running(), ["s1", "s2"].into());
    world.seconds(8);
    finish(&mut world, "PreStop", "s2");
    assert_eq!(timeout(&world, "s2"), Duration::from_secs(22));
    assert_eq!(world.stage(), Stage::Gone);
}

/// TERM-7, SCN-S14: a pod that is deleted while it initializes does not wait for containers that never started.
#[test]
fn a_pod_deleted_during_initialization_does_not_hang() {
    let mut world = World::with_spec(
        "
  initContainers:
  - {name: s1, image: x, restartPolicy: Always}
  - {name: i1, image: x}
  - {name: s2, image: x, restartPolicy: Always}
  containers: [{name: c1, image: x}]
",
    );
    world.hold(|operation| matches!(operation, Operation::Stop { .. })).settle();
    assert_eq!(world.running(), ["i1", "s1"].into());
    world.delete(30);
    assert_eq!(flying(&world, "Stop"), ["s1", "i1"], "neither waits for the other");
    world.release();
    assert_eq!(world.stage(), Stage::Gone);
    assert_eq!(world.status().phase, Phase::Failed);
    assert!(matches!(world.container("s2").state, ContainerState::Waiting(_)), "its turn never came");
    assert!(matches!(world.container("c1").state, ContainerState::Waiting(_)));
}

/// STAT-18, TERM-6, SCN-S14, SIDE-9: how sidecars end does not matter, how regular containers end does; a pod whose
/// regular containers are done takes its sidecars down in order.
#[test]
fn sidecar_exits_do_not_fail_the_pod() {
    for (regular, sidecar, phase) in [(0, 1, Phase::Succeeded), (0, 137, Phase::Succeeded), (137, 0, Phase::Failed)] {
        let mut world = two_and_two("Never", "");
        world.hold(|operation| matches!(operation, Operation::Stop { .. })).settle().exit("c1", 0);
        assert_eq!((world.stage(), world.status().phase), (Stage::Live, Phase::Running));
        world.seconds(3).exit("c2", regular);
        assert_eq!((world.stage(), world.status().phase), (Stage::Ending, Phase::Running), "not before all is stopped");
        assert_eq!(flying(&world, "Stop"), ["s2"]);
        assert_eq!(timeout(&world, "s2"), Duration::from_secs(40), "the pod's own grace period");
        world.seconds(40).exit_only("s2", sidecar).exit_only("s1", sidecar).release();
        assert_eq!((world.stage(), world.status().phase), (Stage::Ended, phase));
        assert_eq!(world.evidence.durable.ending.as_ref().unwrap().cause, EndingCause::Finished);
        assert_eq!(world.observed.containers.len(), 4, "the dead are kept until the pod is deleted");
        assert!(!world.observed.sandboxes[0].ready);
        world.delete(30);
        assert_eq!((world.stage(), world.status().phase), (Stage::Gone, phase));
    }
}

/// TERM-8, SIDE-9, SIDE-15: nothing is started, restarted or replaced once the pod is on its way out.
#[test]
fn nothing_is_restarted_on_the_way_out() {
    let mut world = two_and_two("Always", "");
    world.hold(|operation| matches!(operation, Operation::Stop { .. })).settle().delete(30);
    let mark = world.mark();
    world.seconds(1).exit("s2", 1).exit("c1", 1);
    for container in world.pod.init_containers.iter_mut().chain(&mut world.pod.containers) {
        container.hash += 1;
    }
    world.observed.deletion = None;
    world.seconds(2);
    assert!(world.since(mark).is_empty(), "{:?}", world.since(mark));
    assert_eq!(world.container("s2").restart_count, 0);
    assert!(matches!(world.container("s2").state, ContainerState::Terminated(_)));
    assert!(!world.saw_event("BackOff", ""));
}

/// TERM-1, STAT-21, STAT-22, PROBE-42: containers, then the sandbox, then the remains; the terminal phase is said when
/// nothing runs any more, and the pod is gone when nothing is left.
#[test]
fn a_pod_goes_away_step_by_step() {
    let mut world = World::with_spec("\n  containers: [{name: c, image: x, livenessProbe: {tcpSocket: {port: 1}}}]\n");
    world.settle();
    let mark = world.mark();
    world.hold(|operation| !matches!(operation, Operation::Probe { .. })).delete(30);
    let id = world.id("c");
    let sandbox = world.observed.sandboxes[0].id.clone();
    let next = |world: &mut World| {
        let mut flying = world.in_flight();
        assert_eq!(flying.len(), 1, "one step at a time: {flying:?}");
        let (id, operation) = flying.remove(0);
        world.finish(id);
        world.settle();
        operation
    };
    assert_eq!((world.stage(), world.status().phase), (Stage::Ending, Phase::Running));
    assert!(world.holds(ConditionType::Ready), "readiness is not withdrawn by the deletion itself (PROBE-43)");
    let (container, reason, timeout) = ("c".to_owned(), KillReason::PodEnding, Duration::from_secs(30));
    assert_eq!(next(&mut world), Operation::Stop { container: container.clone(), id: id.clone(), timeout, reason });
    assert_eq!((world.stage(), world.status().phase), (Stage::Ending, Phase::Running), "the sandbox is still up");
    assert!(!world.holds(ConditionType::Ready));
    assert_eq!(next(&mut world), Operation::StopSandbox { sandbox: sandbox.clone() });
    assert_eq!((world.stage(), world.status().phase), (Stage::Ended, Phase::Failed));
    assert_eq!(world.condition(ConditionType::Ready).reason.as_deref(), Some("PodFailed"));
    assert!(world.status().pod_ip.is_some(), "its address stays known");
    assert_eq!(next(&mut world), Operation::Remove { container, id });
    assert_eq!(world.stage(), Stage::Ended);
    assert_eq!(next(&mut world), Operation::RemoveSandbox { sandbox });
    assert_eq!((world.stage(), world.status().phase), (Stage::Gone, Phase::Failed));
    assert_eq!(world.since(mark).len(), 4);
    assert_eq!(world.probes_since(mark, "c", ProbeKind::Liveness), 0);
}

/// TERM-6, TERM-4: the end of the grace period is not missed, whether a hook or a sidecar's turn is waited for.
#[test]
fn the_end_of_the_grace_period_wakes_the_planner() {
    for (held, late) in [("Stop { container: \"c", ["s1", "s2"]), ("PreStop { container: \"c", ["c1", "c2"])] {
        let mut world = two_and_two("Always", &format!(", {HOOK}"));
        world.hold(move |operation| format!("{operation:?}").starts_with(held)).settle().delete(30);
        world.seconds(100);
        for name in late {
            let at = world.started.iter().find_map(|(at, operation)| match operation {
                Operation::Stop { container, .. } if container == name => Some(at.wall.as_millis() - BEGINNING),
                _ => None,
            });
            assert_eq!(at, Some(30_000), "{name}");
        }
    }
}

/// TERM-1, PROBE-42: attempts in flight about liveness and startup are called off, one about readiness is not.
#[test]
fn only_readiness_is_asked_on_the_way_out() {
    let probe = "{tcpSocket: {port: 1}, periodSeconds: 1}";
    let mut world = World::with_spec(&format!(
        "\n  containers: [{{name: c, image: x, livenessProbe: {probe}, readinessProbe: {probe}}}]\n"
    ));
    world.hold(|operation| matches!(operation, Operation::Probe { .. } | Operation::Stop { .. })).seconds(1);
    assert_eq!(flying(&world, "Probe").len(), 2);
    world.delete(30);
    assert!(matches!(world.cancelled.as_slice(), [Operation::Probe { probe: ProbeKind::Liveness, .. }]));
    assert_eq!(flying(&world, "Probe").len(), 1);
}

/// TERM-1: a deletion during a ten-minute pull takes effect at once.
#[test]
fn a_deletion_does_not_wait_for_a_pull() {
    let mut world = World::with_spec("  containers: [{name: c, image: x}]\n");
    world.hold(|operation| matches!(operation, Operation::EnsureImage { .. })).settle().seconds(60);
    assert_eq!(world.stage(), Stage::Live);
    world.delete(30);
    assert!(matches!(world.cancelled.as_slice(), [Operation::EnsureImage { .. }]));
    assert_eq!(world.stage(), Stage::Gone);
    assert!(world.launches("c").is_empty());
    let ms = world.now.wall.as_millis() - BEGINNING;
    assert_eq!(ms, 60_000, "at the moment of the deletion");
}

/// TERM-1, TERM-8: a launch that is called off too late brings up a container, which is stopped and removed; the same
/// goes for a sandbox.
#[test]
fn a_launch_called_off_too_late_is_undone() {
    let mut world = World::with_spec("  containers: [{name: c, image: x}]\n");
    world.cancels_too_late = true;
    world.hold(|operation| matches!(operation, Operation::Launch { .. })).settle();
    let mark = world.mark();
    world.delete(30);
    assert!(matches!(world.cancelled.as_slice(), [Operation::Launch { .. }]));
    let kinds: Vec<String> =
        world.since(mark).iter().map(|o| format!("{o:?}").split(' ').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(kinds, ["Stop", "StopSandbox", "Remove", "RemoveSandbox"]);
    assert_eq!(world.stage(), Stage::Gone);
    let mut world = World::with_spec("  containers: [{name: c, image: x}]\n");
    world.cancels_too_late = true;
    world.hold(|operation| matches!(operation, Operation::CreateSandbox { .. })).settle();
    let mark = world.mark();
    world.delete(30);
    assert!(matches!(world.since(mark).as_slice(), [Operation::StopSandbox { .. }, Operation::RemoveSandbox { .. }]));
    assert_eq!(world.stage(), Stage::Gone);
}

/// TERM-1: as long as a launch that was called off has not been heard of, the pod is not over, and its sandbox stays.
#[test]
fn a_launch_not_yet_called_off_keeps_the_pod_from_ending() {
    let mut world = World::with_spec("  containers: [{name: c, image: x}]\n");
    world.hold(|operation| matches!(operation, Operation::Launch { .. })).settle();
    let mark = world.mark();
    world.observed.deletion = Some(crate::observed::Deletion { grace: Duration::from_secs(30) });
    let plan = world.rules.plan(&world.pod, &world.observed, &world.evidence, world.now);
    let again = world.rules.plan(&world.pod, &world.observed, &plan.evidence, world.now);
    assert_eq!(plan.operations.len(), 1, "the cancellation");
    assert!(again.operations.is_empty(), "said once");
    assert_eq!((again.stage, again.status.phase), (Stage::Ending, Phase::Pending));
    world.settle();
    assert_eq!(world.stage(), Stage::Gone);
    assert!(matches!(world.since(mark).as_slice(), [Operation::StopSandbox { .. }, Operation::RemoveSandbox { .. }]));
}

/// STAT-23, SCN-C5: at the end every container that had started counts as terminated, with 137 and
/// `ContainerStatusUnknown` if its exit status is unknown; those that were never due to start do not.
#[test]
fn what_is_not_known_to_have_ended_is_said_to_have() {
    let unknown = |world: &World, name: &str| match &world.container(name).state {
        ContainerState::Terminated(terminated) => {
            Some((terminated.exit_code, terminated.reason == "ContainerStatusUnknown"))
        }
        ContainerState::Running(_) | ContainerState::Waiting(_) => None,
    };
    let spec = "
  initContainers: [{name: i1, image: x}, {name: i2, image: x}, {name: i3, image: x}]
  containers: [{name: c1, image: x}, {name: c2, image: x}]
";
    let mut world = World::with_spec(spec);
    world.settle().exit("i1", 0).lose("i2").delete(30);
    assert_eq!(unknown(&world, "i1"), Some((0, false)));
    assert_eq!(unknown(&world, "i2"), Some((137, true)));
    assert_eq!(world.container("i2").restart_count, 0, "a deleted pod restarts nothing");
    assert_eq!((unknown(&world, "i3"), unknown(&world, "c1")), (None, None));
    assert_eq!(world.status().phase, Phase::Failed);
    let mut world = World::with_spec(spec);
    world.hold(|operation| matches!(operation, Operation::EnsureImage { .. })).settle().delete(30);
    assert_eq!(unknown(&world, "i1"), Some((137, true)), "the first init container always");
    assert_eq!((unknown(&world, "i2"), unknown(&world, "c1")), (None, None));
    let mut world = World::with_spec(spec);
    world.settle().exit("i1", 0).exit("i2", 0);
    world.hold(|operation| matches!(operation, Operation::Launch { container, .. } if container == "c2"));
    world.exit("i3", 0).delete(30);
    assert_eq!(unknown(&world, "c1"), Some((143, false)));
    assert_eq!(unknown(&world, "c2"), Some((137, true)), "the pod had initialized");
}

/// TERM-12, SCN-K24, STAT-20: a pod that may not run here is Failed at once, keeps its reason, starts nothing, and goes
/// away when deleted.
#[test]
fn a_rejected_pod_is_finalized() {
    let mut world = World::with_spec(
        "\n  initContainers: [{name: i, image: x}]\n  containers: [{name: c, image: x, restartPolicy: Never, \
         restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}]\n",
    );
    world.rules.restart_all = RestartAllRule::Ignored;
    world.settle();
    assert_eq!((world.stage(), world.status().phase), (Stage::Ended, Phase::Failed));
    assert_eq!(world.status().reason.as_deref(), Some("PodFeatureUnsupported"));
    assert!(world.status().message.as_ref().unwrap().starts_with("Pod was rejected: "));
    assert!(world.started.is_empty());
    for name in ["i", "c"] {
        assert!(matches!(world.container(name).state, ContainerState::Waiting(_)), "{name} never had a chance to end");
    }
    assert_eq!(world.events.len(), 1, "{:?}", world.events);
    assert!(world.saw_event("PodFeatureUnsupported", "RestartAllContainers"));
    world.observed.deletion = Some(crate::observed::Deletion { grace: Duration::from_secs(30) });
    world.restart_agent();
    assert_eq!(world.stage(), Stage::Gone);
    assert_eq!(world.status().reason.as_deref(), Some("PodFeatureUnsupported"));
}
