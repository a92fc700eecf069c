//! What a node's gates need: a pure function of the node, the rules, the settings and the time.
//!
//! [`decide`] looks at every gate of a node: taints that the node was registered with, taints of rules, and gates that have passed
//! before. Each gets a [`Verdict`] with its reason, and what has to be changed is one [`Edit`]: taint out, annotation in, labels in, in
//! a single patch. Deciding again after the patch yields nothing. A condition is True only if exactly one condition is meant and it is not older than
//! `--condition-max-age`; otherwise it counts as Unknown.
//!
//! What a gate may be, from its taint, the record (`keelet.dev/gates`) and the annotation (`readiness.k8s.io/X: passed`):
//!
//! | taint | record | annotation | condition | verdict |
//! | --- | --- | --- | --- | --- |
//! | yes | none | any | True | passes; with the annotation it is a repair (GN-2) |
//! | yes | none | any | else | waits |
//! | yes | passed | passed | any | set by hand: left alone (bootstrap), follows the condition (continuous) |
//! | yes | passed | none | any | gated again by a person who removed the annotation: passes or waits |
//! | yes | held | any | True | released |
//! | no | passed | any | not True | the taint returns, if continuous and there is room |
//! | no | none | any | any | not a gate: an annotation alone counts for nothing (GN-3) |

mod declared;
mod edit;
mod evidence;
mod ruled;
mod verdict;
mod would;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

pub use self::{
    edit::Edit,
    evidence::{Evidence, Unmet},
    verdict::{Budget, Gate, Held, How, Left, Origin, Pass, RuleName, State, Verdict},
    would::{Would, would},
};
use crate::{
    gate,
    node::{Effect, Node, Text},
    record::{self, Record},
    rule::{self, Rules, Seen},
    settings::{Room, Settings},
};

/// What a decision depends on beside the node.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// All rules.
    pub rules: &'a Rules,
    /// What a person chose.
    pub settings: &'a Settings,
    /// Rules that this process saw select the node.
    pub seen: &'a [Seen],
    /// Whether one more node may be held. Does not matter for a node that is held already.
    pub room: Room,
    /// The time.
    pub now: Timestamp,
}

/// What a node's gates need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Every gate with its verdict, by key and effect.
    pub verdicts: Vec<Verdict>,
    /// What has to be changed.
    pub edit: Edit,
    /// When time alone may change the decision: a condition gets too old.
    pub wake_at: Option<Timestamp>,
}

/// A node that is younger than this is new: a taint that a rule adds takes no capacity away that pods use, so it does not count towards
/// `--max-held`. Nodes take minutes to install their components, and an autoscaler starts them by the hundred.
pub const NEW_NODE: SignedDuration = SignedDuration::from_mins(10);

/// By so much the controller's clock may be behind the API server's, which says when a node was created. A clock that is further behind takes
/// no node for new.
pub const CLOCKS: SignedDuration = SignedDuration::from_mins(1);

/// What a node's gates need.
pub fn decide(node: &Node, with: &Circumstances<'_>) -> Decision {
    let found = record::Found::on(node);
    let before = found.clone().trusted(&node.uid);
    let mut deciding = Deciding {
        node,
        conditions: evidence::Conditions::of_node(node),
        with,
        record: before.clone(),
        held: is_held_by(node, &before),
        edit: Edit::default(),
        taints: node.taints.clone(),
        verdicts: BTreeMap::new(),
        wake_at: None,
    };
    ruled::decide(&mut deciding);
    declared::decide(&mut deciding);
    let Deciding { record, mut edit, taints, verdicts, wake_at, .. } = deciding;
    if taints != node.taints {
        edit.taints = Some(taints);
    }
    if record != before {
        edit.annotations.insert(record::ANNOTATION.to_owned(), Some(record.to_text()));
    }
    Decision { verdicts: verdicts.into_values().collect(), edit, wake_at }
}

/// Whether a node counts towards `--max-held`: it has a taint that the controller added while pods were scheduled to it.
pub fn is_held(node: &Node) -> bool {
    is_held_by(node, &record::Found::on(node).trusted(&node.uid))
}

fn is_held_by(node: &Node, record: &Record) -> bool {
    record.entries().any(|(key, effect, entry)| entry.held.is_some() && node.taint(key, &effect).is_some())
}

/// Whether a node has, or had, a gate: a taint, a label or an annotation says so (CON-24).
pub fn is_managed(node: &Node, settings: &Settings) -> bool {
    let is_gate = |key: &str| settings.prefixes.split(key).is_some_and(|(_, name)| gate::is_name(name));
    node.taints.iter().any(|taint| is_gate(&taint.key))
        || node.labels.iter().any(|(key, value)| is_gate(key) && &**value == gate::LABEL)
        || node.annotations.iter().any(|(key, value)| is_gate(key) && &**value == gate::PASSED)
        || node.annotations.iter().any(|(key, _)| key.starts_with(rule::COMPLETED))
}

/// Whether a node has a gate taint now.
pub fn is_unready(node: &Node, settings: &Settings) -> bool {
    node.taints.iter().any(|taint| settings.prefixes.split(&taint.key).is_some())
}

/// Since when a node waits for a gate, as far as the node tells: since the controller added the taint, else since it was created. A taint that
/// was set by hand waits for nothing.
pub fn waits_since(node: &Node, settings: &Settings) -> Option<Timestamp> {
    let record = record::Found::on(node).trusted(&node.uid);
    let of_taint = |taint: &crate::node::Taint| {
        settings.prefixes.split(&taint.key)?;
        match record.entry(&taint.key, &taint.effect) {
            Some(entry) if entry.has_passed() => None,
            Some(entry) => entry.held.or(entry.added).or(node.created),
            None => node.created,
        }
    };
    node.taints.iter().filter_map(of_taint).min()
}

/// A decision that is being made.
struct Deciding<'a> {
    node: &'a Node,
    conditions: evidence::Conditions<'a>,
    with: &'a Circumstances<'a>,
    /// The record as it will be.
    record: Record,
    /// Whether the node counts towards the limit already, so that another taint takes no more room.
    held: bool,
    edit: Edit,
    /// The taints as they will be.
    taints: Vec<crate::node::Taint>,
    verdicts: BTreeMap<(Text, Effect), Verdict>,
    wake_at: Option<Timestamp>,
}

// === impl Deciding ===

impl Deciding<'_> {
    fn conclude(&mut self, gate: Gate, state: State) {
        self.verdicts.insert((Text::clone(&gate.key), gate.effect.clone()), Verdict { gate, state });
    }

    /// Which keys and effects have a verdict.
    fn concluded(&self) -> BTreeSet<(Text, Effect)> {
        self.verdicts.keys().cloned().collect()
    }

    fn remove_taint(&mut self, key: &str, effect: &Effect) {
        self.taints.retain(|taint| !taint.is(key, effect));
    }

    fn annotate(&mut self, key: &str, value: Option<&str>) {
        if self.node.annotations.get(key).map(|value| &**value) != value {
            self.edit.annotations.insert(key.to_owned(), value.map(str::to_owned));
        }
    }

    fn wake_at(&mut self, at: Option<Timestamp>) {
        self.wake_at = self.wake_at.into_iter().chain(at).min();
    }

    /// Whether a taint may be added to a node that pods are scheduled to.
    fn room(&self) -> Room {
        if self.held { Room::Free } else { self.with.room }
    }
}

#[cfg(test)]
mod tests;
