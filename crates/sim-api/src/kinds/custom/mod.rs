//! Custom resources: objects of any form that a schema describes.

mod schema;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use self::schema::{Schema, complete, prune, validate};
use super::{Kind, Part, Updates};
use crate::{
    field::FieldError,
    json::{copy, number, text},
    resources::Resource,
    typed::{DecodeError, drop_zero, round_trip},
};

/// A kind that a CustomResourceDefinition defines.
#[derive(Debug)]
pub(crate) struct Custom {
    schema: Schema,
    has_status: bool,
}

/// What a definition lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Incomplete {
    #[error("the definition lacks a served version")]
    Version,
    #[error("the definition lacks group, plural and kind")]
    Names,
    #[error("the definition lacks a schema")]
    Schema,
}

/// Reads a definition.
pub(crate) fn define(definition: &Value) -> Result<Resource, Incomplete> {
    let spec = &definition["spec"];
    let versions = crate::json::list(spec, &["versions"]);
    let version = versions.iter().find(|version| version["served"] == true).ok_or(Incomplete::Version)?;
    let (group, plural) = (text(spec, &["group"]), text(spec, &["names", "plural"]));
    let kind = text(spec, &["names", "kind"]);
    if group.is_empty() || plural.is_empty() || kind.is_empty() {
        return Err(Incomplete::Names);
    }
    let has_status = version["subresources"].get("status").is_some();
    let schema = Schema::read(version["schema"].get("openAPIV3Schema").ok_or(Incomplete::Schema)?);
    let strategy = Arc::new(Custom { schema, has_status });
    let namespaced = spec["scope"] == "Namespaced";
    Ok(Resource::custom(group, text(version, &["name"]), plural, kind, namespaced, strategy, has_status))
}

impl Kind for Custom {
    fn decode(&self, mut object: Value) -> Result<Value, DecodeError> {
        if !object.is_object() {
            return Err(DecodeError::NotAnObject);
        }
        let meta = object.get("metadata").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let mut meta = round_trip::<ObjectMeta>(meta)?;
        meta.as_object_mut().map(|map| map.remove("managedFields"));
        drop_zero(&mut meta, &["generation"]);
        if let Some(map) = object.as_object_mut() {
            map.remove("kind");
            map.remove("apiVersion");
            map.remove("metadata");
        }
        prune(&mut object, &self.schema);
        complete(&mut object, &self.schema);
        object["metadata"] = meta;
        Ok(object)
    }

    fn prepare_create(&self, object: &mut Value) {
        if self.has_status {
            object.as_object_mut().map(|map| map.remove("status"));
        }
        object["metadata"]["generation"] = 1.into();
    }

    fn prepare_update(&self, part: Part, object: &mut Value, old: &Value) {
        if part == Part::Status {
            // Of what the endpoint of the status is given, nothing but the status counts.
            let status = object.get("status").cloned();
            let version = object["metadata"]["resourceVersion"].clone();
            *object = old.clone();
            object["metadata"]["resourceVersion"] = version;
            if let Some(map) = object.as_object_mut() {
                crate::json::set(map, "status", status);
            }
            return;
        }
        if self.has_status {
            copy(object, old, "status");
        }
        let content = |object: &Value| {
            let mut map = object.as_object().cloned().unwrap_or_default();
            map.remove("metadata");
            map
        };
        if content(object) != content(old) {
            let generation = number(old, &["metadata", "generation"]).unwrap_or(0);
            object["metadata"]["generation"] = (generation + 1).into();
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate(object, None, &self.schema)
    }

    fn validate_update(&self, _: Part, object: &Value, old: &Value) -> Vec<FieldError> {
        validate(object, Some(old), &self.schema)
    }

    fn remark(&self, errors: &[FieldError]) -> Option<FieldError> {
        let detail = "some validation rules were not checked because the object was invalid";
        let blocked = self.schema.has_rules() && errors.iter().any(|error| error.fault.blocks_rules());
        blocked.then(|| FieldError::invalid("<nil>", &Value::Null, detail))
    }

    fn is_core(&self) -> bool {
        false
    }

    fn updates(&self) -> Updates {
        Updates { create: false, unconditional: false }
    }

    fn keeps_type(&self) -> bool {
        true
    }
}
