//! Pods, evidence and ledgers to test with.

use std::sync::Arc;

use keelet_ledger::{Committed, Ledger, Opened, PodCommit, PodRef, Settings};
use keelet_lifecycle::{BootId, Evidence, Moment, ProbeRecord, Wall, operation::Outcome};
use keelet_pod::ProbeKind;
use serde_json::{Value, json};

use crate::disk::SimDisk;

pub(crate) const BOOT: BootId = BootId::from_u128(0x6f5c_0a9e_3c36_4f4b_9d1c_2f1f_2a3b_4c5d);
pub(crate) const OTHER_BOOT: BootId = BootId::from_u128(7);
pub(crate) const UID: &str = "0d4d5b6e-7a50-4a8e-9d2c-0b7a2f1e6c11";
pub(crate) const DURABLE: &str = "/var/keelet/ledger";
pub(crate) const VOLATILE: &str = "/run/keelet/ledger";

pub(crate) fn at(ms: i64) -> Moment {
    Moment { boot_ms: 5_000_000 + ms, wall: Wall::from_millis(1_790_000_000_000 + ms), boot_id: BOOT }
}

pub(crate) fn pod(uid: &str) -> PodRef {
    PodRef { uid: uid.to_owned(), namespace: "default".to_owned(), name: "web".to_owned() }
}

pub(crate) fn container_id(name: &str, instance: u32) -> String {
    format!("containerd://{name}-{instance:04}-3f1b0c9d8e7a6f5e4d3c2b1a0f9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c4b3a")
}

/// A pod of three containers with all probes, whose `app` has been restarted that often.
pub(crate) fn evidence(restarts: u32) -> Evidence {
    let mut evidence = Evidence::default();
    evidence.durable.first_seen = Some(at(-1000));
    evidence.durable.sandbox_attempts = 1;
    evidence.durable.version = u64::from(restarts) + 1;
    evidence.volatile.boot_id = BOOT;
    evidence.volatile.agent_started = Some(at(-2000));
    evidence.volatile.next_operation = 10;
    for name in ["app", "db", "proxy"] {
        let id = container_id(name, restarts);
        let record: Value = json!({
            "restartCount": restarts,
            "newest": id,
            "running": {"id": id, "startedAt": at(0).wall, "sandbox": "sandbox-1"},
            "lastExit": {
                "id": container_id(name, 9), "sandbox": "sandbox-1", "exitCode": 137, "reason": "Error",
                "finished": at(-5), "cause": {"killed": {"probe": "liveness"}},
            },
            "backoff": {"delay": 10_000, "advanced": at(-4), "key": "img", "served": container_id(name, 9)},
        });
        evidence.durable.containers.insert(name.to_owned(), serde_json::from_value(record).unwrap());
        let memory = json!({
            "verdict": {"probed": {"passed": true, "at": at(50), "run": 1, "output": "HTTP probe: 200 OK"}},
            "run": {"passed": true, "length": 1, "last": at(50)},
            "due": at(1000),
            "last": {"at": at(50), "outcome": "success", "latency": 3, "output": "HTTP probe: 200 OK"},
        });
        let instance = json!({
            "id": id, "started": at(0), "startup": memory, "readiness": memory, "liveness": memory, "postStart": "done",
        });
        evidence.volatile.instances.insert(name.to_owned(), serde_json::from_value(instance).unwrap());
    }
    evidence
}

/// The readiness probe of `app` was tried at that time, and passed as before.
pub(crate) fn pass(evidence: &mut Evidence, ms: i64) {
    let readiness = &mut evidence.volatile.instances.get_mut("app").unwrap().readiness;
    let run = readiness.streak.as_mut().unwrap();
    run.length += 1;
    run.last = at(ms);
    readiness.due = Some(at(ms + 1000));
    readiness.last.as_mut().unwrap().at = at(ms);
    evidence.volatile.next_operation += 1;
}

pub(crate) fn record(container: &str, probe: ProbeKind, ms: i64, output: &str) -> ProbeRecord {
    ProbeRecord {
        eager: false,
        container: container.to_owned(),
        id: container_id(container, 0),
        probe,
        at: at(ms),
        outcome: Outcome::Success,
        latency: std::time::Duration::from_millis(3),
        output: output.to_owned(),
    }
}

pub(crate) fn settings() -> Settings {
    Settings::new(DURABLE, VOLATILE, BOOT)
}

pub(crate) fn open(disk: &SimDisk) -> Opened<SimDisk> {
    Ledger::open_on(disk.clone(), settings()).unwrap()
}

/// Opens a ledger without losses.
pub(crate) fn open_well(disk: &SimDisk) -> Opened<SimDisk> {
    let opened = open(disk);
    assert!(opened.losses.is_empty(), "{:?}", opened.losses);
    assert!(opened.troubles.is_empty(), "{:?}", opened.troubles);
    opened
}

pub(crate) fn commit(ledger: &mut Ledger<SimDisk>, uid: &str, evidence: &Evidence, ms: i64) -> Committed {
    commit_with(ledger, uid, evidence, &[], ms)
}

pub(crate) fn commit_with(
    ledger: &mut Ledger<SimDisk>,
    uid: &str,
    evidence: &Evidence,
    results: &[ProbeRecord],
    ms: i64,
) -> Committed {
    let evidence = &Arc::new(evidence.clone());
    ledger.commit(&PodCommit { pod: &pod(uid), evidence, results, why: None }, at(ms)).unwrap()
}
