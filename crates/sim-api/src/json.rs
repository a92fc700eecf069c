//! Small helpers for objects as JSON.

use serde_json::{Map, Value};

/// The text at a path, empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or("")
}

/// The value at a path.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// The list at a path, empty if there is none.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The whole number at a path.
pub(crate) fn number(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// The object at a key, made if it is not there.
pub(crate) fn object<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let map = value.as_object_mut().map(|map| map.entry(key).or_insert(Value::Null));
    let slot = map.expect("an object");
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("an object")
}

/// Sets a key unless it is there.
pub(crate) fn default(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a key to what it is elsewhere, or removes it if it is not there either.
pub(crate) fn copy(to: &mut Value, from: &Value, key: &str) {
    let Some(to) = to.as_object_mut() else { return };
    match from.get(key) {
        Some(value) => drop(to.insert(key.to_owned(), value.clone())),
        None => drop(to.remove(key)),
    }
}

/// Sets a key, or removes it.
pub(crate) fn set(map: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(map.insert(key.to_owned(), value)),
        None => drop(map.remove(key)),
    }
}
