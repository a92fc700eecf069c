//! Tables of strategic merge patches.

use serde_json::{Value, json};

use super::apply;
use crate::patch::{NODE, POD, PatchError};

fn node(patch: Value) -> Result<Value, PatchError> {
    let node = json!({
        "metadata": { "name": "n", "labels": { "a": "1" }, "finalizers": ["x/a", "x/b"],
            "ownerReferences": [{ "uid": "1", "name": "one" }] },
        "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }, { "key": "b", "effect": "NoSchedule" }] },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Disk", "status": "False", "reason": "R" }],
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }, { "type": "InternalIP", "address": "fd00::1" }],
            "images": [{ "names": ["i"] }],
        },
    });
    apply(node, patch, &NODE)
}

#[test]
fn conditions_are_merged_by_type() {
    let patched = node(json!({ "status": { "conditions": [{ "type": "Disk", "status": "True" }] } }));
    let conditions = json!([
        { "type": "Ready", "status": "True" },
        { "type": "Disk", "status": "True", "reason": "R" },
    ]);
    assert_eq!(patched.map(|node| node["status"]["conditions"].clone()), Ok(conditions));
}

/// An element that the server does not have goes to the front.
#[test]
fn new_elements_come_first() {
    let patched = node(json!({ "status": { "conditions": [{ "type": "New", "status": "True", "reason": null }] } }));
    let types = patched.map(|node| {
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().map(|c| c["type"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>()
    });
    assert_eq!(types, Ok(vec!["New".to_owned(), "Ready".to_owned(), "Disk".to_owned()]));
}

/// The list of taints has no merge key: a patch replaces all of it.
#[test]
fn taints_are_replaced_as_a_whole() {
    let patched = node(json!({ "spec": { "taints": [{ "key": "c", "effect": "NoExecute" }] } }));
    assert_eq!(patched.map(|node| node["spec"]["taints"].clone()), Ok(json!([{ "key": "c", "effect": "NoExecute" }])));
    let gone = node(json!({ "spec": { "taints": null } }));
    assert_eq!(gone.map(|node| node["spec"].clone()), Ok(json!({})));
}

#[test]
fn elements_can_be_deleted_and_lists_replaced() {
    let deleted = node(json!({ "status": { "conditions": [{ "$patch": "delete", "type": "Ready" }] } }));
    let rest = json!([{ "type": "Disk", "status": "False", "reason": "R" }]);
    assert_eq!(deleted.map(|node| node["status"]["conditions"].clone()), Ok(rest));
    let replaced =
        node(json!({ "status": { "conditions": [{ "$patch": "replace" }, { "type": "X", "status": "True" }] } }));
    assert_eq!(
        replaced.map(|node| node["status"]["conditions"].clone()),
        Ok(json!([{ "type": "X", "status": "True" }]))
    );
    let whole = node(json!({ "metadata": { "labels": { "$patch": "replace", "b": "2" } } }));
    assert_eq!(whole.map(|node| node["metadata"]["labels"].clone()), Ok(json!({ "b": "2" })));
}

/// Two addresses of one type: the merge key is not unique, and only the first one is met.
#[test]
fn addresses_of_one_type_lose_each_other() {
    let patched = node(json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.9" }] } }));
    let addresses = json!([
        { "type": "InternalIP", "address": "10.0.0.9" },
        { "type": "InternalIP", "address": "fd00::1" },
    ]);
    assert_eq!(patched.map(|node| node["status"]["addresses"].clone()), Ok(addresses));
}

#[test]
fn finalizers_are_united_and_owners_merged_by_uid() {
    let patched = node(json!({ "metadata": {
        "finalizers": ["x/c"], "$deleteFromPrimitiveList/finalizers": ["x/a"],
        "ownerReferences": [{ "uid": "1", "controller": true }, { "uid": "2", "name": "two" }],
    }}));
    let meta =
        patched.map(|node| (node["metadata"]["finalizers"].clone(), node["metadata"]["ownerReferences"].clone()));
    let owners = json!([{ "uid": "1", "name": "one", "controller": true }, { "uid": "2", "name": "two" }]);
    assert_eq!(meta, Ok((json!(["x/c", "x/b"]), owners)));
}

#[test]
fn the_order_can_be_set() {
    let patched = node(json!({ "status": {
        "$setElementOrder/conditions": [{ "type": "Disk" }, { "type": "Ready" }],
        "conditions": [{ "type": "Ready", "status": "Unknown" }],
    }}));
    let conditions = json!([
        { "type": "Disk", "status": "False", "reason": "R" },
        { "type": "Ready", "status": "Unknown" },
    ]);
    assert_eq!(patched.map(|node| node["status"]["conditions"].clone()), Ok(conditions));
}

/// Container statuses have no merge key, volumes keep only the keys that the patch retains.
#[test]
fn lists_of_pods_have_the_keys_of_their_types() {
    let pod = json!({
        "spec": {
            "containers": [{ "name": "a", "image": "i", "env": [{ "name": "X", "value": "1" }] }, { "name": "b", "image": "j" }],
            "volumes": [{ "name": "v", "emptyDir": {} }],
            "tolerations": [{ "key": "a" }],
        },
        "status": { "containerStatuses": [{ "name": "a", "ready": true }], "podIPs": [{ "ip": "10.0.0.1" }] },
    });
    let patch = json!({
        "spec": {
            "containers": [{ "name": "a", "image": "k", "env": [{ "name": "Y", "value": "2" }] }],
            "volumes": [{ "name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": { "path": "/x" } }],
            "tolerations": [{ "key": "b" }],
        },
        "status": { "containerStatuses": [{ "name": "b", "ready": false }], "podIPs": [{ "ip": "fd00::1" }] },
    });
    let expected = json!({
        "spec": {
            "containers": [
                { "name": "a", "image": "k", "env": [{ "name": "Y", "value": "2" }, { "name": "X", "value": "1" }] },
                { "name": "b", "image": "j" },
            ],
            "volumes": [{ "name": "v", "hostPath": { "path": "/x" } }],
            "tolerations": [{ "key": "b" }],
        },
        "status": { "containerStatuses": [{ "name": "b", "ready": false }], "podIPs": [{ "ip": "fd00::1" }, { "ip": "10.0.0.1" }] },
    });
    assert_eq!(apply(pod, patch, &POD), Ok(expected));
}

#[test]
fn bad_patches_are_refused() {
    for patch in [
        json!({ "status": { "conditions": [{ "status": "True" }] } }),
        json!({ "metadata": { "$patch": "nonsense" } }),
        json!({ "metadata": { "labels": { "$retainKeys": ["a"], "b": "1" } } }),
        json!({ "status": { "conditions": [1] } }),
    ] {
        assert!(node(patch.clone()).is_err(), "{patch}");
    }
}
