//! Nodes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::{Kind, Part, split_status, untyped};
use crate::{
    field::FieldError,
    json::{at, default, list, object as object_at, text},
    names,
    patch::{NODE, Schema},
    typed::{DecodeError, drop_zero, round_trip},
};

/// The kind `Node`.
#[derive(Debug)]
pub(crate) struct Nodes;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

impl Kind for Nodes {
    fn decode(&self, object: Value) -> Result<Value, DecodeError> {
        let mut node = untyped(round_trip::<Node>(object)?);
        let spec = object_at(&mut node, "spec");
        if let (None, Some(first)) = (spec.get("podCIDRs"), spec.get("podCIDR").cloned()) {
            spec.insert("podCIDRs".to_owned(), json!([first]));
        }
        drop_zero(&mut node["spec"], &["unschedulable"]);
        let status = object_at(&mut node, "status");
        if let (None, Some(capacity)) = (status.get("allocatable"), status.get("capacity").cloned()) {
            status.insert("allocatable".to_owned(), capacity);
        }
        default(status, "daemonEndpoints", json!({ "kubeletEndpoint": { "Port": 0 } }));
        let info = object_at(&mut node["status"], "nodeInfo");
        for key in [
            "architecture",
            "bootID",
            "containerRuntimeVersion",
            "kernelVersion",
            "kubeProxyVersion",
            "kubeletVersion",
            "machineID",
            "operatingSystem",
            "osImage",
            "systemUUID",
        ] {
            default(info, key, "");
        }
        for condition in node["status"].get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            for key in ["lastHeartbeatTime", "lastTransitionTime"] {
                condition.as_object_mut().map(|map| map.entry(key).or_insert(Value::Null));
            }
        }
        Ok(node)
    }

    fn prepare_update(&self, part: Part, object: &mut Value, old: &Value) {
        split_status(part, object, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        taints(object)
    }

    fn validate_update(&self, part: Part, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = taints(object);
        let mut seen = BTreeSet::new();
        for (index, address) in list(object, &["status", "addresses"]).iter().enumerate() {
            if !seen.insert(address.to_string()) {
                errors.push(FieldError::duplicate(&format!("status.addresses[{index}]"), address));
            }
        }
        let cidrs = |node: &Value| list(node, &["spec", "podCIDRs"]).to_vec();
        if !cidrs(old).is_empty() && cidrs(old) != cidrs(object) {
            let detail = "node updates may not change podCIDR except from \"\" to valid";
            errors.push(FieldError::forbidden("spec.podCIDRs", detail));
        }
        let provider = |node| text(node, &["spec", "providerID"]).to_owned();
        match (provider(old), provider(object)) {
            (old, new) if old.is_empty() || old == new => {}
            (_, new) => {
                let detail = if new.is_empty() { "cleared" } else { "modified" };
                let detail = format!("field cannot be {detail} once set");
                errors.push(FieldError::invalid("spec.providerID", &Value::Null, &detail));
            }
        }
        // An update of the whole node is checked as a new one, too: each fault is named twice.
        if part == Part::Main {
            errors.splice(0..0, taints(object));
        }
        errors
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }

    fn field(&self, object: &Value, _: &str) -> String {
        at(object, &["spec", "unschedulable"]).is_some_and(|value| *value == true).to_string()
    }

    fn schema(&self) -> Option<&'static Schema> {
        Some(&NODE)
    }
}

/// Taints are named under `metadata`, where they once were.
fn taints(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, taint) in list(node, &["spec", "taints"]).iter().enumerate() {
        let field = |name: &str| format!("metadata.taints[{index}]{name}");
        let (key, value, effect) = (text(taint, &["key"]), text(taint, &["value"]), text(taint, &["effect"]));
        let of_key = names::qualified(key);
        errors.extend(of_key.iter().map(|fault| FieldError::invalid(&field(".key"), &key.into(), fault)));
        let of_value = names::label_value(value);
        if !of_value.is_empty() {
            errors.push(FieldError::invalid(&field(".value"), &value.into(), &of_value.join(";")));
        }
        if effect.is_empty() {
            errors.push(FieldError::required(&field(".effect"), ""));
        } else if !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(&field(".effect"), &effect.into(), &EFFECTS));
        }
        if !seen.insert((key, effect)) {
            let error = FieldError::duplicate(&field(""), taint);
            errors.push(error.with_detail("taints must be unique by key and effect pair"));
        }
    }
    errors
}
