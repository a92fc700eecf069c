//! The agent's tasks on tokio's own threads, and one thread for what blocks.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::doors::Tasks;

/// Runs tasks on the tokio runtime that is current when they are spawned, and blocking work on one thread of its own.
///
/// The ledger is the one that blocks, and it takes one batch at a time. Spread over a pool its memory would come from
/// the heap of whichever thread was free, and each of those heaps would grow to its share of everything.
#[derive(Debug)]
pub struct TokioTasks {
    blocking: mpsc::Sender<Job>,
}

struct Job {
    work: Box<dyn FnOnce() + Send>,
    /// Dropped without a word if the work panicked.
    done: oneshot::Sender<()>,
}

// === impl TokioTasks ===

impl TokioTasks {
    /// Starts the thread. It ends once these tasks are dropped and what was asked for is done.
    pub fn start() -> io::Result<Self> {
        // A caller that blocks waits for the end of its work, so a second piece of work waits with its sender.
        let (blocking, mut jobs) = mpsc::channel::<Job>(1);
        thread::Builder::new().name("ledger".to_owned()).spawn(move || {
            while let Some(Job { work, done }) = jobs.blocking_recv() {
                if catch_unwind(AssertUnwindSafe(work)).is_ok() {
                    let _ = done.send(());
                }
            }
        })?;
        Ok(Self { blocking })
    }
}

impl Tasks for TokioTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }

    fn block(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        let blocking = self.blocking.clone();
        Box::pin(async move {
            let (done, answer) = oneshot::channel();
            // The thread ends after us alone. No answer means that the work panicked; what waited for it hears nothing
            // then, and goes on.
            let _ = blocking.send(Job { work, done }).await;
            let _ = answer.await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn thread_of(tasks: &TokioTasks) -> Option<String> {
        let (tell, told) = oneshot::channel();
        let name = || thread::current().name().map(str::to_owned);
        tasks.block(Box::new(move || drop(tell.send(name())))).await;
        told.await.expect("block waits for the work")
    }

    /// All work is done on the one thread, also after some of it panicked.
    #[tokio::test]
    async fn what_blocks_has_one_thread_that_survives_a_panic() {
        let tasks = TokioTasks::start().unwrap();
        assert_eq!(thread_of(&tasks).await.as_deref(), Some("ledger"));
        tasks.block(Box::new(|| panic!("on purpose"))).await;
        assert_eq!(thread_of(&tasks).await.as_deref(), Some("ledger"));
    }
}
