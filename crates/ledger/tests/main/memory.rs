//! Records for people, not for decisions: events of the node, removed pods.

use std::{fs, path::Path};

use keelet_ledger::{Damage, Disk, Kind, Ledger, Place, Settings, Snapshot};
use keelet_pod::ProbeKind;
use serde_json::{Value, json};

use crate::{
    disk::{ENOSPC, Fault, SimDisk},
    sample::{
        BOOT, DURABLE, OTHER_BOOT, UID, VOLATILE, at, commit, commit_with, evidence, open, open_well, pod, record,
        settings,
    },
};

fn uids(disk: &SimDisk) -> Vec<String> {
    open(disk).gone.into_iter().map(|gone| gone.pod.uid).collect()
}

/// EVT-13: the record of a removed pod is complete, for the next agent, after a reboot, and for a reader beside an
/// agent.
#[test]
fn a_removed_pod_is_recorded_as_it_was() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let results = [record("app", ProbeKind::Readiness, 40, "200 OK")];
    let _ = ledger.keep_pod(&pod(UID), &json!({"kind": "Pod"}), at(0)).unwrap();
    let _ = commit_with(&mut ledger, UID, &evidence(3), &results, 50);
    ledger.remove(UID, at(900)).unwrap();
    let (beside, losses) = Snapshot::of_gone_on(&disk, Path::new(DURABLE), Path::new(VOLATILE));
    assert!(losses.is_empty(), "{losses:?}");
    drop(ledger);
    let rebooted = Ledger::open_on(disk.clone(), Settings { boot_id: OTHER_BOOT, ..settings() }).unwrap();
    assert!(rebooted.pods.is_empty() && rebooted.losses.is_empty(), "it does not come back: {:?}", rebooted.losses);
    assert_eq!(rebooted.gone, beside);
    let [gone] = rebooted.gone.try_into().unwrap();
    assert_eq!((gone.at, gone.pod.uid.as_str(), gone.pod.pod.as_ref()), (at(900), UID, Some(&pod(UID))));
    assert_eq!((gone.pod.evidence, gone.pod.copy), (evidence(3), Some(json!({"kind": "Pod"}))));
    assert_eq!(gone.pod.history, results);
    assert!(!gone.pod.journal.is_empty(), "the journal is kept too");
}

/// EVT-13: the newest twenty, in the order of removal, over several agents, and never more files than that.
#[test]
fn twenty_removed_pods_are_kept() {
    let disk = SimDisk::default();
    for round in 0..3 {
        let mut ledger = open_well(&disk).ledger;
        for number in 0..15 {
            let uid = format!("pod-{}", round * 15 + number);
            let _ = commit(&mut ledger, &uid, &evidence(0), 0);
            ledger.remove(&uid, at(number)).unwrap();
        }
    }
    let expected: Vec<String> = (25..45).map(|number| format!("pod-{number}")).collect();
    assert_eq!(uids(&disk), expected);
    let files: Vec<_> = disk.files().into_iter().filter(|file| file.starts_with(format!("{DURABLE}/gone"))).collect();
    assert_eq!(files.len(), 20, "{files:?}");
}

/// EVT-13: a damaged record is set aside and reported, the others are read; an empty one, after a power cut, is
/// ignored.
#[test]
fn a_damaged_record_of_a_pod_does_not_affect_others() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    for uid in ["a", "b", "c"] {
        let _ = commit(&mut ledger, uid, &evidence(0), 0);
        ledger.remove(uid, at(0)).unwrap();
    }
    drop(ledger);
    disk.put(&format!("{DURABLE}/gone/02.json"), b"{ half a".to_vec());
    disk.put(&format!("{DURABLE}/gone/03.json"), Vec::new());
    let opened = open(&disk);
    let [loss] = opened.losses.try_into().unwrap();
    assert_eq!(loss.kind, Some(Kind::Gone));
    assert!(matches!((&loss.why, &loss.place), (Damage::Malformed(_), Place::SetAside(_))), "{loss}");
    assert_eq!(opened.gone.iter().map(|gone| gone.pod.uid.as_str()).collect::<Vec<_>>(), ["a"]);
}

/// EVT-13: on a full disk the record is lost, but the pod is removed.
#[test]
fn a_pod_is_removed_even_if_it_cannot_be_recorded() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let _ = commit(&mut ledger, UID, &evidence(0), 0);
    disk.fail(Some(Fault::every_write(&format!("{DURABLE}/gone"), ENOSPC)));
    ledger.remove(UID, at(0)).unwrap();
    assert_eq!(ledger.uids().count(), 0);
    disk.fail(None);
    drop(ledger);
    assert_eq!(uids(&disk), [""; 0]);
}

fn events(numbers: std::ops::Range<u32>) -> Vec<Value> {
    numbers.map(|number| json!({"reason": "Killing", "count": number})).collect()
}

/// EVT-12: a killed agent leaves its events to the next one; after a reboot there are those of a minute ago, or all if
/// the agent was stopped.
#[test]
fn events_are_kept_for_the_next_agent() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    assert!(ledger.keep_events(&events(0..3), at(0)).is_written());
    let _ = ledger.beat(at(0));
    assert!(ledger.keep_events(&events(0..5), at(10_000)).is_written());
    let _ = ledger.beat(at(10_000));
    drop(ledger);
    assert_eq!(open_well(&disk).events, events(0..5), "the next agent");
    let rebooted = || {
        disk.remove(Path::new(VOLATILE)).unwrap();
        open_well(&disk).events
    };
    assert_eq!(rebooted(), events(0..3), "after a reboot");
    let mut ledger = open_well(&disk).ledger;
    assert!(ledger.keep_events(&events(0..7), at(20_000)).is_written());
    assert!(ledger.stop(at(20_000)).is_empty());
    drop(ledger);
    assert_eq!(rebooted(), events(0..7), "after a stop and a reboot");
}

/// EVT-12: damaged events are set aside, and the older ones of the other disk are used. Without new events nothing is
/// written.
#[test]
fn damaged_events_do_not_affect_anything_else() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let _ = commit(&mut ledger, UID, &evidence(1), 0);
    let _ = ledger.keep_events(&events(0..3), at(0));
    let _ = ledger.beat(at(0));
    let _ = ledger.keep_events(&events(0..5), at(1000));
    drop(ledger);
    disk.put(&format!("{VOLATILE}/events.json"), b"garbage".to_vec());
    let mut opened = open(&disk);
    assert_eq!((opened.losses.len(), opened.losses[0].kind), (1, Some(Kind::Events)));
    assert_eq!((opened.events, opened.pods[0].evidence.clone()), (events(0..3), evidence(1)));
    let _ = opened.ledger.beat(at(2000));
    disk.forget_calls();
    let _ = opened.ledger.beat(at(2500));
    assert!(!disk.calls().iter().any(|call| call.path.ends_with("events.json")), "{:?}", disk.calls());
}

/// Frozen files of the first version.
#[test]
fn events_and_gone_pods_of_version_1_are_loaded_for_ever() {
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/memory-v1");
    let directory = tempfile::tempdir().unwrap();
    let durable = directory.path().join("durable");
    fs::create_dir_all(durable.join("gone")).unwrap();
    for name in ["events.json", "gone/01.json"] {
        fs::copy(frozen.join(name), durable.join(name)).unwrap();
    }
    let opened = Ledger::open(Settings::new(durable, directory.path().join("run"), BOOT)).unwrap();
    assert!(opened.losses.is_empty(), "{:?}", opened.losses);
    assert_eq!(opened.events, events(0..2));
    let [gone] = opened.gone.try_into().unwrap();
    assert_eq!((gone.at, gone.pod.evidence), (at(900), evidence(3)));
    assert_eq!(gone.pod.history, [record("app", ProbeKind::Readiness, 40, "200 OK")]);
}

/// GATE-16, GATE-17: what is remembered of the node is there for the next agent of the boot; after a reboot there is what was to outlast it.
#[test]
fn what_is_remembered_of_the_node_is_kept_for_the_next_agent() {
    use keelet_lifecycle::node::{ConditionStatus, NodeCondition, NodeEvidence};
    let node = |since: i64| NodeEvidence {
        boot_id: BOOT,
        conditions: vec![NodeCondition {
            kind: "Ready".to_owned(),
            status: ConditionStatus::True,
            reason: "KeeletReady".to_owned(),
            message: String::new(),
            since: at(since).wall,
            seen: at(since).wall,
        }],
        ..NodeEvidence::default()
    };
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    assert!(ledger.keep_node(&node(1), true, at(0)).is_written());
    let _ = ledger.beat(at(0));
    assert!(ledger.keep_node(&node(2), false, at(10)).is_written());
    let _ = ledger.beat(at(70_000));
    drop(ledger);
    assert_eq!(open_well(&disk).node, Some(node(2)), "the next agent");
    disk.remove(Path::new(VOLATILE)).unwrap();
    assert_eq!(open_well(&disk).node, Some(node(1)), "after a reboot: a probe that passed again was not written");
    disk.put(&format!("{VOLATILE}/node.json"), b"garbage".to_vec());
    let opened = open(&disk);
    assert_eq!((opened.losses.len(), opened.losses[0].kind, opened.node), (1, Some(Kind::Node), Some(node(1))));
}
