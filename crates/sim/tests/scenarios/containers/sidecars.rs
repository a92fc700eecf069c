//! Sidecars: restarted whatever the policy, and in the way of no other container.

use keelet_lifecycle::status::{ConditionType, Phase};
use keelet_pod::ProbeKind;
use keelet_sim::{Reply, World, secs};

use super::{assert_before, began, ended, phases, world};

fn with_sidecar(policy: &str) -> World {
    world(&format!(
        "  restartPolicy: {policy}
  initContainers:
  - {{name: side, image: app, restartPolicy: Always}}
  - {{name: init, image: app}}
  containers:
  - {{name: main, image: app}}
"
    ))
}

/// SCN-S5.
#[test]
fn a_sidecar_that_runs_for_ever_does_not_keep_the_pod_from_completing() {
    for policy in ["Never", "OnFailure"] {
        let mut world = with_sidecar(policy);
        world.script("main").exits(0).after(secs(10));
        world.run(secs(30));
        assert_eq!(world.status().phase, Phase::Succeeded, "{policy}");
        assert_eq!(phases(&world), [Phase::Pending, Phase::Running, Phase::Succeeded], "{policy}");
        assert_before(ended(&world, "main"), ended(&world, "side"));
        world.run(secs(60));
        assert_eq!(world.starts("side"), 1, "{policy}");
    }
}

/// SCN-S6.
#[test]
fn a_sidecar_that_exits_is_restarted_before_and_after_the_others_start() {
    for (exit_code, policy) in [(0, "Never"), (1, "Never"), (0, "OnFailure"), (1, "OnFailure")] {
        let mut world = with_sidecar(policy);
        world.script("side").exits(exit_code).after(secs(5));
        world.script("init").exits(0).after(secs(25));
        world.script("main").exits(0).after(secs(90));
        world.run(secs(100));
        let case = format!("{exit_code} under {policy}");
        let runs = world.container_runs("side");
        let main = began(&world, "main");
        assert!(runs.iter().filter(|run| run.began < main).count() >= 2, "{case}");
        assert!(runs.iter().filter(|run| run.began > main).count() >= 1, "{case}");
        assert_eq!(world.starts("init"), 1, "{case}");
        world.run(secs(60));
        // Once Running, a restarting sidecar does not make it Pending again, and its exit code does not count.
        assert_eq!(phases(&world), [Phase::Pending, Phase::Running, Phase::Succeeded], "{case}");
        let after_the_end = world.container_runs("side").iter().filter(|run| run.began > ended(&world, "main")).count();
        assert_eq!(after_the_end, 0, "{case}");
    }
}

/// SCN-S7.
#[test]
fn nothing_after_a_sidecar_with_a_bad_image_starts() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut world = world(&format!(
            "  restartPolicy: {policy}
  initContainers:
  - {{name: before, image: app}}
  - {{name: side, image: bad, restartPolicy: Always}}
  - {{name: after, image: app}}
  containers:
  - {{name: main, image: app}}
"
        ));
        world.image("bad").fails(u32::MAX);
        world.run(secs(120));
        assert_eq!(phases(&world), [Phase::Pending], "{policy}");
        assert_eq!(["before", "side", "after", "main"].map(|name| world.starts(name)), [1, 0, 0, 0], "{policy}");
        let reason = world.waiting_reason("side");
        assert!(matches!(reason.as_deref(), Some("ErrImagePull" | "ImagePullBackOff")), "{policy}: {reason:?}");
        assert_eq!(world.waiting_reason("main").as_deref(), Some("PodInitializing"), "{policy}");
        world.image("bad").fails(0);
        world.settle();
        assert_eq!(world.status().phase, Phase::Running, "{policy}");
    }
}

/// SCN-S20.
#[test]
fn a_pod_is_ready_only_while_its_sidecars_are() {
    let mut world = world(
        "  initContainers:
  - name: side
    image: app
    restartPolicy: Always
    readinessProbe: {exec: {command: [ready]}, periodSeconds: 1, failureThreshold: 1}
  containers:
  - {name: main, image: app}
",
    );
    world.script("side").answers(ProbeKind::Readiness, Reply::Fail);
    world.run(secs(10));
    // Readiness of a sidecar holds up no other container.
    assert!(world.running("main").is_some() && world.container("main").ready);
    assert_eq!(world.status().phase, Phase::Running);
    for kind in [ConditionType::ContainersReady, ConditionType::Ready] {
        let condition = world.condition(&kind);
        assert_eq!(condition.reason.as_deref(), Some("ContainersNotReady"));
        assert_eq!(condition.message.as_deref(), Some("containers with unready status: [side]"));
    }
    world.answer("side", ProbeKind::Readiness, Reply::Pass).run(secs(3));
    assert!(world.holds(ConditionType::ContainersReady) && world.holds(ConditionType::Ready));
    world.answer("side", ProbeKind::Readiness, Reply::Fail).run(secs(3));
    assert!(!world.holds(ConditionType::Ready));
    assert!(world.holds(ConditionType::Initialized));
}

/// SCN-S20. The phase before a sidecar has started, while it restarts, while it outlives the others, and after.
#[test]
fn the_phase_waits_for_sidecars_to_start_and_ignores_how_they_end() {
    let mut world = world(
        "  restartPolicy: Never
  initContainers:
  - name: side
    image: app
    restartPolicy: Always
    startupProbe: {exec: {command: [started]}, periodSeconds: 1, failureThreshold: 60}
  containers:
  - {name: main, image: app}
",
    );
    world.script("side").answers(ProbeKind::Startup, Reply::Fail).ends_on_term(secs(5), 3);
    world.run(secs(10));
    assert_eq!(phases(&world), [Phase::Pending]);
    assert!(!world.holds(ConditionType::Initialized));
    world.answer("side", ProbeKind::Startup, Reply::Pass).run(secs(3));
    assert_eq!(world.status().phase, Phase::Running);
    world.answer("side", ProbeKind::Startup, Reply::Fail).exit("side", 7).run(secs(20));
    assert_eq!(world.container("side").started, Some(false));
    assert_eq!(world.status().phase, Phase::Running);
    world.exit("main", 0).run(secs(2));
    assert!(world.running("side").is_some());
    assert_eq!(world.status().phase, Phase::Running, "it is not over while a sidecar runs");
    world.run(secs(10));
    assert_eq!(phases(&world), [Phase::Pending, Phase::Running, Phase::Succeeded]);
    assert_eq!(world.container("side").restart_count, 1);
}
