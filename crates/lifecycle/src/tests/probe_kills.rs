//! Kills by probes, and probes of what is being killed.

use std::time::Duration;

use keelet_pod::ProbeKind;

use super::world::World;
use crate::{
    Stage,
    operation::{KillReason, Operation, Outcome},
    status::{ConditionType, Phase},
};

fn is_stop(operation: &Operation) -> bool {
    matches!(operation, Operation::Stop { .. })
}

fn stops(world: &World) -> Vec<(String, u64, KillReason)> {
    let seconds = |timeout: &Duration| timeout.as_secs();
    world
        .started
        .iter()
        .filter_map(|(_, operation)| match operation {
            Operation::Stop { container, timeout, reason, .. } => Some((container.clone(), seconds(timeout), *reason)),
            _ => None,
        })
        .collect()
}

/// PROBE-28, SCN-P3, SCN-P5: a liveness failure kills; the container is restarted unless its policy, or the pod's where
/// it has none, is Never. The exit code decides only there, by the rules.
#[test]
fn a_liveness_failure_kills_and_the_policy_restarts() {
    let rule = "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [143]}}]";
    let rows = [
        ("Always", "", true),
        ("OnFailure", "", true),
        ("Never", "", false),
        ("Never", "restartPolicy: Always,", true),
        ("Never", "restartPolicy: OnFailure,", true),
        ("Always", "restartPolicy: Never,", false),
        ("Always", &format!("restartPolicy: Never, {rule},"), true),
    ];
    for (pod, container, restarts) in rows {
        let spec = format!(
            "
  restartPolicy: {pod}
  containers:
  - {{name: main, image: app, {container} livenessProbe: {{exec: {{command: [up]}}, periodSeconds: 10}}}}
  - {{name: other, image: app}}
"
        );
        let mut world = World::with_spec(&spec);
        world.answer("main", ProbeKind::Liveness, Outcome::Failure);
        world.millis(29_999);
        assert!(stops(&world).is_empty(), "two failures are not three");
        world.millis(1);
        let liveness = KillReason::Probe(ProbeKind::Liveness);
        assert_eq!(stops(&world), [("main".to_owned(), 30, liveness)], "{pod} {container}");
        assert_eq!(world.running().contains("main"), restarts, "{pod} {container}");
        assert_eq!(world.container("main").restart_count, u32::from(restarts));
        // The policy alone is announced, because no exit code is known before the exit.
        let announced = restarts && !container.contains("Rules");
        let suffix = if announced { ", will be restarted" } else { "" };
        let message = format!("Container main failed liveness probe{suffix}");
        assert!(world.events.contains(&("Killing".to_owned(), message)), "{pod} {container}: {:?}", world.events);
    }
}

/// PROBE-28: exit 0 after a probe kill restarts under OnFailure: it was the agent that ended it.
#[test]
fn a_clean_exit_after_a_probe_kill_still_restarts() {
    let spec = "
  restartPolicy: OnFailure
  containers:
  - {name: main, image: app, livenessProbe: {exec: {command: [up]}, periodSeconds: 1}}
";
    let mut world = World::with_spec(spec);
    world.answer("main", ProbeKind::Liveness, Outcome::Failure).hold(is_stop).seconds(3);
    world.exit("main", 0);
    assert_eq!(world.running(), ["main"].into());
    assert_eq!(world.container("main").restart_count, 1);
}

/// PROBE-29: the event names the kind of container and the probe.
#[test]
fn a_kill_by_a_probe_is_announced() {
    let spec = "
  initContainers:
  - {name: proxy, image: proxy, restartPolicy: Always, livenessProbe: {exec: {command: [up]}, periodSeconds: 1}}
  containers:
  - {name: main, image: app, startupProbe: {exec: {command: [up]}, periodSeconds: 1}}
";
    let mut world = World::with_spec(spec);
    world.answer("proxy", ProbeKind::Liveness, Outcome::Failure);
    world.answer("main", ProbeKind::Startup, Outcome::Failure);
    world.seconds(3);
    assert!(world.saw_event("Killing", "Init container proxy failed liveness probe"), "{:?}", world.events);
    assert!(world.saw_event("Killing", "Container main failed startup probe, will be restarted"));
}

/// PROBE-30, SCN-P18, SCN-P19: the probe's own grace period, smaller or larger than the pod's, and the pod's where it
/// has none; a deletion meanwhile can only shorten it.
#[test]
fn the_grace_period_of_a_probe_kill() {
    let rows = [
        (ProbeKind::Liveness, "terminationGracePeriodSeconds: 5,", 5),
        (ProbeKind::Liveness, "terminationGracePeriodSeconds: 90,", 90),
        (ProbeKind::Liveness, "", 60),
        (ProbeKind::Startup, "terminationGracePeriodSeconds: 5,", 5),
        (ProbeKind::Startup, "", 60),
    ];
    for (kind, own, grace) in rows {
        let spec = format!(
            "
  terminationGracePeriodSeconds: 60
  containers:
  - {{name: main, image: app, {kind}Probe: {{exec: {{command: [up]}}, {own} periodSeconds: 1}}}}
"
        );
        let mut world = World::with_spec(&spec);
        world.answer("main", kind, Outcome::Failure).hold(is_stop).seconds(3);
        assert_eq!(stops(&world), [("main".to_owned(), grace, KillReason::Probe(kind))], "{kind} {own}");
        world.delete(2);
        let last = stops(&world).pop().unwrap();
        assert_eq!(last.1, 2, "{kind} {own}: deleted with 2 s");
    }
}

const SIDECAR_AND_MAIN: &str = "
  terminationGracePeriodSeconds: 30
  initContainers:
  - name: proxy
    image: proxy
    restartPolicy: Always
    readinessProbe: {exec: {command: [up]}, periodSeconds: 1}
    livenessProbe: {exec: {command: [up]}, periodSeconds: 1}
  containers:
  - name: main
    image: app
    readinessProbe: {exec: {command: [up]}, periodSeconds: 1}
    livenessProbe: {exec: {command: [up]}, periodSeconds: 1}
  - {name: slow, image: app, startupProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 99}}
";

/// PROBE-16, PROBE-42, PROBE-43, DEF-11, SCN-U3, SCN-P24, SCN-P25: while a pod is being deleted its containers, the
/// sidecars too, are asked about readiness only. Nothing makes them unready but that, and no liveness failure is
/// reported.
#[test]
fn a_terminating_pod_is_asked_about_readiness_only() {
    let mut world = World::with_spec(SIDECAR_AND_MAIN);
    world.answer("slow", ProbeKind::Startup, Outcome::Failure).seconds(3);
    world.hold(is_stop).delete(30);
    for name in ["main", "proxy"] {
        assert_eq!(world.bits(name), (true, true), "{name}: deletion alone does not make it unready");
    }
    let mark = world.mark();
    for name in ["main", "proxy"] {
        world.answer(name, ProbeKind::Liveness, Outcome::Failure);
    }
    world.seconds(10);
    assert_eq!(world.stage(), Stage::Ending);
    for name in ["main", "proxy"] {
        assert_eq!(world.probes_since(mark, name, ProbeKind::Liveness), 0, "{name}");
        assert_eq!(world.probes_since(mark, name, ProbeKind::Readiness), 10, "{name}");
        assert_eq!(world.bits(name), (true, true), "{name}");
    }
    assert_eq!(world.probes_since(mark, "slow", ProbeKind::Startup), 0);
    world.answer("main", ProbeKind::Readiness, Outcome::Failure).seconds(3);
    assert_eq!(world.bits("main"), (true, false));
    assert!(!world.holds(ConditionType::Ready));
    assert!(!world.saw_event("Unhealthy", "Liveness"));
    assert!(!world.saw_event("Killing", "probe"));
    world.release();
    assert_eq!(world.stage(), Stage::Gone);
    assert_eq!(world.bits("main"), (false, false));
}

/// DEF-9, SCN-U28, PROBE-42: a deletion cancels the running liveness and startup attempts; readiness attempts are
/// left alone, and each is cancelled the moment its container is gone.
#[test]
fn attempts_under_way_are_cancelled_with_what_they_ask() {
    let mut world = World::with_spec(SIDECAR_AND_MAIN);
    world.hold(|operation| is_stop(operation) || matches!(operation, Operation::Probe { .. }));
    world.seconds(2);
    assert_eq!(world.in_flight().len(), 5);
    world.delete(30);
    let cancelled = |world: &World| -> Vec<(String, ProbeKind)> {
        let probe = |operation: &Operation| match operation {
            Operation::Probe { container, probe, .. } => Some((container.clone(), *probe)),
            _ => None,
        };
        world.cancelled.iter().filter_map(probe).collect()
    };
    let mut seen = cancelled(&world);
    seen.sort();
    let of = |name: &str, kind| (name.to_owned(), kind);
    assert_eq!(
        seen,
        [of("main", ProbeKind::Liveness), of("proxy", ProbeKind::Liveness), of("slow", ProbeKind::Startup)]
    );
    world.exit("main", 0);
    assert_eq!(cancelled(&world).last(), Some(&of("main", ProbeKind::Readiness)));
    assert_eq!(cancelled(&world).len(), 4);
    world.exit("slow", 0).exit("proxy", 0);
    assert_eq!(cancelled(&world).last(), Some(&of("proxy", ProbeKind::Readiness)));
    assert_eq!(world.stage(), Stage::Gone);
}

/// PROBE-6, DEF-9: the attempts of a container that exits, vanishes, or is replaced are cancelled at once, and a cancelled
/// attempt never counts.
#[test]
fn no_attempt_outlives_its_container() {
    let spec = "
  containers:
  - name: main
    image: app
    readinessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 1}
    livenessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 1}
";
    for way in ["exits", "vanishes", "is replaced"] {
        let mut world = World::with_spec(spec);
        world.seconds(1);
        world.hold(|operation| is_stop(operation) || matches!(operation, Operation::Probe { .. }));
        world.seconds(1);
        assert_eq!(world.in_flight().len(), 2, "{way}");
        match way {
            "exits" => world.exit("main", 1),
            "vanishes" => world.lose("main").settle(),
            _ => {
                world.running_instance("main").hash = Some(1);
                world.settle()
            }
        };
        let expected = if way == "is replaced" {
            vec![ProbeKind::Liveness]
        } else {
            vec![ProbeKind::Readiness, ProbeKind::Liveness]
        };
        let cancelled: Vec<ProbeKind> = world
            .cancelled
            .iter()
            .filter_map(|operation| match operation {
                Operation::Probe { probe, .. } => Some(*probe),
                _ => None,
            })
            .collect();
        assert_eq!(cancelled, expected, "{way}");
        assert!(!world.saw_event("Unhealthy", ""), "{way}");
        world.release().seconds(2);
        assert_eq!(world.bits("main"), (true, true), "{way}");
        assert_eq!(world.container("main").restart_count, 1, "{way}");
    }
}

/// PROBE-45, SCN-U24: once a pod is gone nothing is asked, however often it is planned.
#[test]
fn a_pod_that_is_gone_is_not_asked() {
    let mut world = World::with_spec(SIDECAR_AND_MAIN);
    world.seconds(3).delete(30);
    assert_eq!(world.stage(), Stage::Gone);
    let mark = world.mark();
    for _ in 0..100 {
        world.seconds(1);
    }
    assert_eq!(world.started.len(), mark);
    assert!(world.evidence.volatile.instances.is_empty());
    assert!(world.in_flight().is_empty());
}

/// PROBE-30, SCN-P2: a failing readiness probe never kills and never restarts.
#[test]
fn readiness_kills_nothing() {
    let spec = "
  containers:
  - {name: main, image: app, readinessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 1}}
";
    let mut world = World::with_spec(spec);
    world.answer("main", ProbeKind::Readiness, Outcome::Failure).seconds(300);
    assert!(stops(&world).is_empty());
    assert_eq!(world.bits("main"), (true, false));
    assert_eq!(world.status().phase, Phase::Running);
}

/// PROBE-19: a startup probe that cannot be made kills after failureThreshold rounds; a liveness probe that cannot be
/// made never does, and neither does one that our own queue holds up.
#[test]
fn what_cannot_be_asked_kills_by_startup_only() {
    let rows = [
        (ProbeKind::Startup, Outcome::Error, 1),
        (ProbeKind::Startup, Outcome::Late, 0),
        (ProbeKind::Liveness, Outcome::Error, 0),
        (ProbeKind::Liveness, Outcome::Late, 0),
    ];
    for (kind, outcome, kills) in rows {
        let spec = format!(
            "
  containers:
  - {{name: main, image: app, restartPolicy: Never, {kind}Probe: {{exec: {{command: [up]}}, periodSeconds: 1}}}}
  - {{name: other, image: app}}
"
        );
        let mut world = World::with_spec(&spec);
        world.answer("main", kind, outcome).millis(1_999);
        assert!(stops(&world).is_empty(), "{kind} {outcome:?}");
        world.seconds(60);
        assert_eq!(stops(&world).len(), kills, "{kind} {outcome:?}");
    }
}
