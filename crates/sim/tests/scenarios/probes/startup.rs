//! Startup, and what it holds off.

use std::time::Duration;

use keelet_pod::ProbeKind::{Liveness, Readiness, Startup};
use keelet_sim::{Reply, secs};

use super::{PLACES, assert_about, assert_restarted, assert_untouched, first_attempts, first_end, ready, was_ready};

/// SCN-P14, SCN-P26.
#[test]
fn a_container_whose_startup_probe_fails_is_restarted_though_liveness_would_pass() {
    for place in PLACES {
        let mut world = place.world(&[
            "livenessProbe: {exec: {command: [\"true\"]}, periodSeconds: 5}",
            "startupProbe: {exec: {command: [\"false\"]}, periodSeconds: 5, failureThreshold: 3, initialDelaySeconds: 15}",
        ]);
        world.script("main").answers(Startup, Reply::Fail);
        world.run(secs(30));
        assert_restarted(&world, Startup, place);
        // 15, 20 and 25 s; and the eager ones at 15.1, 15.3, 15.7, 16.5, 18.1 and 21.3 s, which count for nothing.
        assert_about(first_end(&world).0, secs(25));
        assert_eq!(first_attempts(&world, Startup), 3 + 6, "{place:?}");
        assert_eq!(first_attempts(&world, Liveness), 0, "{place:?}");
    }
}

/// SCN-P15, SCN-P26.
#[test]
fn a_failing_liveness_probe_restarts_nothing_while_the_startup_probe_is_undecided() {
    for place in PLACES {
        let mut world = place.world(&[
            "livenessProbe: {exec: {command: [\"false\"]}, periodSeconds: 1, failureThreshold: 1}",
            "startupProbe: {exec: {command: [cat, /tmp/started]}, periodSeconds: 10, failureThreshold: 60}",
        ]);
        world.script("main").answers(Startup, Reply::Fail).answers(Liveness, Reply::Fail);
        world.run(secs(240));
        assert_untouched(&world, place);
        assert_eq!(world.container("main").started, Some(false), "{place:?}");
        assert_eq!(first_attempts(&world, Liveness), 0, "{place:?}");
        assert!(!was_ready(&world), "{place:?}");
    }
}

/// SCN-P16, SCN-P26.
#[test]
fn a_container_whose_startup_passes_and_whose_liveness_then_fails_is_restarted() {
    for place in PLACES {
        let mut world = place.world(&[
            "livenessProbe: {exec: {command: [\"false\"]}, periodSeconds: 5, failureThreshold: 1}",
            "startupProbe: {exec: {command: [cat, /tmp/started]}, periodSeconds: 2, failureThreshold: 60}",
        ]);
        world.script("main").answers(Startup, Reply::Fail).answers_from(secs(10), Startup, Reply::Pass);
        world.script("main").answers(Liveness, Reply::Fail);
        world.run(secs(9));
        assert_eq!(world.container("main").started, Some(false), "{place:?}");
        world.run(secs(11));
        assert_restarted(&world, Liveness, place);
        assert!(!world.saw_event("Killing", "startup"), "{place:?}");
        // Started at 10 s, first asked about liveness a period later.
        assert_about(first_end(&world).0, secs(15));
    }
}

/// SCN-P17, SCN-P26.
#[test]
fn a_container_with_a_slow_readiness_period_is_ready_as_soon_as_it_has_started() {
    for place in PLACES {
        let mut world = place.world(&[
            "readinessProbe: {exec: {command: [cat, /tmp/ready]}, periodSeconds: 30}",
            "startupProbe: {exec: {command: [cat, /tmp/started]}, periodSeconds: 1, failureThreshold: 600}",
        ]);
        world.script("main").answers(Startup, Reply::Fail).answers_from(secs(32), Startup, Reply::Pass);
        world.run(secs(30));
        assert_eq!(first_attempts(&world, Readiness), 0, "{place:?}");
        assert!(world.run_until(secs(10), |world| world.container("main").started == Some(true)), "{place:?}");
        let started = world.elapsed();
        assert!(world.run_until(secs(25), ready), "{place:?}");
        assert_about(world.elapsed() - started, Duration::ZERO);
        assert_untouched(&world, place);
    }
}
