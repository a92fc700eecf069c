//! `keelet agent --kubeconfig`: what makes the agent a node of a cluster.

use std::path::PathBuf;

use anyhow::Result;
use clap::{ArgAction, Args as ClapArgs};
use keelet_agent::node::Facts;
use keelet_assembly::{ClusterThread, Paths};
use keelet_cluster::{
    Registration, Settings,
    node::{BadLabel, parse_label},
};
use keelet_pod::{Features, Switch, Taint, gate};

/// The feature that a scheduler looks for before it assigns a pod with such a rule to a node (CLU-25).
const RESTART_ALL: &str = "RestartAllContainersOnContainerExits";

/// The flags of a node of a cluster.
#[derive(Debug, ClapArgs)]
#[group(skip)]
pub(super) struct Args {
    /// Kubeconfig of this node: the agent joins that cluster and runs the pods that are assigned to it
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Create the Node object if it does not exist
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, requires = "kubeconfig")]
    register_node: bool,
    /// Taints of a new Node object, KEY=VALUE:EFFECT or KEY:EFFECT, separated by commas; an existing one keeps its own.
    /// Without a cluster, those that are readiness gates hold manifests back until their conditions are True
    #[arg(long, value_name = "TAINTS", value_delimiter = ',')]
    register_with_taints: Vec<Taint>,
    /// Labels of the Node object, KEY=VALUE, separated by commas
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = label, requires = "kubeconfig")]
    node_labels: Vec<(String, String)>,
    /// Taken by the kubelet; refused with the reason, not as an unknown flag
    #[arg(long, hide = true, value_parser = no_bootstrap)]
    bootstrap_kubeconfig: Option<String>,
}

fn label(text: &str) -> Result<(String, String), BadLabel> {
    parse_label(text)
}

fn no_bootstrap(_: &str) -> Result<String, &'static str> {
    Err("keelet cannot request a certificate yet; give a --kubeconfig with one for system:node:<name>")
}

// === impl Args ===

impl Args {
    /// The taints that the node registers with: the flag's, else the file's.
    pub(super) fn taints(&self, of_file: &[Taint]) -> Vec<Taint> {
        if self.register_with_taints.is_empty() { of_file.to_vec() } else { self.register_with_taints.clone() }
    }

    /// The readiness gates that hold pods back on this node. In a cluster the scheduler does that (GATE-19).
    pub(super) fn own_gates(&self, taints: &[Taint]) -> Vec<Taint> {
        let is_gate = |taint: &&Taint| gate::of_taint(taint).is_some();
        taints.iter().filter(|_| self.kubeconfig.is_none()).filter(is_gate).cloned().collect()
    }

    /// Prepares the connection to the API server, if there is to be one. Nothing waits for the API server.
    pub(super) async fn connect(
        &self,
        facts: &Facts,
        features: &Features,
        taints: &[Taint],
        paths: &Paths,
    ) -> Result<Option<ClusterThread>> {
        let Some(kubeconfig) = &self.kubeconfig else { return Ok(None) };
        let declared = (features.restart_all == Switch::On).then(|| RESTART_ALL.to_owned());
        let settings = Settings {
            name: facts.for_pods.name.clone(),
            address: facts.for_pods.address.clone(),
            registration: self.register_node.then(|| Registration {
                labels: self.node_labels.iter().cloned().collect(),
                taints: taints.to_vec(),
                unschedulable: false,
                features: declared.into_iter().collect(),
            }),
        };
        let memory = paths.cluster_memory();
        Ok(Some(ClusterThread::start(kubeconfig.clone(), settings, features.clone(), memory).await?))
    }
}
