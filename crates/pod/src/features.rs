//! Feature switches: `--feature-gates` and the config file's map, resolved once into enums.
//!
//! The text is read once, at start-up. All other crates get [`Features`] and know no feature gate by name.

use std::collections::BTreeMap;

use crate::tree::suggestion;

/// The feature gate of KEP-4781.
const RESET_STATUS: &str = "ChangeContainerStatusOnKubeletRestart";
/// An alias from an older text of KEP-4781, with the same polarity.
const RESET_STATUS_ALIAS: &str = "PodUnreadyOnKubeletRestart";
const RESTART_RULES: &str = "ContainerRestartRules";
const RESTART_ALL: &str = "RestartAllContainersOnContainerExits";

/// What the node does and does not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// What an agent restart does to container status.
    pub agent_restart: AgentRestart,
    /// Restart policy and exit-code rules of single containers.
    pub restart_rules: Switch,
    /// The rule action `RestartAllContainers`.
    pub restart_all: Switch,
    /// A node-wide cap on the crash backoff.
    pub crash_loop_max: Switch,
    /// A crash backoff that starts at one second.
    pub reduced_backoff: Switch,
    /// Node readiness gates.
    pub node_readiness_gates: Switch,
    /// `httpGet.protocol: HTTP2`.
    pub h2c_probes: Switch,
    /// `grpc.mode: TLS`.
    pub grpc_tls_probes: Switch,
    /// `lifecycle.stopSignal`.
    pub stop_signals: Switch,
}

/// What an agent restart does to container status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentRestart {
    /// Nothing: status changes with evidence only.
    #[default]
    KeepStatus,
    /// The legacy behaviour: started and ready are false until probed again.
    ResetStatus,
}

/// A switch of which there are two positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The feature is available.
    On,
    /// The feature is not available.
    Off,
}

/// The resolved features, with warnings about the feature gates that were set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The features.
    pub features: Features,
    /// Feature gates that have no effect, or another effect than the user asked for.
    pub warnings: Vec<FeatureGateWarning>,
}

/// Why feature gates cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureGateError {
    /// An entry of the flag is neither `Name=true` nor `Name=false`.
    #[error("feature gate {entry:?}: must be Name=true or Name=false")]
    Malformed {
        /// The entry.
        entry: String,
    },
    /// The two names of one feature gate disagree.
    #[error(
        "feature gates {RESET_STATUS}={canonical} and {RESET_STATUS_ALIAS}={alias}: two names of the same gate, \
             set one of them or both to the same value"
    )]
    Contradiction {
        /// The value under the feature gate's own name.
        canonical: bool,
        /// The value under the alias.
        alias: bool,
    },
    /// A feature gate is on, one that it builds on is off.
    #[error("feature gate {gate}=true needs {needs}, which is set to false")]
    Unmet {
        /// The feature gate that is on.
        gate: &'static str,
        /// The feature gate that is off.
        needs: &'static str,
    },
}

/// A warning about a feature gate that was set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureGateWarning {
    /// keelet does not know the feature gate.
    #[error("unknown feature gate {gate}: ignored{}{advice}", if advice.is_empty() { "" } else { "; " })]
    Unknown {
        /// Its name.
        gate: String,
        /// A suggestion of a feature gate with a similar name, possibly empty.
        advice: String,
    },
    /// The feature is always on.
    #[error("feature gate {gate}=false: ignored, the feature is always on")]
    Locked {
        /// Its name.
        gate: &'static str,
    },
    /// keelet does not implement the feature.
    #[error("feature gate {gate}=true: ignored, keelet does not have this feature")]
    Missing {
        /// Its name.
        gate: &'static str,
    },
    /// The feature gate was set by its alias.
    #[error("feature gate {RESET_STATUS_ALIAS} is another name of {RESET_STATUS}: use that one")]
    Alias,
    /// A feature gate is off because the one that it builds on is.
    #[error("feature gate {gate} is off because {needs} is")]
    Follows {
        /// The feature gate that goes off.
        gate: &'static str,
        /// The feature gate that was set off.
        needs: &'static str,
    },
}

/// Where a feature stands: its default, and whether a feature gate changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Always on.
    Locked,
    /// On unless switched off.
    Default,
    /// Off unless switched on.
    OptIn,
    /// A feature gate of Kubernetes whose feature keelet does not implement.
    Missing,
}

/// Every feature gate by name. H2CContainerProbe and GRPCContainerProbeTLS are alpha
/// upstream; keelet has them from the start.
const GATES: [(&str, Stage); 18] = [
    (RESET_STATUS, Stage::OptIn),
    (RESET_STATUS_ALIAS, Stage::OptIn),
    (RESTART_RULES, Stage::Default),
    (RESTART_ALL, Stage::Default),
    ("NodeDeclaredFeatures", Stage::Locked),
    ("PodReadyToStartContainersCondition", Stage::Locked),
    ("PodObservedGenerationTracking", Stage::Locked),
    ("KubeletCrashLoopBackOffMax", Stage::Default),
    ("ReduceDefaultCrashLoopBackOffDecay", Stage::OptIn),
    ("PLEGOnDemandRelist", Stage::Locked),
    ("ExtendWebSocketsToKubelet", Stage::Missing),
    ("ExecProbeTimeout", Stage::Locked),
    ("H2CContainerProbe", Stage::Default),
    ("GRPCContainerProbeTLS", Stage::Default),
    ("ContainerStopSignals", Stage::OptIn),
    ("SidecarsRestartableDuringPodTermination", Stage::Missing),
    ("NodeReadinessGates", Stage::OptIn),
    ("StartupProbeEnabled", Stage::Locked),
];

// === impl Features ===

impl Features {
    /// Resolves the config file's map and the flag's text, `A=true,B=false`. The flag wins.
    pub fn resolve(flag: &str, config: &BTreeMap<String, bool>) -> Result<Resolution, Vec<FeatureGateError>> {
        let mut errors = Vec::new();
        let mut set = config.clone();
        for entry in flag.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry.split_once('=').map(|(gate, value)| (gate.trim(), boolean(value.trim()))) {
                Some((gate, Some(value))) if !gate.is_empty() => {
                    set.insert(gate.to_owned(), value);
                }
                _ => errors.push(FeatureGateError::Malformed { entry: entry.to_owned() }),
            }
        }
        if let (Some(&canonical), Some(&alias)) = (set.get(RESET_STATUS), set.get(RESET_STATUS_ALIAS))
            && canonical != alias
        {
            errors.push(FeatureGateError::Contradiction { canonical, alias });
        }
        let rules_off = set.get(RESTART_RULES) == Some(&false);
        if rules_off && set.get(RESTART_ALL) == Some(&true) {
            errors.push(FeatureGateError::Unmet { gate: RESTART_ALL, needs: RESTART_RULES });
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut warnings: Vec<_> = set.iter().filter_map(|(gate, value)| remark(gate, *value)).collect();
        if rules_off && !set.contains_key(RESTART_ALL) {
            warnings.push(FeatureGateWarning::Follows { gate: RESTART_ALL, needs: RESTART_RULES });
            set.insert(RESTART_ALL.to_owned(), false);
        }
        Ok(Resolution { features: Self::from_set(&set), warnings })
    }

    fn from_set(set: &BTreeMap<String, bool>) -> Self {
        let switch = |gate: &str| {
            let default = GATES.iter().any(|(name, stage)| *name == gate && *stage == Stage::Default);
            if set.get(gate).copied().unwrap_or(default) { Switch::On } else { Switch::Off }
        };
        let reset = [RESET_STATUS, RESET_STATUS_ALIAS].iter().any(|gate| switch(gate) == Switch::On);
        Self {
            agent_restart: if reset { AgentRestart::ResetStatus } else { AgentRestart::KeepStatus },
            restart_rules: switch(RESTART_RULES),
            restart_all: switch(RESTART_ALL),
            crash_loop_max: switch("KubeletCrashLoopBackOffMax"),
            reduced_backoff: switch("ReduceDefaultCrashLoopBackOffDecay"),
            node_readiness_gates: switch("NodeReadinessGates"),
            h2c_probes: switch("H2CContainerProbe"),
            grpc_tls_probes: switch("GRPCContainerProbeTLS"),
            stop_signals: switch("ContainerStopSignals"),
        }
    }
}

/// What no feature gate changes.
impl Default for Features {
    fn default() -> Self {
        Self::from_set(&BTreeMap::new())
    }
}

// === impl Switch ===

impl Switch {
    /// Whether the feature is there.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// The warning about a feature gate that was set, if there is one.
fn remark(gate: &str, value: bool) -> Option<FeatureGateWarning> {
    let Some((gate, stage)) = GATES.into_iter().find(|(name, _)| *name == gate) else {
        let names = GATES.map(|(name, _)| name);
        return Some(FeatureGateWarning::Unknown { gate: gate.to_owned(), advice: suggestion(gate, &names) });
    };
    match (stage, value) {
        (Stage::Locked, false) => Some(FeatureGateWarning::Locked { gate }),
        (Stage::Missing, true) => Some(FeatureGateWarning::Missing { gate }),
        _ if gate == RESET_STATUS_ALIAS => Some(FeatureGateWarning::Alias),
        _ => None,
    }
}

/// The spellings that the kubelet's flags accept.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}
