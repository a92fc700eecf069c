//! Strategic merge patches: lists of objects are merged by a key, and a patch may say what to do with an element.
//!
//! The directives: `$patch: delete` and `$patch: replace` in an object or an element, `$retainKeys`,
//! `$deleteFromPrimitiveList/FIELD` and `$setElementOrder/FIELD`.

use serde_json::{Map, Value};

use super::{
    PatchError,
    schema::{Field, Schema},
};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

type Object = Map<String, Value>;

/// Applies a patch.
pub(super) fn apply(object: Value, patch: Value, schema: &Schema) -> Result<Value, PatchError> {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(PatchError::Malformed("Invalid JSON Patch".to_owned()));
    };
    merge(object, patch, Some(schema)).map(Value::Object)
}

fn merge(mut object: Object, mut patch: Object, schema: Option<&Schema>) -> Result<Object, PatchError> {
    match patch.remove(DIRECTIVE) {
        None => {}
        Some(directive) if directive == "replace" => return Ok(patch),
        Some(directive) if directive == "delete" => return Ok(Object::new()),
        Some(directive) => return Err(bad(&format!("unknown patch type: {directive}"))),
    }
    retain(&mut object, &mut patch)?;
    let orders: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for key in orders {
        let order = patch.remove(&key);
        let (Some(Value::Array(order)), Some(field)) = (order, key.strip_prefix(ORDER)) else {
            return Err(bad("invalid $setElementOrder"));
        };
        let patched = patch.remove(field);
        reorder(&mut object, field, patched, &order, schema)?;
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(DELETE_FROM) {
            let (Value::Array(gone), Some(Value::Array(items))) = (value, object.get_mut(field)) else { continue };
            items.retain(|item| !gone.contains(item));
            continue;
        }
        if value.is_null() {
            object.remove(&key);
            continue;
        }
        let field = schema.and_then(|schema| schema.field(&key));
        let merged = match (object.remove(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let inner = if let Some(Field::Struct(inner)) = field { Some(*inner) } else { None };
                Some(Value::Object(merge(old, new, inner)?))
            }
            (Some(Value::Array(old)), Value::Array(new)) => Some(Value::Array(merge_lists(old, new, field)?)),
            (_, new) => without_directives(new),
        };
        if let Some(merged) = merged {
            object.insert(key, merged);
        }
    }
    Ok(object)
}

fn bad(why: &str) -> PatchError {
    PatchError::Malformed(why.to_owned())
}

/// `$retainKeys` names the only keys that stay.
fn retain(object: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(PatchError::Inapplicable) };
    let kept = |key: &String| keys.iter().any(|kept| kept == key.as_str());
    let is_value =
        |(key, value): &(&String, &Value)| !value.is_null() && !key.starts_with(DELETE_FROM) && !key.starts_with(ORDER);
    if !patch.iter().filter(is_value).all(|(key, _)| kept(key)) {
        return Err(PatchError::Inapplicable);
    }
    object.retain(|key, _| kept(key));
    Ok(())
}

fn merge_lists(old: Vec<Value>, new: Vec<Value>, field: Option<&Field>) -> Result<Vec<Value>, PatchError> {
    match field {
        Some(Field::Set) => {
            let mut merged = old.clone();
            for item in &new {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            Ok(in_order(merged, &new, &old, None))
        }
        Some(Field::List(key, inner)) => merge_elements(old, new, key, inner),
        // Directives in there are fields that the decoder does not know.
        Some(Field::Struct(_)) | None => Ok(new),
    }
}

fn merge_elements(mut old: Vec<Value>, new: Vec<Value>, key: &str, inner: &Schema) -> Result<Vec<Value>, PatchError> {
    let mut replaces = false;
    let mut patched = Vec::new();
    for element in new {
        let Value::Object(mut element) = element else { return Err(PatchError::Inapplicable) };
        match element.remove(DIRECTIVE) {
            None => patched.push(Value::Object(element)),
            Some(directive) if directive == "delete" => {
                let value = element.get(key).ok_or_else(|| no_key(key))?;
                old.retain(|item| item.get(key) != Some(value));
            }
            Some(directive) if directive == "replace" => replaces = true,
            Some(directive) => return Err(bad(&format!("unknown patch type: {directive}"))),
        }
    }
    if replaces {
        return Ok(patched);
    }
    let mut merged = old.clone();
    for element in &patched {
        let value = element.get(key).ok_or_else(|| no_key(key))?;
        match merged.iter_mut().find(|item| item.get(key) == Some(value)) {
            Some(item) => {
                let (Value::Object(before), Value::Object(element)) = (item.clone(), element.clone()) else { continue };
                *item = Value::Object(merge(before, element, Some(inner))?);
            }
            None => merged.extend(without_directives(element.clone())),
        }
    }
    Ok(in_order(merged, &patched, &old, Some(key)))
}

fn no_key(key: &str) -> PatchError {
    PatchError::Unforeseen(format!("map does not contain declared merge key: {key}"))
}

/// `$setElementOrder/FIELD`: merges the list and puts it in the order that is given.
fn reorder(
    object: &mut Object,
    name: &str,
    patched: Option<Value>,
    order: &[Value],
    schema: Option<&Schema>,
) -> Result<(), PatchError> {
    let field = schema.and_then(|schema| schema.field(name));
    let old = match object.get(name) {
        Some(Value::Array(old)) => Some(old.clone()),
        _ => None,
    };
    let merged = match (old.clone(), patched) {
        (None, None) => return Ok(()),
        (Some(old), Some(Value::Array(new))) => merge_lists(old, new, field)?,
        (None, Some(Value::Array(new))) => new.into_iter().filter_map(without_directives).collect(),
        (Some(old), None) => old,
        (_, Some(_)) => return Err(PatchError::Inapplicable),
    };
    let key = if let Some(Field::List(key, _)) = field { Some(*key) } else { None };
    let sorted = in_order(merged, order, &old.unwrap_or_default(), key);
    object.insert(name.to_owned(), Value::Array(sorted));
    Ok(())
}

/// Elements of the patch in its order, the others in the server's, and both woven together: an element of the patch goes
/// first unless both are on the server and the other one stands before it there.
fn in_order(merged: Vec<Value>, patch: &[Value], server: &[Value], key: Option<&str>) -> Vec<Value> {
    let same = |one: &Value, other: &Value| match key {
        Some(key) => one.get(key) == other.get(key),
        None => one == other,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut patched, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(patch, item).is_some());
    patched.sort_by_key(|item| place(patch, item));
    others.sort_by_key(|item| place(server, item).unwrap_or(usize::MAX));
    let mut woven = Vec::with_capacity(patched.len() + others.len());
    let (mut patched, mut others) = (patched.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(right), Some(left)) = (patched.peek(), others.peek()) {
        let left_first = place(server, left).zip(place(server, right)).is_some_and(|(left, right)| left < right);
        woven.extend(if left_first { others.next() } else { patched.next() });
    }
    woven.extend(patched);
    woven.extend(others);
    woven
}

/// What is new in the object: without directives and without nulls. Nothing, if the value is a directive itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) => {
            if map.get(DIRECTIVE).is_some_and(|directive| directive == "delete") {
                return None;
            }
            let is_kept = |key: &String, value: &Value| {
                !value.is_null()
                    && key != DIRECTIVE
                    && key != RETAIN
                    && !key.starts_with(ORDER)
                    && !key.starts_with(DELETE_FROM)
            };
            let kept = map.into_iter().filter(|(key, value)| is_kept(key, value));
            Some(Value::Object(kept.filter_map(|(key, value)| Some((key, without_directives(value)?))).collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
