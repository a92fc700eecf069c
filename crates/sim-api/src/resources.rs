//! Which resources the server has.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    kinds::{
        ConfigMaps, CoreEvents, Events, Kind, Leases, Namespaces, Nodes, Part, Pods, Secrets, ServiceAccounts, Services,
    },
    refusal::Qualified,
};

/// A resource.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
    pub(crate) strategy: Arc<dyn Kind>,
    /// Under which name its objects are stored: two groups share the events.
    pub(crate) stored: Arc<str>,
    /// The endpoints of an object besides itself.
    pub(crate) subresources: Vec<&'static str>,
    /// Where the real server keeps it in etcd; some messages show it.
    pub(crate) prefix: String,
}

/// All resources, by group and plural.
#[derive(Debug, Default)]
pub(crate) struct Registry(BTreeMap<(String, String), Arc<Resource>>);

// === impl Resource ===

impl Resource {
    fn built_in(
        path: &str,
        kind: &str,
        namespaced: bool,
        strategy: Arc<dyn Kind>,
        subresources: &[&'static str],
    ) -> Self {
        let (group_version, plural) = path.rsplit_once('/').unwrap_or(("v1", path));
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        let prefix = match plural {
            "nodes" => "minions",
            "services" => "services/specs",
            other => other,
        };
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced,
            strategy,
            stored: stored_as(if plural == "events" { "" } else { group }, plural),
            subresources: subresources.to_vec(),
            prefix: format!("/{prefix}"),
        }
    }

    /// Of a custom resource.
    pub(crate) fn custom(
        group: &str,
        version: &str,
        plural: &str,
        kind: &str,
        namespaced: bool,
        strategy: Arc<dyn Kind>,
        status: bool,
    ) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced,
            strategy,
            stored: stored_as(group, plural),
            subresources: if status { vec!["status"] } else { Vec::new() },
            prefix: format!("/{group}/{plural}"),
        }
    }

    /// As messages name the resource.
    pub(crate) fn qualified(&self) -> Qualified<'_> {
        Qualified { group: &self.group, name: &self.plural }
    }

    /// As messages name the kind.
    pub(crate) fn qualified_kind(&self) -> Qualified<'_> {
        Qualified { group: &self.group, name: &self.kind }
    }

    /// `v1`, `coordination.k8s.io/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The part of an object behind an endpoint.
    pub(crate) fn part(&self, subresource: &str) -> Option<Part> {
        match subresource {
            "" => Some(Part::Main),
            "status" if self.subresources.contains(&"status") => Some(Part::Status),
            "ephemeralcontainers" if self.subresources.contains(&"ephemeralcontainers") => Some(Part::Ephemeral),
            _ => None,
        }
    }

    /// An object as it is printed alone and in watches: with its type in front.
    pub(crate) fn printed(&self, object: &Value) -> Value {
        let mut printed = self.strategy.print(object);
        if let Some(map) = printed.as_object_mut() {
            map.insert("kind".to_owned(), self.kind.as_str().into());
            map.insert("apiVersion".to_owned(), self.api_version().into());
        }
        printed
    }

    /// An object as it is printed in lists.
    pub(crate) fn printed_in_list(&self, object: &Value) -> Value {
        if self.strategy.keeps_type() { self.printed(object) } else { self.strategy.print(object) }
    }

    /// Only the metadata of an object.
    pub(crate) fn printed_metadata(object: &Value) -> Value {
        json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": object["metadata"],
        })
    }
}

fn stored_as(group: &str, plural: &str) -> Arc<str> {
    Qualified { group, name: plural }.to_string().into()
}

// === impl Registry ===

impl Registry {
    /// The built-in resources.
    pub(crate) fn built_in() -> Self {
        let mut registry = Self::default();
        for resource in [
            Resource::built_in("v1/nodes", "Node", false, Arc::new(Nodes), &["status"]),
            Resource::built_in("v1/pods", "Pod", true, Arc::new(Pods), &["status", "ephemeralcontainers", "binding"]),
            Resource::built_in("v1/configmaps", "ConfigMap", true, Arc::new(ConfigMaps), &[]),
            Resource::built_in("v1/secrets", "Secret", true, Arc::new(Secrets), &[]),
            Resource::built_in("v1/services", "Service", true, Arc::new(Services), &["status"]),
            Resource::built_in("v1/serviceaccounts", "ServiceAccount", true, Arc::new(ServiceAccounts), &["token"]),
            Resource::built_in("v1/namespaces", "Namespace", false, Arc::new(Namespaces), &["status"]),
            Resource::built_in("v1/events", "Event", true, Arc::new(CoreEvents), &[]),
            Resource::built_in("events.k8s.io/v1/events", "Event", true, Arc::new(Events), &[]),
            Resource::built_in("coordination.k8s.io/v1/leases", "Lease", true, Arc::new(Leases), &[]),
        ] {
            registry.install(resource);
        }
        registry
    }

    pub(crate) fn install(&mut self, resource: Resource) {
        self.0.insert((resource.group.clone(), resource.plural.clone()), Arc::new(resource));
    }

    pub(crate) fn remove(&mut self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        self.0.remove(&(group.to_owned(), plural.to_owned()))
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let found = self.0.get(&(group.to_owned(), plural.to_owned()));
        found.filter(|resource| resource.version == version)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.0.values()
    }
}
