//! The journal: bounded, written only when there are changes, and never a reason for evidence to fail.

use std::{cell::RefCell, collections::BTreeSet, fs, path::Path, rc::Rc, sync::Arc};

use keelet_ledger::{
    Damage, Kind, Ledger, Opened, Outcome, Place, PodCommit, Recovered, Settings, Snapshot, WriteStep,
};
use keelet_lifecycle::{Evidence, journal::What};

use crate::{
    disk::{ENOSPC, Fault, Op, SimDisk},
    sample::{BOOT, DURABLE, OTHER_BOOT, UID, at, commit, evidence, open, open_well, pass, pod, settings},
};

const JOURNAL: &str = "/var/keelet/ledger/pods/0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11/journal.json";

/// The restart counts in the journal of the one pod.
fn counts(opened: &Opened<SimDisk>) -> Vec<u32> {
    counted(&opened.pods[0])
}

fn counted(pod: &Recovered) -> Vec<u32> {
    let of = |what: &What| match what {
        What::RestartCount { container, count } if container == "app" => Some(*count),
        _ => None,
    };
    pod.journal.iter().filter_map(|note| of(&note.what)).collect()
}

#[test]
fn changes_outlive_the_agent_and_the_node() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let _ = commit(&mut ledger, UID, &evidence(0), 0);
    assert!(commit(&mut ledger, UID, &evidence(1), 1000).journal.is_written());
    drop(ledger);
    let mut opened = open_well(&disk);
    assert_eq!(opened.pods[0].journal[0].what, What::Seen);
    assert_eq!(counts(&opened), [1]);
    let _ = commit(&mut opened.ledger, UID, &evidence(2), 2000);
    drop(opened);
    let opened = Ledger::open_on(disk, Settings { boot_id: OTHER_BOOT, ..settings() }).unwrap();
    assert!(opened.losses.is_empty(), "{:?}", opened.losses);
    assert_eq!(counts(&opened), [1, 2]);
    assert_eq!(opened.pods[0].journal.last().unwrap().at, at(2000));
}

#[test]
fn the_newest_two_hundred_changes_are_kept() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    for restarts in 0..100 {
        let _ = commit(&mut ledger, UID, &evidence(restarts), i64::from(restarts) * 1000);
    }
    drop(ledger);
    let opened = open_well(&disk);
    assert_eq!(opened.pods[0].journal.len(), 200);
    assert_eq!(counts(&opened).last(), Some(&99));
    assert!(counts(&opened).len() > 30);
}

/// Wherever the agent dies, evidence, the reasons of its status and its changes are found together, and no change
/// twice.
#[test]
fn the_journal_and_the_reasons_go_with_the_evidence() {
    let mut found = BTreeSet::new();
    for call in 0.. {
        let disk = SimDisk::default();
        let mut ledger = open_well(&disk).ledger;
        let _ = commit(&mut ledger, UID, &evidence(0), 0);
        disk.forget_calls();
        disk.crash_at(call);
        for restarts in 1..4 {
            let evidence = Arc::new(evidence(restarts));
            let entry =
                PodCommit { pod: &pod(UID), evidence: &evidence, results: &[], why: Some((restarts.into(), &[])) };
            let _ = ledger.commit(&entry, at(i64::from(restarts) * 1000));
        }
        if !disk.is_dead() {
            break;
        }
        drop(ledger);
        let opened = open_well(&disk.after_crash());
        let count = opened.pods[0].evidence.durable.containers["app"].restart_count;
        assert_eq!(counts(&opened), (1..=count).collect::<Vec<_>>(), "after {call} calls");
        let explained = opened.pods[0].explanation.as_ref().map_or(0, |explanation| explanation.status_version);
        assert_eq!(explained, u64::from(count), "after {call} calls");
        found.insert(count);
    }
    assert_eq!(found, BTreeSet::from([0, 1, 2, 3]));
}

/// KEEP-20: a passing probe is not a change.
#[test]
fn without_changes_the_journal_is_not_written() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let mut evidence = evidence(0);
    let _ = commit(&mut ledger, UID, &evidence, 0);
    disk.forget_calls();
    for n in 1..50 {
        pass(&mut evidence, n * 1000);
        assert!(matches!(commit(&mut ledger, UID, &evidence, n * 1000).journal, Outcome::Unchanged));
    }
    assert!(ledger.stop(at(60_000)).is_empty());
    assert_eq!(disk.writes(JOURNAL), 0);
    assert_eq!(disk.count(Op::Create, &JOURNAL.replace("journal.json", ".new-journal.json")), 0);
}

#[test]
fn a_journal_that_cannot_be_written_delays_nothing_and_catches_up() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    disk.fail(Some(Fault::every_write(&JOURNAL.replace("journal.json", ".new-journal.json"), ENOSPC)));
    let committed = commit(&mut ledger, UID, &evidence(1), 0);
    assert!(committed.durable.is_written() && committed.volatile.is_written());
    assert_eq!(committed.journal.error().unwrap().step, WriteStep::Create);
    // The same changes are not retried more than once a second; new ones are tried at once.
    assert!(
        matches!(commit(&mut ledger, UID, &evidence(1), 500).journal, Outcome::Deferred { until } if until == at(1000))
    );
    assert!(commit(&mut ledger, UID, &evidence(2), 600).journal.error().is_some());
    assert_eq!(ledger.flush(at(1700)).len(), 1);
    disk.fail(None);
    assert!(ledger.flush(at(2800)).is_empty());
    drop(ledger);
    assert_eq!(counts(&open_well(&disk)), [1, 2]);
}

#[test]
fn a_directory_that_only_the_journal_needs_is_still_synced_for_the_evidence() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    disk.fail(Some(Fault::on(Op::SyncFile, DURABLE, ENOSPC)));
    let committed = commit(&mut ledger, UID, &evidence(1), 0);
    assert!(committed.durable.error().is_some() && committed.journal.is_written());
    disk.fail(None);
    disk.forget_calls();
    assert!(commit(&mut ledger, UID, &evidence(1), 2000).durable.is_written());
    assert_eq!(disk.count(Op::SyncDir, DURABLE), 2);
}

#[test]
fn a_damaged_journal_is_set_aside_and_the_evidence_stays() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let _ = commit(&mut ledger, UID, &evidence(0), 0);
    let _ = commit(&mut ledger, UID, &evidence(1), 500);
    drop(ledger);
    let whole = disk.contents(JOURNAL).unwrap();
    disk.put(JOURNAL, whole[..whole.len() / 2].to_vec());
    let mut opened = open(&disk);
    assert_eq!(opened.losses.len(), 1, "{:?}", opened.losses);
    let loss = &opened.losses[0];
    assert_eq!(loss.kind, Some(Kind::Journal));
    assert!(matches!((&loss.why, &loss.place), (Damage::Malformed(_), Place::SetAside(_))), "{loss}");
    assert_eq!(opened.pods[0].evidence, evidence(1));
    assert!(opened.pods[0].journal.iter().all(|note| note.what != What::Seen), "earlier changes are lost");
    // The changes of the newest evidence and later ones begin a new journal.
    assert!(commit(&mut opened.ledger, UID, &evidence(2), 1000).journal.is_written());
    drop(opened);
    assert_eq!(counts(&open_well(&disk)), [1, 2]);
}

/// Without a sync a power cut may leave an empty file. That is not reported.
#[test]
fn an_empty_journal_is_as_good_as_none() {
    let disk = SimDisk::default();
    let _ = commit(&mut open_well(&disk).ledger, UID, &evidence(1), 0);
    disk.put(JOURNAL, Vec::new());
    let opened = Ledger::open_on(disk, Settings { boot_id: OTHER_BOOT, ..settings() }).unwrap();
    assert!(opened.losses.is_empty() && opened.pods[0].journal.is_empty());
}

/// KEEP-19: the heartbeat gives the length of the agent's absence.
#[test]
fn a_restarted_agent_records_how_long_none_was_running() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let _ = commit(&mut ledger, UID, &evidence(0), 0);
    let _ = ledger.beat(at(4000));
    drop(ledger);
    let mut ledger = open_well(&disk).ledger;
    let mut next: Evidence = evidence(0);
    next.volatile.agent_started = Some(at(9000));
    assert!(commit(&mut ledger, UID, &next, 9100).journal.is_written());
    drop(ledger);
    let opened = open_well(&disk);
    let note = opened.pods[0].journal.last().unwrap();
    assert_eq!(note.what, What::AgentStarted { last_seen: Some(at(4000)), rebooted: false });
    assert_eq!(note.at, at(9000));
}

fn frozen() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/journal-v1/journal.json")
}

/// KEEP-20: a frozen file of the first version, which came after the other formats' first.
#[test]
fn a_journal_of_version_1_is_loaded_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let pods = directory.path().join("durable/pods").join(UID);
    fs::create_dir_all(&pods).unwrap();
    fs::copy(frozen(), pods.join("journal.json")).unwrap();
    let settings = Settings::new(directory.path().join("durable"), directory.path().join("volatile"), BOOT);
    let opened = Ledger::open(settings).unwrap();
    assert!(opened.losses.is_empty(), "{:?}", opened.losses);
    assert_eq!(opened.pods[0].pod, Some(pod(UID)));
    let notes = serde_json::to_value(&opened.pods[0].journal).unwrap();
    let frozen: serde_json::Value = serde_json::from_slice(&fs::read(frozen()).unwrap()).unwrap();
    assert_eq!(notes, frozen["body"]["notes"]);
    let kinds: BTreeSet<String> = notes.as_array().unwrap().iter().map(|note| kind(&note["what"])).collect();
    assert_eq!(kinds.len(), 20, "one of each: {kinds:?}");
}

fn kind(what: &serde_json::Value) -> String {
    let key = what.as_object().and_then(|object| object.keys().next());
    key.map_or_else(|| what.to_string(), ToString::to_string)
}

/// Wherever in a reading an agent commits, a reader beside it sees evidence and journal of one moment.
#[test]
fn a_reader_beside_an_agent_sees_one_moment() {
    let mut found = BTreeSet::new();
    for read in 0.. {
        let disk = SimDisk::default();
        let ledger = Rc::new(RefCell::new(open_well(&disk).ledger));
        let commit_one = {
            let ledger = Rc::clone(&ledger);
            move |restarts| drop(commit(&mut ledger.borrow_mut(), UID, &evidence(restarts), i64::from(restarts) * 1000))
        };
        (0..2).for_each(&commit_one);
        disk.before_read(read, move || commit_one(2));
        let settings = settings();
        let snapshot = Snapshot::take_on(&disk, &settings.durable_root, &settings.volatile_root, settings.boot_id);
        let pod = &snapshot.pods[0];
        let count = pod.evidence.durable.containers["app"].restart_count;
        assert_eq!(counted(pod), (1..=count).collect::<Vec<_>>(), "a commit before read {read}");
        assert!(snapshot.losses.is_empty(), "{:?}", snapshot.losses);
        found.insert(count);
        if disk.was_not_read() {
            break;
        }
    }
    assert_eq!(found, BTreeSet::from([1, 2]));
}
