//! What has to be changed of a node, and the patch that does it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::node::{Node, Taint};

/// What has to be changed of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// The whole list of taints, if it changes.
    pub taints: Option<Vec<Taint>>,
    /// Annotations to set, or to remove where there is no value.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Labels to set.
    pub labels: BTreeMap<String, String>,
}

// === impl Edit ===

impl Edit {
    /// Whether nothing has to be changed.
    pub fn is_empty(&self) -> bool {
        self.taints.is_none() && self.annotations.is_empty() && self.labels.is_empty()
    }

    /// A JSON merge patch for exactly this version of this node object: with another UID or version the API server refuses it as a
    /// conflict (GN-1, CTRL-5). So a list of taints that another writer has changed meanwhile is never overwritten (CTRL-7).
    pub fn patch(&self, node: &Node) -> Value {
        let mut metadata = json!({ "uid": &*node.uid, "resourceVersion": node.version.as_str() });
        if !self.annotations.is_empty() {
            metadata["annotations"] = json!(self.annotations);
        }
        if !self.labels.is_empty() {
            metadata["labels"] = json!(self.labels);
        }
        let mut patch = json!({ "metadata": metadata });
        if let Some(taints) = &self.taints {
            patch["spec"] = json!({ "taints": taints });
        }
        patch
    }
}
