//! How much clients may hold at once.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::task::AbortHandle;

/// Connections that have not shown yet who asks. Each lasts for seconds; beyond this the oldest is closed.
const STRANGERS: usize = 64;

/// Those of one address: more of them close the oldest of that address, not one of another client.
const STRANGERS_OF_ADDRESS: usize = 16;

/// What each user may hold: connections, each with one request at a time. The API server is one user: all people who use kubectl share this. It has
/// one connection for each open log and session; a node has some hundred pods.
const OF_USER: usize = 192;

/// What all users may hold. A session takes about ten descriptors of the agent at most; a process has 1,024 of them by default, and often
/// more.
const OF_ALL: usize = 256;

/// Connections that have not shown yet who asks, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<VecDeque<Stranger>>);

#[derive(Debug)]
struct Stranger {
    id: u64,
    address: IpAddr,
    task: AbortHandle,
}

/// What users hold.
#[derive(Debug, Default)]
pub(crate) struct Holdings(Mutex<BTreeMap<String, usize>>);

/// One thing that a user holds, until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    holdings: Arc<Holdings>,
    user: String,
}

/// A user or all users together hold too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMuch {
    #[error("too many connections of this client: it has {OF_USER}; close some of them")]
    OfUser,
    #[error("too many connections: clients of this node have {OF_ALL}; retry later")]
    OfAll,
}

// === impl Strangers ===

impl Strangers {
    /// One more. If there are too many, the oldest is closed: of this address, if it has its share already.
    pub(crate) fn add(&self, id: u64, address: IpAddr, task: AbortHandle) {
        let mut strangers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.retain(|stranger| !stranger.task.is_finished());
        let of_address = |stranger: &&Stranger| stranger.address == address;
        let victim = if strangers.iter().filter(of_address).count() >= STRANGERS_OF_ADDRESS {
            strangers.iter().position(|stranger| stranger.address == address)
        } else {
            (strangers.len() >= STRANGERS).then_some(0)
        };
        if let Some(victim) = victim.and_then(|at| strangers.remove(at)) {
            victim.task.abort();
        }
        strangers.push_back(Stranger { id, address, task });
    }

    /// It has shown who asks.
    pub(crate) fn known(&self, id: u64) {
        let mut strangers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.retain(|stranger| stranger.id != id);
    }
}

// === impl Holdings ===

impl Holdings {
    /// One more for this user.
    pub(crate) fn hold(self: &Arc<Self>, user: &str) -> Result<Hold, TooMuch> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.values().sum::<usize>() >= OF_ALL {
            return Err(TooMuch::OfAll);
        }
        let of_user = held.entry(user.to_owned()).or_default();
        if *of_user >= OF_USER {
            return Err(TooMuch::OfUser);
        }
        *of_user += 1;
        Ok(Hold { holdings: Arc::clone(self), user: user.to_owned() })
    }
}

// === impl Hold ===

impl Hold {
    /// The user that it counts for.
    pub(crate) fn user(&self) -> &str {
        &self.user
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.holdings.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = held.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// CLU-42
    #[test]
    fn a_user_holds_its_share_and_leaves_the_rest_to_others() {
        let holdings = Arc::new(Holdings::default());
        let mut jane: Vec<Hold> = (0..OF_USER).map(|_| holdings.hold("jane").expect("one more")).collect();
        assert_eq!(holdings.hold("jane").expect_err("too many"), TooMuch::OfUser);
        let others: Vec<Hold> = (OF_USER..OF_ALL).map(|_| holdings.hold("joe").expect("one more")).collect();
        assert_eq!(holdings.hold("joe").expect_err("too many"), TooMuch::OfAll);
        drop(others);
        jane.pop();
        holdings.hold("jane").expect("one was closed");
        drop(jane);
        assert!(holdings.0.lock().expect("not poisoned").is_empty(), "clients that are gone are forgotten");
    }

    async fn closed(task: tokio::task::JoinHandle<()>) {
        let ended = tokio::time::timeout(Duration::from_secs(30), task).await;
        assert!(ended.expect("it is closed").expect_err("it is closed").is_cancelled());
    }

    /// CLU-42
    #[tokio::test(start_paused = true)]
    async fn the_oldest_stranger_makes_room() {
        let strangers = Strangers::default();
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let idle = || tokio::spawn(std::future::pending::<()>());
        let mut all = Vec::new();
        // One address takes its share, and then only its own connections are closed.
        let other = idle();
        strangers.add(0, address(1), other.abort_handle());
        for id in 1..=STRANGERS_OF_ADDRESS + 1 {
            let task = idle();
            strangers.add(id as u64, address(2), task.abort_handle());
            all.push(task);
        }
        closed(all.remove(0)).await;
        assert!(!other.is_finished() && all.iter().all(|task| !task.is_finished()));
        // Many addresses: the oldest of all that is still a stranger.
        strangers.known(0);
        for last in 0..u8::try_from(STRANGERS).expect("few") {
            let task = idle();
            strangers.add(1000 + u64::from(last), address(last.wrapping_add(100)), task.abort_handle());
        }
        for task in all {
            closed(task).await;
        }
        assert!(!other.is_finished(), "a client that is known is not closed for a stranger");
    }
}
