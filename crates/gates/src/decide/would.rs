//! What a rule would do, for trying it out (PEER-7).

use jiff::{SignedDuration, Timestamp};

use super::evidence::{self, Evidence};
use crate::{
    node::Node,
    rule::{Policy, Requirement, Spec},
};

/// What a rule would do to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Would {
    /// It would add its taint.
    pub add: bool,
    /// It would remove its taint.
    pub remove: bool,
    /// The node lacks a condition that the rule needs.
    pub missing: bool,
}

/// What a rule would do to a node that it selects.
pub fn would(node: &Node, spec: &Spec, max_age: Option<SignedDuration>, now: Timestamp) -> Would {
    let conditions = evidence::Conditions::of_node(node);
    let look = |need| (need, evidence::of_rule(&conditions, need, max_age, now).evidence);
    let seen: Vec<(&Requirement, Evidence)> = spec.conditions.iter().map(look).collect();
    let mut holding = seen.iter().map(|(need, evidence)| evidence.status() == need.required);
    let met = match spec.policy {
        Policy::AllOf => holding.all(|holds| holds),
        Policy::AnyOf => holding.any(|holds| holds),
    };
    let missing = seen.iter().any(|(_, evidence)| matches!(evidence, Evidence::Absent { .. }));
    let has_taint = node.taint(&spec.key, &spec.effect).is_some();
    Would { add: !met && !has_taint, remove: met && has_taint, missing }
}
