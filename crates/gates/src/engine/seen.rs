//! Which rules this process has seen select a node.
//!
//! A record on a node may say that a taint was added for a rule, and the node itself can write that. So the taint goes with its rule only
//! in a process that saw the rule select the node: the leader that added the taint, and every follower that ran then.

use super::{Engine, Text};
use crate::{
    node::Node,
    rule::{Rules, Seen},
};

// === impl Engine ===

impl Engine {
    /// Looks which rules select a node.
    pub(super) fn see(&mut self, name: &Text) {
        // Before all nodes and rules are known, labels that decide may be missing.
        if !self.is_synced() {
            return;
        }
        if let Some(entry) = self.nodes.get_mut(name) {
            see(&mut entry.seen, &entry.node, &self.rules);
        }
    }

    /// Looks which rules select each node.
    pub(super) fn see_all(&mut self) {
        if self.is_synced() {
            self.nodes.values_mut().for_each(|entry| see(&mut entry.seen, &entry.node, &self.rules));
        }
    }
}

fn see(seen: &mut Vec<Seen>, node: &Node, rules: &Rules) {
    // What a rule saw to is over when it does not select the node any more and the taint is gone.
    seen.retain(|seen| node.taint(&seen.key, &seen.effect).is_some());
    for (rule, spec) in rules.enforced(&node.labels) {
        let new = Seen { rule: Text::clone(&rule.uid), key: Text::clone(&spec.key), effect: spec.effect.clone() };
        if !seen.contains(&new) {
            seen.push(new);
        }
    }
}
