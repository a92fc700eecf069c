//! Deletion: grace periods, finalizers, preconditions.

use keelet_sim_api::SimApi;
use serde_json::{Value, json};

use super::{create, node, pod, secs, simulate};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn bound(api: &SimApi, name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = "n1".into();
    create(api, PODS, &pod)
}

#[test]
fn what_has_no_grace_goes_at_once() {
    simulate(async {
        let api = SimApi::new(1);
        let created = create(&api, "/api/v1/nodes", &node("n1"));
        let (code, status) = api.act("DELETE", "/api/v1/nodes/n1", &Value::Null);
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": { "name": "n1", "kind": "nodes", "uid": created["metadata"]["uid"] },
        });
        assert_eq!((code, status), (200, expected));
        assert_eq!(api.act("DELETE", "/api/v1/nodes/n1", &Value::Null).0, 404);
        create(&api, PODS, &pod("unbound"));
        let (code, gone) = api.act("DELETE", &format!("{PODS}/unbound"), &Value::Null);
        assert_eq!(
            (code, &gone["kind"], &gone["metadata"]["deletionGracePeriodSeconds"]),
            (200, &json!("Pod"), &json!(0))
        );
        assert_eq!(api.act("GET", &format!("{PODS}/unbound"), &Value::Null).0, 404);
    });
}

/// A pod on a node waits for its agent; a second deletion may only shorten the wait.
#[test]
fn a_pod_is_deleted_with_grace() {
    simulate(async {
        let api = SimApi::new(1);
        bound(&api, "web");
        let path = format!("{PODS}/web");
        let (code, marked) = api.act("DELETE", &path, &Value::Null);
        let meta = |pod: &Value| {
            (pod["metadata"]["deletionTimestamp"].clone(), pod["metadata"]["deletionGracePeriodSeconds"].clone())
        };
        assert_eq!((code, meta(&marked)), (200, (json!("2027-01-15T08:00:30Z"), json!(30))));
        assert_eq!(marked["metadata"]["generation"], 2);
        tokio::time::sleep(secs(5)).await;
        let before = api.revision();
        let (_, longer) = api.act("DELETE", &path, &json!({ "gracePeriodSeconds": 60 }));
        assert_eq!((meta(&longer), api.revision()), (meta(&marked), before), "it cannot be made longer");
        let (_, shorter) = api.act("DELETE", &path, &json!({ "gracePeriodSeconds": 10 }));
        assert_eq!(meta(&shorter), (json!("2027-01-15T08:00:10Z"), json!(10)));
        let (_, past) = api.act("DELETE", &path, &json!({ "gracePeriodSeconds": 2 }));
        assert_eq!(meta(&past), (json!("2027-01-15T08:00:05Z"), json!(1)), "never into the past");
        let (code, _) = api.act("PATCH", &path, &json!({ "metadata": { "deletionTimestamp": null } }));
        assert_eq!(code, 200);
        assert_eq!(meta(&api.act("GET", &path, &Value::Null).1).1, json!(1), "no update takes it back");
        let (code, _) = api.act("DELETE", &path, &json!({ "gracePeriodSeconds": 0 }));
        assert_eq!(code, 200);
        assert_eq!(api.act("GET", &path, &Value::Null).0, 404);
    });
}

#[test]
fn a_finished_pod_goes_at_once() {
    simulate(async {
        let api = SimApi::new(1);
        bound(&api, "job");
        let path = format!("{PODS}/job");
        api.act("PATCH", &format!("{path}/status"), &json!({ "status": { "phase": "Succeeded" } }));
        api.act("DELETE", &path, &Value::Null);
        assert_eq!(api.act("GET", &path, &Value::Null).0, 404);
    });
}

/// An object with finalizers stays until the last one has gone, and gets no new ones.
#[test]
fn finalizers_keep_an_object() {
    simulate(async {
        let api = SimApi::new(1);
        let mut given = node("n1");
        given["metadata"]["finalizers"] = json!(["x.io/a", "x.io/b"]);
        create(&api, "/api/v1/nodes", &given);
        let path = "/api/v1/nodes/n1";
        let (code, marked) = api.act("DELETE", path, &Value::Null);
        assert_eq!((code, &marked["kind"]), (200, &json!("Node")));
        assert_eq!(marked["metadata"]["deletionTimestamp"], "2027-01-15T08:00:00Z");
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
        let before = api.revision();
        api.act("DELETE", path, &Value::Null);
        assert_eq!(api.revision(), before, "a second deletion changes nothing");
        let more = json!({ "metadata": { "finalizers": ["x.io/a", "x.io/b", "x.io/c"] } });
        assert_eq!(api.act("PATCH", path, &more).0, 422);
        assert_eq!(api.act("PATCH", path, &json!({ "metadata": { "finalizers": ["x.io/b"] } })).0, 200);
        assert_eq!(api.act("GET", path, &Value::Null).0, 200);
        assert_eq!(api.act("PATCH", path, &json!({ "metadata": { "finalizers": null } })).0, 200);
        assert_eq!(api.act("GET", path, &Value::Null).0, 404);
    });
}

#[test]
fn a_pod_waits_for_grace_and_finalizers() {
    simulate(async {
        let api = SimApi::new(1);
        let mut given = pod("web");
        given["metadata"]["finalizers"] = json!(["x.io/a"]);
        given["spec"]["nodeName"] = "n1".into();
        create(&api, PODS, &given);
        let path = format!("{PODS}/web");
        api.act("DELETE", &path, &Value::Null);
        api.act("DELETE", &path, &json!({ "gracePeriodSeconds": 0 }));
        let (code, waiting) = api.act("GET", &path, &Value::Null);
        assert_eq!((code, &waiting["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(0)));
        api.act("PATCH", &path, &json!({ "metadata": { "finalizers": null } }));
        assert_eq!(api.act("GET", &path, &Value::Null).0, 404);
    });
}

#[test]
fn deletions_have_preconditions() {
    simulate(async {
        let api = SimApi::new(1);
        let created = create(&api, "/api/v1/nodes", &node("n1"));
        let (uid, version) = (&created["metadata"]["uid"], &created["metadata"]["resourceVersion"]);
        let path = "/api/v1/nodes/n1";
        let (code, status) = api.act("DELETE", path, &json!({ "preconditions": { "uid": "other" } }));
        assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
        let expected = format!(
            "Operation cannot be fulfilled on Node \"n1\": the UID in the precondition (other) does not match the UID in record ({})",
            uid.as_str().unwrap_or("")
        );
        assert!(status["message"].as_str().is_some_and(|message| message.starts_with(&expected)), "{status}");
        assert_eq!(api.act("DELETE", path, &json!({ "preconditions": { "resourceVersion": "1" } })).0, 409);
        assert_eq!(api.act("DELETE", path, &json!({ "propagationPolicy": "Sideways" })).0, 422);
        assert_eq!(
            api.act("DELETE", path, &json!({ "preconditions": { "uid": uid, "resourceVersion": version } })).0,
            200
        );
    });
}

#[test]
fn a_collection_can_be_deleted() {
    simulate(async {
        let api = SimApi::new(1);
        for name in ["a", "b"] {
            let mut map = json!({ "metadata": { "name": name } });
            map["metadata"]["labels"] = json!({ "x": name });
            create(&api, "/api/v1/namespaces/kube-public/configmaps", &map);
        }
        let (code, gone) =
            api.act("DELETE", "/api/v1/namespaces/kube-public/configmaps?labelSelector=x%3Da", &Value::Null);
        assert_eq!((code, gone["items"].as_array().map(Vec::len)), (200, Some(1)));
        assert_eq!(api.act("GET", "/api/v1/namespaces/kube-public/configmaps/b", &Value::Null).0, 200);
    });
}

/// An object that was deleted and created again under its name is another one.
#[test]
fn a_name_can_be_used_again() {
    simulate(async {
        let api = SimApi::new(1);
        let one = create(&api, "/api/v1/nodes", &node("n1"));
        api.act("DELETE", "/api/v1/nodes/n1", &Value::Null);
        let other = create(&api, "/api/v1/nodes", &node("n1"));
        assert_ne!(one["metadata"]["uid"], other["metadata"]["uid"]);
        let old = json!({ "metadata": { "uid": one["metadata"]["uid"], "labels": { "a": "b" } } });
        assert_eq!(api.act("PATCH", "/api/v1/nodes/n1", &old).0, 422);
    });
}
