//! Full, read-only and broken disks: the ledger continues in memory, reports it, and catches up.

use std::{io, sync::Arc};

use keelet_ledger::{Ledger, Outcome, PodCommit, WriteStep};
use serde_json::json;

use crate::{
    disk::{EIO, ENOSPC, EROFS, Fault, Op, SimDisk},
    sample::{DURABLE, OTHER_BOOT, UID, VOLATILE, at, commit, evidence, open, open_well, pass, pod, settings},
};

/// KEEP-20, BACK-5: an agent restart on a full or read-only disk loses no evidence.
#[test]
fn a_full_or_read_only_disk_keeps_the_old_file_and_the_evidence_outlives_the_agent() {
    for errno in [ENOSPC, EROFS, EIO] {
        let disk = SimDisk::default();
        let mut ledger = open_well(&disk).ledger;
        let _ = commit(&mut ledger, UID, &evidence(1), 0);
        let path = format!("{DURABLE}/pods/{UID}/evidence.json");
        let before = disk.contents(&path);
        disk.fail(Some(Fault::every_write(DURABLE, errno)));
        let committed = commit(&mut ledger, UID, &evidence(2), 1000);
        let error = committed.durable.error().unwrap();
        assert_eq!(error.source.raw_os_error(), Some(errno), "{error}");
        assert!(committed.volatile.is_written());
        assert_eq!(disk.contents(&path), before);
        drop(ledger);
        // The agent starts again on the same broken disk.
        let mut opened = open(&disk);
        assert!(opened.losses.is_empty());
        assert!(!opened.troubles.is_empty());
        assert_eq!(opened.pods[0].evidence, evidence(2));
        // The disk works again: the next commit writes the file, although nothing changed.
        disk.fail(None);
        assert!(commit(&mut opened.ledger, UID, &evidence(2), 9000).durable.is_written());
        drop(opened);
        let rebooted = Ledger::open_on(disk, keelet_ledger::Settings { boot_id: OTHER_BOOT, ..settings() }).unwrap();
        assert_eq!(rebooted.pods[0].evidence.durable, evidence(2).durable);
    }
}

#[test]
fn any_single_step_that_fails_leaves_a_whole_file_and_is_named() {
    let steps = [
        (Op::MakeDir, WriteStep::MakeDirectory),
        (Op::Create, WriteStep::Create),
        (Op::Write, WriteStep::Write),
        (Op::SyncFile, WriteStep::SyncFile),
        (Op::Rename, WriteStep::Rename),
        (Op::SyncDir, WriteStep::SyncDirectory),
    ];
    for (op, step) in steps {
        for fresh in [true, false] {
            // The directory is made once only.
            if op == Op::MakeDir && !fresh {
                continue;
            }
            let disk = SimDisk::default();
            let mut ledger = open_well(&disk).ledger;
            if !fresh {
                let _ = commit(&mut ledger, UID, &evidence(1), 0);
            }
            disk.fail(Some(Fault { short: Some(100), ..Fault::on(op, DURABLE, ENOSPC) }));
            let committed = commit(&mut ledger, UID, &evidence(2), 1000);
            assert_eq!(committed.durable.error().unwrap().step, step);
            let Outcome::Deferred { until } = commit(&mut ledger, UID, &evidence(2), 1500).durable else {
                panic!("a failing disk is not tried with the same value more than once a second");
            };
            assert_eq!(until, at(2000));
            disk.fail(None);
            let committed = commit(&mut ledger, UID, &evidence(2), 2000);
            assert!(matches!(committed.durable, Outcome::Written { after_failures: 1 }), "{step:?}: {committed:?}");
            let opened = open_well(&disk);
            assert_eq!(opened.pods[0].evidence, evidence(2));
            assert!(disk.files().iter().all(|path| !path.to_string_lossy().contains(".new-")));
        }
    }
}

#[test]
fn a_new_value_is_tried_at_once_on_a_failing_disk() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    disk.fail(Some(Fault::every_write(DURABLE, ENOSPC)));
    assert!(commit(&mut ledger, UID, &evidence(1), 0).durable.error().is_some());
    disk.fail(None);
    assert!(matches!(commit(&mut ledger, UID, &evidence(2), 1).durable, Outcome::Written { after_failures: 1 }));
}

#[test]
fn a_full_tmpfs_leaves_durable_commits_as_they_are() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    disk.fail(Some(Fault::every_write(VOLATILE, ENOSPC)));
    let committed = commit(&mut ledger, UID, &evidence(1), 0);
    assert!(committed.volatile.error().is_some());
    assert!(committed.durable.is_written());
    let mut newer = evidence(1);
    pass(&mut newer, 100);
    assert!(matches!(commit(&mut ledger, UID, &newer, 100).volatile, Outcome::Deferred { .. }));
    disk.fail(None);
    assert!(matches!(commit(&mut ledger, UID, &newer, 1000).volatile, Outcome::Written { after_failures: 1 }));
    drop(ledger);
    assert_eq!(open_well(&disk).pods[0].evidence, newer);
}

#[test]
fn a_directory_that_another_program_removed_is_created_again() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let _ = commit(&mut ledger, UID, &evidence(1), 0);
    for root in [DURABLE, VOLATILE] {
        keelet_ledger::Disk::remove(&disk, format!("{root}/pods/{UID}").as_ref()).unwrap();
    }
    let committed = commit(&mut ledger, UID, &evidence(2), 1000);
    assert!(committed.durable.error().is_some_and(|error| error.source.kind() == io::ErrorKind::NotFound));
    let committed = commit(&mut ledger, UID, &evidence(2), 3000);
    assert!(committed.durable.is_written() && committed.volatile.is_written(), "{committed:?}");
}

#[test]
fn the_copy_of_a_pod_is_written_when_it_changes_and_tried_again_when_it_failed() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let first = json!({"metadata": {"uid": UID}, "spec": {"containers": []}});
    disk.fail(Some(Fault::every_write(DURABLE, ENOSPC)));
    assert!(ledger.keep_pod(&pod(UID), &first, at(0)).unwrap().error().is_some());
    assert!(matches!(ledger.keep_pod(&pod(UID), &first, at(10)).unwrap(), Outcome::Deferred { .. }));
    disk.fail(None);
    assert!(ledger.keep_pod(&pod(UID), &first, at(1000)).unwrap().is_written());
    assert!(matches!(ledger.keep_pod(&pod(UID), &first, at(1001)).unwrap(), Outcome::Unchanged));
    drop(ledger);
    let mut opened = open_well(&disk);
    assert_eq!(opened.pods[0].copy.as_ref(), Some(&first));
    assert!(matches!(opened.ledger.keep_pod(&pod(UID), &first, at(2000)).unwrap(), Outcome::Unchanged));
    assert!(opened.ledger.keep_pod(&pod(UID), &json!({}), at(2000)).unwrap().is_written());
}

#[test]
fn a_pod_that_would_not_be_readable_again_is_not_written() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let huge = json!({"blob": "x".repeat(keelet_ledger::LARGEST_FILE)});
    assert_eq!(ledger.keep_pod(&pod(UID), &huge, at(0)).unwrap().error().unwrap().step, WriteStep::Encode);
}

#[test]
fn one_pod_that_fails_in_a_batch_does_not_delay_the_others() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    disk.fail(Some(Fault::every_write(&format!("{DURABLE}/pods/b"), EIO)));
    let pods = [pod("a"), pod("b"), pod("c")];
    let one = Arc::new(evidence(1));
    let entries = pods.each_ref().map(|pod| PodCommit { pod, evidence: &one, results: &[], why: None });
    let outcomes = ledger.commit_many(&entries, at(0));
    let written: Vec<bool> = outcomes.iter().map(|outcome| outcome.as_ref().unwrap().durable.is_written()).collect();
    assert_eq!(written, [true, false, true]);
    assert_eq!(disk.count(Op::SyncDir, &format!("{DURABLE}/pods/a")), 1);
}

#[test]
fn two_entries_of_one_pod_in_a_batch_are_two_commits() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let pod = pod(UID);
    let (first, second) = (Arc::new(evidence(1)), Arc::new(evidence(2)));
    let entries = [&first, &second].map(|evidence| PodCommit { pod: &pod, evidence, results: &[], why: None });
    let outcomes = ledger.commit_many(&entries, at(0));
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().unwrap().durable.is_written()));
    drop(ledger);
    assert_eq!(open_well(&disk).pods[0].evidence, *second);
}

/// KEEP-20, BACK-5: the volatile tier fails a commit that the durable one accepts, and the agent restarts: the durable
/// evidence is newer, and the volatile file does not replace it with the older one.
#[test]
fn durable_evidence_that_is_newer_than_what_the_volatile_file_carries_wins() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    assert!(commit(&mut ledger, UID, &evidence(1), 0).volatile.is_written());
    disk.fail(Some(Fault::every_write(VOLATILE, ENOSPC)));
    let committed = commit(&mut ledger, UID, &evidence(2), 1000);
    assert!(committed.volatile.error().is_some() && committed.durable.is_written(), "{committed:?}");
    drop(ledger);
    disk.fail(None);
    let mut opened = open_well(&disk);
    let found = opened.pods[0].evidence.clone();
    assert_eq!(found.durable.version, evidence(2).durable.version, "an older state was loaded");
    assert_eq!(found.durable, evidence(2).durable);
    assert_eq!(found.volatile, evidence(1).volatile, "the volatile evidence cannot be newer than its file");
    // The next commit brings both tiers to the same state, although nothing changed.
    let committed = commit(&mut opened.ledger, UID, &found, 2000);
    assert!(committed.volatile.is_written(), "{committed:?}");
    drop(opened);
    assert_eq!(open_well(&disk).pods[0].evidence, found);
}
