//! Sidecars with probes: which containers wait for them, and what happens to them.

use keelet_lifecycle::status::ConditionType;
use keelet_pod::ProbeKind::{Liveness, Startup};
use keelet_sim::{CallKind, Reply, World, secs};

use super::{assert_before, began, calls, end_of, world};

const STARTUP: &str = "startupProbe: {exec: {command: [started]}, periodSeconds: 1, failureThreshold: 10}";

/// A sidecar with a hook and this probe, an init container after it, and a regular one.
fn probed(probe: &str) -> World {
    world(&format!(
        "  initContainers:
  - name: side
    image: app
    restartPolicy: Always
    lifecycle: {{preStop: {{exec: {{command: [goodbye]}}}}}}
    {probe}
  - {{name: init, image: app}}
  containers:
  - {{name: main, image: app}}
"
    ))
}

/// Asserts that the hook ran before the first instance of the sidecar ended.
#[track_caller]
fn assert_hook_called(world: &World) {
    let hooks = calls(world, CallKind::ExecSync, "goodbye");
    let stops = calls(world, CallKind::StopContainer, "side");
    assert!(!hooks.is_empty() && !stops.is_empty(), "{}", world.timeline_text());
    assert_before(hooks[0], stops[0]);
    assert_before(stops[0], end_of(&world.container_runs("side")[0]));
}

/// SCN-S9.
#[test]
fn sidecars_with_startup_probes_start_one_by_one() {
    let mut world = world(&format!(
        "  initContainers:
  - name: first
    image: app
    restartPolicy: Always
    {STARTUP}
  - name: second
    image: app
    restartPolicy: Always
    {STARTUP}
  containers:
  - {{name: main, image: app}}
"
    ));
    for side in ["first", "second"] {
        world.script(side).answers(Startup, Reply::Fail).answers_from(secs(5), Startup, Reply::Pass);
    }
    world.run(secs(30));
    assert_before(began(&world, "first") + secs(5), began(&world, "second"));
    assert_before(began(&world, "second") + secs(5), began(&world, "main"));
    assert!(world.holds(ConditionType::Ready));
}

/// SCN-S10.
#[test]
fn a_sidecar_whose_startup_fails_is_stopped_with_its_hook_and_nothing_after_it_starts() {
    let mut world = probed(STARTUP);
    world.script("side").answers(Startup, Reply::Fail);
    world.run(secs(60));
    assert_hook_called(&world);
    assert!(world.container("side").restart_count >= 2);
    assert_eq!((world.starts("init"), world.starts("main")), (0, 0));
    assert!(world.saw_event("Killing", "Init container side failed startup probe"));
}

/// SCN-S11.
#[test]
fn a_sidecar_whose_liveness_fails_is_restarted_with_its_hook_and_the_next_starts_all_the_same() {
    let mut world = probed("livenessProbe: {exec: {command: [alive]}, periodSeconds: 2, failureThreshold: 1}");
    world.script("side").answers(Liveness, Reply::Fail);
    world.script("init").exits(0).after(secs(10));
    world.run(secs(60));
    assert_hook_called(&world);
    assert!(world.container("side").restart_count >= 2);
    assert_eq!((world.starts("init"), world.starts("main")), (1, 1));
    // The next did not wait for a sidecar in good health.
    assert_before(began(&world, "init"), end_of(&world.container_runs("side")[0]));
    assert!(world.saw_event("Killing", "Init container side failed liveness probe"));
}

/// SCN-S12.
#[test]
fn a_sidecar_whose_startup_fails_first_and_passes_then_lets_the_others_start() {
    let mut world = probed(STARTUP);
    world.script("side").answers(Startup, Reply::Fail);
    world.run(secs(12));
    assert_eq!(world.container("side").restart_count, 1);
    assert_eq!(world.starts("init"), 0);
    world.answer("side", Startup, Reply::Pass).run(secs(10));
    assert_eq!((world.starts("side"), world.starts("init"), world.starts("main")), (2, 1, 1));
    assert!(world.holds(ConditionType::Ready));
}
