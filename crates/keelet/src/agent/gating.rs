//! Readiness gates of this node: what flags and the configuration file say together.

use std::collections::BTreeMap;

use keelet_agent::{
    config::{NodeConfig, built_in_conditions, gate_warnings},
    node,
};
use keelet_lifecycle::node::NodeProbe;
use keelet_pod::{Features, Switch, Taint, gate};

use super::Args;

/// The feature gate of KEP-5233.
const FEATURE: &str = "NodeReadinessGates";

/// What this node does about readiness gates.
#[derive(Debug)]
pub(super) struct GateSettings {
    /// Taints that the node registers with.
    pub(super) taints: Vec<Taint>,
    /// Probes of components of the node.
    pub(super) probes: Vec<NodeProbe>,
    /// Gates that hold pods back here, and conditions that they name.
    pub(super) of_node: node::Gating,
    /// The feature gates of the file. A gate or a probe implies the feature, unless it is switched off.
    pub(super) feature_gates: BTreeMap<String, bool>,
}

// === impl GateSettings ===

impl GateSettings {
    pub(super) fn of(args: &Args, config: &NodeConfig) -> Self {
        let taints = args.cluster.taints(&config.taints);
        let built_in = built_in_conditions(&taints, &config.node_probes);
        let of_node = node::Gating { gates: args.cluster.own_gates(&taints), built_in };
        let mut feature_gates = config.feature_gates.clone();
        let is_used = !config.node_probes.is_empty() || taints.iter().any(|taint| gate::of_taint(taint).is_some());
        if is_used {
            feature_gates.entry(FEATURE.to_owned()).or_insert(true);
        }
        Self { taints, probes: config.node_probes.clone(), of_node, feature_gates }
    }

    /// The same, or nothing of it if the feature is off. What has to be said about it goes to the log.
    pub(super) fn unless_off(self, features: &Features) -> Self {
        if features.node_readiness_gates == Switch::On {
            for warning in gate_warnings(&self.taints, &self.probes) {
                tracing::warn!(%warning, "readiness gate warning");
            }
            return self;
        }
        if !self.probes.is_empty() || !self.of_node.gates.is_empty() {
            let (probes, gates) = (self.probes.len(), self.of_node.gates.len());
            tracing::warn!(
                feature_gate = FEATURE,
                probes,
                gates,
                "feature gate is off: no component of the node is probed, and no pod is held back"
            );
        }
        Self { probes: Vec::new(), of_node: node::Gating::default(), ..self }
    }
}
