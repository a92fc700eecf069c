//! `NodeReadinessRule` objects in the simulated cluster.

use serde_json::{Value, json};

use crate::world::World;

/// Where rules are.
pub const RULES: &str = "/apis/readiness.node.x-k8s.io/v1alpha1/nodereadinessrules";

/// The taint of every rule.
pub const TAINT: &str = "readiness.k8s.io/network:NoSchedule";

/// How the store names them.
pub(crate) const RESOURCE: &str = "nodereadinessrules.readiness.node.x-k8s.io";

/// Installs the kind of object: the fields that the controller reads and writes.
pub fn install(world: &World) {
    install_version(world, "v1alpha1");
}

/// The same as another version.
pub fn install_version(world: &World, version: &str) {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    let open = json!({"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    world.api.install(&json!({
        "kind": "CustomResourceDefinition",
        "spec": {
            "group": "readiness.node.x-k8s.io", "scope": "Cluster", "names": {"plural": "nodereadinessrules", "kind": "NodeReadinessRule"},
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "status": {"type": "object", "properties": {
                        "observedGeneration": number, "appliedNodes": {"type": "array", "items": text}, "failedNodes": open, "nodeEvaluations": open,
                        "dryRunResults": {"type": "object", "properties": {
                            "affectedNodes": number, "taintsToAdd": number, "taintsToRemove": number, "riskyOperations": number, "summary": text,
                        }},
                    }},
                }}},
            }],
        },
    }));
}

/// A rule about the condition `CNI` of nodes with this role.
pub fn rule(name: &str, mode: &str, role: &str) -> Value {
    json!({
        "apiVersion": "readiness.node.x-k8s.io/v1alpha1", "kind": "NodeReadinessRule", "metadata": {"name": name},
        "spec": {
            "conditions": [{"type": "CNI", "requiredStatus": "True"}], "enforcementMode": mode,
            "taint": {"key": "readiness.k8s.io/network", "value": "pending", "effect": "NoSchedule"},
            "nodeSelector": {"matchLabels": {"role": role}},
        },
    })
}

/// Creates a rule about the condition `CNI` of workers.
///
/// # Panics
///
/// If the API server does not take it.
pub fn create(world: &World, name: &str, mode: &str) {
    let (code, answer) = world.api.act("POST", RULES, &rule(name, mode, "worker"));
    assert_eq!(code, 201, "{answer}");
}

/// Whether a rule asks for its taint on a node unless its condition is True.
pub(crate) fn asks(rule: &Value, node: &Value) -> bool {
    let (spec, meta) = (&rule["spec"], &rule["metadata"]);
    let annotations = &node["metadata"]["annotations"];
    let completed = |key: &Value| {
        !annotations[format!("readiness.k8s.io/bootstrap-completed-{}", key.as_str().unwrap_or_default())].is_null()
    };
    let over = spec["enforcementMode"] == "bootstrap-only" && (completed(&meta["uid"]) || completed(&meta["name"]));
    let selects = spec["nodeSelector"]["matchLabels"]["role"] == node["metadata"]["labels"]["role"];
    selects && !over && spec["dryRun"] != true && meta["deletionTimestamp"].is_null()
}

/// The condition of a rule.
pub(crate) fn condition(rule: &Value) -> &str {
    rule["spec"]["conditions"][0]["type"].as_str().unwrap_or_default()
}
