//! API objects of hollow nodes, and the parts of a node that this crate reads.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use kube::core::request::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Shape, clock};

/// The label of hollow nodes and their leases; its value is the fleet's prefix.
pub const LABEL: &str = "keelet.dev/hollow";
/// Where the leases of nodes are.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The conditions that a kubelet reports, with the status of a healthy node.
const HEALTHY: [(&str, &str); 4] =
    [("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False")];

/// The parts of a node that matter here.
#[derive(Clone, Debug, Deserialize)]
pub struct Seen {
    /// Its metadata.
    pub metadata: SeenMeta,
    /// Its spec.
    #[serde(default)]
    pub spec: SeenSpec,
    /// Its status.
    #[serde(default)]
    pub status: SeenStatus,
}

/// The metadata of a node.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenMeta {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
}

/// The spec of a node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SeenSpec {
    /// Its taints.
    #[serde(default)]
    pub taints: Vec<Taint>,
}

/// The status of a node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SeenStatus {
    /// Its conditions.
    #[serde(default)]
    pub conditions: Vec<SeenCondition>,
}

/// A condition of a node.
#[derive(Clone, Debug, Deserialize)]
pub struct SeenCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its status.
    pub status: String,
}

/// Requests for nodes.
pub fn nodes() -> Request {
    Request::new("/api/v1/nodes")
}

/// Requests for the leases of nodes.
pub fn leases() -> Request {
    Request::new(format!("/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"))
}

/// A node as a healthy agent would register it.
pub fn node(shape: &Shape, index: usize) -> Value {
    let name = shape.name(index);
    let mut labels = json!({
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        LABEL: shape.prefix,
    });
    for (key, value) in &shape.labels {
        labels[key] = json!(value);
    }
    let now = clock::now();
    let healthy = HEALTHY.iter().map(|(kind, status)| condition(kind, status, now));
    let more = shape.conditions.iter().map(|(kind, status)| condition(kind, status, now));
    let resources = json!({ "cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110" });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": labels },
        "spec": { "taints": shape.taints },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": healthy.chain(more).collect::<Vec<_>>(),
            "addresses": [
                { "type": "InternalIP", "address": address(index) },
                { "type": "Hostname", "address": name },
            ],
            "nodeInfo": {
                "machineID": name, "systemUUID": name, "bootID": name,
                "kernelVersion": "6.12.0", "osImage": "hollow", "containerRuntimeVersion": "hollow://1",
                "kubeletVersion": "v1.37.1", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    })
}

/// The lease of a node. It goes with the node, as a kubelet's does.
pub fn lease(shape: &Shape, index: usize, uid: &str) -> Value {
    let name = shape.name(index);
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": LEASE_NAMESPACE,
            "labels": { LABEL: shape.prefix },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": name, "uid": uid }],
        },
        "spec": { "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": clock::micro_now() },
    })
}

/// A patch that renews a lease.
pub fn renewal() -> Value {
    json!({ "spec": { "renewTime": clock::micro_now() } })
}

/// A patch with new heartbeats for all conditions. It does not say what their status is.
pub fn heartbeat(shape: &Shape) -> Value {
    let now = clock::now();
    let kinds = HEALTHY.iter().map(|(kind, _)| *kind).chain(shape.conditions.keys().map(String::as_str));
    let conditions: Vec<_> = kinds.map(|kind| json!({ "type": kind, "lastHeartbeatTime": now })).collect();
    json!({ "status": { "conditions": conditions } })
}

/// A patch that sets one condition.
pub fn condition_patch(kind: &str, status: &str) -> Value {
    json!({ "status": { "conditions": [condition(kind, status, clock::now())] } })
}

fn condition(kind: &str, status: &str, now: Timestamp) -> Value {
    json!({
        "type": kind,
        "status": status,
        "reason": "Hollow",
        "message": "reported by no agent",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    })
}

/// An address of its own for each of 65,536 nodes. No machine answers there.
fn address(index: usize) -> String {
    format!("10.212.{}.{}", (index >> 8) & 255, index & 255)
}

// === impl Seen ===

impl Seen {
    /// Whether it has a taint with this key.
    pub fn is_tainted(&self, key: &str) -> bool {
        self.spec.taints.iter().any(|taint| taint.key == key)
    }

    /// The status of a condition.
    pub fn condition(&self, kind: &str) -> Option<&str> {
        let found = self.status.conditions.iter().find(|condition| condition.kind == kind);
        found.map(|condition| condition.status.as_str())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};

    use super::{Shape, heartbeat, lease, node};

    #[test]
    fn objects_are_what_the_api_has() {
        let mut shape = Shape::new("h", 2);
        shape.conditions.insert("NetworkReady".to_owned(), "False".to_owned());
        let read: Node = serde_json::from_value(node(&shape, 1)).expect("a node");
        assert_eq!(read.metadata.name.as_deref(), Some("h-1"));
        assert_eq!(read.status.expect("a status").conditions.expect("conditions").len(), 5);
        let read: Lease = serde_json::from_value(lease(&shape, 1, "u")).expect("a lease");
        assert_eq!(read.spec.expect("a spec").holder_identity.as_deref(), Some("h-1"));
    }

    /// A heartbeat must not undo a flip that another process made.
    #[test]
    fn a_heartbeat_says_nothing_about_status() {
        let mut shape = Shape::new("h", 1);
        shape.conditions.insert("NetworkReady".to_owned(), "False".to_owned());
        let text = heartbeat(&shape).to_string();
        assert!(text.contains("NetworkReady") && !text.contains("False"), "{text}");
    }
}
