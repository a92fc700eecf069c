//! Deadlines of calls.

use std::time::Duration;

/// How long the client waits for a response, by the kind of call. A runtime that hangs must not hang the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Calls that only read: versions, lists, statuses, usage. Ten seconds.
    pub query: Duration,
    /// Calls that change something: create, start and remove sandboxes and containers; stop sandboxes. Two minutes, as
    /// in the kubelet.
    pub change: Duration,
    /// Pulling an image. Thirty minutes: large images over slow lines are normal.
    pub pull: Duration,
    /// The margin on top of the time that the call itself names: the grace period of a stop, the timeout of a command.
    /// Ten seconds.
    pub margin: Duration,
}

// === impl Deadlines ===

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            query: Duration::from_secs(10),
            change: Duration::from_secs(2 * 60),
            pull: Duration::from_secs(30 * 60),
            margin: Duration::from_secs(10),
        }
    }
}

/// Whole seconds, rounded up, because CRI has no fractions. A grace period of 1.2 s must not become 1 s.
pub(crate) fn whole_seconds(duration: Duration) -> Duration {
    let more = u64::from(duration.subsec_nanos() > 0);
    Duration::from_secs(duration.as_secs().saturating_add(more))
}

/// The same in CRI's integer type.
pub(crate) fn on_the_wire(whole: Duration) -> i64 {
    i64::try_from(whole.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_of_a_second_is_rounded_up() {
        for (millis, secs) in [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (30_000, 30)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), Duration::from_secs(secs), "{millis} ms");
        }
        assert_eq!(on_the_wire(whole_seconds(Duration::MAX)), i64::MAX);
    }
}
