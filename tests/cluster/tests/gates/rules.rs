//! `NodeReadinessRule` objects.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelet_control_plane::until;
use keelet_harness::eventually;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::json;

use crate::bed::{Bed, GATE, annotation, object, report, taints};

const GROUP: &str = "readiness.node.x-k8s.io";
const TAINT: &str = "readiness.k8s.io/storage";

/// The kind of object, as far as its fields matter here. The API server checks what the schema says.
fn definition() -> CustomResourceDefinition {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    object(json!({
        "metadata": {"name": format!("nodereadinessrules.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Cluster",
            "names": {"plural": "nodereadinessrules", "singular": "nodereadinessrule", "kind": "NodeReadinessRule", "shortNames": ["nrr"]},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.enforcementMode"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                             "properties": {"enforcementMode": {"type": "string", "enum": ["bootstrap-only", "continuous"]}}},
                    "status": open,
                }}},
            }],
        },
    }))
}

/// GN-8, PEER-1, PEER-10, PEER-17, PEER-22, SCN-G7, SCN-G10: a rule beside a registration taint, on a real API server: its taint is added
/// to nodes that it selects, goes with their conditions, and goes with the rule.
#[tokio::test]
#[ignore = "needs a control plane: make e2e"]
async fn rules_are_honoured_beside_registration_taints() {
    let bed = Bed::new("rules").await;
    let definitions: Api<CustomResourceDefinition> = Api::all(bed.admin.clone());
    let name = format!("nodereadinessrules.{GROUP}");
    definitions.create(&PostParams::default(), &definition()).await.expect("a definition");
    until(&bed.admin, None, &name, "it is served", |definition: &CustomResourceDefinition| {
        let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    })
    .await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1alpha1", "NodeReadinessRule"));
    let rules: Api<DynamicObject> = Api::all_with(bed.admin.clone(), &resource);
    let (fleet, _nodes) = bed.gated("ruled", 2, &[GATE]).await;
    let rule = |name: &str, key: &str, mode: &str| -> DynamicObject {
        object(json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "NodeReadinessRule", "metadata": {"name": name},
            "spec": {
                "conditions": [{"type": "example.com/Storage", "requiredStatus": "True"}], "enforcementMode": mode,
                "taint": {"key": key, "value": "pending", "effect": "NoSchedule"},
                "nodeSelector": {"matchLabels": {keelet_hollow::objects::LABEL: fleet.prefix}},
            },
        }))
    };
    let controller = bed.controller("a", &[]).await.ready().await;
    rules.create(&PostParams::default(), &rule("storage", TAINT, "bootstrap-only")).await.expect("a rule");
    let has = |key: &'static str| move |node: &_| taints(node).contains(&key.to_owned());
    for node in ["ruled-0", "ruled-1"] {
        bed.node(node, "the rule's taint is there", has(TAINT)).await;
    }
    let uid = eventually("the rule's finalizer and status", async || {
        let rule = rules.get("storage").await.map_err(|error| error.to_string())?;
        let finalizers = rule.metadata.finalizers.clone().unwrap_or_default();
        let is_kept =
            finalizers == ["readiness.node.x-k8s.io/cleanup-taints"] && rule.data["status"]["observedGeneration"] == 1;
        if is_kept { Ok(rule.metadata.uid.unwrap_or_default()) } else { Err(format!("{rule:?}")) }
    })
    .await;

    report(&bed.admin, "ruled-0", "example.com/Storage", "True").await;
    let node = bed.opens("ruled-0", TAINT).await;
    assert_eq!(taints(&node), [GATE], "the registration taint waits for its own condition");
    let completed = annotation(&node, &format!("readiness.k8s.io/bootstrap-completed-{uid}"));
    assert!(completed.is_some_and(|value| value.contains("storage")), "{completed:?}");
    for reason in ["TaintAdded", "TaintRemoved"] {
        let message = bed.event("ruled-0", reason).await;
        assert!(message.contains("storage"), "{message}");
    }
    report(&bed.admin, "ruled-0", "CNIReady", "True").await;
    assert_eq!(taints(&bed.opens("ruled-0", GATE).await), Vec::<String>::new());
    controller.shows("node_readiness_rule_nodes{rule=\"storage\",state=\"held\"}", |held| held == 1.0).await;

    // The taint of the other node goes with the rule, and the finalizer lets the rule go.
    rules.delete("storage", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(taints(&bed.opens("ruled-1", TAINT).await), [GATE]);
    eventually("the rule is gone", async || match rules.get_opt("storage").await {
        Ok(None) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    definitions.delete(&name, &DeleteParams::default()).await.expect("deleted");
}
