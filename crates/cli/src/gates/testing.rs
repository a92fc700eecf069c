//! A simulated cluster for tests of the commands.

use jiff::Timestamp;
use keelet_gates::{api::Api, settings::Settings};
use keelet_sim_api::{Grant, Identity, Key, SimApi};
use serde_json::{Value, json};

use super::{cluster::Cluster, survey::Survey};

/// The time at which tests look.
pub(super) const NOW: &str = "2026-03-01T12:00:00Z";

pub(super) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A cluster.
pub(super) struct World {
    pub(super) api: SimApi,
}

/// Runs a test in simulated time, on one thread.
pub(super) fn simulate<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test)
}

impl World {
    /// One without nodes, where the user of [`Self::cluster`] may read and patch nodes and read the lease.
    pub(super) fn new() -> Self {
        let world = Self { api: SimApi::new(1) };
        world.grant(&["get", "list", "watch", "patch"]);
        world
    }

    /// One whose user may do this with nodes, and read leases.
    pub(super) fn granting(verbs: &[&str]) -> Self {
        let world = Self { api: SimApi::new(1) };
        world.grant(verbs);
        world
    }

    fn grant(&self, verbs: &[&str]) {
        self.api.grant([
            Grant::to_user("alice").verbs(verbs).on("", &["nodes"]),
            Grant::to_user("alice").verbs(&["get"]).on("coordination.k8s.io", &["leases"]),
            Grant::to_user("alice").verbs(&["list"]).on("readiness.node.x-k8s.io", &["nodereadinessrules"]),
        ]);
    }

    pub(super) fn cluster(&self) -> Cluster {
        let connection = self.api.connect("alice", Identity::user("alice", &[]));
        Cluster { api: Api::new(kube::Client::new(connection, "default")), url: "https://cluster.example".to_owned() }
    }

    pub(super) async fn survey<'a>(&self, cluster: &'a Cluster) -> Survey<'a> {
        Survey::begin(cluster, Settings::default()).await.unwrap()
    }

    /// Creates a node with taints and annotations.
    pub(super) fn node(&self, name: &str, taints: &Value, annotations: &Value) -> Value {
        let node = json!({"metadata": {"name": name, "annotations": annotations, "labels": {"pool": name}}, "spec": {"taints": taints}});
        let (code, created) = self.api.act("POST", "/api/v1/nodes", &node);
        assert_eq!(code, 201, "{created}");
        created
    }

    /// A reporter writes conditions.
    pub(super) fn report(&self, node: &str, conditions: &Value) {
        let patch = json!({"status": {"conditions": conditions}});
        let path = format!("/api/v1/nodes/{node}/status");
        let kind = "application/strategic-merge-patch+json";
        let (code, answer) = self.api.act_as("reporter", &Identity::admin(), "PATCH", &path, kind, &patch);
        assert_eq!(code, 200, "{answer}");
    }

    /// Changes a node by a merge patch.
    pub(super) fn patch(&self, node: &str, patch: &Value) {
        let (code, answer) = self.api.act("PATCH", &format!("/api/v1/nodes/{node}"), patch);
        assert_eq!(code, 200, "{answer}");
    }

    /// A node as it is stored.
    pub(super) fn get(&self, name: &str) -> Value {
        let key = Key { resource: "nodes".into(), namespace: String::new(), name: name.to_owned() };
        self.api.stored(&key).map(|node| (*node).clone()).unwrap_or_default()
    }

    /// The taints of a node, without the one that the API server itself gives to a new node.
    pub(super) fn taints(&self, name: &str) -> Vec<String> {
        let node = self.get(name);
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let shown = taints
            .iter()
            .map(|taint| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap()));
        shown.filter(|taint| taint != "node.kubernetes.io/not-ready:NoSchedule").collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.api.end();
    }
}

/// The condition of a gate, which changed 5 minutes and was reported 12 seconds before [`now`].
pub(super) fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!([{"type": kind, "status": status, "reason": reason, "message": "as reported",
            "lastTransitionTime": "2026-03-01T11:55:00Z", "lastHeartbeatTime": "2026-03-01T11:59:48Z"}])
}

/// The taint of a gate.
pub(super) fn taint(name: &str) -> Value {
    json!({"key": format!("readiness.k8s.io/{name}"), "effect": "NoSchedule"})
}
