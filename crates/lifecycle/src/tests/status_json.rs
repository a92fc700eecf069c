//! The status in the API's JSON form.

use keelet_pod::ProbeKind;
use serde_json::{Value, json};

use super::world::World;
use crate::{
    operation::{Operation, Outcome},
    status::{ConditionType, PodStatus},
};

/// API-22, STAT-10, STAT-11: the JSON is that of `v1.PodStatus`: its field names, `lastState` where there was an instance
/// before and only there, times of whole seconds, nothing that is empty; and it reads back as it was written.
#[test]
fn a_status_is_written_as_the_api_has_it() {
    let mut world = World::with_spec(
        "
  initContainers: [{name: setup, image: tool}]
  containers: [{name: main, image: app}, {name: also, image: app}]
",
    );
    world.settle().pass(std::time::Duration::from_millis(1500));
    world.exit("setup", 0).exit("main", 3);
    let written = serde_json::to_value(world.status()).unwrap();
    let (start, exit) = ("2027-01-15T08:00:00Z", "2027-01-15T08:00:01Z");
    let container = |name: &str, image: &str, number: u32, restarts: u32, state: Value, last: Option<Value>, ready| {
        let mut status = json!({
            "name": name, "image": image, "imageID": format!("sha256:{image}"), "ready": ready, "started": name != "setup",
            "restartCount": restarts, "containerID": format!("test://{name}-{number}"), "state": state,
        });
        if let Some(last) = last {
            status["lastState"] = last;
        }
        status
    };
    let ended = |code: i32, reason: &str, started: &str, id: &str| {
        json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": exit,
               "containerID": id}})
    };
    let running = json!({"running": {"startedAt": exit}});
    assert_eq!(
        written["initContainerStatuses"],
        json!([container("setup", "tool", 2, 0, ended(0, "Completed", start, "test://setup-2"), None, true)])
    );
    assert_eq!(
        written["containerStatuses"],
        json!([
            container("also", "app", 4, 0, running.clone(), None, true),
            container("main", "app", 5, 1, running, Some(ended(3, "Error", exit, "test://main-3")), true),
        ])
    );
    let keys: Vec<&String> = written.as_object().unwrap().keys().collect();
    let expected =
        ["conditions", "containerStatuses", "initContainerStatuses", "phase", "podIP", "podIPs", "startTime"];
    assert_eq!(keys, expected);
    assert_eq!((&written["podIP"], &written["podIPs"]), (&json!("10.0.0.1"), &json!([{"ip": "10.0.0.1"}])));
    let ready = written["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!(*ready, json!({"type": "Ready", "status": "True", "lastTransitionTime": exit}));
    assert_eq!(serde_json::from_value::<PodStatus>(written).unwrap(), *world.status());
}

/// STAT-31: conditions of others are read, under their own names.
#[test]
fn conditions_of_others_are_read() {
    let status: PodStatus = serde_json::from_value(json!({
        "phase": "Running",
        "conditions": [{"type": "shop.example/Open", "status": "Unknown"}, {"type": "Ready", "status": "True"}],
        "qosClass": "Burstable",
    }))
    .unwrap();
    assert_eq!(status.conditions[0].kind, ConditionType::Foreign("shop.example/Open".to_owned()));
    assert!(status.is_true(&ConditionType::Ready));
    assert!(!status.is_true(&status.conditions[0].kind.clone()));
}

/// KEEP-23: what a plan wants remembered comes back from a file as it went in, whatever the pod goes through.
#[test]
fn evidence_survives_being_written() {
    let mut world = World::with_spec(
        "
  initContainers:
  - {name: setup, image: 'x:1'}
  containers:
  - name: a
    image: 'x:1'
    startupProbe: {exec: {command: [a]}, periodSeconds: 1}
    readinessProbe: {exec: {command: [b]}, periodSeconds: 1}
    livenessProbe: {exec: {command: [c]}, periodSeconds: 1}
    lifecycle: {postStart: {exec: {command: [d]}}, preStop: {exec: {command: [e]}}}
    restartPolicy: Always
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
  - {name: b, image: 'y:1'}
",
    );
    world.inspector = Some(Box::new(|_, plan| {
        let written = serde_json::to_string(&plan.evidence).expect("evidence can be written");
        let read: crate::Evidence = serde_json::from_str(&written).expect("evidence can be read");
        assert_eq!(read, plan.evidence);
    }));
    world.fail("EnsureImage { container: \"b\"", "ErrImagePull").settle().exit("setup", 0).seconds(3);
    for outcome in [Outcome::Error, Outcome::Late, Outcome::Failure, Outcome::Success] {
        for kind in ProbeKind::ALL {
            world.answer("a", kind, outcome);
        }
        world.seconds(2).restart_agent();
    }
    world.exit("a", 1).exit("a", 1).seconds(11);
    world.hold(|operation| matches!(operation, Operation::Launch { .. })).exit("a", 42).restart_agent().release();
    world.reboot().seconds(5).delete(5);
}
