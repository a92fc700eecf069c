//! The node: what it is, what it says of itself, and which pods fit on it.
//!
//! ```text
//! Machine (files of the kernel) --------------------> Facts ------.
//! runtime, disks, late probes --> Health --.                       object --> v1.Node
//! probes of components -----> NodeEvidence -+--> conditions ------'
//!                                               (before, found, now): transition times are kept
//! ```
//!
//! Facts are read once, when the agent starts. Health is observed every ten seconds and when a client asks for the node; components are
//! probed when they are due. Everything between what was read and the `v1.Node` is pure: a test needs neither a kernel nor a runtime.
//!
//! [`admission`] decides which pods of an API server fit, and has what the pods here have taken.
//!
//! [`Node`] owns the evidence. A change of it is written to the ledger before it is shown ([`publish`]), so that the next agent says what this
//! one said, since the same time.

pub(crate) mod admission;
mod conditions;
mod facts;
mod gates;
mod health;
mod machine;
mod object;
pub(crate) mod pressure;
pub(crate) mod probes;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1;
pub use keelet_lifecycle::node::{ConditionStatus, NodeCondition as Condition};
use keelet_lifecycle::{
    Event, Moment, Severity,
    node::{ComponentProbe, GateState, NodeEvidence, NodeProbe},
    observed::PendingGate,
    operation::{Outcome, ProbeReport},
};
use keelet_pod::{Pod, Taint};
use tokio::sync::watch;

pub(crate) use self::health::{observe, watch};
pub use self::{
    conditions::{BUILT_IN_CONDITIONS, OWN_CONDITIONS, conditions},
    facts::{Facts, MAX_PODS, Resources, System},
    health::{Health, RuntimeHealth},
    machine::{Machine, Usage},
    object::{Versions, object},
    pressure::DiskPressure,
};
use crate::{
    events::{EventRecord, Recorder},
    shared::Shared,
};

/// The node of one agent: what it is, and its state when last observed.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) facts: Facts,
    probes: Vec<NodeProbe>,
    gating: Gating,
    seen: Mutex<Seen>,
    /// Changes when conditions do.
    changes: watch::Sender<u64>,
}

/// What the node has to do with readiness gates, beside the probes.
#[derive(Clone, Debug, Default)]
pub struct Gating {
    /// Taints that hold pods back on a node of its own. In a cluster the scheduler does that.
    pub gates: Vec<Taint>,
    /// Those of [`BUILT_IN_CONDITIONS`] that are conditions of the node.
    pub built_in: Vec<String>,
}

/// What is known of the node.
#[derive(Debug)]
struct Seen {
    evidence: NodeEvidence,
    /// The last observation; none before the first.
    health: Option<Health>,
    /// The conditions that readers see: those that are in the ledger.
    shown: Vec<Condition>,
    shown_gates: BTreeMap<String, GateState>,
    /// Whether readers see an observation of this agent.
    observed: bool,
    /// The number of the newest settlement, and of the one that is shown.
    settled: u64,
    shown_of: u64,
    /// Whether something is not in the ledger that a decision does not rest on.
    unsaved: bool,
    /// The runtime's name and version; none before it has answered.
    runtime: Option<String>,
    recorder: Recorder,
    /// When each probe that fails was last reported.
    reported: BTreeMap<String, Moment>,
}

/// What follows from news, to be written down and then shown.
#[derive(Debug)]
#[must_use]
pub(crate) struct Settled {
    number: u64,
    /// Whether the node has been observed.
    observed: bool,
    conditions: Vec<Condition>,
    gates: BTreeMap<String, GateState>,
    /// Set if something has changed that has to be in the ledger, for the next agent, before others see it.
    commit: Option<NodeEvidence>,
    events: Vec<EventRecord>,
}

/// How often a probe that keeps failing is reported (GATE-14).
const REMIND_AFTER: Duration = Duration::from_secs(600);

/// Writes down what follows from news, publishes it, and notifies the pods it concerns.
pub(crate) async fn publish(shared: &Shared, settled: Settled) {
    if let Some(evidence) = &settled.commit {
        shared.ledger.keep_node(evidence.clone(), true).await;
    }
    for event in &settled.events {
        shared.board.node_event(&shared.facts().name, event);
        if let Some(publisher) = &shared.publisher {
            publisher.node_event(&shared.facts().name, event);
        }
    }
    if shared.node.show(settled) {
        // Pods that a gate held back are planned again.
        shared.registry.hint_all();
    }
}

// === impl Node ===

impl Node {
    /// A node with what an earlier agent has left of it.
    pub(crate) fn new(
        facts: Facts,
        probes: Vec<NodeProbe>,
        gating: Gating,
        before: Option<NodeEvidence>,
        started: Moment,
    ) -> Self {
        let mut evidence = NodeEvidence::begin(before, &probes, started);
        let known =
            |kind: &String| probes.iter().any(|probe| probe.condition == *kind) || gating.built_in.contains(kind);
        evidence.conditions.retain(|said| OWN_CONDITIONS.contains(&said.kind.as_str()) || known(&said.kind));
        evidence.conditions = conditions(&evidence.conditions, None, &evidence.probes, &gating.built_in, started.wall);
        evidence.gates = gates::states(&gating.gates, &evidence, started);
        let seen = Seen {
            shown: evidence.conditions.clone(),
            shown_gates: evidence.gates.clone(),
            evidence,
            health: None,
            observed: false,
            settled: 0,
            shown_of: 0,
            unsaved: false,
            runtime: None,
            recorder: Recorder::default(),
            reported: BTreeMap::new(),
        };
        Self { facts, probes, gating, seen: Mutex::new(seen), changes: watch::Sender::new(0) }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn probes(&self) -> &[NodeProbe] {
        &self.probes
    }

    /// When the next attempt of a probe is due.
    pub(crate) fn due(&self, probe: &NodeProbe) -> Option<Moment> {
        self.seen().evidence.probes.get(&probe.name).and_then(|known| known.memory.due)
    }

    /// The node was observed.
    pub(crate) fn note(&self, health: Health, now: Moment) -> Settled {
        let mut seen = self.seen();
        if let RuntimeHealth::Answers { version: Some(version), .. } = &health.runtime {
            seen.runtime = Some(version.clone());
        }
        seen.health = Some(health);
        seen.settle(&self.gating, Vec::new(), now)
    }

    /// An attempt of a probe has ended.
    pub(crate) fn take(&self, probe: &NodeProbe, report: &ProbeReport, now: Moment) -> Settled {
        let mut seen = self.seen();
        let seen = &mut *seen;
        let mut events = Vec::new();
        if let Some(known) = seen.evidence.probes.get_mut(&probe.name) {
            let changed = probe.take(known, report, now);
            seen.unsaved = true;
            let last = seen.reported.get(&probe.name).copied();
            if let Some(event) = event_of(probe, known, changed, report.outcome, last, now) {
                seen.reported.insert(probe.name.clone(), now);
                events.extend(seen.recorder.record(&event, now));
            }
        }
        seen.settle(&self.gating, events, now)
    }

    /// Shows what was settled, unless something newer is shown. Whether gates have changed.
    fn show(&self, settled: Settled) -> bool {
        let mut seen = self.seen();
        if settled.number <= seen.shown_of {
            return false;
        }
        seen.shown_of = settled.number;
        let other = |a: &Condition, b: &Condition| {
            (&a.kind, a.status, &a.reason, &a.message) != (&b.kind, b.status, &b.reason, &b.message)
        };
        let first = !seen.observed && settled.observed;
        seen.observed |= settled.observed;
        let changed = first
            || seen.shown.len() != settled.conditions.len()
            || seen.shown.iter().zip(&settled.conditions).any(|(a, b)| other(a, b));
        seen.shown = settled.conditions;
        let gates_changed = seen.shown_gates != settled.gates;
        seen.shown_gates = settled.gates;
        drop(seen);
        if changed {
            self.changes.send_modify(|count| *count += 1);
        }
        gates_changed
    }

    /// What is to be kept for the next agent and is not yet: results that no decision rests on.
    pub(crate) fn unsaved(&self) -> Option<NodeEvidence> {
        let mut seen = self.seen();
        std::mem::take(&mut seen.unsaved).then(|| seen.evidence.clone())
    }

    /// The conditions that readers see.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        self.seen().shown.clone()
    }

    /// Types of conditions that earlier agents reported, and this one does not.
    pub(crate) fn retired(&self) -> Vec<String> {
        self.seen().evidence.retired.clone()
    }

    /// Whether the node was observed since the agent started.
    pub(crate) fn is_observed(&self) -> bool {
        self.seen().observed
    }

    /// Changes with the first observation of the node, and when conditions do.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The gates that hold a pod back, which it does not tolerate.
    pub(crate) fn gates_holding(&self, pod: &Pod) -> Vec<PendingGate> {
        if self.gating.gates.is_empty() {
            return Vec::new();
        }
        let seen = self.seen();
        let pending = self.gating.gates.iter().filter_map(|taint| match seen.shown_gates.get(&taint.key)? {
            GateState::Pending { waits_for } => Some((taint, waits_for)),
            GateState::Passed { .. } => None,
        });
        let holding = pending.filter(|(taint, _)| !pod.tolerates(taint));
        holding
            .map(|(taint, waits_for)| PendingGate { taint: taint.to_string(), waits_for: waits_for.clone() })
            .collect()
    }

    /// The node as it was when last observed.
    pub(crate) fn object(&self, started: Moment) -> v1::Node {
        let seen = self.seen();
        let versions = Versions { runtime: seen.runtime.as_deref(), boot_id: started.boot_id };
        let is_pending = |taint: &&Taint| matches!(seen.shown_gates.get(&taint.key), Some(GateState::Pending { .. }));
        let taints: Vec<&Taint> = self.gating.gates.iter().filter(is_pending).collect();
        object(&self.facts, &seen.shown, &taints, &versions, started.wall)
    }
}

/// The event of an attempt: a transition at once, a probe that keeps failing now and then.
fn event_of(
    probe: &NodeProbe,
    known: &ComponentProbe,
    changed: bool,
    outcome: Outcome,
    last: Option<Moment>,
    now: Moment,
) -> Option<Event> {
    let (name, condition, threshold) = (&probe.name, &probe.condition, probe.probe.failure_threshold);
    let event = |reason, severity, message| Event { container: None, reason, severity, message };
    let again = last.is_some_and(|last| now.since(&last) >= REMIND_AFTER) && outcome == Outcome::Failure;
    match known.status() {
        ConditionStatus::False if changed || again => {
            let message = format!(
                "Probe {name} ({probe}) failed {threshold} times in a row, condition {condition} is False: {}",
                known.output()
            );
            Some(event("NodeProbeFailed", Severity::Warning, message))
        }
        ConditionStatus::True if changed => {
            let message = format!("Probe {name} ({probe}) passed, condition {condition} is True");
            Some(event("NodeProbeSucceeded", Severity::Normal, message))
        }
        ConditionStatus::True | ConditionStatus::False | ConditionStatus::Unknown => None,
    }
}

// === impl Seen ===

impl Seen {
    fn settle(&mut self, gating: &Gating, events: Vec<EventRecord>, now: Moment) -> Settled {
        let (before, health) = (&self.evidence.conditions, self.health.as_ref());
        let new = conditions(before, health, &self.evidence.probes, &gating.built_in, now.wall);
        let shown = |conditions: &[Condition]| -> Vec<_> {
            let one = |c: &Condition| (c.kind.clone(), c.status, c.reason.clone(), c.message.clone(), c.since);
            conditions.iter().map(one).collect()
        };
        let mut changed = shown(&new) != shown(&self.evidence.conditions);
        self.evidence.conditions = new;
        let gates = gates::states(&gating.gates, &self.evidence, now);
        changed |= gates != self.evidence.gates;
        self.evidence.gates = gates;
        self.settled += 1;
        if changed {
            self.unsaved = false;
        }
        Settled {
            number: self.settled,
            observed: self.health.is_some(),
            conditions: self.evidence.conditions.clone(),
            gates: self.evidence.gates.clone(),
            commit: changed.then(|| self.evidence.clone()),
            events,
        }
    }
}

#[cfg(test)]
mod tests;
