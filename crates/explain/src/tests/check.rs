//! The checker of chains: it finds nothing in whole histories (every stage asks it after every plan), and it finds what
//! is broken.

use keelet_lifecycle::{Because, Subject, Why, journal::What, operation::Outcome, status::ConditionType};
use keelet_pod::ProbeKind;

use super::{
    stage::Stage,
    why::{ALL, WEB, up},
};
use crate::why::check_chains;

/// Histories with everything in them: crashes, kills, restarts of all containers, agents that come and go, reboots.
#[test]
fn every_chain_of_eventful_histories_ends_in_evidence() {
    let mut stage = up(WEB);
    stage.answer("main", ProbeKind::Liveness, Outcome::Failure, "500").seconds(100).restart_agent(3).seconds(30);
    stage.lose("plain").seconds(5).reboot().seconds(30).exit("setup", 0).seconds(20).restart_agent(300).seconds(5);
    stage.fail("EnsureImage", "ErrImagePull", "no route").exit("plain", 1).seconds(90).delete(5).seconds(10);
    let mut stage = up(ALL);
    stage.exit("source", 42).exit("setup", 0).seconds(3).exit("source", 42).seconds(15).restart_agent(2);
    stage.seconds(10).request_restart().seconds(20).reboot().seconds(5);
    let mut stage = Stage::new(ALL);
    stage.hold("Launch").seconds(3).held.clear();
    stage
        .restart_agent(100)
        .seconds(3)
        .exit("setup", 0)
        .exit("side", 1)
        .seconds(30)
        .exit("other", 0)
        .exit("source", 0)
        .seconds(60);
    assert!(stage.journal.len() > 40);
}

fn with(stage: &Stage, subject: Subject, because: Because) -> Vec<String> {
    let mut why = stage.plan.as_ref().unwrap().why.clone();
    why.retain(|why| why.subject != subject);
    why.push(Why { subject, because });
    let mut known = stage.known();
    known.why = &why;
    check_chains(&known, stage.now)
}

#[test]
fn a_status_without_a_reason_is_found() {
    let stage = up(WEB);
    let mut known = stage.known();
    known.why = &[];
    known.journal = &[];
    let faults = check_chains(&known, stage.now);
    assert!(faults.contains(&"Phase: no reason is recorded".to_owned()), "{faults:#?}");
}

#[test]
fn evidence_that_says_something_else_is_found() {
    let stage = up(WEB);
    let at = stage.now;
    let main = || "main".to_owned();
    let failed = Because::Probe { probe: ProbeKind::Readiness, passed: false, at, streak: 3, output: String::new() };
    let cases = [
        (Subject::Ready(main()), failed),
        (Subject::Started(main()), Because::NotYetProbed { probe: ProbeKind::Startup, streak: 1, passing: true }),
        (Subject::State(main()), Because::Pending),
        (Subject::Condition(ConditionType::Ready), Because::ReadinessGates { pending: vec!["x".to_owned()] }),
    ];
    for (subject, because) in cases {
        let faults = with(&stage, subject.clone(), because);
        assert!(
            faults.iter().any(|fault| fault.starts_with(&format!("{subject:?} does not say what its evidence says"))),
            "{faults:#?}"
        );
    }
}

#[test]
fn a_condition_that_its_containers_do_not_bear_out_is_found() {
    let mut stage = up(WEB);
    stage.answer("main", ProbeKind::Readiness, Outcome::Failure, "503").seconds(5);
    let mut evidence = stage.evidence.clone();
    let status = evidence.durable.published.as_mut().unwrap();
    for condition in &mut status.conditions {
        condition.status = keelet_lifecycle::status::Truth::True;
    }
    let mut known = stage.known();
    known.evidence = &evidence;
    let faults = check_chains(&known, stage.now);
    assert!(faults.iter().any(|fault| fault.starts_with("Condition(Ready) does not say")), "{faults:#?}");
}

#[test]
fn a_kill_without_a_remembered_probe_is_found() {
    let mut stage = up(WEB);
    stage.answer("main", ProbeKind::Liveness, Outcome::Failure, "500").seconds(3);
    assert!(check_chains(&stage.known(), stage.now).is_empty());
    for note in &mut stage.journal {
        if matches!(note.what, What::Killing { .. }) {
            note.because = None;
        }
    }
    let faults = check_chains(&stage.known(), stage.now);
    let expected = "RestartCount(\"main\"): the results of its liveness probe are no longer recorded";
    assert!(faults.contains(&expected.to_owned()), "{faults:#?}");
}

/// The journal keeps the newest changes only. Once the start of an instance is not among them, neither need be what its probes said.
#[test]
fn a_kill_that_is_older_than_the_journal_is_no_fault() {
    let mut stage = up(WEB);
    stage.answer("main", ProbeKind::Liveness, Outcome::Failure, "500").seconds(3);
    let killed = stage.journal.iter().position(|note| matches!(note.what, What::Killing { .. })).unwrap();
    let shortened = |from: usize| {
        let mut known = stage.known();
        known.journal = &stage.journal[from..];
        check_chains(&known, stage.now)
    };
    assert_eq!(shortened(killed + 1), [""; 0]);
    let began = stage.journal.iter().position(|note| matches!(note.what, What::Running { .. })).unwrap();
    let mut hole = stage.journal[began..].to_vec();
    hole.retain(|note| !matches!(note.what, What::Killing { .. }));
    let mut known = stage.known();
    known.journal = &hole;
    let faults = check_chains(&known, stage.now);
    assert!(faults.iter().any(|fault| fault.ends_with("are no longer recorded")), "{faults:#?}");
}
