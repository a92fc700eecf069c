//! Attempts between the scheduled ones, until a probe has passed once (PROBE-51).

use std::time::Duration;

use keelet_pod::ProbeKind::{self, Liveness, Readiness, Startup};

use super::world::{World, manifest};
use crate::{
    evidence::Evidence,
    operation::{Operation, Outcome},
    probe::Eager,
};

fn spec(probes: &str) -> String {
    format!("  containers:\n  - {{name: main, image: app, {probes}}}\n")
}

/// A world in which every probe of `main` fails.
fn failing(probes: &str) -> World {
    let mut world = World::with_spec(&spec(probes));
    for kind in ProbeKind::ALL {
        world.answer("main", kind, Outcome::Failure);
    }
    world
}

fn without(mut world: World) -> World {
    world.rules.eager_probes = false;
    world
}

/// Lets time pass in steps of 100 ms, in which every eager attempt falls due.
fn pass(world: &mut World, millis: u64) {
    for _ in 0..millis / 100 {
        world.millis(100);
    }
}

/// When a probe was tried between its scheduled attempts, in milliseconds since the world began.
fn eager_at(world: &World, kind: ProbeKind) -> Vec<i64> {
    let is_it =
        |operation: &Operation| matches!(operation, Operation::Probe { probe, eager: true, .. } if *probe == kind);
    let tries = world.started.iter().filter(|(_, operation)| is_it(operation));
    tries.map(|(at, _)| at.boot_ms - 1_000_000).collect()
}

/// PROBE-51: 100 ms after the first scheduled attempt, then after twice as long each time, at most a period; startup and readiness only, and
/// not before the initial delay.
#[test]
fn eager_attempts_double_their_distance_up_to_the_period() {
    let rows: [(&str, ProbeKind, &[i64]); 8] = [
        ("readinessProbe: {exec: {command: [up]}}", Readiness, &[100, 300, 700, 1_500, 3_100, 6_300, 12_700, 22_700]),
        ("startupProbe: {exec: {command: [up]}}", Startup, &[100, 300, 700, 1_500, 3_100, 6_300, 12_700]),
        (
            "readinessProbe: {exec: {command: [up]}, initialDelaySeconds: 20}",
            Readiness,
            &[20_100, 20_300, 20_700, 21_500, 23_100],
        ),
        // At the time of a scheduled one there is no eager one: it comes after it.
        (
            "readinessProbe: {exec: {command: [up]}, initialDelaySeconds: 20, periodSeconds: 1}",
            Readiness,
            &[20_100, 20_300, 20_700, 21_500, 22_500, 23_500, 24_500],
        ),
        ("livenessProbe: {exec: {command: [up]}, initialDelaySeconds: 1}", Liveness, &[]),
        // The probes that wait for the startup probe are not tried.
        ("startupProbe: {exec: {command: [up]}}, readinessProbe: {exec: {command: [up]}}", Readiness, &[]),
        ("livenessProbe: {exec: {command: [up]}, initialDelaySeconds: 1}", Readiness, &[]),
        ("startupProbe: {exec: {command: [up]}, failureThreshold: 1}", Startup, &[]),
    ];
    for (probes, kind, expected) in rows {
        let mut world = failing(probes);
        // The third failure of a startup probe ends the instance.
        pass(&mut world, if kind == Startup { 19_900 } else { 25_000 });
        assert_eq!(eager_at(&world, kind), expected, "{kind}: {probes}");
    }
}

/// PROBE-51: nothing but a pass counts. The schedule, what a failure does, the events and the statuses are those of a world without
/// eager attempts.
#[test]
fn an_eager_attempt_that_does_not_pass_counts_for_nothing() {
    let probes = [
        "readinessProbe: {exec: {command: [up]}, failureThreshold: 2}",
        "startupProbe: {exec: {command: [up]}, periodSeconds: 3, failureThreshold: 4}",
        "startupProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 9}, livenessProbe: {exec: {command: [up]}}",
    ];
    for probes in probes {
        for outcome in [Outcome::Failure, Outcome::Error, Outcome::Late, Outcome::Cancelled] {
            let play = |mut world: World| {
                for kind in ProbeKind::ALL {
                    world.answer("main", kind, outcome);
                }
                pass(&mut world, 60_000);
                let scheduled: Vec<_> = ProbeKind::ALL.map(|kind| world.probed_at("main", kind)).into();
                let eager = ProbeKind::ALL.map(|kind| eager_at(&world, kind).len()).iter().sum::<usize>();
                let stops = world.started.iter().filter(|(_, operation)| matches!(operation, Operation::Stop { .. }));
                let stops: Vec<_> = stops.map(|(at, _)| at.boot_ms).collect();
                (eager, (scheduled, stops, world.statuses.clone(), world.events.clone()))
            };
            let (eager, with) = play(failing(probes));
            let (none, without) = play(without(failing(probes)));
            // Where the node itself is late, it does not try more often.
            let is_tried = matches!(outcome, Outcome::Failure | Outcome::Error);
            assert_eq!((eager > 0, none), (is_tried, 0), "{outcome:?} {probes}");
            assert_eq!(with, without, "{outcome:?} {probes}");
        }
    }
}

/// PROBE-51: a pass counts as any other pass, and ends the eager attempts for this instance.
#[test]
fn a_container_is_ready_soon_after_it_could_be() {
    let both = "startupProbe: {exec: {command: [up]}}, readinessProbe: {exec: {command: [up]}}";
    let mut world = failing(both);
    pass(&mut world, 300);
    world.answer("main", Startup, Outcome::Success).answer("main", Readiness, Outcome::Success);
    pass(&mut world, 400);
    assert_eq!(world.bits("main"), (true, true), "started and ready at the eager attempt after 700 ms");
    // It does not pass any more: its schedule decides, as ever.
    world.answer("main", Readiness, Outcome::Failure);
    pass(&mut world, 60_000);
    assert_eq!(world.bits("main"), (true, false));
    assert_eq!((eager_at(&world, Startup), eager_at(&world, Readiness)), (vec![100, 300, 700], vec![]));
    // The next instance has its own.
    let mark = world.mark();
    world.exit("main", 1);
    world.answer("main", Startup, Outcome::Failure);
    pass(&mut world, 20_000);
    let eager = |(_, operation): &&(_, Operation)| matches!(operation, Operation::Probe { eager: true, .. });
    assert!(world.started[mark..].iter().filter(eager).count() > 3, "{:?}", &world.started[mark..]);
}

/// PROBE-51: whenever a container begins to answer, it is ready no later than without eager attempts, and never killed sooner.
#[test]
fn eager_attempts_only_help() {
    for threshold in [1, 3] {
        for period in [1, 3, 10] {
            let probes = format!(
                "startupProbe: {{exec: {{command: [up]}}, periodSeconds: {period}, failureThreshold: 3}}, readinessProbe: {{exec: \
                 {{command: [up]}}, periodSeconds: {period}, successThreshold: {threshold}}}"
            );
            for begins in (0..10).map(|step| step * 4_300) {
                let play = |mut world: World| {
                    let mut ready = None;
                    for now in (0..90_000).step_by(100) {
                        if now == begins {
                            world.answer("main", Startup, Outcome::Success).answer("main", Readiness, Outcome::Success);
                        }
                        world.millis(100);
                        if world.bits("main").1 {
                            ready.get_or_insert(now);
                        }
                    }
                    let stops =
                        world.started.iter().filter(|(_, operation)| matches!(operation, Operation::Stop { .. }));
                    (ready.expect("ready at last"), stops.map(|(at, _)| at.boot_ms).collect::<Vec<_>>())
                };
                let (ready, stops) = play(failing(&probes));
                let (later, more_stops) = play(without(failing(&probes)));
                assert!(ready <= later, "{probes}, answers after {begins} ms: ready after {ready} ms, not {later}");
                assert!(
                    more_stops.starts_with(&stops),
                    "{probes}, {begins} ms: stopped at {stops:?}, not {more_stops:?}"
                );
            }
        }
    }
}

/// PROBE-51: a success threshold is reached by the schedule; the first pass may be an eager one.
#[test]
fn one_eager_pass_does_not_reach_a_threshold_of_two() {
    let mut world = failing("readinessProbe: {exec: {command: [up]}, successThreshold: 2}");
    pass(&mut world, 200);
    world.answer("main", Readiness, Outcome::Success);
    pass(&mut world, 9_700);
    assert_eq!((world.bits("main"), eager_at(&world, Readiness)), ((true, false), vec![100, 300]));
    pass(&mut world, 200);
    assert_eq!((world.bits("main"), world.probed_at("main", Readiness)), ((true, true), vec![0, 10_000]));
}

/// PROBE-51: a scheduled attempt does not wait for an eager one that hangs; that one is cancelled.
#[test]
fn a_scheduled_attempt_does_not_wait_for_an_eager_one() {
    let mut world = failing("readinessProbe: {exec: {command: [up]}, timeoutSeconds: 30}");
    world.hold(|operation| matches!(operation, Operation::Probe { eager: true, .. }));
    pass(&mut world, 10_200);
    assert_eq!(eager_at(&world, Readiness)[0], 100);
    assert!(matches!(world.cancelled.as_slice(), [Operation::Probe { eager: true, .. }]), "{:?}", world.cancelled);
    assert_eq!(world.probed_at("main", Readiness), [0, 10_000]);
}

/// PROBE-51: the annotation of a pod turns them off, and so does the node's configuration.
#[test]
fn eager_attempts_can_be_turned_off() {
    let probes = spec("readinessProbe: {exec: {command: [up]}}");
    for (value, expected) in [("true", true), ("false", false)] {
        let annotated = manifest(&probes)
            .replace("uid: uid-1", &format!("uid: uid-1, annotations: {{keelet.dev/eager-probes: \"{value}\"}}"));
        let mut world = World::new(&annotated);
        world.answer("main", Readiness, Outcome::Failure);
        pass(&mut world, 5_000);
        assert_eq!(!eager_at(&world, Readiness).is_empty(), expected, "{value}");
    }
    let mut world = without(failing("readinessProbe: {exec: {command: [up]}}"));
    pass(&mut world, 5_000);
    assert_eq!(eager_at(&world, Readiness), [0_i64; 0]);
}

/// PROBE-51, KEEP-22: the next agent has the probe's first attempt at once, and eager ones after it; not if it passed before.
#[test]
fn an_agent_restart_begins_the_eager_attempts_anew() {
    let mut world = failing("readinessProbe: {exec: {command: [up]}, periodSeconds: 60}");
    pass(&mut world, 30_000);
    assert_eq!(eager_at(&world, Readiness).last(), Some(&25_500));
    world.restart_alone(Duration::from_secs(1));
    pass(&mut world, 1_500);
    assert_eq!(eager_at(&world, Readiness)[8..], [30_100, 30_300, 30_700, 31_500]);
    world.answer("main", Readiness, Outcome::Success);
    pass(&mut world, 5_000);
    let tried = eager_at(&world, Readiness).len();
    world.answer("main", Readiness, Outcome::Failure).restart_alone(Duration::from_secs(1));
    pass(&mut world, 200_000);
    assert_eq!((world.bits("main"), eager_at(&world, Readiness).len()), ((true, false), tried));
}

/// A ledger without the field is one whose probes have made no eager attempt, and the field is not written before there is one.
#[test]
fn a_ledger_from_before_eager_attempts_reads_as_without_them() {
    let mut world = failing("readinessProbe: {exec: {command: [up]}}");
    world.rules.eager_probes = false;
    pass(&mut world, 100);
    let mut without = world.evidence.clone();
    for instance in without.volatile.instances.values_mut() {
        instance.readiness.eager = Eager::NotYet;
    }
    let json = serde_json::to_string(&without.volatile).expect("JSON");
    assert!(!json.contains("eager"), "{json}");
    let read = serde_json::from_str(&json).expect("the same");
    assert_eq!(Evidence { volatile: read, ..without.clone() }, without);
}
