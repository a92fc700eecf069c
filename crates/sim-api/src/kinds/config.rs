//! Config maps and secrets.

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::Value;

use super::{Kind, Part, untyped};
use crate::{
    field::{FieldError, IMMUTABLE},
    json::{default, object as object_at, text},
    names,
    patch::{PLAIN, Schema},
    typed::{DecodeError, round_trip},
};

/// The kind `ConfigMap`.
#[derive(Debug)]
pub(crate) struct ConfigMaps;

/// The kind `Secret`.
#[derive(Debug)]
pub(crate) struct Secrets;

/// The most bytes of data in one object.
const MOST: usize = 1024 * 1024;

const SEALED: &str = "field is immutable when `immutable` is set";

impl Kind for ConfigMaps {
    fn decode(&self, object: Value) -> Result<Value, DecodeError> {
        Ok(untyped(round_trip::<ConfigMap>(object)?))
    }

    fn prepare_update(&self, _: Part, _: &mut Value, _: &Value) {}

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = data(object, "data");
        errors.extend(data(object, "binaryData"));
        for (key, _) in object.get("data").and_then(Value::as_object).into_iter().flatten() {
            if object.get("binaryData").is_some_and(|binary| binary.get(key).is_some()) {
                let detail = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid(&format!("data[{key}]"), &key.as_str().into(), detail));
            }
        }
        if size(object, "data", false) + size(object, "binaryData", true) > MOST {
            errors.push(FieldError::too_long("", MOST));
        }
        errors
    }

    fn validate_update(&self, _: Part, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = sealed(object, old, &["data", "binaryData"]);
        errors.extend(self.validate(object));
        errors
    }

    fn schema(&self) -> Option<&'static Schema> {
        Some(&PLAIN)
    }
}

impl Kind for Secrets {
    fn decode(&self, object: Value) -> Result<Value, DecodeError> {
        let mut secret = untyped(round_trip::<Secret>(object)?);
        // Written as text, read as data.
        let texts = secret.as_object_mut().and_then(|map| map.remove("stringData"));
        for (key, value) in texts.as_ref().and_then(Value::as_object).into_iter().flatten() {
            let encoded = BASE64_STANDARD.encode(value.as_str().unwrap_or(""));
            object_at(&mut secret, "data").insert(key.clone(), encoded.into());
        }
        if let Some(map) = secret.as_object_mut() {
            default(map, "type", "Opaque");
        }
        Ok(secret)
    }

    fn prepare_update(&self, _: Part, object: &mut Value, old: &Value) {
        if text(object, &["type"]).is_empty() {
            crate::json::copy(object, old, "type");
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = data(object, "data");
        if size(object, "data", true) > MOST {
            errors.push(FieldError::too_long("data", MOST));
        }
        let required: &[&str] = match text(object, &["type"]) {
            "kubernetes.io/tls" => &["tls.crt", "tls.key"],
            "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
            "kubernetes.io/dockercfg" => &[".dockercfg"],
            _ => &[],
        };
        for key in required {
            if object.get("data").is_none_or(|data| data.get(key).is_none()) {
                errors.push(FieldError::required(&format!("data[{key}]"), ""));
            }
        }
        errors
    }

    fn validate_update(&self, _: Part, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if object.get("type") != old.get("type") {
            errors.push(FieldError::invalid("type", &object["type"], IMMUTABLE));
        }
        errors.extend(sealed(object, old, &["data"]));
        errors.extend(self.validate(object));
        errors
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["type"]
    }

    fn field(&self, object: &Value, _: &str) -> String {
        text(object, &["type"]).to_owned()
    }

    fn schema(&self) -> Option<&'static Schema> {
        Some(&PLAIN)
    }
}

fn data(object: &Value, key: &str) -> Vec<FieldError> {
    let keys = object.get(key).and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name);
    keys.flat_map(|name| {
        let invalid =
            move |fault: String| FieldError::invalid(&format!("{key}[{name}]"), &name.as_str().into(), &fault);
        names::data_key(name).into_iter().map(invalid)
    })
    .collect()
}

/// The bytes of all values; those of encoded ones decoded.
fn size(object: &Value, key: &str, encoded: bool) -> usize {
    let values = object.get(key).and_then(Value::as_object).into_iter().flatten();
    let length = |text: &str| if encoded { text.len() / 4 * 3 } else { text.len() };
    values.map(|(_, value)| value.as_str().map_or(0, length)).sum()
}

/// Once immutable, always.
fn sealed(object: &Value, old: &Value, keys: &[&str]) -> Vec<FieldError> {
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return Vec::new();
    }
    let mut errors = Vec::new();
    if object.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden("immutable", SEALED));
    }
    let changed = keys.iter().filter(|key| object.get(**key) != old.get(**key));
    errors.extend(changed.map(|key| FieldError::forbidden(key, SEALED)));
    errors
}
