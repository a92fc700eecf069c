//! Which pod gets a permit. Pure: no clock, no waiting, no lock.
//!
//! A node makes a limited number of attempts at a time. The limit protects the node; these rules protect pods from each
//! other:
//!
//! - A pod holds at most a quarter of the permits, and has at most that many attempts in progress.
//! - A quarter of the permits is a reserve: a pod that holds a permit cannot take one of the reserve. So a few pods at
//!   their caps cannot take everything.
//! - A free permit goes to the waiting pod that holds the fewest; of equals, to the one that has waited longest.
//! - An attempt may return its permit and continue. It still counts as one of its pod's attempts.

use std::collections::{BTreeMap, VecDeque};

/// A pod's cap and the reserve are this fraction of the limit: three pods at their caps leave the reserve whole, and a
/// pod of sixteen probes never waits at the default limit of 64.
const FRACTION: usize = 4;

/// A waiting attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// The answer to a request for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The pod has a permit.
    Granted,
    /// A later step grants this ticket, unless it is withdrawn.
    Waits(Ticket),
}

/// All permits of one kind on a node.
#[derive(Debug)]
pub(super) struct Fair {
    limit: usize,
    /// Permits in use.
    taken: usize,
    /// Tickets in all queues.
    waiting: usize,
    next: u64,
    /// Pods with an attempt in progress or waiting, by UID.
    pods: BTreeMap<String, Share>,
}

/// The state of one pod.
#[derive(Debug, Default)]
struct Share {
    /// Attempts in progress, with and without a permit.
    under_way: usize,
    /// Attempts with a permit.
    held: usize,
    /// Waiting attempts, in the order of their requests.
    queue: VecDeque<Ticket>,
}

// === impl Fair ===

impl Fair {
    /// At least one permit.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), taken: 0, waiting: 0, next: 0, pods: BTreeMap::new() }
    }

    /// Requests a permit for an attempt of this pod.
    pub(super) fn ask(&mut self, pod: &str) -> Asked {
        if !self.pods.contains_key(pod) {
            self.pods.insert(pod.to_owned(), Share::default());
        }
        let (limit, free) = (self.limit, self.free());
        let Some(share) = self.pods.get_mut(pod) else { unreachable!("it was just inserted") };
        // A waiting attempt that may have a permit has got it already, so this one overtakes none.
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

    /// Withdraws the request of a waiting attempt.
    pub(super) fn withdraw(&mut self, pod: &str, ticket: Ticket) {
        if let Some(share) = self.pods.get_mut(pod) {
            let before = share.queue.len();
            share.queue.retain(|other| *other != ticket);
            self.waiting -= before - share.queue.len();
            self.forget(pod);
        }
    }

    /// An attempt of this pod continues without its permit. Returns the tickets that are granted now.
    pub(super) fn give_back(&mut self, pod: &str) -> Vec<Ticket> {
        if let Some(share) = self.pods.get_mut(pod) {
            share.held -= 1;
            self.taken -= 1;
        }
        self.grant()
    }

    /// An attempt of this pod has ended, with or without its permit. Returns the tickets that are granted now.
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

    /// Grants permits until no waiting attempt may have one.
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

/// The cap on attempts in progress of one pod.
fn cap(limit: usize) -> usize {
    (limit / FRACTION).max(1)
}

#[cfg(test)]
mod tests;
