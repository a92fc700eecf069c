//! What pods of the API server carry: config maps and secrets.
//!
//! ```text
//! pods of this node --set_pods--> what they refer to --watch, one by one--> objects: what was seen of each
//!                                                                             |  '--> memory: the same for the next agent
//!  host: volumes, variables  <--find, or wait for it--------------------------+
//!  agent: volumes are refreshed  <--changed-----------------------------------'
//! ```
//!
//! - [`objects`]: which objects are followed, and what is known of each. Pure.
//! - [`memory`]: what was seen, on a tmpfs, for an agent that is restarted while the API server is away.
//! - [`follow`]: the watches, on the thread of the connection.
//!
//! The agent's side only ever reads what is known. Values are never printed: nothing here that holds one has a `Debug` that shows it.

mod follow;
mod memory;
mod objects;

use std::{
    collections::BTreeSet,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use keelet_host::{ObjectError, ObjectName, ObjectStore};
use keelet_launch::{Data, ObjectKind, pod_objects};
use keelet_pod::Pod;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

use self::{
    memory::Memory,
    objects::{Change, ObjectKey, Objects, Seen},
};

/// What pods of the API server carry. It is cheap to clone.
#[derive(Clone)]
pub struct Carried(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    memory: Memory,
    /// Rung when other objects are to be followed.
    work: Notify,
    /// Rung when volumes may have to be filled anew.
    changed: Notify,
    /// Changes whenever more is known: pods wait for it.
    more: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    link: Link,
    objects: Objects,
}

/// Whether the API server has said which pods run here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Link {
    /// It has been asked.
    #[default]
    NotReached,
    /// It cannot be reached, and this is why.
    Away(String),
    /// It has, at least once.
    Reached,
}

/// How long a pod waits for what it refers to before it reports what is missing. The node authorizer refuses an object until it has
/// seen that the pod is bound here, which takes a fraction of a second. An operation that is cancelled may take as long to end.
const PATIENCE: Duration = Duration::from_secs(2);

// === impl Carried ===

impl Carried {
    /// Nothing is known yet. What is seen is remembered below this directory, which is made when there is something to remember.
    pub fn new(directory: PathBuf) -> Self {
        Self::with(Memory::new(directory))
    }

    fn with(memory: Memory) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::default(),
            memory,
            work: Notify::new(),
            changed: Notify::new(),
            more: watch::Sender::new(()),
        }))
    }

    /// The pods that run here. Unless they are all of them, what others may need is kept.
    pub(crate) fn set_pods<'a>(&self, pods: impl IntoIterator<Item = &'a Arc<Pod>>, all: bool) {
        let wanted: BTreeSet<ObjectKey> = pods.into_iter().flat_map(|pod| keys(pod)).collect();
        let mut state = self.lock();
        let first = all && std::mem::replace(&mut state.link, Link::Reached) != Link::Reached;
        let (added, removed) = state.objects.refer(wanted, all);
        if first || removed {
            self.0.memory.retain(|key| state.objects.has(key));
        }
        drop(state);
        if added || removed {
            self.0.work.notify_one();
        }
        if first {
            self.0.more.send_replace(());
        }
    }

    /// The API server cannot say which pods run here.
    pub(crate) fn away(&self, why: String) {
        let mut state = self.lock();
        if state.link != Link::Reached {
            state.link = Link::Away(why);
            drop(state);
            self.0.more.send_replace(());
        }
    }

    /// What was seen of an object: the API server's own words where it cannot be read.
    fn learn(&self, key: &ObjectKey, seen: Seen, immutable: bool) {
        // No pod refers to it any more: the watch ends next.
        if !self.lock().objects.has(key) {
            return;
        }
        if let Seen::Found(data) = &seen {
            self.0.memory.remember(key, Some(data));
        } else if seen == Seen::Missing {
            self.0.memory.remember(key, None);
        }
        let change = self.lock().objects.learn(key, seen, immutable);
        if immutable {
            self.0.work.notify_one();
        }
        if change == Change::Differs {
            self.0.changed.notify_one();
        }
        self.0.more.send_replace(());
    }

    /// What an earlier agent of this boot saw of an object is known until this one sees it.
    fn recall(&self, key: &ObjectKey) {
        if let Some(found) = self.0.memory.recall(key) {
            self.lock().objects.recall(key, found.map(Arc::new));
        }
    }

    /// Why an object is not known, or what it is.
    fn seen(&self, key: &ObjectKey) -> Seen {
        let state = self.lock();
        match (state.objects.seen(key), &state.link) {
            (Some(Seen::NotYet(why)), Link::Away(away)) if why.is_empty() => Seen::NotYet(away.clone()),
            (Some(Seen::NotYet(why)), _) if why.is_empty() => Seen::NotYet("it has not answered yet".to_owned()),
            (Some(seen), _) => seen.clone(),
            (None, Link::Away(why)) => Seen::NotYet(why.clone()),
            (None, Link::NotReached) => Seen::NotYet("it has not been reached yet".to_owned()),
            (None, Link::Reached) => Seen::NotYet("it has no such pod".to_owned()),
        }
    }

    /// Whether waiting would tell no more about what a pod refers to.
    fn is_settled(&self, pod: &Pod) -> bool {
        let state = self.lock();
        if matches!(state.link, Link::Away(_)) {
            return true;
        }
        let failed = |key: &ObjectKey| state.objects.has_failed(key) && self.0.memory.recall(key).is_some();
        keys(pod).iter().all(|key| state.objects.is_known(key) || failed(key))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a pod refers to. A name that the API would not take is refused where it is used.
fn keys(pod: &Pod) -> Vec<ObjectKey> {
    let objects = pod_objects(pod).into_iter();
    objects.filter_map(|(kind, name)| ObjectKey::new(kind, &pod.namespace, &name).ok()).collect()
}

impl ObjectStore for Carried {
    fn find(&self, pod: &Pod, kind: ObjectKind, name: &str) -> Result<Option<Data>, ObjectError> {
        let key = ObjectKey::new(kind, &pod.namespace, name)?;
        match self.seen(&key) {
            Seen::Found(data) => Ok(Some(Data::clone(&data))),
            Seen::Missing => Ok(None),
            Seen::NotYet(why) => match self.0.memory.recall(&key) {
                Some(remembered) => Ok(remembered),
                None => Err(ObjectError::Unavailable { object: ObjectName::from(key), why }),
            },
        }
    }

    fn settled<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut more = self.0.more.subscribe();
            let all_is_known = async {
                while !self.is_settled(pod) {
                    // The sender lives as long as this.
                    let _ = more.changed().await;
                }
            };
            let _ = timeout(PATIENCE, all_is_known).await;
        })
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.changed.notified())
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Carried")
    }
}

#[cfg(test)]
mod tests;
