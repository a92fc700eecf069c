//! An agent restart is not evidence: status stays as it was until a probe, an exit or a start says otherwise.

use std::time::Duration;

use keelet_pod::{AgentRestart, ProbeKind};

use super::world::World;
use crate::{
    Because, Rules,
    observed::{Before, Known},
    operation::{KillReason, Operation, Outcome, Step},
    probe::Basis,
    status::{ConditionType, Phase},
};

pub(super) const NONE: &str = "";
pub(super) const STARTUP: &str = "startupProbe: {exec: {command: [up]}, periodSeconds: 2, failureThreshold: 30}";
pub(super) const READINESS: &str = "readinessProbe: {exec: {command: [up]}, periodSeconds: 3}";
pub(super) const BOTH: &str = "startupProbe: {exec: {command: [up]}, periodSeconds: 2, failureThreshold: 30}, \
                    readinessProbe: {exec: {command: [up]}, periodSeconds: 3}";

pub(super) fn one(probes: &str) -> World {
    World::with_spec(&format!("\n  containers:\n  - {{name: main, image: app, {probes}}}\n"))
}

pub(super) fn several(probes: &str) -> World {
    World::with_spec(&format!(
        "\n  containers:\n  - {{name: main, image: app, {probes}}}\n  - {{name: more, image: app, {probes}}}\n"
    ))
}

fn sidecar(probes: &str) -> World {
    World::with_spec(&format!(
        "
  initContainers:
  - {{name: main, image: app, restartPolicy: Always, {probes}}}
  containers:
  - {{name: more, image: app}}
"
    ))
}

/// Restarts the agent in all the ways in which a ledger meets a node, and gives the world after each, with the number
/// of statuses that there were before.
fn restarts(make: impl Fn() -> World, look: impl Fn(&str, usize, World)) {
    for way in ["alone", "in a cluster", "with the API server down", "without the volatile part"] {
        let mut world = make();
        let (copy, seen) = (world.status().clone(), world.statuses.len());
        world.away(2_345);
        match way {
            "alone" => world.restart_alone(Duration::from_millis(2_345)),
            "in a cluster" => world.restart_in_cluster(Some(copy)),
            "with the API server down" => world.restart_in_cluster(None),
            _ => world.lose_volatile().restart_in_cluster(Some(copy)),
        };
        look(way, seen, world);
    }
}

/// SCN-K1..SCN-K12, KEEP-1, KEEP-3, KEEP-4, KEEP-7, KEEP-9, KEEP-18, KEEP-23, KEEP-25, SCN-U20 and SCN-U21
/// (superseded: nothing is seeded): with no probe, a startup probe, a readiness probe or both, on one container, on
/// several or on a sidecar, an agent restart changes nothing in any status, be the container young or old.
#[test]
fn a_ready_pod_stays_as_it_is() {
    assert_eq!(Rules::default().agent_restart, AgentRestart::KeepStatus);
    for kind in [one, several, sidecar] {
        for probes in [NONE, STARTUP, READINESS, BOTH] {
            // KEEP-2 and KEEP-12 would treat the first two differently. The container ID is known, so the clock
            // is not asked (CON-3).
            for age in [1, 9, 11] {
                let make = || {
                    let mut world = kind(probes);
                    world.seconds(age);
                    assert_eq!(world.bits("main"), (true, true), "{probes}");
                    world
                };
                restarts(make, |way, seen, mut world| {
                    world.seconds(20);
                    assert_eq!(world.statuses.len(), seen, "{probes}, {age} s, {way}");
                    assert_eq!(world.bits("main"), (true, true), "{probes}, {age} s, {way}");
                    assert_eq!(world.container("main").restart_count, 0);
                    assert_eq!(world.launches("main").len(), 1);
                });
            }
        }
    }
}

/// SCN-K13..SCN-K18, KEEP-16: a pod that was not ready stays so, and started, until its own probe passes.
#[test]
fn an_unready_pod_stays_as_it_is() {
    for kind in [one, several, sidecar] {
        for probes in [READINESS, BOTH] {
            let make = || {
                let mut world = kind(probes);
                world.seconds(12).answer("main", ProbeKind::Readiness, Outcome::Failure).seconds(12);
                assert_eq!(world.bits("main"), (true, false));
                world
            };
            restarts(make, |way, seen, mut world| {
                world.seconds(20);
                assert_eq!(world.bits_since(seen - 1, "main"), [(true, false)], "{probes}, {way}");
                world.answer("main", ProbeKind::Readiness, Outcome::Success).seconds(3);
                assert_eq!(world.bits("main"), (true, true), "{probes}, {way}");
            });
        }
    }
}

const WATCHED: &str = "
  containers:
  - name: main
    image: app
    readinessProbe: {exec: {command: [up]}, periodSeconds: 10, successThreshold: 2, failureThreshold: 3}
";

/// KEEP-10, SCN-K28, CON-8, CON-9: the first two rows of the truth table. A ready container that is unwell after the
/// restart is unready at the third failure; an unready one that is well is ready at the second success. Nothing older
/// than 2 x period + timeout helps, and the probe is asked within a second.
#[test]
fn only_real_results_change_readiness_after_a_restart() {
    let mut world = World::with_spec(WATCHED);
    world.seconds(25).away(60_000).answer("main", ProbeKind::Readiness, Outcome::Failure);
    world.restart_agent();
    assert_eq!(world.bits("main"), (true, true));
    let why = world.why_ready("main").clone();
    assert!(matches!(why, Because::Carried { passed: true, basis: Basis::Probe { streak: 2, .. }, .. }), "{why:?}");
    world.seconds(20);
    assert_eq!(world.probed_at("main", ProbeKind::Readiness), [0, 10_000, 20_000, 85_000, 95_000, 105_000]);
    assert_eq!(world.bits("main"), (true, false), "the third failure");
    let mut world = World::with_spec(WATCHED);
    world.answer("main", ProbeKind::Readiness, Outcome::Failure).seconds(25).away(60_000);
    world.answer("main", ProbeKind::Readiness, Outcome::Success).restart_agent();
    assert_eq!(world.bits("main"), (true, false), "the first success");
    world.millis(9_999);
    assert_eq!(world.bits("main"), (true, false));
    world.millis(1);
    assert_eq!(world.bits("main"), (true, true), "the second success");
}

/// CON-8, CON-9: a fresh streak goes on over the restart: one more success is enough, or one more failure that is a
/// period away from the one before.
#[test]
fn a_fresh_streak_goes_on_over_a_restart() {
    let mut world = World::with_spec(WATCHED);
    world.seconds(5).restart_agent().millis(999);
    assert_eq!(world.bits("main"), (true, true), "one success before, one after");
    world.answer("main", ProbeKind::Readiness, Outcome::Failure).seconds(20);
    assert_eq!(world.instance("main").readiness.streak.unwrap().length, 2);
    assert_eq!(world.bits("main"), (true, true));
    world.restart_agent().millis(999);
    assert_eq!(world.bits("main"), (true, true), "the failure right after the start comes too soon to count");
    world.seconds(10);
    assert_eq!(world.bits("main"), (true, false), "two failures before, one after");
}

/// KEEP-13, SCN-K26: the last row of the truth table. What crashed while the agent was away is neither started nor
/// ready in the first status, is restarted once, counted once, and has to show everything again.
#[test]
fn a_container_that_crashed_meanwhile_begins_from_nothing() {
    let make = || {
        let mut world = one(BOTH);
        world.seconds(15).answer("main", ProbeKind::Startup, Outcome::Failure);
        world.exit_only("main", 3);
        world.hold(|operation| matches!(operation, Operation::Launch { .. }));
        world
    };
    restarts(make, |way, _, mut world| {
        assert_eq!(world.bits("main"), (false, false), "{way}");
        assert!(!world.holds(ConditionType::Ready));
        let before = world.id("main");
        world.release().seconds(20);
        assert_ne!(world.id("main"), before, "{way}");
        assert_eq!(world.bits("main"), (false, false), "{way}");
        assert_eq!((world.container("main").restart_count, world.launches("main").len()), (1, 2), "{way}");
        assert_eq!(world.container("main").last_state.terminated.as_ref().unwrap().exit_code, 3);
        world.answer("main", ProbeKind::Startup, Outcome::Success).seconds(2);
        assert_eq!(world.bits("main"), (true, true), "{way}");
    });
}

/// KEEP-13: after a reboot nothing that was known of a running container is worth anything.
#[test]
fn a_reboot_leaves_nothing_to_inherit() {
    let mut world = one(BOTH);
    world.seconds(20).answer("main", ProbeKind::Startup, Outcome::Failure);
    let seen = world.statuses.len();
    world.reboot().settle().seconds(10);
    assert_eq!(world.bits_since(seen, "main"), [(false, false)]);
    assert_eq!(world.running(), ["main"].into());
    assert_eq!(world.container("main").restart_count, 1);
    world.answer("main", ProbeKind::Startup, Outcome::Success).seconds(2);
    assert_eq!(world.bits("main"), (true, true));
}

/// KEEP-12, DEF-3: a container that has not been probed yet is not ready in the first status after a restart.
#[test]
fn a_young_container_is_not_called_ready_unasked() {
    let make = || {
        let mut world = one(READINESS);
        world.hold(|operation| matches!(operation, Operation::Probe { .. })).settle();
        assert_eq!(world.bits("main"), (true, false));
        world
    };
    restarts(make, |way, _, mut world| {
        assert_eq!(world.bits("main"), (true, false), "{way}");
        assert!(world.statuses.iter().all(|status| !status.is_true(&ConditionType::Ready)), "{way}");
        world.millis(999).reply("main", ProbeKind::Readiness, Outcome::Success);
        assert_eq!(world.bits("main"), (true, true), "{way}");
    });
}

pub(super) const SLOW: &str = "
  containers:
  - name: main
    image: app
    startupProbe: {exec: {command: [up]}, periodSeconds: 10, failureThreshold: 6}
    livenessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 1}
";

/// DEF-1, KEEP-8, CON-10, SCN-K25: an agent restart in the middle of startup: started stays false, liveness is not
/// asked, startup goes on and completes.
#[test]
fn startup_goes_on_over_an_agent_restart() {
    let make = || {
        let mut world = World::with_spec(SLOW);
        world.answer("main", ProbeKind::Startup, Outcome::Failure);
        world.answer("main", ProbeKind::Liveness, Outcome::Failure).seconds(25);
        world
    };
    restarts(make, |way, _, mut world| {
        assert_eq!(world.bits("main"), (false, false), "{way}");
        world.seconds(15);
        assert!(world.statuses.iter().all(|status| status.container("main").unwrap().started == Some(false)), "{way}");
        assert!(world.probed_at("main", ProbeKind::Liveness).is_empty(), "{way}");
        assert_eq!(world.container("main").restart_count, 0, "{way}");
        world.answer("main", ProbeKind::Liveness, Outcome::Success);
        world.answer("main", ProbeKind::Startup, Outcome::Success).seconds(10);
        assert_eq!(world.bits("main"), (true, true), "{way}");
    });
}

/// KEEP-22, PROBE-17: the initial delay counts from the container's start, also over a restart.
#[test]
fn an_initial_delay_is_not_waited_for_twice() {
    let spec = "
  containers:
  - name: main
    image: app
    readinessProbe: {exec: {command: [up]}, initialDelaySeconds: 60, periodSeconds: 20}
";
    let mut world = World::with_spec(spec);
    world.seconds(30).restart_agent().seconds(29);
    assert!(world.probed_at("main", ProbeKind::Readiness).is_empty());
    world.millis(500).lose_volatile().restart_agent().seconds(1);
    assert_eq!(world.probed_at("main", ProbeKind::Readiness), [60_000]);
    world.millis(5_000).restart_agent().seconds(1);
    assert_eq!(world.probed_at("main", ProbeKind::Readiness), [60_000, 66_000]);
}

const TWO_WATCHED: &str = "
  readinessGates: [{conditionType: example.com/Wired}]
  containers:
  - {name: main, image: app, readinessProbe: {exec: {command: [up]}, periodSeconds: 5}}
  - {name: sick, image: app, readinessProbe: {exec: {command: [up]}, periodSeconds: 5}}
";

/// CON-4, KEEP-17, KEEP-19 (both as decided): a pod that is unready because of one container, or because of a
/// readiness gate, does not make another container unready.
#[test]
fn one_unready_container_does_not_make_another_unready() {
    for cause in ["container", "gate"] {
        let make = || {
            let mut world = World::with_spec(TWO_WATCHED);
            world.observed.foreign_conditions.insert("example.com/Wired".to_owned(), cause != "gate");
            let sick = if cause == "gate" { Outcome::Success } else { Outcome::Failure };
            world.answer("sick", ProbeKind::Readiness, sick).seconds(20);
            assert!(!world.holds(ConditionType::Ready));
            world.hold(|operation| matches!(operation, Operation::Probe { .. }));
            world
        };
        restarts(make, |way, seen, mut world| {
            world.seconds(20);
            assert_eq!(world.bits_since(seen - 1, "main"), [(true, true)], "{cause}, {way}");
            assert_eq!(world.bits_since(seen - 1, "sick"), [(true, cause == "gate")], "{cause}, {way}");
            assert_eq!(world.holds(ConditionType::ContainersReady), cause == "gate", "{cause}, {way}");
            assert!(!world.holds(ConditionType::Ready), "{cause}, {way}");
        });
    }
}

/// KEEP-5, SCN-K19, SCN-U21: after an agent restart a regular container behind a sidecar with a startup probe is
/// restarted when it dies; the sidecar is left alone.
#[test]
fn a_main_container_behind_a_sidecar_is_restarted_after_an_agent_restart() {
    let make = || {
        let mut world = sidecar(STARTUP);
        world.seconds(15);
        world
    };
    restarts(make, |way, _, mut world| {
        let proxy = world.id("main");
        world.seconds(15).exit("more", 137);
        assert_eq!(world.running(), ["main", "more"].into(), "{way}");
        assert_eq!((world.container("more").restart_count, world.container("main").restart_count), (1, 0), "{way}");
        assert_eq!(world.id("main"), proxy, "{way}");
        assert_eq!(world.bits("main"), (true, true), "{way}");
    });
}

/// DEF-21: waiting reasons are the same before and after: a crash loop does not turn into an ended container, a
/// failing pull not into one that was never tried.
#[test]
fn waiting_reasons_survive_an_agent_restart() {
    let mut world = one(NONE);
    world.seconds(1).exit("main", 1).seconds(1);
    world.exit("main", 1).seconds(2);
    assert_eq!(world.waiting_reason("main"), Some("CrashLoopBackOff"));
    let seen = world.statuses.len();
    world.seconds(1).restart_agent().millis(500);
    world.lose_volatile().restart_agent().millis(500);
    assert_eq!(world.statuses.len(), seen, "{:#?}", world.status());
    world.seconds(20);
    assert_eq!(world.launches("main"), [0, 1, 12], "and the backoff goes on");
    for (reason, wait) in [("ErrImagePull", 0), ("ImagePullBackOff", 2)] {
        let mut world = one(NONE);
        world.fail("EnsureImage", "ErrImagePull").seconds(wait);
        assert_eq!(world.waiting_reason("main"), Some(reason));
        let seen = world.statuses.len();
        world.millis(10).restart_agent();
        assert_eq!(world.waiting_reason("main"), Some(reason));
        assert_eq!(world.statuses.len(), seen, "{reason}");
    }
}

/// CON-3, CON-8: the wall clock is set by an hour, either way, while the agent restarts: nothing changes.
#[test]
fn a_wall_clock_that_is_set_changes_nothing() {
    for hour in [3_600_000, -3_600_000] {
        for kind in [one, several, sidecar] {
            let mut world = kind(BOTH);
            world.seconds(5);
            let (seen, copy) = (world.statuses.len(), world.status().clone());
            world.shift_wall_clock(hour).millis(300).restart_in_cluster(Some(copy)).seconds(2);
            world.away(1_000).shift_wall_clock(2 * hour).restart_alone(Duration::from_secs(1)).seconds(2);
            world.shift_wall_clock(-hour).restart_agent().seconds(20);
            assert_eq!(world.statuses.len(), seen, "{hour}");
            let probes = world.probed_at("main", ProbeKind::Readiness);
            assert!(probes.windows(2).all(|pair| pair[1] - pair[0] <= 3_000), "{hour}: no blind period: {probes:?}");
            assert_eq!(world.status().phase, Phase::Running);
        }
    }
    // In the middle of startup, too.
    for hour in [3_600_000, -3_600_000] {
        let mut world = World::with_spec(SLOW);
        world.answer("main", ProbeKind::Startup, Outcome::Failure).seconds(25);
        world.hold(|operation| matches!(operation, Operation::Stop { .. }));
        world.shift_wall_clock(hour).restart_agent().seconds(35);
        assert_eq!(world.bits("main"), (false, false));
        let kill = world.instance("main").kill.clone().expect("the sixth failure");
        assert_eq!(kill.reason, KillReason::Probe(ProbeKind::Startup));
        assert_eq!(world.probed_at("main", ProbeKind::Startup), [0, 10_000, 20_000, 25_000, 35_000, 45_000, 55_000]);
    }
}

/// KEEP-24, KEEP-6, KEEP-1, CON-1, CON-2, SCN-K29, SCN-U20 (superseded where the feature gate is off): with the legacy feature gate
/// on, one status calls everything that runs started and ready, the next takes it all back, and probes restore it.
#[test]
fn the_legacy_gate_resets_in_two_steps() {
    let rows = [
        (NONE, true, vec![(true, true)]),
        (READINESS, true, vec![(true, true), (true, false), (true, true)]),
        (STARTUP, true, vec![(true, true), (false, false), (true, true)]),
        (BOTH, true, vec![(true, true), (false, false), (true, false), (true, true)]),
        // What was not ready, or had not even started, is called so first all the same.
        (READINESS, false, vec![(true, true), (true, false), (true, true)]),
        (STARTUP, false, vec![(true, true), (false, false), (true, true)]),
    ];
    for kind in [one, several, sidecar] {
        for way in ["ledger", "volatile lost", "API copy"] {
            for (probes, well, bits) in &rows {
                let mut world = kind(probes);
                world.rules.agent_restart = AgentRestart::ResetStatus;
                if !*well {
                    world.answer("main", ProbeKind::Startup, Outcome::Failure);
                    world.answer("main", ProbeKind::Readiness, Outcome::Failure);
                }
                world.seconds(20);
                let copy = world.status().clone();
                if way != "ledger" {
                    world.lose_volatile();
                }
                if way == "API copy" {
                    world.lose_ledger().observed.agent.before = Before::Cluster(Known::Copy(Box::new(copy)));
                }
                world.answers.clear();
                world.restart_agent_only();
                let first = world.plan_once();
                let mut seen = vec![world.bits("main")];
                assert_eq!(first.wake_at, Some(world.now), "the second step follows at once");
                let asks = |step: &Step| matches!(step, Step::Start { operation: Operation::Probe { .. }, .. });
                assert!(!first.operations.iter().any(asks), "no probe runs yet");
                for _ in 0..200 {
                    world.plan_once();
                    seen.push(world.bits("main"));
                    world.away(100);
                }
                seen.dedup();
                assert_eq!(seen, *bits, "{probes}, {way}, well before: {well}");
                assert_eq!(world.container("main").restart_count, 0);
            }
        }
    }
}

/// KEEP-10, PROBE-13: one of the two disks of the ledger was full. It still has the container as running, the other has its exit: the exit
/// counts, and nothing is probed or ready that does not run.
#[test]
fn an_exit_counts_although_the_container_is_remembered_as_running() {
    for lost in [false, true] {
        let mut world = World::with_spec(&format!(
            "
  restartPolicy: Never
  containers:
  - {{name: main, image: app, {BOTH}}}
  - {{name: more, image: app}}
"
        ));
        world.seconds(10);
        let stale = world.evidence.volatile.clone();
        if lost {
            world.lose("main")
        } else {
            world.exit("main", 0)
        };
        world.settle();
        assert_eq!(world.bits("main"), (false, false));
        world.evidence.volatile = stale;
        let mark = world.mark();
        world.away(1_000).restart_alone(Duration::from_secs(1)).seconds(20);
        assert_eq!(world.bits("main"), (false, false), "lost: {lost}");
        assert_eq!(world.probes_since(mark, "main", ProbeKind::Readiness), 0, "lost: {lost}");
    }
}
