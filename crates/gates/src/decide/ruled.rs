//! Gates of rules: `NodeReadinessRule` objects that select the node (GN-8, PEER-9..PEER-15).
//!
//! Rules that share a taint on a node all have to be met: the other controller would add and remove it in turns.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    Budget, CLOCKS, Deciding, Evidence, Gate, Held, How, NEW_NODE, Origin, Pass, RuleName, State, Unmet,
    evidence::{self, Judged},
};
use crate::{
    node::{Effect, Taint, Text},
    record::Entry,
    rule::{Mode, Policy, Rule, Spec},
    settings::Room,
};

/// The rules of one taint.
type Rules<'a> = Vec<(&'a Rule, &'a Spec)>;

/// What the conditions say about a group of rules.
struct Reading {
    unmet: Vec<Unmet>,
    met: Vec<Text>,
    since: Option<Timestamp>,
}

/// Decides about every taint that a rule is about.
pub(super) fn decide(deciding: &mut Deciding<'_>) {
    let rules = deciding.with.rules;
    let mut by_taint: BTreeMap<(Text, Effect), Rules<'_>> = BTreeMap::new();
    for (rule, spec) in rules.enforced(&deciding.node.labels) {
        by_taint.entry((Text::clone(&spec.key), spec.effect.clone())).or_default().push((rule, spec));
    }
    for ((key, effect), group) in by_taint {
        let state = of_group(deciding, &key, &effect, &group);
        deciding.conclude(gate(key, effect, &group), state);
    }
    // A rule that is being deleted takes its taint with it, from every node that it selects (PEER-17). One that was only tried has none.
    for (rule, spec) in rules.specs().filter(|(rule, spec)| rule.deleting && !spec.dry_run) {
        let at = (Text::clone(&spec.key), spec.effect.clone());
        let has_taint = deciding.node.taint(&spec.key, &spec.effect).is_some();
        if has_taint && !deciding.verdicts.contains_key(&at) && spec.selector.matches(&deciding.node.labels) {
            remove(deciding, &spec.key, &spec.effect, &rule.uid);
            let pass = Pass { how: How::RuleDeleted, since: None, conditions: Vec::new() };
            deciding.conclude(gate(at.0, at.1, &[(rule, spec)]), State::Passes(pass));
        }
    }
}

fn gate(key: Text, effect: Effect, group: &[(&Rule, &Spec)]) -> Gate {
    let names = group.iter().map(|(rule, _)| RuleName { name: Text::clone(&rule.name), uid: Text::clone(&rule.uid) });
    Gate { key, effect, origin: Origin::Rules(names.collect()) }
}

fn of_group(deciding: &mut Deciding<'_>, key: &str, effect: &Effect, group: &Rules<'_>) -> State {
    let (completed, mut active): (Rules<'_>, Rules<'_>) = group
        .iter()
        .partition(|(rule, spec)| spec.mode == Mode::BootstrapOnly && rule.is_completed(&deciding.node.annotations));
    let has_taint = deciding.node.taint(key, effect).is_some();
    let entry = deciding.record.entry(key, effect).cloned().unwrap_or_default();
    let mut how = if entry.held.is_some() { How::Released } else { How::Met };
    if active.is_empty() {
        if !has_taint {
            return State::Open;
        }
        // Annotation and taint together: we never leave that behind. With a record of ours the taint came later, from someone else;
        // without one, another controller stopped half-way, and the taint goes when the conditions hold (GN-2).
        if let Some(passed) = entry.passed.filter(|_| entry.has_passed()) {
            return State::SetByHand { passed };
        }
        active = completed;
        how = How::Repaired;
    }
    let Reading { unmet, met, since } = read(deciding, &active);
    match (unmet.is_empty(), has_taint) {
        (true, true) => {
            remove(deciding, key, effect, &active[0].0.uid);
            complete(deciding, &active);
            State::Passes(Pass { how, since, conditions: met })
        }
        (true, false) if complete(deciding, &active) => State::Completes,
        (true, false) => State::Open,
        (false, true) => {
            let added = match (entry.held, entry.added) {
                (Some(_), _) => Some(Budget::Counted),
                (None, Some(_)) => Some(Budget::Free),
                (None, None) => None,
            };
            State::Waits { unmet, added }
        }
        (false, false) => add(deciding, &active, entry, unmet),
    }
}

/// Adds the taint of a rule. Only on a new node it does so whatever `--max-held` says.
fn add(deciding: &mut Deciding<'_>, group: &Rules<'_>, entry: Entry, unmet: Vec<Unmet>) -> State {
    let (rule, spec) = group[0];
    let now = deciding.with.now;
    // A node that a slow clock finds created in the future may be of any age.
    let new = -CLOCKS..NEW_NODE;
    let is_young = deciding.node.created.is_some_and(|created| new.contains(&now.duration_since(created)));
    let budget = if is_young && entry.passed.is_none() { Budget::Free } else { Budget::Counted };
    if budget == Budget::Counted {
        match deciding.room() {
            Room::Free => {}
            Room::Unknown => return State::Counting { unmet },
            Room::Full { held, allowed } => {
                return State::Refused { unmet, held: Held { nodes: held, allowed } };
            }
        }
        deciding.held = true;
    }
    deciding.taints.push(Taint::new(&spec.key, spec.effect.clone()).with_value(&spec.value));
    let (added, held) = match budget {
        Budget::Free => (Some(now), None),
        Budget::Counted => (None, Some(now)),
    };
    let entry = Entry { added, held, rule: rule.uid.to_string(), ..entry };
    deciding.record.set(&spec.key, &spec.effect, entry);
    State::Returns { unmet, budget }
}

fn remove(deciding: &mut Deciding<'_>, key: &str, effect: &Effect, rule: &str) {
    deciding.remove_taint(key, effect);
    let entry = Entry {
        passed: Some(deciding.with.now),
        boot: deciding.node.boot_id.to_string(),
        rule: rule.to_owned(),
        ..Entry::default()
    };
    deciding.record.set(key, effect, entry);
}

/// Marks the node as having passed those that look only once. Whether there was one to mark.
fn complete(deciding: &mut Deciding<'_>, group: &Rules<'_>) -> bool {
    let mut marked = false;
    for (rule, spec) in group {
        if spec.mode == Mode::BootstrapOnly && !rule.is_completed(&deciding.node.annotations) {
            deciding.annotate(&rule.completed_key(), Some(&rule.completed_value()));
            marked = true;
        }
    }
    marked
}

fn read(deciding: &mut Deciding<'_>, group: &Rules<'_>) -> Reading {
    let mut reading = Reading { unmet: Vec::new(), met: Vec::new(), since: None };
    for (_, spec) in group {
        let mut unmet = Vec::new();
        let mut met: Vec<Evidence> = Vec::new();
        for need in &spec.conditions {
            let Judged { evidence, until } = evidence::of_rule(
                &deciding.conditions,
                need,
                deciding.with.settings.condition_max_age,
                deciding.with.now,
            );
            deciding.wake_at(until);
            if evidence.status() == need.required {
                met.push(evidence);
            } else {
                unmet.push(Unmet { wanted: Text::clone(&need.kind), required: need.required, found: evidence });
            }
        }
        if spec.policy == Policy::AnyOf && !met.is_empty() {
            unmet.clear();
        }
        reading.unmet.append(&mut unmet);
        reading.since = reading.since.into_iter().chain(met.iter().filter_map(Evidence::since)).max();
        reading.met.extend(met.iter().filter_map(Evidence::kind).cloned());
    }
    reading
}
