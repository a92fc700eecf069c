//! An API server in trouble is asked less.

use std::time::Duration;

use crate::election::Instant;

/// How the API server has answered lately.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Failures in a row.
    failures: u32,
    /// No request before this.
    until: Instant,
    /// The same, as the API server asked. Only time ends it: answers to requests that were under way say nothing about it.
    asked_until: Instant,
}

/// The longest pause: short beside what a person waits for after an outage.
const LONGEST: Duration = Duration::from_secs(5);

/// The longest time that an API server can ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

// === impl Trouble ===

impl Trouble {
    /// How many requests may be under way: one, as long as none succeeds.
    pub(super) fn limit(&self, usual: usize) -> usize {
        if self.failures == 0 { usual } else { 1 }
    }

    pub(super) fn until(&self) -> Instant {
        self.until.max(self.asked_until)
    }

    pub(super) fn over(&mut self) {
        (self.failures, self.until) = (0, Instant::ZERO);
    }

    /// A request failed. Requests that were under way together fail together, and count once.
    pub(super) fn failed(&mut self, now: Instant) {
        if now < self.until() {
            return;
        }
        let pause = Duration::from_millis(100) * 2_u32.pow(self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        self.until = now + pause.min(LONGEST);
    }

    /// The API server asked for a pause.
    pub(super) fn throttled(&mut self, now: Instant, after: Option<Duration>) {
        let after = after.unwrap_or(Duration::from_secs(1)).min(LONGEST_ASKED);
        self.failures = self.failures.max(1);
        self.asked_until = self.asked_until.max(now + after);
    }
}
