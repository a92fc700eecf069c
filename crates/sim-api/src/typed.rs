//! Objects of the built-in kinds in the form in which the real server stores and prints them.
//!
//! The real server decodes every object into a struct and encodes it again: unknown fields and empty optional ones are
//! gone, times have whole seconds, a wrong type is an error. Here the structs of `k8s_openapi` do it. What they print in
//! another way than Go's is set right by each kind (`fill`).

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::json::at;

/// Maps with free keys: their values are kept as they are.
const MAPS: [&str; 14] = [
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "data",
    "binaryData",
    "stringData",
    "capacity",
    "allocatable",
    "limits",
    "requests",
    "overhead",
    "allocatedResources",
    "selector",
];

/// An object that is not of its kind.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error(transparent)]
    Struct(#[from] serde_json::Error),
    #[error("parsing time {0:?} as \"2006-01-02T15:04:05.000000Z07:00\"")]
    MicroTime(String),
    #[error("it is not an object")]
    NotAnObject,
}

/// Decodes into the kind's struct and encodes again. The error is the decoder's.
pub(crate) fn round_trip<T: DeserializeOwned + Serialize>(mut value: Value) -> Result<Value, DecodeError> {
    strip(&mut value);
    let typed: T = serde_json::from_value(value)?;
    Ok(serde_json::to_value(typed)?)
}

/// Times with microseconds have exactly six digits for them; other forms are errors of the decoder.
pub(crate) fn check_micro_times(object: &Value, paths: &[&[&str]]) -> Result<(), DecodeError> {
    for time in paths.iter().filter_map(|path| at(object, path)).filter_map(Value::as_str) {
        let digits = time.split_once('.').map_or(0, |(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
        if digits != 6 {
            return Err(DecodeError::MicroTime(time.to_owned()));
        }
    }
    Ok(())
}

/// Removes what Go leaves out of optional fields: null, empty texts, empty lists, empty maps.
pub(crate) fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| {
                let is_map = MAPS.contains(&key.as_str());
                if is_map {
                    null_to_empty(value);
                } else {
                    strip(value);
                }
                match value {
                    Value::Null => false,
                    Value::String(text) => !text.is_empty(),
                    Value::Array(items) => !items.is_empty(),
                    Value::Object(fields) => !(is_map && fields.is_empty()),
                    Value::Bool(_) | Value::Number(_) => true,
                }
            });
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// In maps of texts, Go reads null as an empty text.
fn null_to_empty(map: &mut Value) {
    for value in map.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
        if value.is_null() {
            *value = Value::String(String::new());
        }
    }
}

/// Removes flags that are false and numbers that are zero, where Go's fields cannot tell them from absent ones.
pub(crate) fn drop_zero(value: &mut Value, keys: &[&str]) {
    let Some(map) = value.as_object_mut() else { return };
    for key in keys {
        if map.get(*key).is_some_and(|value| *value == Value::Bool(false) || value.as_i64() == Some(0)) {
            map.remove(*key);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_lose_what_go_leaves_out() {
        let given = json!({
            "metadata": { "name": "n", "labels": {}, "annotations": { "a": "" }, "unknown": 1 },
            "spec": { "taints": [{ "key": "k", "effect": "NoSchedule", "value": "" }], "podCIDRs": [], "podCIDR": "" },
            "status": { "conditions": [{ "type": "Ready", "lastHeartbeatTime": "2026-01-01T00:00:00.5Z" }] },
            "foo": {},
        });
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": "n", "annotations": { "a": "" } },
            "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] },
            "status": { "conditions": [{ "type": "Ready", "status": "", "lastHeartbeatTime": "2026-01-01T00:00:00Z" }] },
        });
        assert_eq!(round_trip::<Node>(given).unwrap(), expected);
    }

    #[test]
    fn wrong_types_are_errors_and_values_of_maps_are_kept() {
        assert!(round_trip::<ConfigMap>(json!({ "data": { "a": 1 } })).is_err());
        assert!(round_trip::<Node>(json!({ "spec": { "taints": "x" } })).is_err());
        let kept = round_trip::<ConfigMap>(json!({ "data": { "a": "", "b": "x" } })).unwrap();
        assert_eq!(kept["data"], json!({ "a": "", "b": "x" }));
    }
}
