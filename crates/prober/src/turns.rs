//! Turns: waiting for one, holding it, giving it back. Which pod gets one is decided in [`fair`].

mod fair;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

use self::fair::{Asked, Fair, Ticket};

/// The turns of one kind on a node. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    fair: Fair,
    /// How a waiting attempt learns that it has its turn.
    bells: BTreeMap<Ticket, oneshot::Sender<()>>,
}

/// A pod's turn. Dropping it ends the attempt that it was for.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    pod: String,
    held: bool,
}

/// An attempt that waits. Dropping it gives up, also when the turn came at the same moment.
struct Waiting<'a> {
    turns: &'a Turns,
    pod: &'a str,
    ticket: Ticket,
    answered: bool,
}

// === impl Turns ===

impl Turns {
    /// So many turns, one at least.
    pub(crate) fn new(limit: usize) -> Self {
        Self { state: Arc::new(Mutex::new(State { fair: Fair::new(limit), bells: BTreeMap::new() })) }
    }

    /// A turn for an attempt of this pod; `None` if there is none within that time.
    pub(crate) async fn turn(&self, pod: &str, patience: Duration) -> Option<Turn> {
        let (mut waiting, bell) = {
            let mut state = self.state();
            match state.fair.ask(pod) {
                Asked::Granted => return Some(self.granted(pod)),
                Asked::Waits(ticket) => {
                    let (ring, bell) = oneshot::channel();
                    state.bells.insert(ticket, ring);
                    (Waiting { turns: self, pod, ticket, answered: false }, bell)
                }
            }
        };
        timeout(patience, bell).await.ok()?.ok()?;
        waiting.answered = true;
        Some(self.granted(pod))
    }

    fn granted(&self, pod: &str) -> Turn {
        Turn { turns: self.clone(), pod: pod.to_owned(), held: true }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock leaves half a change behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn ring(&mut self, granted: Vec<Ticket>) {
        for ticket in granted {
            if let Some(bell) = self.bells.remove(&ticket) {
                // One that has just given up hands the turn on when it is dropped.
                let _ = bell.send(());
            }
        }
    }
}

// === impl Turn ===

impl Turn {
    /// Lets another attempt have the turn. This one goes on, and counts as one of its pod.
    pub(crate) fn give_back(&mut self) {
        if std::mem::take(&mut self.held) {
            let mut state = self.turns.state();
            let granted = state.fair.give_back(&self.pod);
            state.ring(granted);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        let granted = state.fair.end(&self.pod, self.held);
        state.ring(granted);
    }
}

// === impl Waiting ===

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut state = self.turns.state();
        if state.bells.remove(&self.ticket).is_some() {
            state.fair.withdraw(self.pod, self.ticket);
        } else {
            let granted = state.fair.end(self.pod, true);
            state.ring(granted);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// PROBE-46: a turn that comes when its attempt has given up goes to the next one.
    #[tokio::test(start_paused = true)]
    async fn a_turn_that_comes_too_late_is_handed_on() {
        let turns = Turns::new(1);
        let first = turns.turn("a", LONG).await;
        let mut second = Box::pin(turns.turn("b", LONG));
        let mut third = Box::pin(turns.turn("c", LONG));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        drop(first);
        // It is the second's turn now, and the second does not look any more.
        drop(second);
        assert!(third.await.is_some(), "the turn was lost");
        assert!(turns.turn("d", Duration::ZERO).await.is_some(), "a turn was not given back");
    }

    /// PROBE-46.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_gave_up_leaves_nothing_behind() {
        let turns = Turns::new(1);
        let first = turns.turn("a", LONG).await;
        assert!(turns.turn("b", Duration::from_secs(1)).await.is_none(), "there is one turn only");
        drop(first);
        assert!(turns.turn("b", Duration::ZERO).await.is_some());
        assert!(turns.state().bells.is_empty(), "{:?}", turns.state());
    }
}
