//! Which node is looked at next.

use std::time::Duration;

use super::{Engine, Entry, Now, Origin, Text, Work};
use crate::election::Instant;

/// A list or a read was asked for this long ago at most. One that is older than what was known before then is of an API server that was
/// restored from a backup.
const LONGEST_READ: Duration = Duration::from_secs(30);

/// A node that changes again and again without so long a pause between is looked at that often.
const QUIET: Duration = Duration::from_secs(1);

/// How often a node is looked at in a row before that: a node that starts changes a few times within a second.
const HURRY: u32 = 8;

// === impl Engine ===

impl Engine {
    pub(super) fn look_at_all(&mut self, now: Now) {
        let names: Vec<_> = self.nodes.keys().cloned().collect();
        for name in names {
            self.look_at(&name, now);
        }
    }

    pub(super) fn look_at(&mut self, name: &Text, now: Now) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let waits = match entry.work {
            Work::Idle => true,
            Work::Sleeping(at) => self.later.remove(&(at, Text::clone(name))),
            // What the API server refused it may take now.
            Work::BackingOff(at) if entry.refused => {
                entry.tries = 0;
                self.later.remove(&(at, Text::clone(name)))
            }
            Work::BackingOff(_) | Work::Spaced(_) | Work::Queued | Work::Calling(..) => false,
        };
        if waits {
            entry.changed = now.at;
            entry.work = Work::Idle;
            if let Some(at) = entry.pace(now.at).filter(|_| self.leads) {
                entry.work = Work::Spaced(at);
                self.later.insert((at, Text::clone(name)));
            } else if self.leads {
                entry.work = Work::Queued;
                self.queue.push_back(Text::clone(name));
            }
        }
        self.show();
    }

    /// Queues what has waited for its time, and what has waited for room.
    pub(super) fn wake(&mut self, now: Instant) {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            let Some((at, name)) = self.later.pop_first() else { break };
            let Some(entry) = self.nodes.get_mut(&name) else { continue };
            if matches!(entry.work, Work::Sleeping(until) | Work::BackingOff(until) | Work::Spaced(until) if until == at)
            {
                entry.work = Work::Queued;
                self.queue.push_back(name);
            }
        }
        self.wake_for_room();
    }
}

// === impl Entry ===

impl Entry {
    /// Whether an older version than the known one is what the API server has now: it was restored from a backup.
    pub(super) fn is_restored(&self, origin: Origin, now: Instant) -> bool {
        origin == Origin::Newest && now.saturating_sub(self.updated) > LONGEST_READ
    }

    /// Until when it has to wait because it changes all the time: one node must not take the turns of the others.
    fn pace(&mut self, now: Instant) -> Option<Instant> {
        self.hurry = if now.saturating_sub(self.looked) < QUIET { self.hurry.saturating_add(1) } else { 0 };
        let at = if self.hurry > HURRY { self.looked.max(now) + QUIET } else { now };
        self.looked = now;
        (at > now).then_some(at)
    }
}
