//! Waiting for events with a deadline.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long to wait for an event. Only a safety net: a healthy machine needs a fraction of it.
const PATIENCE: Duration = Duration::from_secs(120);
/// The factor for a machine with an emulated processor.
const SLOWER: &str = "KEELET_SLOWER";

/// How long to wait on this machine.
pub fn patience() -> Duration {
    let slower = std::env::var(SLOWER).ok().and_then(|times| times.parse::<u32>().ok());
    PATIENCE.saturating_mul(slower.unwrap_or(1))
}

/// The polling interval.
const GLANCE: Duration = Duration::from_millis(50);

/// Polls until the check succeeds, and fails with its last error at the deadline.
pub async fn eventually<T, W: std::fmt::Display>(what: &str, mut look: impl AsyncFnMut() -> Result<T, W>) -> T {
    let until = Instant::now() + patience();
    loop {
        match look().await {
            Ok(seen) => return seen,
            Err(instead) => assert!(Instant::now() < until, "waited for {what}, but: {instead}"),
        }
        sleep(GLANCE).await;
    }
}
