//! Custom resources, by their definition.

use keelet_sim_api::SimApi;
use serde_json::{Value, json};

use super::{admin, create, simulate, watch};

const GADGETS: &str = "/apis/x.io/v1/gadgets";

fn definition() -> Value {
    json!({
        "kind": "CustomResourceDefinition",
        "spec": {
            "group": "x.io", "scope": "Cluster",
            "names": { "plural": "gadgets", "kind": "Gadget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "required": ["spec"],
                    "properties": {
                        "spec": {
                            "type": "object", "required": ["mode"],
                            "properties": {
                                "mode": { "type": "string", "enum": ["a", "b"], "x-kubernetes-validations": [{ "rule": "self == oldSelf" }] },
                                "count": { "type": "integer", "minimum": 0, "default": 3 },
                                "items": { "type": "array", "minItems": 1, "items": { "type": "string", "maxLength": 3 } },
                                "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                                "map": { "type": "object", "additionalProperties": { "type": "string" } },
                            },
                        },
                        "status": { "type": "object", "properties": { "seen": { "type": "integer" } } },
                    },
                } },
            }],
        },
    })
}

#[test]
fn a_resource_is_there_once_it_is_defined() {
    simulate(async {
        let api = SimApi::new(1);
        assert_eq!(api.act("GET", GADGETS, &Value::Null).0, 404);
        api.install(&definition());
        assert_eq!(api.act("GET", GADGETS, &Value::Null).0, 200);
        create(
            &api,
            GADGETS,
            &json!({ "apiVersion": "x.io/v1", "kind": "Gadget", "metadata": { "name": "g" }, "spec": { "mode": "a" } }),
        );
        let from = api.revision();
        let mut lines = watch(&admin(&api), &format!("{GADGETS}?watch=1&resourceVersion={from}")).await;
        api.uninstall("x.io", "gadgets");
        assert_eq!(lines.short().await, format!("DELETED g {}", from + 1));
        assert_eq!(api.act("GET", GADGETS, &Value::Null).0, 404);
    });
}

#[test]
fn objects_are_pruned_completed_and_validated() {
    simulate(async {
        let api = SimApi::new(1);
        api.install(&definition());
        let given = json!({
            "apiVersion": "x.io/v1", "kind": "Gadget", "metadata": { "name": "g", "labels": {} },
            "spec": { "mode": "a", "unknown": 1, "free": { "x": { "y": "" } }, "map": { "k": "v" } },
            "status": { "seen": 1 },
        });
        let created = create(&api, GADGETS, &given);
        assert_eq!(
            created["spec"],
            json!({ "mode": "a", "count": 3, "free": { "x": { "y": "" } }, "map": { "k": "v" } })
        );
        assert_eq!((created.get("status"), created["metadata"].get("labels")), (None, None));
        assert_eq!(created["metadata"]["generation"], 1);
        let (_, list) = api.act("GET", GADGETS, &Value::Null);
        assert_eq!(list["items"][0]["kind"], "Gadget", "items of custom resources have their type");
        for (spec, field) in [
            (json!({}), "spec.mode"),
            (json!({ "mode": "c" }), "spec.mode"),
            (json!({ "mode": "a", "count": "x" }), "spec.count"),
            (json!({ "mode": "a", "count": -1 }), "spec.count"),
            (json!({ "mode": "a", "items": [] }), "spec.items"),
            (json!({ "mode": "a", "items": ["long"] }), "spec.items[0]"),
            (json!({ "mode": "a", "map": { "k": 1 } }), "spec.map.k"),
        ] {
            let (code, status) = api.act(
                "POST",
                GADGETS,
                &json!({ "apiVersion": "x.io/v1", "kind": "Gadget", "metadata": { "name": "h" }, "spec": spec }),
            );
            assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!(field)), "{status}");
        }
    });
}

#[test]
fn updates_need_a_version_and_count_generations() {
    simulate(async {
        let api = SimApi::new(1);
        api.install(&definition());
        create(
            &api,
            GADGETS,
            &json!({ "apiVersion": "x.io/v1", "kind": "Gadget", "metadata": { "name": "g" }, "spec": { "mode": "a" } }),
        );
        let path = format!("{GADGETS}/g");
        let put =
            json!({ "apiVersion": "x.io/v1", "kind": "Gadget", "metadata": { "name": "g" }, "spec": { "mode": "a" } });
        assert_eq!(api.act("PUT", &path, &put).0, 422, "a version is required");
        let (_, changed) = api.act("PATCH", &path, &json!({ "spec": { "count": 4 }, "status": { "seen": 9 } }));
        assert_eq!((&changed["metadata"]["generation"], changed.get("status")), (&json!(2), None));
        let status = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "count": 5 }, "status": { "seen": 1 } });
        let (_, changed) = api.act("PATCH", &format!("{path}/status"), &status);
        assert_eq!((&changed["spec"]["count"], &changed["status"]), (&json!(4), &json!({ "seen": 1 })));
        assert_eq!((&changed["metadata"]["generation"], changed["metadata"].get("labels")), (&json!(2), None));
        assert_eq!(api.act("PATCH", &path, &json!({ "spec": { "mode": "b" } })).0, 422, "it does not change");
        let admin = keelet_sim_api::Identity::admin();
        let strategic =
            api.act_as("admin", &admin, "PATCH", &path, "application/strategic-merge-patch+json", &json!({}));
        assert_eq!((strategic.0, &strategic.1["reason"]), (415, &json!("UnsupportedMediaType")));
    });
}
