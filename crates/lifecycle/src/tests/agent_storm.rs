//! An agent that restarts again and again, at awkward moments.

use std::time::Duration;

use keelet_pod::ProbeKind;

use super::world::World;
use crate::{
    Plan,
    operation::{Operation, Outcome},
    status::ContainerState,
};

const BUSY: &str = "
  initContainers:
  - name: proxy
    image: proxy
    restartPolicy: Always
    startupProbe: {exec: {command: [up]}, periodSeconds: 2, failureThreshold: 200}
    readinessProbe: {exec: {command: [up]}, periodSeconds: 2, failureThreshold: 2}
  containers:
  - name: main
    image: app
    startupProbe: {exec: {command: [up]}, periodSeconds: 3, failureThreshold: 200}
    readinessProbe: {exec: {command: [up]}, periodSeconds: 1, successThreshold: 2, failureThreshold: 2}
    livenessProbe: {exec: {command: [up]}, periodSeconds: 2, failureThreshold: 200}
    lifecycle: {preStop: {exec: {command: [bye]}}}
  - {name: plain, image: app}
";

/// `started` and `ready` of a running container change only in a plan that absorbs a result of its probe, or in which
/// its instance started or exited.
fn check(world: &World, plan: &Plan) {
    let Some(before) = world.plan.as_ref().map(|plan| &plan.status) else { return };
    for now in plan.status.all_containers() {
        let Some(then) = before.container(&now.name) else { continue };
        let runs = |state: &ContainerState| matches!(state, ContainerState::Running(_));
        let same_instance = now.container_id == then.container_id && runs(&now.state) == runs(&then.state);
        if !same_instance || (now.started, now.ready) == (then.started, then.ready) {
            continue;
        }
        let evidence = plan.results.iter().any(|record| {
            record.container == now.name
                && Some(&record.id) == now.container_id.as_ref()
                && matches!(record.probe, ProbeKind::Startup | ProbeKind::Readiness)
                && !matches!(record.outcome, Outcome::Late | Outcome::Cancelled)
        });
        assert!(evidence, "{} changed from {then:?} to {now:?} without a result", now.name);
    }
}

fn storm(restarts: u64, mut disturb: impl FnMut(&mut World, u64)) -> World {
    let mut world = World::with_spec(BUSY);
    world.inspector = Some(Box::new(check));
    for round in 0..restarts {
        disturb(&mut world, round);
        // Uneven steps, so that restarts fall between results as well as onto them.
        world.millis(1 + (round * 379) % 1_901);
        let copy = world.status().clone();
        if round % 3 == 0 {
            world.restart_agent_only().plan_once();
        } else {
            world.restart_in_cluster(Some(copy));
        }
    }
    world
}

/// KEEP-7, KEEP-8, KEEP-9, CON-9, CON-10: a hundred restarts in the middle of startup: never started, never killed,
/// never asked about anything else; and when startup passes, it passes.
#[test]
fn a_hundred_restarts_in_startup_change_nothing() {
    let mut world = storm(100, |world, round| {
        if round == 0 {
            world.answer("main", ProbeKind::Startup, Outcome::Failure);
        }
    });
    assert_eq!(world.bits("main"), (false, false));
    assert_eq!((world.bits("proxy"), world.bits("plain")), ((true, true), (true, true)));
    assert!(world.probed_at("main", ProbeKind::Liveness).is_empty());
    assert!(world.probed_at("main", ProbeKind::Readiness).is_empty());
    world.answer("main", ProbeKind::Startup, Outcome::Success).seconds(4);
    assert_eq!(world.bits("main"), (true, true));
    assert_eq!(world.container("main").restart_count, 0);
}

/// KEEP-10, KEEP-16, CON-8: a hundred restarts between results, with running attempts and changing results: every
/// change has its result.
#[test]
fn a_hundred_restarts_between_results_need_results_to_change_anything() {
    let mut world = storm(100, |world, round| {
        let readiness = match round % 17 {
            0..6 => Outcome::Success,
            6..10 => Outcome::Failure,
            10..12 => Outcome::Late,
            12..14 => Outcome::Error,
            _ => Outcome::Warning,
        };
        world.answer("main", ProbeKind::Readiness, readiness);
        world.answer("proxy", ProbeKind::Readiness, if round % 11 < 6 { Outcome::Success } else { Outcome::Failure });
        // Now and then the attempts hang, and the restart loses them.
        if round % 5 == 0 {
            world.hold(|operation| matches!(operation, Operation::Probe { .. }));
        } else {
            world.hold(|_| false);
        }
    });
    let flips = world.bits_since(0, "main").len();
    assert!(flips > 6, "the answers did change: {flips}");
    assert!(world.bits_since(0, "plain").len() <= 2, "false, then true for good");
    assert!(world.statuses.iter().all(|status| status.all_containers().all(|c| c.restart_count == 0)));
    world.hold(|_| false);
    for name in ["main", "proxy"] {
        world.answer(name, ProbeKind::Readiness, Outcome::Success);
    }
    world.seconds(4);
    assert_eq!((world.bits("main"), world.bits("proxy")), ((true, true), (true, true)));
}

/// KEEP-13, PROBE-44: a hundred restarts while a container is being killed: it is killed once, for one reason, and
/// counted once; nothing else is touched.
#[test]
fn a_hundred_restarts_in_a_kill_kill_once() {
    let mut world = storm(100, |world, round| {
        if round == 10 {
            world.hold(|operation| matches!(operation, Operation::PreStop { .. } | Operation::Stop { .. }));
            world.running_instance("main").hash = Some(1);
        }
    });
    let kill = world.instance("main").kill.clone().expect("it is being killed");
    assert_eq!(world.bits("main"), (true, true), "its readiness probe still passes");
    assert_eq!(world.container("main").restart_count, 0);
    assert!(world.now.since(&kill.since) > kill.grace, "the kill has one beginning");
    world.release().seconds(10);
    assert_eq!(world.container("main").restart_count, 1);
    assert_eq!(world.launches("main").len(), 2);
    assert_eq!((world.launches("proxy").len(), world.launches("plain").len()), (1, 1));
    assert_eq!(world.bits("main"), (true, true));
}

/// KEEP-21, DEF-24: an agent that restarts over and over asks at each start, but reaches no threshold sooner than the
/// period allows: three failures 10 s apart kill, thirty within 9 s do not.
#[test]
fn an_agent_that_keeps_restarting_kills_no_container_sooner() {
    let mut world = World::with_spec(
        "
  containers:
  - name: main
    image: app
    livenessProbe: {tcpSocket: {port: 80}, periodSeconds: 10, failureThreshold: 3}
    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 10, failureThreshold: 3}
",
    );
    world.seconds(15);
    assert!(world.container("main").ready);
    let id = world.id("main");
    for kind in [ProbeKind::Liveness, ProbeKind::Readiness] {
        world.answer("main", kind, Outcome::Failure);
    }
    // The first failure counts at once.
    world.restart_agent().seconds(1);
    assert_eq!(world.instance("main").liveness.streak.map(|streak| streak.length), Some(1));
    let mark = world.mark();
    for _ in 0..30 {
        world.restart_agent().pass(Duration::from_millis(270));
    }
    assert!(world.probes_since(mark, "main", ProbeKind::Liveness) >= 8, "each start asks");
    assert_eq!(world.instance("main").liveness.streak.map(|streak| streak.length), Some(1));
    assert!(world.container("main").ready);
    world.seconds(11);
    assert_eq!(world.instance("main").liveness.streak.map(|streak| streak.length), Some(2));
    assert_eq!((world.id("main"), world.container("main").ready), (id.clone(), true));
    world.seconds(10);
    assert_ne!(world.id("main"), id);
}

/// SIDE-13, KEEP-13: an agent that dies between a launch and its outcome leaves the post-start hook to the next one.
#[test]
fn a_hook_left_by_an_agent_that_died_is_run_by_the_next() {
    let mut world = World::with_spec(
        "
  containers:
  - {name: main, image: app, lifecycle: {postStart: {exec: {command: [hello]}}}}
",
    );
    world.hold(|operation| matches!(operation, Operation::Launch { .. })).settle();
    let [(id, Operation::Launch { .. })] = world.in_flight()[..] else { panic!("{:?}", world.in_flight()) };
    // The launch takes effect, and the agent dies before it hears of it.
    world.finish(id);
    let hooks = |world: &World| world.started.iter().filter(|(_, o)| matches!(o, Operation::PostStart { .. })).count();
    assert_eq!(hooks(&world), 0);
    world.restart_agent();
    assert_eq!(hooks(&world), 1);
    world.restart_agent();
    assert_eq!(hooks(&world), 1);
}
