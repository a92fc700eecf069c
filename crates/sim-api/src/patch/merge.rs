//! JSON merge patches (RFC 7386).

use serde_json::{Map, Value};

/// Null removes, objects merge, everything else replaces.
pub(super) fn apply(object: Value, patch: &Value) -> Value {
    let Some(fields) = patch.as_object() else { return patch.clone() };
    let mut object = match object {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    for (key, value) in fields {
        if value.is_null() {
            object.remove(key);
        } else {
            let old = object.remove(key).unwrap_or(Value::Null);
            object.insert(key.clone(), apply(old, value));
        }
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::apply;

    /// The examples of RFC 7386, appendix A.
    #[test]
    fn merge_patches_follow_the_rfc() {
        let table = [
            (json!({ "a": "b" }), json!({ "a": "c" }), json!({ "a": "c" })),
            (json!({ "a": "b" }), json!({ "b": "c" }), json!({ "a": "b", "b": "c" })),
            (json!({ "a": "b" }), json!({ "a": null }), json!({})),
            (json!({ "a": "b", "b": "c" }), json!({ "a": null }), json!({ "b": "c" })),
            (json!({ "a": ["b"] }), json!({ "a": "c" }), json!({ "a": "c" })),
            (json!({ "a": "c" }), json!({ "a": ["b"] }), json!({ "a": ["b"] })),
            (json!({ "a": { "b": "c" } }), json!({ "a": { "b": "d", "c": null } }), json!({ "a": { "b": "d" } })),
            (json!({ "a": [{ "b": "c" }] }), json!({ "a": [1] }), json!({ "a": [1] })),
            (json!({ "e": null }), json!({ "a": 1 }), json!({ "e": null, "a": 1 })),
            (json!({}), json!({ "a": { "bb": { "ccc": null } } }), json!({ "a": { "bb": {} } })),
        ];
        for (object, patch, expected) in table {
            assert_eq!(apply(object.clone(), &patch), expected, "{object} {patch}");
        }
    }
}
