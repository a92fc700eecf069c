//! Files that cannot be used: set aside, reported, and nothing invented in their place.

use std::{fs, os::unix::fs::symlink, path::PathBuf, sync::Arc};

use keelet_ledger::{
    Damage, Fate, Kind, LARGEST_FILE, Ledger, Loss, OpenError, Opened, Place, PodCommit, Settings, Snapshot,
};
use keelet_lifecycle::{Evidence, evidence::Durable};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    disk::{EACCES, EIO, EMFILE, ENFILE, ENOMEM, Fault, Op, SimDisk},
    sample::{self, BOOT, DURABLE, OTHER_BOOT, UID, VOLATILE, at, evidence, pod, record},
};

/// A ledger in real directories with one pod in it.
struct Node {
    directory: TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self { directory: tempfile::tempdir().unwrap() };
        let mut ledger = node.open().ledger;
        let results = [record("app", keelet_pod::ProbeKind::Readiness, 5, "ok")];
        let entry =
            PodCommit { pod: &pod(UID), evidence: &Arc::new(evidence(2)), results: &results, why: Some((3, &[])) };
        let committed = ledger.commit(&entry, at(0)).unwrap();
        assert!(committed.durable.is_written() && committed.volatile.is_written());
        assert!(ledger.keep_pod(&pod(UID), &json!({"kind": "Pod"}), at(0)).unwrap().is_written());
        node
    }

    fn settings(&self) -> Settings {
        Settings::new(self.directory.path().join("durable"), self.directory.path().join("run"), BOOT)
    }

    fn open(&self) -> Opened {
        Ledger::open(self.settings()).unwrap()
    }

    /// After a reboot only the durable files count.
    fn reboot(&self) -> Opened {
        let _ = fs::remove_dir_all(self.directory.path().join("run"));
        Ledger::open(Settings { boot_id: OTHER_BOOT, ..self.settings() }).unwrap()
    }

    fn durable(&self, file: &str) -> PathBuf {
        self.directory.path().join("durable/pods").join(UID).join(file)
    }

    fn volatile(&self, file: &str) -> PathBuf {
        self.directory.path().join("run/pods").join(UID).join(file)
    }
}

/// The one loss, which was set aside with its contents.
fn the_loss(opened: &Opened) -> &Loss {
    assert_eq!(opened.losses.len(), 1, "{:?}", opened.losses);
    let loss = &opened.losses[0];
    let Place::SetAside(to) = &loss.place else { panic!("{loss}") };
    assert!(fs::symlink_metadata(to).is_ok() && fs::symlink_metadata(&loss.file).is_err(), "{loss}");
    loss
}

/// A simulated node with one pod, after a reboot that replaced its durable evidence by this.
fn rebooted_with(disk: &SimDisk, contents: &[u8]) -> Opened<SimDisk> {
    let disk = disk.after_crash();
    disk.put(&format!("{DURABLE}/pods/{UID}/evidence.json"), contents.to_vec());
    Ledger::open_on(disk, Settings { boot_id: OTHER_BOOT, ..sample::settings() }).unwrap()
}

fn simulated() -> (SimDisk, Vec<u8>) {
    let disk = SimDisk::default();
    let mut ledger = sample::open_well(&disk).ledger;
    assert!(ledger.keep_pod(&pod(UID), &json!({"kind": "Pod"}), at(0)).unwrap().is_written());
    let mut small = Evidence::default();
    small.durable.containers.insert("app".to_owned(), evidence(2).durable.containers["app"].clone());
    assert!(sample::commit(&mut ledger, UID, &small, 0).durable.is_written());
    let whole = disk.contents(&format!("{DURABLE}/pods/{UID}/evidence.json")).unwrap();
    (disk, whole)
}

#[test]
fn a_file_cut_off_at_any_length_is_set_aside_and_the_rest_is_loaded() {
    let (disk, whole) = simulated();
    for length in 0..whole.len() {
        let opened = rebooted_with(&disk, &whole[..length]);
        assert_eq!(opened.losses.len(), 1, "{length}");
        let loss = &opened.losses[0];
        assert_eq!((loss.kind, loss.uid.as_deref()), (Some(Kind::Durable), Some(UID)));
        assert!(matches!(loss.place, Place::SetAside(_)), "{loss}");
        let found = &opened.pods[0];
        assert_eq!((found.durable, found.volatile), (Fate::Lost, Fate::OtherBoot));
        assert_eq!(found.evidence, Evidence::default());
        assert_eq!(found.copy, Some(json!({"kind": "Pod"})));
        assert_eq!(found.pod, Some(pod(UID)));
    }
    assert!(rebooted_with(&disk, &whole).losses.is_empty());
}

#[test]
fn a_flipped_bit_anywhere_is_never_taken_for_evidence() {
    let (disk, whole) = simulated();
    for index in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[index] ^= 1 << (index % 8);
        let opened = rebooted_with(&disk, &flipped);
        assert_eq!(opened.losses.len(), 1, "{index}");
        assert_eq!(opened.pods[0].evidence.durable, Durable::default());
    }
}

#[test]
fn of_those_set_aside_the_newest_four_are_kept() {
    let node = Node::new();
    for n in 1..=6 {
        fs::write(node.durable("evidence.json"), format!("garbage {n}")).unwrap();
        the_loss(&node.reboot());
    }
    assert!(!node.durable("evidence.json.corrupt-2").exists());
    for n in 3..=6 {
        let kept = fs::read_to_string(node.durable(&format!("evidence.json.corrupt-{n}"))).unwrap();
        assert_eq!(kept, format!("garbage {n}"));
    }
}

#[test]
fn within_a_boot_a_damaged_durable_file_loses_nothing() {
    let node = Node::new();
    fs::write(node.durable("evidence.json"), b"garbage").unwrap();
    let mut opened = node.open();
    the_loss(&opened);
    assert!(matches!(opened.pods[0].durable, Fate::Kept { .. }));
    assert_eq!(opened.pods[0].evidence, evidence(2));
    // The next commit writes it again, although nothing has changed.
    let entry = PodCommit { pod: &pod(UID), evidence: &Arc::new(evidence(2)), results: &[], why: None };
    assert!(opened.ledger.commit(&entry, at(1)).unwrap().durable.is_written());
    drop(opened);
    assert_eq!(node.reboot().pods[0].evidence.durable, evidence(2).durable);
}

#[test]
fn a_damaged_volatile_file_leaves_the_durable_evidence() {
    for (file, kind) in [("evidence.json", Kind::Volatile), ("history.json", Kind::History)] {
        let node = Node::new();
        fs::write(node.volatile(file), b"{}").unwrap();
        let opened = node.open();
        assert_eq!(the_loss(&opened).kind, Some(kind));
        let found = &opened.pods[0];
        assert_eq!(found.evidence.durable, evidence(2).durable);
        assert_eq!(found.history.is_empty(), kind == Kind::History);
        assert_eq!(found.explanation.is_none(), kind == Kind::Volatile);
        assert_eq!(found.volatile == Fate::Lost, kind == Kind::Volatile);
    }
}

#[test]
fn a_file_of_a_newer_keelet_is_set_aside_whole_and_reported() {
    let node = Node::new();
    let newer = br#"{"format": "keelet.evidence.durable", "version": 2, "body": {"wonders": true}}"#;
    fs::write(node.durable("evidence.json"), newer).unwrap();
    let opened = node.reboot();
    let loss = the_loss(&opened);
    assert!(matches!(loss.why, Damage::Newer { found: 2, known: 1 }));
    let Place::SetAside(to) = &loss.place else { panic!("{loss}") };
    assert_eq!(fs::read(to).unwrap(), newer);
    assert_eq!(
        loss.to_string(),
        format!(
            "{0} (restart counts, backoff, exits and last status): written by a newer keelet (format version 2; this \
             version reads up to 1): use that keelet to read it; set aside as {0}.corrupt-1",
            loss.file.display()
        )
    );
}

#[test]
fn directories_and_links_in_place_of_files_are_set_aside() {
    let node = Node::new();
    let path = node.durable("evidence.json");
    for what in ["directory", "symlink", "dangling symlink", "pipe", "huge"] {
        let _ = fs::remove_file(&path);
        match what {
            "directory" => fs::create_dir(&path).unwrap(),
            "symlink" => symlink(node.durable("pod.json"), &path).unwrap(),
            "dangling symlink" => symlink("/nowhere", &path).unwrap(),
            "pipe" => rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap(),
            _ => fs::File::create(&path).unwrap().set_len(LARGEST_FILE as u64 + 1).unwrap(),
        }
        let opened = node.reboot();
        let loss = the_loss(&opened);
        assert!(matches!(loss.why, Damage::Unreadable(_)), "{what}: {loss}");
        assert_eq!(opened.pods[0].durable, Fate::Lost, "{what}");
        assert!(opened.pods[0].copy.is_some(), "{what}");
    }
}

#[test]
fn the_evidence_of_another_pod_is_not_taken() {
    let node = Node::new();
    let other = node.directory.path().join("durable/pods/other");
    fs::create_dir(&other).unwrap();
    fs::copy(node.durable("evidence.json"), other.join("evidence.json")).unwrap();
    let opened = node.reboot();
    assert!(matches!(&the_loss(&opened).why, Damage::WrongPod { found } if found == UID));
    assert_eq!(opened.pods.len(), 2);
    assert_eq!(opened.pods[0].evidence.durable, evidence(2).durable);
    assert_eq!(opened.pods[1].durable, Fate::Lost);
}

#[test]
fn unknown_files_among_the_pods_are_reported_and_not_moved() {
    let node = Node::new();
    let pods = node.directory.path().join("durable/pods");
    fs::create_dir(pods.join("lost+found")).unwrap();
    fs::write(pods.join("a.txt"), "mine").unwrap();
    fs::write(pods.join("uid-that-is-a-file"), "").unwrap();
    let opened = node.open();
    assert_eq!(opened.losses.len(), 3, "{:?}", opened.losses);
    assert!(pods.join("lost+found").is_dir());
    assert_eq!(fs::read(pods.join("a.txt")).unwrap(), b"mine");
    assert!(pods.join("uid-that-is-a-file.corrupt-1").is_file());
    assert_eq!(opened.pods.len(), 1);
}

/// Root ignores permission bits, so the simulated disk refuses by itself.
#[test]
fn a_file_that_the_disk_refuses_to_read_is_set_aside() {
    for errno in [EACCES, EIO] {
        let disk = SimDisk::default();
        let _ = sample::commit(&mut sample::open_well(&disk).ledger, UID, &evidence(1), 0);
        disk.fail(Some(Fault::on(Op::Read, &format!("{DURABLE}/pods/{UID}/evidence.json"), errno)));
        let opened = sample::open(&disk);
        assert_eq!(opened.losses.len(), 1);
        assert!(matches!(&opened.losses[0].why, Damage::Unreadable(error) if error.raw_os_error() == Some(errno)));
        assert!(matches!(opened.losses[0].place, Place::SetAside(_)));
        assert_eq!(opened.pods[0].evidence, evidence(1));
    }
}

/// A start on a node without open files loses nothing at any call, and the next start finds everything.
#[test]
fn a_node_without_open_files_has_lost_nothing() {
    for errno in [EMFILE, ENFILE, ENOMEM] {
        for (op, under) in [
            (Op::Lock, DURABLE.to_owned()),
            (Op::List, format!("{VOLATILE}/pods")),
            (Op::List, format!("{VOLATILE}/pods/{UID}")),
            (Op::Read, format!("{DURABLE}/pods/{UID}/evidence.json")),
            (Op::Read, format!("{VOLATILE}/pods/{UID}/evidence.json")),
            (Op::Read, format!("{VOLATILE}/heartbeat.json")),
        ] {
            let disk = SimDisk::default();
            let mut ledger = sample::open_well(&disk).ledger;
            let _ = sample::commit(&mut ledger, UID, &evidence(1), 0);
            let _ = ledger.stop(at(0));
            drop(ledger);
            disk.fail(Some(Fault::on(op, &under, errno)));
            let Err(OpenError::Shortage { path, error, others }) = Ledger::open_on(disk.clone(), sample::settings())
            else {
                panic!("{op:?} {under} {errno}: opened");
            };
            assert!(path.starts_with(&under), "{} {under}", path.display());
            assert_eq!((error.raw_os_error(), others.len()), (Some(errno), 0));
            disk.fail(None);
            let opened = sample::open_well(&disk);
            assert_eq!(opened.pods[0].evidence, evidence(1));
            assert!(opened.ledger.last_seen().is_some());
        }
    }
}

/// Damage is reported even then, because the next start finds the file set aside already and reports nothing.
#[test]
fn a_start_without_open_files_reports_what_it_set_aside() {
    let disk = SimDisk::default();
    let _ = sample::commit(&mut sample::open_well(&disk).ledger, UID, &evidence(1), 0);
    disk.put(&format!("{DURABLE}/pods/{UID}/evidence.json"), b"garbage".to_vec());
    disk.fail(Some(Fault::on(Op::Read, &format!("{VOLATILE}/pods/{UID}/evidence.json"), EMFILE)));
    let error = match Ledger::open_on(disk.clone(), sample::settings()) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("opened without files"),
    };
    assert!(error.contains("another problem: ") && error.contains("evidence.json.corrupt-1"), "{error}");
}

#[test]
fn a_file_that_cannot_be_set_aside_is_never_overwritten() {
    let disk = SimDisk::default();
    let _ = sample::commit(&mut sample::open_well(&disk).ledger, UID, &evidence(1), 0);
    let path = format!("{DURABLE}/pods/{UID}/evidence.json");
    disk.put(&path, b"from the future".to_vec());
    disk.fail(Some(Fault::on(Op::RenameAside, DURABLE, EACCES)));
    let mut opened = sample::open(&disk);
    assert!(matches!(opened.losses[0].place, Place::Stuck(_)));
    let committed = sample::commit(&mut opened.ledger, UID, &evidence(2), 1000);
    let error = committed.durable.error().unwrap();
    assert_eq!(error.step, keelet_ledger::WriteStep::SetAside);
    assert_eq!(disk.contents(&path).unwrap(), b"from the future");
    // Once it can be moved, it is, and the evidence takes its place.
    disk.fail(None);
    let committed = sample::commit(&mut opened.ledger, UID, &evidence(2), 3000);
    assert!(committed.durable.is_written());
    assert_eq!(disk.contents(&format!("{path}.corrupt-1")).unwrap(), b"from the future");
}

#[test]
fn an_outdated_durable_file_is_noticed_and_the_newer_evidence_wins() {
    let disk = SimDisk::default();
    let path = format!("{DURABLE}/pods/{UID}/evidence.json");
    let mut ledger = sample::open_well(&disk).ledger;
    let _ = sample::commit(&mut ledger, UID, &evidence(1), 0);
    let backup = disk.contents(&path).unwrap();
    let _ = sample::commit(&mut ledger, UID, &evidence(2), 1000);
    let _ = sample::commit(&mut ledger, UID, &evidence(3), 2000);
    drop(ledger);
    disk.put(&path, backup);
    let opened = sample::open(&disk);
    assert!(matches!(opened.losses[0].why, Damage::WentBack { found: 1, confirmed: 2 }), "{:?}", opened.losses);
    assert_eq!(opened.pods[0].evidence, evidence(3));
}

/// A file with other content and the right checksum.
fn resealed(file: &[u8], word: &str, other: &str) -> Vec<u8> {
    const SEAL: &str = ",\n  \"crc32\": \"";
    let text = std::str::from_utf8(file).unwrap();
    let (contents, _) = text.rsplit_once(SEAL).unwrap();
    assert!(contents.contains(word), "{contents}");
    let contents = contents.replacen(word, other, 1);
    let crc = contents.bytes().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
    });
    format!("{contents}{SEAL}{:08x}\"\n}}\n", !crc).into_bytes()
}

/// The next commit would overflow the generation, or look older than the file.
#[test]
fn invalid_generations_are_a_loss_and_the_next_commit_succeeds() {
    let largest = format!("\"generation\": {}", u64::MAX);
    for (file, word, other) in [
        (format!("{DURABLE}/pods/{UID}/evidence.json"), "\"generation\": 1", largest.as_str()),
        (format!("{VOLATILE}/pods/{UID}/evidence.json"), "\"generation\": 1", &largest),
        (format!("{VOLATILE}/pods/{UID}/evidence.json"), "\"durableGeneration\": 1", "\"durableGeneration\": 9"),
        (format!("{VOLATILE}/pods/{UID}/evidence.json"), "\"durableOnDisk\": 0", "\"durableOnDisk\": 9"),
    ] {
        let disk = SimDisk::default();
        let _ = sample::commit(&mut sample::open_well(&disk).ledger, UID, &evidence(1), 0);
        disk.put(&file, resealed(&disk.contents(&file).unwrap(), word, other));
        let mut opened = sample::open(&disk);
        assert_eq!(opened.losses.len(), 1, "{other}: {:?}", opened.losses);
        let loss = &opened.losses[0];
        assert!(matches!(loss.why, Damage::Generation { .. }) && loss.file.as_os_str() == &*file, "{other}: {loss}");
        assert_eq!(opened.pods[0].evidence.durable, evidence(1).durable, "{other}");
        let _ = sample::commit(&mut opened.ledger, UID, &evidence(2), 1000);
        drop(opened.ledger);
        assert_eq!(sample::open_well(&disk).pods[0].evidence, evidence(2), "{other}");
    }
}

#[test]
fn a_durable_directory_that_vanished_is_noticed() {
    let disk = SimDisk::default();
    let mut ledger = sample::open_well(&disk).ledger;
    let _ = sample::commit(&mut ledger, UID, &evidence(1), 0);
    let _ = sample::commit(&mut ledger, UID, &evidence(2), 1000);
    drop(ledger);
    keelet_ledger::Disk::remove(&disk, format!("{DURABLE}/pods/{UID}").as_ref()).unwrap();
    let opened = sample::open(&disk);
    assert!(matches!(opened.losses[0].why, Damage::Missing { confirmed: 1 }), "{:?}", opened.losses);
    assert_eq!(opened.pods[0].evidence, evidence(2));
}

/// KEEP-13: containers do not survive a reboot, so their volatile evidence is invalid after it.
#[test]
fn volatile_evidence_of_another_boot_is_dropped_without_a_loss() {
    let disk = SimDisk::default();
    let _ = sample::commit(&mut sample::open_well(&disk).ledger, UID, &evidence(1), 0);
    let settings = Settings { boot_id: OTHER_BOOT, ..sample::settings() };
    let opened = Ledger::open_on(disk.clone(), settings).unwrap();
    assert!(opened.losses.is_empty());
    assert_eq!(opened.pods[0].volatile, Fate::OtherBoot);
    assert_eq!(opened.pods[0].evidence, Evidence { durable: evidence(1).durable, ..Evidence::default() });
    assert_eq!(disk.contents(&format!("{VOLATILE}/pods/{UID}/evidence.json")), None);
}

#[test]
fn looking_changes_nothing() {
    let node = Node::new();
    fs::write(node.durable("evidence.json"), b"garbage").unwrap();
    fs::write(node.volatile(".new-evidence.json"), b"half").unwrap();
    let settings = node.settings();
    // A running agent does not prevent reading.
    let snapshot = Snapshot::take(&settings.durable_root, &settings.volatile_root, BOOT);
    assert_eq!(snapshot.losses.len(), 1);
    assert!(matches!(snapshot.losses[0].place, Place::Left));
    assert_eq!(snapshot.pods[0].evidence, evidence(2));
    let one = Snapshot::of_pod(&settings.durable_root, &settings.volatile_root, BOOT, UID);
    assert_eq!(one.pods, snapshot.pods);
    assert!(Snapshot::of_pod(&settings.durable_root, &settings.volatile_root, BOOT, "nobody").pods.is_empty());
    assert_eq!(fs::read(node.durable("evidence.json")).unwrap(), b"garbage");
    assert_eq!(fs::read(node.volatile(".new-evidence.json")).unwrap(), b"half");
}
