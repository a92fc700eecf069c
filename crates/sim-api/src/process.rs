//! The process of a client, which can be frozen, thawed and killed.
//!
//! A process that is killed runs no destructors and finishes nothing; one that is frozen does nothing until it is thawed,
//! and does not notice. So nothing of a process is dropped here while anything is simulated: its futures are kept and not
//! polled. Both are decided where the process meets the world: at its requests, its watches, and its futures.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio::sync::watch;

/// When a process dies by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Just before its request of that number is sent, counted from one. Only requests that write count.
    Before(u64),
    /// Just after it was carried out; the process does not see the answer.
    After(u64),
}

/// What becomes of requests that are on their way when their process dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// Chance decides for each of them.
    #[default]
    ByChance,
    /// They arrive.
    Applied,
    /// They do not.
    Lost,
}

/// A process: shared by the connections that it has.
#[derive(Clone, Debug)]
pub struct Process(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    phase: watch::Sender<Phase>,
    counts: Mutex<Counts>,
    remains: Mutex<Remains>,
}

/// What a dead process owned.
enum Remains {
    Kept(Vec<Box<dyn Send>>),
    /// Nothing is simulated any more.
    Dropped,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    Frozen,
    Dead,
}

#[derive(Debug, Default)]
struct Counts {
    writes: u64,
    death: Option<Death>,
    in_flight: InFlight,
}

/// A future of a process: polled only while the process runs, and not dropped when it dies.
pub struct Mortal<F: Send + 'static> {
    process: Process,
    phase: Pin<Box<dyn Future<Output = ()> + Send>>,
    task: Option<Pin<Box<F>>>,
}

// === impl Process ===

impl Default for Process {
    fn default() -> Self {
        Self::new()
    }
}

impl Process {
    /// A process that runs.
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            phase: watch::Sender::new(Phase::Running),
            counts: Mutex::default(),
            remains: Mutex::new(Remains::Kept(Vec::new())),
        }))
    }

    /// Ends it, as SIGKILL does.
    pub fn kill(&self) {
        self.0.phase.send_replace(Phase::Dead);
    }

    /// Stops it, as SIGSTOP does.
    pub fn freeze(&self) {
        self.0.phase.send_if_modified(|phase| {
            let runs = *phase == Phase::Running;
            if runs {
                *phase = Phase::Frozen;
            }
            runs
        });
    }

    /// Lets it go on, as SIGCONT does.
    pub fn thaw(&self) {
        self.0.phase.send_if_modified(|phase| {
            let frozen = *phase == Phase::Frozen;
            if frozen {
                *phase = Phase::Running;
            }
            frozen
        });
    }

    /// Whether it is dead.
    pub fn is_dead(&self) -> bool {
        *self.0.phase.borrow() == Phase::Dead
    }

    /// Whether it runs: neither frozen nor dead.
    pub fn is_running(&self) -> bool {
        *self.0.phase.borrow() == Phase::Running
    }

    /// Sets its death. What becomes of requests that are on their way by then is up to `in_flight`.
    pub fn die_at(&self, death: Death, in_flight: InFlight) {
        let mut counts = self.counts();
        counts.death = Some(death);
        counts.in_flight = in_flight;
    }

    /// Writes that were sent so far.
    pub fn writes(&self) -> u64 {
        self.counts().writes
    }

    /// Returns when it is dead.
    pub async fn death(&self) {
        drop(self.0.phase.subscribe().wait_for(|phase| *phase == Phase::Dead).await);
    }

    /// A future that is part of this process.
    pub fn own<F: Future + Send + 'static>(&self, task: F) -> Mortal<F> {
        Mortal { process: self.clone(), phase: self.changes(), task: Some(Box::pin(task)) }
    }

    /// Kills it if it still runs, and drops what it owned. For the end of a simulation: what a process owns refers to the
    /// world and the world to it.
    pub(crate) fn bury(&self) {
        self.kill();
        let kept = {
            let mut remains = self.0.remains.lock().unwrap_or_else(PoisonError::into_inner);
            mem::replace(&mut *remains, Remains::Dropped)
        };
        drop(kept);
    }

    fn keep(&self, owned: impl Send + 'static) {
        let mut remains = self.0.remains.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *remains {
            Remains::Kept(kept) => kept.push(Box::new(owned)),
            Remains::Dropped => {
                drop(remains);
                drop(owned);
            }
        }
    }

    /// Counts a write that is about to be sent; its number, or `None` if the process dies before.
    pub(crate) fn send_write(&self) -> Option<u64> {
        let mut counts = self.counts();
        let number = counts.writes + 1;
        if counts.death == Some(Death::Before(number)) {
            drop(counts);
            self.kill();
            return None;
        }
        counts.writes = number;
        Some(number)
    }

    /// A write was carried out.
    pub(crate) fn wrote(&self, number: u64) {
        if self.counts().death == Some(Death::After(number)) {
            self.kill();
        }
    }

    pub(crate) fn in_flight(&self) -> InFlight {
        self.counts().in_flight
    }

    /// Waits until it runs. Never returns if it is dead.
    pub(crate) async fn running(&self) {
        let mut phase = self.0.phase.subscribe();
        if phase.wait_for(|phase| *phase == Phase::Running).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when the phase changes.
    fn changes(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut phase = self.0.phase.subscribe();
        phase.mark_unchanged();
        Box::pin(async move {
            if phase.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Mortal ===

impl<F: Future + Send + 'static> Future for Mortal<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        loop {
            if this.process.is_running() {
                let Some(task) = this.task.as_mut() else { return Poll::Pending };
                let polled = task.as_mut().poll(context);
                // It may have died while it was polled: then it has not ended, whatever it says.
                if this.process.is_running() && polled.is_ready() {
                    this.task = None;
                    return polled;
                }
            }
            // To be woken when it is thawed.
            if this.phase.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.phase = this.process.changes();
        }
    }
}

impl<F: Send + 'static> Drop for Mortal<F> {
    fn drop(&mut self) {
        if let (true, Some(task)) = (self.process.is_dead(), self.task.take()) {
            self.process.keep(task);
        }
    }
}

// === impl Remains ===

impl std::fmt::Debug for Remains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Kept(_)) { "Kept" } else { "Dropped" })
    }
}

impl<F: Send + 'static> std::fmt::Debug for Mortal<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mortal").field("process", &self.process).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_frozen_process_goes_on_where_it_was() {
        let process = Process::new();
        let began = Instant::now();
        let task = tokio::spawn(process.own(async move {
            sleep(Duration::from_secs(1)).await;
            Instant::now() - began
        }));
        tokio::task::yield_now().await;
        process.freeze();
        sleep(Duration::from_secs(10)).await;
        assert!(!task.is_finished());
        process.thaw();
        assert_eq!(task.await.ok(), Some(Duration::from_secs(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_process_runs_no_destructor() {
        struct Tell(Arc<Mutex<u32>>);
        impl Drop for Tell {
            fn drop(&mut self) {
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            }
        }
        let dropped = Arc::new(Mutex::new(0));
        for (dies, expected, in_the_end) in [(true, 0, 1), (false, 2, 2)] {
            let process = Process::new();
            let tell = Tell(Arc::clone(&dropped));
            let task = tokio::spawn(process.own(async move {
                sleep(Duration::from_secs(1)).await;
                drop(tell);
            }));
            if dies {
                process.kill();
                process.thaw();
            }
            sleep(Duration::from_secs(5)).await;
            task.abort();
            drop(task.await);
            assert_eq!(*dropped.lock().unwrap_or_else(PoisonError::into_inner), expected);
            process.bury();
            assert_eq!(*dropped.lock().unwrap_or_else(PoisonError::into_inner), in_the_end);
        }
    }

    #[test]
    fn death_comes_before_or_after_a_write() {
        let process = Process::new();
        process.die_at(Death::Before(2), InFlight::Lost);
        assert_eq!((process.send_write(), process.is_dead()), (Some(1), false));
        assert_eq!((process.send_write(), process.is_dead()), (None, true));
        let process = Process::new();
        process.die_at(Death::After(1), InFlight::Lost);
        assert_eq!(process.send_write(), Some(1));
        assert!(!process.is_dead());
        process.wrote(1);
        assert!(process.is_dead());
    }
}
