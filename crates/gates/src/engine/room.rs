//! How many nodes are held, and whether one more may be.

use std::mem;

use super::{Engine, Mode, Now, Text, Work};
use crate::{
    decide,
    rule::Rule,
    settings::{Enforcement, Room},
};

/// Whether a leader knows how many nodes are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// It does not.
    Unknown,
    /// It will after the first list that has a higher number.
    After(u64),
    /// It does.
    Known,
}

// === impl Engine ===

impl Engine {
    /// Whether all nodes have to be listed anew: how many are held matters, and a leader knows it only from a list that was begun after it
    /// took the lease. What it followed before may be as old as a watch that is dead and not yet noticed.
    pub fn wants_count(&self) -> bool {
        let holds =
            self.settings.enforcement == Enforcement::Continuous || self.rules.list.values().any(Rule::is_enforced);
        self.leads && self.count == Count::Unknown && holds && self.mode == Mode::Act
    }

    /// Nodes will be listed anew, by requests that are made from now on.
    pub fn count_anew(&mut self) {
        self.count = Count::After(self.list);
    }

    /// A list has ended.
    pub(super) fn counted(&mut self, now: Now) {
        if matches!(self.count, Count::After(list) if list < self.list) {
            self.count = Count::Known;
            // A rule that is being deleted waits for it.
            self.upkeep.nodes_changed();
            for name in mem::take(&mut self.refused) {
                self.look_at(&name, now);
            }
        }
    }

    /// Whether this node may be held.
    pub(super) fn room(&self, name: &Text) -> Room {
        if self.count != Count::Known && self.mode == Mode::Act {
            return Room::Unknown;
        }
        // A node whose patch may have been applied has its room already: it does not stand in its own way.
        let others = self.held.len() - usize::from(self.held.contains(name));
        self.settings.max_held.room(others, self.nodes.len())
    }

    /// Queues what has waited for room.
    pub(super) fn wake_for_room(&mut self) {
        if self.count != Count::Known && self.mode == Mode::Act {
            return;
        }
        let room = self.settings.max_held.of(self.nodes.len()).saturating_sub(self.held.len());
        let waiting: Vec<_> = self.refused.iter().take(room).cloned().collect();
        for name in waiting {
            self.refused.remove(&name);
            let Some(entry) = self.nodes.get_mut(&name) else { continue };
            if matches!(entry.work, Work::Idle | Work::Sleeping(_)) {
                entry.work = Work::Queued;
                self.queue.push_back(name);
            }
        }
    }

    pub(super) fn count_held(&mut self, name: &Text) {
        let Some(entry) = self.nodes.get(name) else { return };
        // While a patch that adds a taint is under way, its room is taken.
        if decide::is_held(&entry.node) {
            self.held.insert(Text::clone(name));
        } else if !matches!(entry.work, Work::Calling(_, Some(_))) && entry.unsure.is_none() {
            self.held.remove(name);
        }
    }
}
