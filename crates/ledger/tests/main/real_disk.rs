//! What only a real file system can show: locks, permissions, links, full and read-only disks.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use keelet_ledger::{BadUid, Fate, Ledger, OpenError, Opened, Outcome, PodCommit, Settings};
use keelet_lifecycle::{Moment, observed::Absence};
use rustix::mount::MountFlags;
use serde_json::json;

use crate::sample::{BOOT, OTHER_BOOT, UID, at, evidence, pod};

fn settings(root: &Path) -> Settings {
    Settings::new(root.join("durable"), root.join("run"), BOOT)
}

fn open(root: &Path) -> Opened {
    Ledger::open(settings(root)).unwrap()
}

#[test]
fn two_agents_cannot_open_one_ledger() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    let error = Ledger::open(settings(directory.path())).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "another keelet agent (pid {}) is using {}; two agents must not share a ledger",
            std::process::id(),
            directory.path().join("durable").display()
        )
    );
    // Nor an agent that shares only one of the two directories.
    let half = Settings { volatile_root: directory.path().join("elsewhere"), ..settings(directory.path()) };
    assert!(matches!(Ledger::open(half), Err(OpenError::Locked { .. })));
    let half = Settings { durable_root: directory.path().join("elsewhere"), ..settings(directory.path()) };
    assert!(matches!(Ledger::open(half), Err(OpenError::Locked { .. })));
    drop(first);
    drop(open(directory.path()));
}

/// DIR-1: directories that cannot be made when the ledger is opened are locked as soon as they are made.
#[test]
fn a_ledger_whose_directories_are_made_later_is_locked_too() {
    let directory = tempfile::tempdir().unwrap();
    let in_the_way = directory.path().join("late");
    fs::write(&in_the_way, "not a directory").unwrap();
    let settings = settings(&in_the_way);
    let mut first = Ledger::open(settings.clone()).unwrap();
    assert!(!first.troubles.is_empty(), "nothing can be made here");
    fs::remove_file(&in_the_way).unwrap();
    let entry = PodCommit { pod: &pod(UID), evidence: &Arc::new(evidence(1)), results: &[], why: None };
    let committed = first.ledger.commit(&entry, at(0)).unwrap();
    assert!(committed.durable.is_written() && committed.volatile.is_written(), "{committed:?}");
    let second = Ledger::open(settings.clone());
    assert!(matches!(second, Err(OpenError::Locked { .. })), "{second:?}");
    // A ledger that is refused for one directory leaves nothing in the other.
    let elsewhere = directory.path().join("elsewhere");
    let half = Settings { durable_root: elsewhere.clone(), ..settings };
    assert!(matches!(Ledger::open(half), Err(OpenError::Locked { .. })));
    assert!(!elsewhere.exists(), "the refused ledger has made {}", elsewhere.display());
}

/// A child of an agent that died holds its lock for a moment, and the next agent waits for that.
#[test]
fn an_agent_waits_for_a_lock_that_is_released_soon() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    let holder = std::thread::spawn(move || {
        #[expect(clippy::disallowed_methods, reason = "a lock that is held for a while")]
        std::thread::sleep(Duration::from_millis(20));
        drop(first);
    });
    drop(open(directory.path()));
    holder.join().unwrap();
}

#[test]
fn a_ledger_may_move_to_the_thread_that_writes() {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = open(directory.path());
    let write = move || {
        let entry = PodCommit { pod: &pod(UID), evidence: &Arc::new(evidence(1)), results: &[], why: None };
        let committed = opened.ledger.commit(&entry, at(0)).unwrap();
        assert!(committed.durable.is_written() && committed.volatile.is_written(), "{committed:?}");
        opened
    };
    let opened = std::thread::spawn(write).join().unwrap();
    let second = Ledger::open(settings(directory.path()));
    assert!(matches!(second, Err(OpenError::Locked { .. })), "the lock was lost: {second:?}");
    drop(opened);
    let found = open(directory.path()).pods;
    assert_eq!(found.len(), 1, "the other thread's commit is missing");
    assert_eq!(found[0].evidence, evidence(1));
}

#[test]
fn one_directory_cannot_be_both_tiers() {
    let error = Ledger::open(Settings::new("/x", "/x", BOOT)).unwrap_err();
    assert!(matches!(error, OpenError::SameRoot { .. }));
}

#[test]
fn files_are_for_the_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = open(directory.path()).ledger;
    let entry = PodCommit { pod: &pod(UID), evidence: &Arc::new(evidence(0)), results: &[], why: None };
    let _ = ledger.commit(&entry, at(0)).unwrap();
    for tier in ["durable", "run"] {
        let pod = directory.path().join(tier).join("pods").join(UID);
        assert_eq!(format!("{:o}", fs::metadata(&pod).unwrap().permissions().mode() & 0o777), "700");
        assert_eq!(
            format!("{:o}", fs::metadata(pod.join("evidence.json")).unwrap().permissions().mode() & 0o777),
            "600"
        );
    }
}

#[test]
fn odd_uids_stay_inside_and_impossible_ones_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("a/b/c");
    let mut ledger = open(&root).ledger;
    let evidence = Arc::new(evidence(0));
    let mut try_uid = |uid: &str| {
        ledger.commit(&PodCommit { pod: &pod(uid), evidence: &evidence, results: &[], why: None }, at(0)).map(|_| ())
    };
    for uid in ["../../etc", "..", "a/b", "ünïcode", "with space", "\u{0}"] {
        try_uid(uid).unwrap();
    }
    assert_eq!(try_uid(""), Err(BadUid::Empty));
    assert!(matches!(try_uid(&"x".repeat(300)), Err(BadUid::TooLong { bytes: 300, .. })));
    drop(ledger);
    let mut outside: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    outside.sort();
    assert_eq!(outside, ["durable", "run"]);
    let opened = open(&root);
    assert!(opened.losses.is_empty());
    let mut uids: Vec<&str> = opened.pods.iter().map(|pod| pod.uid.as_str()).collect();
    uids.sort_unstable();
    assert_eq!(uids, ["\u{0}", "..", "../../etc", "a/b", "with space", "ünïcode"]);
}

#[test]
fn a_removed_pod_does_not_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = open(directory.path()).ledger;
    let entry = PodCommit { pod: &pod(UID), evidence: &Arc::new(evidence(0)), results: &[], why: None };
    let _ = ledger.commit(&entry, at(0)).unwrap();
    let _ = ledger.keep_pod(&pod(UID), &json!({}), at(0)).unwrap();
    ledger.remove(UID, at(0)).unwrap();
    ledger.remove(UID, at(0)).unwrap();
    ledger.remove("never there", at(0)).unwrap();
    ledger.remove("", at(0)).unwrap();
    assert_eq!(ledger.uids().count(), 0);
    drop(ledger);
    for tier in ["durable", "run"] {
        assert_eq!(fs::read_dir(directory.path().join(tier).join("pods")).unwrap().count(), 0);
    }
    // A pod with the same UID starts without evidence.
    let mut opened = open(directory.path());
    assert!(opened.pods.is_empty());
    let _ = opened.ledger.commit(&entry, at(0)).unwrap();
    drop(opened);
    assert_eq!(open(directory.path()).pods[0].durable, Fate::Kept { generation: 1 });
}

#[test]
fn the_heartbeat_gives_the_length_of_the_agents_absence() {
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = open(directory.path()).ledger;
    assert_eq!(ledger.absence(at(0)), None);
    let mut written = (0, 0);
    for second in 0..100 {
        let beat = ledger.beat(at(second * 1000));
        written.0 += i32::from(beat.volatile.is_written());
        written.1 += i32::from(beat.durable.is_written());
    }
    assert_eq!(written, (50, 2));
    drop(ledger);
    // Killed, and started again within the boot: exact to two seconds, by boot time, whatever the wall clock says.
    let wrong_wall = Moment { wall: at(-5_000_000).wall, ..at(130_000) };
    let opened = open(directory.path());
    assert_eq!(opened.ledger.absence(wrong_wall).unwrap().as_secs(), 130 - 98);
    drop(opened);
    // After a reboot tmpfs is empty: by wall time, exact to a minute.
    fs::remove_dir_all(directory.path().join("run")).unwrap();
    let rebooted = Settings { boot_id: OTHER_BOOT, ..settings(directory.path()) };
    let mut opened = Ledger::open(rebooted.clone()).unwrap();
    let later = Moment { boot_ms: 20_000, wall: at(200_000).wall, boot_id: OTHER_BOOT };
    assert_eq!(opened.ledger.absence(later).unwrap().as_secs(), 200 - 60);
    // A clean stop is on the durable disk at once.
    assert!(opened.ledger.stop(later).is_empty());
    drop(opened);
    fs::remove_dir_all(directory.path().join("run")).unwrap();
    assert_eq!(Ledger::open(rebooted).unwrap().ledger.last_seen(), Some(later));
}

/// KEEP-20: the heartbeat of a run that planned no pod does not hide how long no agent ran before it.
#[test]
fn the_heartbeat_carries_a_long_absence() {
    let directory = tempfile::tempdir().unwrap();
    let absence = Absence { until: at(90_000), away: Duration::from_secs(80) };
    let mut ledger = open(directory.path()).ledger;
    assert_eq!(ledger.long_absence(), None);
    ledger.set_long_absence(Some(absence));
    let _ = ledger.beat(at(90_000));
    drop(ledger);
    let mut ledger = open(directory.path()).ledger;
    assert_eq!((ledger.last_seen(), ledger.long_absence()), (Some(at(90_000)), Some(absence)));
    let _ = ledger.beat(at(100_000));
    drop(ledger);
    let ledger = open(directory.path()).ledger;
    assert_eq!((ledger.last_seen(), ledger.long_absence()), (Some(at(100_000)), Some(absence)));
}

#[test]
fn a_damaged_heartbeat_is_a_loss_and_the_other_one_counts() {
    let directory = tempfile::tempdir().unwrap();
    let _ = open(directory.path()).ledger.beat(at(0));
    fs::write(directory.path().join("run/heartbeat.json"), "{").unwrap();
    let opened = open(directory.path());
    assert_eq!(opened.losses.len(), 1);
    assert!(directory.path().join("run/heartbeat.json.corrupt-1").is_file());
    assert_eq!(opened.ledger.last_seen(), Some(at(0)));
}

/// A real file system of 64 KiB, unmounted at the end. Mounted by system call: a `mount` process would hold the locks
/// of the tests beside this one between its fork and its exec.
struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    /// `None` where nothing may be mounted.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = rustix::mount::mount("tmpfs", directory.path(), "tmpfs", MountFlags::empty(), c"size=64k");
        mounted.is_ok().then(|| Self(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn remount(&self, flags: MountFlags) {
        rustix::mount::mount_remount(self.path(), flags, c"size=64k").unwrap();
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

fn skipped() {
    keelet_report::skipped("mounting a tmpfs needs root");
}

#[test]
fn a_disk_that_is_really_full_keeps_the_old_file_and_recovers() {
    let Some(disk) = TinyDisk::mount() else { return skipped() };
    let elsewhere = tempfile::tempdir().unwrap();
    let settings = Settings::new(disk.path().join("ledger"), elsewhere.path(), BOOT);
    let mut ledger = Ledger::open(settings.clone()).unwrap().ledger;
    let web = pod(UID);
    let (old, new) = (Arc::new(evidence(1)), Arc::new(evidence(2)));
    let entry = |evidence| PodCommit { pod: &web, evidence, results: &[], why: None };
    assert!(ledger.commit(&entry(&old), at(0)).unwrap().durable.is_written());
    // Fill it to the last byte.
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![0; 64 << 10]).unwrap_err();
    let failed = ledger.commit(&entry(&new), at(1000)).unwrap();
    assert_eq!(failed.durable.error().unwrap().source.kind(), std::io::ErrorKind::StorageFull);
    assert!(failed.volatile.is_written());
    let snapshot = keelet_ledger::Snapshot::take(&settings.durable_root, Path::new("/nowhere"), BOOT);
    assert_eq!(snapshot.pods[0].evidence.durable, old.durable);
    fs::remove_file(ballast).unwrap();
    let recovered = ledger.commit(&entry(&new), at(2000)).unwrap();
    assert!(matches!(recovered.durable, Outcome::Written { after_failures: 1 }));
    drop(ledger);
    assert_eq!(Ledger::open(settings).unwrap().pods[0].evidence, *new);
}

#[test]
fn a_disk_that_is_really_read_only_is_read_and_locked() {
    let Some(disk) = TinyDisk::mount() else { return skipped() };
    let elsewhere = tempfile::tempdir().unwrap();
    let settings = Settings::new(disk.path().join("ledger"), elsewhere.path(), BOOT);
    let web = pod(UID);
    let (old, new) = (Arc::new(evidence(1)), Arc::new(evidence(2)));
    let entry = |evidence| PodCommit { pod: &web, evidence, results: &[], why: None };
    let _ = Ledger::open(settings.clone()).unwrap().ledger.commit(&entry(&old), at(0)).unwrap();
    disk.remount(MountFlags::RDONLY);
    let mut opened = Ledger::open(settings.clone()).unwrap();
    assert_eq!(opened.pods[0].evidence, *old);
    assert!(matches!(Ledger::open(settings.clone()), Err(OpenError::Locked { .. })));
    let failed = opened.ledger.commit(&entry(&new), at(1000)).unwrap();
    assert_eq!(failed.durable.error().unwrap().source.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    drop(opened);
    let mut opened = Ledger::open(settings).unwrap();
    assert_eq!(opened.pods[0].evidence, *new, "the evidence is on tmpfs");
    disk.remount(MountFlags::empty());
    assert!(opened.ledger.commit(&entry(&new), at(3000)).unwrap().durable.is_written());
    drop(opened);
}
