//! Crash loops.

use std::{collections::BTreeMap, time::Duration};

use keelet_lifecycle::restart::BackoffLimits;
use keelet_pod::Features;
use keelet_sim::{World, millis, secs};

use super::end_of;

/// A pod whose container ends at once, under these limits.
fn loops(limits: BackoffLimits) -> World {
    let world = World::new(1)
        .pod("  containers:\n  - {name: main, image: app}\n")
        .rules(|rules| rules.crash_backoff = limits)
        .build();
    world.script("main").exits(1);
    world
}

/// What a node has with this cap and these gates.
fn limits(cap: Option<Duration>, gates: &str) -> BackoffLimits {
    let features = Features::resolve(gates, &BTreeMap::new()).expect("gates").features;
    BackoffLimits::for_node(cap, &features).expect("limits")
}

/// The delays between an exit and the next start, in seconds.
fn delays(world: &World) -> Vec<u64> {
    let runs = world.container_runs("main");
    runs.windows(2)
        .map(|pair| {
            let delay = pair[1].began - end_of(&pair[0]);
            let excess = millis(u64::from(delay.subsec_millis()));
            assert!(excess < millis(500), "{delay:?}");
            delay.as_secs()
        })
        .collect()
}

/// SCN-B1.
#[test]
fn a_crash_loop_restarts_as_often_in_five_minutes_as_the_nodes_cap_allows() {
    let reduced = "ReduceDefaultCrashLoopBackOffDecay=true";
    let cases = [
        (limits(None, ""), 300, 3..=7, vec![0, 10, 20, 40, 80]),
        (limits(Some(secs(30)), ""), 300, 8..=13, vec![0, 10, 20, 30, 30]),
        (limits(None, reduced), 300, 8..=13, vec![0, 1, 2, 4, 8, 16, 32, 64, 128]),
        // One minute shows it as well as five. Every start pulls the image first.
        (limits(Some(secs(1)), ""), 60, 45..=61, vec![0, 1, 1, 1, 1]),
    ];
    for (limits, time, expected, first) in cases {
        let mut world = loops(limits);
        world.run(secs(time));
        let restarts = world.starts("main") - 1;
        assert!(expected.contains(&restarts), "{limits:?}: {restarts}");
        assert_eq!(delays(&world)[..first.len()], first, "{limits:?}");
        assert_eq!(world.waiting_reason("main").as_deref(), Some("CrashLoopBackOff"), "{limits:?}");
    }
}

/// SCN-B3.
#[test]
fn the_delay_ends_at_300_seconds() {
    let mut world = loops(limits(None, ""));
    world.run(secs(1300));
    assert_eq!(delays(&world), [0, 10, 20, 40, 80, 160, 300, 300, 300]);
    assert!(world.saw_event("BackOff", "300 s"));
}
