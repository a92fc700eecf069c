//! What the agent of a node may do: the authorizer of nodes, and the admission plugin NodeRestriction.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Attributes, Decision};
use crate::{
    json::{at, list, text},
    refusal::{Qualified, Refusal},
    request::Verb,
    selector::FieldSelector,
    store::{Key, Store},
};

/// A write that a node asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) node: &'a str,
    pub(crate) resource: Qualified<'a>,
    pub(crate) subresource: &'a str,
    pub(crate) verb: Verb,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The name that messages show.
    pub(crate) shown: &'a str,
    /// The object as it would be stored. None of a deletion.
    pub(crate) object: Option<&'a Value>,
    /// What is stored.
    pub(crate) old: Option<&'a Value>,
}

/// Labels of the Kubernetes domains that an agent may set on its own node.
const LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

const MIRROR: &str = "kubernetes.io/config.mirror";

/// What nodes may read and write at all; the rest is for [`restrict`] to say.
pub(super) fn authorize(node: &str, asked: &Attributes<'_>, store: &Store) -> Decision {
    let denied = |why: &str| Decision::Denied(why.to_owned());
    let if_so = |allowed: bool, why: &str| if allowed { Decision::Allowed } else { denied(why) };
    let reads = ["get", "list", "watch"].contains(&asked.verb);
    match (asked.group, asked.resource, asked.subresource) {
        ("", "nodes", "") => match asked.verb {
            "create" | "update" | "patch" => Decision::Allowed,
            "get" | "list" | "watch" if asked.name == node => Decision::Allowed,
            "get" | "list" | "watch" if asked.name.is_empty() => {
                denied(&format!("node '{node}' cannot read all nodes, only its own Node object"))
            }
            "get" | "list" | "watch" => {
                denied(&format!("node '{node}' cannot read '{}', only its own Node object", asked.name))
            }
            _ => denied(""),
        },
        ("", "nodes" | "pods", "status") => if_so(["update", "patch"].contains(&asked.verb), ""),
        ("", "pods", "") => match asked.verb {
            "create" | "delete" => Decision::Allowed,
            "list" | "watch" if selects(asked.field_selector, node) => Decision::Allowed,
            "list" | "watch" if asked.name.is_empty() => {
                denied("can only list/watch pods with spec.nodeName field selector")
            }
            "get" | "list" | "watch" => related(node, asked, store),
            _ => denied(""),
        },
        ("", "secrets" | "configmaps", "") if !reads => denied("can only read resources of this type"),
        ("", "secrets" | "configmaps", "") if asked.namespace.is_empty() => {
            denied("can only read namespaced object of this type")
        }
        ("", "secrets" | "configmaps", "") => related(node, asked, store),
        ("", "secrets" | "configmaps", _) if reads => denied("cannot read subresource"),
        ("", "serviceaccounts", "") if asked.verb == "get" => related(node, asked, store),
        ("", "serviceaccounts", "token") if asked.verb == "create" => related(node, asked, store),
        ("", "services", "") => if_so(reads, ""),
        ("" | "events.k8s.io", "events", "") => if_so(["create", "update", "patch"].contains(&asked.verb), ""),
        ("coordination.k8s.io", "leases", "") => {
            if !["get", "create", "update", "patch", "delete"].contains(&asked.verb) {
                denied("can only get, create, update, patch, or delete a node lease")
            } else if asked.namespace != "kube-node-lease" {
                denied("can only access leases in the \"kube-node-lease\" system namespace")
            } else {
                let own = asked.verb == "create" || asked.name == node;
                if_so(own, "can only access node lease with the same name as the requesting node")
            }
        }
        ("authentication.k8s.io", "tokenreviews", "") => if_so(asked.verb == "create", ""),
        ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews", "") => {
            if_so(asked.verb == "create", "")
        }
        _ => denied(""),
    }
}

/// Whether a field selector selects pods of this node only.
fn selects(selector: &str, node: &str) -> bool {
    FieldSelector::parse(selector).is_ok_and(|selector| selector.exact("spec.nodeName").as_deref() == Some(node))
}

/// Pods of the node, and what they refer to.
fn related(node: &str, asked: &Attributes<'_>, store: &Store) -> Decision {
    if asked.name.is_empty() {
        return Decision::Denied("No Object name found".to_owned());
    }
    let mut pods = store.list("pods", asked.namespace).map(|(_, pod)| pod);
    let mut of_node = pods.by_ref().filter(|pod| text(pod, &["spec", "nodeName"]) == node);
    let refers = of_node.any(|pod| match asked.resource {
        "pods" => text(pod, &["metadata", "name"]) == asked.name,
        "serviceaccounts" => text(pod, &["spec", "serviceAccountName"]) == asked.name,
        kind => references(pod, kind).contains(asked.name),
    });
    if refers {
        Decision::Allowed
    } else {
        Decision::Denied(format!("no relationship found between node '{node}' and this object"))
    }
}

/// Names of the secrets or config maps that a pod refers to.
fn references<'a>(pod: &'a Value, kind: &str) -> BTreeSet<&'a str> {
    let spec = &pod["spec"];
    let secret = kind == "secrets";
    let mut names = BTreeSet::new();
    let (volume, in_volume, key, all) = if secret {
        ("secret", "secretName", "secretKeyRef", "secretRef")
    } else {
        ("configMap", "name", "configMapKeyRef", "configMapRef")
    };
    for source in list(spec, &["volumes"]) {
        names.insert(text(source, &[volume, in_volume]));
        names.extend(list(source, &["projected", "sources"]).iter().map(|part| text(part, &[volume, "name"])));
    }
    for group in ["containers", "initContainers", "ephemeralContainers"] {
        for container in list(spec, &[group]) {
            names.extend(list(container, &["env"]).iter().map(|entry| text(entry, &["valueFrom", key, "name"])));
            names.extend(list(container, &["envFrom"]).iter().map(|entry| text(entry, &[all, "name"])));
        }
    }
    if secret {
        names.extend(list(spec, &["imagePullSecrets"]).iter().map(|entry| text(entry, &["name"])));
    }
    names.remove("");
    names
}

/// Refuses writes of a node to what is not its own.
pub(crate) fn restrict(asked: Asked<'_>, store: &Store) -> Result<(), Refusal> {
    let node = asked.node;
    let refuse = |why: String| Err(Refusal::forbidden(asked.resource, asked.shown, &why));
    let bound = |pod: Option<&Value>| pod.map(|pod| text(pod, &["spec", "nodeName"])).unwrap_or("") == node;
    match (asked.resource.name, asked.subresource, asked.verb) {
        ("pods", "", Verb::Create) => mirror_pod(asked, store),
        ("pods", "", Verb::Delete | Verb::DeleteCollection) if bound(asked.old) => Ok(()),
        ("pods", "", Verb::Delete | Verb::DeleteCollection) => {
            refuse(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
        }
        ("pods", "", _) => {
            refuse(format!("unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"))
        }
        ("pods", "status", _) if !bound(asked.old) => {
            refuse(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"))
        }
        ("pods", "status", _) => {
            let labels = |pod: Option<&Value>| pod.and_then(|pod| at(pod, &["metadata", "labels"])).cloned();
            if labels(asked.object) == labels(asked.old) {
                Ok(())
            } else {
                refuse(format!("node {node:?} cannot update labels through pod status"))
            }
        }
        ("pods", other, _) => {
            refuse(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
        }
        ("nodes", ..) => own_node(asked),
        ("leases", ..) if asked.namespace != "kube-node-lease" => {
            refuse("can only access leases in the \"kube-node-lease\" system namespace".to_owned())
        }
        ("leases", ..) if asked.name != node => {
            refuse("can only access node lease with the same name as the requesting node".to_owned())
        }
        _ => Ok(()),
    }
}

fn own_node(asked: Asked<'_>) -> Result<(), Refusal> {
    let node = asked.node;
    let refuse = |why: String| Err(Refusal::forbidden(asked.resource, asked.shown, &why));
    if asked.name != node {
        return refuse(format!("node {node:?} is not allowed to modify node {:?}", asked.name));
    }
    let Some(object) = asked.object else { return Ok(()) };
    if let Some(old) = asked.old {
        if list(object, &["spec", "taints"]) != list(old, &["spec", "taints"]) {
            return refuse(format!("node {node:?} is not allowed to modify taints"));
        }
        if list(object, &["metadata", "ownerReferences"]) != list(old, &["metadata", "ownerReferences"]) {
            return refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
        }
    }
    let labels = |node: Option<&Value>| node.and_then(|node| at(node, &["metadata", "labels"])).cloned();
    let (now, before) = (labels(Some(object)), labels(asked.old));
    let keys = |map: &Option<Value>| map.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    let (now, before) = (keys(&now), keys(&before));
    let changed: BTreeSet<&String> =
        now.keys().chain(before.keys()).filter(|key| now.get(*key) != before.get(*key)).collect();
    let forbidden: Vec<&str> = changed.into_iter().map(String::as_str).filter(|label| is_forbidden(label)).collect();
    if forbidden.is_empty() {
        return Ok(());
    }
    let names = forbidden.join(", ");
    if asked.old.is_some() {
        refuse(format!("is not allowed to modify labels: {names}"))
    } else {
        refuse(format!("node {node:?} is not allowed to set the following labels: {names}"))
    }
}

fn is_forbidden(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let within = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
    let kubernetes = within("kubernetes.io") || within("k8s.io");
    let allowed = LABELS.contains(&label) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    within("node-restriction.kubernetes.io") || (kubernetes && !allowed)
}

fn mirror_pod(asked: Asked<'_>, store: &Store) -> Result<(), Refusal> {
    let node = asked.node;
    let refuse = |why: String| Err(Refusal::forbidden(asked.resource, asked.shown, &why));
    let Some(pod) = asked.object else { return Ok(()) };
    if at(pod, &["metadata", "annotations", MIRROR]).is_none() {
        return refuse(format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"));
    }
    if text(pod, &["spec", "nodeName"]) != node {
        return refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owner = match list(pod, &["metadata", "ownerReferences"]) {
        [owner] => owner,
        [] => return refuse(format!("node {node:?} can only create pods with an owner reference set to itself")),
        _ => return refuse(format!("node {node:?} can only create pods with a single owner reference set to itself")),
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        return refuse(format!("node {node:?} can only create pods with a controller owner reference set to itself"));
    }
    if owner["blockOwnerDeletion"] == true {
        return refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let key = Key { resource: "nodes".into(), namespace: String::new(), name: node.to_owned() };
    let Some(object) = store.get(&key) else {
        return Err(Refusal::not_found(Qualified { group: "", name: "nodes" }, node));
    };
    let (expected, got) = (text(owner, &["uid"]), text(object, &["metadata", "uid"]));
    if expected != got {
        return refuse(format!("node {node} UID mismatch: expected {expected} got {got}"));
    }
    for kind in ["secrets", "configmaps"] {
        if !references(pod, kind).is_empty() {
            return refuse(format!("node {node:?} can not create pods that reference {kind}"));
        }
    }
    let volumes = list(pod, &["spec", "volumes"]);
    if !text(pod, &["spec", "serviceAccountName"]).is_empty() {
        return refuse(format!("node {node:?} can not create pods that reference serviceaccounts"));
    }
    if volumes.iter().any(|volume| at(volume, &["persistentVolumeClaim"]).is_some()) {
        return refuse(format!("node {node:?} can not create pods that reference persistentvolumeclaims"));
    }
    Ok(())
}
