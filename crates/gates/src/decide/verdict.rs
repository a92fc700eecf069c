//! What is true of a gate, and why. Sentences are made in [`crate::words`].

use jiff::Timestamp;

use super::evidence::Unmet;
use crate::node::{Effect, Text};

/// A gate and what is true of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The gate.
    pub gate: Gate,
    /// What is true of it.
    pub state: State,
}

/// A gate: a taint, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The key of its taint.
    pub key: Text,
    /// The effect of its taint.
    pub effect: Effect,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a gate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A taint that the node was registered with: it waits for the condition of its name.
    Taint,
    /// Rules that select the node; usually one.
    Rules(Vec<RuleName>),
}

/// A rule by name and UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleName {
    /// Its name.
    pub name: Text,
    /// Its UID.
    pub uid: Text,
}

/// What is true of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The taint is removed now.
    Passes(Pass),
    /// The conditions hold and there is no taint; that is written down now (PEER-12).
    Completes,
    /// There is no taint, and none is needed.
    Open,
    /// The taint stays until the conditions hold.
    Waits {
        /// What is missing.
        unmet: Vec<Unmet>,
        /// Whether the controller itself added the taint, and how.
        added: Option<Budget>,
    },
    /// The taint is added now.
    Returns {
        /// What is missing.
        unmet: Vec<Unmet>,
        /// Whether the node counts towards `--max-held` from now on.
        budget: Budget,
    },
    /// The taint should be added, and is not: too many nodes are held already.
    Refused {
        /// What is missing.
        unmet: Vec<Unmet>,
        /// How many nodes are held, of how many.
        held: Held,
    },
    /// The taint should be added, and is not yet: a new leader counts first how many nodes are held.
    Counting {
        /// What is missing.
        unmet: Vec<Unmet>,
    },
    /// The gate has passed, and the taint was added afterwards by someone else: it is left alone (VEC-70).
    SetByHand {
        /// When the gate passed.
        passed: Timestamp,
    },
    /// The taint has a gate's prefix and is not handled.
    Left(Left),
}

/// How a gate passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// On what grounds.
    pub how: How,
    /// Since when its conditions hold: the latest transition. None if no condition is the ground.
    pub since: Option<Timestamp>,
    /// The conditions that hold, by type.
    pub conditions: Vec<Text>,
}

/// On what grounds a taint is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Its conditions hold.
    Met,
    /// Its conditions hold, and an annotation without a record of ours claimed so before: another controller stopped half-way (GN-2).
    Repaired,
    /// Its conditions hold again.
    Released,
    /// Its rule is being deleted (PEER-17).
    RuleDeleted,
    /// Its rule, which selected the node, does not exist any more.
    RuleGone,
    /// Its rule does not select the node any more (GN-8).
    NotSelected,
}

/// Whether a taint that the controller adds counts towards `--max-held`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// It does: pods were scheduled to the node before.
    Counted,
    /// It does not: the node is new.
    Free,
}

/// How many nodes are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// So many are.
    pub nodes: usize,
    /// So many may be.
    pub allowed: usize,
}

/// Why a taint with a gate's prefix is not handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Its effect is not NoSchedule (CTRL-8).
    Effect,
    /// Its name is empty or cannot be a name (CTRL-9).
    Name,
    /// It was added for a rule, and rules are switched off.
    RulesOff,
    /// It was added for a rule that is only tried now.
    DryRun,
    /// A rule is about it that is only tried, or cannot be enforced: what its conditions are is not known.
    Claimed,
    /// A record says that it was added for a rule which does not ask for it now, and this process never saw that rule select the node. The
    /// node may have written the record.
    RuleUnknown,
    /// It was added for a rule that is not seen any more; the API server has not confirmed yet that it is gone.
    RuleMissing,
}

// === impl State ===

impl State {
    /// Whether the taint is on the node, or is being added.
    pub fn blocks(&self) -> bool {
        match self {
            Self::Waits { .. } | Self::Returns { .. } | Self::SetByHand { .. } | Self::Left(_) => true,
            Self::Passes(_) | Self::Completes | Self::Open | Self::Refused { .. } | Self::Counting { .. } => false,
        }
    }
}
