//! How nodes and rules are read while they are followed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::{
    api::{Objects, read_event, read_page},
    node::{BadJson, Node, Page, Reader, Version, WatchEvent},
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
        read_page(json, read)
    }

    fn event(&mut self, json: &[u8]) -> Result<WatchEvent<Rule>, BadJson> {
        read_event(json, read)
    }

    fn version(rule: &Rule) -> &Version {
        &rule.version
    }
}

fn read(object: Value) -> Result<Rule, BadJson> {
    Rule::read(object).map_err(|error| BadJson::Malformed { what: "a rule", error })
}
