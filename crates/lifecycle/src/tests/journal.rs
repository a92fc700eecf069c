//! The journal: what changed, in which order, and because of what.

use std::{cell::RefCell, rc::Rc, time::Duration};

use keelet_pod::{AgentRestart, ProbeKind};

use super::{
    restart_all::{FOUR, up},
    world::World,
};
use crate::{
    Because, Moment, Subject,
    evidence::{EndingCause, ExitCause},
    journal::{Note, What, between},
    observed::Before,
    operation::{KillReason, Operation, Outcome},
    probe::Basis,
    restart::Trigger,
    status::{ConditionType, ContainerState, Phase, PodStatus, Truth},
};

const PROBED: &str = "
  containers:
  - name: main
    image: app
    startupProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 9}
    readinessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 2}
    livenessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 3}
";

type Journal = Rc<RefCell<Vec<Note>>>;

/// Keeps the journal of a world from now on, as a ledger would: one step for each plan.
fn watch(world: &mut World) -> Journal {
    let journal = Journal::default();
    let notes = Rc::clone(&journal);
    world.inspector = Some(Box::new(move |world, plan| {
        notes.borrow_mut().extend(between(&world.evidence, &plan.evidence, &plan.why, None, world.now));
    }));
    journal
}

fn watched(spec: &str) -> (World, Journal) {
    let mut world = World::with_spec(spec);
    let journal = watch(&mut world);
    (world, journal)
}

/// The notes as short words, without the moments; those since the last call.
fn take(journal: &Journal) -> Vec<String> {
    journal.take().iter().map(|note| brief(&note.what)).collect()
}

fn brief(what: &What) -> String {
    match what {
        What::Seen => "seen".to_owned(),
        What::AgentStarted { rebooted, .. } => {
            format!("agent started{}", if *rebooted { " after a reboot" } else { "" })
        }
        What::Rejected { reason, .. } => format!("rejected {reason}"),
        What::RequestTaken { id, by } => format!("request {id} by {}", by.as_deref().unwrap_or("?")),
        What::LegacyReset { done } => format!("legacy reset {}", if *done { "done" } else { "due" }),
        What::Exited { container, exit, rule } => format!("{container} exited {} rule {rule:?}", exit.exit_code),
        What::Ending { cause, grace, .. } => format!("ending {cause:?} in {grace:?}"),
        What::RestartAll { step, .. } => format!("restart all {step:?}"),
        What::Killing { container, reason, grace, .. } => format!("kill {container} {reason:?} in {grace:?}"),
        What::SandboxRequested { attempt } => format!("sandbox requested {attempt}"),
        What::Sandbox { id, .. } => format!("sandbox {}", id.as_deref().unwrap_or("gone")),
        What::Launching { container, attempt } => format!("launch {container} {attempt}"),
        What::Running { container, attempt, .. } => format!("{container} runs {attempt}"),
        What::RestartCount { container, count } => format!("{container} restarts {count}"),
        What::Waiting { container, reason, .. } => format!("{container} waits {reason}"),
        What::ShownEnded { container, exit_code, .. } => format!("{container} shown ended {exit_code}"),
        What::Started { container, value } => format!("{container} started {value}"),
        What::Ready { container, value } => format!("{container} ready {value}"),
        What::Phase { phase } => format!("phase {phase:?}"),
        What::Condition { kind, status, .. } => format!("{kind:?} {status:?}"),
    }
}

fn find(journal: &Journal, wanted: &str) -> Note {
    let journal = journal.borrow();
    let found = journal.iter().find(|note| brief(&note.what) == wanted);
    found
        .unwrap_or_else(|| panic!("no {wanted:?} in {:#?}", journal.iter().map(|n| brief(&n.what)).collect::<Vec<_>>()))
        .clone()
}

/// STAT-13, STAT-24..STAT-28: from nothing to ready, every step once.
#[test]
fn a_pod_that_becomes_ready_is_noted_step_by_step() {
    let (mut world, journal) = watched(PROBED);
    world.answer("main", ProbeKind::Startup, Outcome::Failure).settle();
    assert_eq!(
        take(&journal),
        [
            "seen",
            "main waits ContainerCreating",
            "phase Pending",
            "PodReadyToStartContainers False",
            "Initialized True",
            "Ready False",
            "ContainersReady False",
            "PodScheduled True",
            "sandbox requested 0",
            "sandbox sandbox-1",
            "PodReadyToStartContainers True",
            "launch main 0",
            "main runs 0",
            "phase Running",
        ]
    );
    world.seconds(1).answer("main", ProbeKind::Startup, Outcome::Success).seconds(2);
    let decided = find(&journal, "main ready true");
    assert!(
        matches!(&decided.because, Some(Because::Probe { probe: ProbeKind::Readiness, passed: true, streak: 1, at, .. }) if *at == decided.at)
    );
    assert_eq!(take(&journal), ["main started true", "main ready true", "Ready True", "ContainersReady True"]);
    world.seconds(60);
    assert_eq!(take(&journal), Vec::<String>::new(), "probes that pass are not news");
}

/// PROBE-28, BACK-2: a kill keeps the probe's output after its instance has exited; each backoff is recorded.
#[test]
fn a_crash_loop_is_noted_from_the_probe_to_the_backoff() {
    let (mut world, journal) = watched(PROBED);
    world.seconds(5);
    take(&journal);
    world.answer("main", ProbeKind::Liveness, Outcome::Failure).seconds(3);
    let killed = find(&journal, "kill main Probe(Liveness) in 30s");
    assert!(
        matches!(&killed.because, Some(Because::Probe { probe: ProbeKind::Liveness, passed: false, streak: 3, output, .. }) if output == "Failure")
    );
    let What::Killing { id, .. } = &killed.what else { unreachable!() };
    let exit = find(&journal, "main exited 143 rule None");
    assert!(
        matches!(&exit.what, What::Exited { exit, .. } if exit.id == *id && exit.cause == ExitCause::Killed(KillReason::Probe(ProbeKind::Liveness)))
    );
    assert_eq!(
        take(&journal),
        [
            "kill main Probe(Liveness) in 30s",
            "main exited 143 rule None",
            "main started false",
            "main ready false",
            "Ready False",
            "ContainersReady False",
            "launch main 1",
            "main runs 1",
            "main restarts 1",
            "main started true",
            "main ready true",
            "Ready True",
            "ContainersReady True",
        ]
    );
    world.answer("main", ProbeKind::Liveness, Outcome::Success).exit("main", 5);
    let waits = find(&journal, "main waits CrashLoopBackOff");
    assert_eq!(
        waits.because,
        Some(Because::Backoff { until: world.now.plus(Duration::from_secs(10)), delay: Duration::from_secs(10) })
    );
    world.seconds(10).exit("main", 5).seconds(20);
    let waits = take(&journal).into_iter().filter(|note| note == "main waits CrashLoopBackOff").count();
    assert_eq!(waits, 2);
    // Two backoffs in a row, without an instance observed between them, are recorded as two.
    world.exits_at_once.insert("main".to_owned(), 3);
    world.exit("main", 5).seconds(300);
    let notes = take(&journal);
    let count = |wanted: &str| notes.iter().filter(|note| *note == wanted).count();
    assert_eq!((count("main exited 3 rule None"), count("main waits CrashLoopBackOff")), (3, 4), "{notes:#?}");
}

/// RALL-14, RALL-20: trigger, kills, removal, second phase and end.
#[test]
fn a_restart_of_all_is_noted_with_its_trigger() {
    let mut world = up(FOUR);
    world.seconds(20);
    let journal = watch(&mut world);
    world.exit("source", 42).exit("setup", 0);
    let begun = find(&journal, "restart all Begun");
    assert!(matches!(&begun.what, What::RestartAll { triggers, .. }
        if matches!(&triggers[..], [Trigger::Exit { container, exit_code: 42, rule: 0, .. }] if container == "source")));
    let pod_wide = take(&journal);
    let order: Vec<&str> = pod_wide
        .iter()
        .map(String::as_str)
        .filter(|note| note.starts_with("restart all") || note.contains("exited") || note.starts_with("kill"))
        .collect();
    assert_eq!(
        order,
        [
            "source exited 42 rule Some(0)",
            "restart all Begun",
            "kill other RestartAll in 0ns",
            "kill side RestartAll in 0ns",
            "other exited 137 rule None",
            "side exited 137 rule None",
            "restart all Removed",
            "setup exited 0 rule None",
            "restart all Finished",
        ]
    );
    for name in ["setup", "side", "source", "other"] {
        assert!(pod_wide.contains(&format!("{name} restarts 1")), "{name}: {pod_wide:#?}");
    }
    assert!(pod_wide.contains(&"AllContainersRestarting True".to_owned()));
}

/// RALL-31, BACK-3: a request is recorded with its requester; a second trigger joins; a backoff that ends is recorded.
#[test]
fn requests_joined_triggers_and_backoffs_of_all_are_noted() {
    let mut world = up(FOUR);
    world.seconds(20);
    let journal = watch(&mut world);
    world.hold(|operation| matches!(operation, Operation::Stop { .. }));
    world.exit("source", 42).request_restart("r1");
    let notes = take(&journal);
    assert!(notes.contains(&"request r1 by tester".to_owned()), "{notes:#?}");
    assert!(notes.contains(&"restart all Joined".to_owned()), "{notes:#?}");
    world.release().exit("setup", 0);
    take(&journal);
    world.exit("source", 42).seconds(20);
    let notes = take(&journal);
    assert!(notes.contains(&"source waits CrashLoopBackOff".to_owned()), "{notes:#?}");
    assert!(notes.contains(&"restart all Released".to_owned()), "{notes:#?}");
    world.delete(30);
    assert!(take(&journal).contains(&"restart all Abandoned".to_owned()));
}

/// KEEP-9: an agent restart changes nothing but itself.
#[test]
fn an_agent_restart_is_one_note() {
    let (mut world, journal) = watched(PROBED);
    world.seconds(5);
    take(&journal);
    world.away(3000).restart_agent().seconds(5);
    assert_eq!(take(&journal), ["agent started"]);
    world.reboot().settle();
    assert!(take(&journal).contains(&"agent started after a reboot".to_owned()));
}

/// KEEP-19: a long absence is noted with its length, and so is what it makes doubtful.
#[test]
fn a_long_absence_is_noted_with_its_length() {
    let (mut world, journal) = watched(PROBED);
    world.seconds(5);
    let left = world.now;
    journal.take();
    world.away(120_000);
    world.observed.agent.before = Before::Standalone(Some(Duration::from_secs(120)));
    world.hold(|operation| matches!(operation, Operation::Probe { .. })).restart_agent();
    let agent = find(&journal, "agent started");
    assert_eq!(agent.what, What::AgentStarted { last_seen: Some(left), rebooted: false });
    let doubted = find(&journal, "main ready false");
    let basis = Basis::Absence { away: Duration::from_secs(120) };
    assert_eq!(doubted.because, Some(Because::Carried { probe: ProbeKind::Readiness, passed: false, basis }));
}

/// A ledger that has a heartbeat knows about short absences and reboots too.
#[test]
fn the_journal_says_when_the_agent_was_last_seen() {
    let (mut world, _) = watched(PROBED);
    world.seconds(5);
    let (before, seen) = (world.evidence.clone(), world.now);
    world.away(2000).restart_agent_only();
    let plan = world.plan_once();
    let notes = between(&before, &plan.evidence, &plan.why, Some(seen), world.now);
    assert_eq!(
        notes[0],
        Note { at: world.now, what: What::AgentStarted { last_seen: Some(seen), rebooted: false }, because: None }
    );
    // After a reboot nothing volatile is left but the heartbeat.
    let mut forgotten = before;
    forgotten.volatile = Default::default();
    let other = Moment { boot_id: crate::BootId::from_u128(99), ..seen };
    let notes = between(&forgotten, &plan.evidence, &plan.why, Some(other), world.now);
    assert_eq!(notes[0].what, What::AgentStarted { last_seen: Some(other), rebooted: true });
}

/// KEEP-24: both halves of the legacy reset.
#[test]
fn the_legacy_reset_is_noted_in_both_halves() {
    let (mut world, journal) = watched(PROBED);
    world.rules.agent_restart = AgentRestart::ResetStatus;
    world.seconds(5);
    take(&journal);
    world.hold(|operation| matches!(operation, Operation::Probe { .. })).restart_agent();
    assert_eq!(
        take(&journal),
        [
            "agent started",
            "legacy reset due",
            "legacy reset done",
            "main started false",
            "main ready false",
            "Ready False",
            "ContainersReady False"
        ]
    );
}

/// TERM-1, STAT-22, STAT-23: an ending pod, a grace period that shrinks, and exits with unknown status.
#[test]
fn the_way_out_is_noted() {
    let (mut world, journal) = watched(PROBED);
    world.seconds(5);
    take(&journal);
    world.hold(|operation| matches!(operation, Operation::Stop { .. })).delete(30).delete(10);
    assert_eq!(take(&journal), ["ending Deleted in 30s", "kill main PodEnding in 30s", "ending Deleted in 10s"]);
    world.lose("main").release();
    let notes = take(&journal);
    assert!(notes.contains(&"main exited 137 rule None".to_owned()), "{notes:#?}");
    assert!(notes.contains(&"main shown ended 137".to_owned()), "{notes:#?}");
    assert!(notes.contains(&"phase Failed".to_owned()), "{notes:#?}");
    assert!(notes.contains(&"sandbox gone".to_owned()), "{notes:#?}");
}

/// RALL-29: a pod that may not run here.
#[test]
fn a_rejection_is_noted() {
    let (mut world, journal) = watched(FOUR);
    world.rules.restart_all = crate::restart::RestartAllRule::Ignored;
    world.settle();
    let notes = take(&journal);
    assert_eq!(notes[..3], ["seen", "rejected PodFeatureUnsupported", "ending Rejected in 30s"]);
    assert!(matches!(find_ending(&world), EndingCause::Rejected));
}

fn find_ending(world: &World) -> &EndingCause {
    &world.evidence.durable.ending.as_ref().unwrap().cause
}

/// A start that fails again and again is one launch and one name of the trouble.
#[test]
fn second_tries_are_not_news() {
    let (mut world, journal) = watched(PROBED);
    world.fail("Launch", "RunContainerError").seconds(60);
    let notes = take(&journal);
    let count = |wanted: &str| notes.iter().filter(|note| *note == wanted).count();
    assert_eq!((count("launch main 0"), count("main waits RunContainerError")), (1, 1), "{notes:#?}");
}

/// A container that another one replaces, or that the runtime lost track of, is stopped without its own evidence.
#[test]
fn a_stop_of_an_instance_without_evidence_is_recorded() {
    let (mut world, journal) = watched(PROBED);
    world.seconds(5);
    take(&journal);
    world.running_instance("main").state = crate::observed::InstanceState::Unknown;
    world.settle();
    let notes = take(&journal);
    assert!(notes.iter().any(|note| note.starts_with("kill main StateUnknown")), "{notes:#?}");
}

/// Everything in a status can be reconstructed from the journal alone, in every scenario of this file.
#[test]
fn the_status_follows_from_the_journal() {
    let mut worlds: Vec<(World, Vec<Note>)> = Vec::new();
    let (mut world, journal) = watched(PROBED);
    world.seconds(5).answer("main", ProbeKind::Liveness, Outcome::Failure).seconds(70).restart_agent().seconds(3);
    worlds.push((world, journal.take()));
    let (mut world, journal) = watched(FOUR);
    world.settle().exit("setup", 0).seconds(20).exit("source", 42).exit("setup", 0).seconds(5);
    world.exit("source", 42).seconds(30);
    world.reboot().settle();
    worlds.push((world, journal.take()));
    let (mut world, journal) = watched(FOUR);
    world.settle().exit("setup", 1);
    worlds.push((world, journal.take()));
    for (world, notes) in &worlds {
        assert_eq!(replayed(notes), seen(world.status()));
    }
}

type Summary = (Option<Phase>, Vec<(ConditionType, Truth)>, Vec<(String, bool, bool, u32, String)>);

fn seen(status: &PodStatus) -> Summary {
    let mut conditions: Vec<_> = status.conditions.iter().map(|c| (c.kind.clone(), c.status)).collect();
    conditions.sort_by(|a, b| a.0.cmp(&b.0));
    let state = |state: &ContainerState| match state {
        ContainerState::Waiting(waiting) => waiting.reason.clone(),
        ContainerState::Running(_) => "running".to_owned(),
        ContainerState::Terminated(_) => "ended".to_owned(),
    };
    let mut containers: Vec<_> = status
        .all_containers()
        .map(|c| (c.name.clone(), c.started == Some(true), c.ready, c.restart_count, state(&c.state)))
        .collect();
    containers.sort();
    (Some(status.phase), conditions, containers)
}

fn replayed(notes: &[Note]) -> Summary {
    let (mut phase, mut conditions) = (None, std::collections::BTreeMap::new());
    let mut containers: std::collections::BTreeMap<String, (bool, bool, u32, String)> = Default::default();
    for note in notes {
        match &note.what {
            What::Phase { phase: now } => phase = Some(*now),
            What::Condition { kind, status, .. } => drop(conditions.insert(kind.clone(), *status)),
            What::Started { container, value } => containers.entry(container.clone()).or_default().0 = *value,
            What::Ready { container, value } => containers.entry(container.clone()).or_default().1 = *value,
            What::RestartCount { container, count } => containers.entry(container.clone()).or_default().2 = *count,
            What::Waiting { container, reason, .. } => {
                containers.entry(container.clone()).or_default().3.clone_from(reason);
            }
            What::Running { container, .. } => {
                containers.entry(container.clone()).or_default().3 = "running".to_owned()
            }
            What::Exited { container, .. } | What::ShownEnded { container, .. } => {
                containers.entry(container.clone()).or_default().3 = "ended".to_owned();
            }
            _ => {}
        }
    }
    let containers = containers.into_iter().map(|(name, (s, r, n, state))| (name, s, r, n, state)).collect();
    (phase, conditions.into_iter().collect(), containers)
}

/// The frozen form: a journal written today is read tomorrow.
#[test]
fn a_note_reads_as_people_want_it_and_comes_back() {
    let (mut world, journal) = watched(PROBED);
    world.seconds(5).answer("main", ProbeKind::Liveness, Outcome::Failure).seconds(3).delete(30);
    let notes = journal.take();
    let json = serde_json::to_value(&notes).unwrap();
    assert_eq!(serde_json::from_value::<Vec<Note>>(json.clone()).unwrap(), notes);
    let text: Vec<String> = json.as_array().unwrap().iter().map(|note| note["what"].to_string()).collect();
    assert_eq!(text[0], "\"seen\"");
    assert!(
        text.contains(&r#"{"running":{"attempt":0,"container":"main","id":"test://main-2"}}"#.to_owned()),
        "{text:#?}"
    );
    assert!(text.contains(&r#"{"condition":{"status":"True","type":"Ready"}}"#.to_owned()), "{text:#?}");
    assert!(
        text.iter()
            .any(|what| what.starts_with(r#"{"killing":{"container":"main","grace":30000,"id":"test://main-2""#))
    );
}

/// What others say is cut, whole characters only.
#[test]
fn long_words_of_others_are_cut() {
    let mut world = World::with_spec(PROBED);
    world.seconds(5);
    let before = world.evidence.clone();
    let mut after = before.clone();
    let output = format!("x{}", "é".repeat(1000));
    after.durable.published.as_mut().unwrap().container_statuses[0].ready = false;
    let because =
        Because::Probe { probe: ProbeKind::Readiness, passed: false, at: world.now, streak: 2, output: output.clone() };
    let why = [crate::Why { subject: Subject::Ready("main".to_owned()), because }];
    let notes = between(&before, &after, &why, None, world.now);
    let Some(Because::Probe { output: kept, .. }) = &notes[0].because else { panic!("{notes:?}") };
    assert_eq!(kept.len(), 255);
    assert!(output.starts_with(kept.as_str()));
}
