//! Files of a ledger that are whole, with any bytes in the place of their contents.
//!
//! Each part of the input is one file: its first line says which one, in what generation, and of which boot; the rest is
//! its body. The checksum is made right, as it would be if another keelet had written the file. Whatever is found in it
//! can be committed again, and the next agent finds the same.

#![no_main]

use std::{path::Path, sync::Arc};

use keelet_fuzz::{memory_disk::MemoryDisk, parts};
use keelet_ledger::{PodCommit, Fate, Ledger, Opened, PodRef, Settings};
use keelet_lifecycle::{Moment, Wall};
use libfuzzer_sys::fuzz_target;

const UID: &str = "web-1";
const BOOT: &str = "6f5c0a9e-3c36-4f4b-9d1c-2f1f2a3b4c5d";
const OTHER_BOOT: &str = "00000000-0000-0000-0000-000000000001";

/// The first letter of a title, the file, and its format.
const FILES: [(char, &str, &str); 8] = [
    ('d', "durable/pods/web-1/evidence.json", "keelet.evidence.durable"),
    ('p', "durable/pods/web-1/pod.json", "keelet.pod"),
    ('j', "durable/pods/web-1/journal.json", "keelet.journal"),
    ('v', "volatile/pods/web-1/evidence.json", "keelet.evidence.volatile"),
    ('h', "volatile/pods/web-1/history.json", "keelet.probe-history"),
    ('w', "volatile/pods/web-1/why.json", "keelet.why"),
    ('b', "volatile/heartbeat.json", "keelet.heartbeat"),
    ('c', "durable/heartbeat.json", "keelet.heartbeat"),
];

fuzz_target!(|input: &[u8]| {
    let disk = MemoryDisk::default();
    for part in parts::split(input, 8) {
        let (title, body) = parts::title(part);
        let Some((_, path, format)) = FILES.iter().find(|(letter, ..)| title.starts_with(*letter)) else { continue };
        disk.put(Path::new("/ledger").join(path), &file(&title, format, body));
    }
    let now = Moment {
        boot_ms: 6_000_000,
        wall: Wall::from_millis(1_790_000_000_000),
        boot_id: BOOT.parse().expect("a boot ID"),
    };
    let mut opened = open(&disk);
    for loss in &opened.losses {
        assert!(!loss.why.to_string().is_empty() && loss.file.starts_with("/ledger"), "{loss:?}");
    }
    if let Some(absence) = opened.ledger.absence(now) {
        assert!(opened.ledger.last_seen().is_some(), "{absence:?}");
    }
    let known = PodRef { uid: UID.to_owned(), namespace: "default".to_owned(), name: "web".to_owned() };
    for pod in &mut opened.pods {
        // Something durable changes, as it does with every plan that starts something.
        pod.evidence.durable.sandbox_attempts ^= 1;
        let evidence = Arc::new(pod.evidence.clone());
        let why = pod.explanation.as_ref().map(|explanation| (explanation.status_version, explanation.why.as_slice()));
        let entry = PodCommit { pod: pod.pod.as_ref().unwrap_or(&known), evidence: &evidence, results: &[], why };
        let _ = opened.ledger.commit(&entry, now).expect("a UID that was found can be used");
        if let Some(copy) = &pod.copy {
            let _ = opened.ledger.keep_pod(&known, copy, now).expect("a UID that was found can be used");
        }
    }
    let _ = opened.ledger.beat(now);
    let failures = opened.ledger.stop(now);
    assert!(failures.is_empty(), "{failures:?}");
    let found = opened.pods;
    drop(opened.ledger);

    let second = open(&disk);
    assert_eq!(second.ledger.last_seen(), Some(now));
    for pod in &found {
        let again = second.pods.iter().find(|other| other.uid == pod.uid).expect("it was committed");
        assert_eq!(again.evidence, pod.evidence);
        assert_eq!((&again.copy, &again.history), (&pod.copy, &pod.history));
        assert!(again.journal.ends_with(&pod.journal) || again.journal.len() >= pod.journal.len(), "{again:?}");
        assert!(matches!(again.volatile, Fate::Kept { .. }) || pod.evidence == Default::default(), "{again:?}");
    }
});

fn open(disk: &MemoryDisk) -> Opened<MemoryDisk> {
    let settings = Settings::new("/ledger/durable", "/ledger/volatile", BOOT.parse().expect("a boot ID"));
    Ledger::open_on(disk.clone(), settings).expect("no other process has it")
}

/// A file as a keelet writes it. The title has a generation, and ends with `!` for another boot.
fn file(title: &str, format: &str, body: &[u8]) -> Vec<u8> {
    let digits: String = title.chars().filter(char::is_ascii_digit).collect();
    let generation: u64 = digits.parse().unwrap_or(1);
    let boot = if title.ends_with('!') { OTHER_BOOT } else { BOOT };
    let mut file = format!(
        "{{\n  \"format\": \"{format}\",\n  \"version\": 1,\n  \"generation\": {generation},\n  \"pod\": \
         {{\"uid\": \"{UID}\", \"namespace\": \"default\", \"name\": \"web\"}},\n  \"bootId\": \"{boot}\",\n  \"body\": "
    )
    .into_bytes();
    file.extend_from_slice(body);
    let mut crc = flate2::Crc::new();
    crc.update(&file);
    file.extend_from_slice(format!(",\n  \"crc32\": \"{:08x}\"\n}}\n", crc.sum()).as_bytes());
    file
}
