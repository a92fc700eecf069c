//! The kinds of objects: how each is decoded, filled in, checked and selected.
//!
//! A kind says what the real server's code for that resource says: defaults, which part of an object an endpoint may
//! change, validation, fields that selectors know. What all kinds share is in [`crate::meta`] and in the server.

mod config;
mod custom;
mod event;
mod lease;
mod namespace;
mod node;
mod pod;
mod pod_defaults;
mod pod_status;
mod service;
mod service_account;

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

pub(crate) use self::{
    config::{ConfigMaps, Secrets},
    custom::define,
    event::{CoreEvents, Events},
    lease::Leases,
    namespace::Namespaces,
    node::Nodes,
    pod::Pods,
    service::Services,
    service_account::ServiceAccounts,
};
use crate::{field::FieldError, names, patch::Schema, typed::DecodeError};

/// The endpoint of an object that a request writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object itself; never its status, where there is an endpoint for it.
    Main,
    /// `status`.
    Status,
    /// `ephemeralcontainers` of a pod.
    Ephemeral,
}

/// Which update a kind allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Updates {
    /// A PUT creates an object that is not there.
    pub(crate) create: bool,
    /// An update without a resourceVersion is carried out.
    pub(crate) unconditional: bool,
}

/// A kind of objects.
pub(crate) trait Kind: Send + Sync + fmt::Debug {
    /// Decodes an object, fills in defaults, and gives it the form in which it is printed. An error is the decoder's.
    fn decode(&self, object: Value) -> Result<Value, DecodeError>;

    /// A stored object in the form of this kind's group.
    fn print(&self, object: &Value) -> Value {
        object.clone()
    }

    /// Sets what a new object has and clears what it may not have.
    fn prepare_create(&self, object: &mut Value) {
        let _ = object;
    }

    /// Takes back what the endpoint may not change.
    fn prepare_update(&self, part: Part, object: &mut Value, old: &Value);

    /// What is wrong with an object, apart from its metadata.
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let _ = object;
        Vec::new()
    }

    /// What is wrong with a change, apart from the metadata.
    fn validate_update(&self, part: Part, object: &Value, old: &Value) -> Vec<FieldError> {
        let _ = (part, old);
        self.validate(object)
    }

    /// What is said about all faults together.
    fn remark(&self, errors: &[FieldError]) -> Option<FieldError> {
        let _ = errors;
        None
    }

    /// Whether its own validation checks the metadata: only then is that checked when something else is wrong.
    fn checks_metadata(&self) -> bool {
        true
    }

    /// Whether finalizers need a domain, as in the core group.
    fn is_core(&self) -> bool {
        true
    }

    /// What is wrong with a name.
    fn name_faults(&self) -> fn(&str) -> Vec<String> {
        names::subdomain
    }

    /// The names of the fields that selectors may use, apart from those of the metadata.
    fn selectable(&self) -> &'static [&'static str] {
        &[]
    }

    /// The value of such a field.
    fn field(&self, object: &Value, name: &str) -> String {
        let _ = (object, name);
        String::new()
    }

    /// Which updates it allows.
    fn updates(&self) -> Updates {
        Updates { create: false, unconditional: true }
    }

    /// Whether a deletion answers with the object rather than with a status.
    fn answers_with_deleted(&self) -> bool {
        false
    }

    /// The grace period of a deletion, for kinds that have one.
    fn grace(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let _ = (object, asked);
        None
    }

    /// How strategic merge patches treat its lists. `None` if it does not take such patches.
    fn schema(&self) -> Option<&'static Schema> {
        None
    }

    /// Whether the objects carry their apiVersion and kind in lists, as custom resources do.
    fn keeps_type(&self) -> bool {
        false
    }
}

/// The fields of an object by which selectors select.
pub(crate) fn selectable_fields(kind: &dyn Kind, object: &Value) -> BTreeMap<&'static str, String> {
    let meta = |key: &str| object["metadata"][key].as_str().unwrap_or("").to_owned();
    let mut fields = BTreeMap::from([("metadata.name", meta("name")), ("metadata.namespace", meta("namespace"))]);
    fields.extend(kind.selectable().iter().map(|name| (*name, kind.field(object, name))));
    fields
}

/// The endpoints of an object with a status: each leaves the other's part as it is.
fn split_status(part: Part, object: &mut Value, old: &Value) {
    match part {
        Part::Status => crate::json::copy(object, old, "spec"),
        Part::Main | Part::Ephemeral => crate::json::copy(object, old, "status"),
    }
}

/// Of a decoded object, without its apiVersion and kind: lists of the built-in kinds print neither.
fn untyped(mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
        map.entry("metadata").or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("managedFields");
        meta.remove("selfLink");
        if meta.get("generation").and_then(Value::as_i64) == Some(0) {
            meta.remove("generation");
        }
    }
    object
}
