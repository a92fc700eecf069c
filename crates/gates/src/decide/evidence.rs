//! What the conditions of a node say about a gate.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use keelet_pod::gate::{Meant, meant};

use crate::{
    node::{Condition, Node, Status, Text},
    rule::Requirement,
};

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// The type that was looked for: of a rule, or the name of a gate.
    pub wanted: Text,
    /// The status it has to have.
    pub required: Status,
    /// What was found.
    pub found: Evidence,
}

/// What was found of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The node has no such condition.
    Absent {
        /// The status that a rule assumes then.
        assumed: Status,
    },
    /// The node has it.
    Is {
        /// Its full type.
        kind: Text,
        /// Its status.
        status: Status,
        /// Its reason.
        reason: Text,
        /// Since when.
        since: Option<Timestamp>,
    },
    /// Its reporter has been silent for too long, or never said when it reported: Unknown (GN-4).
    Stale {
        /// Its full type.
        kind: Text,
        /// The status that was reported.
        status: Status,
        /// When it was reported last.
        heartbeat: Option<Timestamp>,
    },
    /// Several conditions could be meant (GATE-22).
    Ambiguous {
        /// Their types.
        kinds: Vec<Text>,
    },
}

/// A condition, judged.
pub(super) struct Judged {
    pub(super) evidence: Evidence,
    /// When it becomes too old.
    pub(super) until: Option<Timestamp>,
}

/// The conditions of a node by what follows the last slash of their types. A node has hundreds of gates and thousands of conditions if it
/// likes, and each gate asks for one name.
pub(super) struct Conditions<'a>(BTreeMap<&'a str, Vec<&'a Condition>>);

/// The condition of a gate: the one of its name, else the only one that ends in a slash and its name (GATE-22).
pub(super) fn of_gate(found: &Conditions<'_>, name: &str, max_age: Option<SignedDuration>, now: Timestamp) -> Judged {
    match meant(found.of(name), name, |condition| &*condition.kind) {
        Meant::None => Judged { evidence: Evidence::Absent { assumed: Status::Unknown }, until: None },
        Meant::One(condition) => judge(condition, max_age, now),
        Meant::Several(several) => {
            let mut kinds: Vec<_> = several.iter().map(|condition| Text::clone(&condition.kind)).collect();
            kinds.sort();
            Judged { evidence: Evidence::Ambiguous { kinds }, until: None }
        }
    }
}

/// The condition that a rule needs: the one of exactly this type.
pub(super) fn of_rule(
    found: &Conditions<'_>,
    need: &Requirement,
    max_age: Option<SignedDuration>,
    now: Timestamp,
) -> Judged {
    match found.of(&need.kind).find(|condition| condition.kind == need.kind) {
        Some(condition) => judge(condition, max_age, now),
        None => Judged { evidence: Evidence::Absent { assumed: need.default }, until: None },
    }
}

fn judge(condition: &Condition, max_age: Option<SignedDuration>, now: Timestamp) -> Judged {
    let kind = Text::clone(&condition.kind);
    // A heartbeat from the future is one of a fast clock: it is fresh.
    let until = max_age.map(|age| condition.heartbeat.and_then(|heartbeat| heartbeat.checked_add(age).ok()));
    if until.is_some_and(|until| until.is_none_or(|until| until < now)) {
        let evidence = Evidence::Stale { kind, status: condition.status, heartbeat: condition.heartbeat };
        return Judged { evidence, until: None };
    }
    let (status, reason, since) = (condition.status, Text::clone(&condition.reason), condition.transition);
    // One step later than the last moment at which it is fresh, so that the decision made then finds it stale.
    let until = until.flatten().and_then(|until| until.checked_add(SignedDuration::from_nanos(1)).ok());
    Judged { evidence: Evidence::Is { kind, status, reason, since }, until }
}

// === impl Conditions ===

impl<'a> Conditions<'a> {
    pub(super) fn of_node(node: &'a Node) -> Self {
        let mut by_name: BTreeMap<&str, Vec<&Condition>> = BTreeMap::new();
        for condition in &node.conditions {
            by_name.entry(last(&condition.kind)).or_default().push(condition);
        }
        Self(by_name)
    }

    /// Those whose types end like this one.
    fn of(&self, kind: &str) -> impl Iterator<Item = &'a Condition> + Clone + use<'a, '_> {
        self.0.get(last(kind)).into_iter().flatten().copied()
    }
}

fn last(kind: &str) -> &str {
    kind.rsplit_once('/').map_or(kind, |(_, name)| name)
}

// === impl Evidence ===

impl Evidence {
    /// The status that it amounts to.
    pub fn status(&self) -> Status {
        match self {
            Self::Is { status, .. } => *status,
            Self::Absent { assumed } => *assumed,
            Self::Stale { .. } | Self::Ambiguous { .. } => Status::Unknown,
        }
    }

    /// Since when it is so, if the condition is the ground.
    pub fn since(&self) -> Option<Timestamp> {
        if let Self::Is { since, .. } = self { *since } else { None }
    }

    /// The full type of the condition, if it is there.
    pub fn kind(&self) -> Option<&Text> {
        match self {
            Self::Is { kind, .. } | Self::Stale { kind, .. } => Some(kind),
            Self::Absent { .. } | Self::Ambiguous { .. } => None,
        }
    }
}
