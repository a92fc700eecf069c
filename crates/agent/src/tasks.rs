//! The agent's tasks on tokio's own threads.

use futures::future::BoxFuture;

use crate::doors::Tasks;

/// Runs tasks on the tokio runtime that is current when they are spawned.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioTasks;

// === impl TokioTasks ===

impl Tasks for TokioTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }

    fn block(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // It fails only if the work panicked; what waited for it hears nothing then, and goes on.
            let _ = tokio::task::spawn_blocking(work).await;
        })
    }
}
