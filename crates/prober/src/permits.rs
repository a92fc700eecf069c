//! Permits: acquiring, holding, returning. [`fair`] decides which pod gets one.

mod fair;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

use self::fair::{Asked, Fair, Ticket};

/// The permits of one kind on a node. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Permits {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    fair: Fair,
    /// Notifies waiting attempts of their permits.
    waiting: BTreeMap<Ticket, oneshot::Sender<()>>,
}

/// A pod's permit. Dropping it ends the attempt that it was for.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Permits,
    pod: String,
    held: bool,
}

/// A waiting attempt. Dropping it withdraws the request, even if the permit was granted at the same moment.
struct Waiting<'a> {
    permits: &'a Permits,
    pod: &'a str,
    ticket: Ticket,
    answered: bool,
}

// === impl Permits ===

impl Permits {
    /// At least one permit.
    pub(crate) fn new(limit: usize) -> Self {
        Self { state: Arc::new(Mutex::new(State { fair: Fair::new(limit), waiting: BTreeMap::new() })) }
    }

    /// A permit for an attempt of this pod; `None` if none is free within that time.
    pub(crate) async fn acquire(&self, pod: &str, patience: Duration) -> Option<Permit> {
        let (mut waiting, granted) = {
            let mut state = self.state();
            match state.fair.ask(pod) {
                Asked::Granted => return Some(self.granted(pod)),
                Asked::Waits(ticket) => {
                    let (grant, granted) = oneshot::channel();
                    state.waiting.insert(ticket, grant);
                    (Waiting { permits: self, pod, ticket, answered: false }, granted)
                }
            }
        };
        timeout(patience, granted).await.ok()?.ok()?;
        waiting.answered = true;
        Some(self.granted(pod))
    }

    fn granted(&self, pod: &str) -> Permit {
        Permit { permits: self.clone(), pod: pod.to_owned(), held: true }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code leaves the state half changed while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn grant(&mut self, granted: Vec<Ticket>) {
        for ticket in granted {
            if let Some(grant) = self.waiting.remove(&ticket) {
                // An attempt that has just given up passes the permit on when it is dropped.
                let _ = grant.send(());
            }
        }
    }
}

// === impl Permit ===

impl Permit {
    /// Returns the permit to others. The attempt continues, and counts as one of its pod's.
    pub(crate) fn give_back(&mut self) {
        if std::mem::take(&mut self.held) {
            let mut state = self.permits.state();
            let granted = state.fair.give_back(&self.pod);
            state.grant(granted);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.permits.state();
        let granted = state.fair.end(&self.pod, self.held);
        state.grant(granted);
    }
}

// === impl Waiting ===

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut state = self.permits.state();
        if state.waiting.remove(&self.ticket).is_some() {
            state.fair.withdraw(self.pod, self.ticket);
        } else {
            let granted = state.fair.end(self.pod, true);
            state.grant(granted);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// PROBE-46: a permit that is granted after its attempt gave up goes to the next one.
    #[tokio::test(start_paused = true)]
    async fn a_permit_that_is_granted_too_late_is_passed_on() {
        let permits = Permits::new(1);
        let first = permits.acquire("a", LONG).await;
        let mut second = Box::pin(permits.acquire("b", LONG));
        let mut third = Box::pin(permits.acquire("c", LONG));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        drop(first);
        // The second attempt has its permit now, but no longer waits for it.
        drop(second);
        assert!(third.await.is_some(), "the permit was lost");
        assert!(permits.acquire("d", Duration::ZERO).await.is_some(), "a permit was not returned");
    }

    /// PROBE-46.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_gave_up_leaves_nothing_behind() {
        let permits = Permits::new(1);
        let first = permits.acquire("a", LONG).await;
        assert!(permits.acquire("b", Duration::from_secs(1)).await.is_none(), "there is only one permit");
        drop(first);
        assert!(permits.acquire("b", Duration::ZERO).await.is_some());
        assert!(permits.state().waiting.is_empty(), "{:?}", permits.state());
    }
}
