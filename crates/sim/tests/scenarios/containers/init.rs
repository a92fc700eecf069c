//! Init containers: one by one, before all others, each to its success.

use keelet_lifecycle::status::{ConditionType, Phase};
use keelet_sim::{Answer, CallKind, Reply, World, millis, secs};

use super::{assert_before, began, calls, end_of, ended, last_phase, phases, terminated, world};

const TWO: &str = "  initContainers:
  - {name: one, image: app}
  - {name: two, image: app}
  containers:
  - {name: main, image: app}
  - {name: other, image: app}
";

fn two(policy: &str) -> World {
    world(&format!("  restartPolicy: {policy}\n{TWO}"))
}

/// SCN-S1.
#[test]
fn init_containers_run_one_by_one_before_the_others() {
    for policy in ["Never", "Always"] {
        let mut world = two(policy);
        world.script("one").exits(0).after(secs(3));
        world.script("two").exits(0).after(secs(2));
        world.run(secs(4));
        assert_eq!(world.status().phase, Phase::Pending, "{policy}");
        assert!(!world.holds(ConditionType::Initialized), "{policy}");
        world.run(secs(20));
        assert_before(ended(&world, "one"), began(&world, "two"));
        assert_before(ended(&world, "two"), began(&world, "main").min(began(&world, "other")));
        assert_eq!(world.status().phase, Phase::Running, "{policy}");
        assert!(world.holds(ConditionType::Initialized), "{policy}");
        for name in ["one", "two"] {
            assert_eq!(terminated(&world, name).reason, "Completed", "{policy}");
            assert!(world.container(name).ready, "{policy}: {name}");
        }
        assert_eq!(phases(&world), [Phase::Pending, Phase::Running], "{policy}");
    }
}

/// SCN-S2.
#[test]
fn an_init_container_that_fails_under_never_fails_the_pod_and_nothing_else_starts() {
    for failing in ["one", "two"] {
        let mut world = two("Never");
        world.script(failing).exits(1).after(secs(1));
        world.run(secs(30));
        assert_eq!(world.status().phase, Phase::Failed, "{failing}");
        assert_eq!((world.starts("main"), world.starts("other")), (0, 0), "{failing}");
        assert_eq!(world.starts("two"), usize::from(failing == "two"));
        assert_eq!((world.starts(failing), world.container(failing).restart_count), (1, 0), "{failing}");
        assert_eq!(terminated(&world, failing).exit_code, 1);
        assert!(!world.holds(ConditionType::Initialized), "{failing}");
    }
}

/// SCN-S3.
#[test]
fn an_init_container_that_fails_under_always_is_tried_again_and_nothing_else_starts() {
    let mut world = two("Always");
    world.script("one").exits(1);
    world.run(secs(65));
    // At 0, 0, 10 and 30 s.
    assert_eq!(world.starts("one"), 4);
    assert_eq!(world.container("one").restart_count, 3);
    assert_eq!((world.starts("two"), world.starts("main"), world.starts("other")), (0, 0, 0));
    assert_eq!(phases(&world), [Phase::Pending]);
    assert_eq!(world.waiting_reason("main").as_deref(), Some("PodInitializing"));
    assert_eq!(world.waiting_reason("one").as_deref(), Some("CrashLoopBackOff"));
    world.script("one").stays();
    world.settle();
    assert_eq!((world.starts("one"), world.starts("two"), world.starts("main")), (5, 1, 1));
    assert_eq!(world.status().phase, Phase::Running);
}

/// SCN-S4.
#[test]
fn init_containers_and_sidecars_start_in_order_and_sidecars_keep_running() {
    let mut world = world(
        "  initContainers:
  - {name: init-1, image: app}
  - {name: side-1, image: app, restartPolicy: Always}
  - {name: init-2, image: app}
  - {name: side-2, image: app, restartPolicy: Always}
  - {name: init-3, image: app}
  containers:
  - {name: main, image: app}
",
    );
    for init in ["init-1", "init-2", "init-3"] {
        world.script(init).exits(0).after(secs(5));
    }
    world.run(secs(40));
    assert_before(ended(&world, "init-1"), began(&world, "side-1"));
    assert_before(began(&world, "side-1"), began(&world, "init-2"));
    assert_before(ended(&world, "init-2"), began(&world, "side-2"));
    assert_before(began(&world, "side-2"), began(&world, "init-3"));
    assert_before(ended(&world, "init-3"), began(&world, "main"));
    for side in ["side-1", "side-2"] {
        // One instance that has not ended overlaps with all that came later.
        assert!(world.running(side).is_some());
        assert_eq!(world.starts(side), 1);
    }
    assert!(world.holds(ConditionType::Ready));
}

/// SCN-S8.
#[test]
fn an_init_container_that_fails_beside_a_sidecar_fails_or_holds_up_the_pod() {
    let sidecar = "  - {name: side, image: app, restartPolicy: Always}\n";
    let init = "  - {name: init, image: app}\n";
    for (before, policy) in
        [(true, "Never"), (false, "Never"), (true, "OnFailure"), (false, "OnFailure"), (false, "Always")]
    {
        let list = if before { [init, sidecar].concat() } else { [sidecar, init].concat() };
        let mut world = world(&format!(
            "  restartPolicy: {policy}\n  initContainers:\n{list}  containers:\n  - {{name: main, image: app}}\n"
        ));
        world.script("init").exits(1).after(secs(2));
        world.run(secs(60));
        let case = format!(
            "{policy}, failing {} the sidecar\n{}",
            if before { "before" } else { "after" },
            world.timeline_text()
        );
        assert_eq!(world.starts("main"), 0, "{case}");
        assert_eq!(world.starts("side"), usize::from(!before), "{case}");
        if policy == "Never" {
            assert_eq!(world.status().phase, Phase::Failed, "{case}");
            assert_eq!(world.container("init").restart_count, 0, "{case}");
            assert!(world.running("side").is_none(), "{case}");
        } else {
            assert_eq!(phases(&world), [Phase::Pending], "{case}");
            assert!(world.container("init").restart_count > 0, "{case}");
            assert_eq!(world.running("side").is_some(), !before, "{case}");
        }
        if !before {
            // Side by side.
            let first_try = end_of(&world.container_runs("init")[0]);
            assert_before(began(&world, "side"), first_try);
            assert!(world.container_runs("side")[0].ended.is_none_or(|(at, ..)| at >= first_try), "{case}");
        }
    }
}

/// SCN-S16.
#[test]
fn a_regular_container_that_restarts_reruns_no_init_container() {
    let mut world = two("Always");
    world.script("main").exits(1).after(secs(5)).times(3);
    world.run(secs(60));
    assert_eq!(world.starts("main"), 4);
    assert_eq!((world.starts("one"), world.starts("two"), world.starts("other")), (1, 1, 1));
    assert_eq!(phases(&world), [Phase::Pending, Phase::Running]);
    assert!(world.holds(ConditionType::Ready));
}

/// SCN-S17.
#[test]
fn post_start_hooks_run_after_the_init_containers_and_hold_up_the_next_container() {
    let mut world = world(
        "  initContainers:
  - {name: init, image: app}
  containers:
  - {name: main, image: app, lifecycle: {postStart: {exec: {command: [hello]}}}}
  - {name: other, image: app}
",
    );
    world.script("init").exits(0).after(secs(3));
    world.script("main").command("hello", Answer::new(Reply::Pass).after(secs(5)));
    world.run(secs(20));
    let hooks = calls(&world, CallKind::ExecSync, "hello");
    assert_eq!(hooks.len(), 1);
    assert_before(ended(&world, "init"), hooks[0]);
    assert_before(began(&world, "main"), hooks[0]);
    assert_before(hooks[0] + secs(5), began(&world, "other"));
    assert!(world.holds(ConditionType::Ready));
}

/// SCN-S17, EVT-5. A container whose hook fails is killed and started again, and the next one waits.
#[test]
fn a_post_start_hook_that_fails_kills_its_container() {
    let mut world = world(
        "  containers:
  - {name: main, image: app, lifecycle: {postStart: {exec: {command: [hello]}}}}
",
    );
    world.script("main").command("hello", Reply::Fail);
    world.run(secs(9));
    assert_eq!(world.starts("main"), 2);
    assert!(world.saw_event("FailedPostStartHook", ""));
    assert!(
        world.container_runs("main").iter().all(|run| run.ended.is_some_and(|(at, ..)| at - run.began < millis(500)))
    );
    assert_eq!(last_phase(&world), Phase::Running);
}
