//! The entry point: the node's settings, and the order in which a plan is made.

use std::time::Duration;

use keelet_pod::{AgentRestart, Features, Pod, Switch};

use crate::{
    absorb,
    draft::Draft,
    evidence::Evidence,
    observed::Observed,
    order,
    plan::Plan,
    restart,
    restart::{BackoffLimits, RestartAllRule},
    status,
    sysctls::Sysctls,
    time::Now,
};

/// The node's settings that influence decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether an agent start keeps or resets started and ready.
    pub agent_restart: AgentRestart,
    /// Whether rules with the action `RestartAllContainers` count.
    pub restart_all: RestartAllRule,
    /// Backoff of crashing containers and of restarts of all containers.
    pub crash_backoff: BackoffLimits,
    /// Backoff of failing image pulls.
    pub pull_backoff: BackoffLimits,
    /// Kernel parameters that pods may set.
    pub sysctls: Sysctls,
    /// Whether startup and readiness probes that have not passed yet are also attempted between their scheduled attempts.
    pub eager_probes: bool,
    /// On a node without a control plane, readiness must be probed again after the agent was down for longer than this.
    pub node_monitor_grace: Duration,
}

// === impl Rules ===

impl Default for Rules {
    fn default() -> Self {
        Self {
            agent_restart: AgentRestart::KeepStatus,
            restart_all: RestartAllRule::Honoured,
            crash_backoff: BackoffLimits::DEFAULT,
            pull_backoff: BackoffLimits::DEFAULT,
            sysctls: Sysctls::default(),
            eager_probes: true,
            node_monitor_grace: Duration::from_secs(50),
        }
    }
}

impl Rules {
    /// The rules of a node with these feature gates, for the agent and for its simulation alike.
    pub fn of(features: &Features) -> Self {
        Self {
            agent_restart: features.agent_restart,
            restart_all: match features.restart_all {
                Switch::On => RestartAllRule::Honoured,
                Switch::Off => RestartAllRule::Ignored,
            },
            crash_backoff: BackoffLimits::of(features),
            ..Self::default()
        }
    }

    /// What the pod needs next, what its status is, and why.
    ///
    /// Pure and total: the same inputs give the same plan, and every input gives one. Planning again on the planned
    /// state, with the planned operations running, starts nothing new.
    pub fn plan(&self, pod: &Pod, observed: &Observed, evidence: &Evidence, now: Now) -> Plan {
        let mut draft = Draft::new(self, pod, observed, evidence, now);
        absorb::agent_start(&mut draft);
        absorb::results(&mut draft);
        absorb::instances(&mut draft);
        order::admit(&mut draft);
        order::end_if_asked(&mut draft);
        order::end_if_final(&mut draft);
        order::hold(&mut draft);
        restart::notice(&mut draft);
        if !restart::clean_up(&mut draft) {
            order::proceed(&mut draft);
        }
        order::probes(&mut draft);
        restart::finish(&mut draft);
        status::conclude(draft)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What tests and simulations plan with by default is what a node plans with whose feature gates are all at their defaults.
    #[test]
    fn a_node_with_default_gates_has_the_default_rules() {
        assert_eq!(Rules::of(&Features::default()), Rules::default());
        let off = Features { restart_all: Switch::Off, ..Features::default() };
        assert_eq!(Rules::of(&off).restart_all, RestartAllRule::Ignored);
    }
}
