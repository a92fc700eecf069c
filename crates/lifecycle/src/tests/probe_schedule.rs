//! When probes are tried: first, next, and after an agent start.

use std::{collections::BTreeSet, time::Duration};

use keelet_pod::{Handler, Probe, ProbeKind};

use super::world::World;
use crate::{
    Moment, Wall,
    operation::{Operation, Outcome},
    probe::{Attempt, ProbeMemory, Streak, after_attempt, after_restart, first_due},
    time::BootId,
};

fn probe(initial_delay: u64, period: u64) -> Probe {
    Probe {
        handler: Handler::Exec { command: vec!["true".to_owned()] },
        initial_delay: Duration::from_millis(initial_delay),
        timeout: Duration::from_secs(3),
        period: Duration::from_millis(period),
        success_threshold: 1,
        failure_threshold: 3,
        termination_grace: None,
    }
}

fn at(boot_ms: i64) -> Moment {
    Moment { boot_ms, wall: Wall::from_millis(boot_ms), boot_id: BootId::from_u128(1) }
}

/// PROBE-4, PROBE-17, PROBE-27, SCN-U8, SCN-U9: the first attempt of each kind, for a container that started at
/// 100 s; with a startup probe, that passed at the given time.
#[test]
fn the_first_attempt_is_due_as_decided() {
    use ProbeKind::{Liveness, Readiness, Startup};
    let rows = [
        (Startup, 0, 10_000, None, 100_000),
        (Startup, 7_000, 10_000, None, 107_000),
        (Readiness, 0, 10_000, None, 100_000),
        (Readiness, 15_000, 10_000, None, 115_000),
        // Readiness follows the startup success at once, but not before its own delay.
        (Readiness, 0, 30_000, Some(132_000), 132_000),
        (Readiness, 31_999, 30_000, Some(132_000), 132_000),
        (Readiness, 32_001, 30_000, Some(132_000), 132_001),
        // Liveness without a delay leaves one period, at most 10 s.
        (Liveness, 0, 1_000, None, 101_000),
        (Liveness, 0, 9_999, None, 109_999),
        (Liveness, 0, 10_000, None, 110_000),
        (Liveness, 0, 60_000, None, 110_000),
        (Liveness, 0, 250, None, 100_250),
        // With a delay it is taken at its word.
        (Liveness, 1_000, 60_000, None, 101_000),
        (Liveness, 0, 5_000, Some(132_000), 137_000),
        (Liveness, 0, 60_000, Some(132_000), 142_000),
        (Liveness, 36_999, 5_000, Some(132_000), 137_000),
        (Liveness, 37_001, 5_000, Some(132_000), 137_001),
    ];
    for (kind, delay, period, passed, due) in rows {
        let first = first_due(kind, &probe(delay, period), at(100_000), passed.map(at));
        assert_eq!(first.boot_ms, due, "{kind} delay {delay} period {period} startup {passed:?}");
    }
}

/// PROBE-4: the next attempt is on the grid of the one before, in the future, however long the attempt took.
#[test]
fn attempts_stay_on_their_grid() {
    let rows = [
        (10_000, 50_000, 50_000, 60_000),
        (10_000, 50_000, 50_003, 60_000),
        (10_000, 50_000, 59_999, 60_000),
        (10_000, 50_000, 60_000, 70_000),
        (10_000, 50_000, 85_000, 90_000),
        // It ended before it was due: an extra attempt.
        (10_000, 50_000, 49_000, 60_000),
        (250, 50_000, 50_260, 50_500),
    ];
    for (period, due, ended, next) in rows {
        assert_eq!(after_attempt(&probe(0, period), at(due), at(ended)).boot_ms, next, "{period} {due} {ended}");
    }
}

fn remembered(run_last: i64, due: i64) -> ProbeMemory {
    ProbeMemory {
        streak: Some(Streak { passed: false, length: 2, last: at(run_last) }),
        due: Some(at(due)),
        last: Some(Attempt {
            at: at(run_last),
            outcome: Outcome::Failure,
            latency: Duration::ZERO,
            output: String::new(),
        }),
        ..ProbeMemory::default()
    }
}

/// CON-8: a streak is carried over an agent restart only if its last result is younger than 2 x period + timeout
/// (23 s here).
#[test]
fn only_a_fresh_streak_is_carried() {
    for (now, kept) in [(100_000, true), (122_999, true), (123_000, false), (123_001, false), (900_000, false)] {
        let mut memory = remembered(100_000, 110_000);
        memory.tries = 2;
        after_restart(&mut memory, &probe(0, 10_000), at(now));
        assert_eq!(memory.streak.map(|streak| streak.length), kept.then_some(2), "at {now}");
        assert_eq!(memory.tries, 0, "a round does not go on under another agent");
    }
}

/// CON-8, PROBE-19: the streak of attempts that could not be made has its own age.
#[test]
fn a_streak_of_errors_is_as_old_as_its_last_error() {
    let errors = |run_last, last| {
        let mut memory = remembered(run_last, 110_000);
        memory.errors = 2;
        memory.last =
            Some(Attempt { at: at(last), outcome: Outcome::Error, latency: Duration::ZERO, output: String::new() });
        memory
    };
    for (now, left) in [(132_999, 2), (133_000, 0)] {
        let mut memory = errors(100_000, 110_000);
        after_restart(&mut memory, &probe(0, 10_000), at(now));
        assert_eq!(memory.errors, left, "at {now}");
        assert_eq!(memory.streak, None);
        let mut memory = ProbeMemory { streak: None, ..errors(100_000, 110_000) };
        after_restart(&mut memory, &probe(0, 10_000), at(now));
        assert_eq!(memory.errors, left, "at {now}, no run");
    }
}

/// CON-8, KEEP-22: after an agent start a kept probe is due at once, within min(period, 1 s), by the phase it had.
#[test]
fn kept_probes_are_due_at_once_by_their_phase() {
    let rows = [
        // period, due before, agent start, due now
        (10_000, 150_000, 145_000, 145_000),
        (10_000, 150_300, 145_000, 145_300),
        (10_000, 150_999, 145_000, 145_999),
        (10_000, 150_300, 145_400, 146_300),
        (10_000, 150_300, 900_300, 900_300),
        (10_000, 150_300, 900_301, 901_300),
        (1_000, 150_300, 149_500, 150_300),
        (400, 150_300, 145_000, 145_100),
        (400, 150_300, 145_101, 145_500),
    ];
    for (period, due, now, next) in rows {
        let mut memory = remembered(140_000, due);
        after_restart(&mut memory, &probe(0, period), at(now));
        assert_eq!(memory.due, Some(at(next)), "period {period}, due {due}, start {now}");
        let spread = Duration::from_millis(period.min(1_000));
        assert!(memory.due.unwrap().since(&at(now)) < spread);
    }
    // Different phases stay different: no storm.
    let dues: BTreeSet<i64> = (0..100)
        .map(|n| {
            let mut memory = remembered(140_000, 150_000 + 10 * n);
            after_restart(&mut memory, &probe(0, 10_000), at(144_444));
            memory.due.unwrap().boot_ms
        })
        .collect();
    assert_eq!(dues.len(), 100);
    assert!(dues.iter().all(|due| (144_444..145_444).contains(due)));
}

/// PROBE-17, KEEP-22: an initial delay that is not over goes on; it is neither waited for again nor cut short.
#[test]
fn an_initial_delay_goes_on_over_an_agent_restart() {
    for ahead in [0, 1, 999, 1_000, 1_001, 60_000] {
        let mut memory = ProbeMemory { due: Some(at(200_000 + ahead)), ..ProbeMemory::default() };
        after_restart(&mut memory, &probe(100_000, 10_000), at(200_000));
        assert_eq!(memory.due, Some(at(200_000 + ahead)), "{ahead} ms ahead");
    }
    let mut memory = ProbeMemory::default();
    after_restart(&mut memory, &probe(0, 10_000), at(200_000));
    assert_eq!(memory.due, None, "a clock that has not started does not start here");
}

const THREE_PROBES: &str = "
  containers:
  - name: main
    image: app
    startupProbe: {exec: {command: [up]}, initialDelaySeconds: 2, periodSeconds: 3, failureThreshold: 30}
    readinessProbe: {exec: {command: [up]}, periodSeconds: 30}
    livenessProbe: {exec: {command: [up]}, periodSeconds: 5}
";

/// PROBE-4, PROBE-5, PROBE-18, PROBE-27, SCN-P17, DEF-24: startup on its grid; then readiness at once, once, and from
/// then on with its own period; liveness one period later. While it fails, readiness is not asked more often.
#[test]
fn after_startup_readiness_is_tried_once_at_once_and_then_by_its_period() {
    let mut world = World::with_spec(THREE_PROBES);
    world.answer("main", ProbeKind::Startup, Outcome::Failure);
    world.answer("main", ProbeKind::Readiness, Outcome::Failure);
    world.seconds(10).answer("main", ProbeKind::Startup, Outcome::Success).seconds(80);
    assert_eq!(world.probed_at("main", ProbeKind::Startup), [2_000, 5_000, 8_000, 11_000]);
    assert_eq!(world.probed_at("main", ProbeKind::Readiness), [11_000, 41_000, 71_000]);
    assert_eq!(world.probed_at("main", ProbeKind::Liveness)[..3], [16_000, 21_000, 26_000]);
    assert_eq!(world.bits("main"), (true, false));
    assert_eq!(world.container("main").restart_count, 0);
}

/// DEF-24: whatever else happens to the pod, and however often its status is computed, an unready container is not
/// asked before its time.
#[test]
fn planning_often_does_not_probe_often() {
    let spec = "
  containers:
  - {name: main, image: app, readinessProbe: {exec: {command: [up]}, periodSeconds: 10}}
  - {name: other, image: app}
";
    let mut world = World::with_spec(spec);
    world.answer("main", ProbeKind::Readiness, Outcome::Failure);
    world.settle();
    for step in 0..29 {
        world.seconds(1);
        if step % 12 == 0 {
            world.exit("other", 1);
        }
    }
    assert_eq!(world.probed_at("main", ProbeKind::Readiness), [0, 10_000, 20_000]);
}

/// DEF-24, PROBE-27: the attempt that follows a success of startup at once is the only one out of turn, whatever else
/// happens to the pod, so no threshold is reached sooner than the period allows.
#[test]
fn startup_gives_readiness_one_extra_attempt() {
    let spec = "
  containers:
  - name: main
    image: app
    startupProbe: {exec: {command: [up]}, periodSeconds: 1}
    readinessProbe: {exec: {command: [up]}, periodSeconds: 10, successThreshold: 3}
  - {name: other, image: app}
";
    for answer in [Outcome::Failure, Outcome::Success] {
        let mut world = World::with_spec(spec);
        world.rules.eager_probes = false;
        world.answer("main", ProbeKind::Startup, Outcome::Failure).answer("main", ProbeKind::Readiness, answer);
        world.seconds(1).answer("main", ProbeKind::Startup, Outcome::Success).seconds(1);
        world.seconds(2).exit("other", 1).seconds(11).exit("other", 1).seconds(4);
        let asked = world.probed_at("main", ProbeKind::Readiness);
        let ready = world.bits("main");
        assert_eq!((asked, ready), (vec![2_000, 12_000], (true, false)), "{answer:?}");
    }
}

/// PROBE-4, SCN-P1: readiness with an initial delay of 15 s: not asked and not ready before, ready then.
#[test]
fn the_initial_delay_counts_from_the_start_of_the_container() {
    let spec = "
  containers:
  - name: main
    image: app
    readinessProbe: {exec: {command: [up]}, initialDelaySeconds: 15, periodSeconds: 5}
";
    let mut world = World::with_spec(spec);
    world.hold(|operation| matches!(operation, Operation::EnsureImage { .. }));
    world.seconds(40).release().millis(14_999);
    assert_eq!(world.bits("main"), (true, false));
    assert!(world.probed_at("main", ProbeKind::Readiness).is_empty());
    world.millis(1);
    assert_eq!(world.bits("main"), (true, true));
    assert_eq!(world.probed_at("main", ProbeKind::Readiness), [55_000]);
    assert_eq!(world.container("main").restart_count, 0);
}

/// PROBE-4: a sub-second period by annotation: the grid, the first liveness attempt and the spread follow it.
#[test]
fn a_period_may_be_shorter_than_a_second() {
    let mut world = World::new(
        "
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  uid: uid-1
  annotations: {keelet.dev/probe-period-ms.main.liveness: '100', keelet.dev/probe-period-ms.main.readiness: '250'}
spec:
  containers:
  - name: main
    image: app
    livenessProbe: {exec: {command: [up]}, failureThreshold: 2}
    readinessProbe: {exec: {command: [up]}, failureThreshold: 1}
",
    );
    world.millis(500);
    assert_eq!(world.probed_at("main", ProbeKind::Liveness), [100, 200, 300, 400, 500]);
    assert_eq!(world.probed_at("main", ProbeKind::Readiness), [0, 250, 500]);
    world.answer("main", ProbeKind::Liveness, Outcome::Failure);
    world.millis(199);
    assert_eq!(world.container("main").restart_count, 0);
    world.millis(1);
    assert_eq!(world.container("main").restart_count, 1, "killed 200 ms after it went bad");
}

/// PROBE-3: every attempt goes to the container that runs now, by its ID, and its clock starts with that container.
#[test]
fn every_attempt_names_the_container_that_runs_now() {
    let spec = "
  containers:
  - {name: main, image: app, readinessProbe: {exec: {command: [up]}, initialDelaySeconds: 1, periodSeconds: 2}}
";
    let mut world = World::with_spec(spec);
    world.seconds(4);
    let first = world.id("main");
    world.exit("main", 1).seconds(4);
    let second = world.id("main");
    assert_ne!(first, second);
    let asked: Vec<(i64, &str)> = world
        .started
        .iter()
        .filter_map(|(at, operation)| match operation {
            Operation::Probe { id, .. } => Some((at.boot_ms - 1_000_000, id.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [(1_000, first.as_str()), (3_000, &first), (5_000, &second), (7_000, &second)]);
}

/// PROBE-1, PROBE-2, DEF-10: probes are independent of each other: one that hangs holds up no other, of its own
/// container or of another one.
#[test]
fn a_hanging_probe_holds_up_no_other() {
    let spec = "
  containers:
  - name: main
    image: app
    readinessProbe: {exec: {command: [up]}, periodSeconds: 1}
    livenessProbe: {exec: {command: [up]}, periodSeconds: 1}
  - {name: other, image: app, readinessProbe: {exec: {command: [up]}, periodSeconds: 1}}
";
    let mut world = World::with_spec(spec);
    world.hold(|operation| {
        matches!(operation, Operation::Probe { container, probe: ProbeKind::Readiness, .. } if container == "main")
    });
    world.seconds(4);
    assert_eq!(world.probed_at("main", ProbeKind::Readiness), [0], "one at a time");
    assert_eq!(world.probed_at("main", ProbeKind::Liveness), [1_000, 2_000, 3_000, 4_000]);
    assert_eq!(world.probed_at("other", ProbeKind::Readiness), [0, 1_000, 2_000, 3_000, 4_000]);
    world.millis(500).release().seconds(1);
    assert_eq!(world.probed_at("main", ProbeKind::Readiness), [0, 5_000], "back on its grid");
}
