//! One file of a ledger, with any bytes in it, alone or among others that are whole.
//!
//! The first byte says which file it is. What has no right checksum is never taken for evidence, is reported, and stays on
//! the disk beside its name. Looking changes nothing, and a second agent finds what the first one found.

#![no_main]

use std::path::{Path, PathBuf};

use keelet_fuzz::memory_disk::MemoryDisk;
use keelet_ledger::{Fate, Ledger, Opened, Recovered, Settings, Snapshot};
use keelet_lifecycle::BootId;
use libfuzzer_sys::fuzz_target;

const UID: &str = "0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11";
const BOOT: &str = "6f5c0a9e-3c36-4f4b-9d1c-2f1f2a3b4c5d";

/// The files of a ledger below its two roots, each as some keelet wrote it.
macro_rules! fixture {
    ($path:literal) => {
        include_bytes!(concat!("../../crates/ledger/fixtures/", $path)).as_slice()
    };
}
const FILES: [(&str, &[u8]); 8] = [
    (
        "durable/pods/0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11/evidence.json",
        fixture!("v1/durable/pods/0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11/evidence.json"),
    ),
    (
        "durable/pods/0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11/pod.json",
        fixture!("v1/durable/pods/0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11/pod.json"),
    ),
    ("durable/pods/0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11/journal.json", fixture!("journal-v1/journal.json")),
    (
        "volatile/pods/0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11/evidence.json",
        fixture!("v1/volatile/pods/0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11/evidence.json"),
    ),
    (
        "volatile/pods/0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11/history.json",
        fixture!("v1/volatile/pods/0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11/history.json"),
    ),
    (
        "volatile/pods/0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11/why.json",
        fixture!("v1/volatile/pods/0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11/why.json"),
    ),
    ("volatile/heartbeat.json", fixture!("v1/volatile/heartbeat.json")),
    ("durable/heartbeat.json", fixture!("v1/durable/heartbeat.json")),
];
const JOURNAL: usize = 2;
/// How long the end of a file is that holds its checksum.
const SEAL: usize = 26;

fuzz_target!(|input: &[u8]| {
    let Some((choice, content)) = input.split_first() else { return };
    let chosen = usize::from(choice & 7);
    let alone = choice & 8 == 0;
    let disk = MemoryDisk::default();
    for (index, (path, whole)) in FILES.iter().enumerate() {
        if index == chosen || !alone {
            disk.put(at(path), if index == chosen { content } else { whole });
        }
    }
    let before = disk.nodes();
    let (durable, volatile) = (Path::new("/ledger/durable"), Path::new("/ledger/volatile"));
    let boot: BootId = BOOT.parse().expect("a boot ID");
    let seen = Snapshot::take_on(&disk, durable, volatile, boot);
    assert_eq!(disk.nodes(), before, "looking changed something");

    let opened = open(&disk);
    let sealed = is_sealed(content);
    if alone {
        assert_eq!(seen.pods, opened.pods, "looking and opening disagree");
        if !sealed {
            opened.pods.iter().for_each(check_nothing_kept);
            assert_eq!(opened.ledger.last_seen(), None);
        }
    }
    let path = at(FILES[chosen].0);
    // A journal is written without a sync, so an empty one is what a power cut leaves.
    if !sealed && !(chosen == JOURNAL && content.is_empty()) {
        let loss = opened.losses.iter().find(|loss| loss.file == path).expect("a loss is reported");
        assert!(!loss.why.to_string().is_empty());
        let aside = PathBuf::from(format!("{}.corrupt-1", path.display()));
        assert_eq!(disk.nodes().get(&aside), Some(&Some(content.to_vec())), "a file that was set aside is whole");
    }
    let first = opened.pods;
    drop(opened.ledger);
    let second = open(&disk);
    for pod in &first {
        let again = second.pods.iter().find(|other| other.uid == pod.uid);
        let again = again.unwrap_or_else(|| panic!("{} is forgotten", pod.uid));
        assert_eq!(again.evidence, pod.evidence);
        assert_eq!((&again.copy, &again.history, &again.journal), (&pod.copy, &pod.history, &pod.journal));
    }
});

fn at(path: &str) -> PathBuf {
    Path::new("/ledger").join(path)
}

fn open(disk: &MemoryDisk) -> Opened<MemoryDisk> {
    let settings = Settings::new("/ledger/durable", "/ledger/volatile", BOOT.parse().expect("a boot ID"));
    Ledger::open_on(disk.clone(), settings).expect("no other process has it")
}

fn check_nothing_kept(pod: &Recovered) {
    assert_eq!(pod.uid, UID);
    assert!(!matches!(pod.durable, Fate::Kept { .. }) && !matches!(pod.volatile, Fate::Kept { .. }), "{pod:?}");
    assert_eq!(pod.evidence, Default::default());
    assert!(pod.pod.is_none() && pod.copy.is_none() && pod.explanation.is_none(), "{pod:?}");
    assert!(pod.history.is_empty() && pod.journal.is_empty(), "{pod:?}");
}

/// Whether the last lines of a file hold the CRC-32 of all before them, by another implementation than the ledger's.
fn is_sealed(content: &[u8]) -> bool {
    let Some(length) = content.len().checked_sub(SEAL) else { return false };
    let (body, seal) = content.split_at(length);
    let mut crc = flate2::Crc::new();
    crc.update(body);
    seal == format!(",\n  \"crc32\": \"{:08x}\"\n}}\n", crc.sum()).as_bytes()
}
