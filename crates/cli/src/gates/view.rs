//! A gate of a node as it is shown: what the controller decides about it, and the evidence. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use keelet_gates::{
    decide::{Decision, Gate, Origin, State},
    gate,
    node::{Condition, Effect, Node, Status as ConditionStatus, Text},
    record::Found,
    rule::Rules,
    settings::Settings,
    words,
};
use serde::Serialize;

use super::{survey::Seen, writers::Writer};

/// A gate of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GateView {
    pub(super) node: String,
    /// Its name: the key without `readiness.k8s.io/`.
    pub(super) gate: String,
    pub(super) taint: TaintView,
    pub(super) status: Status,
    /// A word for searching; the same as in metrics where it is closed.
    pub(super) reason: &'static str,
    /// A sentence.
    pub(super) decision: String,
    pub(super) conditions: Vec<ConditionView>,
    /// The rules that it comes from; none if the node was registered with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rules: Vec<String>,
    /// When the controller removed the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) passed: Option<Timestamp>,
}

/// The taint of a gate.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaintView {
    pub(super) key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) value: String,
    pub(super) effect: String,
    /// Whether it is on the node.
    pub(super) present: bool,
}

/// What is true of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Status {
    /// The taint holds the node, and stays.
    Closed,
    /// The taint should be removed now.
    Opening,
    /// There is no taint.
    Open,
    /// The taint should be added now.
    Closing,
    /// The taint has a gate's prefix, and is not handled as one.
    Ignored,
}

/// A condition that a gate waits for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConditionView {
    /// The type that is looked for.
    pub(super) wanted: String,
    pub(super) required: &'static str,
    /// What the node has; none if it has none.
    pub(super) found: Option<FoundCondition>,
}

/// A condition that the node has.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FoundCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    /// When its status last changed.
    pub(super) since: Option<Timestamp>,
    /// When its reporter last wrote it.
    pub(super) reported: Option<Timestamp>,
    pub(super) reporter: Option<Writer>,
}

/// Every gate of a node: those that the decision is about, then those that have passed.
pub(super) fn gates(seen: &Seen, decision: &Decision, rules: &Rules, settings: &Settings) -> Vec<GateView> {
    let record = Found::on(&seen.node).trusted(&seen.node.uid);
    let passed = |key: &str, effect: &Effect| {
        record.entry(key, effect).filter(|entry| entry.has_passed()).and_then(|entry| entry.passed)
    };
    let mut views = Vec::new();
    for verdict in &decision.verdicts {
        let gate = &verdict.gate;
        let passed = passed(&gate.key, &gate.effect);
        let (status, word) = match &verdict.state {
            State::Passes(_) => (Status::Opening, words::word(&verdict.state)),
            State::Completes | State::Open => {
                (Status::Open, if passed.is_some() { "passed" } else { words::word(&verdict.state) })
            }
            State::Refused { .. } | State::Counting { .. } => (Status::Open, words::word(&verdict.state)),
            State::Waits { .. } | State::SetByHand { .. } => (Status::Closed, words::word(&verdict.state)),
            State::Returns { .. } => (Status::Closing, words::word(&verdict.state)),
            State::Left(_) => (Status::Ignored, words::word(&verdict.state)),
        };
        views.push(view(seen, gate, rules, (status, word), words::sentence(verdict), passed));
    }
    let known: BTreeSet<(String, String)> =
        views.iter().map(|view| (view.taint.key.clone(), view.taint.effect.clone())).collect();
    for key in without_taint(&seen.node, settings) {
        let gate = Gate { key: Text::clone(&key), effect: Effect::NoSchedule, origin: Origin::Taint };
        if known.contains(&(key.to_string(), gate.effect.to_string())) {
            continue;
        }
        let passed = passed(&key, &gate.effect);
        let claimed = seen.node.annotations.get(&key).is_some_and(|value| &**value == gate::PASSED);
        let (word, why) = match (passed, claimed) {
            (Some(at), _) => ("passed", format!("it passed at {at}")),
            (None, true) => ("claimed", "an annotation says that it passed, without a record of keelet".to_owned()),
            (None, false) => ("taint-removed", "its taint was removed, and not by a controller".to_owned()),
        };
        let sentence = format!("Gate {gate} is open: {why}");
        views.push(view(seen, &gate, rules, (Status::Open, word), sentence, passed));
    }
    views.sort_by(|a, b| (&a.taint.key, &a.taint.effect).cmp(&(&b.taint.key, &b.taint.effect)));
    views
}

/// The keys of gates that the node had: a record, an annotation or a label says so.
fn without_taint(node: &Node, settings: &Settings) -> BTreeSet<Text> {
    let is_gate = |key: &str| settings.prefixes.split(key).is_some_and(|(_, name)| gate::is_name(name));
    let record = Found::on(node).trusted(&node.uid);
    let recorded = record.entries().filter(|(_, effect, entry)| *effect == Effect::NoSchedule && entry.rule.is_empty());
    let claimed = node.annotations.iter().filter(|(_, value)| &***value == gate::PASSED);
    let labelled = node.labels.iter().filter(|(_, value)| &***value == gate::LABEL);
    let keys = recorded.map(|(key, _, _)| Text::from(key));
    let keys = keys.chain(claimed.chain(labelled).map(|(key, _)| Text::clone(key)));
    keys.filter(|key| is_gate(key) && !node.taints.iter().any(|taint| taint.key == *key)).collect()
}

fn view(
    seen: &Seen,
    gate: &Gate,
    rules: &Rules,
    (status, reason): (Status, &'static str),
    decision: String,
    passed: Option<Timestamp>,
) -> GateView {
    let taint = seen.node.taint(&gate.key, &gate.effect);
    GateView {
        node: seen.node.name.to_string(),
        gate: name(&gate.key).to_owned(),
        taint: TaintView {
            key: gate.key.to_string(),
            value: taint.and_then(|taint| taint.value.as_deref()).unwrap_or_default().to_owned(),
            effect: gate.effect.to_string(),
            present: taint.is_some(),
        },
        status,
        reason,
        decision,
        conditions: conditions(seen, gate, rules),
        rules: match &gate.origin {
            Origin::Taint => Vec::new(),
            Origin::Rules(rules) => rules.iter().map(|rule| rule.name.to_string()).collect(),
        },
        passed,
    }
}

/// A gate's name, for tables. One below another prefix keeps it.
pub(super) fn name(key: &str) -> &str {
    key.strip_prefix(gate::PREFIX).filter(|name| !name.is_empty()).unwrap_or(key)
}

fn conditions(seen: &Seen, gate: &Gate, rules: &Rules) -> Vec<ConditionView> {
    let all = &seen.node.conditions;
    match &gate.origin {
        Origin::Rules(of) => {
            let specs = of.iter().filter_map(|rule| rules.of_uid(&rule.uid)?.spec.as_ref().ok());
            let needs = specs.flat_map(|spec| &spec.conditions);
            needs
                .map(|need| ConditionView {
                    wanted: need.kind.to_string(),
                    required: need.required.as_str(),
                    found: all.iter().find(|condition| condition.kind == need.kind).map(|found| shown(seen, found)),
                })
                .collect()
        }
        Origin::Taint => {
            let wanted = gate.key.rsplit('/').next().unwrap_or_default();
            let of =
                |found| ConditionView { wanted: wanted.to_owned(), required: ConditionStatus::True.as_str(), found };
            let exact: Vec<_> = all.iter().filter(|condition| &*condition.kind == wanted).collect();
            let ends_so = |kind: &str| kind.strip_suffix(wanted).is_some_and(|domain| domain.ends_with('/'));
            let found = match exact.is_empty() {
                false => exact,
                true => all.iter().filter(|condition| ends_so(&condition.kind)).collect(),
            };
            match found.is_empty() {
                true => vec![of(None)],
                false => found.into_iter().map(|condition| of(Some(shown(seen, condition)))).collect(),
            }
        }
    }
}

fn shown(seen: &Seen, condition: &Condition) -> FoundCondition {
    FoundCondition {
        kind: condition.kind.to_string(),
        status: condition.status.as_str(),
        reason: condition.reason.to_string(),
        message: condition.message.to_string(),
        since: condition.transition,
        reported: condition.heartbeat,
        reporter: seen.writers.of_condition(&condition.kind),
    }
}

// === impl GateView ===

impl GateView {
    /// `key:effect`, as people write it.
    pub(super) fn taint(&self) -> String {
        let value = if self.taint.value.is_empty() { String::new() } else { format!("={}", self.taint.value) };
        format!("{}{value}:{}", self.taint.key, self.taint.effect)
    }

    /// The conditions that the node has.
    pub(super) fn found(&self) -> impl Iterator<Item = &FoundCondition> {
        self.conditions.iter().filter_map(|condition| condition.found.as_ref())
    }

    /// The same without what every heartbeat changes.
    pub(super) fn without_heartbeats(mut self) -> Self {
        for found in self.conditions.iter_mut().filter_map(|condition| condition.found.as_mut()) {
            found.reported = None;
            found.reporter = None;
        }
        self
    }
}

// === impl Status ===

impl Status {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "Closed",
            Self::Opening => "Opening",
            Self::Open => "Open",
            Self::Closing => "Closing",
            Self::Ignored => "Ignored",
        }
    }
}
