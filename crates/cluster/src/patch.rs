//! From a status to the patch that makes the API server's copy equal to it. Pure.
//!
//! A strategic merge patch, never a replacement: conditions of other writers and fields of a newer API stay (CLU-8, CLU-9). Lists of
//! container statuses are replaced as a whole, as the API defines them; conditions and addresses are merged by their keys, so what has
//! to go is named. What the copy has already is left out, and a patch that would change nothing is none at all.

use std::collections::BTreeMap;

use keelet_lifecycle::status::{ConditionType, PodStatus};
use serde_json::{Map, Value, json};

/// Conditions that the agent owns. `PodScheduled` is the scheduler's and is only copied.
const OURS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "AllContainersRestarting"];

/// The scheduler's condition.
const SCHEDULED: &str = "PodScheduled";

/// Fields of a status that are the agent's alone: what the agent has none of goes.
const FIELDS: [&str; 8] = [
    "phase",
    "reason",
    "message",
    "startTime",
    "podIP",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// What the termination messages of all containers of a pod may have together, as in the kubelet.
const MESSAGES: usize = 12 * 1024;

/// The patch for the status of a pod whose copy at the API server is `copy`; none if it would change nothing.
pub fn status_patch(uid: &str, status: &PodStatus, host_ip: Option<&str>, copy: &Value) -> Option<Value> {
    let desired = desired(status, host_ip);
    let mut patch = Map::new();
    for field in FIELDS {
        match (desired.get(field), copy.get(field).filter(|value| !value.is_null())) {
            (Some(desired), Some(copy)) if same(desired, copy) => {}
            (Some(desired), _) => drop(patch.insert(field.to_owned(), desired.clone())),
            (None, Some(_)) => drop(patch.insert(field.to_owned(), Value::Null)),
            (None, None) => {}
        }
    }
    for (field, key) in [("podIPs", "ip"), ("hostIPs", "ip")] {
        let changes = merged(&desired[field], &copy[field], key, |_| true);
        if !changes.is_empty() {
            patch.insert(field.to_owned(), changes.into());
        }
    }
    if let Some(host_ip) = desired.get("hostIP").filter(|host_ip| copy.get("hostIP") != Some(host_ip)) {
        patch.insert("hostIP".to_owned(), host_ip.clone());
    }
    // A generation that was observed is never taken back (CLU-11).
    let generation = |status: &Value| status["observedGeneration"].as_i64();
    if generation(&desired) > generation(copy) {
        patch.insert("observedGeneration".to_owned(), desired["observedGeneration"].clone());
    }
    let conditions = merged(&desired["conditions"], &copy["conditions"], "type", |kind| OURS.contains(&kind));
    if !conditions.is_empty() {
        patch.insert("conditions".to_owned(), conditions.into());
    }
    (!patch.is_empty()).then(|| json!({ "metadata": { "uid": uid }, "status": patch }))
}

/// The patch for a pod that this node cannot run.
pub fn rejection(uid: &str, why: &str) -> Value {
    let status = json!({ "phase": "Failed", "reason": "InvalidPod", "message": format!("Pod was rejected: {why}") });
    json!({ "metadata": { "uid": uid }, "status": status })
}

/// Conditions of others, by type: whether their status is True.
pub fn foreign_conditions(status: &Value) -> BTreeMap<String, bool> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let named = conditions.filter_map(|condition| Some((condition["type"].as_str()?, condition["status"] == "True")));
    let foreign = named.filter(|(kind, _)| *kind != SCHEDULED && !OURS.contains(kind));
    foreign.map(|(kind, holds)| (kind.to_owned(), holds)).collect()
}

/// Whether a patch changes whether the pod takes traffic: it goes before others.
pub fn is_urgent(status: &PodStatus, copy: &Value) -> bool {
    let conditions = copy["conditions"].as_array().into_iter().flatten();
    let ready =
        conditions.filter(|condition| condition["type"] == "Ready").any(|condition| condition["status"] == "True");
    status.is_true(&ConditionType::Ready) != ready
}

/// The status as the API server would store it.
fn desired(status: &PodStatus, host_ip: Option<&str>) -> Value {
    let mut desired = serde_json::to_value(status).unwrap_or_default();
    if let Some(host_ip) = host_ip {
        desired["hostIP"] = host_ip.into();
        desired["hostIPs"] = json!([{ "ip": host_ip }]);
    }
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    let count: usize = lists.iter().filter_map(|list| desired[*list].as_array()).map(Vec::len).sum();
    let limit = MESSAGES / count.max(1);
    for list in lists {
        for container in desired.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            for state in ["state", "lastState"] {
                if let Some(Value::String(message)) = container.pointer_mut(&format!("/{state}/terminated/message")) {
                    message.truncate(message.floor_char_boundary(limit));
                }
            }
        }
    }
    desired
}

/// Whether the API server's copy of a field is what we would write. The API server adds nothing to ours but empty objects: a
/// container without an earlier instance has `lastState: {}` there.
fn same(desired: &Value, copy: &Value) -> bool {
    let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
    match (desired, copy) {
        (Value::Object(desired), Value::Object(copy)) => {
            desired.iter().all(|(key, value)| copy.get(key).map_or_else(|| is_empty(value), |copy| same(value, copy)))
                && copy.iter().all(|(key, value)| desired.contains_key(key) || is_empty(value))
        }
        (Value::Array(desired), Value::Array(copy)) => {
            desired.len() == copy.len() && desired.iter().zip(copy).all(|(desired, copy)| same(desired, copy))
        }
        (desired, copy) => desired == copy,
    }
}

/// The elements of a list that is merged by a key: those that are new or different, and directives for those of `ours` that have to go.
fn merged(desired: &Value, copy: &Value, key: &str, ours: impl Fn(&str) -> bool) -> Vec<Value> {
    let elements = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let (desired, copy) = (elements(desired), elements(copy));
    let of_key = |list: &[Value], name: &Value| list.iter().find(|element| element[key] == *name).cloned();
    let mut changes = Vec::new();
    for element in &desired {
        match of_key(&copy, &element[key]) {
            Some(copied) if same(element, &copied) => {}
            // The scheduler has written it.
            Some(_) if element[key] == SCHEDULED => {}
            Some(copied) => changes.push(replacing(element, &copied)),
            None => changes.push(element.clone()),
        }
    }
    for element in &copy {
        let is_ours = element[key].as_str().is_some_and(&ours);
        if is_ours && of_key(&desired, &element[key]).is_none() {
            changes.push(json!({ "$patch": "delete", key: element[key] }));
        }
    }
    changes
}

/// An element that is merged into its copy: what the copy has and it has not goes.
fn replacing(element: &Value, copied: &Value) -> Value {
    let mut element = element.clone();
    if let (Some(fields), Some(copied)) = (element.as_object_mut(), copied.as_object()) {
        for (name, value) in copied {
            if !value.is_null() && !fields.contains_key(name) {
                fields.insert(name.clone(), Value::Null);
            }
        }
    }
    element
}

#[cfg(test)]
mod tests;
