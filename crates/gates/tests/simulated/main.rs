//! The real controller under the real client, on a simulated API server in simulated time.

mod access;
mod leaders;
mod nodes;
mod random;
mod rules;
mod scale;
mod world;

use std::{future::Future, time::Duration};

use tokio::runtime::Builder;

/// Runs a test in simulated time, on one thread.
fn simulate<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
