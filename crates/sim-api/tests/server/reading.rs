//! Get and list: pages, selectors, resourceVersions, what is too old and what is to come.

use keelet_sim_api::SimApi;
use serde_json::{Value, json};

use super::{create, node, pod, simulate};

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

#[test]
fn objects_have_the_shape_of_the_real_server() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, "/api/v1/nodes", &node("n1"));
        let (code, got) = api.act("GET", "/api/v1/nodes/n1", &Value::Null);
        assert_eq!((code, &got["kind"], &got["apiVersion"]), (200, &json!("Node"), &json!("v1")));
        assert_eq!(got["metadata"]["creationTimestamp"], "2027-01-15T08:00:00Z");
        assert_eq!(got["metadata"]["uid"].as_str().map(str::len), Some(36));
        assert_eq!(
            got["spec"],
            json!({ "taints": [{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }] })
        );
        let (_, list) = api.act("GET", "/api/v1/nodes", &Value::Null);
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("NodeList"), &json!("v1")));
        assert_eq!((list["items"][0].get("kind"), list["items"][0].get("apiVersion")), (None, None));
        assert_eq!(list["metadata"]["resourceVersion"], got["metadata"]["resourceVersion"]);
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    simulate(async {
        let api = SimApi::new(1);
        let (code, got) = api.act("GET", "/api/v1/nodes/n1", &Value::Null);
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "nodes \"n1\" not found", "reason": "NotFound", "details": { "name": "n1", "kind": "nodes" }, "code": 404,
        });
        assert_eq!((code, got), (404, expected));
        let (code, got) = api.act("GET", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", &Value::Null);
        assert_eq!((code, &got["message"]), (404, &json!("leases.coordination.k8s.io \"l\" not found")));
        assert_eq!(got["details"], json!({ "name": "l", "group": "coordination.k8s.io", "kind": "leases" }));
        for path in ["/apis/x.io/v1/gadgets", "/nothing"] {
            assert_eq!(api.act("GET", path, &Value::Null), (404, json!("404 page not found\n")), "{path}");
        }
        let unknown = json!("the server could not find the requested resource");
        for path in ["/api/v1/gadgets", "/api/v1/nodes/n1/nothing", "/api/v1/pods/web"] {
            let (code, got) = api.act("GET", path, &Value::Null);
            assert_eq!((code, &got["message"]), (404, &unknown), "{path}");
        }
    });
}

#[test]
fn lists_are_selected_by_labels_and_fields() {
    simulate(async {
        let api = SimApi::new(1);
        for (name, zone, host) in [("a", "x", "n1"), ("b", "y", "n1"), ("c", "x", "n2")] {
            let mut pod = pod(name);
            pod["metadata"]["labels"] = json!({ "zone": zone });
            pod["spec"]["nodeName"] = host.into();
            create(&api, "/api/v1/namespaces/default/pods", &pod);
        }
        let table: [(&str, &[&str]); 8] = [
            ("", &["a", "b", "c"]),
            ("?labelSelector=zone%3Dx", &["a", "c"]),
            ("?labelSelector=zone%20in%20(x,y),zone!%3Dy", &["a", "c"]),
            ("?fieldSelector=spec.nodeName%3Dn1", &["a", "b"]),
            ("?fieldSelector=metadata.name%3Db", &["b"]),
            ("?fieldSelector=spec.nodeName%3Dn1,metadata.name!%3Da", &["b"]),
            ("?fieldSelector=status.phase%3DRunning", &[]),
            ("?fieldSelector=metadata.namespace%3Ddefault&labelSelector=zone%3Dy", &["b"]),
        ];
        for (query, expected) in table {
            let (code, list) = api.act("GET", &format!("/api/v1/pods{query}"), &Value::Null);
            assert_eq!((code, names(&list)), (200, expected.to_vec()), "{query}");
        }
        let (_, other) = api.act("GET", "/api/v1/namespaces/kube-system/pods", &Value::Null);
        assert_eq!(names(&other), Vec::<&str>::new());
        let (code, refused) = api.act("GET", "/api/v1/pods?fieldSelector=spec.foo%3Dx", &Value::Null);
        assert_eq!((code, &refused["message"]), (400, &json!("field label not supported: spec.foo")));
        let (code, _) = api.act("GET", "/api/v1/configmaps?fieldSelector=data.x%3Dx", &Value::Null);
        assert_eq!(code, 400);
    });
}

/// Pages belong to one state of the collection; a token whose state is gone gets 410 and a token for the rest as it is now.
#[test]
fn lists_come_in_pages_of_one_state() {
    simulate(async {
        let api = SimApi::new(1);
        for name in ["a", "b", "c", "d", "e"] {
            create(&api, "/api/v1/nodes", &node(name));
        }
        let (_, first) = api.act("GET", "/api/v1/nodes?limit=2", &Value::Null);
        assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(3)));
        let token = first["metadata"]["continue"].as_str().unwrap_or("").to_owned();
        api.act("DELETE", "/api/v1/nodes/c", &Value::Null);
        create(&api, "/api/v1/nodes", &node("cc"));
        let next = format!("/api/v1/nodes?limit=2&continue={token}");
        let (_, second) = api.act("GET", &next, &Value::Null);
        assert_eq!((names(&second), &second["metadata"]["remainingItemCount"]), (vec!["c", "d"], &json!(1)));
        assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        let token_2 = second["metadata"]["continue"].as_str().unwrap_or("").to_owned();
        let (_, third) = api.act("GET", &format!("/api/v1/nodes?limit=2&continue={token_2}"), &Value::Null);
        assert_eq!((names(&third), third["metadata"].get("continue")), (vec!["e"], None));

        api.compact(api.revision());
        let (code, gone) = api.act("GET", &next, &Value::Null);
        assert_eq!((code, &gone["reason"]), (410, &json!("Expired")));
        let token = gone["metadata"]["continue"].as_str().unwrap_or("").to_owned();
        let (code, rest) = api.act("GET", &format!("/api/v1/nodes?continue={token}"), &Value::Null);
        assert_eq!((code, names(&rest)), (200, vec!["cc", "d", "e"]));
        let (code, _) = api.act("GET", "/api/v1/nodes?continue=nonsense", &Value::Null);
        assert_eq!(code, 400);
    });
}

/// A page that a selector thins out is filled up from the rest.
#[test]
fn pages_count_what_is_selected() {
    simulate(async {
        let api = SimApi::new(1);
        for (index, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            let mut node = node(name);
            node["metadata"]["labels"] = json!({ "odd": (index % 2).to_string() });
            create(&api, "/api/v1/nodes", &node);
        }
        let (_, first) = api.act("GET", "/api/v1/nodes?limit=2&labelSelector=odd%3D0", &Value::Null);
        assert_eq!((names(&first), first["metadata"].get("remainingItemCount")), (vec!["a", "c"], None));
        let token = first["metadata"]["continue"].as_str().unwrap_or("").to_owned();
        let path = format!("/api/v1/nodes?limit=2&labelSelector=odd%3D0&continue={token}");
        let (_, second) = api.act("GET", &path, &Value::Null);
        assert_eq!(names(&second), ["e"]);
    });
}

#[test]
fn resource_versions_choose_the_state() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, "/api/v1/nodes", &node("a"));
        let old = api.revision();
        create(&api, "/api/v1/nodes", &node("b"));
        let newest = api.revision();
        let table: [(String, u16, &[&str]); 9] = [
            ("resourceVersion=0".to_owned(), 200, &["a", "b"]),
            (format!("resourceVersion={old}"), 200, &["a", "b"]),
            (format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan"), 200, &["a", "b"]),
            (format!("resourceVersion={old}&resourceVersionMatch=Exact"), 200, &["a"]),
            (format!("resourceVersion={old}&limit=5"), 200, &["a"]),
            (format!("resourceVersion={}", newest + 5), 504, &[]),
            ("resourceVersionMatch=Exact".to_owned(), 422, &[]),
            ("resourceVersion=0&resourceVersionMatch=Exact".to_owned(), 422, &[]),
            ("resourceVersion=x".to_owned(), 400, &[]),
        ];
        for (query, code, expected) in table {
            let (got, list) = api.act("GET", &format!("/api/v1/nodes?{query}"), &Value::Null);
            assert_eq!((got, names(&list)), (code, expected.to_vec()), "{query} {list}");
        }
        let (_, late) = api.act("GET", &format!("/api/v1/nodes?resourceVersion={}", newest + 5), &Value::Null);
        assert_eq!((&late["reason"], &late["details"]["retryAfterSeconds"]), (&json!("Timeout"), &json!(1)));
        api.compact(newest);
        let exactly = format!("/api/v1/nodes?resourceVersion={old}&resourceVersionMatch=Exact");
        assert_eq!(api.act("GET", &exactly, &Value::Null).0, 410);
        assert_eq!(api.act("GET", &format!("/api/v1/nodes?resourceVersion={old}"), &Value::Null).0, 200);
    });
}

#[test]
fn the_server_says_what_it_has() {
    simulate(async {
        let api = SimApi::new(1);
        assert_eq!(api.act("GET", "/version", &Value::Null).1["gitVersion"], "v1.37.1");
        assert_eq!(api.act("GET", "/readyz", &Value::Null), (200, json!("ok")));
        let (_, core) = api.act("GET", "/api/v1", &Value::Null);
        let resources = core["resources"].as_array().cloned().unwrap_or_default();
        assert!(resources.iter().any(|resource| resource["name"] == "nodes/status"), "{core}");
        let (_, groups) = api.act("GET", "/apis", &Value::Null);
        assert!(groups.to_string().contains("coordination.k8s.io/v1"), "{groups}");
        assert_eq!(api.act("GET", "/apis/readiness.node.x-k8s.io/v1alpha1", &Value::Null).0, 404);
    });
}
