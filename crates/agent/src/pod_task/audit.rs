//! When a pod is observed in the runtime: when a hint asks for it, and now and then in case no hint came.

use std::time::Duration;

use tokio::time::Instant;

/// After an operation the runtime is likely to change, so a lost event costs a second at most.
const BUSY: Duration = Duration::from_secs(10);
const WHILE_BUSY: Duration = Duration::from_secs(1);
const AT_REST: Duration = Duration::from_secs(30);
/// The audits of a node's pods are spread by up to a fifth of their period.
const SPREAD: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Keeps the times of the observations.
#[derive(Debug)]
pub(crate) struct Audit {
    wanted: bool,
    /// No observation before this moment: the one before failed.
    pause_until: Option<Instant>,
    pause: Duration,
    /// Observations that failed since one succeeded.
    failures: u32,
    /// Operations that had ended when the newest failed observation began.
    failed_at: Option<u64>,
    next: Option<Instant>,
    last_activity: Option<Instant>,
    /// Between 0 and 1 in 1/256, from the pod's UID: a node's pods are not all observed at once.
    phase: u8,
}

// === impl Audit ===

impl Audit {
    pub(crate) fn new(uid: &str) -> Self {
        let phase = uid.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
        Self {
            wanted: true,
            pause_until: None,
            pause: FIRST_PAUSE,
            failures: 0,
            failed_at: None,
            next: None,
            last_activity: None,
            phase,
        }
    }

    /// Asks for an observation if another task has seen something.
    pub(crate) fn want(&mut self, wanted: bool) {
        self.wanted |= wanted;
    }

    pub(crate) fn note_activity(&mut self, now: Instant) {
        self.last_activity = Some(now);
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let audit = self.next.is_some_and(|next| now >= next);
        (self.wanted || audit) && self.pause_until.is_none_or(|until| now >= until)
    }

    pub(crate) fn begun(&mut self) {
        self.wanted = false;
        self.next = None;
    }

    pub(crate) fn succeeded(&mut self, now: Instant) {
        self.pause_until = None;
        self.pause = FIRST_PAUSE;
        self.failures = 0;
        self.failed_at = None;
        let busy = self.last_activity.is_some_and(|at| now < at + BUSY);
        let period = if busy { WHILE_BUSY } else { AT_REST };
        self.next = Some(now + period + period / SPREAD * u32::from(self.phase) / 256);
    }

    /// An observation that began at that count failed. True if it is the first in a row, and worth a word.
    pub(crate) fn failed(&mut self, now: Instant, began: u64) -> bool {
        self.wanted = true;
        self.pause_until = Some(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.failed_at = Some(began);
        self.failures += 1;
        self.failures == 1
    }

    /// Whether an observation failed that began after that many operations had ended, and none has succeeded since.
    pub(crate) fn has_failed_since(&self, ended: u64) -> bool {
        self.failed_at.is_some_and(|failed_at| ended <= failed_at)
    }

    /// When to observe again if no hint comes.
    pub(crate) fn next(&self) -> Option<Instant> {
        let wanted = if self.wanted { self.pause_until } else { self.next };
        wanted.max(self.pause_until)
    }
}

#[cfg(test)]
mod tests {
    use super::{AT_REST, Audit, BUSY, FIRST_PAUSE, WHILE_BUSY};
    use tokio::time::{Duration, Instant};

    /// SYNC-7.
    #[test]
    fn a_pod_is_looked_at_often_after_an_operation_and_rarely_at_rest() {
        let now = Instant::now();
        let mut audit = Audit::new("");
        audit.note_activity(now);
        audit.begun();
        audit.succeeded(now);
        assert_eq!(audit.next(), Some(now + WHILE_BUSY));
        let later = now + BUSY;
        audit.begun();
        audit.succeeded(later);
        assert_eq!(audit.next(), Some(later + AT_REST));
        assert!(!audit.is_due(later));
        assert!(audit.is_due(later + AT_REST));
    }

    #[test]
    fn the_audits_of_pods_are_spread() {
        let now = Instant::now();
        let next = |uid: &str| {
            let mut audit = Audit::new(uid);
            audit.begun();
            audit.succeeded(now);
            audit.next()
        };
        assert_ne!(next("a"), next("b"));
        assert!(next("zzz") < Some(now + AT_REST + AT_REST / 5));
    }

    /// SYNC-3.
    #[test]
    fn a_runtime_that_does_not_answer_is_asked_less_and_less_and_hints_do_not_hurry_it() {
        let now = Instant::now();
        let mut audit = Audit::new("");
        assert!(audit.is_due(now));
        audit.begun();
        assert!(audit.failed(now, 3), "the first is worth a word");
        assert!(audit.is_due(now + FIRST_PAUSE), "it is asked again without a hint");
        assert_eq!(audit.next(), Some(now + FIRST_PAUSE));
        audit.want(true);
        assert!(!audit.is_due(now));
        assert!(audit.is_due(now + FIRST_PAUSE));
        assert!(audit.has_failed_since(3));
        assert!(!audit.has_failed_since(4));
        assert!(!audit.failed(now, 3), "the second is not");
        assert!(!audit.is_due(now + FIRST_PAUSE));
        for _ in 0..10 {
            audit.failed(now, 3);
        }
        assert_eq!(audit.next(), Some(now + Duration::from_secs(5)));
    }
}
