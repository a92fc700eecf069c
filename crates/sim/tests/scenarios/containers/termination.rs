//! Pods on their way out, with sidecars.

use std::time::Duration;

use keelet_lifecycle::status::Phase;
use keelet_pod::ProbeKind;
use keelet_sim::{Answer, CallKind, ExitCause, Reply, World, secs};

use super::{assert_about, assert_before, calls, ended, last_phase, phases, run, world};

/// A hook that is called `goodbye`.
const HOOK: &str = ", lifecycle: {preStop: {exec: {command: [goodbye]}}}";

/// A pod with two sidecars and a regular container, with more fields for each of them.
fn pod(policy: &str, grace: u64, [first, second, main]: [&str; 3]) -> World {
    world(&format!(
        "  restartPolicy: {policy}
  terminationGracePeriodSeconds: {grace}
  initContainers:
  - {{name: first, image: app, restartPolicy: Always{first}}}
  - {{name: second, image: app, restartPolicy: Always{second}}}
  containers:
  - {{name: main, image: app{main}}}
"
    ))
}

/// When the stop signal was sent to a container.
#[track_caller]
fn stopped(world: &World, name: &str) -> Duration {
    let stops = calls(world, CallKind::StopContainer, &format!("web-{name}-"));
    assert_eq!(stops.len(), 1, "stops of {name}\n{}", world.timeline_text());
    stops[0]
}

/// SCN-S14.
#[test]
fn sidecars_stop_in_reverse_order_after_the_regular_containers() {
    let mut world = pod("Always", 60, ["", "", ""]);
    for name in ["first", "second", "main"] {
        world.script(name).ends_on_term(secs(5), 0);
    }
    world.run(secs(10));
    let deleted = world.elapsed();
    world.delete("web").run(secs(30));
    assert_about(stopped(&world, "main") - deleted, secs(0));
    assert_before(ended(&world, "main"), stopped(&world, "second"));
    assert_before(ended(&world, "second"), stopped(&world, "first"));
    assert_about(ended(&world, "first") - deleted, secs(15));
    assert!(!world.has_remains("web"));
}

/// SCN-S14.
#[test]
fn hooks_of_all_containers_start_together_and_only_the_signal_waits() {
    let mut world = pod("Always", 60, [HOOK, HOOK, HOOK]);
    for name in ["first", "second", "main"] {
        world.script(name).ends_on_term(secs(5), 0).command("goodbye", Answer::new(Reply::Pass).after(secs(3)));
    }
    world.run(secs(10));
    let deleted = world.elapsed();
    world.delete("web").run(secs(40));
    let hooks = calls(&world, CallKind::ExecSync, "goodbye");
    assert_eq!(hooks.len(), 3);
    hooks.iter().for_each(|at| assert_about(*at - deleted, secs(0)));
    assert_about(stopped(&world, "main") - deleted, secs(3));
    assert_before(ended(&world, "main"), stopped(&world, "second"));
    assert_before(ended(&world, "second"), stopped(&world, "first"));
    // Hooks ran side by side: 3 s for all of them, and 5 s for each container.
    assert_about(ended(&world, "first") - deleted, secs(18));
}

/// SCN-S14.
#[test]
fn a_hook_that_hangs_leaves_all_containers_the_end_of_the_grace_period() {
    let mut world = pod("Always", 20, ["", "", HOOK]);
    world.script("main").command("goodbye", Reply::Hang);
    for name in ["first", "second", "main"] {
        world.script(name).ignores_term();
    }
    world.run(secs(10));
    let deleted = world.elapsed();
    world.delete("web").run(secs(40));
    for name in ["main", "second", "first"] {
        assert_about(stopped(&world, name) - deleted, secs(20));
        // The shortest time between signal and end.
        assert_about(ended(&world, name) - deleted, secs(22));
    }
    assert!(!world.has_remains("web"));
}

/// SCN-S14.
#[test]
fn a_pod_that_is_deleted_during_its_start_waits_for_no_unstarted_container() {
    // While the second sidecar has not started.
    let unstarted = pod("Always", 60, ["", ", startupProbe: {exec: {command: [started]}, failureThreshold: 60}", ""]);
    unstarted.script("second").answers(ProbeKind::Startup, Reply::Fail);
    // While an init container runs that does not care.
    let initializing = world(
        "  terminationGracePeriodSeconds: 60
  initContainers:
  - {name: first, image: app, restartPolicy: Always}
  - {name: init, image: app}
  - {name: second, image: app, restartPolicy: Always}
  containers:
  - {name: main, image: app}
",
    );
    initializing.script("init").exits(0).after(secs(500));
    for mut world in [unstarted, initializing] {
        world.run(secs(10));
        assert_eq!(world.starts("main"), 0);
        let deleted = world.elapsed();
        world.delete("web");
        assert!(world.run_until(secs(10), |world| !world.has_remains("web")), "{}", world.timeline_text());
        assert!(world.elapsed() - deleted < secs(5));
        assert_eq!(world.starts("main"), 0);
        assert!(phases(&world).iter().all(|phase| matches!(phase, Phase::Pending | Phase::Failed)));
    }
}

/// SCN-S14.
#[test]
fn a_sidecar_that_ends_badly_does_not_fail_the_pod() {
    for deleted in [false, true] {
        let mut world = pod("Never", 30, ["", "", ""]);
        world.script("first").ends_on_term(secs(1), 3);
        world.script("second").ends_on_term(secs(1), 4);
        world.script("main").ends_on_term(secs(1), 0);
        world.run(secs(10));
        if deleted {
            world.delete_within("web", secs(30));
        } else {
            world.exit("main", 0);
        }
        world.run(secs(20));
        assert_eq!(last_phase(&world), Phase::Succeeded, "{}", world.timeline_text());
        let codes = ["first", "second"].map(|name| run(&world, name).ended.map(|(_, code, _)| code));
        assert_eq!(codes, [Some(3), Some(4)]);
    }
}

/// The hooks of the sidecars and of the regular container, in all mixes.
const HOOKS: [[&str; 3]; 4] = [["", "", ""], [HOOK, HOOK, ""], ["", "", HOOK], [HOOK, HOOK, HOOK]];

/// SCN-S14.
#[test]
fn a_regular_container_that_outlives_its_grace_fails_the_pod() {
    for hooks in HOOKS {
        let mut world = pod("Never", 10, hooks);
        world.script("main").ignores_term();
        for name in ["first", "second", "main"] {
            world.script(name).command("goodbye", Answer::new(Reply::Pass).after(secs(2)));
        }
        world.run(secs(10));
        let deleted = world.elapsed();
        world.delete_within("web", secs(10)).run(secs(40));
        let (at, code, cause) = run(&world, "main").ended.expect("an end");
        assert_about(at - deleted, secs(10));
        assert_eq!((code, cause), (137, ExitCause::Killed), "{hooks:?}");
        assert_eq!(last_phase(&world), Phase::Failed, "{hooks:?}");
        assert!(!world.has_remains("web"), "{hooks:?}");
    }
}

/// SCN-S14.
#[test]
fn a_sidecar_that_outlives_its_grace_does_not_fail_the_pod() {
    for hooks in HOOKS {
        let mut world = pod("Never", 10, hooks);
        world.script("first").ignores_term();
        world.script("main").ends_on_term(secs(1), 0);
        for name in ["first", "second", "main"] {
            world.script(name).command("goodbye", Answer::new(Reply::Pass).after(secs(2)));
        }
        world.run(secs(10));
        let deleted = world.elapsed();
        world.delete_within("web", secs(10)).run(secs(40));
        let (at, code, _) = run(&world, "first").ended.expect("an end");
        assert_about(at - deleted, secs(10));
        assert_eq!(code, 137, "{hooks:?}");
        assert_eq!(last_phase(&world), Phase::Succeeded, "{hooks:?}");
    }
}
