//! Access rules, as roles and their bindings give them.

use serde_json::Value;

use super::{Attributes, Identity};
use crate::json::{list, text};

/// One rule for one user, group or service account. An empty list means none, `*` means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    user: Option<String>,
    group: Option<String>,
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    namespace: Option<String>,
}

// === impl Grant ===

impl Grant {
    /// A rule for a user.
    pub fn to_user(user: &str) -> Self {
        Self { user: Some(user.to_owned()), ..Self::default() }
    }

    /// A rule for a group.
    pub fn to_group(group: &str) -> Self {
        Self { group: Some(group.to_owned()), ..Self::default() }
    }

    /// It may do this.
    pub fn verbs(mut self, verbs: &[&str]) -> Self {
        self.verbs = owned(verbs);
        self
    }

    /// With these resources of an API group; `nodes/status` is a resource of its own.
    pub fn on(mut self, group: &str, resources: &[&str]) -> Self {
        self.groups = vec![group.to_owned()];
        self.resources = owned(resources);
        self
    }

    /// Only with objects of these names.
    pub fn named(mut self, names: &[&str]) -> Self {
        self.names = owned(names);
        self
    }

    /// Only in this namespace.
    pub fn within(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Reads roles and bindings, as a deployment has them; other objects are passed over.
    pub fn load(objects: &[Value]) -> Vec<Self> {
        let mut grants = Vec::new();
        for binding in objects.iter().filter(|object| text(object, &["kind"]).ends_with("RoleBinding")) {
            let namespace = text(binding, &["metadata", "namespace"]);
            let of_cluster = binding["kind"] == "ClusterRoleBinding";
            let (kind, name) = (text(binding, &["roleRef", "kind"]), text(binding, &["roleRef", "name"]));
            let is_role = |object: &&Value| {
                let here = kind == "ClusterRole" || text(object, &["metadata", "namespace"]) == namespace;
                object["kind"] == kind && text(object, &["metadata", "name"]) == name && here
            };
            for rule in objects.iter().filter(is_role).flat_map(|role| list(role, &["rules"])) {
                for subject in list(binding, &["subjects"]) {
                    grants.extend(Self::of_subject(subject).map(|grant| Self {
                        verbs: texts(rule, "verbs"),
                        groups: texts(rule, "apiGroups"),
                        resources: texts(rule, "resources"),
                        names: texts(rule, "resourceNames"),
                        namespace: (!of_cluster).then(|| namespace.to_owned()),
                        ..grant
                    }));
                }
            }
        }
        grants
    }

    fn of_subject(subject: &Value) -> Option<Self> {
        let name = text(subject, &["name"]);
        match text(subject, &["kind"]) {
            "User" => Some(Self::to_user(name)),
            "Group" => Some(Self::to_group(name)),
            "ServiceAccount" => {
                Some(Self::to_user(&Identity::service_account(text(subject, &["namespace"]), name).user))
            }
            _ => None,
        }
    }

    pub(super) fn allows(&self, identity: &Identity, asked: &Attributes<'_>) -> bool {
        let is_meant = self.user.as_ref().is_some_and(|user| *user == identity.user)
            || self.group.as_ref().is_some_and(|group| identity.groups.contains(group));
        let has = |list: &[String], value: &str| list.iter().any(|item| item == "*" || item == value);
        let full = asked.full_resource();
        let any_of_subresource = format!("*/{}", asked.subresource);
        is_meant
            && has(&self.verbs, asked.verb)
            && has(&self.groups, asked.group)
            && (has(&self.resources, &full)
                || (!asked.subresource.is_empty() && self.resources.contains(&any_of_subresource)))
            && (self.names.is_empty() || (!asked.name.is_empty() && self.names.iter().any(|name| name == asked.name)))
            && self.namespace.as_ref().is_none_or(|namespace| namespace == asked.namespace)
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    list(value, &[key]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked<'a>(
        verb: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> Attributes<'a> {
        Attributes { verb, group: "", resource, subresource, namespace, name, field_selector: "" }
    }

    #[test]
    fn rules_allow_exactly_what_they_say() {
        let grant = Grant::to_user("c").verbs(&["get", "patch"]).on("", &["nodes", "nodes/status"]);
        let c = Identity::user("c", &[]);
        assert!(grant.allows(&c, &asked("patch", "nodes", "", "", "n")));
        assert!(grant.allows(&c, &asked("patch", "nodes", "status", "", "n")));
        assert!(!grant.allows(&c, &asked("delete", "nodes", "", "", "n")));
        assert!(!grant.allows(&c, &asked("get", "pods", "", "a", "p")));
        assert!(!grant.allows(&Identity::user("d", &[]), &asked("get", "nodes", "", "", "n")));
        let grant = Grant::to_group("g").verbs(&["*"]).on("", &["secrets"]).named(&["s"]).within("a");
        let g = Identity::user("x", &["g"]);
        assert!(grant.allows(&g, &asked("get", "secrets", "", "a", "s")));
        assert!(!grant.allows(&g, &asked("get", "secrets", "", "a", "t")));
        assert!(!grant.allows(&g, &asked("list", "secrets", "", "a", "")));
        assert!(!grant.allows(&g, &asked("get", "secrets", "", "b", "s")));
    }

    #[test]
    fn roles_and_bindings_become_rules() {
        let objects = [
            json!({ "kind": "ClusterRole", "metadata": { "name": "r" },
                "rules": [{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] }] }),
            json!({ "kind": "Role", "metadata": { "name": "l", "namespace": "a" },
                "rules": [{ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"], "resourceNames": ["x"] }] }),
            json!({ "kind": "ClusterRoleBinding", "roleRef": { "kind": "ClusterRole", "name": "r" },
                "subjects": [{ "kind": "ServiceAccount", "namespace": "a", "name": "c" }] }),
            json!({ "kind": "RoleBinding", "metadata": { "namespace": "a" }, "roleRef": { "kind": "Role", "name": "l" },
                "subjects": [{ "kind": "ServiceAccount", "namespace": "a", "name": "c" }] }),
            json!({ "kind": "Deployment" }),
        ];
        let user = "system:serviceaccount:a:c";
        let expected = vec![
            Grant::to_user(user).verbs(&["get"]).on("", &["nodes"]),
            Grant::to_user(user).verbs(&["update"]).on("coordination.k8s.io", &["leases"]).named(&["x"]).within("a"),
        ];
        assert_eq!(Grant::load(&objects), expected);
    }
}
