//! JSON patches (RFC 6902).

use serde_json::Value;

use super::PatchError;

/// The most operations in one patch.
const MOST: usize = 10_000;

/// Applies all operations, or none.
pub(super) fn apply(mut object: Value, patch: &Value) -> Result<Value, PatchError> {
    let malformed =
        || PatchError::Malformed("json: cannot unmarshal object into Go value of type jsonpatch.Patch".to_owned());
    let operations = patch.as_array().ok_or_else(malformed)?;
    if operations.len() > MOST {
        return Err(PatchError::Inapplicable);
    }
    for operation in operations {
        step(&mut object, operation).ok_or(PatchError::Inapplicable)?;
    }
    Ok(object)
}

/// One operation; `None` if it does not fit.
fn step(object: &mut Value, operation: &Value) -> Option<()> {
    let path = pointer(operation.get("path")?.as_str()?)?;
    let value = || operation.get("value").cloned();
    match operation.get("op")?.as_str()? {
        "add" => add(object, &path, value()?),
        "remove" => remove(object, &path).map(drop),
        "replace" => replace(object, &path, value()?),
        "move" => {
            let from = pointer(operation.get("from")?.as_str()?)?;
            let moved = remove(object, &from)?;
            add(object, &path, moved)
        }
        "copy" => {
            let from = pointer(operation.get("from")?.as_str()?)?;
            // A key that is not there is copied as null.
            let copied = match from.split_last() {
                Some((last, parents)) => match find(object, parents)? {
                    Value::Object(map) => map.get(last).cloned().unwrap_or_default(),
                    _ => find(object, &from)?.clone(),
                },
                None => object.clone(),
            };
            add(object, &path, copied)
        }
        "test" => {
            let expected = value().unwrap_or(Value::Null);
            let found = find(object, &path).cloned().unwrap_or(Value::Null);
            (found == expected).then_some(())
        }
        _ => None,
    }
}

/// The parts of a pointer. The whole document has none.
fn pointer(text: &str) -> Option<Vec<String>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let parts = text.strip_prefix('/')?.split('/');
    Some(parts.map(|part| part.replace("~1", "/").replace("~0", "~")).collect())
}

fn find<'a>(object: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(object, |value, part| match value {
        Value::Object(map) => map.get_mut(part),
        Value::Array(items) => {
            let index: usize = part.parse().ok()?;
            items.get_mut(index)
        }
        _ => None,
    })
}

fn add(object: &mut Value, path: &[String], value: Value) -> Option<()> {
    let Some((last, parents)) = path.split_last() else {
        *object = value;
        return Some(());
    };
    match find(object, parents)? {
        Value::Object(map) => {
            map.insert(last.clone(), value);
            Some(())
        }
        Value::Array(items) => {
            let index = if last == "-" { items.len() } else { last.parse().ok()? };
            (index <= items.len()).then(|| items.insert(index, value))
        }
        _ => None,
    }
}

/// Of an object, also a key that is not there: the real server's library does not mind.
fn replace(object: &mut Value, path: &[String], value: Value) -> Option<()> {
    if let Some((last, parents)) = path.split_last()
        && let Value::Object(map) = find(object, parents)?
    {
        map.insert(last.clone(), value);
        return Some(());
    }
    *find(object, path)? = value;
    Some(())
}

fn remove(object: &mut Value, path: &[String]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    match find(object, parents)? {
        Value::Object(map) => map.remove(last),
        Value::Array(items) => {
            let index: usize = last.parse().ok()?;
            (index < items.len()).then(|| items.remove(index))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_follow_the_rfc() {
        let object = json!({ "a": { "b": 1 }, "list": [1, 2], "x/y": 0 });
        let table = [
            (
                json!([{ "op": "add", "path": "/a/c", "value": 2 }]),
                Some(json!({ "a": { "b": 1, "c": 2 }, "list": [1, 2], "x/y": 0 })),
            ),
            (
                json!([{ "op": "add", "path": "/list/1", "value": 9 }]),
                Some(json!({ "a": { "b": 1 }, "list": [1, 9, 2], "x/y": 0 })),
            ),
            (
                json!([{ "op": "add", "path": "/list/-", "value": 9 }]),
                Some(json!({ "a": { "b": 1 }, "list": [1, 2, 9], "x/y": 0 })),
            ),
            (json!([{ "op": "add", "path": "/list/3", "value": 9 }]), None),
            (json!([{ "op": "add", "path": "/z/c", "value": 2 }]), None),
            (json!([{ "op": "remove", "path": "/x~1y" }]), Some(json!({ "a": { "b": 1 }, "list": [1, 2] }))),
            (json!([{ "op": "remove", "path": "/nothing" }]), None),
            (json!([{ "op": "replace", "path": "/nothing/x", "value": 1 }]), None),
            (json!([{ "op": "replace", "path": "/list/9", "value": 1 }]), None),
            (
                json!([{ "op": "replace", "path": "/list/0", "value": 7 }]),
                Some(json!({ "a": { "b": 1 }, "list": [7, 2], "x/y": 0 })),
            ),
            (
                json!([{ "op": "move", "from": "/a/b", "path": "/b" }]),
                Some(json!({ "a": {}, "b": 1, "list": [1, 2], "x/y": 0 })),
            ),
            (
                json!([{ "op": "copy", "from": "/a/b", "path": "/b" }]),
                Some(json!({ "a": { "b": 1 }, "b": 1, "list": [1, 2], "x/y": 0 })),
            ),
            (json!([{ "op": "test", "path": "/a/b", "value": 1 }]), Some(object.clone())),
            (json!([{ "op": "test", "path": "/a/b", "value": 2 }]), None),
            (json!([{ "op": "test", "path": "/nothing", "value": null }]), Some(object.clone())),
            (json!([{ "op": "bad", "path": "/a" }]), None),
        ];
        for (patch, expected) in table {
            assert_eq!(apply(object.clone(), &patch).ok(), expected, "{patch}");
        }
        assert!(matches!(apply(object.clone(), &json!({})), Err(PatchError::Malformed(_))));
    }

    /// If one operation does not fit, nothing is changed.
    #[test]
    fn a_patch_is_applied_as_a_whole_or_not_at_all() {
        let patch = json!([
            { "op": "add", "path": "/a", "value": 1 },
            { "op": "test", "path": "/b", "value": 1 },
        ]);
        assert_eq!(apply(json!({}), &patch), Err(PatchError::Inapplicable));
    }
}
