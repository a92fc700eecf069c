//! Time in the simulation: the server's wall clock, and clients' clocks that differ from it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The server's wall clock. It follows tokio's time, which tests pause.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    /// The wall clock when the simulation began.
    wall: Timestamp,
}

/// Seconds since 1970 when a simulation begins, as in the simulation of the agent: in January 2027.
const BEGINNING: i64 = 1_800_000_000;

// === impl Clock ===

impl Clock {
    /// Begins now. To be called inside of a tokio runtime.
    pub fn start() -> Self {
        let wall = Timestamp::from_second(BEGINNING).unwrap_or(Timestamp::UNIX_EPOCH);
        Self { began: Instant::now(), wall }
    }

    /// Since the beginning.
    pub fn elapsed(&self) -> Duration {
        Instant::now() - self.began
    }

    /// The server's wall clock.
    pub fn now(&self) -> Timestamp {
        self.at(self.elapsed())
    }

    /// The server's wall clock so long after the beginning.
    pub fn at(&self, elapsed: Duration) -> Timestamp {
        let elapsed = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX);
        self.wall.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

/// A time as objects have it: whole seconds.
pub(crate) fn printed(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_simulated_time() {
        let clock = Clock::start();
        tokio::time::sleep(Duration::from_millis(3_600_500)).await;
        assert_eq!(clock.elapsed(), Duration::from_millis(3_600_500));
        assert_eq!(printed(clock.now()), "2027-01-15T09:00:00Z");
    }
}
