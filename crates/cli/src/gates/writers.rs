//! Who wrote a field of a node last, from its `managedFields`. Pure.
//!
//! The API server keeps for every manager which fields it owns and when it last changed one of them. The manager is the name of a
//! program, so this is what a program said of itself, not who was authenticated; the audit log has that.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// All writers of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct Writers(Vec<Entry>);

/// What a manager owns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Entry {
    manager: String,
    operation: String,
    time: Option<Timestamp>,
    #[serde(rename = "fieldsV1")]
    fields: Value,
}

/// One that wrote a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Writer {
    /// The name of the program.
    pub(super) manager: String,
    /// When it last changed any of the fields that it owns.
    pub(super) time: Option<Timestamp>,
}

/// The part of a Node that is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OfNode {
    metadata: Meta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    managed_fields: Writers,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OfList {
    items: Vec<OfNode>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OfEvent {
    object: OfNode,
}

// === impl Writers ===

impl Writers {
    /// Of a Node. What cannot be read has no writers.
    pub(super) fn of_node(json: &[u8]) -> Self {
        serde_json::from_slice::<OfNode>(json).unwrap_or_default().metadata.managed_fields
    }

    /// Of each item of a list.
    pub(super) fn of_list(json: &[u8]) -> Vec<Self> {
        let list: OfList = serde_json::from_slice(json).unwrap_or_default();
        list.items.into_iter().map(|node| node.metadata.managed_fields).collect()
    }

    /// Of the object of a watch event.
    pub(super) fn of_event(json: &[u8]) -> Self {
        serde_json::from_slice::<OfEvent>(json).unwrap_or_default().object.metadata.managed_fields
    }

    /// Who wrote a condition of this type last.
    pub(super) fn of_condition(&self, kind: &str) -> Option<Writer> {
        let item = format!("k:{}", serde_json::json!({ "type": kind }));
        self.owner(&["f:status", "f:conditions", &item])
    }

    /// Who wrote the taints last. They are one field: whoever changes one owns all.
    pub(super) fn of_taints(&self) -> Option<Writer> {
        self.owner(&["f:spec", "f:taints"])
    }

    /// Who wrote an annotation last.
    pub(super) fn of_annotation(&self, key: &str) -> Option<Writer> {
        self.owner(&["f:metadata", "f:annotations", &format!("f:{key}")])
    }

    /// The one that wrote last, of those that own a field.
    fn owner(&self, path: &[&str]) -> Option<Writer> {
        let owns = |entry: &&Entry| path.iter().try_fold(&entry.fields, |fields, step| fields.get(*step)).is_some();
        let last = self.0.iter().filter(owns).max_by_key(|entry| entry.time)?;
        Some(Writer { manager: last.manager.clone(), time: last.time })
    }
}

// === impl Writer ===

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let manager = if self.manager.is_empty() { "a client without a name" } else { &self.manager };
        match self.time {
            Some(time) => write!(f, "{manager} at {time}"),
            None => f.write_str(manager),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_of_several_owners_is_found() {
        let ready = json!({"f:conditions": {".": {}, r#"k:{"type":"CNIReady"}"#: {".": {}, "f:status": {}}}});
        let node = json!({"metadata": {"managedFields": [
            {"manager": "kubelet", "operation": "Update", "time": "2026-03-01T10:00:00Z",
             "fieldsV1": {"f:spec": {"f:taints": {}}, "f:metadata": {"f:annotations": {"f:a/b": {}}}}},
            {"manager": "node-problem-detector", "operation": "Update", "time": "2026-03-01T12:00:00Z", "subresource": "status",
             "fieldsV1": {"f:status": ready}},
            {"manager": "cni", "operation": "Update", "time": "2026-03-01T11:00:00Z", "subresource": "status", "fieldsV1": {"f:status": ready}},
        ]}});
        let writers = Writers::of_node(node.to_string().as_bytes());
        let name = |writer: Option<Writer>| writer.map(|writer| writer.to_string());
        assert_eq!(
            name(writers.of_condition("CNIReady")),
            Some("node-problem-detector at 2026-03-01T12:00:00Z".to_owned())
        );
        assert_eq!(writers.of_condition("Ready"), None);
        assert_eq!(name(writers.of_taints()), Some("kubelet at 2026-03-01T10:00:00Z".to_owned()));
        assert_eq!(name(writers.of_annotation("a/b")), Some("kubelet at 2026-03-01T10:00:00Z".to_owned()));
        let list = json!({ "items": [node, {"metadata": {}}] }).to_string();
        assert_eq!(Writers::of_list(list.as_bytes()), [writers.clone(), Writers::default()]);
        assert_eq!(Writers::of_event(json!({ "object": node }).to_string().as_bytes()), writers);
        assert_eq!(Writers::of_node(b"[]"), Writers::default(), "what is no node has none");
    }
}
