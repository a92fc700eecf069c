//! The startup probe: no other probe counts until it has passed once for this instance.

use keelet_pod::ProbeKind;

use super::world::World;
use crate::{
    Because, Subject,
    operation::{KillReason, Operation, Outcome},
    status::{ConditionType, Phase},
};

fn slow_starter(threshold: u32) -> World {
    World::with_spec(&format!(
        "
  containers:
  - name: main
    image: app
    startupProbe: {{exec: {{command: [up]}}, periodSeconds: 10, failureThreshold: {threshold}}}
    readinessProbe: {{exec: {{command: [up]}}, periodSeconds: 5}}
    livenessProbe: {{exec: {{command: [up]}}, periodSeconds: 10, failureThreshold: 1}}
"
    ))
}

fn kill_times(world: &World, kind: ProbeKind) -> Vec<u64> {
    let beginning = world.started[0].0;
    let is_it = |operation: &Operation| matches!(operation, Operation::Stop { reason, .. } if *reason == KillReason::Probe(kind));
    world
        .started
        .iter()
        .filter(|(_, operation)| is_it(operation))
        .map(|(at, _)| at.since(&beginning).as_secs())
        .collect()
}

/// START-1, START-2, START-6, START-7, START-9, PROBE-18, CON-18j, SCN-U15, SCN-U16, SCN-P15: while the startup probe
/// has not passed, the container is neither started nor ready and nothing else is asked; below the threshold nothing
/// is killed. From its first success on, the startup probe is not run again, and the others are.
#[test]
fn nothing_else_is_asked_until_startup_has_passed() {
    let mut world = slow_starter(30);
    world.answer("main", ProbeKind::Startup, Outcome::Failure);
    world.answer("main", ProbeKind::Liveness, Outcome::Failure);
    world.seconds(55);
    assert_eq!(world.bits("main"), (false, false));
    assert_eq!(world.probed_at("main", ProbeKind::Startup), [0, 10_000, 20_000, 30_000, 40_000, 50_000]);
    assert!(world.probed_at("main", ProbeKind::Readiness).is_empty());
    assert!(world.probed_at("main", ProbeKind::Liveness).is_empty());
    assert_eq!(*world.why_ready("main"), Because::NotStarted);
    let why = world.why(&Subject::Started("main".to_owned()));
    assert_eq!(*why, Because::NotYetProbed { probe: ProbeKind::Startup, streak: 6, passing: false });
    assert_eq!(world.container("main").restart_count, 0);
    world.answer("main", ProbeKind::Liveness, Outcome::Success);
    world.answer("main", ProbeKind::Startup, Outcome::Success).seconds(5);
    assert_eq!(world.bits("main"), (true, true));
    // It would fail now, but it is not run.
    world.answer("main", ProbeKind::Startup, Outcome::Failure).seconds(600);
    assert_eq!(world.probed_at("main", ProbeKind::Startup).len(), 7);
    assert_eq!(world.bits("main"), (true, true));
    assert_eq!(world.container("main").restart_count, 0);
}

/// START-2, CON-18g, CON-6: without a startup probe a container has started once it runs, and not before.
#[test]
fn without_a_startup_probe_running_is_started() {
    let mut world = World::with_spec("\n  containers:\n  - {name: main, image: app}\n");
    world.hold(|operation| matches!(operation, Operation::Launch { .. })).settle();
    assert_eq!(world.container("main").started, Some(false));
    world.release();
    assert_eq!(world.bits("main"), (true, true));
    assert_eq!(*world.why_ready("main"), Because::NoProbe);
    world.hold(|operation| matches!(operation, Operation::Launch { .. })).exit("main", 1);
    assert_eq!(world.bits("main"), (false, false));
}

/// START-3, START-5, START-11, CON-18f, SCN-P14: the failure that reaches the threshold kills, not the one after.
/// 30 attempts 10 s apart leave a container 290 s, and the last answer decides; a delay is added.
#[test]
fn startup_kills_when_the_threshold_is_reached() {
    for (delay, threshold, killed) in [(0, 30, 290), (0, 1, 0), (0, 3, 20), (7, 3, 27)] {
        let spec = format!(
            "
  containers:
  - name: main
    image: app
    startupProbe:
      {{exec: {{command: [up]}}, initialDelaySeconds: {delay}, periodSeconds: 10, failureThreshold: {threshold}}}
    livenessProbe: {{exec: {{command: [up]}}, periodSeconds: 10, failureThreshold: 1}}
"
        );
        let mut world = World::with_spec(&spec);
        world.hold(|operation| matches!(operation, Operation::Stop { .. }));
        world.answer("main", ProbeKind::Startup, Outcome::Failure).seconds(310);
        assert_eq!(kill_times(&world, ProbeKind::Startup), [killed], "delay {delay} s, threshold {threshold}");
        assert_eq!(world.probed_at("main", ProbeKind::Startup).len(), threshold, "on hold after that");
        assert!(kill_times(&world, ProbeKind::Liveness).is_empty());
        assert_eq!(world.bits("main"), (false, false));
    }
}

/// START-11, SCN-P16: the worked example: a starter that needs 285 s is left alone, and once started, one liveness
/// failure is found within 10 s.
#[test]
fn a_slow_starter_gets_its_time_and_is_then_watched_closely() {
    let mut world = slow_starter(30);
    world.answer("main", ProbeKind::Startup, Outcome::Failure).seconds(285);
    world.answer("main", ProbeKind::Startup, Outcome::Success).seconds(5);
    assert_eq!(world.bits("main"), (true, true));
    assert_eq!(world.container("main").restart_count, 0);
    world.answer("main", ProbeKind::Liveness, Outcome::Failure).millis(9_999);
    assert!(kill_times(&world, ProbeKind::Liveness).is_empty());
    world.millis(1);
    assert_eq!(kill_times(&world, ProbeKind::Liveness), [300]);
}

/// START-3: a startup kill restarts by policy, as a liveness kill does: under Never the pod fails.
#[test]
fn a_startup_kill_restarts_by_policy() {
    for (policy, phase, count) in
        [("Always", Phase::Running, 1), ("OnFailure", Phase::Running, 1), ("Never", Phase::Failed, 0)]
    {
        let spec = format!(
            "
  restartPolicy: {policy}
  containers:
  - {{name: main, image: app, startupProbe: {{exec: {{command: [up]}}, periodSeconds: 1, failureThreshold: 2}}}}
"
        );
        let mut world = World::with_spec(&spec);
        world.answer("main", ProbeKind::Startup, Outcome::Failure).seconds(1);
        assert_eq!(world.status().phase, phase, "{policy}");
        assert_eq!(world.container("main").restart_count, count, "{policy}");
        assert_eq!(kill_times(&world, ProbeKind::Startup), [1], "{policy}");
    }
}

/// START-4, START-9, DEF-2, KEEP-3: a new container begins from nothing: it is not started, not ready and not asked
/// about anything else until its own startup probe has passed, whatever the former one had reached.
#[test]
fn every_instance_has_to_start_up() {
    for end in ["exit", "liveness", "image"] {
        let spec = "
  containers:
  - name: main
    image: app
    startupProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 99}
    livenessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 1}
";
        let mut world = World::with_spec(spec);
        world.seconds(2);
        assert_eq!(world.bits("main"), (true, true));
        let (first, seen) = (world.id("main"), world.statuses.len());
        let asked = world.probed_at("main", ProbeKind::Liveness).len();
        world.answer("main", ProbeKind::Startup, Outcome::Failure);
        match end {
            "exit" => {
                world.exit("main", 1);
            }
            "liveness" => {
                world.answer("main", ProbeKind::Liveness, Outcome::Failure).seconds(1);
            }
            _ => {
                world.running_instance("main").hash = Some(1);
                world.settle();
            }
        }
        assert_ne!(world.id("main"), first, "{end}");
        world.seconds(20);
        for status in &world.statuses[seen..] {
            let main = status.container("main").unwrap();
            let new = main.container_id.as_ref() != Some(&first);
            assert!(!new || main.started == Some(false) && !main.ready, "{end}: {main:?}");
        }
        let extra = usize::from(end == "liveness");
        assert_eq!(world.probed_at("main", ProbeKind::Liveness).len(), asked + extra, "{end}");
        world.answer("main", ProbeKind::Liveness, Outcome::Success);
        world.answer("main", ProbeKind::Startup, Outcome::Success).seconds(1);
        assert_eq!(world.bits("main"), (true, true), "{end}");
    }
}

/// DEF-2, KEEP-3, START-4: so does one that took the place of the former between two looks. The last status says started,
/// but of another container.
#[test]
fn a_container_replaced_between_two_looks_has_to_start_up() {
    let mut world = slow_starter(30);
    world.seconds(10);
    assert_eq!(world.bits("main"), (true, true));
    world.answer("main", ProbeKind::Startup, Outcome::Failure);
    let instance = world.running_instance("main");
    (instance.id, instance.attempt) = ("test://another".to_owned(), instance.attempt + 1);
    let mark = world.mark();
    world.settle();
    assert_eq!(world.container("main").container_id.as_deref(), Some("test://another"));
    assert_eq!(world.bits("main"), (false, false));
    world.seconds(20);
    assert_eq!(world.bits("main"), (false, false));
    assert_eq!(world.probes_since(mark, "main", ProbeKind::Readiness), 0);
    assert_eq!(world.probes_since(mark, "main", ProbeKind::Liveness), 0);
}

/// START-8, KEEP-5: a sidecar that has not started up holds back the init container after it and all regular ones,
/// also over an agent restart.
#[test]
fn a_sidecar_that_starts_up_holds_back_the_rest() {
    let spec = "
  initContainers:
  - name: proxy
    image: proxy
    restartPolicy: Always
    startupProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 99}
  - {name: setup, image: tool}
  containers:
  - {name: main, image: app}
";
    let mut world = World::with_spec(spec);
    world.answer("proxy", ProbeKind::Startup, Outcome::Failure).seconds(5);
    assert_eq!(world.running(), ["proxy"].into());
    world.millis(300).restart_agent().seconds(5);
    assert_eq!(world.running(), ["proxy"].into());
    assert_eq!(world.bits("proxy"), (false, false));
    assert!(!world.holds(ConditionType::Initialized));
    world.answer("proxy", ProbeKind::Startup, Outcome::Success).seconds(1);
    assert_eq!(world.running(), ["proxy", "setup"].into());
    world.exit("setup", 0);
    assert_eq!(world.running(), ["main", "proxy"].into());
}
