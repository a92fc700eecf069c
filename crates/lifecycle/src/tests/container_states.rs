//! From the runtime's containers to container statuses (STAT-1..15).

use keelet_pod::ProbeKind;

use super::world::{BEGINNING, World};
use crate::{
    Wall,
    observed::{Instance, InstanceState, Sandbox},
    operation::{KillReason, Operation, Outcome},
    status::{ConditionType, ContainerState, Phase, Terminated},
};

fn wall(millis: i64) -> Wall {
    Wall::from_millis(BEGINNING + millis)
}

fn instance(name: &str, attempt: u32, state: InstanceState) -> Instance {
    Instance {
        id: format!("test://{name}-{attempt}"),
        name: name.to_owned(),
        sandbox: "here".to_owned(),
        attempt,
        hash: None,
        image: "x:1".to_owned(),
        image_id: format!("sha256:{name}"),
        created_at: wall(i64::from(attempt)),
        state,
    }
}

fn exited(exit_code: i32, reason: &str) -> InstanceState {
    InstanceState::Exited {
        started_at: wall(-9400),
        finished_at: wall(-4600),
        exit_code,
        reason: reason.to_owned(),
        message: "out".to_owned(),
    }
}

const RUNS: InstanceState = InstanceState::Running { started_at: Wall::from_millis(BEGINNING - 1300) };

/// A node agent that finds these containers, and does nothing about them.
fn found(spec: &str, instances: Vec<Instance>) -> World {
    let mut world = World::with_spec(spec);
    world.observed.sandboxes.push(Sandbox {
        id: "here".to_owned(),
        ready: true,
        attempt: 0,
        created_at: wall(-10_000),
        ips: vec!["10.0.0.1".to_owned()],
        host_network: false,
        lost: None,
    });
    world.observed.containers = instances;
    world.hold(|_| true).plan_once();
    world
}

const ONE: &str = "  containers: [{name: c, image: \"x:1\"}]\n";

/// STAT-1: a container that has not run waits, with a reason that depends on init containers before it; so do init
/// containers themselves.
#[test]
fn a_container_that_has_not_run_waits() {
    let world = found(ONE, vec![]);
    assert_eq!(world.waiting_reason("c"), Some("ContainerCreating"));
    let status = world.container("c");
    assert_eq!((status.restart_count, status.ready, status.started), (0, false, Some(false)));
    assert_eq!((&status.container_id, status.image.as_str(), status.image_id.as_str()), (&None, "x:1", ""));
    let world = found(&format!("  initContainers: [{{name: i, image: x}}]\n{ONE}"), vec![]);
    assert_eq!(
        (world.waiting_reason("c"), world.waiting_reason("i")),
        (Some("PodInitializing"), Some("PodInitializing"))
    );
}

/// STAT-2, STAT-8: the newest instance is the state, the one before it the last state, older ones and containers that
/// the spec does not know are ignored.
#[test]
fn the_two_newest_instances_are_shown() {
    let mut old = instance("c", 0, exited(7, "Error"));
    old.created_at = wall(900);
    let list = vec![instance("c", 2, RUNS), old, instance("c", 1, exited(3, "Error")), instance("stray", 9, RUNS)];
    let world = found(ONE, list);
    let status = world.container("c");
    assert_eq!(status.container_id.as_deref(), Some("test://c-2"));
    assert!(matches!(status.state, ContainerState::Running(_)));
    assert_eq!(status.last_state.terminated.as_ref().map(|ended| ended.exit_code), Some(3));
    assert_eq!((status.restart_count, status.image_id.as_str()), (2, "sha256:c"));
    assert_eq!(world.status().all_containers().count(), 1);
    let list = vec![instance("c", 0, exited(7, "Error")), instance("c", 1, exited(3, "Error"))];
    let world = found(&format!("  restartPolicy: Never\n{ONE}"), list);
    let status = world.container("c");
    assert!(matches!(&status.state, ContainerState::Terminated(ended) if ended.exit_code == 3));
    assert_eq!(status.last_state.terminated.as_ref().map(|ended| ended.exit_code), Some(7));
}

/// STAT-3, STAT-4, STAT-11, API-22: each runtime state has its API form, with times in whole seconds and the runtime's
/// own reasons.
#[test]
fn runtime_states_are_converted() {
    let world = found(ONE, vec![instance("c", 0, RUNS)]);
    let ContainerState::Running(running) = &world.container("c").state else { panic!("it runs") };
    assert_eq!(running.started_at, wall(-2000), "a second and three tenths ago, rounded down");
    let world = found(ONE, vec![instance("c", 0, InstanceState::Created)]);
    assert_eq!(world.waiting_reason("c"), Some(""), "created is waiting, for nothing in particular");
    let world = found(ONE, vec![instance("c", 0, exited(3, "Error")), instance("c", 1, InstanceState::Created)]);
    assert_eq!(world.waiting_reason("c"), Some(""), "also after an end, which is the last state then");
    assert_eq!(world.container("c").last_state.terminated.as_ref().map(|ended| ended.exit_code), Some(3));
    for (exit_code, reason) in [(0, "Completed"), (1, "Error"), (137, "OOMKilled"), (128, "StartError")] {
        let world = found(&format!("  restartPolicy: Never\n{ONE}"), vec![instance("c", 0, exited(exit_code, reason))]);
        let expected = Terminated {
            exit_code,
            reason: reason.to_owned(),
            message: "out".to_owned(),
            started_at: Some(wall(-10_000)),
            finished_at: Some(wall(-5000)),
            container_id: Some("test://c-0".to_owned()),
        };
        assert_eq!(world.container("c").state, ContainerState::Terminated(expected));
        assert_eq!(world.container("c").started, Some(false));
    }
    let world = found(ONE, vec![instance("c", 0, InstanceState::Unknown)]);
    assert_eq!(world.waiting_reason("c"), Some("ContainerCreating"), "nothing is known of its past");
}

/// STAT-3, SIDE-7: a container that ran and of which the runtime lost track has ended with 137; it is stopped, and
/// counted and replaced once.
#[test]
fn a_container_of_unknown_state_has_ended_with_137() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut world = found(&format!("  restartPolicy: {policy}\n{ONE}"), vec![instance("c", 4, RUNS)]);
        world.observed.containers[0].state = InstanceState::Unknown;
        world.plan_once();
        let status = world.container("c");
        let ContainerState::Terminated(ended) = &status.state else { panic!("{:?}", status.state) };
        assert_eq!((ended.exit_code, ended.reason.as_str()), (137, "ContainerStatusUnknown"));
        assert_eq!((status.restart_count, status.ready), (5, false));
        let stops: Vec<_> = world.since(0).into_iter().filter(|o| matches!(o, Operation::Stop { .. })).collect();
        assert!(matches!(stops.as_slice(), [Operation::Stop { reason: KillReason::StateUnknown, .. }]), "{stops:?}");
        world.release();
        if policy == "Never" {
            assert_eq!(world.status().phase, Phase::Failed);
        } else {
            assert!(matches!(world.container("c").state, ContainerState::Running(_)));
            assert_eq!(world.container("c").restart_count, 5, "counted once");
            assert_eq!(world.observed.newest("c").unwrap().attempt, 5);
        }
    }
}

/// STAT-3: a container that was given up stays so when the runtime finds it again.
#[test]
fn a_container_given_up_is_not_taken_back() {
    let mut world = found(ONE, vec![instance("c", 0, RUNS)]);
    world.observed.containers[0].state = InstanceState::Unknown;
    world.plan_once();
    world.observed.containers[0].state = RUNS;
    let stop = world.in_flight().into_iter().find(|(_, o)| matches!(o, Operation::Stop { .. })).unwrap();
    world.conclude(stop.0, crate::operation::OpResult::Cancelled);
    world.plan_once();
    assert_eq!(world.container("c").restart_count, 1);
    assert!(!matches!(world.container("c").state, ContainerState::Running(_)));
    world.release();
    assert!(matches!(world.container("c").state, ContainerState::Running(_)));
    assert_eq!((world.container("c").restart_count, world.id("c") == "test://c-0"), (1, false));
}

/// STAT-5: a container that is not in the runtime any more keeps its end, or waits as before; one that ran when last
/// seen waits with 137 behind it, and is counted unless the pod is being deleted.
#[test]
fn a_container_missing_from_the_runtime_is_shown_by_its_past() {
    let never = &format!("  restartPolicy: Never\n{ONE}");
    let mut world = found(never, vec![instance("c", 0, exited(3, "Error"))]);
    world.lose("c").plan_once();
    assert!(matches!(&world.container("c").state, ContainerState::Terminated(ended) if ended.exit_code == 3));
    assert_eq!(world.container("c").restart_count, 0);
    let mut world = found(ONE, vec![]);
    world.plan_once();
    assert_eq!(
        (world.waiting_reason("c"), world.container("c").last_state.is_none()),
        (Some("ContainerCreating"), true)
    );
    for (policy, deleted, count) in [("Always", false, 1), ("Always", true, 0), ("OnFailure", false, 1)] {
        let mut world = found(&format!("  restartPolicy: {policy}\n{ONE}"), vec![instance("c", 0, RUNS)]);
        world.lose("c");
        if deleted {
            world.observed.deletion = Some(crate::observed::Deletion { grace: std::time::Duration::from_secs(30) });
        }
        world.plan_once();
        let status = world.container("c");
        let ended = status.last_state.terminated.as_ref().unwrap();
        assert_eq!(world.waiting_reason("c"), Some("ContainerCreating"));
        assert_eq!((ended.exit_code, ended.reason.as_str()), (137, "ContainerStatusUnknown"));
        assert_eq!(status.restart_count, count, "{policy}, deleted: {deleted}");
        assert_eq!(world.status().phase, Phase::Running, "it counts as stopped, not as pending");
    }
}

/// STAT-5, STAT-8: a leftover of an earlier instance does not become the present one when the newest is lost: the loss
/// is counted once, and shown as lost.
#[test]
fn the_remains_of_an_earlier_instance_are_not_the_lost_one() {
    let mut world = World::with_spec(ONE);
    world.settle().exit("c", 42).seconds(20);
    assert_eq!(world.container("c").restart_count, 1);
    for count in [2, 3] {
        let running = world.id("c").to_owned();
        world.observed.containers.retain(|instance| instance.id != running);
        assert_eq!(world.observed.containers.len(), 1, "the leftover of the first instance");
        world.hold(|operation| matches!(operation, Operation::Launch { .. })).settle();
        let status = world.container("c");
        let ended = status.last_state.terminated.as_ref().unwrap();
        assert_eq!((ended.exit_code, ended.reason.as_str()), (137, "ContainerStatusUnknown"));
        assert_eq!((world.waiting_reason("c"), status.restart_count), (Some("ContainerCreating"), count));
        world.release().seconds(1);
        assert_eq!((world.running(), world.container("c").restart_count), (["c"].into(), count));
    }
}

/// STAT-6: an ordinary init container that is not there must have succeeded if a regular one exists; a sidecar need
/// not.
#[test]
fn a_missing_init_container_is_inferred_to_have_completed() {
    let spec =
        &format!("  initContainers: [{{name: i, image: x}}, {{name: s, image: x, restartPolicy: Always}}]\n{ONE}");
    for state in [RUNS, exited(1, "Error"), InstanceState::Created] {
        let world = found(spec, vec![instance("c", 0, state.clone())]);
        let ContainerState::Terminated(ended) = &world.container("i").state else { panic!("{state:?}") };
        assert_eq!((ended.exit_code, ended.reason.as_str()), (0, "Completed"));
        assert!(world.container("i").ready);
        assert_eq!(world.waiting_reason("s"), Some("PodInitializing"));
        assert!(!world.container("s").ready);
    }
    let world = found(spec, vec![instance("s", 0, RUNS)]);
    assert_eq!((world.waiting_reason("i"), world.container("i").ready), (Some("PodInitializing"), false));
}

/// STAT-7: a start that failed shows its reason, the end before it moves to the last state, and a start that works
/// clears it.
#[test]
fn a_failed_start_shows_its_reason() {
    for reason in ["CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreStartHookError"] {
        let mut world = World::with_spec(ONE);
        world.settle().fail("Launch", reason).exit("c", 3);
        assert_eq!(world.waiting_reason("c"), Some(reason));
        let status = world.container("c");
        assert_eq!(status.last_state.terminated.as_ref().map(|ended| ended.exit_code), Some(3));
        assert_eq!((status.restart_count, status.started), (0, Some(false)));
        assert_eq!(world.status().phase, Phase::Running);
        world.failing.clear();
        world.seconds(1);
        assert!(matches!(world.container("c").state, ContainerState::Running(_)));
        assert_eq!(world.container("c").restart_count, 1);
    }
    let mut world = World::with_spec(ONE);
    world.settle().hold(|operation| matches!(operation, Operation::Launch { .. })).exit("c", 3);
    assert!(matches!(world.container("c").state, ContainerState::Terminated(_)), "ended until it starts again");
}

/// STAT-8, VEC-33: the count of a new instance is one more than the largest count in the runtime, the ledger and the
/// log files.
#[test]
fn the_restart_count_is_the_largest_in_any_evidence() {
    let attempt = |world: &World| {
        let last = world.started.iter().rev().find_map(|(_, operation)| match operation {
            Operation::Launch { attempt, .. } => Some(*attempt),
            _ => None,
        });
        last.unwrap()
    };
    let mut world = found(ONE, vec![]);
    world.release();
    assert_eq!(attempt(&world), 0);
    let mut world = found(ONE, vec![instance("c", 5, exited(1, "Error"))]);
    world.release();
    assert_eq!((attempt(&world), world.container("c").restart_count), (6, 6));
    world.observed.containers.iter_mut().find(|i| i.attempt == 6).unwrap().state = exited(1, "Error");
    world.observed.log_counts.insert("c".to_owned(), 9);
    world.seconds(10);
    assert_eq!((attempt(&world), world.container("c").restart_count), (9, 9));
    world.observed.log_counts.clear();
    world.lose("c").seconds(1);
    assert_eq!((attempt(&world), world.container("c").restart_count), (10, 10), "the ledger remembers");
}

/// STAT-9: the exit of an instance stays visible through the whole next instance, and until that has exited too.
#[test]
fn the_last_state_lasts_until_the_next_end() {
    let mut world = World::with_spec(ONE);
    let code = |world: &World| world.container("c").last_state.terminated.as_ref().map(|ended| ended.exit_code);
    world.settle();
    assert_eq!(code(&world), None);
    world.exit("c", 3).seconds(100).restart_agent();
    assert_eq!(code(&world), Some(3));
    world.hold(|operation| matches!(operation, Operation::Launch { .. })).exit("c", 4);
    assert_eq!(code(&world), Some(4), "it waits for its backoff, so the end is behind it");
    assert_eq!(world.waiting_reason("c"), Some("CrashLoopBackOff"));
    world.seconds(10).release();
    assert_eq!(code(&world), Some(4));
    assert_eq!(world.container("c").restart_count, 2);
}

/// STAT-10: init containers in the order of the spec, regular and ephemeral ones by name.
#[test]
fn statuses_are_listed_in_a_fixed_order() {
    let world = found(
        "
  initContainers: [{name: z, image: x}, {name: a, image: x, restartPolicy: Always}, {name: m, image: x}]
  containers: [{name: web, image: x}, {name: app, image: x}, {name: log, image: x}]
  ephemeralContainers: [{name: tty, image: x}, {name: dbg, image: x}]
",
        vec![],
    );
    let names = |list: &[crate::status::ContainerStatus]| list.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&world.status().init_container_statuses), ["z", "a", "m"]);
    assert_eq!(names(&world.status().container_statuses), ["app", "log", "web"]);
    assert_eq!(names(&world.status().ephemeral_container_statuses), ["dbg", "tty"]);
}

/// STAT-13, STAT-14, SIDE-14, SCN-S20, START-6: regular containers and sidecars are ready when they have started and
/// their probe says so; an ordinary init container is ready by its success.
#[test]
fn started_and_ready_depend_on_the_kind_of_container() {
    let mut world = World::with_spec(
        "
  initContainers:
  - {name: i, image: x}
  - name: s
    image: x
    restartPolicy: Always
    startupProbe: {tcpSocket: {port: 1}, periodSeconds: 1}
    readinessProbe: {tcpSocket: {port: 1}, periodSeconds: 1}
  containers: [{name: c, image: x}]
",
    );
    let bits = |world: &World, name: &str| (world.container(name).started, world.container(name).ready);
    world
        .answer("s", ProbeKind::Startup, Outcome::Failure)
        .answer("s", ProbeKind::Readiness, Outcome::Failure)
        .settle();
    assert_eq!(bits(&world, "i"), (Some(true), false), "an init container that runs");
    world.exit("i", 0);
    assert_eq!(bits(&world, "i"), (Some(false), true), "and one that has succeeded");
    assert_eq!(bits(&world, "s"), (Some(false), false));
    world.answer("s", ProbeKind::Startup, Outcome::Success).seconds(1);
    assert_eq!(bits(&world, "s"), (Some(true), false));
    assert_eq!(bits(&world, "c"), (Some(true), true), "no probes: running is enough");
    assert!(!world.holds(ConditionType::ContainersReady), "the sidecar counts");
    world.answer("s", ProbeKind::Readiness, Outcome::Success).seconds(2);
    assert_eq!(bits(&world, "s"), (Some(true), true));
    assert!(world.holds(ConditionType::Ready));
    world.hold(|operation| matches!(operation, Operation::Launch { .. })).exit("s", 0);
    assert_eq!(bits(&world, "s"), (Some(false), false));
    assert!(!world.holds(ConditionType::Ready));
    assert_eq!(bits(&world, "i"), (Some(false), true));
}
