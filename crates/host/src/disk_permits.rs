//! Work that waits for the disk, a few pieces at a time.
//!
//! All pods of a node ask for it at once when the agent starts. A thread for each would cost more memory than all that
//! the agent knows, because every thread allocates from a heap of its own and none gives its share back.

use std::{panic::resume_unwind, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

/// Pieces of work that hold a permit at once. A local disk is not faster with more.
const PERMITS: usize = 2;

/// For how long a piece of work holds its permit. What takes longer hangs on something, a dead network file system for
/// one, and must not keep other pods waiting.
const PATIENCE: Duration = Duration::from_millis(500);

/// Hands out the permits.
#[derive(Clone, Debug)]
pub(super) struct DiskPermits {
    free: Arc<Semaphore>,
}

// === impl DiskPermits ===

impl Default for DiskPermits {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(PERMITS)) }
    }
}

impl DiskPermits {
    /// Runs work that waits for the disk where it blocks no other task. Once begun the work runs to its end, even if
    /// its caller no longer waits for it.
    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> BoxFuture<'static, T> {
        let free = Arc::clone(&self.free);
        async move {
            // The semaphore is never closed; without a permit the work would only be early.
            let permit = free.acquire_owned().await;
            let mut done = spawn_blocking(work);
            let ended = match timeout(PATIENCE, &mut done).await {
                Ok(ended) => ended,
                Err(_) => {
                    drop(permit);
                    done.await
                }
            };
            match ended {
                Ok(done) => done,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => resume_unwind(panic),
                    // The runtime shuts down, and this task with it.
                    Err(_) => futures::future::pending().await,
                },
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    };

    use futures::future::join_all;

    use super::*;

    /// Paused time stands still while work is under way, so no caller's timeout expires.
    #[tokio::test(start_paused = true)]
    async fn no_more_threads_than_permits_are_needed() {
        let permits = DiskPermits::default();
        let busy = Arc::new(AtomicUsize::new(0));
        let pieces = (0..50).map(|_| {
            let busy = Arc::clone(&busy);
            permits.run(move || {
                let now = busy.fetch_add(1, Ordering::SeqCst) + 1;
                std::thread::yield_now();
                busy.fetch_sub(1, Ordering::SeqCst);
                now
            })
        });
        let most = join_all(pieces).await.into_iter().max();
        assert!(most <= Some(PERMITS), "{most:?} at once");
    }

    #[tokio::test]
    async fn work_that_hangs_delays_no_other_work() {
        let permits = DiskPermits::default();
        let barrier = Arc::new(Barrier::new(2 * PERMITS + 1));
        let pass = |barrier: Arc<Barrier>| move || barrier.wait().is_leader();
        let hanging: Vec<_> = (0..2 * PERMITS).map(|_| tokio::spawn(permits.run(pass(Arc::clone(&barrier))))).collect();
        tokio::task::yield_now().await;
        assert_eq!(permits.run(|| 7).await, 7);
        assert!(hanging.iter().all(|piece| !piece.is_finished()));
        permits.run(pass(barrier)).await;
        assert!(join_all(hanging).await.iter().all(Result::is_ok));
    }
}
