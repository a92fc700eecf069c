//! Pods: their endpoints, what of a spec may change, and their deletion.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{Kind, Part, pod_defaults, pod_status, untyped};
use crate::{
    field::FieldError,
    json::{at, copy, list, number, object as object_at, text},
    names,
    patch::{POD, Schema},
    typed::{DecodeError, round_trip},
};

/// The kind `Pod`.
#[derive(Debug)]
pub(crate) struct Pods;

/// What the server says of other changes of a spec.
const MUTABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

impl Kind for Pods {
    fn decode(&self, object: Value) -> Result<Value, DecodeError> {
        let mut pod = untyped(round_trip::<Pod>(object)?);
        pod_defaults::fill(&mut pod);
        pod_status::fill(&mut pod);
        Ok(pod)
    }

    fn prepare_create(&self, object: &mut Value) {
        let quality = pod_defaults::quality(object);
        object["metadata"]["generation"] = 1.into();
        object["status"] = json!({ "phase": "Pending", "qosClass": quality });
    }

    fn prepare_update(&self, part: Part, object: &mut Value, old: &Value) {
        match part {
            Part::Main => {
                copy(object, old, "status");
                grow_generation(object, old);
            }
            Part::Status => {
                copy(object, old, "spec");
                pod_status::prepare_update(object, old);
            }
            Part::Ephemeral => {
                let ephemeral = object["spec"].get("ephemeralContainers").cloned();
                copy(object, old, "status");
                copy(object, old, "spec");
                crate::json::set(object_at(object, "spec"), "ephemeralContainers", ephemeral);
                grow_generation(object, old);
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut seen = BTreeSet::new();
        if list(object, &["spec", "containers"]).is_empty() {
            errors.push(FieldError::required("spec.containers", ""));
        }
        for group in ["initContainers", "containers", "ephemeralContainers"] {
            for (index, container) in list(object, &["spec", group]).iter().enumerate() {
                let field = |key: &str| format!("spec.{group}[{index}].{key}");
                let name = text(container, &["name"]);
                if name.is_empty() {
                    errors.push(FieldError::required(&field("name"), ""));
                } else {
                    let faults = names::label(name);
                    errors.extend(faults.iter().map(|f| FieldError::invalid(&field("name"), &name.into(), f)));
                }
                if !name.is_empty() && !seen.insert(name) {
                    errors.push(FieldError::duplicate(&field("name"), &name.into()));
                }
                if text(container, &["image"]).is_empty() {
                    errors.push(FieldError::required(&field("image"), ""));
                }
            }
        }
        let policies = ["Always", "OnFailure", "Never"];
        let policy = text(object, &["spec", "restartPolicy"]);
        if !policies.contains(&policy) {
            errors.push(FieldError::not_supported("spec.restartPolicy", &policy.into(), &policies));
        }
        errors
    }

    fn validate_update(&self, part: Part, object: &Value, old: &Value) -> Vec<FieldError> {
        match part {
            Part::Main => spec_update(object, old),
            Part::Status => pod_status::validate_update(object, old),
            Part::Ephemeral => ephemeral_update(object, old),
        }
    }

    fn selectable(&self) -> &'static [&'static str] {
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ]
    }

    fn field(&self, object: &Value, name: &str) -> String {
        let path: Vec<&str> = name.split('.').collect();
        match name {
            "spec.hostNetwork" => at(object, &path).is_some_and(|value| *value == true).to_string(),
            "status.podIP" | "status.podIPs" => {
                list(object, &["status", "podIPs"]).first().map_or("", |ip| text(ip, &["ip"])).to_owned()
            }
            _ => text(object, &path).to_owned(),
        }
    }

    fn answers_with_deleted(&self) -> bool {
        true
    }

    fn grace(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let wanted = asked.or_else(|| number(object, &["spec", "terminationGracePeriodSeconds"])).unwrap_or(0);
        let is_over = ["Failed", "Succeeded"].contains(&text(object, &["status", "phase"]));
        let unbound = text(object, &["spec", "nodeName"]).is_empty();
        Some(match wanted {
            _ if is_over || unbound => 0,
            ..0 => 1,
            _ => wanted,
        })
    }

    fn schema(&self) -> Option<&'static Schema> {
        Some(&POD)
    }
}

/// A pod's generation counts the changes of its spec.
fn grow_generation(object: &mut Value, old: &Value) {
    if object["spec"] != old["spec"] {
        let generation = number(old, &["metadata", "generation"]).unwrap_or(0);
        object["metadata"]["generation"] = (generation + 1).into();
    }
}

fn spec_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Pods.validate(object);
    let (spec, old) = (&object["spec"], &old["spec"]);
    for group in ["containers", "initContainers"] {
        if list(spec, &[group]).len() != list(old, &[group]).len() {
            let detail = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(&format!("spec.{group}"), detail));
            return errors;
        }
    }
    let deadline = |spec| number(spec, &["activeDeadlineSeconds"]);
    match (deadline(old), deadline(spec)) {
        (Some(_), None) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid("spec.activeDeadlineSeconds", &Value::Null, detail));
        }
        (Some(before), Some(now)) if now > before => {
            let detail = "must be less than or equal to previous value";
            errors.push(FieldError::invalid("spec.activeDeadlineSeconds", &now.into(), detail));
            return errors;
        }
        _ => {}
    }
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.as_object_mut().map(|map| map.remove("tolerationSeconds"));
        toleration
    };
    let now: Vec<Value> = list(spec, &["tolerations"]).iter().map(without_seconds).collect();
    if !list(old, &["tolerations"]).iter().all(|before| now.contains(&without_seconds(before))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", detail));
    }
    let mut munged = spec.clone();
    for group in ["containers", "initContainers"] {
        let containers = munged.get_mut(group).and_then(Value::as_array_mut).into_iter().flatten();
        containers.zip(list(old, &[group])).for_each(|(container, old)| copy(container, old, "image"));
    }
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        copy(&mut munged, old, key);
    }
    if munged != *old {
        errors.push(FieldError::forbidden("spec", MUTABLE));
    }
    errors
}

fn ephemeral_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let path = ["spec", "ephemeralContainers"];
    let (now, before) = (list(object, &path), list(old, &path));
    let mut errors = Pods.validate(object);
    for old in before {
        let name = text(old, &["name"]);
        match now.iter().find(|container| text(container, &["name"]) == name) {
            None => {
                let detail = format!("existing ephemeral containers {name:?} may not be removed\n");
                errors.push(FieldError::forbidden("spec.ephemeralContainers", &detail));
            }
            Some(container) if container != old => {
                let detail = format!("existing ephemeral containers {name:?} may not be changed\n");
                errors.push(FieldError::forbidden("spec.ephemeralContainers", &detail));
            }
            Some(_) => {}
        }
    }
    errors
}
