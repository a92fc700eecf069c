//! A thread with a runtime of its own, for what must never hold up the thread that plans pods.

use std::{future::Future, io, thread};

use tokio::{
    runtime,
    sync::{oneshot, watch},
};

/// A thread that works on one future. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct OwnThread {
    /// Dropped to stop the thread.
    _stop: oneshot::Sender<()>,
    /// Closed once the thread has ended.
    alive: watch::Receiver<()>,
}

// === impl OwnThread ===

impl OwnThread {
    /// Starts a thread of that name.
    pub(crate) fn start<F>(name: &str, work: impl FnOnce() -> F + Send + 'static) -> io::Result<Self>
    where
        F: Future<Output = ()>,
    {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (lives, alive) = watch::channel(());
        let run = move || {
            // Dropped with the thread, also by a panic.
            let _lives = lives;
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = stopped => {}
                    () = work() => {}
                }
            });
            // A disk that does not answer must not delay the end.
            runtime.shutdown_background();
        };
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { _stop: stop, alive })
    }

    /// Resolves once the thread has ended: its work is done, or has panicked.
    pub(crate) async fn ended(&self) {
        let mut alive = self.alive.clone();
        while alive.changed().await.is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_thread_that_panics_has_ended() {
        let thread = OwnThread::start("panics", || async { panic!("for the test") }).unwrap();
        thread.ended().await;
        let thread = OwnThread::start("done", || async {}).unwrap();
        thread.ended().await;
    }

    #[tokio::test]
    async fn a_thread_works_until_it_is_dropped() {
        let (sender, mut dropped) = mpsc::channel::<()>(1);
        let thread = OwnThread::start("works", || async move {
            let _sender = sender;
            pending::<()>().await;
        })
        .unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(50), thread.ended()).await.is_err(), "it works");
        drop(thread);
        assert_eq!(dropped.recv().await, None, "what it worked on is dropped");
    }
}
