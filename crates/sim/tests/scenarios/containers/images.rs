//! Another image for a container of a pod that is there.

use keelet_lifecycle::status::{ConditionType, Phase};
use keelet_pod::ProbeKind;
use keelet_sim::{CallKind, Reply, World, secs};

use super::{assert_about, assert_before, calls, end_of, phases, world};

const POD: &str = "  initContainers:
  - {name: init, image: app:v1}
  - name: side
    image: app:v1
    restartPolicy: Always
    startupProbe: {exec: {command: [started]}, periodSeconds: 1, failureThreshold: 60}
  - {name: last, image: app:v1}
  containers:
  - {name: main, image: app:v1}
";

fn starts(world: &World) -> [usize; 4] {
    ["init", "side", "last", "main"].map(|name| world.starts(name))
}

/// Asserts that the container runs its new image.
#[track_caller]
fn assert_new(world: &World, name: &str) {
    assert!(world.running(name).is_some(), "{name}\n{}", world.timeline_text());
    assert_eq!(world.container(name).image_id, "sha256:app:v2", "{name}\n{}", world.timeline_text());
}

/// SCN-S13.
#[test]
fn a_regular_container_or_sidecar_with_another_image_is_restarted_and_nothing_else_is() {
    for (name, expected) in [("main", [1, 1, 1, 2]), ("side", [1, 2, 1, 1])] {
        let mut world = world(POD);
        world.run(secs(20));
        world.set_image(name, "app:v2").run(secs(10));
        assert_eq!(starts(&world), expected, "{name}");
        assert_new(&world, name);
        assert_eq!(world.container(name).restart_count, 1);
        assert!(world.saw_event("Killing", "definition changed"), "{name}");
        assert_eq!(phases(&world), [Phase::Pending, Phase::Running], "{name}");
        assert!(world.holds(ConditionType::Ready), "{name}");
    }
}

/// SCN-S13.
#[test]
fn a_sidecar_gets_its_new_image_also_while_the_pod_starts_up() {
    // Before it has started.
    let mut world = world(POD);
    world.script("side").answers(ProbeKind::Startup, Reply::Fail);
    world.run(secs(10));
    assert_eq!(starts(&world), [1, 1, 0, 0]);
    world.set_image("side", "app:v2").run(secs(5));
    assert_eq!(starts(&world), [1, 2, 0, 0]);
    assert_new(&world, "side");
    world.answer("side", ProbeKind::Startup, Reply::Pass).run(secs(10));
    assert_eq!(starts(&world), [1, 2, 1, 1]);

    // While an init container after it runs, which is none the worse for it.
    let mut world = super::world(POD);
    world.script("last").exits(0).after(secs(20));
    world.run(secs(10));
    assert_eq!(starts(&world), [1, 1, 1, 0]);
    world.set_image("side", "app:v2").run(secs(5));
    assert_eq!(starts(&world), [1, 2, 1, 0]);
    assert_new(&world, "side");
    world.run(secs(20));
    assert_eq!(starts(&world), [1, 2, 1, 1]);
}

/// SCN-S13.
#[test]
fn an_image_that_changes_before_its_container_has_started_is_the_one_that_starts() {
    let mut world = world(POD);
    world.script("init").exits(0).after(secs(10));
    world.run(secs(5));
    world.set_image("main", "app:v2").set_image("side", "app:v2").run(secs(20));
    assert_eq!(starts(&world), [1, 1, 1, 1]);
    assert_new(&world, "main");
    assert_new(&world, "side");
}

/// SCN-S13.
#[test]
fn another_image_for_an_init_container_that_is_over_changes_nothing() {
    for name in ["init", "last"] {
        let mut world = world(POD);
        world.run(secs(20));
        world.set_image(name, "app:v2").run(secs(60));
        assert_eq!(starts(&world), [1, 1, 1, 1], "{name}");
        assert_eq!(phases(&world), [Phase::Pending, Phase::Running], "{name}");
        assert!(world.holds(ConditionType::Ready), "{name}");
    }
}

/// SCN-S13.
#[test]
fn an_init_container_that_keeps_failing_is_tried_with_its_new_image() {
    let mut world = world(POD);
    world.script("init").exits(1).times(4);
    world.run(secs(40));
    assert_eq!(starts(&world), [4, 0, 0, 0]);
    world.set_image("init", "app:v2").run(secs(5));
    // Another image owes nothing to the failures of the old one.
    assert_eq!(starts(&world), [5, 1, 1, 1]);
    assert_eq!(world.container("init").image_id, "sha256:app:v2");
}

/// SCN-S13.
#[test]
fn another_image_changes_nothing_while_the_pod_terminates() {
    let mut world = world(POD);
    for name in ["main", "side"] {
        world.script(name).ends_on_term(secs(5), 0);
    }
    world.run(secs(20));
    world.delete_within("web", secs(30)).run(secs(2));
    world.set_image("main", "app:v2").set_image("side", "app:v2").run(secs(30));
    assert_eq!(starts(&world), [1, 1, 1, 1]);
    assert_eq!(calls(&world, CallKind::PullImage, "app:v2"), []);
    assert!(!world.saw_event("Killing", "definition changed"));
    assert!(!world.has_remains("web"));
}

/// SCN-B2.
#[test]
fn another_image_resets_the_backoff() {
    let mut world = world("  containers:\n  - {name: main, image: app:v1}\n");
    world.script("main").exits(1);
    world.run(secs(75));
    // At 0, 0, 10, 30 and 70 s; the next would be at 150 s.
    assert_eq!(world.starts("main"), 5);
    let changed = world.elapsed();
    world.set_image("main", "app:v2").run(secs(20));
    let runs = world.container_runs("main");
    assert_about(runs[5].began - changed, secs(0));
    assert_before(end_of(&runs[5]) + secs(10), runs[6].began);
    assert_about(runs[6].began - end_of(&runs[5]), secs(10));
}
