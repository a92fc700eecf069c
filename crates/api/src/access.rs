//! What the controller has to be allowed to do, and a clear word where it is not.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Api, ApiError};

/// Something that the controller does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The verbs.
    pub verbs: Vec<&'static str>,
    /// The group of the API; empty for the core.
    pub group: &'static str,
    /// The resource, `nodes` or `nodereadinessrules/status`.
    pub resource: &'static str,
    /// The namespace, of things in namespaces.
    pub namespace: Option<String>,
    /// The only object that it is about.
    pub name: Option<String>,
}

/// What is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Denied(pub Vec<Permission>);

#[derive(Debug, Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReviewStatus {
    allowed: bool,
}

/// Asks the API server which of these are not allowed: by verb, as the rules that are missing.
pub async fn check(api: &Api, permissions: &[Permission]) -> Result<Vec<Permission>, ApiError> {
    let mut denied = Vec::new();
    for permission in permissions {
        let mut verbs = Vec::new();
        for verb in &permission.verbs {
            let review = permission.review(verb);
            let answer = api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await?;
            // A proxy may answer with a page. That is no refusal.
            let review: Review = serde_json::from_slice(&answer).map_err(super::no_answer)?;
            if !review.status.allowed {
                verbs.push(*verb);
            }
        }
        if !verbs.is_empty() {
            denied.push(Permission { verbs, ..permission.clone() });
        }
    }
    Ok(denied)
}

// === impl Permission ===

impl Permission {
    /// Something about objects without a namespace.
    pub fn of_cluster(verbs: &[&'static str], group: &'static str, resource: &'static str) -> Self {
        Self { verbs: verbs.to_vec(), group, resource, namespace: None, name: None }
    }

    /// Something in a namespace.
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    /// Something about one object.
    pub fn of_object(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    fn review(&self, verb: &str) -> Value {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": self.group, "resource": resource, "subresource": subresource,
                "namespace": self.namespace.as_deref().unwrap_or_default(), "name": self.name.as_deref().unwrap_or_default(),
            }},
        })
    }

    /// The kind of role that its rule belongs to.
    pub fn role(&self) -> &'static str {
        if self.namespace.is_some() { "Role" } else { "ClusterRole" }
    }

    /// The rule of a role that grants it, as YAML in one line.
    pub fn rule(&self) -> String {
        let mut rule = format!("{{apiGroups: [\"{}\"], resources: [{}]", self.group, self.resource);
        if let Some(name) = &self.name {
            rule.push_str(&format!(", resourceNames: [{name}]"));
        }
        format!("{rule}, verbs: [{}]}}", self.verbs.join(", "))
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verbs.join(", "), self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        Ok(())
    }
}

// === impl Denied ===

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not allowed:")?;
        for permission in &self.0 {
            let (role, rule) = (permission.role(), permission.rule());
            write!(f, "\n  {permission}\n    granted by this rule of a {role}: {rule}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CTRL-18
    #[test]
    fn a_missing_permission_names_verb_resource_and_rule() {
        let nodes = Permission::of_cluster(&["patch"], "", "nodes");
        let lease = Permission::of_cluster(&["get", "patch"], "coordination.k8s.io", "leases");
        let lease = lease.in_namespace("kube-system").of_object("keelet-gates");
        assert_eq!(
            Denied(vec![nodes, lease]).to_string(),
            "not allowed:\n  patch nodes\n    granted by this rule of a ClusterRole: {apiGroups: [\"\"], resources: [nodes], verbs: [patch]}\n  \
             get, patch leases.coordination.k8s.io keelet-gates in namespace kube-system\n    granted by this rule of a Role: \
             {apiGroups: [\"coordination.k8s.io\"], resources: [leases], resourceNames: [keelet-gates], verbs: [get, patch]}"
        );
    }

    #[test]
    fn subresources_are_asked_about_as_such() {
        let status = Permission::of_cluster(&["patch"], "readiness.node.x-k8s.io", "nodereadinessrules/status");
        let attributes = &status.review("patch")["spec"]["resourceAttributes"];
        assert_eq!(
            (&attributes["resource"], &attributes["subresource"]),
            (&json!("nodereadinessrules"), &json!("status"))
        );
    }
}
