//! Structural schemas, as far as they are met: types, properties, lists, bounds, enumerations, defaults, and rules that
//! a field does not change. Patterns, formats and other rules of validation are not checked.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    field::FieldError,
    json::{list, number, text},
};

/// The schema of a value.
#[derive(Debug, Default)]
pub(super) struct Schema {
    kind: String,
    properties: BTreeMap<String, Schema>,
    /// Of maps with free keys.
    others: Option<Box<Schema>>,
    items: Option<Box<Schema>>,
    required: Vec<String>,
    allowed: Vec<Value>,
    default: Option<Value>,
    keeps_unknown: bool,
    nullable: bool,
    /// The rule `self == oldSelf`.
    immutable: bool,
    least_items: Option<i64>,
    most_items: Option<i64>,
    least_length: Option<i64>,
    most_length: Option<i64>,
    least: Option<i64>,
    most: Option<i64>,
}

// === impl Schema ===

impl Schema {
    pub(super) fn read(schema: &Value) -> Self {
        let nodes = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let boxed = |key: &str| schema.get(key).filter(|node| node.is_object()).map(|node| Box::new(Self::read(node)));
        let rules = list(schema, &["x-kubernetes-validations"]);
        Self {
            kind: text(schema, &["type"]).to_owned(),
            properties: nodes.map(|(name, node)| (name.clone(), Self::read(node))).collect(),
            others: boxed("additionalProperties"),
            items: boxed("items"),
            required: list(schema, &["required"]).iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            allowed: list(schema, &["enum"]).to_vec(),
            default: schema.get("default").cloned(),
            keeps_unknown: schema["x-kubernetes-preserve-unknown-fields"] == true,
            nullable: schema["nullable"] == true,
            immutable: rules.iter().any(|rule| rule["rule"] == "self == oldSelf"),
            least_items: number(schema, &["minItems"]),
            most_items: number(schema, &["maxItems"]),
            least_length: number(schema, &["minLength"]),
            most_length: number(schema, &["maxLength"]),
            least: number(schema, &["minimum"]),
            most: number(schema, &["maximum"]),
        }
    }
}

impl Schema {
    /// Whether there are rules anywhere in it.
    pub(super) fn has_rules(&self) -> bool {
        let mut inner = self.properties.values().chain(self.others.as_deref()).chain(self.items.as_deref());
        self.immutable || inner.any(Self::has_rules)
    }
}

/// Removes what the schema does not know.
pub(super) fn prune(value: &mut Value, node: &Schema) {
    match value {
        Value::Object(map) => {
            if node.others.is_none() && !node.keeps_unknown {
                map.retain(|key, _| node.properties.contains_key(key));
            }
            for (key, value) in map.iter_mut() {
                if let Some(node) = node.properties.get(key).or(node.others.as_deref()) {
                    prune(value, node);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = &node.items {
                items.iter_mut().for_each(|item| prune(item, node));
            }
        }
        _ => {}
    }
}

/// Fills in defaults; null counts as absent where null is not allowed.
pub(super) fn complete(value: &mut Value, node: &Schema) {
    match value {
        Value::Object(map) => {
            for (key, node) in &node.properties {
                let absent = map.get(key).is_none_or(|value| value.is_null() && !node.nullable);
                if let (true, Some(default)) = (absent, &node.default) {
                    map.insert(key.clone(), default.clone());
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(node) = node.properties.get(key).or(node.others.as_deref()) {
                    complete(value, node);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = &node.items {
                items.iter_mut().for_each(|item| complete(item, node));
            }
        }
        _ => {}
    }
}

/// What is wrong with an object.
pub(super) fn validate(object: &Value, old: Option<&Value>, node: &Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check("", object, old, node, &mut errors);
    errors
}

fn check(path: &str, value: &Value, old: Option<&Value>, node: &Schema, errors: &mut Vec<FieldError>) {
    if value.is_null() && node.nullable {
        return;
    }
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !node.kind.is_empty() && node.kind != found && !(node.kind == "number" && found == "integer") {
        let detail = format!("{path} in body must be of type {}: {found:?}", node.kind);
        errors.push(FieldError::type_invalid(path, found, &detail));
        return;
    }
    if !node.allowed.is_empty() && !node.allowed.contains(value) {
        let supported: Vec<&str> = node.allowed.iter().filter_map(Value::as_str).collect();
        errors.push(FieldError::not_supported(path, value, &supported));
    }
    if node.immutable && old.is_some_and(|old| old != value) {
        let name = path.rsplit('.').next().unwrap_or(path);
        errors.push(FieldError::invalid(path, value, &format!("{name} is immutable")));
    }
    bounds(path, value, node, errors);
    match value {
        Value::Object(map) => {
            for key in node.required.iter().filter(|key| !map.contains_key(*key)) {
                errors.push(FieldError::required(&join(path, key), ""));
            }
            for (key, value) in map {
                if let Some(node) = node.properties.get(key).or(node.others.as_deref()) {
                    check(&join(path, key), value, old.and_then(|old| old.get(key)), node, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    check(&format!("{path}[{index}]"), item, None, node, errors);
                }
            }
        }
        _ => {}
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn bounds(path: &str, value: &Value, node: &Schema, errors: &mut Vec<FieldError>) {
    let size = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
    match value {
        Value::Array(items) => {
            if let Some(least) = node.least_items.filter(|least| size(items.len()) < *least) {
                let detail = format!("{path} in body should have at least {least} items");
                errors.push(FieldError::invalid(path, &size(items.len()).into(), &detail));
            }
            if let Some(most) = node.most_items.filter(|most| size(items.len()) > *most) {
                errors.push(FieldError::too_many(path, items.len(), most));
            }
        }
        Value::String(text) => {
            if let Some(least) = node.least_length.filter(|least| size(text.chars().count()) < *least) {
                let detail = format!("{path} in body should be at least {least} chars long");
                errors.push(FieldError::invalid(path, value, &detail));
            }
            if let Some(most) = node.most_length.filter(|most| size(text.chars().count()) > *most) {
                errors.push(FieldError::too_long(path, usize::try_from(most).unwrap_or(0)));
            }
        }
        Value::Number(number) => {
            let Some(number) = number.as_i64() else { return };
            if let Some(least) = node.least.filter(|least| number < *least) {
                let detail = format!("{path} in body should be greater than or equal to {least}");
                errors.push(FieldError::invalid(path, value, &detail));
            }
            if let Some(most) = node.most.filter(|most| number > *most) {
                let detail = format!("{path} in body should be less than or equal to {most}");
                errors.push(FieldError::invalid(path, value, &detail));
            }
        }
        _ => {}
    }
}
