//! Namespaces.

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use super::{Kind, Part, split_status, untyped};
use crate::{
    json::{default, object as object_at, text},
    names,
    patch::{NAMESPACE, Schema},
    typed::{DecodeError, round_trip},
};

/// The kind `Namespace`.
#[derive(Debug)]
pub(crate) struct Namespaces;

impl Kind for Namespaces {
    fn decode(&self, object: Value) -> Result<Value, DecodeError> {
        let mut namespace = untyped(round_trip::<Namespace>(object)?);
        let name = text(&namespace, &["metadata", "name"]).to_owned();
        if !name.is_empty() {
            object_at(&mut namespace["metadata"], "labels")
                .insert("kubernetes.io/metadata.name".to_owned(), name.into());
        }
        default(object_at(&mut namespace, "spec"), "finalizers", json!(["kubernetes"]));
        default(object_at(&mut namespace, "status"), "phase", "Active");
        Ok(namespace)
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({ "phase": "Active" });
    }

    fn prepare_update(&self, part: Part, object: &mut Value, old: &Value) {
        split_status(part, object, old);
        crate::json::copy(object, old, "spec");
    }

    fn name_faults(&self) -> fn(&str) -> Vec<String> {
        names::label
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["status.phase"]
    }

    fn field(&self, object: &Value, _: &str) -> String {
        text(object, &["status", "phase"]).to_owned()
    }

    fn answers_with_deleted(&self) -> bool {
        true
    }

    fn schema(&self) -> Option<&'static Schema> {
        Some(&NAMESPACE)
    }
}
