//! The Node object of this node: registration, what of its status is reported when, and its lease.
//!
//! What there is to say comes from the agent ([`NodeView`]); here is decided when it is said. Pure.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use keelet_pod::{Taint, gate};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

/// Where the node's own view of itself comes from.
pub trait NodeView: Send + Sync {
    /// The node as it was last observed.
    fn node(&self) -> v1::Node;
    /// Whether it was observed since the agent started.
    fn is_observed(&self) -> bool;
    /// Changes when the node's conditions do.
    fn changes(&self) -> watch::Receiver<u64>;
    /// Types of conditions that are reported no more, and were by an earlier agent.
    fn retired(&self) -> Vec<String>;
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

/// What was last reported of the node.
#[derive(Debug, Default)]
pub struct Reporter {
    /// What was reported, and when it is to be repeated.
    reported: Option<(Value, Duration)>,
}

/// The time of a report.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// How long the reporter runs.
    pub running: Duration,
    /// The wall clock, for the heartbeats that an earlier agent has written.
    pub wall: Timestamp,
}

/// How often a status that has not changed is reported (CLU-26).
pub const STATUS_PERIOD: Duration = Duration::from_secs(300);

/// How often the lease says that the node is there: a quarter of what it lasts (CLU-27).
pub const LEASE_PERIOD: Duration = Duration::from_secs(10);

/// How long the lease lasts.
const LEASE_SECONDS: u64 = 40;

/// The namespace of the leases of nodes.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// A label as people write it that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid label {0:?}: expected KEY=VALUE")]
pub struct BadLabel(String);

/// Whether the labels of readiness gates are set too (GATE-4). An API server with NodeRestriction forbids them to nodes; then the gates'
/// controller sets them (GATE-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateLabels {
    /// They are.
    Set,
    /// They are left to the controller.
    LeftOut,
}

/// The Node object as it is created.
pub fn new_node(node: &v1::Node, registration: &Registration, gates: GateLabels) -> Value {
    let name = name_of(node);
    let taints: Vec<_> = registration.taints.iter().map(taint).collect();
    let mut spec = Map::new();
    if !taints.is_empty() {
        spec.insert("taints".to_owned(), taints.into());
    }
    if registration.unschedulable {
        spec.insert("unschedulable".to_owned(), true.into());
    }
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": labels(node, registration, gates) },
        "spec": spec,
        "status": status(node, registration),
    })
}

fn taint(taint: &Taint) -> Value {
    let Taint { key, value, effect } = taint;
    let mut object = json!({ "key": key, "effect": effect.as_str() });
    if !value.is_empty() {
        object["value"] = value.as_str().into();
    }
    object
}

/// The labels of the node: those that every node has, one for each of its readiness gates, and those that were asked for.
pub fn labels(node: &v1::Node, registration: &Registration, gates: GateLabels) -> BTreeMap<String, String> {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let architecture = info.map(|info| info.architecture.clone()).unwrap_or_default();
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), name_of(node)),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), architecture),
    ]);
    if gates == GateLabels::Set {
        labels.extend(gate_keys(registration).map(|key| (key.to_owned(), gate::LABEL.to_owned())));
    }
    labels.extend(registration.labels.clone());
    labels
}

/// The keys of the readiness gates that the node registers with.
pub fn gate_keys(registration: &Registration) -> impl Iterator<Item = &str> {
    registration.taints.iter().filter(|taint| gate::of_taint(taint).is_some()).map(|taint| taint.key.as_str())
}

/// The merge patch for the labels of a Node object that exists; none if it has them.
pub fn label_patch(node: &v1::Node, registration: &Registration, gates: GateLabels, object: &Value) -> Option<Value> {
    let missing: BTreeMap<_, _> = labels(node, registration, gates)
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

/// A status without the times at which it was observed.
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

    fn is_observed(&self) -> bool {
        self.node_is_observed()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.node_changes()
    }

    fn retired(&self) -> Vec<String> {
        self.retired_conditions()
    }
}

// === impl Reporter ===

impl Reporter {
    /// The strategic merge patch for the node's status, if it is time for one: something has changed, or nothing was said for
    /// [`STATUS_PERIOD`]. A condition that has in `object` the status it has now keeps its transition time, and an agent that has just started
    /// says nothing that the object says already (CLU-26).
    pub fn patch(
        &mut self,
        node: &v1::Node,
        registration: &Registration,
        retired: &[String],
        object: &Value,
        time: Time,
    ) -> Option<Value> {
        let Time { running: now, wall } = time;
        let mut status = status(node, registration);
        keep_transitions(&mut status, &object["status"]);
        let told = without_heartbeats(&status);
        let gone = surplus(&status, &object["status"], retired);
        if self.reported.is_none() && gone.is_empty() && says(&object["status"], &told) {
            let age = heartbeat_age(&status, &object["status"], wall);
            self.reported = age.map(|age| (told.clone(), now + STATUS_PERIOD.saturating_sub(age)));
        }
        let due = self.reported.as_ref().is_none_or(|(before, again)| *before != told || now >= *again);
        if !due {
            return None;
        }
        self.reported = Some((told, now + STATUS_PERIOD));
        for (list, key) in gone {
            if let Some(own) = status[list].as_array_mut() {
                own.push(key);
            }
        }
        Some(json!({ "status": status }))
    }

    /// The API server does not have what was last reported.
    pub fn failed(&mut self) {
        self.reported = None;
    }
}

/// What the object has and the node does not: lists are merged by type, so what is gone has to be named. All addresses are ours, and of the
/// conditions those that an earlier agent reported.
fn surplus(status: &Value, object: &Value, retired: &[String]) -> Vec<(&'static str, Value)> {
    let entries = |of: &Value, list: &str| of[list].as_array().cloned().unwrap_or_default();
    let is_own = |list: &str, kind: &Value| entries(status, list).iter().any(|own| own["type"] == *kind);
    let delete = |kind: &Value| json!({ "$patch": "delete", "type": kind });
    let addresses = entries(object, "addresses").into_iter().map(|one| one["type"].clone());
    let addresses = addresses.filter(|kind| !is_own("addresses", kind)).map(|kind| ("addresses", delete(&kind)));
    let conditions = entries(object, "conditions").into_iter().map(|one| one["type"].clone());
    let conditions = conditions
        .filter(|kind| kind.as_str().is_some_and(|kind| retired.iter().any(|retired| retired == kind)))
        .filter(|kind| !is_own("conditions", kind))
        .map(|kind| ("conditions", delete(&kind)));
    addresses.chain(conditions).collect()
}

/// Whether an object says all of this already: every field, and of a list with types every entry.
fn says(object: &Value, told: &Value) -> bool {
    match (object, told) {
        (Value::Object(object), Value::Object(told)) => {
            told.iter().all(|(field, value)| object.get(field).is_some_and(|known| says(known, value)))
        }
        (Value::Array(object), Value::Array(told)) => told.iter().all(|entry| {
            let same = |known: &&Value| entry["type"].is_null() || known["type"] == entry["type"];
            object.iter().filter(same).any(|known| says(known, entry))
        }),
        _ => object == told,
    }
}

/// How long ago the oldest heartbeat of our conditions was written in the object; none if one of them has none.
fn heartbeat_age(status: &Value, object: &Value, now: Timestamp) -> Option<Duration> {
    let of_object = object["conditions"].as_array()?;
    let mut oldest = Duration::ZERO;
    for own in status["conditions"].as_array()? {
        let known = of_object.iter().find(|known| known["type"] == own["type"])?;
        let heartbeat: Timestamp = known["lastHeartbeatTime"].as_str()?.parse().ok()?;
        // A heartbeat of the future is one of a clock that was set back: it is fresh.
        oldest = oldest.max(Duration::try_from(now.duration_since(heartbeat)).unwrap_or_default());
    }
    Some(oldest)
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

/// A label as people write it: `KEY=VALUE`.
pub fn parse_label(text: &str) -> Result<(String, String), BadLabel> {
    let label = text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.contains('='));
    label.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| BadLabel(text.to_owned()))
}

#[cfg(test)]
mod tests;
