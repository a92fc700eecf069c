//! Readiness gates of a node of its own: without a scheduler the agent itself holds pods back that do not tolerate a pending one.
//!
//! A gate passes when its condition is True for the first time in a boot, and stays open until the next one: gates are for the start of a node,
//! and a component that fails later stops no pod. Where there is a Node object its annotation says the same. Pure.

use std::collections::BTreeMap;

use keelet_lifecycle::{
    Moment,
    node::{ConditionStatus, GateState, NodeCondition, NodeEvidence},
};
use keelet_pod::{
    Taint,
    gate::{self, Meant, meant},
};

/// The states of the gates among these taints, by the key of the taint.
pub(super) fn states(taints: &[Taint], known: &NodeEvidence, now: Moment) -> BTreeMap<String, GateState> {
    let gates = taints.iter().filter_map(|taint| Some((taint, gate::of_taint(taint)?)));
    gates
        .map(|(taint, gate)| (taint.key.clone(), state(gate, known.gates.get(&taint.key), &known.conditions, now)))
        .collect()
}

fn state(gate: &str, before: Option<&GateState>, conditions: &[NodeCondition], now: Moment) -> GateState {
    if let Some(passed @ GateState::Passed { .. }) = before {
        return passed.clone();
    }
    let waits_for = match meant(conditions.iter(), gate, |condition| condition.kind.as_str()) {
        Meant::One(NodeCondition { kind, status: ConditionStatus::True, .. }) => {
            return GateState::Passed { at: now, condition: kind.clone() };
        }
        Meant::One(NodeCondition { kind, status, reason, .. }) => {
            format!("condition {kind} is {} ({reason})", status.word())
        }
        Meant::None => format!("the node has no condition {gate}"),
        Meant::Several(several) => {
            let kinds: Vec<&str> = several.iter().map(|condition| condition.kind.as_str()).collect();
            format!("condition {gate} is ambiguous, the node has {}", kinds.join(" and "))
        }
    };
    GateState::Pending { waits_for }
}
