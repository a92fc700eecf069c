//! The probe history: bounded, and the same after a restart.

use keelet_ledger::Outcome;
use keelet_lifecycle::ProbeRecord;
use keelet_pod::ProbeKind;

use crate::{
    disk::SimDisk,
    sample::{UID, at, commit_with, evidence, open_well, pass, record},
};

#[test]
fn each_ring_keeps_the_newest_sixteen() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let records = |probe: ProbeKind, count: i64| -> Vec<ProbeRecord> {
        (0..count).map(|n| record("app", probe, n, &n.to_string())).collect()
    };
    let _ = commit_with(&mut ledger, UID, &evidence(0), &records(ProbeKind::Readiness, 100), 0);
    let _ = commit_with(&mut ledger, UID, &evidence(1), &records(ProbeKind::Liveness, 3), 0);
    drop(ledger);
    let history = &open_well(&disk).pods[0].history;
    let readiness: Vec<&ProbeRecord> = history.iter().filter(|record| record.probe == ProbeKind::Readiness).collect();
    assert_eq!(readiness.len(), 16);
    assert_eq!(*readiness[0], record("app", ProbeKind::Readiness, 84, "84"));
    assert_eq!(*readiness[15], record("app", ProbeKind::Readiness, 99, "99"));
    assert_eq!(history.iter().filter(|record| record.probe == ProbeKind::Liveness).count(), 3);
}

#[test]
fn output_is_shortened_on_a_character_boundary() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    // The boundary at 256 falls into the middle of a character.
    let long = format!("x{}", "é".repeat(1000));
    let _ = commit_with(&mut ledger, UID, &evidence(0), &[record("app", ProbeKind::Startup, 0, &long)], 0);
    drop(ledger);
    let output = &open_well(&disk).pods[0].history[0].output;
    assert_eq!(output.len(), 255);
    assert!(long.starts_with(output.as_str()));
}

#[test]
fn passing_results_are_written_every_ten_seconds_and_at_once_with_whatever_is_decisive() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let mut evidence = evidence(0);
    let _ = commit_with(&mut ledger, UID, &evidence, &[record("app", ProbeKind::Readiness, 0, "0")], 0);
    let on_disk = |disk: &SimDisk| open_well(&disk.after_crash()).pods[0].history.len();
    for second in 1..=9 {
        pass(&mut evidence, second * 1000);
        let results = [record("app", ProbeKind::Readiness, second * 1000, "ok")];
        let waits = commit_with(&mut ledger, UID, &evidence, &results, second * 1000).volatile;
        assert!(matches!(waits, Outcome::Deferred { until } if until == at(10_000)), "{waits:?}");
        assert_eq!(on_disk(&disk), 1, "after {second} s");
    }
    pass(&mut evidence, 10_000);
    let _ = commit_with(&mut ledger, UID, &evidence, &[record("app", ProbeKind::Readiness, 10_000, "ok")], 10_000);
    assert_eq!(on_disk(&disk), 11);
    let failing = &mut evidence.volatile.instances.get_mut("app").unwrap().readiness;
    failing.streak.as_mut().unwrap().passed = false;
    let _ = commit_with(&mut ledger, UID, &evidence, &[record("app", ProbeKind::Readiness, 11_000, "503")], 11_000);
    assert_eq!(on_disk(&disk), 12);
    // Results alone, of a probe without other changes, wait for the next write or for the end.
    let late = [record("app", ProbeKind::Startup, 11_100, "late")];
    let waits = commit_with(&mut ledger, UID, &evidence, &late, 11_100).volatile;
    assert!(matches!(waits, Outcome::Deferred { until } if until == at(21_000)), "{waits:?}");
    assert!(ledger.stop(at(11_200)).is_empty());
    assert_eq!(on_disk(&disk), 13);
}
