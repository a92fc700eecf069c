//! Which changes are written at once, which may wait, and what is never written.

use keelet_ledger::Outcome;
use keelet_lifecycle::{Evidence, evidence::Volatile};
use keelet_pod::ProbeKind;
use serde_json::{Value, json};

use crate::{
    disk::SimDisk,
    sample::{DURABLE, UID, VOLATILE, at, commit, commit_with, container_id, evidence, open_well, pass, record},
};

/// The evidence with a change in the current instance of `app`.
fn with(evidence: &Evidence, change: impl FnOnce(&mut Value)) -> Evidence {
    let mut volatile = serde_json::to_value(&evidence.volatile).unwrap();
    change(&mut volatile);
    let volatile: Volatile = serde_json::from_value(volatile).unwrap();
    assert_ne!(volatile, evidence.volatile);
    Evidence { durable: evidence.durable.clone(), volatile }
}

#[test]
fn the_same_evidence_again_is_not_written() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let committed = commit(&mut ledger, UID, &evidence(0), 0);
    assert!(committed.durable.is_written() && committed.volatile.is_written());
    disk.forget_calls();
    let committed = commit(&mut ledger, UID, &evidence(0), 10_000);
    assert!(matches!((committed.durable, committed.volatile), (Outcome::Unchanged, Outcome::Unchanged)));
    assert!(disk.calls().is_empty());
}

#[test]
fn a_thousand_passing_results_cause_no_durable_write_and_a_volatile_write_every_ten_seconds() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let mut evidence = evidence(0);
    let _ = commit(&mut ledger, UID, &evidence, 0);
    disk.forget_calls();
    let mut written = 0;
    for n in 1..=1000 {
        let now = n * 100;
        pass(&mut evidence, now);
        let results = [record("app", ProbeKind::Readiness, now, "200 OK")];
        let committed = commit_with(&mut ledger, UID, &evidence, &results, now);
        assert!(matches!(committed.durable, Outcome::Unchanged));
        written += u32::from(committed.volatile.is_written());
    }
    assert_eq!(disk.writes(DURABLE), 0);
    assert_eq!(written, 10);
    assert!(ledger.stop(at(100_000)).is_empty());
    drop(ledger);
    assert_eq!(open_well(&disk).pods[0].evidence, evidence);
}

#[test]
fn a_probe_attempt_in_progress_is_not_written() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let _ = commit(&mut ledger, UID, &evidence(0), 0);
    disk.forget_calls();
    let trying = with(&evidence(0), |volatile| {
        let probe = json!({"container": "app", "id": container_id("app", 0), "probe": "readiness"});
        volatile["pending"] = json!([{"id": 10, "operation": {"probe": probe}, "since": at(5000)}]);
        volatile["nextOperation"] = json!(11);
    });
    assert!(matches!(commit(&mut ledger, UID, &trying, 5000).volatile, Outcome::Unchanged));
    assert!(disk.calls().is_empty());
}

#[test]
fn a_deferred_change_is_written_by_the_next_commit_or_flush_when_it_is_due() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let mut evidence = evidence(0);
    let _ = commit(&mut ledger, UID, &evidence, 0);
    pass(&mut evidence, 400);
    let Outcome::Deferred { until } = commit(&mut ledger, UID, &evidence, 400).volatile else { panic!() };
    assert_eq!(until, at(10_000));
    disk.forget_calls();
    assert!(ledger.flush(at(9_999)).is_empty());
    assert_eq!(disk.writes(VOLATILE), 0);
    assert!(ledger.flush(at(10_000)).is_empty());
    assert!(disk.writes(VOLATILE) > 0);
    disk.forget_calls();
    assert!(ledger.flush(at(25_000)).is_empty());
    assert!(disk.calls().is_empty());
}

/// CON-8: every change that a kill, a restart or a status could depend on is on disk before it is acted upon.
#[test]
fn every_change_that_a_decision_could_depend_on_is_written_at_once() {
    let readiness =
        |change: fn(&mut Value)| move |volatile: &mut Value| change(&mut volatile["lives"]["app"]["readiness"]);
    let failing = json!({"passed": false, "length": 1, "last": at(10)});
    type Change = Box<dyn FnOnce(&mut Value)>;
    let changes: Vec<(&str, Change)> = vec![
        ("a verdict", Box::new(readiness(|probe| probe["verdict"] = json!("neverProbed")))),
        ("a failing run", Box::new(move |volatile| volatile["lives"]["app"]["liveness"]["run"] = failing)),
        ("errors", Box::new(readiness(|probe| probe["errors"] = json!(1)))),
        ("a hold", Box::new(readiness(|probe| probe["onHold"] = json!(true)))),
        (
            "a kill",
            Box::new(|volatile| {
                let kill =
                    json!({"reason": {"probe": "liveness"}, "since": at(10), "grace": 30_000, "preStop": "owed"});
                volatile["lives"]["app"]["kill"] = kill;
            }),
        ),
        ("an instance that ended", Box::new(|volatile| drop(volatile["lives"].as_object_mut().unwrap().remove("db")))),
        ("a hook", Box::new(|volatile| volatile["lives"]["app"]["postStart"] = json!("failed"))),
        (
            "an operation",
            Box::new(|volatile| {
                volatile["pending"] = json!([{"id": 10, "operation": "prepareVolumes", "since": at(10)}]);
            }),
        ),
        ("volumes", Box::new(|volatile| volatile["volumesReady"] = json!(true))),
        ("a launch", Box::new(|volatile| volatile["launches"]["app"] = json!({"image": "img"}))),
        ("another agent run", Box::new(|volatile| volatile["agentStarted"] = json!(at(10)))),
    ];
    for (what, change) in changes {
        let disk = SimDisk::default();
        let mut ledger = open_well(&disk).ledger;
        let _ = commit(&mut ledger, UID, &evidence(0), 0);
        let changed = with(&evidence(0), change);
        let committed = commit(&mut ledger, UID, &changed, 10);
        assert!(committed.volatile.is_written(), "{what}: {committed:?}");
        assert!(matches!(committed.durable, Outcome::Unchanged), "{what}");
    }
}

/// With a success threshold above one, passing results count up to a verdict.
#[test]
fn a_passing_streak_before_its_verdict_is_written_at_once() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let before = with(&evidence(0), |volatile| volatile["lives"]["app"]["readiness"]["verdict"] = json!("neverProbed"));
    let _ = commit(&mut ledger, UID, &before, 0);
    let mut after = before.clone();
    pass(&mut after, 10);
    assert!(commit(&mut ledger, UID, &after, 10).volatile.is_written());
}
