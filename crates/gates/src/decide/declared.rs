//! Gates that a node was registered with: the taint names the condition (KEP-5233).

use crate::{
    gate,
    node::{Effect, Status, Taint, Text},
    record::Entry,
    rule::{self, Seen},
    settings::{Enforcement, Room},
};

use super::{
    Budget, Deciding, Evidence, Gate, Held, How, Left, Origin, Pass, State, Unmet,
    evidence::{self, Judged},
};

/// Decides about every gate taint that no rule has a verdict on, and about gates that have passed.
pub(super) fn decide(deciding: &mut Deciding<'_>) {
    let of_rules = deciding.concluded();
    for taint in &deciding.node.taints {
        let Some((_, name)) = deciding.with.settings.prefixes.split(&taint.key) else { continue };
        if of_rules.contains(&(Text::clone(&taint.key), taint.effect.clone())) {
            continue;
        }
        let gate = Gate { key: Text::clone(&taint.key), effect: taint.effect.clone(), origin: Origin::Taint };
        let state = if let Some(state) = of_lost_rule(deciding, taint) {
            state
        } else if !gate::is_name(name) {
            State::Left(Left::Name)
        } else if taint.effect != Effect::NoSchedule {
            State::Left(Left::Effect)
        } else if deciding.with.rules.claim(&deciding.node.labels, taint) {
            State::Left(Left::Claimed)
        } else {
            with_taint(deciding, taint, name)
        };
        deciding.conclude(gate, state);
    }
    if deciding.with.settings.enforcement == Enforcement::Continuous {
        returning(deciding);
    }
}

/// The state of a taint that the record says was added for a rule which has no verdict on it now.
fn of_lost_rule(deciding: &mut Deciding<'_>, taint: &Taint) -> Option<State> {
    let entry = deciding.record.entry(&taint.key, &taint.effect)?.clone();
    if entry.rule.is_empty() || entry.has_passed() {
        return None;
    }
    if deciding.with.rules.source == rule::Source::Off {
        return Some(State::Left(Left::RulesOff));
    }
    // The record alone removes nothing: a node can write it.
    let was_seen = is_seen(deciding.with.seen, &entry, taint);
    let how = match deciding.with.rules.of_uid(&entry.rule) {
        // A rule that was changed to a dry run, or that this version cannot read, neither adds nor removes.
        Some(rule) if !rule.deleting && !rule.is_enforced() => return Some(State::Left(Left::DryRun)),
        _ if !was_seen => return Some(State::Left(Left::RuleUnknown)),
        Some(rule) if rule.deleting => How::RuleDeleted,
        Some(_) => How::NotSelected,
        None if deciding.with.rules.gone.contains(&*entry.rule) => How::RuleGone,
        None => return Some(State::Left(Left::RuleMissing)),
    };
    deciding.remove_taint(&taint.key, &taint.effect);
    let passed = Entry { passed: Some(deciding.with.now), added: None, held: None, ..entry };
    deciding.record.set(&taint.key, &taint.effect, passed);
    Some(State::Passes(Pass { how, since: None, conditions: Vec::new() }))
}

/// Whether this process saw the rule of a record select the node for this very taint.
pub(super) fn is_seen(seen: &[Seen], entry: &Entry, taint: &Taint) -> bool {
    seen.iter().any(|seen| *seen.rule == *entry.rule && taint.is(&seen.key, &seen.effect))
}

/// The state of a gate whose taint is on the node.
fn with_taint(deciding: &mut Deciding<'_>, taint: &Taint, name: &str) -> State {
    let entry = deciding.record.entry(&taint.key, &taint.effect).cloned();
    let claimed = deciding.node.annotations.get(&taint.key).is_some_and(|value| &**value == gate::PASSED);
    let bootstrap = deciding.with.settings.enforcement == Enforcement::Bootstrap;
    if bootstrap
        && claimed
        && let Some(passed) = entry.as_ref().filter(|entry| entry.has_passed()).and_then(|entry| entry.passed)
    {
        return State::SetByHand { passed };
    }
    label(deciding, &taint.key);
    let found = look(deciding, name);
    if found.status() != Status::True {
        let added = entry.and_then(|entry| entry.held).map(|_| Budget::Counted);
        return State::Waits { unmet: vec![unmet(name, found)], added };
    }
    let held = entry.as_ref().is_some_and(|entry| entry.held.is_some());
    let recorded = entry.as_ref().is_some_and(Entry::has_passed);
    let how = match (held, claimed && !recorded) {
        (true, _) => How::Released,
        (false, true) => How::Repaired,
        (false, false) => How::Met,
    };
    deciding.remove_taint(&taint.key, &taint.effect);
    open(deciding, &taint.key, taint.value.as_deref().unwrap_or_default());
    State::Passes(Pass { how, since: found.since(), conditions: found.kind().cloned().into_iter().collect() })
}

/// Gates that have passed and have no taint: the taint returns when the condition leaves True (CTRL-17).
fn returning(deciding: &mut Deciding<'_>) {
    let concluded = deciding.concluded();
    let record = deciding.record.clone();
    for (key, effect, entry) in record.entries() {
        let Some((_, name)) = deciding.with.settings.prefixes.split(key) else { continue };
        let key = Text::from(key);
        let known = concluded.contains(&(Text::clone(&key), effect.clone()));
        let ours = entry.passed.is_some() && entry.rule.is_empty();
        if known || !ours || effect != Effect::NoSchedule || !gate::is_name(name) {
            continue;
        }
        let found = look(deciding, name);
        let state = match (&found, found.status(), deciding.room()) {
            (_, Status::True, _) if entry.has_passed() => State::Open,
            (_, Status::True, _) => {
                open(deciding, &key, &entry.value);
                State::Completes
            }
            // Which condition is meant is not known: that is no evidence that a component failed.
            (Evidence::Ambiguous { .. }, ..) => State::Open,
            (_, _, Room::Unknown) => State::Counting { unmet: vec![unmet(name, found)] },
            (_, _, Room::Full { held, allowed }) => {
                State::Refused { unmet: vec![unmet(name, found)], held: Held { nodes: held, allowed } }
            }
            (_, _, Room::Free) => {
                deciding.taints.push(Taint::new(&key, Effect::NoSchedule).with_value(&entry.value));
                let held = Entry { held: Some(deciding.with.now), ..entry.clone() };
                deciding.record.set(&key, &effect, held);
                deciding.annotate(&key, None);
                label(deciding, &key);
                deciding.held = true;
                State::Returns { unmet: vec![unmet(name, found)], budget: Budget::Counted }
            }
        };
        deciding.conclude(Gate { key, effect, origin: Origin::Taint }, state);
    }
}

/// Writes down that a gate has passed: the annotation of the KEP, and our record.
fn open(deciding: &mut Deciding<'_>, key: &str, value: &str) {
    deciding.annotate(key, Some(gate::PASSED));
    let entry = Entry {
        passed: Some(deciding.with.now),
        boot: deciding.node.boot_id.to_string(),
        value: value.to_owned(),
        ..Entry::default()
    };
    deciding.record.set(key, &Effect::NoSchedule, entry);
}

/// A gate has a label, so that nodes with it can be found. The agent may not set it (GATE-5).
fn label(deciding: &mut Deciding<'_>, key: &str) {
    if !deciding.node.labels.has(key) {
        deciding.edit.labels.insert(key.to_owned(), gate::LABEL.to_owned());
    }
}

fn look(deciding: &mut Deciding<'_>, name: &str) -> Evidence {
    let Judged { evidence, until } =
        evidence::of_gate(&deciding.conditions, name, deciding.with.settings.condition_max_age, deciding.with.now);
    deciding.wake_at(until);
    evidence
}

fn unmet(name: &str, found: Evidence) -> Unmet {
    Unmet { wanted: name.into(), required: Status::True, found }
}
