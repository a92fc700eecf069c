//! Authentication and authorization: identities, access rules as RBAC has them, what nodes may do, and tokens.

mod node;
mod rbac;

use std::collections::BTreeSet;

pub(crate) use self::node::{Asked, restrict};
pub use self::rbac::Grant;
use crate::{
    refusal::{Qualified, Refusal},
    request::Target,
    store::Store,
};

/// The identity of a client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The user.
    pub user: String,
    /// Its groups.
    pub groups: BTreeSet<String>,
}

/// All rules.
#[derive(Debug, Default)]
pub(crate) struct Access {
    pub(crate) grants: Vec<Grant>,
}

/// What is asked for, in the words of access rules.
#[derive(Clone, Debug)]
pub(crate) struct Attributes<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The field selector of a list or watch.
    pub(crate) field_selector: &'a str,
}

/// Whether something is allowed; if not, why, if that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Allowed,
    Denied(String),
}

// === impl Identity ===

impl Identity {
    /// A user in the group of all authenticated users, and in these.
    pub fn user(name: &str, groups: &[&str]) -> Self {
        let mut groups: BTreeSet<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        groups.insert("system:authenticated".to_owned());
        Self { user: name.to_owned(), groups }
    }

    /// May do everything.
    pub fn admin() -> Self {
        Self::user("kubernetes-admin", &["system:masters"])
    }

    /// The agent of a node.
    pub fn node(name: &str) -> Self {
        Self::user(&format!("system:node:{name}"), &["system:nodes"])
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        Self::user(&format!("system:serviceaccount:{namespace}:{name}"), &groups)
    }

    /// The node whose agent this is.
    pub(crate) fn node_name(&self) -> Option<&str> {
        let name = self.user.strip_prefix("system:node:")?;
        self.groups.contains("system:nodes").then_some(name)
    }
}

// === impl Attributes ===

impl<'a> Attributes<'a> {
    pub(crate) fn of(target: &'a Target, field_selector: &'a str) -> Self {
        Self {
            verb: target.verb.as_str(),
            group: &target.group,
            resource: &target.resource,
            subresource: &target.subresource,
            namespace: &target.namespace,
            name: &target.name,
            field_selector,
        }
    }

    /// `pods`, `pods/status`.
    pub(crate) fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

// === impl Access ===

impl Access {
    /// Whether rules or the authorizer of nodes allow it.
    pub(crate) fn decide(&self, identity: &Identity, asked: &Attributes<'_>, store: &Store) -> Decision {
        if identity.groups.contains("system:masters") || self.grants.iter().any(|grant| grant.allows(identity, asked)) {
            return Decision::Allowed;
        }
        match identity.node_name() {
            Some(node) => node::authorize(node, asked, store),
            None => Decision::Denied(String::new()),
        }
    }

    /// Refuses what is not allowed, in the real server's words.
    pub(crate) fn check(&self, identity: &Identity, asked: &Attributes<'_>, store: &Store) -> Result<(), Refusal> {
        let Decision::Denied(why) = self.decide(identity, asked, store) else { return Ok(()) };
        let scope = match asked.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let mut message = format!(
            "User {:?} cannot {} resource {:?} in API group {:?} {scope}",
            identity.user,
            asked.verb,
            asked.full_resource(),
            asked.group
        );
        if !why.is_empty() {
            // The authorizer of nodes is the only one that says why.
            message = format!("{message}: node: {why}");
        }
        Err(Refusal::forbidden(Qualified { group: asked.group, name: asked.resource }, asked.name, &message))
    }
}
