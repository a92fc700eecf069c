//! The Node object of this node: registration, what of its status is reported when, and its lease.
//!
//! What there is to say comes from the agent ([`NodeView`]); here is decided when it is said. Pure.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use serde_json::{Map, Value, json};

/// Where the node's own view of itself comes from.
pub trait NodeView: Send + Sync {
    /// The node as it was last observed.
    fn node(&self) -> v1::Node;
}

/// How the Node object is created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// Labels beside those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Taints that the object is created with. Of an object that exists they are never touched (CLU-23).
    pub taints: Vec<Taint>,
    /// Whether no pods are to be scheduled here at first.
    pub unschedulable: bool,
    /// Features that nodes declare, so that pods that need them are scheduled here. Sorted.
    pub features: Vec<String>,
}

/// A taint of a new node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// What was last reported of the node.
#[derive(Debug, Default)]
pub struct Reporter {
    reported: Option<(Duration, Value)>,
}

/// How often a status that has not changed is reported (CLU-26).
pub const STATUS_PERIOD: Duration = Duration::from_secs(300);

/// How often the lease says that the node is there: a quarter of what it lasts (CLU-27).
pub const LEASE_PERIOD: Duration = Duration::from_secs(10);

/// How long the lease lasts.
const LEASE_SECONDS: u64 = 40;

/// The namespace of the leases of nodes.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// A taint as people write it that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid taint {0:?}: expected KEY=VALUE:EFFECT or KEY:EFFECT, with the effect NoSchedule, PreferNoSchedule or NoExecute"
)]
pub struct BadTaint(String);

/// A label as people write it that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid label {0:?}: expected KEY=VALUE")]
pub struct BadLabel(String);

/// The Node object as it is created.
pub fn new_node(node: &v1::Node, registration: &Registration) -> Value {
    let name = name_of(node);
    let taints: Vec<_> = registration.taints.iter().map(Taint::object).collect();
    let mut spec = Map::new();
    if !taints.is_empty() {
        spec.insert("taints".to_owned(), taints.into());
    }
    if registration.unschedulable {
        spec.insert("unschedulable".to_owned(), true.into());
    }
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": labels(node, registration) },
        "spec": spec,
        "status": status(node, registration),
    })
}

/// The labels of the node: those that every node has, and those that were asked for.
pub fn labels(node: &v1::Node, registration: &Registration) -> BTreeMap<String, String> {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let architecture = info.map(|info| info.architecture.clone()).unwrap_or_default();
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), name_of(node)),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), architecture),
    ]);
    labels.extend(registration.labels.clone());
    labels
}

/// The merge patch for the labels of a Node object that exists; none if it has them.
pub fn label_patch(node: &v1::Node, registration: &Registration, object: &Value) -> Option<Value> {
    let missing: BTreeMap<_, _> = labels(node, registration)
        .into_iter()
        .filter(|(key, value)| object["metadata"]["labels"][key.as_str()] != **value)
        .collect();
    (!missing.is_empty()).then(|| json!({ "metadata": { "labels": missing } }))
}

fn name_of(node: &v1::Node) -> String {
    node.metadata.name.clone().unwrap_or_default()
}

/// The status in the API's form.
fn status(node: &v1::Node, registration: &Registration) -> Value {
    let mut status = serde_json::to_value(&node.status).unwrap_or_default();
    if !registration.features.is_empty() {
        status["declaredFeatures"] = json!(registration.features);
    }
    status
}

/// A status without the times at which it was looked at.
fn without_heartbeats(status: &Value) -> Value {
    let mut status = status.clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = condition.as_object_mut() {
            fields.remove("lastHeartbeatTime");
        }
    }
    status
}

/// The path of the node's lease.
pub fn lease_path(name: &str) -> String {
    format!("{LEASES}/{name}")
}

/// The merge patch that renews the lease.
pub fn lease_patch(name: &str, now: Timestamp) -> Value {
    json!({ "spec": lease_spec(name, now) })
}

/// The path of all leases of nodes, and the lease as it is created, owned by its Node.
pub fn new_lease(name: &str, node_uid: &str, now: Timestamp) -> (&'static str, Value) {
    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": name, "namespace": "kube-node-lease", "ownerReferences": [owner] },
        "spec": lease_spec(name, now),
    });
    (LEASES, lease)
}

fn lease_spec(name: &str, now: Timestamp) -> Value {
    json!({ "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": format!("{now:.6}") })
}

// === impl NodeView ===

impl NodeView for keelet_agent::Agent {
    fn node(&self) -> v1::Node {
        keelet_agent::Agent::node(self)
    }
}

// === impl Reporter ===

impl Reporter {
    /// The strategic merge patch for the node's status, if it is time for one: something has changed, or nothing was said for
    /// [`STATUS_PERIOD`]. A condition that has in `object` the status it has now keeps its transition time (CLU-26).
    pub fn patch(
        &mut self,
        node: &v1::Node,
        registration: &Registration,
        object: &Value,
        now: Duration,
    ) -> Option<Value> {
        let mut status = status(node, registration);
        keep_transitions(&mut status, &object["status"]);
        let told = without_heartbeats(&status);
        let due = self.reported.as_ref().is_none_or(|(at, before)| *before != told || now >= *at + STATUS_PERIOD);
        if !due {
            return None;
        }
        self.reported = Some((now, told));
        // Addresses are merged by their type: those that are gone have to be named.
        let gone = object["status"]["addresses"].as_array().into_iter().flatten().filter(|address| {
            let same = |own: &Value| own["type"] == address["type"];
            !status["addresses"].as_array().is_some_and(|own| own.iter().any(same))
        });
        let gone: Vec<_> = gone.map(|address| json!({ "$patch": "delete", "type": address["type"] })).collect();
        if let Some(addresses) = status["addresses"].as_array_mut() {
            addresses.extend(gone);
        }
        Some(json!({ "status": status }))
    }

    /// The API server does not have what was last reported.
    pub fn failed(&mut self) {
        self.reported = None;
    }
}

fn keep_transitions(status: &mut Value, before: &Value) {
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        let same = |old: &&Value| old["type"] == condition["type"] && old["status"] == condition["status"];
        let old = before["conditions"].as_array().into_iter().flatten().find(same);
        if let Some(since) = old.map(|old| &old["lastTransitionTime"]).filter(|since| !since.is_null()) {
            condition["lastTransitionTime"] = since.clone();
        }
    }
}

// === impl Taint ===

impl Taint {
    fn object(&self) -> Value {
        let Self { key, value, effect } = self;
        let mut taint = json!({ "key": key, "effect": effect });
        if !value.is_empty() {
            taint["value"] = value.as_str().into();
        }
        taint
    }
}

impl std::str::FromStr for Taint {
    type Err = BadTaint;

    fn from_str(text: &str) -> Result<Self, BadTaint> {
        let bad = || BadTaint(text.to_owned());
        let (taint, effect) = text.rsplit_once(':').ok_or_else(bad)?;
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            return Err(bad());
        }
        let (key, value) = taint.split_once('=').unwrap_or((taint, ""));
        if key.is_empty() || value.contains('=') {
            return Err(bad());
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
    }
}

/// A label as people write it: `KEY=VALUE`.
pub fn parse_label(text: &str) -> Result<(String, String), BadLabel> {
    let label = text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.contains('='));
    label.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| BadLabel(text.to_owned()))
}

#[cfg(test)]
mod tests;
