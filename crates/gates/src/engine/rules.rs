//! What rule objects need: a finalizer while they are enforced, none once their taints are removed, and a status with counts.
//!
//! The status has no list of nodes (GN-8): it would be written for every change of every node, and grows with the cluster. What the other
//! controller left there is cleared. Nodes are in events and metrics.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::{Engine, Entry, Now, Text, room::Count};
use crate::{
    decide,
    election::Instant,
    record,
    rule::{FINALIZER, Rule, RuleFault, Rules, Spec},
};

/// How often the nodes of rules are counted at most: a person looks at the status, and Prometheus scrapes no more often.
const EVERY: Duration = Duration::from_secs(10);

/// A change of a rule object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCall {
    /// The rule.
    pub rule: Text,
    /// Which part of it.
    pub part: RulePart,
    /// The JSON merge patch.
    pub patch: Value,
}

/// A part of a rule object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulePart {
    /// The object itself: its finalizers.
    Object,
    /// Its status.
    Status,
}

/// When rules are looked at.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    of: BTreeMap<Text, State>,
    /// Nodes or rules have changed since the last look.
    due: bool,
    /// No look before this.
    not_before: Instant,
}

/// What is being done about a rule.
#[derive(Debug, Default)]
struct State {
    calling: bool,
    /// The status that was written last.
    status: Option<Value>,
    /// A failed request is made again after this.
    not_before: Instant,
}

/// How many nodes a rule is about.
#[derive(Debug, Default)]
struct Counts {
    selected: usize,
    held: usize,
    add: usize,
    remove: usize,
    missing: usize,
    /// Nodes that still have a taint of the rule, selected or not.
    tainted: usize,
}

// === impl Upkeep ===

impl Upkeep {
    pub(super) fn nodes_changed(&mut self) {
        self.due = true;
    }

    pub(super) fn rules_changed(&mut self, rules: &Rules) {
        self.of.retain(|name, _| rules.list.contains_key(name));
        (self.due, self.not_before) = (true, Instant::ZERO);
    }

    pub(super) fn step_down(&mut self) {
        self.of.clear();
        (self.due, self.not_before) = (true, Instant::ZERO);
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let later = self.of.values().filter(|state| !state.calling).map(|state| state.not_before);
        let later = later.filter(|at| *at > Instant::ZERO).min();
        let due = (self.due && !self.of.is_empty()).then_some(self.not_before);
        due.into_iter().chain(later).min()
    }
}

// === impl Engine ===

impl Engine {
    /// Changes of rule objects that have to be made now. Each ends with [`Self::rule_finished`].
    pub fn rule_calls(&mut self, now: Now) -> Vec<RuleCall> {
        let waiting =
            self.upkeep.of.values().any(|state| state.not_before > Instant::ZERO && state.not_before <= now.at);
        let due = waiting || (self.upkeep.due && self.upkeep.not_before <= now.at);
        if !due || !self.leads || !self.is_synced() || self.mode == super::Mode::DryRun {
            return Vec::new();
        }
        (self.upkeep.due, self.upkeep.not_before) = (false, now.at + EVERY);
        let mut calls = Vec::new();
        for rule in self.rules.list.values() {
            let counts = self.counts(rule, now);
            if let Ok(spec) = &rule.spec
                && !spec.dry_run
            {
                let released = counts.selected - counts.held;
                self.metrics.rule_counted(&rule.name, counts.held, released, now.wall.as_second());
            } else {
                self.metrics.rule_not_counted(&rule.name);
            }
            let state = self.upkeep.of.entry(Text::clone(&rule.name)).or_default();
            if state.calling || now.at < state.not_before {
                continue;
            }
            state.not_before = Instant::ZERO;
            let call = |part, patch| RuleCall { rule: Text::clone(&rule.name), part, patch };
            // Before a new leader has listed all nodes, some may have a taint of the rule that it has not seen.
            let counted = !rule.deleting || self.count == Count::Known;
            if let Some(finalizers) = finalizers(rule, &counts).filter(|_| counted) {
                let metadata =
                    json!({ "uid": &*rule.uid, "resourceVersion": rule.version.as_str(), "finalizers": finalizers });
                calls.push(call(RulePart::Object, json!({ "metadata": metadata })));
                state.calling = true;
                continue;
            }
            let status = status(rule, &counts);
            if !rule.deleting && state.status.as_ref() != Some(&status) {
                let metadata = json!({ "uid": &*rule.uid, "resourceVersion": rule.version.as_str() });
                calls.push(call(RulePart::Status, json!({ "metadata": metadata, "status": status.clone() })));
                (state.status, state.calling) = (Some(status), true);
            }
        }
        calls
    }

    /// A change of a rule has ended.
    pub fn rule_finished(&mut self, call: &RuleCall, done: bool, now: Now) {
        let Some(state) = self.upkeep.of.get_mut(&call.rule) else { return };
        state.calling = false;
        if !done {
            // The watch of rules brings the version that a conflict was about.
            state.not_before = now.at + EVERY;
            if call.part == RulePart::Status {
                state.status = None;
            }
        }
        self.upkeep.due = true;
    }

    fn counts(&self, rule: &Rule, now: Now) -> Counts {
        let mut counts = Counts::default();
        let Ok(spec) = &rule.spec else { return counts };
        for entry in self.nodes.values() {
            let node = &entry.node;
            let has_taint = node.taint(&spec.key, &spec.effect).is_some();
            let selected = spec.selector.matches(&node.labels);
            if selected {
                counts.selected += 1;
                let would = decide::would(node, spec, self.settings.condition_max_age, now.wall);
                counts.add += usize::from(would.add);
                counts.remove += usize::from(would.remove);
                counts.missing += usize::from(would.missing);
                counts.held += usize::from(has_taint);
            }
            let of_rule = has_taint && (added_for(entry, spec, rule) || selected && !spec.dry_run);
            let same_taint = |of_other: &Spec| (&of_other.key, &of_other.effect) == (&spec.key, &spec.effect);
            // Where another rule is about the same taint it is that one's now.
            let of_other = || self.rules.enforced(&node.labels).any(|(_, of_other)| same_taint(of_other));
            counts.tainted += usize::from(of_rule && (!rule.deleting || !of_other()));
        }
        counts
    }
}

/// Whether the taint on the node was added for the rule, and goes with it. One that a person has to remove keeps no rule.
fn added_for(entry: &Entry, spec: &Spec, rule: &Rule) -> bool {
    let record = record::Found::on(&entry.node).trusted(&entry.node.uid);
    let added =
        record.entry(&spec.key, &spec.effect).is_some_and(|added| *added.rule == *rule.uid && !added.has_passed());
    let seen =
        || entry.seen.iter().any(|seen| (&seen.rule, &seen.key, &seen.effect) == (&rule.uid, &spec.key, &spec.effect));
    added && seen()
}

/// The finalizers that a rule should have, if it has others.
fn finalizers(rule: &Rule, counts: &Counts) -> Option<Vec<String>> {
    let has = rule.finalizers.iter().any(|name| name == FINALIZER);
    if rule.deleting {
        let others = || rule.finalizers.iter().filter(|name| *name != FINALIZER).cloned().collect();
        return (has && counts.tainted == 0).then(others);
    }
    let mut finalizers = rule.finalizers.clone();
    finalizers.push(FINALIZER.to_owned());
    (!has && rule.spec.is_ok()).then_some(finalizers)
}

/// The status that a rule should have.
fn status(rule: &Rule, counts: &Counts) -> Value {
    let results = match &rule.spec {
        Err(fault) => json!({ "summary": not_enforced(fault) }),
        Ok(spec) if spec.dry_run => json!({
            "affectedNodes": counts.selected, "taintsToAdd": counts.add, "taintsToRemove": counts.remove,
            "riskyOperations": counts.missing, "summary": summary(counts),
        }),
        Ok(_) => Value::Null,
    };
    json!({
        "observedGeneration": rule.generation.max(1), "dryRunResults": results,
        "appliedNodes": null, "failedNodes": null, "nodeEvaluations": null,
    })
}

fn not_enforced(fault: &RuleFault) -> String {
    let text = format!("not enforced: {fault}");
    // What the schema of rules allows.
    text.chars().take(4096).collect()
}

fn summary(counts: &Counts) -> String {
    let Counts { selected, add, remove, missing, .. } = counts;
    format!("of {selected} nodes: {add} taints to add, {remove} to remove; {missing} nodes lack a condition")
}
