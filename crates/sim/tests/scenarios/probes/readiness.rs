//! Readiness.

use std::time::Duration;

use keelet_lifecycle::status::ConditionType;
use keelet_pod::ProbeKind;
use keelet_sim::{Answer, Happening, Reply, secs};

use super::{PLACES, assert_about, assert_untouched, ready, was_ready};

/// SCN-P1, SCN-P26.
#[test]
fn a_container_is_not_ready_before_its_initial_delay_and_ready_after_it() {
    for place in PLACES {
        let mut world = place.world(&["readinessProbe: {httpGet: {path: /, port: 80}, initialDelaySeconds: 15}"]);
        world.run(secs(15));
        assert!(!was_ready(&world), "{place:?}");
        assert!(world.run_until(secs(10), ready), "{place:?}");
        let began = world.container_runs("main")[0].began;
        assert_about(world.elapsed() - began, secs(15));
        assert!(world.holds(ConditionType::Ready));
        world.run(secs(60));
        assert_untouched(&world, place);
        assert!(ready(&world));
    }
}

/// PROBE-51, SCN-P26: with the default period of 10 s.
#[test]
fn a_container_that_answers_soon_after_its_start_is_started_and_ready_soon_after_it_answers() {
    for place in PLACES {
        let probe = "{exec: {command: [up]}}";
        let mut world = place.world(&[&format!("startupProbe: {probe}"), &format!("readinessProbe: {probe}")]);
        world.script("main").answers(ProbeKind::Startup, Reply::Fail);
        assert!(world.run_until(secs(10), |world| !world.container_runs("main").is_empty()), "{place:?}");
        world.run(Duration::from_millis(300)).script("main").answers(ProbeKind::Startup, Reply::Pass);
        assert!(world.run_until(Duration::from_millis(500), ready), "{place:?}\n{}", world.timeline_text());
        world.run(secs(60));
        assert_untouched(&world, place);
    }
}

/// SCN-P2, SCN-P26.
#[test]
fn a_readiness_probe_that_always_fails_never_makes_ready_and_never_restarts() {
    for place in PLACES {
        let mut world = place.world(&["readinessProbe: {exec: {command: [\"false\"]}, periodSeconds: 1}"]);
        world.script("main").answers(ProbeKind::Readiness, Reply::Fail);
        world.run(secs(90));
        assert!(!was_ready(&world), "{place:?}");
        assert!(!world.holds(ConditionType::Ready), "{place:?}");
        assert!(world.probes("main", ProbeKind::Readiness, secs(0)).len() > 80, "{place:?}: it gave up asking");
        assert_untouched(&world, place);
    }
}

/// SCN-P10, SCN-P26, EVT-1.
#[test]
fn a_readiness_command_that_takes_longer_than_its_timeout_never_makes_ready() {
    for place in PLACES {
        let mut world =
            place.world(&["readinessProbe: {exec: {command: [slow]}, timeoutSeconds: 1, periodSeconds: 5}"]);
        world.script("main").answers(ProbeKind::Readiness, Answer::new(Reply::Pass).after(secs(3)));
        world.run(secs(60));
        assert!(!was_ready(&world), "{place:?}");
        assert_untouched(&world, place);
        assert!(world.saw_event("Unhealthy", "Readiness probe failed"), "{place:?}");
    }
}

/// SCN-P24, SCN-P26.
#[test]
fn a_terminating_container_whose_readiness_fails_becomes_unready_during_its_grace() {
    for place in PLACES {
        let mut world =
            place.world(&["readinessProbe: {exec: {command: [cat, ready]}, periodSeconds: 1, failureThreshold: 1}"]);
        world.script("main").ends_on_term(secs(20), 0);
        world.run(secs(20));
        assert!(ready(&world), "{place:?}");
        world.delete_within("web", secs(30)).run(secs(5));
        // Nothing forces it: it is ready for as long as its probe passes.
        assert!(ready(&world), "{place:?}");
        world.answer("main", ProbeKind::Readiness, Reply::Fail).run(secs(3));
        assert!(world.running("main").is_some(), "{place:?}");
        assert!(!ready(&world), "{place:?}");
        assert!(!world.holds(ConditionType::Ready), "{place:?}");
        world.run(secs(40));
        assert!(!world.has_remains("web"), "{place:?}");
    }
}

/// SCN-P25, SCN-P26.
#[test]
fn a_terminating_pod_becomes_unready_and_no_liveness_probe_acts() {
    for place in PLACES {
        let mut world = place.world_within(
            100,
            &[
                "readinessProbe: {exec: {command: [cat, ready]}, periodSeconds: 1, failureThreshold: 1}",
                "livenessProbe: {exec: {command: [cat, alive]}, periodSeconds: 1, failureThreshold: 1}",
            ],
        );
        world.script("main").ends_on_term(secs(70), 0);
        world.run(secs(20));
        assert!(ready(&world), "{place:?}");
        world.answer("main", ProbeKind::Readiness, Reply::Fail).answer("main", ProbeKind::Liveness, Reply::Fail);
        let deleted = world.elapsed();
        world.delete("web").run(secs(60));
        assert!(world.running("main").is_some(), "{place:?}");
        assert!(!ready(&world), "{place:?}");
        assert!(!world.saw_event("Killing", "failed liveness probe"), "{place:?}");
        assert!(!world.saw_event("Unhealthy", "Liveness"), "{place:?}");
        assert_eq!(world.probes("main", ProbeKind::Liveness, deleted), [], "{place:?}");
        assert_eq!(world.starts("main"), 1, "{place:?}");
        world.run(secs(40));
        let gone = |entry: &keelet_sim::Occurrence| matches!(entry.what, Happening::PodGone { .. });
        assert!(world.timeline().entries().iter().any(gone), "{place:?}");
    }
}
