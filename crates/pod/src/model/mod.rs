//! The validated pod: what the rest of keelet works with.
//!
//! Every default is resolved and every reference that can be checked is valid, so no later code checks again. What the
//! lifecycle rules never read (volumes, environment, security contexts, resources) stays in [`Pod::source`], in the
//! API's own form, for the runtime side.

mod container;
mod probe;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1;

pub use self::{
    container::{Action, Container, ExitCodes, Hook, Operator, Port, PullPolicy, RestartPolicy, Role, Rule},
    probe::{GrpcProbe, Handler, HttpGet, HttpProtocol, PortError, PortRef, Probe, ProbeKind, Scheme, TcpSocket},
};

/// The author of a pod, which decides how far the pod may reach into the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Root of this node: in a manifest file, or with `keelet run`. Directories of the node may be images.
    Node,
    /// A user of an API server.
    Cluster,
}

/// A pod that passed validation, with every default resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// `metadata.namespace`; `default` if the manifest has none.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; derived from the manifest's content for pods that have none from an API server.
    pub uid: String,
    /// `metadata.generation`, echoed as `observedGeneration`.
    pub generation: Option<i64>,
    /// The author of the pod. Every constructor sets it, and a kept copy keeps it.
    pub trust: Trust,
    /// The pod-level restart policy. Each [`Container::restart_policy`] already has it folded in.
    pub restart_policy: RestartPolicy,
    /// `spec.terminationGracePeriodSeconds`.
    pub termination_grace: Duration,
    /// How long a restart of all containers lets them react to SIGTERM: the annotation
    /// `keelet.dev/restart-all-grace-period-seconds`, zero (SIGKILL at once) by default.
    pub restart_all_grace: Duration,
    /// Whether startup and readiness probes that have not passed yet are also attempted between their scheduled attempts: the annotation
    /// `keelet.dev/eager-probes`, true by default.
    pub eager_probes: bool,
    /// Whether the pod uses the node's network namespace.
    pub host_network: bool,
    /// `spec.readinessGates[].conditionType`, in order.
    pub readiness_gates: Vec<String>,
    /// Ordinary init containers and sidecars, in spec order.
    pub init_containers: Vec<Container>,
    /// Regular containers, in spec order.
    pub containers: Vec<Container>,
    /// Ephemeral containers, in spec order.
    pub ephemeral_containers: Vec<Container>,
    /// The pod in the API's form, defaults filled in and aliases rewritten.
    pub source: Arc<v1::Pod>,
}

// === impl Pod ===

impl Pod {
    /// The same pod under another UID.
    #[must_use]
    pub fn with_uid(mut self, uid: &str) -> Self {
        Arc::make_mut(&mut self.source).metadata.uid = Some(uid.to_owned());
        uid.clone_into(&mut self.uid);
        self
    }

    /// Init containers and sidecars, then regular, then ephemeral containers.
    pub fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.init_containers.iter().chain(&self.containers).chain(&self.ephemeral_containers)
    }

    /// Init containers, sidecars and regular containers: all but the ephemeral ones.
    pub fn lasting_containers(&self) -> impl DoubleEndedIterator<Item = &Container> {
        self.init_containers.iter().chain(&self.containers)
    }

    /// The container of that name, of whatever kind.
    pub fn container(&self, name: &str) -> Option<&Container> {
        self.all_containers().find(|container| container.name == name)
    }

    /// Whether some container asks for all containers to be restarted on some exit code.
    pub fn has_restart_all_rule(&self) -> bool {
        self.lasting_containers().any(|c| c.rules.iter().any(|rule| rule.action == Action::RestartAllContainers))
    }

    /// Whether the pod has a sidecar, that is an init container with restart policy Always.
    pub fn has_sidecar(&self) -> bool {
        self.init_containers.iter().any(|c| c.role == Role::Sidecar)
    }
}
