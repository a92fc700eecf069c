//! Create, update and patch: preconditions, which half an endpoint writes, generations, dry runs.

use keelet_sim_api::{Identity, SimApi};
use serde_json::{Value, json};

use super::{create, node, pod, simulate};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const NODES: &str = "/api/v1/nodes";

fn patch_as(api: &SimApi, kind: &str, path: &str, patch: &Value) -> (u16, Value) {
    let kind = format!("application/{kind}+json");
    api.act_as("admin", &Identity::admin(), "PATCH", path, &kind, patch)
}

#[test]
fn an_object_is_created_once() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, NODES, &node("n1"));
        let (code, status) = api.act("POST", NODES, &node("n1"));
        assert_eq!((code, &status["reason"]), (409, &json!("AlreadyExists")));
        assert_eq!(status["message"], "nodes \"n1\" already exists");
    });
}

/// A client cannot choose what identifies an object.
#[test]
fn the_server_gives_uid_and_times() {
    simulate(async {
        let api = SimApi::new(1);
        let mut given = node("n1");
        given["metadata"]["uid"] = "mine".into();
        given["metadata"]["creationTimestamp"] = "1999-01-01T00:00:00Z".into();
        given["metadata"]["generation"] = 7.into();
        given["metadata"]["deletionTimestamp"] = "1999-01-01T00:00:00Z".into();
        let created = create(&api, NODES, &given);
        assert_ne!(created["metadata"]["uid"], "mine");
        assert_eq!(created["metadata"]["creationTimestamp"], "2027-01-15T08:00:00Z");
        assert_eq!((created["metadata"].get("generation"), created["metadata"].get("deletionTimestamp")), (None, None));
        given["metadata"]["name"] = "n2".into();
        given["metadata"]["resourceVersion"] = "5".into();
        assert_eq!(api.act("POST", NODES, &given).0, 500);
    });
}

#[test]
fn names_can_be_generated() {
    simulate(async {
        let api = SimApi::new(1);
        let given = json!({ "metadata": { "generateName": "web-" } });
        let one = create(&api, "/api/v1/namespaces/default/configmaps", &given);
        let other = create(&api, "/api/v1/namespaces/default/configmaps", &given);
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or("").to_owned();
        assert!(name(&one).starts_with("web-") && name(&one).len() == 9, "{one}");
        assert_ne!(name(&one), name(&other));
    });
}

#[test]
fn what_is_wrong_is_named() {
    simulate(async {
        let api = SimApi::new(1);
        let (code, status) = api.act("POST", NODES, &node("N_1"));
        assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
        assert_eq!((&status["details"]["kind"], &status["details"]["name"]), (&json!("Node"), &json!("N_1")));
        assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");
        let message = status["message"].as_str().unwrap_or("");
        assert!(message.starts_with("Node \"N_1\" is invalid: metadata.name: Invalid value: \"N_1\":"), "{message}");
        for (body, text) in [
            (json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "x" } }), "cannot be handled as a Node"),
            (
                json!({ "kind": "Node", "apiVersion": "v2", "metadata": { "name": "x" } }),
                "does not match the expected API version",
            ),
            (json!({ "metadata": { "name": "x" }, "spec": { "taints": 5 } }), "cannot be handled as a Node"),
        ] {
            let (code, status) = api.act("POST", NODES, &body);
            assert!(code == 400 && status["message"].as_str().is_some_and(|m| m.contains(text)), "{status}");
        }
        let (code, status) = api.act("POST", "/api/v1/namespaces/nowhere/pods", &pod("web"));
        assert_eq!((code, &status["message"]), (404, &json!("namespaces \"nowhere\" not found")));
        let mut elsewhere = pod("web");
        elsewhere["metadata"]["namespace"] = "kube-system".into();
        assert_eq!(api.act("POST", "/api/v1/namespaces/default/pods", &elsewhere).0, 400);
    });
}

/// The fence of every writer: a write with a stale resourceVersion or another UID is refused, and nothing is stored.
#[test]
fn stale_preconditions_are_conflicts() {
    simulate(async {
        let api = SimApi::new(1);
        let old = create(&api, NODES, &node("n1"));
        api.act("PATCH", "/api/v1/nodes/n1", &json!({ "metadata": { "labels": { "a": "1" } } }));
        let before = api.revision();
        let (code, status) = api.act("PUT", "/api/v1/nodes/n1", &old);
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Conflict", "code": 409,
            "message": "Operation cannot be fulfilled on nodes \"n1\": the object has been modified; please apply your changes to the latest version and try again",
            "details": { "name": "n1", "kind": "nodes" },
        });
        assert_eq!((code, status), (409, expected));
        let version = &old["metadata"]["resourceVersion"];
        for kind in ["merge-patch", "strategic-merge-patch"] {
            let patch = json!({ "metadata": { "resourceVersion": version, "labels": { "b": "2" } } });
            assert_eq!(patch_as(&api, kind, "/api/v1/nodes/n1", &patch).0, 409, "{kind}");
            assert_eq!(patch_as(&api, kind, "/api/v1/nodes/n1/status", &patch).0, 409, "{kind}");
        }
        let test = json!([{ "op": "replace", "path": "/metadata/resourceVersion", "value": version }]);
        assert_eq!(patch_as(&api, "json-patch", "/api/v1/nodes/n1", &test).0, 409);
        // A patch with another UID is invalid, an update with another UID a conflict.
        let other = json!({ "metadata": { "uid": "other", "labels": { "b": "2" } } });
        let (code, status) = patch_as(&api, "merge-patch", "/api/v1/nodes/n1", &other);
        assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!("metadata.uid")));
        let mut other = node("n1");
        other["metadata"]["uid"] = "other".into();
        let (code, status) = api.act("PUT", "/api/v1/nodes/n1", &other);
        assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
        assert_eq!(api.revision(), before);
    });
}

#[test]
fn updates_without_a_version_depend_on_the_kind() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, NODES, &node("n1"));
        let mut update = node("n1");
        update["metadata"]["labels"] = json!({ "a": "1" });
        assert_eq!(api.act("PUT", "/api/v1/nodes/n1", &update).0, 200);
        let lease = json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "a" } });
        assert_eq!(api.act("PUT", &format!("{LEASES}/l"), &lease).0, 201, "a PUT creates a lease");
        let (code, status) = api.act("PUT", &format!("{LEASES}/l"), &lease);
        assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!("metadata.resourceVersion")));
        assert_eq!(api.act("PUT", "/api/v1/nodes/n2", &node("n2")).0, 404, "a PUT does not create a node");
        let mut bad = lease.clone();
        bad["spec"]["leaseDurationSeconds"] = 0.into();
        bad["metadata"]["name"] = "m".into();
        assert_eq!(api.act("PUT", &format!("{LEASES}/m"), &bad).0, 422);
        let (code, status) = api.act("PUT", &format!("{LEASES}/x"), &lease);
        assert_eq!(
            (code, &status["message"]),
            (400, &json!("the name of the object (l) does not match the name on the URL (x)"))
        );
    });
}

/// Each endpoint leaves the other's half as it is.
#[test]
fn spec_and_status_are_written_apart() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, NODES, &node("n1"));
        let both = json!({
            "metadata": { "labels": { "a": "1" } },
            "spec": { "unschedulable": true },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        let (_, main) = patch_as(&api, "strategic-merge-patch", "/api/v1/nodes/n1", &both);
        assert_eq!((&main["spec"]["unschedulable"], main["status"].get("conditions")), (&json!(true), None));
        let (_, status) = patch_as(
            &api,
            "strategic-merge-patch",
            "/api/v1/nodes/n1/status",
            &json!({
                "metadata": { "labels": { "b": "2" } },
                "spec": { "unschedulable": null, "taints": [] },
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
            }),
        );
        assert_eq!(status["spec"], main["spec"]);
        assert_eq!(status["status"]["conditions"][0]["status"], "True");
        assert_eq!(status["metadata"]["labels"], json!({ "a": "1", "b": "2" }), "metadata can be written at both");
        let web = create(&api, "/api/v1/namespaces/default/pods", &pod("web"));
        assert_eq!(web["status"], json!({ "phase": "Pending", "qosClass": "BestEffort" }));
    });
}

/// A write that changes nothing is no write: no new version, no event.
#[test]
fn a_write_that_changes_nothing_is_not_stored() {
    simulate(async {
        let api = SimApi::new(1);
        let created = create(&api, NODES, &node("n1"));
        let before = api.revision();
        let (code, same) = api.act("PUT", "/api/v1/nodes/n1", &created);
        assert_eq!((code, &same), (200, &created));
        assert_eq!(patch_as(&api, "strategic-merge-patch", "/api/v1/nodes/n1", &json!({})).1, created);
        assert_eq!(patch_as(&api, "json-patch", "/api/v1/nodes/n1", &json!([])).1, created);
        assert_eq!(api.revision(), before);
    });
}

#[test]
fn a_dry_run_stores_nothing() {
    simulate(async {
        let api = SimApi::new(1);
        let before = api.revision();
        let (code, created) = api.act("POST", &format!("{NODES}?dryRun=All"), &node("n1"));
        assert_eq!((code, created["metadata"].get("resourceVersion")), (201, None));
        assert_eq!(api.revision(), before);
        create(&api, NODES, &node("n1"));
        let before = api.revision();
        let (code, patched) =
            api.act("PATCH", "/api/v1/nodes/n1?dryRun=All", &json!({ "metadata": { "labels": { "a": "1" } } }));
        assert_eq!((code, &patched["metadata"]["labels"]), (200, &json!({ "a": "1" })));
        api.act("DELETE", "/api/v1/nodes/n1?dryRun=All", &Value::Null);
        assert_eq!(api.revision(), before);
    });
}

#[test]
fn patches_of_all_kinds_are_applied() {
    simulate(async {
        let api = SimApi::new(1);
        let mut given = node("n1");
        given["metadata"]["labels"] = json!({ "a": "1" });
        given["spec"] = json!({ "taints": [{ "key": "x", "effect": "NoSchedule" }] });
        create(&api, NODES, &given);
        let path = "/api/v1/nodes/n1";
        let (_, node) =
            patch_as(&api, "json-patch", path, &json!([{ "op": "add", "path": "/metadata/labels/b", "value": "2" }]));
        assert_eq!(node["metadata"]["labels"], json!({ "a": "1", "b": "2" }));
        let (_, node) = patch_as(&api, "merge-patch", path, &json!({ "metadata": { "labels": { "a": null } } }));
        assert_eq!(node["metadata"]["labels"], json!({ "b": "2" }));
        let (_, node) = patch_as(&api, "strategic-merge-patch", path, &json!({ "spec": { "taints": [] } }));
        assert_eq!(node["spec"], json!({}));
        for (kind, patch, code) in [
            ("json-patch", json!([{ "op": "test", "path": "/metadata/name", "value": "n2" }]), 422),
            ("json-patch", json!([{ "op": "remove", "path": "/spec/taints" }]), 422),
            ("json-patch", json!({}), 400),
            ("merge-patch", json!([]), 400),
            ("merge-patch", json!({ "spec": { "taints": 5 } }), 422),
            ("merge-patch", json!({ "metadata": { "name": "other" } }), 400),
            ("apply-patch+yaml", json!({}), 415),
            ("nonsense", json!({}), 415),
        ] {
            let (got, answer) = patch_as(&api, kind, path, &patch);
            assert_eq!(got, code, "{kind} {patch} {answer}");
        }
        assert_eq!(patch_as(&api, "merge-patch", "/api/v1/nodes/none", &json!({})).0, 404);
    });
}

/// Both groups show the same events, each by its own names.
#[test]
fn events_have_two_forms() {
    simulate(async {
        let api = SimApi::new(1);
        let event = json!({
            "metadata": { "name": "e1" }, "eventTime": "2027-01-15T08:00:00.500000Z", "type": "Normal", "action": "Pass",
            "reason": "Passed", "note": "it passed", "reportingController": "keelet.dev/gates", "reportingInstance": "c-1",
            "regarding": { "kind": "Node", "name": "n1" },
        });
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        let created = create(&api, path, &event);
        assert_eq!(
            (&created["note"], &created["eventTime"]),
            (&json!("it passed"), &json!("2027-01-15T08:00:00.500000Z"))
        );
        let (_, core) = api.act("GET", "/api/v1/namespaces/default/events/e1", &Value::Null);
        assert_eq!((&core["message"], &core["involvedObject"]["name"]), (&json!("it passed"), &json!("n1")));
        assert_eq!(core["reportingComponent"], "keelet.dev/gates");
        let (_, list) = api.act("GET", "/api/v1/events?fieldSelector=involvedObject.name%3Dn1", &Value::Null);
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
        let (code, status) = api.act("POST", path, &json!({ "metadata": { "name": "e2" } }));
        assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
        let old = json!({ "metadata": { "name": "e3" }, "involvedObject": { "namespace": "other", "name": "p" } });
        assert_eq!(api.act("POST", "/api/v1/namespaces/default/events", &old).0, 422);
    });
}

#[test]
fn config_maps_and_secrets_keep_their_promises() {
    simulate(async {
        let api = SimApi::new(1);
        let maps = "/api/v1/namespaces/default/configmaps";
        create(&api, maps, &json!({ "metadata": { "name": "a" }, "data": { "k": "v" }, "immutable": true }));
        assert_eq!(api.act("PATCH", &format!("{maps}/a"), &json!({ "data": { "k": "w" } })).0, 422);
        assert_eq!(api.act("PATCH", &format!("{maps}/a"), &json!({ "immutable": null })).0, 422);
        assert_eq!(api.act("PATCH", &format!("{maps}/a"), &json!({ "metadata": { "labels": { "x": "y" } } })).0, 200);
        assert_eq!(api.act("POST", maps, &json!({ "metadata": { "name": "b" }, "data": { "a/b": "" } })).0, 422);
        let secrets = "/api/v1/namespaces/default/secrets";
        let secret = create(&api, secrets, &json!({ "metadata": { "name": "s" }, "stringData": { "k": "v" } }));
        assert_eq!((&secret["data"], &secret["type"]), (&json!({ "k": "dg==" }), &json!("Opaque")));
        assert_eq!(api.act("PATCH", &format!("{secrets}/s"), &json!({ "type": "other" })).0, 422);
        let tls = json!({ "metadata": { "name": "t" }, "type": "kubernetes.io/tls" });
        assert_eq!(api.act("POST", secrets, &tls).0, 422);
    });
}

#[test]
fn services_get_an_address() {
    simulate(async {
        let api = SimApi::new(1);
        let path = "/api/v1/namespaces/default/services";
        let service =
            create(&api, path, &json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } }));
        let expected = json!({
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
            "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 80 }],
        });
        assert_eq!(service["spec"], expected);
        let moved = json!({ "spec": { "clusterIP": "10.96.0.9" } });
        assert_eq!(api.act("PATCH", &format!("{path}/web"), &moved).0, 422);
        assert_eq!(api.act("POST", path, &json!({ "metadata": { "name": "none" } })).0, 422);
    });
}

/// Found beside the real server: what a decoder, a router and a plugin have to say before anything is looked up.
#[test]
fn refusals_come_in_the_order_of_the_real_server() {
    simulate(async {
        let api = SimApi::new(1);
        let message = |answer: (u16, Value)| (answer.0, answer.1["message"].as_str().unwrap_or("").to_owned());
        let undeterminable = "the name of the object (n1 based on URL) was undeterminable: name must be provided";
        let nameless = api.act("PUT", "/api/v1/nodes/n1", &json!({ "spec": {} }));
        assert_eq!(message(nameless), (400, undeterminable.to_owned()), "before the object is looked up");
        let text = Value::String("not a patch".to_owned());
        assert_eq!(patch_as(&api, "merge-patch", "/api/v1/nodes/n1", &text).0, 404);
        let lease = |time: &str| json!({ "metadata": { "name": "l" }, "spec": { "renewTime": time } });
        for time in ["2027-01-15T08:00:00Z", "2027-01-15T08:00:00.5Z"] {
            assert_eq!(api.act("POST", LEASES, &lease(time)).0, 400, "{time}: exactly six digits");
        }
        create(&api, LEASES, &lease("2027-01-15T08:00:00.500000Z"));
        let mut held = node("n1");
        held["metadata"]["finalizers"] = json!(["x.io/a"]);
        create(&api, NODES, &held);
        api.act("DELETE", "/api/v1/nodes/n1", &Value::Null);
        held["metadata"]["generateName"] = "n".into();
        let taken = "object is being deleted: nodes \"n1\" already exists, the server was not able to generate a unique name for the object";
        assert_eq!(message(api.act("POST", NODES, &held)), (409, taken.to_owned()));
        held["metadata"]["resourceVersion"] = "1".into();
        assert_eq!(api.act("POST", NODES, &held).0, 500);
        assert_eq!(api.act("POST", &format!("{NODES}?dryRun=All"), &held).0, 409);
        let status = "/api/v1/namespaces/default/services/web/status";
        let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
        assert_eq!(api.act("PUT", status, &service).0, 201, "even the status of a service creates it");
    });
}

/// A list that is replaced as a whole knows no directives: what is left of the element is taken for one.
#[test]
fn a_directive_in_a_list_that_is_replaced_is_an_unknown_field() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, NODES, &node("n1"));
        let patch = json!({ "spec": { "taints": [{ "$patch": "delete", "key": "a", "effect": "NoExecute" }] } });
        let (_, patched) = patch_as(&api, "strategic-merge-patch", "/api/v1/nodes/n1", &patch);
        assert_eq!(patched["spec"]["taints"], json!([{ "key": "a", "effect": "NoExecute" }]));
    });
}

#[test]
fn observers_see_every_change() {
    simulate(async {
        let api = SimApi::new(1);
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let list = std::sync::Arc::clone(&seen);
        api.observe(move |entry, write| {
            let line = format!("{} {} {} {}", entry.client, write.verb, write.key, write.after.is_some());
            list.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(line);
        });
        create(&api, NODES, &node("n1"));
        api.act("PUT", "/api/v1/nodes/n2", &node("n2"));
        api.act("DELETE", "/api/v1/nodes/n1", &Value::Null);
        let seen = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        assert_eq!(seen, ["admin create nodes n1 true", "admin delete nodes n1 false"]);
    });
}
