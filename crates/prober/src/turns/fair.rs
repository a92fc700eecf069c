//! Which pod gets a turn. Pure: no clock, no waiting, no lock.
//!
//! A node makes a limited number of attempts at a time. The limit protects the node; the rules here protect pods from
//! each other:
//!
//! - A pod has at most a quarter of the turns, and at most that many attempts under way.
//! - A quarter of the turns is a reserve: a pod that holds a turn cannot take one of them. So a few pods cannot take
//!   everything, each up to its share.
//! - A free turn goes to the waiting pod that holds the fewest; of equals, to the one that has waited longest.
//! - An attempt may give its turn back and go on. It still counts as one of its pod's attempts.

use std::collections::{BTreeMap, VecDeque};

/// One pod's part of the turns, and the reserve, are this fraction of the limit: three pods at their cap leave the reserve
/// whole, and a pod of sixteen probes is never held up at the default limit of 64.
const FRACTION: usize = 4;

/// An attempt that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// What came of asking for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It is the pod's turn.
    Granted,
    /// A later step grants this ticket, unless it is withdrawn.
    Waits(Ticket),
}

/// All turns of one kind on a node.
#[derive(Debug)]
pub(super) struct Fair {
    limit: usize,
    /// Turns that are held.
    taken: usize,
    /// Tickets in all queues.
    waiting: usize,
    next: u64,
    /// Pods that have an attempt under way or waiting, by UID.
    pods: BTreeMap<String, Share>,
}

/// What one pod has.
#[derive(Debug, Default)]
struct Share {
    /// Attempts under way, with and without a turn.
    under_way: usize,
    /// Those with a turn.
    held: usize,
    /// Attempts that wait, in the order in which they asked.
    queue: VecDeque<Ticket>,
}

// === impl Fair ===

impl Fair {
    /// So many turns, one at least.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), taken: 0, waiting: 0, next: 0, pods: BTreeMap::new() }
    }

    /// An attempt of this pod asks for a turn.
    pub(super) fn ask(&mut self, pod: &str) -> Asked {
        if !self.pods.contains_key(pod) {
            self.pods.insert(pod.to_owned(), Share::default());
        }
        let (limit, free) = (self.limit, self.free());
        let Some(share) = self.pods.get_mut(pod) else { unreachable!("it was just entered") };
        // A waiting attempt that may have a turn has got it already, so this one overtakes none.
        if share.queue.is_empty() && share.may_have_one(limit, free) {
            share.grant();
            self.taken += 1;
            return Asked::Granted;
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        share.queue.push_back(ticket);
        self.waiting += 1;
        Asked::Waits(ticket)
    }

    /// A waiting attempt gives up.
    pub(super) fn withdraw(&mut self, pod: &str, ticket: Ticket) {
        if let Some(share) = self.pods.get_mut(pod) {
            let before = share.queue.len();
            share.queue.retain(|other| *other != ticket);
            self.waiting -= before - share.queue.len();
            self.forget(pod);
        }
    }

    /// An attempt of this pod goes on without its turn. Yields the tickets that are granted now.
    pub(super) fn give_back(&mut self, pod: &str) -> Vec<Ticket> {
        if let Some(share) = self.pods.get_mut(pod) {
            share.held -= 1;
            self.taken -= 1;
        }
        self.grant()
    }

    /// An attempt of this pod has ended, with its turn or without it. Yields the tickets that are granted now.
    pub(super) fn end(&mut self, pod: &str, held: bool) -> Vec<Ticket> {
        if let Some(share) = self.pods.get_mut(pod) {
            share.under_way -= 1;
            share.held -= usize::from(held);
            self.taken -= usize::from(held);
            self.forget(pod);
        }
        self.grant()
    }

    fn free(&self) -> usize {
        self.limit - self.taken
    }

    fn forget(&mut self, pod: &str) {
        if self.pods.get(pod).is_some_and(|share| share.under_way == 0 && share.queue.is_empty()) {
            self.pods.remove(pod);
        }
    }

    /// Hands out turns until there is none that a waiting attempt may have.
    fn grant(&mut self) -> Vec<Ticket> {
        let mut granted = Vec::new();
        while self.waiting > 0 {
            let (limit, free) = (self.limit, self.free());
            let waiting = self.pods.values_mut().filter_map(|share| {
                let first = *share.queue.front()?;
                share.may_have_one(limit, free).then_some((first, share))
            });
            let Some((ticket, share)) = waiting.min_by_key(|(first, share)| (share.held, *first)) else { break };
            share.queue.pop_front();
            share.grant();
            self.taken += 1;
            self.waiting -= 1;
            granted.push(ticket);
        }
        granted
    }
}

// === impl Share ===

impl Share {
    fn may_have_one(&self, limit: usize, free: usize) -> bool {
        let kept_for_others = if self.held == 0 { 0 } else { limit / FRACTION };
        self.under_way < cap(limit) && free > kept_for_others
    }

    fn grant(&mut self) {
        self.under_way += 1;
        self.held += 1;
    }
}

/// The most attempts that a pod may have under way.
fn cap(limit: usize) -> usize {
    (limit / FRACTION).max(1)
}

#[cfg(test)]
mod tests;
