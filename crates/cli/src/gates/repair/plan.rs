//! What a repair does: a pure function of the node, the controller's decision and what a person chose.

use anyhow::{Result, bail};
use jiff::Timestamp;
use keelet_gates::{
    decide::{Decision, Edit, Left, State, Verdict},
    gate,
    node::{Effect, Node, Taint},
    record::{self, Entry, Found},
    words,
};

use crate::gates::view::{self, GateView};

/// What a person chose.
#[derive(Clone, Debug, Default)]
pub(super) struct Choices {
    /// Gates to be opened although their conditions do not hold.
    pub(super) open: Vec<String>,
    /// Gates that shall wait for their conditions again.
    pub(super) gate_again: Vec<String>,
}

/// What would be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Each in a sentence.
    pub(super) steps: Vec<String>,
    /// What is left alone, and why.
    pub(super) notes: Vec<String>,
    /// All of it.
    pub(super) edit: Edit,
}

/// What would be done to a node.
pub(super) fn plan(
    node: &Node,
    decision: &Decision,
    gates: &[GateView],
    choices: &Choices,
    now: Timestamp,
) -> Result<Plan> {
    check(node, decision, gates, choices)?;
    let mut plan = Plan { edit: decision.edit.clone(), ..Plan::default() };
    let mut taints = plan.edit.taints.clone().unwrap_or_else(|| node.taints.clone());
    let mut opened = Vec::new();
    for verdict in &decision.verdicts {
        let gate = &verdict.gate;
        let is_it = |taint: &Taint| taint.is(&gate.key, &gate.effect);
        match &verdict.state {
            State::Passes(_) | State::Returns { .. } | State::Completes => {
                plan.steps.push(format!("what the controller would do: {}", words::sentence(verdict)));
            }
            _ if is_named(&choices.open, verdict) => {
                taints.retain(|taint| !is_it(taint));
                opened.push(verdict);
                let why = words::sentence(verdict);
                plan.steps
                    .push(format!("remove the taint {gate}, and write down that the gate has passed. Now: {why}"));
            }
            State::SetByHand { passed } if is_named(&choices.gate_again, verdict) => {
                plan.edit.annotations.insert(gate.key.to_string(), None);
                plan.steps.push(format!(
                    "remove the annotation {}, so that the gate, which passed at {passed}, waits for its condition again",
                    gate.key
                ));
            }
            State::SetByHand { passed } => {
                taints.retain(|taint| !is_it(taint));
                plan.steps.push(format!(
                    "remove the taint {gate}, which was added after the gate had passed at {passed}; --gate-again {} keeps it instead",
                    view::name(&gate.key)
                ));
            }
            State::Left(Left::Effect) => {
                let other = taints.iter().any(|taint| taint.is(&gate.key, &Effect::NoSchedule));
                match other {
                    true => taints.retain(|taint| !is_it(taint)),
                    false => taints.iter_mut().filter(|taint| is_it(taint)).for_each(to_gate),
                }
                let step = if other { "remove it: the gate of this name is there" } else { "make it NoSchedule" };
                plan.steps.push(format!("the taint {gate} is no gate, because of its effect: {step}"));
            }
            State::Left(Left::Name) => {
                taints.retain(|taint| !is_it(taint));
                plan.steps.push(format!("remove the taint {gate}: its key cannot be a gate's"));
            }
            State::Left(Left::DryRun) => {
                taints.retain(|taint| !is_it(taint));
                plan.steps
                    .push(format!("remove the taint {gate}, which was added for a rule that is not enforced now"));
            }
            State::Left(Left::RuleUnknown | Left::RuleMissing) => {
                taints.retain(|taint| !is_it(taint));
                plan.steps.push(format!(
                    "remove the taint {gate}: a record says that it was added for a rule, and no rule asks for it on this node now"
                ));
            }
            State::Left(Left::RulesOff | Left::Claimed)
            | State::Waits { .. }
            | State::Refused { .. }
            | State::Counting { .. } => plan.notes.push(format!(
                "Left alone: {}. To open it anyway: --open {}",
                words::sentence(verdict),
                view::name(&gate.key)
            )),
            State::Open => {}
        }
    }
    stray_record(node, &mut plan);
    if taints != node.taints {
        plan.edit.taints = Some(taints);
    }
    if !opened.is_empty() {
        open(node, &mut plan.edit, &opened, now);
    }
    if plan.steps.is_empty() {
        // A label alone is the controller's business.
        plan.edit = Edit::default();
    }
    Ok(plan)
}

/// Refuses names that mean no gate, or one for which the choice has no meaning.
fn check(node: &Node, decision: &Decision, gates: &[GateView], choices: &Choices) -> Result<()> {
    for (option, names) in [("--open", &choices.open), ("--gate-again", &choices.gate_again)] {
        for name in names {
            let Some(gate) = gates.iter().find(|gate| gate.gate == *name || gate.taint.key == *name) else {
                let known: Vec<_> = gates.iter().map(|gate| gate.gate.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                bail!("{option}: gate {name:?} not found on node {}; gates: {known}", node.name);
            };
            if !gate.taint.present {
                bail!("{option}: gate {name} of node {} is open already", node.name);
            }
            let mut verdicts = decision.verdicts.iter().filter(|verdict| *verdict.gate.key == *gate.taint.key);
            let by_hand = verdicts.any(|verdict| matches!(verdict.state, State::SetByHand { .. }));
            if option == "--gate-again" && !by_hand {
                bail!("{option}: gate {name} of node {} waits for its condition already: {}", node.name, gate.decision);
            }
        }
    }
    Ok(())
}

fn is_named(names: &[String], verdict: &Verdict) -> bool {
    let key = &*verdict.gate.key;
    names.iter().any(|name| name == key || name == view::name(key))
}

/// A record that counts for nothing: of a node object that does not exist any more, or damaged.
fn stray_record(node: &Node, plan: &mut Plan) {
    let step = match Found::on(node) {
        Found::OfAnother { uid } => format!("of another node object ({uid})"),
        Found::Unreadable => "that cannot be read".to_owned(),
        Found::Absent | Found::Ours(_) => return,
    };
    plan.edit.annotations.entry(record::ANNOTATION.to_owned()).or_insert(None);
    plan.steps.push(format!("remove the record {} {step}", record::ANNOTATION));
}

/// Writes down that gates have passed, as the controller does.
fn open(node: &Node, edit: &mut Edit, opened: &[&Verdict], now: Timestamp) {
    let written = edit.annotations.get(record::ANNOTATION).cloned().flatten();
    let written = written.and_then(|text| serde_json::from_str(&text).ok());
    let mut record = written.unwrap_or_else(|| Found::on(node).trusted(&node.uid));
    for verdict in opened {
        let gate = &verdict.gate;
        let before = record.entry(&gate.key, &gate.effect).cloned().unwrap_or_default();
        let entry = Entry { passed: Some(now), added: None, held: None, boot: node.boot_id.to_string(), ..before };
        record.set(&gate.key, &gate.effect, entry);
        edit.annotations.insert(gate.key.to_string(), Some(gate::PASSED.to_owned()));
    }
    edit.annotations.insert(record::ANNOTATION.to_owned(), Some(record.to_text()));
}

fn to_gate(taint: &mut Taint) {
    taint.effect = Effect::NoSchedule;
    // The API server sets it for NoExecute alone.
    taint.time_added = None;
}
