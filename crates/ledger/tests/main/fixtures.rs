//! Every format version that was ever written, frozen. These files never change; a new version gets a new directory and
//! a migration.

use std::{fs, path::Path, sync::Arc};

use keelet_ledger::{Fate, Ledger, PodCommit, Settings};
use keelet_lifecycle::Evidence;
use keelet_pod::ProbeKind;
use serde_json::json;

use crate::sample::{BOOT, UID, at, evidence, pod, record};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Evidence with a value in every part, during a restart of all containers.
fn rich() -> Evidence {
    let mut evidence = serde_json::to_value(evidence(2)).unwrap();
    let durable = &mut evidence["durable"];
    durable["admission"] = json!("admitted");
    durable["initializedIn"] = json!("sandbox-1");
    durable["readyMarks"] = json!([{"ready": true, "since": at(0).wall}]);
    durable["restartAll"] = json!({
        "stage": {"terminating": {
            "since": at(40),
            "triggers": [
                {"exit": {"container": "app", "id": "x", "exit_code": 42, "rule": 1, "at": at(40)}},
                {"request": {"id": "r1", "by": "root", "at": at(41)}},
            ],
            "announced": 7,
            "restarted": ["app", "db"],
        }},
        "backoff": {"app": {"delay": 20_000, "advanced": at(30), "key": "img", "served": "x"}},
    });
    durable["ending"] = json!({"cause": "deleted", "since": at(45), "grace": 30_000, "deleted": true});
    durable["published"] = json!({
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "lastTransitionTime": at(40).wall},
            {"type": "AllContainersRestarting", "status": "True"},
        ],
        "podIP": "10.0.0.2",
        "podIPs": [{"ip": "10.0.0.2"}],
        "containerStatuses": [{
            "name": "app", "ready": false, "started": false, "restartCount": 2, "image": "img", "imageID": "sha256:1",
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
            "lastState": {"terminated": {"exitCode": 42, "reason": "Error", "finishedAt": at(40).wall}},
        }],
    });
    let volatile = &mut evidence["volatile"];
    volatile["lives"]["db"]["kill"] = json!({"reason": "restartAll", "since": at(41), "grace": 0, "preStop": "owed"});
    let basis = json!({"probe": {"at": at(1), "run": 1, "output": "ok"}});
    volatile["lives"]["db"]["readiness"] =
        json!({"verdict": {"carried": {"passed": true, "basis": basis}}, "due": at(90)});
    volatile["lives"]["proxy"]["startup"] = json!({"verdict": "neverProbed", "errors": 1, "tries": 2, "onHold": true});
    volatile["launches"]["app"] =
        json!({"image": "img", "failure": {"reason": "ErrImagePull", "message": "no route", "at": at(3)}});
    let stop = json!({"stop": {"container": "db", "id": "y", "timeout": 0, "reason": "restartAll"}});
    volatile["pending"] = json!([{"id": 9, "operation": stop, "since": at(42)}]);
    let failure = json!({"reason": "StopFailed", "message": "busy"});
    volatile["retries"] = json!([{"key": {"remove": "z"}, "failures": 2, "notBefore": at(60), "failure": failure}]);
    volatile["volumesReady"] = json!(true);
    volatile["restartRequest"] = json!("r1");
    serde_json::from_value(evidence).unwrap()
}

/// KEEP-20, BACK-5, RALL-37, DEF-12, DEF-21
#[test]
fn version_1_is_loaded_for_ever() {
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/v1");
    let directory = tempfile::tempdir().unwrap();
    copy(&frozen, directory.path());
    let settings = Settings::new(directory.path().join("durable"), directory.path().join("volatile"), BOOT);
    let opened = Ledger::open(settings).unwrap();
    assert!(opened.losses.is_empty(), "{:?}", opened.losses);
    assert_eq!(opened.pods.len(), 1);
    let found = &opened.pods[0];
    assert_eq!(found.uid, UID);
    assert_eq!(found.pod, Some(pod(UID)));
    assert_eq!((found.durable, found.volatile), (Fate::Kept { generation: 1 }, Fate::Kept { generation: 1 }));
    assert_eq!(found.evidence, rich());
    assert_eq!(found.copy, Some(json!({"kind": "Pod", "metadata": {"name": "web", "uid": UID}})));
    assert_eq!(found.history, [record("app", ProbeKind::Readiness, 50, "HTTP probe: 200 OK")]);
    let explanation = found.explanation.as_ref().unwrap();
    assert_eq!((explanation.status_version, explanation.why.len()), (3, 1));
    assert_eq!(opened.ledger.last_seen(), Some(at(60)));
}

/// Writes the frozen files of the present version. Run by hand, once per version, before its release:
/// `cargo test -p keelet-ledger --test main freeze -- --ignored`.
#[test]
#[ignore = "writes the fixtures of a new format version"]
fn freeze_the_present_version() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/v1");
    assert!(!root.join("durable").exists(), "frozen files are never written again");
    let mut ledger = Ledger::open(Settings::new(root.join("durable"), root.join("volatile"), BOOT)).unwrap().ledger;
    let why = json!([{"subject": {"ready": "app"}, "because": {"probe": {
        "probe": "readiness", "passed": true, "at": at(50), "run": 1, "output": "HTTP probe: 200 OK"}}}]);
    let why: Vec<keelet_lifecycle::Why> = serde_json::from_value(why).unwrap();
    let results = [record("app", ProbeKind::Readiness, 50, "HTTP probe: 200 OK")];
    let entry = PodCommit { pod: &pod(UID), evidence: &Arc::new(rich()), results: &results, why: Some((3, &why)) };
    assert!(ledger.commit(&entry, at(50)).unwrap().durable.is_written());
    let copy = json!({"kind": "Pod", "metadata": {"name": "web", "uid": UID}});
    assert!(ledger.keep_pod(&pod(UID), &copy, at(50)).unwrap().is_written());
    assert!(ledger.stop(at(60)).is_empty());
    for tier in ["durable", "volatile"] {
        fs::remove_file(root.join(tier).join("agent.pid")).unwrap();
    }
}
