//! What a long absence of the agent means: old streaks are worth nothing, and on a node of its own readiness has to be
//! shown again.

use std::time::Duration;

use keelet_pod::ProbeKind;

use super::{
    agent_restart::{BOTH, NONE, READINESS, SLOW, STARTUP, one, several},
    world::World,
};
use crate::{
    Because, Subject,
    observed::Absence,
    operation::{Operation, Outcome},
    probe::Basis,
    status::ConditionType,
};

/// CON-8, CON-10: three failures of six before the restart and three after kill; the one right after the start counts
/// if it is a period away from the last. After a long absence it takes six.
#[test]
fn startup_failures_add_up_over_a_short_absence_only() {
    for (away, more) in [(1_000, 4), (15_999, 3), (16_000, 6), (120_000, 6)] {
        let mut world = World::with_spec(SLOW);
        world.answer("main", ProbeKind::Startup, Outcome::Failure);
        world.hold(|operation| matches!(operation, Operation::Stop { .. }));
        // The third failure is 5 s old; 2 x 10 s + 1 s is the limit.
        world.seconds(25).away(away);
        let before = world.mark();
        world.restart_agent().seconds(100);
        assert_eq!(world.probes_since(before, "main", ProbeKind::Startup), more, "away for {away} ms");
        assert!(world.instance("main").kill.is_some());
    }
}

/// KEEP-21, CON-8: a restart kills nothing by itself. Liveness failures from before a long absence do not count, fresh
/// ones do.
#[test]
fn nothing_is_killed_on_evidence_from_before_a_long_absence() {
    let spec = "
  containers:
  - {name: main, image: app, livenessProbe: {exec: {command: [up]}, periodSeconds: 10}}
";
    for (away, killed) in [(1_000, 36_000), (15_999, 41_000), (16_000, 61_000), (600_000, 645_000)] {
        let mut world = World::with_spec(spec);
        world.answer("main", ProbeKind::Liveness, Outcome::Failure).seconds(25);
        // The second failure is 5 s old; 2 x 10 s + 1 s is the limit.
        assert_eq!(world.instance("main").liveness.streak.unwrap().length, 2);
        world.away(away).restart_agent().seconds(25);
        let is_stop = |operation: &Operation| matches!(operation, Operation::Stop { .. });
        let stops = world.started.iter().filter(|(_, operation)| is_stop(operation));
        let times: Vec<i64> = stops.map(|(at, _)| at.boot_ms - 1_000_000).collect();
        assert_eq!(times, [killed], "away for {away} ms");
    }
}

/// KEEP-20, CON-7: on its own the agent keeps the status from its ledger, up to the node monitor grace period. After
/// a longer absence what has a readiness probe is unready until asked, with the absence named; started stays.
#[test]
fn a_long_absence_without_a_control_plane_makes_readiness_doubtful() {
    for (away, kept) in [(49_999, true), (50_000, true), (50_001, false), (3_600_000, false)] {
        let mut world = several(BOTH);
        world.seconds(20).away(away);
        world.hold(|operation| matches!(operation, Operation::Probe { .. }));
        world.restart_alone(Duration::from_millis(away)).seconds(5);
        for name in ["main", "more"] {
            assert_eq!(world.bits(name), (true, kept), "{name} after {away} ms");
        }
        assert_eq!(world.holds(ConditionType::Ready), kept);
        if !kept {
            let basis = Basis::Absence { away: Duration::from_millis(away) };
            assert_eq!(
                *world.why_ready("main"),
                Because::Carried { probe: ProbeKind::Readiness, passed: false, basis }
            );
        }
        let started = world.why(&Subject::Started("main".to_owned()));
        assert!(matches!(started, Because::Carried { passed: true, basis: Basis::Probe { .. }, .. }), "{started:?}");
        world.release();
        assert_eq!(world.bits("main"), (true, true), "one success is enough");
    }
    let mut world = one(READINESS);
    world.rules.node_monitor_grace = Duration::from_secs(10);
    world.seconds(20).away(10_001).hold(|operation| matches!(operation, Operation::Probe { .. }));
    world.restart_alone(Duration::from_millis(10_001));
    assert_eq!(world.bits("main"), (true, false), "the period is a setting");
}

/// KEEP-20, CON-7: a run of the agent may die before it has planned a pod. The run after it was not away for long, and applies the absence
/// before that run to the pods that have not absorbed it, and to no others.
#[test]
fn an_absence_that_no_run_has_absorbed_counts_later() {
    for (absorbed, kept) in [(false, false), (true, true)] {
        let mut world = one(BOTH);
        world.seconds(20).away(60_000);
        world.hold(|operation| matches!(operation, Operation::Probe { .. }));
        let missed = Absence { until: world.now, away: Duration::from_secs(60) };
        if absorbed {
            world.restart_alone(Duration::from_secs(1));
        }
        world.away(2_000);
        world.observed.agent.missed = Some(missed);
        world.restart_alone(Duration::from_secs(2)).seconds(5);
        assert_eq!(world.bits("main"), (true, kept), "absorbed before: {absorbed}");
    }
}

/// KEEP-20, CON-6: what has no readiness probe cannot show it again, so it stays ready, however long the absence.
#[test]
fn a_long_absence_does_not_touch_containers_without_a_readiness_probe() {
    for probes in [NONE, STARTUP] {
        let mut world = one(probes);
        world.seconds(20).away(3_600_000).hold(|operation| matches!(operation, Operation::Probe { .. }));
        let seen = world.statuses.len();
        world.restart_alone(Duration::from_secs(3_600)).seconds(5);
        assert_eq!(world.statuses.len(), seen, "{probes}");
        assert_eq!(world.bits("main"), (true, true), "{probes}");
    }
}

/// KEEP-15, CON-5: in a cluster the agent does not time its absence: the API server's Ready condition decides.
#[test]
fn in_a_cluster_the_length_of_the_absence_does_not_matter() {
    let mut world = one(BOTH);
    world.seconds(20).away(86_400_000).hold(|operation| matches!(operation, Operation::Probe { .. }));
    let (copy, seen) = (world.status().clone(), world.statuses.len());
    world.restart_in_cluster(Some(copy)).seconds(5);
    assert_eq!(world.statuses.len(), seen);
    assert_eq!(world.bits("main"), (true, true));
}
