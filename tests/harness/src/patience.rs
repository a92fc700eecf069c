//! Waiting for what has to happen.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long to wait for something that has to happen. Only a net: a healthy machine needs a fraction of it.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many times that, on a machine whose processor is a program.
const SLOWER: &str = "KEELET_SLOWER";

/// How long to wait on this machine.
fn patience() -> Duration {
    let slower = std::env::var(SLOWER).ok().and_then(|times| times.parse::<u32>().ok());
    PATIENCE.saturating_mul(slower.unwrap_or(1))
}

/// How often to look.
const GLANCE: Duration = Duration::from_millis(50);

/// Looks until there is something to see, and fails with what was seen last if that never happens.
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
