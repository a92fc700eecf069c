//! Whether a pull still makes progress.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// When data last arrived from a host, and the limit of silence.
pub(super) struct Pulse {
    last: Mutex<Instant>,
    patience: Duration,
}

/// No data arrived within the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stalled(pub(super) Duration);

// === impl Pulse ===

impl Pulse {
    pub(super) fn new(patience: Duration) -> Self {
        Self { last: Mutex::new(Instant::now()), patience }
    }

    /// Records that data arrived.
    pub(super) fn beat(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn due(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) + self.patience
    }

    /// Waits for a host, and gives up when no data arrives any more. A slow host is fine as long as bytes arrive.
    pub(super) async fn watch<T>(&self, work: impl Future<Output = T>) -> Result<T, Stalled> {
        self.beat();
        let mut work = std::pin::pin!(work);
        loop {
            match tokio::time::timeout_at(self.due(), work.as_mut()).await {
                Ok(done) => return Ok(done),
                Err(_) if self.due() <= Instant::now() => return Err(Stalled(self.patience)),
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// IMG-3
    #[tokio::test(start_paused = true)]
    async fn data_within_a_minute_keeps_a_pull_going_and_silence_ends_it() {
        let pulse = Pulse::new(MINUTE);
        let slow = pulse.watch(async {
            for _ in 0..10 {
                tokio::time::sleep(MINUTE - Duration::from_secs(1)).await;
                pulse.beat();
            }
            "done"
        });
        assert_eq!(slow.await, Ok("done"), "ten minutes, but never a whole one without progress");
        let began = Instant::now();
        let silent = pulse.watch(async {
            tokio::time::sleep(MINUTE / 2).await;
            pulse.beat();
            std::future::pending::<()>().await;
        });
        assert_eq!(silent.await, Err(Stalled(MINUTE)));
        assert_eq!(began.elapsed().as_secs(), 90, "the minute begins with the last progress");
    }
}
