//! A trigger that fires again and again.

use keelet_lifecycle::status::{ConditionType, Phase};
use keelet_sim::{Remains, World, secs};

use super::{FOUR, assert_never_final, counts, four, is_restarting, up};

/// A pod whose `source` ends with 42 in every instance, a second after its start.
fn looping() -> World {
    let world = World::new(1).pod(&four()).build();
    world.script("source").exits(42).after(secs(1));
    world
}

/// The times between the exits of `source` and the starts of the first container that follow, to the second.
fn delays(world: &World) -> Vec<u64> {
    let exits = world.container_runs("source").into_iter().filter_map(|run| run.ended.map(|(at, ..)| at));
    let starts = world.container_runs("setup");
    exits.zip(starts.iter().skip(1)).map(|(exit, start)| start.began.saturating_sub(exit).as_secs()).collect()
}

/// SCN-A21, RALL-24, DEF-5: the first restart is immediate, then they are 10, 20, 40 ... 300 s late. All containers stop
/// at once and wait before their start.
#[test]
fn a_loop_is_slowed_down() {
    let mut world = looping();
    world.run(secs(1000));
    assert_eq!(delays(&world), [0, 10, 20, 40, 80, 160, 300, 300], "{}", world.timeline_text());
    assert_never_final(&world);
}

/// SCN-A21, CON-17, RALL-24: while it waits the condition is False, the phase Pending, the trigger in `CrashLoopBackOff`
/// with the time of the next attempt, and the others in `RestartingAllContainers`. Nothing runs.
#[test]
fn the_wait_is_seen_for_what_it_is() {
    let mut world = looping();
    let waits = |world: &World| {
        let held = world.find_status("web").is_some_and(|status| status.container("source").is_some());
        held && world.waiting_reason("source").as_deref() == Some("CrashLoopBackOff")
    };
    assert!(world.run_until(secs(60), waits), "{}", world.timeline_text());
    world.run(secs(3));
    assert!(!is_restarting(&world));
    assert_eq!(world.status().phase, Phase::Pending);
    for name in ["setup", "side", "other"] {
        assert_eq!(world.waiting_reason(name).as_deref(), Some("RestartingAllContainers"), "{name}");
    }
    for name in FOUR {
        assert_eq!(world.running(name), None, "{name}");
    }
    let message = format!("{:?}", world.container("source").state);
    assert!(message.contains("back-off 10 s") && message.contains("next attempt at"), "{message}");
    assert!(world.holds(ConditionType::Initialized));
    assert_eq!(counts(&world, FOUR), [2; 4]);
}

/// SCN-A21, BACK-5, DEF-12: neither agent restarts nor a reboot shorten the wait.
#[test]
fn the_wait_survives_the_agent_and_the_node() {
    for reboots in [false, true] {
        let mut world = looping();
        for _ in 0..7 {
            world.run(secs(6));
            if reboots && world.running("source").is_none() && world.container_runs("setup").len() == 3 {
                world.reboot(Remains::Dead).run(secs(1)).start_agent();
            } else {
                world.restart_agent(secs(1));
            }
        }
        let found = delays(&world);
        assert!(found.len() >= 3, "{}", world.timeline_text());
        for (found, expected) in found.iter().zip([0, 10, 20, 40]) {
            assert!((expected..expected + 4).contains(found), "{found} {expected}\n{}", world.timeline_text());
        }
        assert_never_final(&world);
    }
}

/// SCN-A21, RALL-24: ten quiet minutes, and the next restart is immediate again.
#[test]
fn quiet_minutes_reset_the_wait() {
    let mut world = World::new(1).pod(&four()).build();
    world.script("source").exits(42).after(secs(1)).times(3);
    world.run(secs(60));
    assert_eq!(delays(&world), [0, 10, 20]);
    world.run(secs(700));
    world.exit("source", 42).run(secs(10));
    assert_eq!(delays(&world), [0, 10, 20, 0], "{}", world.timeline_text());
    up(&mut world);
    assert_eq!(counts(&world, FOUR), [4; 4]);
    world.exit("source", 42).run(secs(60));
    assert_eq!(delays(&world).last(), Some(&10));
    world.settle();
}
