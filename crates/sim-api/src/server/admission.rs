//! What the server itself has to say about a write, after access and before validation.

use serde_json::{Value, json};

use super::{Call, Result, Server};
use crate::{
    access::{Asked, restrict},
    json::{at, copy, default, list, object as object_at, text},
    refusal::{Qualified, Refusal},
    request::Verb,
    resources::Resource,
    store::Key,
};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const MIRROR: &str = "kubernetes.io/config.mirror";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Priority classes that every cluster has.
const CLASSES: [(&str, i64); 2] = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

impl Server {
    /// Lets the plugins see a write: they refuse it or change the object. Of a deletion, the object is null.
    pub(super) fn admit(
        &mut self,
        call: &Call<'_>,
        resource: &Resource,
        subresource: &str,
        verb: Verb,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        let about = old.unwrap_or(object);
        let requested = text(about, &["metadata", "name"]).to_owned();
        // A name that is to be generated is not there yet.
        let name = if requested.is_empty() {
            text(about, &["metadata", "generateName"]).to_owned()
        } else {
            requested.clone()
        };
        let namespace = text(about, &["metadata", "namespace"]).to_owned();
        if old.is_none() && resource.namespaced {
            self.check_namespace(resource, &namespace, &name)?;
        }
        let is_new_pod = old.is_none() && resource.plural == "pods";
        if is_new_pod {
            self.set_account(resource, object, &name)?;
        }
        if let (Some(old), "pods", "", false) = (old, resource.plural.as_str(), subresource, object.is_null()) {
            for key in ["priority", "preemptionPolicy"] {
                if at(object, &["spec", key]).is_none() {
                    copy(&mut object["spec"], &old["spec"], key);
                }
            }
            add_tolerations(object);
        }
        if let Some(node) = call.identity.node_name() {
            let asked = Asked {
                node,
                resource: resource.qualified(),
                subresource,
                verb: if old.is_none() { Verb::Create } else { verb },
                namespace: &namespace,
                name: &requested,
                shown: &name,
                object: Some(&*object).filter(|object| !object.is_null()),
                old,
            };
            restrict(asked, &self.store)?;
        }
        if is_new_pod {
            set_priority(resource, object, &name)?;
            add_tolerations(object);
        }
        if old.is_none() && resource.plural == "nodes" {
            add_not_ready(object);
        }
        Ok(())
    }

    /// Objects are created only in namespaces that are there and stay.
    fn check_namespace(&self, resource: &Resource, namespace: &str, name: &str) -> Result<()> {
        let key = Key { resource: "namespaces".into(), namespace: String::new(), name: namespace.to_owned() };
        let Some(found) = self.store.get(&key) else {
            return Err(Refusal::not_found(Qualified { group: "", name: "namespaces" }, namespace));
        };
        if at(found, &["metadata", "deletionTimestamp"]).is_some() {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            return Err(Refusal::forbidden(resource.qualified(), name, &why));
        }
        Ok(())
    }

    /// The service account of a new pod, and its token.
    fn set_account(&mut self, resource: &Resource, pod: &mut Value, name: &str) -> Result<()> {
        if at(pod, &["metadata", "annotations", MIRROR]).is_some() {
            if text(pod, &["spec", "serviceAccountName"]).is_empty() {
                return Ok(());
            }
            let why = "a mirror pod may not reference service accounts";
            return Err(Refusal::forbidden(resource.qualified(), name, why));
        }
        let namespace = text(pod, &["metadata", "namespace"]).to_owned();
        let spec = object_at(pod, "spec");
        default(spec, "serviceAccountName", "default");
        let account = spec["serviceAccountName"].clone();
        spec.insert("serviceAccount".to_owned(), account.clone());
        let account = account.as_str().unwrap_or("").to_owned();
        let key = Key { resource: "serviceaccounts".into(), namespace: namespace.clone(), name: account.clone() };
        let Some(found) = self.store.get(&key) else {
            let why =
                format!("error looking up service account {namespace}/{account}: serviceaccount {account:?} not found");
            return Err(Refusal::forbidden(resource.qualified(), name, &why));
        };
        let choice = |value: &Value| value.get("automountServiceAccountToken").and_then(Value::as_bool);
        let mounts = choice(&pod["spec"]).or_else(|| choice(found)).unwrap_or(true);
        if mounts {
            let suffix = self.suffix();
            mount_token(pod, &format!("kube-api-access-{suffix}"));
        }
        Ok(())
    }
}

/// The volume with the token, in every container that has nothing at its place.
fn mount_token(pod: &mut Value, volume: &str) {
    let mut used = false;
    for group in ["containers", "initContainers"] {
        for container in pod["spec"].get_mut(group).and_then(Value::as_array_mut).into_iter().flatten() {
            if list(container, &["volumeMounts"]).iter().any(|mount| mount["mountPath"] == TOKEN_PATH) {
                continue;
            }
            let mount = json!({ "name": volume, "mountPath": TOKEN_PATH, "readOnly": true });
            let mounts = container.as_object_mut().map(|map| map.entry("volumeMounts").or_insert_with(|| json!([])));
            if let Some(Value::Array(mounts)) = mounts {
                mounts.push(mount);
                used = true;
            }
        }
    }
    if !used {
        return;
    }
    let source = json!({
        "name": volume,
        "projected": { "defaultMode": 420, "sources": [
            { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
            { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            { "downwardAPI": { "items": [
                { "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } },
            ] } },
        ] },
    });
    let volumes = object_at(pod, "spec").entry("volumes").or_insert_with(|| json!([]));
    if let Value::Array(volumes) = volumes {
        volumes.push(source);
    }
}

fn set_priority(resource: &Resource, pod: &mut Value, name: &str) -> Result<()> {
    let spec = object_at(pod, "spec");
    let class = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or("");
    let known = CLASSES.iter().find(|(known, _)| *known == class);
    if !class.is_empty() && known.is_none() {
        let why = format!("no PriorityClass with name {class} was found");
        return Err(Refusal::forbidden(resource.qualified(), name, &why));
    }
    let priority = known.map_or(0, |(_, priority)| *priority);
    default(spec, "priority", priority);
    default(spec, "preemptionPolicy", "PreemptLowerPriority");
    Ok(())
}

/// A pod stays for five minutes on a node that is not ready or cannot be reached, unless it says otherwise.
fn add_tolerations(pod: &mut Value) {
    for key in [NOT_READY, "node.kubernetes.io/unreachable"] {
        let tolerates = |toleration: &Value| {
            let (own, effect) = (text(toleration, &["key"]), text(toleration, &["effect"]));
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        };
        if list(pod, &["spec", "tolerations"]).iter().any(tolerates) {
            continue;
        }
        let toleration = json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
        let tolerations = object_at(pod, "spec").entry("tolerations").or_insert_with(|| json!([]));
        if let Value::Array(tolerations) = tolerations {
            tolerations.push(toleration);
        }
    }
}

/// A new node gets no pods before it is ready.
fn add_not_ready(node: &mut Value) {
    let has = list(node, &["spec", "taints"])
        .iter()
        .any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule");
    if !has {
        let taints = object_at(node, "spec").entry("taints").or_insert_with(|| json!([]));
        if let Value::Array(taints) = taints {
            taints.push(json!({ "key": NOT_READY, "effect": "NoSchedule" }));
        }
    }
}
