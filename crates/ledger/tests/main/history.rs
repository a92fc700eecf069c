//! The probe history: bounded, and the same after a restart.

use keelet_lifecycle::ProbeRecord;
use keelet_pod::ProbeKind;

use crate::{
    disk::SimDisk,
    sample::{UID, commit_with, evidence, open_well, record},
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
