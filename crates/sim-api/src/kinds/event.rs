//! Events: one stored form, two groups that print it.
//!
//! Stored is the form of the core group. `events.k8s.io` has other names for the same fields.

use k8s_openapi::api::{core::v1::Event as CoreEvent, events::v1::Event};
use serde_json::{Map, Value, json};

use super::{Kind, Part, Updates, untyped};
use crate::{
    field::FieldError,
    json::{at, default, object as object_at, text},
    names,
    patch::{PLAIN, Schema},
    typed::{DecodeError, check_micro_times, drop_zero, round_trip},
};

/// The kind `Event` of the core group.
#[derive(Debug)]
pub(crate) struct CoreEvents;

/// The kind `Event` of the group `events.k8s.io`.
#[derive(Debug)]
pub(crate) struct Events;

/// The same fields in both groups: the core group's name, the other's.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Times with microseconds.
const TIMES: [&[&str]; 2] = [&["eventTime"], &["series", "lastObservedTime"]];

impl Kind for CoreEvents {
    fn decode(&self, object: Value) -> Result<Value, DecodeError> {
        check_micro_times(&object, &TIMES)?;
        let mut event = untyped(round_trip::<CoreEvent>(object)?);
        drop_zero(&mut event, &["count"]);
        object_at(&mut event, "involvedObject");
        object_at(&mut event, "source");
        if let Some(map) = event.as_object_mut() {
            for key in ["firstTimestamp", "lastTimestamp", "eventTime"] {
                map.entry(key).or_insert(Value::Null);
            }
            default(map, "reportingComponent", "");
            default(map, "reportingInstance", "");
        }
        Ok(event)
    }

    fn prepare_update(&self, _: Part, _: &mut Value, _: &Value) {}

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        legacy(object, "reportingComponent")
    }

    fn checks_metadata(&self) -> bool {
        false
    }

    fn is_core(&self) -> bool {
        false
    }

    /// Events of the core group may have any name that fits into a path.
    fn name_faults(&self) -> fn(&str) -> Vec<String> {
        names::path_segment
    }

    fn selectable(&self) -> &'static [&'static str] {
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]
    }

    fn field(&self, object: &Value, name: &str) -> String {
        let component = text(object, &["source", "component"]);
        match name {
            "source" if component.is_empty() => text(object, &["reportingComponent"]).to_owned(),
            "source" => component.to_owned(),
            _ => text(object, &name.split('.').collect::<Vec<_>>()).to_owned(),
        }
    }

    fn updates(&self) -> Updates {
        Updates { create: true, unconditional: true }
    }

    fn schema(&self) -> Option<&'static Schema> {
        Some(&PLAIN)
    }
}

impl Kind for Events {
    fn decode(&self, object: Value) -> Result<Value, DecodeError> {
        check_micro_times(&object, &TIMES)?;
        CoreEvents.decode(to_core(&untyped(round_trip::<Event>(object)?)))
    }

    fn print(&self, object: &Value) -> Value {
        from_core(object)
    }

    fn prepare_update(&self, _: Part, _: &mut Value, _: &Value) {}

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = legacy(object, "reportingController");
        if at(object, &["eventTime"]).is_none() {
            errors.push(FieldError::required("eventTime", ""));
        }
        let kind = text(object, &["type"]);
        if kind != "Normal" && kind != "Warning" {
            let detail = format!("has invalid value: {kind}");
            errors.push(FieldError::invalid("type", &"".into(), &detail));
        }
        for key in ["firstTimestamp", "lastTimestamp", "count"] {
            if at(object, &[key]).is_some() {
                errors.push(FieldError::invalid(key, &"".into(), "needs to be unset"));
            }
        }
        errors
    }

    fn validate_update(&self, _: Part, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = legacy(object, "reportingController");
        for key in ["involvedObject", "reason", "message", "type", "action", "eventTime", "reportingInstance"] {
            if object.get(key) != old.get(key) {
                errors.push(FieldError::invalid(key, &object[key], crate::field::IMMUTABLE));
            }
        }
        errors
    }

    fn selectable(&self) -> &'static [&'static str] {
        CoreEvents.selectable()
    }

    fn field(&self, object: &Value, name: &str) -> String {
        CoreEvents.field(object, name)
    }

    fn updates(&self) -> Updates {
        CoreEvents.updates()
    }

    fn schema(&self) -> Option<&'static Schema> {
        Some(&PLAIN)
    }
}

/// From the form of `events.k8s.io` to the stored one.
fn to_core(event: &Value) -> Value {
    rename(event, |name| NAMES.iter().find(|(_, other)| *other == name).map(|(core, _)| *core))
}

/// From the stored form to that of `events.k8s.io`.
fn from_core(event: &Value) -> Value {
    let mut event = rename(event, |name| NAMES.iter().find(|(core, _)| *core == name).map(|(_, other)| *other));
    if event["reportingController"] == "" {
        event.as_object_mut().map(|map| map.remove("reportingController"));
    }
    if event["reportingInstance"] == "" {
        event.as_object_mut().map(|map| map.remove("reportingInstance"));
    }
    event
}

fn rename(event: &Value, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let fields = event.as_object().into_iter().flatten();
    let renamed: Map<String, Value> =
        fields.map(|(key, value)| (name(key).map_or_else(|| key.clone(), str::to_owned), value.clone())).collect();
    json!(renamed)
}

fn legacy(event: &Value, component: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (own, about) = (text(event, &["metadata", "namespace"]), text(event, &["involvedObject", "namespace"]));
    let is_new = at(event, &["eventTime"]).is_some();
    let fits = match (is_new, about.is_empty()) {
        (false, true) => own.is_empty() || own == "default",
        (false, false) => own == about,
        (true, true) => own == "default" || own == "kube-system",
        (true, false) => true,
    };
    if !fits {
        let detail = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", &about.into(), detail));
    }
    if is_new {
        let reporter = text(event, &["reportingComponent"]);
        if reporter.is_empty() {
            errors.push(FieldError::required(component, ""));
        }
        let faults = names::qualified(reporter);
        errors.extend(faults.iter().map(|fault| FieldError::invalid(component, &reporter.into(), fault)));
        for key in ["reportingInstance", "action", "reason"] {
            let value = text(event, &[key]);
            if value.is_empty() {
                errors.push(FieldError::required(key, ""));
            }
            if value.len() > 128 {
                errors.push(FieldError::invalid(key, &"".into(), "can have at most 128 characters"));
            }
        }
        if text(event, &["message"]).len() > 1024 {
            errors.push(FieldError::invalid("message", &"".into(), "can have at most 1024 characters"));
        }
    }
    errors
}
