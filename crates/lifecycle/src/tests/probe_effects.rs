//! What probe results do to status and containers.

use std::time::Duration;

use keelet_pod::ProbeKind;

use super::world::World;
use crate::{
    Because, Subject,
    observed::InstanceState,
    operation::{OpId, OpReport, OpResult, OpState, Operation, Outcome, Pending, ProbeReport},
    status::{ConditionType, ContainerState, Phase},
};

const ALL_THREE: &str = "
  containers:
  - name: main
    image: app
    startupProbe: {exec: {command: [up]}, periodSeconds: 1}
    readinessProbe: {exec: {command: [up]}, periodSeconds: 1}
    livenessProbe: {exec: {command: [up]}, periodSeconds: 1}
";

const READY_AND_LIVE: &str = "
  containers:
  - name: main
    image: app
    readinessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 2}
    livenessProbe: {exec: {command: [up]}, periodSeconds: 1}
";

fn is_probe(operation: &Operation) -> bool {
    matches!(operation, Operation::Probe { .. })
}

fn tries(world: &World, name: &str) -> [usize; 3] {
    ProbeKind::ALL.map(|kind| world.probed_at(name, kind).len())
}

/// PROBE-9, PROBE-11, SCN-U1, SCN-U4: before a container runs there is nothing to ask; a created one does not run.
#[test]
fn nothing_is_asked_before_a_container_runs() {
    let mut world = World::with_spec(READY_AND_LIVE);
    world.hold(|operation| matches!(operation, Operation::Launch { .. } | Operation::StartCreated { .. }));
    world.seconds(30);
    assert_eq!(tries(&world, "main"), [0, 0, 0]);
    assert_eq!(world.bits("main"), (false, false));
    world.release();
    world.hold(|operation| matches!(operation, Operation::StartCreated { .. }));
    world.seconds(1).running_instance("main").state = InstanceState::Created;
    let asked = tries(&world, "main");
    world.seconds(30);
    assert_eq!(tries(&world, "main"), asked);
    assert_eq!(world.bits("main"), (false, false));
}

/// PROBE-12, SCN-U9, CON-18j: until a probe has decided, startup and readiness say no, and liveness says yes.
#[test]
fn before_the_first_result_a_container_is_unready_and_alive() {
    let mut world = World::with_spec(ALL_THREE);
    world.hold(is_probe).seconds(60);
    assert_eq!(world.bits("main"), (false, false));
    assert_eq!(tries(&world, "main"), [1, 0, 0]);
    world.reply("main", ProbeKind::Startup, Outcome::Success).seconds(60);
    assert_eq!(world.bits("main"), (true, false));
    assert_eq!(tries(&world, "main"), [1, 1, 1]);
    assert_eq!(world.running(), ["main"].into());
    assert_eq!(world.container("main").restart_count, 0);
    assert_eq!(
        *world.why_ready("main"),
        Because::NotYetProbed { probe: ProbeKind::Readiness, streak: 0, passing: false }
    );
}

/// PROBE-13, DEF-4: two failures of a former instance do not count for the next one.
#[test]
fn a_streak_ends_with_its_container() {
    let mut world = World::with_spec(READY_AND_LIVE);
    world.answer("main", ProbeKind::Liveness, Outcome::Failure);
    world.millis(2_500).exit("main", 1);
    let first = world.id("main");
    assert_eq!(world.instance("main").liveness.streak, None);
    world.millis(2_999);
    assert_eq!(world.probed_at("main", ProbeKind::Liveness), [1_000, 2_000, 3_500, 4_500]);
    assert_eq!(world.id("main"), first, "two failures of three for this instance");
    world.millis(1);
    assert!(world.running().is_empty(), "the third for this instance");
    assert_eq!(world.container("main").last_state.terminated.as_ref().unwrap().exit_code, 143);
}

/// PROBE-14, PROBE-24, PROBE-44, SCN-U13, DEF-9: the liveness probe of a container that it has condemned is not run
/// again, also if it would pass; readiness continues. The next instance has both.
#[test]
fn a_condemned_container_is_asked_about_readiness_only() {
    let mut world =
        World::with_spec(&format!("{READY_AND_LIVE}    lifecycle: {{preStop: {{exec: {{command: [bye]}}}}}}\n"));
    world.answer("main", ProbeKind::Liveness, Outcome::Failure);
    world.hold(|operation| matches!(operation, Operation::PreStop { .. } | Operation::Stop { .. }));
    world.seconds(3).answer("main", ProbeKind::Liveness, Outcome::Success);
    let condemned = world.id("main");
    assert_eq!(world.bits("main"), (true, true), "a kill does not make it unready");
    world.answer("main", ProbeKind::Readiness, Outcome::Failure).seconds(10);
    assert_eq!(world.probed_at("main", ProbeKind::Liveness), [1_000, 2_000, 3_000]);
    assert_eq!(world.probed_at("main", ProbeKind::Readiness).last(), Some(&13_000));
    assert_eq!(world.bits("main"), (true, false));
    assert_eq!(world.id("main"), condemned);
    world.answer("main", ProbeKind::Readiness, Outcome::Success).release();
    assert_ne!(world.id("main"), condemned);
    world.seconds(2);
    assert_eq!(world.probed_at("main", ProbeKind::Liveness).len(), 5);
    assert_eq!(world.bits("main"), (true, true));
}

/// PROBE-15, SCN-U5, SCN-U6, SCN-U17, SCN-U18: a container that does not run is neither started nor ready and is not
/// asked; it is asked again exactly if it is restarted.
#[test]
fn an_ended_container_is_asked_again_only_if_it_restarts() {
    let rule = "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]";
    let rows = [
        ("restartPolicy: OnFailure", 1, true),
        ("restartPolicy: OnFailure", 0, false),
        ("restartPolicy: Always", 1, true),
        ("restartPolicy: Always", 0, true),
        ("restartPolicy: Never", 1, false),
        ("restartPolicy: Never", 0, false),
        (&format!("restartPolicy: Never, {rule}"), 42, true),
        (&format!("restartPolicy: Never, {rule}"), 41, false),
    ];
    for (policy, exit_code, again) in rows {
        let spec = format!(
            "
  restartPolicy: Never
  containers:
  - {{name: main, image: app, {policy}, readinessProbe: {{exec: {{command: [up]}}, periodSeconds: 1}}}}
  - {{name: other, image: app}}
"
        );
        let mut world = World::with_spec(&spec);
        world.seconds(5);
        assert_eq!(world.bits("main"), (true, true));
        let before = tries(&world, "main");
        world.hold(|operation| matches!(operation, Operation::Launch { .. })).exit("main", exit_code);
        assert_eq!(world.bits("main"), (false, false), "{policy} {exit_code}");
        assert_eq!(*world.why_ready("main"), Because::NotRunning);
        assert!(!world.holds(ConditionType::Ready));
        world.seconds(20);
        assert_eq!(tries(&world, "main"), before, "{policy} {exit_code}: not asked while it does not run");
        world.release().seconds(20);
        assert_eq!(tries(&world, "main") != before, again, "{policy} {exit_code}");
        assert_eq!(world.bits("main"), (again, again), "{policy} {exit_code}");
    }
}

/// SCN-U17: a sidecar restarts under pod Never, and so do its probes.
#[test]
fn an_ended_sidecar_is_asked_again() {
    let spec = "
  restartPolicy: Never
  initContainers:
  - {name: proxy, image: proxy, restartPolicy: Always, readinessProbe: {exec: {command: [up]}, periodSeconds: 1}}
  containers:
  - {name: main, image: app}
";
    let mut world = World::with_spec(spec);
    world.millis(1_500).exit("proxy", 1);
    world.seconds(1);
    assert_eq!(world.probed_at("proxy", ProbeKind::Readiness), [0, 1_000, 1_500, 2_500]);
    assert_eq!(world.bits("proxy"), (true, true));
}

/// SCN-U19: a restart of all containers resets the probes, whatever the trigger.
#[test]
fn probes_go_on_after_a_restart_of_all_containers() {
    for trigger in ["main", "other"] {
        let rule = "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
        let spec = format!(
            "
  restartPolicy: Never
  containers:
  - {{name: main, image: app, restartPolicy: Never, {rule}, readinessProbe: {{exec: {{command: [up]}}, periodSeconds: 1}}}}
  - {{name: other, image: app, restartPolicy: Never, {rule}}}
"
        );
        let mut world = World::with_spec(&spec);
        world.millis(1_500);
        let before = world.id("main");
        world.exit(trigger, 42).seconds(1);
        assert_ne!(world.id("main"), before, "{trigger}");
        assert_eq!(world.bits("main"), (true, true), "{trigger}");
        assert_eq!(world.probed_at("main", ProbeKind::Readiness), [0, 1_000, 1_500, 2_500], "{trigger}");
    }
}

/// PROBE-20, PROBE-19, SCN-U30: each result says in an event what it was; an error does so once per round of three
/// tries, success and non-results not at all.
#[test]
fn every_bad_result_is_an_event() {
    for kind in ProbeKind::ALL {
        let title = kind.title();
        let rows = [
            (Outcome::Success, None),
            (Outcome::Late, None),
            (Outcome::Cancelled, None),
            (Outcome::Warning, Some(("ProbeWarning", format!("{title} probe warning: Warning")))),
            (Outcome::Failure, Some(("Unhealthy", format!("{title} probe failed: Failure")))),
            (
                Outcome::Error,
                Some(("Unhealthy", format!("{title} probe errored and resulted in unknown state: Error"))),
            ),
        ];
        for (outcome, event) in rows {
            let mut world = World::with_spec(ALL_THREE);
            if kind != ProbeKind::Startup {
                world.settle();
            }
            world.answer("main", kind, outcome);
            // Liveness comes a second later than the others.
            world.millis(1_000);
            if kind == ProbeKind::Readiness {
                world.millis(500);
            }
            let events: Vec<&(String, String)> =
                world.events.iter().filter(|(_, message)| message.contains("probe")).collect();
            let tried = world.probed_at("main", kind).len();
            let rounds = if outcome == Outcome::Error { tried.div_ceil(3) } else { tried };
            match event {
                None => assert!(events.is_empty(), "{kind} {outcome:?}: {events:?}"),
                Some((reason, message)) => {
                    assert!(!events.is_empty(), "{kind} {outcome:?}");
                    let expected = (reason.to_owned(), message);
                    assert!(events.iter().all(|seen| **seen == expected), "{kind} {outcome:?}: {events:?}");
                    assert!(events.len() <= rounds, "{kind} {outcome:?}: {events:?} in {rounds} rounds");
                }
            }
        }
    }
}

/// PROBE-25, PROBE-27, SCN-U27: the result that reaches the threshold changes ready and both conditions in the very
/// status that takes it, in both directions.
#[test]
fn readiness_flips_in_the_status_that_takes_the_result() {
    let mut world = World::with_spec(READY_AND_LIVE);
    world.hold(|operation| matches!(operation, Operation::Probe { probe: ProbeKind::Readiness, .. }));
    world.settle();
    assert_eq!(world.bits("main"), (true, false));
    assert_eq!(world.condition(ConditionType::Ready).reason.as_deref(), Some("ContainersNotReady"));
    for (outcome, ready) in [
        (Outcome::Success, true),
        (Outcome::Failure, true),
        (Outcome::Failure, false),
        (Outcome::Failure, false),
        (Outcome::Success, true),
        (Outcome::Warning, true),
    ] {
        world.reply("main", ProbeKind::Readiness, outcome);
        assert_eq!(world.bits("main"), (true, ready), "{outcome:?}");
        assert_eq!(world.holds(ConditionType::ContainersReady), ready);
        assert_eq!(world.holds(ConditionType::Ready), ready);
        world.seconds(1);
    }
    assert_eq!(world.container("main").restart_count, 0, "readiness kills nothing");
}

/// PROBE-23, SCN-U29: equal results are not a change: the status keeps its version.
#[test]
fn equal_results_leave_the_status_alone() {
    let mut world = World::with_spec(READY_AND_LIVE);
    world.seconds(3);
    let (version, statuses) = (world.plan.as_ref().unwrap().version, world.statuses.len());
    let mark = world.mark();
    world.seconds(30);
    assert_eq!(world.probes_since(mark, "main", ProbeKind::Readiness), 30);
    assert_eq!(world.plan.as_ref().unwrap().version, version);
    assert_eq!(world.statuses.len(), statuses);
    assert!(!world.saw_event("Unhealthy", ""));
}

/// PROBE-26: a result for another container ID, or without a pending attempt, changes nothing.
#[test]
fn a_result_of_a_former_instance_is_not_taken() {
    let mut world = World::with_spec(READY_AND_LIVE);
    world.hold(|operation| matches!(operation, Operation::Probe { probe: ProbeKind::Readiness, .. }));
    world.settle();
    let old = world.in_flight();
    assert_eq!(old.len(), 1);
    world.exit_only("main", 1);
    // The result comes with the very look that shows the exit, and the container is back before it is asked again.
    world.reply("main", ProbeKind::Readiness, Outcome::Success);
    assert_eq!(world.bits("main"), (true, false), "the new one has not answered");
    assert_eq!(world.instance("main").readiness.last, None);
    world.reply("main", ProbeKind::Readiness, Outcome::Success);
    assert_eq!(world.bits("main"), (true, true));
}

/// PROBE-13, PROBE-26: when the next instance runs already, a result of the former one leaves no trace in it, whatever the
/// result is and whichever probe it is of.
#[test]
fn a_result_of_another_container_id_is_not_taken() {
    for kind in ProbeKind::ALL {
        for outcome in
            [Outcome::Success, Outcome::Warning, Outcome::Failure, Outcome::Error, Outcome::Late, Outcome::Cancelled]
        {
            let spec = ALL_THREE.replace("periodSeconds: 1", "periodSeconds: 1, failureThreshold: 1");
            let mut world = World::with_spec(&spec);
            // Liveness and readiness of the new instance are asked only after its startup.
            let asked = move |operation: &Operation| match operation {
                Operation::Probe { probe, .. } => *probe == kind || *probe != ProbeKind::Startup,
                _ => false,
            };
            world.hold(asked).seconds(1);
            let former = world.id("main");
            world.exit("main", 1).seconds(60);
            let present = world.id("main");
            assert_ne!(former, present, "{kind} {outcome:?}: it has not restarted");
            let (before, bits) = (world.instance("main").clone(), world.bits("main"));
            let operation =
                Operation::Probe { container: "main".to_owned(), id: former.clone(), probe: kind, eager: false };
            let id = OpId(u64::MAX);
            world.evidence.volatile.pending.push(Pending { id, operation, since: world.now, cancelled: true });
            let report = ProbeReport { outcome, latency: Duration::ZERO, output: "from the former".to_owned() };
            let state = OpState::Finished { at: world.now, result: OpResult::Probed(report) };
            world.observed.operations.push(OpReport { id, state });
            let plan = world.plan_once();
            assert_eq!(
                plan.results.iter().map(|result| &result.id).collect::<Vec<_>>(),
                [&former],
                "{kind} {outcome:?}"
            );
            assert_eq!(*world.instance("main"), before, "{kind} {outcome:?} of {former} was taken for {present}");
            assert_eq!(world.bits("main"), bits, "{kind} {outcome:?}");
            assert!(plan.operations.is_empty(), "{kind} {outcome:?}: {:?}", plan.operations);
            let reported = world.events.iter().any(|(_, message)| message.contains("from the former"));
            assert!(!reported, "{kind} {outcome:?}: {:?}", world.events);
        }
    }
}

/// EVT-11, PROBE-50: a probe that this node cannot ask for longer than three periods and half a minute says so, once, and again
/// only after it could be asked.
#[test]
fn a_probe_that_is_late_for_too_long_says_so_once() {
    for (period, silent, reported) in [(1, 29, 32), (10, 29, 41), (20, 59, 81), (60, 179, 241)] {
        let spec = format!(
            "\n  containers:\n  - name: main\n    image: app\n    livenessProbe: {{exec: {{command: [up]}}, \
             periodSeconds: {period}, initialDelaySeconds: {period}, failureThreshold: 1}}\n"
        );
        let mut world = World::with_spec(&spec);
        let count = |world: &World| world.events.iter().filter(|(reason, _)| reason == "ProbeLate").count();
        world.answer("main", ProbeKind::Liveness, Outcome::Late);
        world.seconds(period + silent);
        assert_eq!(count(&world), 0, "period {period}: too early");
        world.seconds(reported - silent);
        assert_eq!(count(&world), 1, "period {period}");
        assert!(
            world.saw_event("ProbeLate", "Liveness probe: this node could not run the probe for "),
            "{:?}",
            world.events
        );
        world.seconds(5 * reported);
        assert_eq!(count(&world), 1, "period {period}: it was reported");
        assert_eq!(world.container("main").restart_count, 0, "period {period}: late is not a failure");
        world.answer("main", ProbeKind::Liveness, Outcome::Success).seconds(period);
        assert_eq!(world.instance("main").liveness.late_since, None, "period {period}");
        world.answer("main", ProbeKind::Liveness, Outcome::Late).seconds(2 * reported);
        assert_eq!(count(&world), 2, "period {period}: late again");
    }
}

/// PROBE-6: an attempt that fails because its container exits says nothing about it. It is recorded, without an event.
#[test]
fn a_failure_that_comes_with_the_end_of_its_container_is_none() {
    for kind in [ProbeKind::Readiness, ProbeKind::Liveness] {
        let mut world = World::with_spec(READY_AND_LIVE);
        world.hold(move |operation| matches!(operation, Operation::Probe { probe, .. } if *probe == kind)).seconds(1);
        let first = world.id("main");
        world.exit_only("main", 1);
        world.reply_only("main", kind, Outcome::Failure);
        let results = world.plan_once().results;
        assert_eq!(
            results.iter().map(|r| (r.id.as_str(), r.outcome)).collect::<Vec<_>>(),
            [(&*first, Outcome::Cancelled)]
        );
        assert!(!world.saw_event("Unhealthy", ""), "{kind:?}");
    }
}

/// PROBE-21: every result is recorded once, with container, ID, time, outcome and latency, non-results too.
#[test]
fn every_result_is_recorded_once() {
    for outcome in [Outcome::Success, Outcome::Failure, Outcome::Late, Outcome::Error] {
        let mut world = World::with_spec(READY_AND_LIVE);
        world.answer("main", ProbeKind::Readiness, outcome);
        let records: Vec<_> = (0..20).flat_map(|_| world.plan_once().results).collect();
        let tries = if outcome == Outcome::Error { 3 } else { 1 };
        assert_eq!(records.len(), tries, "{outcome:?}");
        for record in records {
            assert_eq!((record.container.as_str(), record.id.as_str()), ("main", world.id("main").as_str()));
            assert_eq!((record.probe, record.outcome, record.at), (ProbeKind::Readiness, outcome, world.now));
            assert_eq!((record.latency.as_millis(), record.output), (2, format!("{outcome:?}")));
        }
    }
}

/// SCN-U22: only regular containers and sidecars are asked, and only what they have a probe for.
#[test]
fn only_probes_of_the_spec_are_run() {
    let spec = "
  initContainers:
  - {name: setup, image: tool}
  - name: proxy
    image: proxy
    restartPolicy: Always
    startupProbe: {exec: {command: [up]}, periodSeconds: 1}
    readinessProbe: {exec: {command: [up]}, periodSeconds: 1}
    livenessProbe: {exec: {command: [up]}, periodSeconds: 1}
  containers:
  - {name: main, image: app, livenessProbe: {exec: {command: [up]}, periodSeconds: 1}}
  - {name: bare, image: app}
";
    let mut world = World::with_spec(spec);
    world.seconds(2);
    assert_eq!(tries(&world, "setup"), [0, 0, 0]);
    world.exit("setup", 0).seconds(3);
    assert_eq!(tries(&world, "setup"), [0, 0, 0]);
    assert_eq!(tries(&world, "proxy"), [1, 4, 3]);
    assert_eq!(tries(&world, "main"), [0, 0, 3]);
    assert_eq!(tries(&world, "bare"), [0, 0, 0]);
}

/// SCN-U23, DEF-10: an attempt that got lost is made again, and no other one is.
#[test]
fn only_a_lost_attempt_is_made_again() {
    let mut world = World::with_spec(READY_AND_LIVE);
    world.hold(is_probe).seconds(1);
    assert_eq!(tries(&world, "main"), [0, 1, 1]);
    let readiness = world.in_flight()[0].0;
    world.observed.operations.retain(|report| report.id != readiness);
    world.settle();
    assert_eq!(tries(&world, "main"), [0, 2, 1]);
}

/// SCN-U25: ready by state and probes, for a regular container; a stale success is worth nothing once it has ended.
#[test]
fn started_and_ready_by_what_the_probes_say() {
    let rows = [
        ("", "", (true, true)),
        ("", "Success", (true, true)),
        ("", "Failure", (true, false)),
        ("", "pending", (true, false)),
        ("Success", "", (true, true)),
        ("Success", "Success", (true, true)),
        ("Success", "Failure", (true, false)),
        ("pending", "", (false, false)),
        ("pending", "Success", (false, false)),
        ("Failure", "", (false, false)),
    ];
    for (startup, readiness, bits) in rows {
        let mut spec = "\n  containers:\n  - name: main\n    image: app\n".to_owned();
        for (field, answer) in [("startupProbe", startup), ("readinessProbe", readiness)] {
            if !answer.is_empty() {
                spec.push_str(&format!(
                    "    {field}: {{exec: {{command: [up]}}, failureThreshold: 100, periodSeconds: 1}}\n"
                ));
            }
        }
        let mut world = World::with_spec(&spec);
        let pending = [(ProbeKind::Startup, startup), (ProbeKind::Readiness, readiness)]
            .map(|(kind, answer)| (kind, answer == "pending"));
        world.hold(
            move |operation| matches!(operation, Operation::Probe { probe, .. } if pending.contains(&(*probe, true))),
        );
        for (kind, answer) in [(ProbeKind::Startup, startup), (ProbeKind::Readiness, readiness)] {
            let outcome = if answer == "Failure" { Outcome::Failure } else { Outcome::Success };
            world.answer("main", kind, outcome);
        }
        world.seconds(5);
        assert_eq!(world.bits("main"), bits, "startup {startup:?} readiness {readiness:?}");
        world.hold(|operation| matches!(operation, Operation::Launch { .. })).exit("main", 0);
        assert_eq!(world.bits("main"), (false, false), "startup {startup:?} readiness {readiness:?}, ended");
    }
}

/// SCN-U26, KEEP-18: an ordinary init container is ready once it succeeded and started while it runs; a sidecar is
/// like a regular container.
#[test]
fn init_containers_and_sidecars_have_their_own_bits() {
    let spec = "
  restartPolicy: OnFailure
  initContainers:
  - {name: setup, image: tool}
  - name: proxy
    image: proxy
    restartPolicy: Always
    startupProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 99}
    readinessProbe: {exec: {command: [up]}, periodSeconds: 1}
  containers:
  - {name: main, image: app}
";
    let mut world = World::with_spec(spec);
    world.answer("proxy", ProbeKind::Startup, Outcome::Failure).settle();
    assert_eq!(world.bits("setup"), (true, false));
    world.hold(|operation| matches!(operation, Operation::Launch { .. })).exit("setup", 1);
    assert_eq!(world.bits("setup"), (false, false));
    world.release();
    world.exit("setup", 0).seconds(2);
    assert_eq!(world.bits("setup"), (false, true));
    assert_eq!(world.bits("proxy"), (false, false));
    world.answer("proxy", ProbeKind::Startup, Outcome::Success).seconds(1);
    assert_eq!(world.bits("proxy"), (true, true));
    let restarted = world.restart_agent();
    assert_eq!((restarted.bits("setup"), restarted.bits("proxy")), ((false, true), (true, true)));
    assert_eq!(*world.why(&Subject::Started("setup".to_owned())), Because::NotRunning);
}

/// PROBE-10, SCN-U2: a pod whose phase is final is not asked anything.
#[test]
fn a_finished_pod_is_not_asked() {
    let spec = "
  restartPolicy: Never
  containers:
  - {name: main, image: app, livenessProbe: {exec: {command: [up]}, periodSeconds: 1}}
";
    for (exit_code, phase) in [(0, Phase::Succeeded), (1, Phase::Failed)] {
        let mut world = World::with_spec(spec);
        world.seconds(3).exit("main", exit_code);
        assert_eq!(world.status().phase, phase);
        let before = tries(&world, "main");
        world.seconds(60);
        assert_eq!(tries(&world, "main"), before);
        assert!(matches!(world.container("main").state, ContainerState::Terminated(_)));
        assert_eq!(world.plan.as_ref().unwrap().wake_at, None);
    }
}
