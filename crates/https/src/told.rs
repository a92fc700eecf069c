//! What is logged of requests that clients make as often as they like: a few lines, and how many requests they stand for.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::cache::Cache;

/// The same thing is not logged again for so long.
const AGAIN: Duration = Duration::from_secs(60);

/// Things that are kept apart: users that are refused. Of more of them some are logged more often.
const THINGS: usize = 256;

/// A time in which the API server gives no reviews.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Reviews that were not given since the beginning.
    failed: u64,
    /// Whether the beginning was logged.
    told: bool,
    /// When a beginning was logged last.
    last: Option<Instant>,
}

/// Refusals that are logged, each once in a while.
#[derive(Debug)]
pub(crate) struct Seldom(Cache<String, ()>);

// === impl Outage ===

impl Outage {
    /// A review was not given. Whether that is to be logged: once for an outage, and not for each of many short ones.
    pub(crate) fn failed(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.failed += 1;
        let is_new = !state.told && state.last.is_none_or(|last| last.elapsed() >= AGAIN);
        if is_new {
            state.told = true;
            state.last = Some(Instant::now());
        }
        is_new
    }

    /// A review was given. How many were not, if that outage was logged.
    pub(crate) fn over(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.told).then(|| std::mem::take(&mut state.failed))
    }
}

// === impl Seldom ===

impl Seldom {
    /// Whether this was not logged lately.
    pub(crate) fn is_new(&self, thing: &str) -> bool {
        let thing = thing.to_owned();
        let is_new = self.0.get(&thing).is_none();
        if is_new {
            self.0.put(thing, (), AGAIN);
        }
        is_new
    }
}

impl Default for Seldom {
    fn default() -> Self {
        Self(Cache::new(THINGS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-42
    #[tokio::test(start_paused = true)]
    async fn an_outage_is_logged_once_and_short_ones_together() {
        let outage = Outage::default();
        assert_eq!(outage.over(), None, "there was none");
        assert_eq!([outage.failed(), outage.failed(), outage.failed()], [true, false, false]);
        assert_eq!((outage.over(), outage.over()), (Some(3), None));
        for _ in 0..10 {
            assert!(!outage.failed(), "another one, at once");
            assert_eq!(outage.over(), None);
        }
        tokio::time::advance(AGAIN).await;
        assert!(outage.failed());
        assert_eq!(outage.over(), Some(11), "with those that were not logged");
    }

    /// CLU-42
    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_logged_once_in_a_while() {
        let seldom = Seldom::default();
        assert_eq!([seldom.is_new("jane"), seldom.is_new("jane"), seldom.is_new("joe")], [true, false, true]);
        tokio::time::advance(AGAIN).await;
        assert!(seldom.is_new("jane"));
    }
}
