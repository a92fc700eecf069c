//! What may come between: the agent dies, the node reboots, the pod is deleted.

use std::time::Duration;

use keelet_lifecycle::status::Phase;
use keelet_sim::{Acknowledging, CallKind, Fate, Remains, World, WorldBuilder, millis, secs};

use super::{
    FOUR, RULE, assert_history, assert_never_final, assert_one_sandbox, calls, condition_changes, counts, four,
    is_restarting, modes, runs, starts, up, up_again,
};

/// The names of eleven containers, the first of which triggers.
fn eleven_names() -> Vec<String> {
    (0..11).map(|number| if number == 0 { "source".to_owned() } else { format!("c{number}") }).collect()
}

/// A pod of eleven containers that never restarts by itself, with a soft stop of so many seconds.
fn eleven(soft: u64) -> String {
    let names = eleven_names();
    let rest: String = names[1..].iter().map(|name| format!("  - {{name: {name}, image: app}}\n")).collect();
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  uid: web
  annotations: {{keelet.dev/restart-all-grace-period-seconds: '{soft}'}}
spec:
  restartPolicy: Never
  containers:
  - {{name: source, image: app, restartPolicy: Never, {RULE}}}
{rest}"
    )
}

/// Asserts that all eleven containers were restarted once and run.
#[track_caller]
fn assert_eleven(world: &World, label: &str) {
    for name in &eleven_names() {
        let found = (world.starts(name), world.container(name).restart_count, runs(world, name));
        assert_eq!(found, (2, 1, true), "{label}: {name}\n{}", world.timeline_text());
    }
    assert_history(world, "source", 42, "Error");
    assert_never_final(world);
    assert_one_sandbox(world);
}

/// SCN-A6, RALL-38: the agent is restarted while eleven containers are being killed and removed, at any moment of it.
#[test]
fn the_agent_is_restarted_while_containers_are_removed() {
    let mut seen_at_death = 0;
    for after in (0..48).step_by(6) {
        for builder in [World::new(1).manifest(&eleven(0)).cluster(), World::new(1).manifest(&eleven(0))] {
            let mut world = builder.build();
            up(&mut world);
            world.exit("source", 42).run(millis(after));
            seen_at_death += usize::from(is_restarting(&world));
            world.restart_agent(secs(2));
            up_again(&mut world);
            assert_eleven(&world, &format!("dead after {after} ms"));
            assert_eq!(condition_changes(&world), [false, true, false]);
        }
    }
    assert!(seen_at_death >= 4, "{seen_at_death}");
}

/// SCN-A6: the same with kills that take their time, and with an agent that dies three times.
#[test]
fn the_agent_is_restarted_while_containers_take_their_time_to_end() {
    for deaths in [1, 3] {
        let mut world = World::new(1).manifest(&eleven(20)).build();
        for name in eleven_names() {
            world.script(&name).ignores_term();
        }
        up(&mut world);
        world.exit("source", 42).run(secs(1));
        for _ in 0..deaths {
            assert!(is_restarting(&world), "{}", world.timeline_text());
            world.restart_agent(secs(1)).run(secs(3));
        }
        up_again(&mut world);
        assert_eleven(&world, &format!("{deaths} deaths"));
        assert_eq!(condition_changes(&world), [false, true, false]);
        world.settle();
    }
}

/// SCN-A7, SCN-A8, RALL-35, RALL-38: the agent is restarted while the init container runs again for twenty seconds. It
/// keeps running, also if it ends while the agent is down, and nothing is counted twice.
#[test]
fn the_agent_is_restarted_while_init_runs_again() {
    for down in [secs(3), secs(30)] {
        for builder in modes(&four()) {
            let mut world = builder.build();
            world.script("setup").exits(0).after(secs(20)).on_attempt(1);
            up(&mut world);
            world.exit("source", 42).run(secs(5));
            let id = world.running("setup");
            assert!(id.is_some() && !is_restarting(&world));
            assert_eq!(world.status().phase, Phase::Pending);
            world.restart_agent(down);
            if down < secs(10) {
                world.run(secs(3));
                assert_eq!(world.running("setup"), id, "{}", world.timeline_text());
            }
            up_again(&mut world);
            assert_eq!(counts(&world, FOUR), [1; 4], "{}", world.timeline_text());
            assert_eq!(starts(&world, FOUR), [2; 4], "{}", world.timeline_text());
            assert_history(&world, "source", 42, "Error");
            assert_eq!(condition_changes(&world), [false, true, false]);
            assert_never_final(&world);
            assert_one_sandbox(&world);
            world.settle();
        }
    }
}

/// SCN-A8, RALL-30, RALL-32, RALL-37: without an API server the ledger alone tells what has to happen, also where the
/// trigger exits while no agent is there, and the condition is shown as ever.
#[test]
fn a_trigger_that_exits_without_an_agent_is_noticed() {
    for builder in modes(&four()) {
        let mut world = builder.build();
        up(&mut world);
        world.kill_agent().run(secs(1)).exit("source", 42);
        world.run(secs(5)).start_agent();
        up_again(&mut world);
        assert_eq!(counts(&world, FOUR), [1; 4], "{}", world.timeline_text());
        assert_eq!(condition_changes(&world), [false, true, false]);
        assert_history(&world, "source", 42, "Error");
        assert_never_final(&world);
        assert_one_sandbox(&world);
        world.settle();
    }
}

/// RALL-37, DEF-13: the trigger's instance is removed by another process while no agent runs, and the restart that had
/// begun is not forgotten.
#[test]
fn a_restart_is_not_forgotten_when_the_trigger_is_removed_by_others() {
    for builder in modes(&four()) {
        let mut world = builder.build();
        up(&mut world);
        // Nothing has been stopped when the agent dies: in a cluster the kill waits for its announcement, elsewhere it hangs.
        world.faults(|faults| {
            faults.publisher = Acknowledging::Never;
            faults.seal(CallKind::StopContainer, "", Fate::Hangs, 4);
        });
        world.exit("source", 42).run(millis(100)).kill_agent();
        assert!(is_restarting(&world));
        world.calm().lose("source").run(secs(1)).start_agent();
        up_again(&mut world);
        assert_eq!(counts(&world, FOUR), [1; 4], "{}", world.timeline_text());
        assert_eq!(starts(&world, FOUR), [2; 4], "{}", world.timeline_text());
        assert_history(&world, "source", 42, "Error");
        assert_never_final(&world);
        world.settle();
    }
}

/// A pod with hooks whose containers do not care for SIGTERM, and a soft stop of ten seconds.
fn deaf() -> WorldBuilder {
    let hook = "lifecycle: {preStop: {exec: {command: [drain]}}}";
    World::new(1).manifest(&format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  uid: web
  annotations: {{keelet.dev/restart-all-grace-period-seconds: '10'}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 20
  containers:
  - {{name: source, image: app, restartPolicy: Never, {RULE}, {hook}}}
  - {{name: one, image: app, {hook}}}
  - {{name: two, image: app, {hook}}}
"
    ))
}

/// SCN-A25, RALL-28: the pod is deleted while its containers are being killed. Nothing is started any more, what is left
/// ends with the pod, and nothing remains.
#[test]
fn a_pod_is_deleted_while_its_containers_are_killed() {
    for within in [None, Some(secs(20)), Some(secs(3))] {
        let mut world = if within.is_some() { deaf().cluster() } else { deaf() }.build();
        for name in ["one", "two"] {
            world.script(name).ignores_term();
        }
        up(&mut world);
        world.exit("source", 42).run(secs(4));
        assert!(is_restarting(&world), "{}", world.timeline_text());
        match within {
            Some(grace) => world.delete_within("web", grace),
            None => world.delete("web"),
        };
        let gone = world.run_until(secs(60), |world| !world.has_remains("web"));
        let text = world.timeline_text();
        assert!(gone, "{within:?}\n{text}");
        assert_eq!(starts(&world, ["source", "one", "two"]), [1, 1, 1], "{within:?}\n{text}");
        world.run(secs(60));
        assert_eq!(starts(&world, ["source", "one", "two"]), [1, 1, 1]);
    }
}

/// SCN-A25, RALL-28: deleted before the first kill, the containers that are left get their hooks and their whole grace.
#[test]
fn a_pod_is_deleted_before_the_first_kill() {
    let mut world = deaf().cluster().build();
    for name in ["one", "two"] {
        world.script(name).ignores_term();
    }
    up(&mut world);
    world.faults(|faults| faults.publisher = Acknowledging::Never);
    let since = world.elapsed();
    world.exit("source", 42).run(millis(200));
    assert!(is_restarting(&world));
    assert_eq!(calls(&world, CallKind::StopContainer, since), []);
    world.delete_within("web", secs(20)).calm().run(secs(10));
    let text = world.timeline_text();
    assert_eq!(calls(&world, CallKind::ExecSync, since).len(), 2, "{text}");
    let stops = calls(&world, CallKind::StopContainer, since);
    assert_eq!(stops.len(), 2, "{text}");
    for (_, subject) in &stops {
        let grace: u64 = subject.rsplit('=').next().and_then(|grace| grace.parse().ok()).expect("a grace");
        assert!((15..=20).contains(&grace), "{subject}\n{text}");
    }
    assert!(world.run_until(secs(30), |world| !world.has_remains("web")), "{}", world.timeline_text());
    assert_eq!(starts(&world, ["source", "one", "two"]), [1, 1, 1]);
}

/// RALL-28: a trigger that fires in a pod that is being deleted restarts nothing.
#[test]
fn a_trigger_in_a_pod_that_is_deleted_restarts_nothing() {
    let mut world = World::new(1).pod(&four()).cluster().build();
    world.script("other").ignores_term();
    up(&mut world);
    world.delete_within("web", secs(20)).run(millis(10));
    world.exit("source", 42);
    let gone = world.run_until(secs(60), |world| !world.has_remains("web"));
    assert!(gone, "{}", world.timeline_text());
    assert_eq!(starts(&world, FOUR), [1; 4]);
    assert_eq!(condition_changes(&world), [false], "{}", world.timeline_text());
}

/// When the node goes down, counted from the trigger's exit.
fn moments() -> impl Iterator<Item = Duration> {
    (12..60).step_by(8).map(millis).chain([millis(200), millis(400), secs(2), secs(9), millis(12_500)])
}

/// SCN-A26, RALL-33..RALL-36, RALL-39, RULE-11: the node reboots at any moment of a restart, and leaves dead containers or none.
/// A normal start follows in a new sandbox, though the pod never restarts by itself.
#[test]
fn the_node_reboots_at_any_moment() {
    for after in moments() {
        for remains in [Remains::Dead, Remains::Nothing] {
            let mut world = World::new(1).pod(&four()).build();
            world.script("setup").exits(0).after(secs(12)).on_attempt(1);
            up(&mut world);
            world.exit("source", 42).run(after);
            let (sandbox, noticed) = (world.sandbox(), world.status().phase == Phase::Pending);
            world.reboot(remains).run(secs(2)).start_agent();
            let label = format!("{after:?} {remains:?}");
            if !noticed && remains == Remains::Nothing {
                // No agent saw the exit, and no event reports it.
                continue;
            }
            up_again(&mut world);
            let text = world.timeline_text();
            assert_ne!(world.sandbox(), sandbox, "{label}\n{text}");
            for name in FOUR {
                let runs = u32::try_from(world.starts(name)).unwrap_or(u32::MAX);
                assert!(runs >= 2, "{label}: {name}\n{text}");
                assert_eq!(world.container(name).restart_count, runs - 1, "{label}: {name}\n{text}");
            }
            assert_eq!(["side", "source", "other"].map(|name| runs(&world, name)), [true; 3], "{label}\n{text}");
            assert_never_final(&world);
        }
    }
}

/// SCN-A26, RALL-36: a reboot once the restart is over is an ordinary one: the policy decides.
#[test]
fn the_node_reboots_afterwards() {
    for policy in ["Always", "Never"] {
        let spec = four().replacen("restartPolicy: Never", &format!("restartPolicy: {policy}"), 1);
        let mut world = World::new(1).pod(&spec).build();
        up(&mut world);
        world.exit("source", 42);
        up_again(&mut world);
        world.run(secs(60)).reboot(Remains::Dead).run(secs(2)).start_agent().run(secs(30));
        let text = world.timeline_text();
        if policy == "Always" {
            assert_eq!((world.starts("setup"), world.starts("side"), world.starts("other")), (3, 3, 3), "{text}");
            assert_eq!(world.status().phase, Phase::Running, "{text}");
        } else {
            assert_eq!(world.status().phase, Phase::Failed, "{text}");
        }
        assert_eq!(condition_changes(&world), [false, true, false], "{text}");
        world.settle();
    }
}
