//! What is remembered of the node itself: its conditions, the probes of its components, and which of its readiness gates have passed.
//!
//! The same idea as for pods: a condition changes with evidence only. An agent restart is none, so conditions and verdicts are carried over
//! it, with their times. A reboot is some: the components have restarted with the node, so what their probes said before counts no more
//! (GATE-16, GATE-17).

mod probe;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::probe::{ComponentProbe, LOOPBACK, NodeProbe};
use crate::time::{BootId, Moment, Wall};

/// Types of conditions that are remembered after their probes are gone: as many as there can be probes.
const MOST_RETIRED: usize = 32;

/// Everything that is remembered of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeEvidence {
    /// The boot that it is from.
    pub boot_id: BootId,
    /// The agent run that wrote it.
    pub agent_started: Option<Moment>,
    /// The conditions as they were last said.
    pub conditions: Vec<NodeCondition>,
    /// The probes of components, by name.
    pub probes: BTreeMap<String, ComponentProbe>,
    /// Types of conditions whose probes were taken out of the configuration: nothing reports them any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<String>,
    /// Gates of a node of its own, by the key of their taint.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gates: BTreeMap<String, GateState>,
}

/// A condition of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCondition {
    /// Its type: `Ready`, `DiskPressure`, ...
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// Since when the status is what it is, as far as it is known.
    pub since: Wall,
    /// When it was last observed.
    pub seen: Wall,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It was not observed yet.
    Unknown,
}

/// A readiness gate of a node of its own, where no controller looks after it. It holds for one boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GateState {
    /// Pods that do not tolerate its taint wait.
    Pending {
        /// What it waits for.
        waits_for: String,
    },
    /// Its condition was True once; it stays open until the next boot.
    Passed {
        /// When.
        at: Moment,
        /// The condition.
        condition: String,
    },
}

// === impl NodeEvidence ===

impl NodeEvidence {
    /// What a new run of the agent believes of what an earlier one has left, with the probes that are configured now. Verdicts, conditions and
    /// gates that have passed belong to one boot.
    #[must_use]
    pub fn begin(before: Option<Self>, configured: &[NodeProbe], started: Moment) -> Self {
        let mut before = before.unwrap_or_default();
        let is_configured = |kind: &String| configured.iter().any(|probe| probe.condition == *kind);
        let mut retired = before.retired;
        retired.extend(before.probes.values().map(|probe| probe.condition.clone()));
        retired.sort();
        retired.dedup();
        retired.retain(|kind| !is_configured(kind));
        retired.truncate(MOST_RETIRED);
        if before.boot_id != started.boot_id {
            before = Self::default();
        }
        before.conditions.retain(|condition| !retired.contains(&condition.kind));
        let mut known = before.probes;
        let begin = |probe: &NodeProbe| (probe.name.clone(), probe.begin(known.remove(&probe.name), started));
        Self {
            boot_id: started.boot_id,
            agent_started: Some(started),
            conditions: before.conditions,
            probes: configured.iter().map(begin).collect(),
            retired,
            gates: before.gates,
        }
    }

    /// The condition of that type.
    pub fn condition(&self, kind: &str) -> Option<&NodeCondition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

// === impl ConditionStatus ===

impl ConditionStatus {
    /// Whether something holds.
    pub fn of(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }

    /// The API's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}
