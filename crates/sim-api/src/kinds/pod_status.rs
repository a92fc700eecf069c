//! The status of pods: its form, and which changes of it are refused.

use serde_json::{Value, json};

use crate::{
    field::{FieldError, IMMUTABLE},
    json::{at, copy, list, number, object, text},
    names,
    typed::drop_zero,
};

/// Lists of container statuses, and the containers in the spec that they are about.
const STATUSES: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

/// Gives it the form in which the server prints it.
pub(super) fn fill(pod: &mut Value) {
    let status = object(pod, "status");
    let first = status.get("podIPs").and_then(|ips| ips.get(0)).and_then(|ip| ip.get("ip")).cloned();
    match (status.get("podIP").cloned(), first) {
        (Some(ip), first) if first.as_ref() != Some(&ip) => {
            drop(status.insert("podIPs".to_owned(), json!([{ "ip": ip }])))
        }
        (None, Some(first)) => drop(status.insert("podIP".to_owned(), first)),
        _ => {}
    }
    for (key, _) in STATUSES {
        for container in status.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            for part in ["state", "lastState"] {
                let state = object(container, part);
                if let Some(running) = state.get_mut("running").and_then(Value::as_object_mut) {
                    running.entry("startedAt").or_insert(Value::Null);
                }
                if let Some(terminated) = state.get_mut("terminated") {
                    drop_zero(terminated, &["signal"]);
                    for time in ["startedAt", "finishedAt"] {
                        terminated.as_object_mut().map(|map| map.entry(time).or_insert(Value::Null));
                    }
                }
            }
        }
    }
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        drop_zero(condition, &["observedGeneration"]);
        for time in ["lastProbeTime", "lastTransitionTime"] {
            condition.as_object_mut().map(|map| map.entry(time).or_insert(Value::Null));
        }
    }
    drop_zero(&mut pod["status"], &["observedGeneration"]);
}

/// What the endpoint of the status may not change, and what it keeps if a client leaves it out.
pub(super) fn prepare_update(pod: &mut Value, old: &Value) {
    copy(&mut pod["metadata"], &old["metadata"], "ownerReferences");
    copy(&mut pod["metadata"], &old["metadata"], "deletionTimestamp");
    for key in ["qosClass", "resourceClaimStatuses", "observedGeneration"] {
        if at(&pod["status"], &[key]).is_none() {
            copy(&mut pod["status"], &old["status"], key);
        }
    }
    for condition in pod["status"].get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let mut before = list(old, &["status", "conditions"]).iter();
        let before = before.find(|before| before["type"] == condition["type"]);
        if let (None, Some(before)) = (condition.get("observedGeneration"), before) {
            copy(condition, before, "observedGeneration");
        }
    }
}

/// Changes of the status that are refused.
pub(super) fn validate_update(pod: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, condition) in list(pod, &["status", "conditions"]).iter().enumerate() {
        let kind = text(condition, &["type"]);
        if ["PodScheduled", "Ready", "Initialized"].contains(&kind) {
            continue;
        }
        let field = format!("status.conditions[{index}].Type");
        errors.extend(names::qualified(kind).iter().map(|fault| FieldError::invalid(&field, &kind.into(), fault)));
    }
    if pod["status"].get("qosClass") != old["status"].get("qosClass") {
        errors.push(FieldError::invalid("status.qosClass", &pod["status"]["qosClass"], IMMUTABLE));
    }
    for (statuses, containers) in STATUSES {
        errors.extend(transitions(pod, old, statuses, containers));
    }
    errors
}

/// A container that ended and may not restart stays ended.
fn transitions(pod: &Value, old: &Value, statuses: &str, containers: &str) -> Vec<FieldError> {
    let spec = &old["spec"];
    let restarts_all =
        ["containers", "initContainers"].iter().flat_map(|group| list(spec, &[group])).any(|container| {
            list(container, &["restartPolicyRules"]).iter().any(|rule| rule["action"] == "RestartAllContainers")
        });
    if restarts_all && containers != "ephemeralContainers" {
        return Vec::new();
    }
    let mut errors = Vec::new();
    for (index, before) in list(old, &["status", statuses]).iter().enumerate() {
        let Some(ended) = at(before, &["state", "terminated"]) else { continue };
        let code = number(ended, &["exitCode"]).unwrap_or(0);
        let name = text(before, &["name"]);
        let container = list(spec, &[containers]).iter().find(|container| text(container, &["name"]) == name);
        let revived = list(pod, &["status", statuses])
            .iter()
            .find(|now| text(now, &["name"]) == name)
            .is_some_and(|now| at(now, &["state", "terminated"]).is_none());
        let allowed =
            containers != "ephemeralContainers" && container.is_some_and(|container| restarts(spec, container, code));
        if revived && !allowed {
            let field = format!("status.{statuses}[{index}].state");
            errors.push(FieldError::forbidden(&field, "may not be transitioned to non-terminated state"));
        }
    }
    errors
}

/// Whether a container restarts after it has exited with that code.
fn restarts(spec: &Value, container: &Value, code: i64) -> bool {
    let own = text(container, &["restartPolicy"]);
    if !own.is_empty() {
        let matches = |rule: &Value| {
            let listed = list(rule, &["exitCodes", "values"]).iter().any(|value| value.as_i64() == Some(code));
            at(rule, &["exitCodes"]).is_some() && listed == (text(rule, &["exitCodes", "operator"]) == "In")
        };
        if list(container, &["restartPolicyRules"]).iter().any(matches) {
            return true;
        }
    }
    match if own.is_empty() { text(spec, &["restartPolicy"]) } else { own } {
        "OnFailure" => code != 0,
        "Never" => false,
        _ => true,
    }
}
