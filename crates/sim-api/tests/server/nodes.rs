//! Nodes: taints, addresses, what a node's own agent may do to them.

use keelet_sim_api::{Identity, SimApi};
use serde_json::{Value, json};

use super::{create, node, pod, simulate};

const NODE: &str = "/api/v1/nodes/n1";

fn strategic(api: &SimApi, path: &str, patch: &Value) -> (u16, Value) {
    api.act_as("admin", &Identity::admin(), "PATCH", path, "application/strategic-merge-patch+json", patch)
}

#[test]
fn taints_are_valid_and_unique() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, "/api/v1/nodes", &node("n1"));
        for (taints, field) in [
            (
                json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoSchedule", "value": "x" }]),
                "metadata.taints[1]",
            ),
            (json!([{ "key": "a b", "effect": "NoSchedule" }]), "metadata.taints[0].key"),
            (json!([{ "key": "a", "value": "a b", "effect": "NoSchedule" }]), "metadata.taints[0].value"),
            (json!([{ "key": "a" }]), "metadata.taints[0].effect"),
            (json!([{ "key": "a", "effect": "Never" }]), "metadata.taints[0].effect"),
        ] {
            let (code, status) = strategic(&api, NODE, &json!({ "spec": { "taints": taints } }));
            assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!(field)), "{status}");
        }
        let both = json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoExecute" }]);
        assert_eq!(strategic(&api, NODE, &json!({ "spec": { "taints": both } })).0, 200);
    });
}

#[test]
fn what_a_node_has_once_it_keeps() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, "/api/v1/nodes", &json!({ "metadata": { "name": "n1" }, "spec": { "podCIDR": "10.0.0.0/24" } }));
        let (_, got) = api.act("GET", NODE, &Value::Null);
        assert_eq!(got["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
        assert_eq!(
            api.act("PATCH", NODE, &json!({ "spec": { "podCIDRs": ["10.0.1.0/24"], "podCIDR": "10.0.1.0/24" } })).0,
            422
        );
        assert_eq!(api.act("PATCH", NODE, &json!({ "spec": { "providerID": "x://1" } })).0, 200);
        assert_eq!(api.act("PATCH", NODE, &json!({ "spec": { "providerID": "x://2" } })).0, 422);
        let twice = json!([{ "type": "Hostname", "address": "n1" }, { "type": "Hostname", "address": "n1" }]);
        assert_eq!(api.act("PATCH", &format!("{NODE}/status"), &json!({ "status": { "addresses": twice } })).0, 422);
    });
}

#[test]
fn a_node_may_write_what_is_its_own() {
    simulate(async {
        let api = SimApi::new(1);
        let n1 = Identity::node("n1");
        let act = |method: &str, path: &str, body: &Value| {
            let kind = if method == "PATCH" { "application/strategic-merge-patch+json" } else { "application/json" };
            let (code, answer) = api.act_as("n1", &n1, method, path, kind, body);
            (code, answer["message"].as_str().unwrap_or("").to_owned())
        };
        assert_eq!(act("POST", "/api/v1/nodes", &node("n1")).0, 201);
        create(&api, "/api/v1/nodes", &node("n2"));
        let heartbeat = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        assert_eq!(act("PATCH", &format!("{NODE}/status"), &heartbeat).0, 200);
        let lease = json!({ "metadata": { "name": "n1" }, "spec": { "holderIdentity": "n1" } });
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        assert_eq!(act("POST", leases, &lease).0, 201);

        let taints = json!({ "spec": { "taints": [] } });
        let refused = [
            (
                "PATCH",
                "/api/v1/nodes/n2/status",
                heartbeat.clone(),
                "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\"",
            ),
            ("PATCH", NODE, taints, "nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify taints"),
            (
                "PATCH",
                NODE,
                json!({ "metadata": { "labels": { "readiness.k8s.io/x": "true" } } }),
                "nodes \"n1\" is forbidden: is not allowed to modify labels: readiness.k8s.io/x",
            ),
            (
                "GET",
                "/api/v1/nodes/n2",
                Value::Null,
                "nodes \"n2\" is forbidden: User \"system:node:n1\" cannot get resource \"nodes\" in API group \"\" at the cluster scope: node: node 'n1' cannot read 'n2', only its own Node object",
            ),
            (
                "GET",
                "/api/v1/nodes",
                Value::Null,
                "nodes is forbidden: User \"system:node:n1\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: node: node 'n1' cannot read all nodes, only its own Node object",
            ),
            (
                "DELETE",
                NODE,
                Value::Null,
                "nodes \"n1\" is forbidden: User \"system:node:n1\" cannot delete resource \"nodes\" in API group \"\" at the cluster scope",
            ),
            (
                "GET",
                "/api/v1/pods",
                Value::Null,
                "pods is forbidden: User \"system:node:n1\" cannot list resource \"pods\" in API group \"\" at the cluster scope: node: can only list/watch pods with spec.nodeName field selector",
            ),
            (
                "GET",
                "/api/v1/namespaces/default/secrets/s",
                Value::Null,
                "secrets \"s\" is forbidden: User \"system:node:n1\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\": node: no relationship found between node 'n1' and this object",
            ),
            (
                "PUT",
                &format!("{leases}/n2"),
                json!({ "metadata": { "name": "n2" } }),
                "leases.coordination.k8s.io \"n2\" is forbidden: User \"system:node:n1\" cannot update resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"kube-node-lease\": node: can only access node lease with the same name as the requesting node",
            ),
            (
                "POST",
                leases,
                json!({ "metadata": { "name": "n2" } }),
                "leases.coordination.k8s.io \"n2\" is forbidden: can only access node lease with the same name as the requesting node",
            ),
        ];
        for (method, path, body, message) in refused {
            assert_eq!(act(method, path, &body), (403, message.to_owned()), "{method} {path}");
        }
        assert_eq!(act("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", &Value::Null).0, 200);
        assert_eq!(
            act("PATCH", NODE, &json!({ "metadata": { "labels": { "kubernetes.io/os": "linux", "mine": "1" } } })).0,
            200
        );
    });
}

#[test]
fn a_node_reads_what_its_pods_refer_to_and_writes_their_status() {
    simulate(async {
        let api = SimApi::new(1);
        for name in ["n1", "n2"] {
            create(&api, "/api/v1/nodes", &node(name));
        }
        create(&api, "/api/v1/namespaces/default/secrets", &json!({ "metadata": { "name": "s" } }));
        let mut web = pod("web");
        web["spec"]["nodeName"] = "n1".into();
        web["spec"]["containers"][0]["env"] =
            json!([{ "name": "X", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }]);
        create(&api, "/api/v1/namespaces/default/pods", &web);
        let read = |node: &str| {
            let identity = Identity::node(node);
            let get = |path: &str| api.act_as(node, &identity, "GET", path, "", &Value::Null).0;
            let patch = json!({ "status": { "phase": "Running" } });
            let status = "/api/v1/namespaces/default/pods/web/status";
            let written = api.act_as(node, &identity, "PATCH", status, "application/merge-patch+json", &patch).0;
            (get("/api/v1/namespaces/default/secrets/s"), get("/api/v1/namespaces/default/pods/web"), written)
        };
        assert_eq!(read("n1"), (200, 200, 200));
        assert_eq!(read("n2"), (403, 403, 403));
        let n1 = Identity::node("n1");
        let plain = api.act_as("n1", &n1, "POST", "/api/v1/namespaces/default/pods", "", &pod("own"));
        assert_eq!(plain.0, 403, "a node creates mirror pods only");
        let (_, node) = api.act("GET", "/api/v1/nodes/n1", &Value::Null);
        let mut mirror = pod("own-n1");
        mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
        mirror["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"], "controller": true }]);
        mirror["spec"]["nodeName"] = "n1".into();
        let (code, answer) = api.act_as("n1", &n1, "POST", "/api/v1/namespaces/default/pods", "", &mirror);
        assert_eq!(code, 201, "{answer}");
        mirror["metadata"]["ownerReferences"][0]["uid"] = "other".into();
        assert_eq!(api.act_as("n1", &n1, "POST", "/api/v1/namespaces/default/pods", "", &mirror).0, 403);
    });
}
