//! Nodes for tests.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::node::{Condition, Effect, Node, Pairs, Status, Taint, Text, Version};

/// The time at which tests decide.
pub(crate) const NOW: &str = "2026-03-01T12:00:00Z";

/// The time at which tests decide.
pub(crate) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// So many seconds before [`now`].
pub(crate) fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// A node without anything; an hour old.
pub(crate) fn node(name: &str) -> Builder {
    Builder(Node {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        version: Version::new("1"),
        created: Some(ago(3600)),
        boot_id: "boot-1".into(),
        labels: Pairs::default(),
        annotations: Pairs::default(),
        taints: Vec::new(),
        conditions: Vec::new(),
    })
}

/// Builds a node.
#[derive(Clone, Debug)]
pub(crate) struct Builder(Node);

impl Builder {
    pub(crate) fn build(self) -> Node {
        self.0
    }

    pub(crate) fn uid(mut self, uid: &str) -> Self {
        self.0.uid = uid.into();
        self
    }

    pub(crate) fn created(mut self, at: Timestamp) -> Self {
        self.0.created = Some(at);
        self
    }

    pub(crate) fn annotated(mut self, key: &str, value: &str) -> Self {
        let new = (Text::from(key), Text::from(value));
        self.0.annotations = others(&self.0.annotations, key).chain([new]).collect();
        self
    }

    pub(crate) fn labelled(mut self, key: &str, value: &str) -> Self {
        let new = (Text::from(key), Text::from(value));
        self.0.labels = others(&self.0.labels, key).chain([new]).collect();
        self
    }

    /// With a taint, written as `key:effect` or `key=value:effect`.
    pub(crate) fn taint(mut self, text: &str) -> Self {
        self.0.taints.push(taint(text));
        self
    }

    /// With a condition that changed a minute ago.
    pub(crate) fn condition(self, kind: &str, status: Status) -> Self {
        self.condition_since(kind, status, ago(60))
    }

    pub(crate) fn condition_since(mut self, kind: &str, status: Status, since: Timestamp) -> Self {
        self.0.conditions.retain(|condition| &*condition.kind != kind);
        self.0.conditions.push(Condition {
            kind: kind.into(),
            status,
            reason: "Because".into(),
            message: Text::from(""),
            heartbeat: Some(ago(5)),
            transition: Some(since),
        });
        self
    }

    /// With the heartbeat of the last condition at this time.
    pub(crate) fn heartbeat(mut self, at: Option<Timestamp>) -> Self {
        self.0.conditions.last_mut().unwrap().heartbeat = at;
        self
    }
}

impl From<Node> for Builder {
    fn from(node: Node) -> Self {
        Self(node)
    }
}

fn others(pairs: &Pairs, key: &str) -> std::vec::IntoIter<(Text, Text)> {
    let others = pairs.iter().filter(|(found, _)| &***found != key);
    others.map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect::<Vec<_>>().into_iter()
}

/// A taint from `key:effect` or `key=value:effect`.
pub(crate) fn taint(text: &str) -> Taint {
    let (key, effect) = text.rsplit_once(':').unwrap();
    let (key, value) = key.split_once('=').unwrap_or((key, ""));
    Taint::new(key, Effect::from(effect)).with_value(value)
}

/// The node as the API would write it.
pub(crate) fn to_json(node: &Node) -> Value {
    let pairs =
        |pairs: &Pairs| pairs.iter().map(|(k, v)| (k.to_string(), json!(&**v))).collect::<serde_json::Map<_, _>>();
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
    json!({
        "metadata": {
            "name": &*node.name, "uid": &*node.uid, "resourceVersion": node.version.as_str(), "creationTimestamp": time(node.created),
            "labels": pairs(&node.labels), "annotations": pairs(&node.annotations),
        },
        "spec": {"taints": node.taints},
        "status": {
            "nodeInfo": {"bootID": &*node.boot_id},
            "conditions": node.conditions.iter().map(|condition| json!({
                "type": &*condition.kind, "status": condition.status.as_str(), "reason": &*condition.reason,
                "lastHeartbeatTime": time(condition.heartbeat), "lastTransitionTime": time(condition.transition),
            })).collect::<Vec<_>>(),
        },
    })
}

/// RFC 7386.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
