//! What the tests have in common: rights, controllers, nodes with gates.

use std::{collections::BTreeMap, fmt::Debug};

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Node},
};
use keelet_control_plane::{Cluster, Hollow, Identity, Process, gone, http_get, until};
use keelet_gates::{
    api::Permission,
    controller::{Election, LeaseOptions, Options, RuleObjects},
    election::Timing,
    engine::Mode,
    settings::Settings,
};
use keelet_harness::eventually;
use keelet_hollow::{Shape, parse_taint};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::ApiResource,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The gate that most tests are about.
pub(crate) const GATE: &str = "readiness.k8s.io/CNIReady";

/// The namespace of leases and service accounts.
pub(crate) const NAMESPACE: &str = "keelet-test";

/// A cluster and a user that controllers run as.
pub(crate) struct Bed {
    pub(crate) cluster: Cluster,
    pub(crate) admin: Client,
    pub(crate) account: Identity,
    lease: String,
}

/// A controller that runs.
pub(crate) struct Controller {
    pub(crate) process: Process,
    address: String,
}

// === impl Bed ===

impl Bed {
    /// A user with all rights that a controller with a lease of this name needs.
    pub(crate) async fn new(lease: &str) -> Self {
        let bed = Self::without_rights(lease).await;
        bed.grant(&bed.options().permissions()).await;
        bed
    }

    /// A user without any right.
    pub(crate) async fn without_rights(lease: &str) -> Self {
        let cluster = Cluster::here();
        let admin = cluster.admin().client().await;
        let account = cluster.service_account(NAMESPACE, lease).await;
        let bed = Self { cluster, admin, account, lease: lease.to_owned() };
        bed.apply("v1", "Namespace", None, NAMESPACE, json!({})).await;
        // Nodes of earlier tests: a controller would act on them too.
        let nodes: Api<Node> = Api::all(bed.admin.clone());
        let old = nodes.list(&ListParams::default()).await.expect("nodes");
        for name in old.items.into_iter().filter_map(|node| node.metadata.name) {
            nodes.delete(&name, &DeleteParams::default()).await.expect("deleted");
            gone::<Node>(&bed.admin, None, &name).await;
        }
        bed
    }

    /// What a controller does with the arguments of [`Self::controller`].
    pub(crate) fn options(&self) -> Options {
        let lease = LeaseOptions {
            namespace: NAMESPACE.to_owned(),
            name: self.lease.clone(),
            identity: String::new(),
            timing: Timing::default(),
        };
        let election = Election::Lease(Box::new(lease));
        Options { settings: Settings::default(), mode: Mode::Act, election, rules: RuleObjects::Auto }
    }

    /// Gives these rights to the user, and takes away all others.
    pub(crate) async fn grant(&self, permissions: &[Permission]) {
        let role = format!("gates-{}", self.lease);
        let mut places: BTreeMap<Option<&str>, Vec<Value>> = BTreeMap::new();
        // Also where there is nothing any more.
        for place in [None, Some("default"), Some(NAMESPACE)] {
            places.insert(place, Vec::new());
        }
        for permission in permissions.iter().filter(|permission| !permission.verbs.is_empty()) {
            let mut rule =
                json!({"apiGroups": [permission.group], "resources": [permission.resource], "verbs": permission.verbs});
            if let Some(name) = &permission.name {
                rule["resourceNames"] = json!([name]);
            }
            places.entry(permission.namespace.as_deref()).or_default().push(rule);
        }
        for (namespace, rules) in places {
            let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
            let version = "rbac.authorization.k8s.io/v1";
            self.apply(version, kind, namespace, &role, json!({ "rules": rules })).await;
            let binding = json!({
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.account.user}],
            });
            self.apply(version, &format!("{kind}Binding"), namespace, &role, binding).await;
        }
        self.is_granted(permissions).await;
    }

    /// Waits until the API server knows of these rights: it follows roles by a watch.
    async fn is_granted(&self, permissions: &[Permission]) {
        let place = |permission: &Permission| {
            let Permission { group, resource, namespace, name, .. } = permission.clone();
            (group, resource, namespace, name)
        };
        let mut expected = self.options().permissions();
        for permission in &mut expected {
            let granted = permissions.iter().filter(|granted| place(granted) == place(permission));
            let granted: Vec<&str> = granted.flat_map(|granted| granted.verbs.clone()).collect();
            permission.verbs.retain(|verb| !granted.contains(verb));
        }
        expected.retain(|permission| !permission.verbs.is_empty());
        let api = keelet_gates::api::Api::new(self.account.client().await);
        eventually("the rights that were granted", async || {
            let lacking = keelet_gates::api::check(&api, &self.options().permissions()).await;
            if lacking.as_ref() == Ok(&expected) { Ok(()) } else { Err(format!("{lacking:?}")) }
        })
        .await;
    }

    /// Makes an object be so.
    pub(crate) async fn apply(
        &self,
        version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        mut object: Value,
    ) {
        let (group, short) = version.split_once('/').unwrap_or(("", version));
        let kind = kube::core::GroupVersionKind::gvk(group, short, kind);
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), namespace, &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        };
        object["apiVersion"] = version.into();
        object["kind"] = kind.kind.clone().into();
        object["metadata"]["name"] = name.into();
        let applied = api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await;
        applied.unwrap_or_else(|error| panic!("{} {name}: {error}", kind.kind));
    }

    /// Starts a controller, with more arguments.
    pub(crate) async fn controller(&self, name: &str, arguments: &[&str]) -> Controller {
        let usual = [
            "--bind-address",
            "127.0.0.1:0",
            "--leader-elect-resource-name",
            &self.lease,
            "--leader-elect-resource-namespace",
            NAMESPACE,
        ];
        let log = format!("{}-{name}", self.lease);
        let process = Process::controller(&self.cluster, &log, &self.account, &[&usual, arguments].concat());
        let address = eventually("an address for health checks", async || {
            let log = process.log();
            let line = log.lines().find(|line| line.contains("serving /healthz"));
            line.and_then(|line| Some(line.rsplit_once("address=")?.1.trim().to_owned())).ok_or(log)
        })
        .await;
        Controller { process, address }
    }

    /// Nodes with these gates, kept alive until this is dropped.
    pub(crate) async fn gated(&self, prefix: &str, nodes: usize, gates: &[&str]) -> (Shape, Hollow) {
        let mut shape = Shape::new(prefix, nodes);
        shape.taints = gates.iter().map(|gate| parse_taint(&format!("{gate}:NoSchedule")).expect("a taint")).collect();
        let hollow = Hollow::create(&self.admin, &shape).await;
        (shape, hollow)
    }

    /// Waits for a state of a node.
    pub(crate) async fn node(&self, name: &str, what: &str, is_so: impl Fn(&Node) -> bool) -> Node {
        until(&self.admin, None, name, what, is_so).await
    }

    /// Waits until a node has none of these taints.
    pub(crate) async fn opens(&self, name: &str, gate: &str) -> Node {
        self.node(name, &format!("{gate} is gone"), |node| !taints(node).contains(&gate.to_owned())).await
    }

    /// The holder of the lease; empty if it was released.
    pub(crate) async fn holder(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let holder = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        let found = until(&self.admin, Some(NAMESPACE), &self.lease, what, |lease: &Lease| {
            is_so(&holder(lease).unwrap_or_default())
        });
        holder(&found.await).unwrap_or_default()
    }

    /// Deletes the lease, if there is one.
    pub(crate) async fn forget_lease(&self) {
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), NAMESPACE);
        match leases.delete(&self.lease, &DeleteParams::default()).await {
            Ok(_) => gone::<Lease>(&self.admin, Some(NAMESPACE), &self.lease).await,
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{}: {error}", self.lease),
        }
    }

    /// Events of a reason on a node so far, with their counts.
    pub(crate) async fn events(&self, node: &str, reason: &str) -> Vec<(String, i32)> {
        let events: Api<Event> = Api::namespaced(self.admin.clone(), "default");
        let selected = ListParams::default().fields(&format!("involvedObject.name={node},reason={reason}"));
        let events = events.list(&selected).await.expect("events");
        let each = |event: Event| (event.message.unwrap_or_default(), event.count.unwrap_or_default());
        events.items.into_iter().map(each).collect()
    }

    /// Waits for an event of a reason on a node.
    pub(crate) async fn event(&self, node: &str, reason: &str) -> String {
        eventually(&format!("an event {reason} on {node}"), async || {
            let events = self.events(node, reason).await;
            events.into_iter().next().map(|(message, _)| message).ok_or("there is none")
        })
        .await
    }
}

// === impl Controller ===

impl Controller {
    /// The status and body of a path.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        http_get(&self.address, path).await.unwrap_or_else(|error| panic!("{}{path}: {error}", self.address))
    }

    /// Waits until it knows all nodes and may do all it needs to.
    pub(crate) async fn ready(self) -> Self {
        eventually("a ready controller", async || match self.get("/readyz").await {
            (200, _) => Ok(()),
            (status, body) => Err(format!("{status} {body}")),
        })
        .await;
        self
    }

    /// The value of a metric with its labels, as it is written.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let (_, metrics) = self.get("/metrics").await;
        metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// Waits until a metric is so.
    pub(crate) async fn shows(&self, name: &str, is_so: impl Fn(f64) -> bool) {
        eventually(name, async || match self.metric(name).await {
            Some(value) if is_so(value) => Ok(()),
            value => Err(format!("it is {value:?}\n{}", self.process.log())),
        })
        .await;
    }

    /// Waits for a line of the log that has all of this in it.
    pub(crate) async fn says(&self, parts: &[&str]) -> String {
        eventually(&format!("{parts:?} in the log"), async || {
            let log = self.process.log();
            let found = log.lines().find(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned);
            found.ok_or(log)
        })
        .await
    }
}

/// The keys of a node's taints.
pub(crate) fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().map(|taint| taint.key.clone()).collect()
}

/// An annotation of a node.
pub(crate) fn annotation<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Sets a condition, as a reporter does.
pub(crate) async fn report(client: &Client, node: &str, condition: &str, status: &str) {
    let patch =
        json!({"status": {"conditions": [{"type": condition, "status": status, "reason": "Test", "message": ""}]}});
    let nodes: Api<Node> = Api::all(client.clone());
    let patched = nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(patch)).await;
    patched.unwrap_or_else(|error| panic!("{condition}={status} of {node}: {error}"));
}

/// Changes a node by a merge patch.
pub(crate) async fn merge(client: &Client, node: &str, patch: Value) {
    let nodes: Api<Node> = Api::all(client.clone());
    let patched = nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.unwrap_or_else(|error| panic!("{node}: {error}"));
}

/// A typed object from JSON.
pub(crate) fn object<K: DeserializeOwned + Debug>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}
