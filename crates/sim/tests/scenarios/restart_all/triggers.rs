//! What may trigger RestartAllContainers, and that each trigger restarts each container once.

use keelet_lifecycle::status::{ConditionType, Phase};
use keelet_sim::{Happening, World, millis, secs};

use super::{
    FOUR, RULE, assert_history, assert_never_final, assert_one_sandbox, assert_victim, condition_changes, counts, four,
    last, modes, runs, starts, up, up_again,
};

/// SCN-A1, SCN-A8, EVT-8: a regular container triggers, with an API server and without one, and an event says so. All
/// four kinds are restarted once, each has its history, and the pod is back within three minutes.
#[test]
fn a_regular_container_triggers() {
    for builder in modes(&four()) {
        let mut world = builder.build();
        up(&mut world);
        world.exit("source", 42);
        up_again(&mut world);
        assert!(world.saw_event("RestartAllContainers", "source") && world.saw_event("RestartAllContainers", "42"));
        assert_eq!(counts(&world, FOUR), [1; 4]);
        assert_eq!(starts(&world, FOUR), [2; 4]);
        assert!(runs(&world, "source") && runs(&world, "other") && runs(&world, "side"));
        assert_history(&world, "source", 42, "Error");
        assert_history(&world, "setup", 0, "RestartingAllContainers");
        assert_victim(&world, "side");
        assert_victim(&world, "other");
        assert_never_final(&world);
        assert_one_sandbox(&world);
        world.settle();
    }
}

/// SCN-A2, DEF-16: a sidecar triggers after half a minute, beside a main container that may not restart; also where the
/// main container ends together with it.
#[test]
fn a_sidecar_triggers() {
    let spec = format!(
        "  restartPolicy: Never
  initContainers:
  - {{name: side, image: proxy, restartPolicy: Always, {RULE}}}
  containers:
  - {{name: main, image: app}}
"
    );
    for main_ends_too in [false, true] {
        for builder in modes(&spec) {
            let mut world = builder.build();
            world.script("side").exits(42).after(secs(30)).once();
            if main_ends_too {
                world.script("main").exits(1).when_ends("side").once();
            }
            up(&mut world);
            assert_eq!(counts(&world, ["side", "main"]), [0, 0]);
            world.run(secs(30));
            up_again(&mut world);
            assert_eq!(counts(&world, ["side", "main"]), [1, 1]);
            assert_eq!(starts(&world, ["side", "main"]), [2, 2]);
            assert_history(&world, "side", 42, "Error");
            assert_history(&world, "main", if main_ends_too { 1 } else { 137 }, "RestartingAllContainers");
            assert_never_final(&world);
            assert_one_sandbox(&world);
            world.settle();
        }
    }
}

/// SCN-A3: the third init container triggers. What ran before is restarted, and the regular container, which had not
/// run, starts for the first time.
#[test]
fn the_third_init_container_triggers() {
    let spec = format!(
        "  restartPolicy: Never
  initContainers:
  - {{name: side, image: proxy, restartPolicy: Always}}
  - {{name: setup, image: tool}}
  - {{name: source, image: tool, restartPolicy: Never, {RULE}}}
  containers:
  - {{name: main, image: app}}
"
    );
    let mut world = World::new(1).pod(&spec).build();
    world.script("source").exits(42).after(secs(3)).once();
    up(&mut world);
    assert_eq!(counts(&world, ["side", "setup", "source", "main"]), [1, 1, 1, 0]);
    assert_eq!(starts(&world, ["side", "setup", "source", "main"]), [2, 2, 2, 1]);
    assert_history(&world, "source", 42, "Error");
    assert_history(&world, "setup", 0, "RestartingAllContainers");
    assert_victim(&world, "side");
    assert!(world.container("main").last_state.is_none());
    assert_eq!(condition_changes(&world), [false, true, false]);
    assert_never_final(&world);
    assert_one_sandbox(&world);
    world.settle();
}

/// SCN-A4, RALL-26: two containers with the rule. However their exits follow each other, and also if the kill of one of
/// them matches its own rule, that is one restart each and no loop.
#[test]
fn two_triggers_are_one_restart() {
    let rule_of_kills =
        "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: NotIn, values: [0]}}]";
    for (rule, second) in [
        (RULE, Some(millis(0))),
        (RULE, Some(millis(2))),
        (RULE, Some(millis(5))),
        (RULE, Some(millis(8))),
        (RULE, None),
        (rule_of_kills, None),
    ] {
        let spec = format!(
            "  restartPolicy: Never
  containers:
  - {{name: one, image: app, restartPolicy: Never, {rule}}}
  - {{name: two, image: app, restartPolicy: Never, {rule}}}
"
        );
        let mut world = World::new(1).pod(&spec).build();
        if let Some(after) = second {
            world.script("two").exits(42).when_ends("one").after(after).once();
        }
        up(&mut world);
        world.exit("one", 42);
        up_again(&mut world);
        world.run(secs(120));
        assert_eq!(counts(&world, ["one", "two"]), [1, 1], "{rule} {second:?}\n{}", world.timeline_text());
        assert_eq!(starts(&world, ["one", "two"]), [2, 2]);
        assert_eq!(condition_changes(&world), [false, true, false]);
        assert_history(&world, "one", 42, "Error");
        assert_never_final(&world);
        world.settle();
    }
}

/// SCN-A5, RALL-27: a container that is restarted by itself first and triggers in its next instance. Nothing of its
/// first instance is left in the runtime either.
#[test]
fn a_container_that_was_restarted_by_itself_triggers() {
    let spec = format!(
        "  initContainers:
  - {{name: setup, image: tool}}
  - {{name: side, image: proxy, restartPolicy: Always}}
  containers:
  - {{name: source, image: app, restartPolicy: Always, {RULE}}}
  - {{name: other, image: app}}
"
    );
    let mut world = World::new(1).pod(&spec).build();
    up(&mut world);
    world.exit("source", 1).run(secs(10));
    assert_eq!(counts(&world, FOUR), [0, 0, 1, 0]);
    assert_eq!(last(&world, "source").exit_code, 1);
    world.exit("source", 42);
    up_again(&mut world);
    assert_eq!(counts(&world, FOUR), [1, 1, 2, 1]);
    assert_history(&world, "source", 42, "Error");
    let timeline = world.timeline();
    let removed = |id: &str| {
        let is_it = |what: &Happening| matches!(what, Happening::Removed { instance, .. } if instance.id == id);
        timeline.entries().iter().any(|entry| is_it(&entry.what))
    };
    for id in ["web-source-1", "web-source-2", "web-other-1", "web-side-1", "web-setup-1"] {
        assert!(removed(id), "{id} is still there\n{timeline}");
    }
    world.settle();
}

/// SCN-A11: the first or the second init container triggers, in its first instance.
#[test]
fn the_first_or_the_second_init_container_triggers() {
    for (trigger, expected) in [("first", [1, 0, 0]), ("second", [1, 1, 0])] {
        let spec = format!(
            "  restartPolicy: Never
  initContainers:
  - {{name: first, image: tool, restartPolicy: Never, {RULE}}}
  - {{name: second, image: tool, restartPolicy: Never, {RULE}}}
  containers:
  - {{name: main, image: app}}
"
        );
        let mut world = World::new(1).pod(&spec).build();
        world.script(trigger).exits(42).after(secs(1)).once();
        up(&mut world);
        assert_eq!(counts(&world, ["first", "second", "main"]), expected, "{trigger}");
        assert_history(&world, trigger, 42, "Error");
        assert_never_final(&world);
        assert_one_sandbox(&world);
        world.settle();
    }
}

/// SCN-A11, RALL-23: an init container that fails once all were restarted ends a pod that never restarts, and is tried
/// again in one that always does.
#[test]
fn an_init_container_that_fails_afterwards_is_judged_as_ever() {
    for policy in ["Never", "Always", "OnFailure"] {
        let spec = format!(
            "  restartPolicy: {policy}
  initContainers:
  - {{name: setup, image: tool}}
  containers:
  - {{name: source, image: app, restartPolicy: Never, {RULE}}}
"
        );
        let mut world = World::new(1).pod(&spec).build();
        world.script("setup").exits(1).after(secs(1)).on_attempt(1);
        up(&mut world);
        world.exit("source", 42);
        if policy == "Never" {
            world.run(secs(30));
            let text = world.timeline_text();
            assert_eq!(world.status().phase, Phase::Failed, "{text}");
            assert_eq!(starts(&world, ["setup", "source"]), [2, 1], "{text}");
            let condition = world.condition(&ConditionType::AllContainersRestarting);
            assert_eq!((condition.status, condition.reason.as_deref()), (false.into(), Some("PodFailed")), "{text}");
        } else {
            up_again(&mut world);
            assert_eq!(counts(&world, ["setup", "source"]), [2, 1]);
            assert_history(&world, "setup", 1, "Error");
            assert_history(&world, "source", 42, "Error");
            assert_never_final(&world);
        }
        world.settle();
    }
}

/// SCN-A11: a sidecar fails before the regular container has started. With the rule all are restarted, otherwise it
/// alone; in the first round, and in the one after a restart of all containers.
#[test]
fn a_sidecar_that_fails_before_the_regular_container_has_started() {
    let spec = format!(
        "  restartPolicy: Never
  initContainers:
  - {{name: side, image: proxy, restartPolicy: Always, {RULE}}}
  - {{name: setup, image: tool}}
  containers:
  - {{name: main, image: app, restartPolicy: Never, {RULE}}}
"
    );
    let names = ["side", "setup", "main"];
    for (round, exit_code, expected) in [(0, 1, [1, 0, 0]), (0, 42, [1, 1, 0]), (1, 1, [2, 1, 1]), (1, 42, [2, 2, 1])] {
        let mut world = World::new(1).pod(&spec).build();
        world.script("setup").exits(0).after(secs(10));
        world.script("side").exits(exit_code).after(secs(2)).on_attempt(round);
        up(&mut world);
        if round == 1 {
            world.exit("main", 42);
            up_again(&mut world);
        }
        world.run(secs(60));
        let text = world.timeline_text();
        assert_eq!(counts(&world, names), expected, "round {round}, code {exit_code}\n{text}");
        assert!(runs(&world, "main"), "{text}");
        assert_eq!(last(&world, "side").exit_code, exit_code, "{text}");
        assert_never_final(&world);
        assert_one_sandbox(&world);
        world.settle();
    }
}
