//! The metadata that all objects share: what may stand in it, and what a request may change.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    field::{FieldError, IMMUTABLE},
    json::{at, list, number, text},
    kinds::Kind,
    names,
};

/// The most bytes that all annotations of an object may have.
const ANNOTATIONS: usize = 256 * 1024;

/// Finalizers that may stand without a domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// What is wrong with the metadata of an object, new or changed.
pub(crate) fn validate(object: &Value, namespaced: bool, kind: &dyn Kind) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let meta = &object["metadata"];
    let name = text(meta, &["name"]);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        let faults = kind.name_faults()(name);
        errors.extend(faults.iter().map(|fault| FieldError::invalid("metadata.name", &name.into(), fault)));
    }
    let namespace = text(meta, &["namespace"]);
    if namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required("metadata.namespace", ""));
        }
        let faults = names::label(namespace);
        let invalid = |fault: &String| FieldError::invalid("metadata.namespace", &namespace.into(), fault);
        errors.extend(faults.iter().filter(|_| !namespace.is_empty()).map(invalid));
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
    }
    errors.extend(labels(meta));
    errors.extend(annotations(meta));
    errors.extend(owners(meta));
    for (index, finalizer) in list(meta, &["finalizers"]).iter().enumerate() {
        let name = finalizer.as_str().unwrap_or("");
        if kind.is_core() && !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&format!("metadata.finalizers[{index}]"), finalizer, detail));
        }
        let faults = names::qualified(name);
        errors.extend(faults.iter().map(|fault| FieldError::invalid("metadata.finalizers", finalizer, fault)));
    }
    errors
}

/// What a change of the metadata may not do.
pub(crate) fn validate_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (meta, old) = (&object["metadata"], &old["metadata"]);
    if at(old, &["deletionTimestamp"]).is_some() {
        let before: BTreeSet<&str> = list(old, &["finalizers"]).iter().filter_map(Value::as_str).collect();
        let now: BTreeSet<&str> = list(meta, &["finalizers"]).iter().filter_map(Value::as_str).collect();
        let added: Vec<String> = now.difference(&before).map(|finalizer| format!("{finalizer:?}")).collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &detail));
        }
    }
    if text(meta, &["resourceVersion"]).is_empty() {
        errors.push(FieldError::invalid("metadata.resourceVersion", &"".into(), "must be specified for an update"));
    }
    if number(meta, &["generation"]).unwrap_or(0) < number(old, &["generation"]).unwrap_or(0) {
        errors.push(FieldError::invalid("metadata.generation", &meta["generation"], "must not be decremented"));
    }
    for key in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if at(meta, &[key]) != at(old, &[key]) {
            errors.push(FieldError::invalid(&format!("metadata.{key}"), &meta[key], IMMUTABLE));
        }
    }
    errors.extend(labels(meta));
    errors.extend(annotations(meta));
    errors.extend(owners(meta));
    errors
}

fn pairs<'a>(meta: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a str)> {
    let map = meta.get(key).and_then(Value::as_object);
    map.into_iter().flatten().map(|(key, value)| (key, value.as_str().unwrap_or("")))
}

fn labels(meta: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in pairs(meta, "labels") {
        let of_key = names::qualified(key);
        errors.extend(of_key.iter().map(|fault| FieldError::invalid("metadata.labels", &key.as_str().into(), fault)));
        let of_value = names::label_value(value);
        errors.extend(of_value.iter().map(|fault| FieldError::invalid("metadata.labels", &value.into(), fault)));
    }
    errors
}

fn annotations(meta: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in pairs(meta, "annotations") {
        size += key.len() + value.len();
        let faults = names::qualified(&key.to_lowercase());
        let invalid = |fault: &String| FieldError::invalid("metadata.annotations", &key.as_str().into(), fault);
        errors.extend(faults.iter().map(invalid));
    }
    if size > ANNOTATIONS {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS));
    }
    errors
}

fn owners(meta: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controllers = Vec::new();
    let owners = list(meta, &["ownerReferences"]);
    for (index, owner) in owners.iter().enumerate() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, &[key]).is_empty() {
                let field = format!("metadata.ownerReferences[{index}].{key}");
                errors.push(FieldError::required(&field, "must not be empty"));
            }
        }
        if owner["controller"] == true {
            controllers.push(format!("{}/{}", text(owner, &["kind"]), text(owner, &["name"])));
        }
    }
    if let [first, second, ..] = &controllers[..] {
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        errors.push(FieldError::invalid("metadata.ownerReferences", &owners.into(), &detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Nodes;

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|error| error.field.as_str()).collect()
    }

    #[test]
    fn metadata_is_validated() {
        let good = json!({ "metadata": {
            "name": "n", "labels": { "a.b/c": "d" }, "annotations": { "X": "any thing" },
            "finalizers": ["a.b/c"], "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u" }],
        }});
        assert_eq!(validate(&good, false, &Nodes), []);
        let bad = json!({ "metadata": {
            "name": "N", "namespace": "a", "labels": { "a b": "c d" }, "annotations": { "a b": "" },
            "finalizers": ["a b"], "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n" }],
        }});
        assert_eq!(
            fields(&validate(&bad, false, &Nodes)),
            [
                "metadata.name",
                "metadata.namespace",
                "metadata.labels",
                "metadata.labels",
                "metadata.annotations",
                "metadata.ownerReferences[0].uid",
                "metadata.finalizers[0]",
                "metadata.finalizers",
            ]
        );
    }

    #[test]
    fn what_identifies_an_object_cannot_change() {
        let old = json!({ "metadata": { "name": "n", "uid": "1", "resourceVersion": "4", "generation": 2 } });
        let same =
            json!({ "metadata": { "name": "n", "uid": "1", "resourceVersion": "4", "generation": 2, "labels": {} } });
        assert_eq!(validate_update(&same, &old), []);
        let other = json!({ "metadata": { "name": "m", "uid": "2", "generation": 1 } });
        assert_eq!(
            fields(&validate_update(&other, &old)),
            ["metadata.resourceVersion", "metadata.generation", "metadata.name", "metadata.uid"]
        );
    }

    #[test]
    fn an_object_that_is_being_deleted_gets_no_new_finalizers() {
        let old = json!({ "metadata": { "name": "n", "resourceVersion": "4", "deletionTimestamp": "t", "finalizers": ["a/b"] } });
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
        assert_eq!(fields(&validate_update(&new, &old)), ["metadata.finalizers"]);
        new["metadata"]["finalizers"] = json!([]);
        assert_eq!(validate_update(&new, &old), []);
    }
}
