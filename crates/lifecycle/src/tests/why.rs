//! Every part of a status rests on evidence, and on which.

use std::time::Duration;

use keelet_pod::ProbeKind;

use super::{
    restart_all::{FOUR, up},
    world::World,
};
use crate::{
    Because, Moment, Subject,
    evidence::{EndingCause, ExitCause},
    operation::{KillReason, Operation, Outcome},
    probe::Basis,
    status::ConditionType,
};

const PROBED: &str = "
  terminationGracePeriodSeconds: 7
  initContainers: [{name: setup, image: tool}]
  containers:
  - name: main
    image: app
    startupProbe: {exec: {command: [up]}, periodSeconds: 1}
    readinessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 2}
  - {name: plain, image: app}
";

/// A pod that has run for three seconds.
fn probed() -> World {
    let mut world = World::with_spec(PROBED);
    world.settle().exit("setup", 0).seconds(3);
    world
}

fn because(world: &World, subject: Subject) -> Because {
    let why = &world.plan.as_ref().unwrap().why;
    let mut found = why.iter().filter(|why| why.subject == subject);
    let because = found.next().unwrap_or_else(|| panic!("no reason for {subject:?}")).because.clone();
    assert!(found.next().is_none(), "two reasons for {subject:?}");
    because
}

fn condition(world: &World, kind: ConditionType) -> Because {
    because(world, Subject::Condition(kind))
}

fn names(names: &[&str]) -> Because {
    Because::Containers { names: names.iter().map(|name| (*name).to_owned()).collect() }
}

fn ready(world: &World, name: &str) -> Because {
    because(world, Subject::Ready(name.to_owned()))
}

fn started(world: &World, name: &str) -> Because {
    because(world, Subject::Started(name.to_owned()))
}

fn state(world: &World, name: &str) -> Because {
    because(world, Subject::State(name.to_owned()))
}

/// The world's first moment, after a second's worth of milliseconds.
fn at(world: &World, millis: u64) -> Moment {
    let first = world.started[0].0;
    first.plus(Duration::from_millis(millis))
}

/// STAT-13, STAT-24..STAT-28: what a pod that runs rests on.
#[test]
fn a_running_pod_rests_on_starts_exits_and_probes() {
    let world = probed();
    let start = at(&world, 0);
    let running = |name: &str| Because::Running { since: start, id: world.id(name) };
    let passed = |probe, at| Because::Probe { probe, passed: true, at, streak: 1, output: "Success".to_owned() };
    let setup = Because::Exited { id: world.id("setup"), exit_code: 0, at: start, cause: ExitCause::Own, rule: None };
    assert_eq!((state(&world, "main"), state(&world, "plain")), (running("main"), running("plain")));
    assert_eq!((state(&world, "setup"), ready(&world, "setup")), (setup.clone(), setup));
    assert_eq!(started(&world, "main"), passed(ProbeKind::Startup, start));
    assert_eq!(ready(&world, "main"), passed(ProbeKind::Readiness, start));
    assert_eq!((started(&world, "plain"), ready(&world, "plain")), (running("plain"), Because::NoProbe));
    assert_eq!(condition(&world, ConditionType::Initialized), names(&["setup"]));
    assert_eq!(condition(&world, ConditionType::ContainersReady), names(&["main", "plain"]));
    assert_eq!(condition(&world, ConditionType::Ready), names(&["main", "plain"]));
    assert_eq!(condition(&world, ConditionType::PodScheduled), Because::Spec);
    let sandbox = Because::Sandbox { id: Some("sandbox-1".to_owned()), lost: None };
    assert_eq!(condition(&world, ConditionType::PodReadyToStartContainers), sandbox);
    assert_eq!(because(&world, Subject::Phase), names(&["setup", "main", "plain"]));
}

/// PROBE-22, START-6: a value that is not decided yet says how far its probe is.
#[test]
fn what_is_not_decided_yet_says_how_far_it_is() {
    let mut world = World::with_spec(PROBED);
    world.answer("main", ProbeKind::Startup, Outcome::Failure).settle().exit("setup", 0).seconds(1);
    let waiting = Because::NotYetProbed { probe: ProbeKind::Startup, streak: 2, passing: false };
    assert_eq!((started(&world, "main"), ready(&world, "main")), (waiting, Because::NotStarted));
    assert_eq!(condition(&world, ConditionType::Ready), names(&["main"]));
    let mut world = World::with_spec(&PROBED.replace("failureThreshold: 2", "successThreshold: 3"));
    world.settle().exit("setup", 0).seconds(1);
    let waiting = Because::NotYetProbed { probe: ProbeKind::Readiness, streak: 2, passing: true };
    assert_eq!(ready(&world, "main"), waiting);
}

/// KEEP-9, CON-9: what is carried over an agent restart says so, and what it rests on.
#[test]
fn what_is_carried_says_on_what() {
    let mut world = probed();
    let start = at(&world, 0);
    world.hold(|operation| matches!(operation, Operation::Probe { .. })).restart_agent();
    let basis = Basis::Probe { at: start, streak: 1, output: "Success".to_owned() };
    let carried = |probe| Because::Carried { probe, passed: true, basis: basis.clone() };
    assert_eq!(started(&world, "main"), carried(ProbeKind::Startup));
    assert_eq!(ready(&world, "main"), carried(ProbeKind::Readiness));
}

/// STAT-7, BACK-2: exits, counts, backoff and start failures.
#[test]
fn a_crashing_container_rests_on_its_exit_and_its_backoff() {
    let mut world = probed();
    let first = world.id("plain");
    world.exit("plain", 5);
    let exit = Because::Exited { id: first, exit_code: 5, at: world.now, cause: ExitCause::Own, rule: None };
    assert_eq!(because(&world, Subject::RestartCount("plain".to_owned())), exit);
    world.exit("plain", 5);
    let until = world.now.plus(Duration::from_secs(10));
    assert_eq!(state(&world, "plain"), Because::Backoff { until, delay: Duration::from_secs(10) });
    assert_eq!((started(&world, "plain"), ready(&world, "plain")), (Because::NotRunning, Because::NotRunning));
    world.fail("Launch", "RunContainerError").seconds(10);
    let message = "Launch does not work".to_owned();
    let failed = Because::StartFailed { reason: "RunContainerError".to_owned(), message, at: world.now };
    assert_eq!(state(&world, "plain"), failed);
}

/// TERM-1, STAT-22: an ending pod has a reason and a time.
#[test]
fn an_ending_pod_rests_on_what_ended_it() {
    let mut world = probed();
    world.hold(|operation| matches!(operation, Operation::Stop { .. })).delete(30);
    let since = world.now;
    assert_eq!(state(&world, "main"), Because::Stopping { reason: KillReason::PodEnding, since });
    world.release();
    assert_eq!(because(&world, Subject::Phase), Because::Ending { cause: EndingCause::Deleted, since });
    assert_eq!(condition(&world, ConditionType::ContainersReady), names(&["main", "plain"]));
    assert_eq!(condition(&world, ConditionType::PodReadyToStartContainers), Because::Sandbox { id: None, lost: None });
}

/// RALL-14, RALL-20: while all containers restart, phase, condition and waiting containers name the trigger.
#[test]
fn a_restart_of_all_rests_on_its_trigger() {
    let mut world = up(FOUR);
    let (since, source) = (world.now, world.id("source"));
    world.exit("source", 42);
    let trigger = "container source exited with code 42 (restart rule 0)".to_owned();
    let because_of = Because::RestartAll { trigger, since };
    assert_eq!(because(&world, Subject::Phase), because_of);
    assert_eq!(condition(&world, ConditionType::AllContainersRestarting), because_of);
    assert_eq!(state(&world, "source"), because_of);
    assert_eq!(condition(&world, ConditionType::Initialized), Because::Kept);
    let counted = because(&world, Subject::RestartCount("source".to_owned()));
    assert_eq!(counted, Because::Exited { id: source, exit_code: 42, at: since, cause: ExitCause::Own, rule: Some(0) });
}

/// RALL-7, PROBE-28: a restart of all containers overrides a kill in progress, with its grace period and its
/// reason; any other kill keeps its reason.
#[test]
fn a_restart_of_all_overrules_a_kill_under_way() {
    let spec = FOUR.replace(
        "{name: other, image: 'app:1'}",
        "{name: other, image: 'app:1', livenessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 1}}",
    );
    let mut world = up(&spec);
    world.hold(|operation| matches!(operation, Operation::Stop { .. }));
    world.answer("other", ProbeKind::Liveness, Outcome::Failure).seconds(1);
    let kill = world.instance("other").kill.clone().unwrap();
    assert_eq!((kill.reason, kill.grace), (KillReason::Probe(ProbeKind::Liveness), Duration::from_secs(30)));
    let mut deleted = up(&spec);
    deleted.hold(|operation| matches!(operation, Operation::Stop { .. }));
    deleted.answer("other", ProbeKind::Liveness, Outcome::Failure).seconds(1).delete(5);
    let kill = deleted.instance("other").kill.clone().unwrap();
    assert_eq!((kill.reason, kill.grace), (KillReason::Probe(ProbeKind::Liveness), Duration::from_secs(5)));
    world.exit("source", 42).seconds(1);
    let kill = world.instance("other").kill.clone().unwrap();
    assert_eq!((kill.reason, kill.grace), (KillReason::RestartAll, Duration::ZERO));
}

/// STAT-5, RALL-18: a container that vanishes while it is being stopped was removed by a restart of all containers only
/// if that is what stopped it; otherwise its exit status is unknown.
#[test]
fn a_container_that_vanishes_while_being_stopped_is_lost_unless_all_restart() {
    let hold = |world: &mut World| {
        world.hold(|operation| matches!(operation, Operation::Stop { .. } | Operation::Launch { .. }));
    };
    let last_exit = |world: &World| world.evidence.durable.containers["other"].last_exit.clone().unwrap();
    let mut world = up(FOUR);
    hold(&mut world);
    world.exit("source", 42).lose("other").settle();
    let exit = last_exit(&world);
    assert_eq!(
        (exit.reason.as_str(), exit.cause),
        ("RestartingAllContainers", ExitCause::Killed(KillReason::RestartAll))
    );
    let mut world = up(FOUR);
    hold(&mut world);
    world.delete(30).lose("other").settle();
    let exit = last_exit(&world);
    assert_eq!((exit.reason.as_str(), exit.cause), ("ContainerStatusUnknown", ExitCause::Lost));
}

/// STAT-8: a restart count that only log files show has a reason, too.
#[test]
fn a_restart_count_from_log_files_has_a_reason() {
    let mut world = World::with_spec("  containers: [{name: main, image: app}]\n");
    world.observed.log_counts.insert("main".to_owned(), 3);
    world.seconds(5);
    assert_eq!(world.container("main").restart_count, 3);
    assert_eq!(because(&world, Subject::RestartCount("main".to_owned())), Because::Kept);
}
