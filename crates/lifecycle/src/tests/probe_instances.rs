//! A probe exists as long as its container, and runs one attempt at a time.

use keelet_pod::ProbeKind;

use super::world::World;
use crate::operation::Operation;

const PROBED: &str = "
  containers:
  - name: main
    image: app
    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}
    livenessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}
";

/// PROBE-7, PROBE-13: the state of a probe is dropped with its container; the next instance starts without it.
#[test]
fn nothing_a_probe_knew_outlives_its_container() {
    let mut world = World::with_spec(PROBED);
    world.seconds(3);
    let first = world.id("main");
    assert_eq!(world.instance("main").readiness.verdict.passed(), Some(true));
    world.hold(|operation| matches!(operation, Operation::Probe { .. }));
    world.exit("main", 1);
    let instance = world.instance("main");
    assert_ne!(instance.id, first);
    assert_eq!(instance.readiness.verdict.passed(), None);
    assert_eq!((instance.readiness.streak, &instance.readiness.last), (None, &None));
    assert!(!world.container("main").ready);
}

/// PROBE-40: an attempt that takes longer than the period is not joined by a second one.
#[test]
fn one_attempt_of_a_probe_is_under_way_at_most() {
    let mut world = World::with_spec(PROBED);
    world.seconds(3);
    world.hold(|operation| matches!(operation, Operation::Probe { .. }));
    let mark = world.mark();
    world.seconds(10);
    assert_eq!(world.probes_since(mark, "main", ProbeKind::Readiness), 1);
    assert_eq!(world.probes_since(mark, "main", ProbeKind::Liveness), 1);
    assert_eq!(world.in_flight().len(), 2);
    // The missed ones are not made up for: the next one is on the old grid, in the future.
    let mark = world.mark();
    world.release();
    assert_eq!(world.probes_since(mark, "main", ProbeKind::Readiness), 0);
    world.seconds(1);
    assert_eq!(world.probes_since(mark, "main", ProbeKind::Readiness), 1);
}

/// PROBE-41, CON-18g: a container without a probe is as if it passed.
#[test]
fn a_container_without_probes_is_started_and_ready_as_soon_as_it_runs() {
    let mut world = World::with_spec("  containers: [{name: main, image: app}]\n");
    world.settle();
    assert_eq!((world.container("main").started, world.container("main").ready), (Some(true), true));
    assert!(world.started.iter().all(|(_, operation)| !matches!(operation, Operation::Probe { .. })));
}

/// START-10: a post-start hook that takes its time does not delay probes, and the container's real start counts.
#[test]
fn probes_do_not_wait_for_the_post_start_hook() {
    let mut world = World::with_spec(
        "
  containers:
  - name: main
    image: app
    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1, initialDelaySeconds: 2}
    lifecycle: {postStart: {exec: {command: [slow]}}}
",
    );
    world.hold(|operation| matches!(operation, Operation::PostStart { .. }));
    world.pass(std::time::Duration::from_millis(1999));
    assert_eq!(world.probes_since(0, "main", ProbeKind::Readiness), 0);
    world.pass(std::time::Duration::from_millis(1));
    assert_eq!(world.probes_since(0, "main", ProbeKind::Readiness), 1);
    assert!(world.container("main").ready);
    assert!(matches!(world.in_flight().as_slice(), [(_, Operation::PostStart { .. })]));
}
