//! How much clients may hold at once.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::task::AbortHandle;

/// Connections that have not shown yet that their client may ask for something. Each lasts for seconds; beyond this one is closed. As many as one
/// user may hold: an API server may open all of its own at once.
const STRANGERS: usize = OF_USER;

/// What each user may hold: connections, each with one request at a time. The API server is one user: all people who use kubectl share this. It has
/// one connection for each open log and session; a node has some hundred pods.
const OF_USER: usize = 192;

/// What all users may hold. A session takes about ten descriptors of the agent at most; a process has 1,024 of them by default, and often
/// more.
const OF_ALL: usize = 256;

/// What one pod may have: sessions and logs, of all users. Through an API server all users of the cluster are one user here, so a share of each user
/// would let one tenant take all of it. A person has a handful of terminals and logs open, and a log collector one for each container; this
/// is more than both, and a sixth of what there is.
const OF_POD: usize = 32;

/// Sessions and logs of all pods: what an API server, as one user, may hold.
const SESSIONS: usize = OF_USER;

/// Connections that have not shown yet that their client may ask for something, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<VecDeque<Stranger>>);

#[derive(Debug)]
struct Stranger {
    id: u64,
    network: IpAddr,
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

/// Sessions and logs, by namespace and name of their pod. A UID is not needed: a path without one means the same pod.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<BTreeMap<(String, String), usize>>);

/// One session, until this is dropped.
#[derive(Debug)]
pub(crate) struct Session {
    sessions: Arc<Sessions>,
    pod: (String, String),
}

/// A user, a pod, a namespace or all users together hold too much.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMuch {
    #[error("too many connections of this client: it has {OF_USER}; close some of them")]
    User,
    #[error("too many connections: clients of this node have {OF_ALL}; retry later")]
    All,
    #[error(
        "too many sessions and logs of pod {pod}: {OF_POD} are open, and a pod may have {OF_POD} on its node; close some of them"
    )]
    Pod { pod: String },
    #[error(
        "too many sessions and logs in namespace {namespace} for pod {pod}: {held} are open on this node, and a namespace may have as many as it \
         leaves to others, which are {free} of {SESSIONS}; close some of them"
    )]
    Namespace { namespace: String, pod: String, held: usize, free: usize },
}

// === impl Strangers ===

impl Strangers {
    /// One more. If there are too many, one is closed: the oldest of the network that has the most of them, so that a client from elsewhere gets its
    /// turn however many connections one machine opens, or one with many addresses.
    pub(crate) fn add(&self, id: u64, address: IpAddr, task: AbortHandle) {
        let mut strangers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.retain(|stranger| !stranger.task.is_finished());
        if strangers.len() >= STRANGERS {
            let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
            for stranger in &*strangers {
                *counts.entry(stranger.network).or_default() += 1;
            }
            let most = counts.values().copied().max().unwrap_or_default();
            let victim = strangers.iter().position(|stranger| counts.get(&stranger.network) == Some(&most));
            if let Some(victim) = victim.and_then(|at| strangers.remove(at)) {
                victim.task.abort();
            }
        }
        strangers.push_back(Stranger { id, network: network(address), task });
    }

    /// Its client may ask for something.
    pub(crate) fn known(&self, id: u64) {
        let mut strangers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.retain(|stranger| stranger.id != id);
    }
}

/// What one machine can have: an address, or with IPv6 a network of 64 bits, in which it takes any address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

// === impl Holdings ===

impl Holdings {
    /// One more for this user.
    pub(crate) fn hold(self: &Arc<Self>, user: &str) -> Result<Hold, TooMuch> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.values().sum::<usize>() >= OF_ALL {
            return Err(TooMuch::All);
        }
        let of_user = held.entry(user.to_owned()).or_default();
        if *of_user >= OF_USER {
            return Err(TooMuch::User);
        }
        *of_user += 1;
        Ok(Hold { holdings: Arc::clone(self), user: user.to_owned() })
    }
}

// === impl Sessions ===

impl Sessions {
    /// One more of this pod. A namespace may have no more than are free: the first one that takes all it can takes half, the next one half of what
    /// is left, and so on, so that a few of them do not keep the others out. A fixed share would be used up by two.
    pub(crate) fn begin(self: &Arc<Self>, namespace: &str, name: &str) -> Result<Session, TooMuch> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pod = (namespace.to_owned(), name.to_owned());
        let shown = || format!("{namespace}/{name}");
        if open.get(&pod).is_some_and(|open| *open >= OF_POD) {
            return Err(TooMuch::Pod { pod: shown() });
        }
        let of_namespace = open.iter().filter(|((of, _), _)| of == namespace);
        let held: usize = of_namespace.map(|(_, open)| open).sum();
        let free = SESSIONS.saturating_sub(open.values().sum());
        if held >= free {
            return Err(TooMuch::Namespace { namespace: namespace.to_owned(), pod: shown(), held, free });
        }
        *open.entry(pod.clone()).or_default() += 1;
        Ok(Session { sessions: Arc::clone(self), pod })
    }
}

// === impl Session ===

impl Drop for Session {
    fn drop(&mut self) {
        let mut open = self.sessions.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.pod) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.pod);
            }
        }
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
        assert_eq!(holdings.hold("jane").expect_err("too many"), TooMuch::User);
        let others: Vec<Hold> = (OF_USER..OF_ALL).map(|_| holdings.hold("joe").expect("one more")).collect();
        assert_eq!(holdings.hold("joe").expect_err("too many"), TooMuch::All);
        drop(others);
        jane.pop();
        holdings.hold("jane").expect("one was closed");
        drop(jane);
        assert!(holdings.0.lock().expect("not poisoned").is_empty(), "clients that are gone are forgotten");
    }

    /// CLU-42: all users of an API server are one user here, so what a tenant may hold is counted by pod and namespace.
    #[test]
    fn a_pod_and_a_namespace_leave_sessions_to_others() {
        let sessions = Arc::new(Sessions::default());
        let begin = |namespace: &str, name: &str| sessions.begin(namespace, name);
        let take = |namespace: &str, pods: usize| -> Vec<Session> {
            let names: Vec<_> = (0..pods).map(|pod| format!("web-{pod}")).collect();
            names.iter().flat_map(|name| std::iter::from_fn(|| begin(namespace, name).ok())).collect()
        };
        let of_pod: Vec<_> = take("shop", 1);
        assert_eq!(of_pod.len(), OF_POD);
        let refused = begin("shop", "web-0").expect_err("too many").to_string();
        assert_eq!(
            refused,
            "too many sessions and logs of pod shop/web-0: 32 are open, and a pod may have 32 on its node; close some of them"
        );
        begin("shop", "db").expect("another pod of the namespace");
        begin("home", "web-0").expect("a pod of the same name");
        drop(of_pod);
        assert!(sessions.0.lock().expect("not poisoned").is_empty(), "pods without a session are forgotten");

        // One namespace after the other takes all that it can get, with as many pods as it likes.
        let mut held = Vec::new();
        for tenant in 0..7 {
            let taken = take(&format!("tenant-{tenant}"), 110);
            assert!(!taken.is_empty(), "tenant {tenant} gets none: others have {}", held.len());
            held.extend(taken);
        }
        begin("shop", "web-0").expect("one more namespace");
        let refused = begin("tenant-0", "db").expect_err("too many").to_string();
        assert!(refused.contains("in namespace tenant-0 for pod tenant-0/db: 96 are open"), "{refused}");
    }

    async fn closed(task: tokio::task::JoinHandle<()>) {
        let ended = tokio::time::timeout(Duration::from_secs(30), task).await;
        assert!(ended.expect("it is closed").expect_err("it is closed").is_cancelled());
    }

    /// CLU-42
    #[tokio::test(start_paused = true)]
    async fn a_stranger_of_the_network_with_the_most_makes_room() {
        let idle = || tokio::spawn(std::future::pending::<()>());
        let v4 = |last| IpAddr::from([192, 0, 2, last]);
        let mapped = |last| IpAddr::from(std::net::Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped());
        let v6 = |last| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        for (what, address) in [("one", &(|_| v4(9)) as &dyn Fn(u16) -> IpAddr), ("one of 64 bits", &v6)] {
            let strangers = Strangers::default();
            // The first two are from elsewhere.
            let (first, second) = (idle(), idle());
            strangers.add(0, v4(1), first.abort_handle());
            strangers.add(1, mapped(2), second.abort_handle());
            let mut flood = Vec::new();
            for id in 2..=STRANGERS {
                let task = idle();
                strangers.add(id as u64, address(u16::try_from(id).expect("few")), task.abort_handle());
                flood.push(task);
            }
            closed(flood.remove(0)).await;
            assert!(flood.iter().all(|task| !task.is_finished()), "one at a time");
            assert!(!first.is_finished() && !second.is_finished(), "a flood from {what} network closes its own");
            // A client that is known is not closed for a stranger, whatever happens.
            strangers.known(0);
            for id in 0..2 * u32::try_from(STRANGERS).expect("few") {
                strangers.add(
                    1000 + u64::from(id),
                    IpAddr::from((0x0a00_0000 + id * 256).to_be_bytes()),
                    idle().abort_handle(),
                );
            }
            closed(second).await;
            assert!(!first.is_finished());
        }
    }
}
