//! The simulated API server (`keelet-sim-api`) beside the real one: the same random requests to both, and the answers compared.
//!
//! A request names objects, versions and UIDs by what each server itself gave out; an answer is compared after what must differ is
//! made equal: UIDs and versions by the order in which they appear, times, addresses, generated names. What the simulated server is
//! known to do otherwise is in the documentation of its crate.

mod memory;
mod normal;
mod objects;
mod requests;

use http::Request;
use http_body_util::BodyExt;
use keelet_control_plane::Cluster;
use keelet_sim_api::{Grant, Identity, Random, SimApi};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use self::{
    memory::Memory,
    normal::{Pairs, difference},
    requests::{Step, Who, random_step},
};

/// The namespace of everything that has one.
const NAMESPACE: &str = "differential";
/// That of services: the real server emits events about their addresses there.
const SERVICES: &str = "differential-services";

/// So many requests for each seed.
const REQUESTS: usize = 400;
/// So many seeds, from 1 or from `KEELET_DIFFERENTIAL_FIRST`.
const SEEDS: u64 = 4;

/// One of the two servers.
struct Side {
    admin: Client,
    node: Client,
    limited: Client,
    memory: Memory,
}

/// A custom resource that both servers have.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "gadgets.differential.keelet.dev" },
        "spec": {
            "group": "differential.keelet.dev",
            "scope": "Cluster",
            "names": { "plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "required": ["spec"],
                    "properties": {
                        "spec": {
                            "type": "object",
                            "required": ["mode"],
                            "properties": {
                                "mode": { "type": "string", "enum": ["once", "always"] },
                                "count": { "type": "integer", "minimum": 0, "default": 3 },
                                "names": { "type": "array", "minItems": 1, "items": { "type": "string", "maxLength": 5 } },
                                "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                                "fixed": { "type": "string", "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "fixed is immutable" }] },
                            },
                        },
                        "status": { "type": "object", "properties": { "seen": { "type": "integer" } } },
                    },
                } },
            }],
        },
    })
}

/// What the user `limited` may do on both servers.
fn roles() -> [Value; 2] {
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "differential" },
            "rules": [
                { "apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"] },
                { "apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"] },
                { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"], "resourceNames": ["a"] },
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "differential" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "differential" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "limited" }],
        }),
    ]
}

impl Side {
    async fn real() -> Self {
        let cluster = Cluster::here();
        // Controllers change objects on their own; here the API server is compared alone.
        for component in ["kube-controller-manager", "kube-scheduler"] {
            cluster.kill(component).await;
        }
        let admin = cluster.admin().client().await;
        let [role, binding] = roles();
        let access = "/apis/rbac.authorization.k8s.io/v1";
        for (path, object) in [
            (format!("{access}/clusterroles"), role),
            (format!("{access}/clusterrolebindings"), binding),
            ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(), definition()),
        ] {
            let (code, answer) = send(&admin, "POST", &path, "application/json", object.to_string()).await;
            assert_eq!(code, 201, "{answer}");
        }
        let gadgets =
            async || send(&admin, "GET", "/apis/differential.keelet.dev/v1/gadgets", "", String::new()).await.0;
        keelet_harness::eventually("the custom resource", async || {
            (gadgets().await == 200).then_some(()).ok_or("not there")
        })
        .await;
        Self {
            node: cluster.node("a").await.client().await,
            limited: cluster.identity("limited", &[]).await.client().await,
            admin,
            memory: Memory::default(),
        }
    }

    fn simulated(seed: u64) -> Self {
        let api = SimApi::new(seed);
        api.install(&definition());
        api.grant(Grant::load(&roles()));
        let client = |name: &str, identity| Client::new(api.connect(name, identity), "default");
        Self {
            admin: client("admin", Identity::admin()),
            node: client("node", Identity::node("a")),
            limited: client("limited", Identity::user("limited", &[])),
            memory: Memory::default(),
        }
    }

    async fn ask(&mut self, step: &Step) -> (u16, Value) {
        let client = match step.who {
            Who::Admin => &self.admin,
            Who::Node => &self.node,
            Who::Limited => &self.limited,
        };
        let path = self.memory.fill_text(&step.path);
        let body = step.body(&self.memory);
        let (code, answer) = send(client, step.method, &path, step.content_type, body).await;
        self.memory.learn(step, &answer);
        (code, answer)
    }

    /// Both begin with the same objects.
    async fn prepare(&mut self) {
        for name in [NAMESPACE, SERVICES] {
            let namespace = json!({ "metadata": { "name": name } }).to_string();
            drop(send(&self.admin, "POST", "/api/v1/namespaces", "application/json", namespace).await);
        }
        // A controller would make it; on the simulated server it is there already.
        let account = json!({ "metadata": { "name": "default" } });
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        drop(send(&self.admin, "POST", &path, "application/json", account.to_string()).await);
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/kube-root-ca.crt");
        drop(send(&self.admin, "DELETE", &path, "", String::new()).await);
    }

    /// Removes what an earlier seed left.
    async fn clean(&mut self) {
        for path in requests::collections() {
            let (_, list) = send(&self.admin, "GET", &path, "", String::new()).await;
            for item in list["items"].as_array().into_iter().flatten() {
                let name = item["metadata"]["name"].as_str().unwrap_or("");
                self.forget(&format!("{path}/{name}")).await;
            }
        }
    }

    /// Deletes an object, whatever holds it.
    async fn forget(&mut self, path: &str) {
        let free = json!({ "metadata": { "finalizers": null } }).to_string();
        drop(send(&self.admin, "PATCH", path, "application/merge-patch+json", free).await);
        let force = json!({ "gracePeriodSeconds": 0 }).to_string();
        drop(send(&self.admin, "DELETE", path, "application/json", force).await);
        self.memory.forget(path);
    }
}

async fn send(client: &Client, method: &str, path: &str, content_type: &str, body: String) -> (u16, Value) {
    let mut request = Request::builder().method(method).uri(path);
    if !content_type.is_empty() {
        request = request.header("content-type", content_type);
    }
    let request = request.body(Body::from(body.into_bytes())).expect("a request");
    let response = client.send(request).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    let code = response.status().as_u16();
    let bytes =
        response.into_body().collect().await.unwrap_or_else(|error| panic!("{method} {path}: {error}")).to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let watched = !lines.is_empty() && lines.iter().all(|line| line["type"].is_string() && line["object"].is_object());
    if watched {
        return (code, json!({ "events": lines }));
    }
    (code, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn the_simulated_api_server_answers_as_the_real_one() {
    let mut real = Side::real().await;
    let mut differences = Vec::new();
    let mut compared = 0;
    let first = std::env::var("KEELET_DIFFERENTIAL_FIRST").ok().and_then(|first| first.parse().ok()).unwrap_or(1);
    for seed in first..first + SEEDS {
        let mut simulated = Side::simulated(seed);
        real.clean().await;
        real.memory = Memory::default();
        real.prepare().await;
        simulated.prepare().await;
        let mut random = Random::new(seed);
        let mut pairs = Pairs::default();
        for number in 0..REQUESTS {
            let step = random_step(&mut random);
            let theirs = real.ask(&step).await;
            let ours = simulated.ask(&step).await;
            compared += 1;
            if let Some(difference) = difference(&mut pairs, &step, theirs, ours) {
                differences.push(format!("seed {seed}, request {number}: {step}\n{difference}"));
                // So that one difference is not followed by others that are due to it.
                real.forget(&step.object).await;
                simulated.forget(&step.object).await;
            }
        }
    }
    let count = differences.len();
    assert!(differences.is_empty(), "{count} of {compared} answers differ\n{}", differences.join("\n"));
}

/// The lists of a definition that strategic merge patches merge, as the real server describes them. What is below a list that is
/// replaced does not count.
fn merged_lists(definitions: &Value, name: &str, seen: &[&str]) -> Vec<(String, Option<String>)> {
    let mut lists = Vec::new();
    for (field, property) in definitions[name]["properties"].as_object().into_iter().flatten() {
        let strategy = property["x-kubernetes-patch-strategy"].as_str().unwrap_or("");
        let key = property["x-kubernetes-patch-merge-key"].as_str().map(str::to_owned);
        let is_list = property["type"] == "array";
        let merges = strategy.split(',').any(|part| part == "merge");
        if is_list && !merges {
            continue;
        }
        if is_list {
            lists.push((field.clone(), key));
        }
        let inner = property["$ref"].as_str().or_else(|| property["items"]["$ref"].as_str());
        let inner = inner.and_then(|path| path.rsplit('/').next()).filter(|inner| !seen.contains(inner));
        if let Some(inner) = inner {
            let below = merged_lists(definitions, inner, &[seen, &[name]].concat());
            lists.extend(below.into_iter().map(|(path, key)| (format!("{field}.{path}"), key)));
        }
    }
    lists.sort();
    lists
}

#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn lists_are_merged_by_the_keys_that_the_real_server_describes() {
    let admin = Cluster::here().admin().client().await;
    let (code, document) = send(&admin, "GET", "/openapi/v2", "", String::new()).await;
    assert_eq!(code, 200);
    let simulated = SimApi::new(1);
    for (group, plural, definition) in [
        ("", "nodes", "io.k8s.api.core.v1.Node"),
        ("", "pods", "io.k8s.api.core.v1.Pod"),
        ("", "services", "io.k8s.api.core.v1.Service"),
        ("", "serviceaccounts", "io.k8s.api.core.v1.ServiceAccount"),
        ("", "namespaces", "io.k8s.api.core.v1.Namespace"),
        ("", "configmaps", "io.k8s.api.core.v1.ConfigMap"),
        ("", "secrets", "io.k8s.api.core.v1.Secret"),
        ("", "events", "io.k8s.api.core.v1.Event"),
        ("events.k8s.io", "events", "io.k8s.api.events.v1.Event"),
        ("coordination.k8s.io", "leases", "io.k8s.api.coordination.v1.Lease"),
    ] {
        let real = merged_lists(&document["definitions"], definition, &[]);
        let ours = simulated.merged_lists(group, "v1", plural);
        let ours: Vec<_> = ours.into_iter().map(|(path, key)| (path, key.map(str::to_owned))).collect();
        assert_eq!(ours, real, "{definition}");
    }
}
