use keelet_lifecycle::status::{Condition, Phase, PodIp, Truth};

use super::*;

fn condition(kind: ConditionType, status: bool, reason: Option<&str>) -> Condition {
    Condition {
        kind,
        status: Truth::from(status),
        reason: reason.map(str::to_owned),
        message: None,
        last_transition_time: None,
        observed_generation: None,
    }
}

fn status(ready: bool) -> PodStatus {
    PodStatus {
        phase: Phase::Running,
        conditions: vec![
            condition(ConditionType::Ready, ready, None),
            condition(ConditionType::PodScheduled, true, None),
        ],
        pod_ip: Some("10.0.0.2".to_owned()),
        pod_ips: vec![PodIp { ip: "10.0.0.2".to_owned() }],
        ..PodStatus::default()
    }
}

/// What an API server has after such a patch: enough of a strategic merge for one level.
fn applied(copy: &Value, patch: &Value) -> Value {
    let mut copy = copy.clone();
    for (field, value) in patch["status"].as_object().unwrap() {
        let key = if field == "conditions" { "type" } else { "ip" };
        match value {
            Value::Null => drop(copy.as_object_mut().unwrap().remove(field)),
            Value::Array(elements) if ["conditions", "podIPs", "hostIPs"].contains(&field.as_str()) => {
                let mut list = copy[field].as_array().cloned().unwrap_or_default();
                for element in elements {
                    list.retain(|old| old[key] != element[key]);
                    if element["$patch"] != "delete" {
                        list.push(element.clone());
                    }
                }
                copy[field] = list.into();
            }
            value => copy[field] = value.clone(),
        }
    }
    copy
}

/// CLU-8: nothing is written that the API server has already, whatever others have added.
#[test]
fn a_status_that_the_copy_has_needs_no_patch() {
    let fresh = json!({ "phase": "Pending", "qosClass": "Burstable", "conditions": [
        { "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
        { "type": "vendor.example/Licensed", "status": "False" },
    ]});
    let patch = status_patch("u", &status(true), Some("192.0.2.7"), &fresh).expect("a patch");
    assert_eq!(patch["metadata"]["uid"], "u");
    let stored = applied(&fresh, &patch);
    assert_eq!(status_patch("u", &status(true), Some("192.0.2.7"), &stored), None, "{stored}");
    let kinds: Vec<_> = stored["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["PodScheduled", "vendor.example/Licensed", "Ready"], "those of others stay");
    assert_eq!((&stored["qosClass"], &stored["hostIP"]), (&json!("Burstable"), &json!("192.0.2.7")));
    let scheduled = &stored["conditions"][0];
    assert_eq!(scheduled["lastTransitionTime"], "2026-01-01T00:00:00Z", "the scheduler's condition is not ours");
}

/// CLU-2: what another writer made of a condition of ours is overwritten.
#[test]
fn a_condition_of_ours_is_written_back() {
    let stored = applied(&json!({}), &status_patch("u", &status(true), None, &json!({})).unwrap());
    let mut foreign = stored.clone();
    foreign["conditions"][0]["status"] = "False".into();
    foreign["conditions"][0]["reason"] = "NodeNotReady".into();
    assert!(is_urgent(&status(true), &foreign));
    let patch = status_patch("u", &status(true), None, &foreign).expect("a patch");
    assert_eq!(patch["status"]["conditions"], json!([{ "type": "Ready", "status": "True", "reason": null }]));
}

/// Conditions, addresses and fields that are gone here go there.
#[test]
fn what_is_gone_is_named_in_the_patch() {
    let restarting = PodStatus {
        reason: Some("x".to_owned()),
        conditions: vec![condition(ConditionType::AllContainersRestarting, true, Some("ContainerExited"))],
        ..status(true)
    };
    let stored = applied(&json!({}), &status_patch("u", &restarting, None, &json!({})).unwrap());
    let moved = PodStatus {
        pod_ip: Some("10.0.0.3".to_owned()),
        pod_ips: vec![PodIp { ip: "10.0.0.3".to_owned() }],
        ..status(true)
    };
    let patch = status_patch("u", &moved, None, &stored).expect("a patch");
    let after = applied(&stored, &patch);
    assert_eq!(after["podIPs"], json!([{ "ip": "10.0.0.3" }]));
    assert_eq!((&after["reason"], after.get("podIP")), (&Value::Null, Some(&json!("10.0.0.3"))));
    assert!(after["conditions"].as_array().unwrap().iter().all(|c| c["type"] != "AllContainersRestarting"), "{after}");
    assert_eq!(status_patch("u", &moved, None, &after), None);
}

/// CLU-11: the generation that was observed never falls, and messages fit before they are compared.
#[test]
fn generations_never_fall_and_messages_are_cut_before_they_are_compared() {
    let of = |generation| PodStatus { observed_generation: Some(generation), ..status(true) };
    let stored = applied(&json!({}), &status_patch("u", &of(3), None, &json!({})).unwrap());
    assert_eq!(stored["observedGeneration"], 3);
    assert_eq!(status_patch("u", &of(2), None, &stored), None);
    let long = json!({ "name": "main", "image": "", "state": { "terminated": { "message": "é".repeat(10_000) } } });
    let ended = PodStatus { container_statuses: vec![serde_json::from_value(long).unwrap()], ..status(false) };
    let stored = applied(&json!({}), &status_patch("u", &ended, None, &json!({})).unwrap());
    let message = stored.pointer("/containerStatuses/0/state/terminated/message").unwrap().as_str().unwrap();
    assert_eq!(message.len(), 12 * 1024);
    assert_eq!(status_patch("u", &ended, None, &stored), None, "a message that was cut is the same the next time");
}

#[test]
fn conditions_of_others_are_those_that_are_not_ours() {
    let copy = json!({ "conditions": [
        { "type": "Ready", "status": "True" }, { "type": "PodScheduled", "status": "True" },
        { "type": "example.com/a", "status": "True" }, { "type": "example.com/b", "status": "Unknown" }, {},
    ]});
    let expected = BTreeMap::from([("example.com/a".to_owned(), true), ("example.com/b".to_owned(), false)]);
    assert_eq!(foreign_conditions(&copy), expected);
}
