//! How nodes and rules are read while they are followed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    follow::Objects,
    node::{BadJson, Failure, Node, Page, Reader, Version, WatchEvent},
    rule::{self, Rule},
};

/// The path of all nodes.
pub(super) const NODES: &str = "/api/v1/nodes";

/// Nodes.
#[derive(Clone, Debug)]
pub(super) struct Nodes(Arc<Mutex<Reader>>);

/// Rules.
#[derive(Debug)]
pub(super) struct Rules {
    path: String,
}

#[derive(Debug, Deserialize)]
struct RawList {
    metadata: RawMeta,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

#[derive(Debug, Deserialize)]
struct RawEvent {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

// === impl Nodes ===

impl Nodes {
    pub(super) fn new(reader: Reader) -> Self {
        Self(Arc::new(Mutex::new(reader)))
    }

    pub(super) fn reader(&self) -> MutexGuard<'_, Reader> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Objects for Nodes {
    type Object = Node;
    const RESOURCE: &'static str = "nodes";

    fn path(&self) -> &str {
        NODES
    }

    fn page(&mut self, json: &[u8]) -> Result<Page<Node>, BadJson> {
        self.reader().page(json)
    }

    fn event(&mut self, json: &[u8]) -> Result<WatchEvent<Node>, BadJson> {
        self.reader().event(json)
    }

    fn version(node: &Node) -> &Version {
        &node.version
    }
}

// === impl Rules ===

impl Rules {
    pub(super) fn new() -> Self {
        Self { path: rules_path() }
    }
}

/// The path of all rules.
pub(super) fn rules_path() -> String {
    format!("/apis/{}/v1alpha1/nodereadinessrules", rule::GROUP)
}

impl Objects for Rules {
    type Object = Rule;
    const RESOURCE: &'static str = "nodereadinessrules";

    fn path(&self) -> &str {
        &self.path
    }

    fn page(&mut self, json: &[u8]) -> Result<Page<Rule>, BadJson> {
        let list: RawList = parse("a list of rules", json)?;
        let items = list.items.into_iter().map(read).collect::<Result<_, _>>()?;
        let next = Some(list.metadata.next).filter(|next| !next.is_empty());
        Ok(Page { items, version: Version::new(&list.metadata.resource_version), next })
    }

    fn event(&mut self, json: &[u8]) -> Result<WatchEvent<Rule>, BadJson> {
        let RawEvent { kind, object } = parse("a watch event", json)?;
        Ok(match &*kind {
            "ADDED" | "MODIFIED" => WatchEvent::Changed(read(object)?),
            "DELETED" => WatchEvent::Deleted(read(object)?),
            "BOOKMARK" => {
                let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
                WatchEvent::Bookmark(Version::new(version.unwrap_or_default()))
            }
            "ERROR" => WatchEvent::Failed(serde_json::from_value::<Failure>(object).unwrap_or_default()),
            _ => return Err(BadJson::Event(kind)),
        })
    }

    fn version(rule: &Rule) -> &Version {
        &rule.version
    }
}

fn parse<'a, T: Deserialize<'a>>(what: &'static str, json: &'a [u8]) -> Result<T, BadJson> {
    serde_json::from_slice(json).map_err(|error| BadJson::Malformed { what, error })
}

fn read(object: Value) -> Result<Rule, BadJson> {
    Rule::read(object).map_err(|error| BadJson::Malformed { what: "a rule", error })
}
