//! What may change over an agent restart: whatever there is evidence for.

use keelet_lifecycle::status::ConditionType;
use keelet_pod::ProbeKind;
use keelet_sim::{Reply, secs};

use super::{BOTH, NONE, READINESS, STARTUP, Way, bits, history, one, since, wait};

const SLOW: &str = "  containers:
  - name: main
    image: app
    startupProbe: {exec: {command: [up]}, periodSeconds: 5, failureThreshold: 30}
    livenessProbe: {exec: {command: [alive]}, periodSeconds: 1, failureThreshold: 1}
    readinessProbe: {exec: {command: [serving]}, periodSeconds: 1}
";

/// SCN-K25, DEF-1, KEEP-8, CON-10: agent restarts in the middle of startup: started stays false, nothing but the
/// startup probe is asked, no container is killed; startup completes later, and only then come the others.
#[test]
fn startup_goes_on_over_agent_restarts() {
    for way in Way::ALL {
        let mut world = way.world(SLOW);
        world.answer("main", ProbeKind::Startup, Reply::Fail);
        // It would kill at once.
        world.answer("main", ProbeKind::Liveness, Reply::Fail);
        world.run(secs(11));
        for _ in 0..3 {
            way.restart(&mut world, secs(2));
            world.run(secs(11));
        }
        assert_eq!(history(&world, secs(1), "main"), [(false, false)], "{way:?}\n{}", world.timeline_text());
        for kind in [ProbeKind::Liveness, ProbeKind::Readiness] {
            assert_eq!(world.probes("main", kind, secs(0)), [], "{way:?}");
        }
        world.answer("main", ProbeKind::Liveness, Reply::Pass);
        let at = world.elapsed();
        world.answer("main", ProbeKind::Startup, Reply::Pass).run(secs(7));
        let passed = world.probes("main", ProbeKind::Startup, at);
        assert_eq!(passed.len(), 1, "{way:?}: one success, and no more questions");
        let liveness = world.probes("main", ProbeKind::Liveness, at);
        assert!(liveness.iter().all(|(when, _)| *when > passed[0].0) && !liveness.is_empty(), "{way:?}");
        assert_eq!(bits(&world.status(), "main"), (true, true), "{way:?}");
        assert_eq!((world.starts("main"), world.container("main").restart_count), (1, 0), "{way:?}");
    }
}

/// SCN-K25, CON-10: the failures of a startup probe before the restart count as well as those after it, so a container
/// that never comes up is given up when its time is over.
#[test]
fn the_streak_of_a_startup_probe_goes_on_over_an_agent_restart() {
    let probe = "startupProbe: {exec: {command: [up]}, periodSeconds: 5, failureThreshold: 6}";
    for way in [Way::Killed, Way::Stopped, Way::KilledInCluster] {
        let mut world = way.world(&one(probe));
        world.answer("main", ProbeKind::Startup, Reply::Fail);
        world.run(secs(12));
        way.restart(&mut world, secs(2));
        let ended = wait(&mut world, secs(40), |world| world.starts("main") > 1);
        assert!(ended, "{way:?}");
        // Six failures, five periods apart; the one right after the restart is no period later and does not count.
        let elapsed = world.elapsed();
        assert!(elapsed >= secs(25) && elapsed <= secs(32), "{way:?}: {elapsed:?}\n{}", world.timeline_text());
        assert!(world.saw_event("Killing", "startup"), "{way:?}\n{}", world.timeline_text());
    }
}

/// SCN-K26, KEEP-13: a container crashes while the agent is away: the first status calls it neither started nor ready,
/// it is restarted once, counted once, and has everything to show again.
#[test]
fn a_container_that_crashed_meanwhile_is_restarted_and_counted_once() {
    for way in Way::ALL {
        for probes in [NONE, STARTUP, READINESS, BOTH] {
            let case = format!("{probes:?}, {way:?}");
            let mut world = way.world(&one(probes));
            world.run(secs(11));
            let before = world.container("main");
            way.end(&mut world);
            world.run(secs(2)).exit("main", 3);
            world.answer("main", ProbeKind::Startup, Reply::Fail).answer("main", ProbeKind::Readiness, Reply::Fail);
            world.run(secs(2));
            let at = world.elapsed();
            way.begin(&mut world);
            world.run(secs(20));
            let published = since(&world, at);
            assert_eq!(bits(&published[0], "main"), (false, false), "{case}\n{}", world.timeline_text());
            assert!(!published[0].is_true(&ConditionType::Ready), "{case}");
            let now = world.container("main");
            assert_eq!((world.starts("main"), now.restart_count), (2, 1), "{case}");
            assert_ne!(now.container_id, before.container_id, "{case}");
            assert_eq!(now.last_state.terminated.as_ref().unwrap().exit_code, 3, "{case}");
            let expected = match probes {
                NONE => (true, true),
                READINESS => (true, false),
                _ => (false, false),
            };
            assert_eq!(bits(&world.status(), "main"), expected, "{case}");
            world.answer("main", ProbeKind::Startup, Reply::Pass).answer("main", ProbeKind::Readiness, Reply::Pass);
            world.settle();
            assert_eq!(bits(&world.status(), "main"), (true, true), "{case}");
            assert_eq!((world.starts("main"), world.container("main").restart_count), (2, 1), "{case}");
        }
    }
}

/// SCN-K28, KEEP-10, CON-18f: a container that is unwell after the restart is unready at its third failure: not at
/// once, not at the second, not at the fourth.
#[test]
fn a_container_that_is_unwell_afterwards_is_unready_at_its_threshold() {
    let probe = "readinessProbe: {exec: {command: [serving]}, periodSeconds: 4, failureThreshold: 3}";
    for way in Way::ALL {
        for down in [secs(1), secs(20)] {
            let mut world = way.world(&one(probe));
            world.run(secs(11));
            way.end(&mut world);
            world.answer("main", ProbeKind::Readiness, Reply::Fail).run(down);
            let at = world.elapsed();
            way.begin(&mut world);
            let failures = |world: &keelet_sim::World| world.probes("main", ProbeKind::Readiness, at).len();
            assert!(wait(&mut world, secs(20), |world| !world.container("main").ready), "{way:?}");
            assert_eq!(failures(&world), 3, "{way:?}, {down:?}\n{}", world.timeline_text());
            assert!(world.elapsed() >= at + secs(8), "{way:?}, {down:?}: two periods lie between three failures");
            assert_eq!(history(&world, at, "main"), [(true, true), (true, false)], "{way:?}, {down:?}");
        }
    }
}

/// KEEP-21, SCN-K28: no container is killed on evidence from before an absence: two of three liveness failures, then the
/// agent is away for long, and it takes three more.
#[test]
fn no_container_is_killed_on_old_evidence() {
    let probe = "livenessProbe: {exec: {command: [alive]}, periodSeconds: 3, failureThreshold: 3}";
    for way in Way::ALL {
        let mut world = way.world(&one(probe));
        world.run(secs(10));
        world.answer("main", ProbeKind::Liveness, Reply::Fail);
        let at = world.elapsed();
        assert!(wait(&mut world, secs(10), |world| world.probes("main", ProbeKind::Liveness, at).len() == 2));
        way.restart(&mut world, secs(20));
        let at = world.elapsed();
        assert!(wait(&mut world, secs(20), |world| world.starts("main") > 1), "{way:?}");
        assert_eq!(world.probes("main", ProbeKind::Liveness, at).len(), 3, "{way:?}\n{}", world.timeline_text());
    }
}
