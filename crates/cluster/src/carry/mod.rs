//! What pods of the API server carry: config maps, secrets, tokens of their service accounts, and
//! where services are.
//!
//! ```text
//! pods of this node --set_pods--> what they refer to --watch, one by one--> objects: what was seen of each
//!                                                                             |  '--> memory: the same for the next agent
//!        |                                                                    |
//!        '--> tokens --request, a few at once, again at 80 % of their life --> tokens
//!                                                                             |
//!  host: volumes, variables  <--find, or wait for it--------------------------+
//!  agent: volumes are refreshed  <--changed-----------------------------------'
//! ```
//!
//! - [`objects`]: which objects are followed, and what is known of each. Pure.
//! - [`tokens`]: which tokens pods have, when they are requested, which answers are refused. Pure.
//! - [`services`]: the services of the cluster, as far as containers have variables of them.
//! - [`memory`]: what was seen, on a tmpfs, for an agent that is restarted while the API server is away.
//! - [`follow`] and [`request`]: the watches and the requests, on the thread of the connection.
//!
//! The agent's side only ever reads what is known. Files are read and written by the thread of the connection and by threads that may block, and never
//! while the state is locked: [`Carried::settled`] is polled by the thread that plans pods. Values are never printed: nothing here that holds one has a `Debug` that shows it.

mod follow;
mod memory;
mod objects;
mod request;
mod services;
mod tokens;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use keelet_agent::doors::Clock;
use keelet_host::{ObjectError, ObjectName, ObjectStore};
use keelet_launch::{Data, ObjectKind, TokenSource, pod_objects, service_variables};
use keelet_pod::Pod;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

use self::{
    memory::Memory,
    objects::{Change, ObjectKey, Objects, Seen},
    services::{Services, Touched},
    tokens::{Token, TokenKey, Tokens},
};

/// What pods of the API server carry. It is cheap to clone.
#[derive(Clone)]
pub struct Carried(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    memory: Memory,
    clock: Arc<dyn Clock>,
    /// Rung when other tokens are needed.
    token_work: Notify,
    /// Rung when there are pods, which need to know services.
    service_work: Notify,
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
    tokens: Tokens,
    services: Services,
    /// The namespaces of pods.
    namespaces: BTreeSet<String>,
    /// Those of them whose services an earlier agent left.
    with_services: BTreeSet<String>,
}

/// What an earlier agent of this boot left.
struct Recalled {
    tokens: BTreeMap<TokenKey, Token>,
    /// Namespaces whose services it left.
    with_services: BTreeSet<String>,
}

/// What is to be kept where something is to be forgotten.
struct Forgets {
    objects: Option<BTreeSet<ObjectKey>>,
    tokens: Option<BTreeSet<String>>,
    services: Option<BTreeSet<String>>,
}

/// Whether the API server has said which pods run here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Link {
    /// It has not answered yet.
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
    pub fn new(directory: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self::with(Memory::new(directory), clock)
    }

    fn with(memory: Memory, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::default(),
            memory,
            clock,
            token_work: Notify::new(),
            service_work: Notify::new(),
            work: Notify::new(),
            changed: Notify::new(),
            more: watch::Sender::new(()),
        }))
    }

    /// The pods that run here. Unless they are all of them, what others may need is kept. Only the thread of the connection calls it.
    pub(crate) fn set_pods<'a>(&self, pods: impl IntoIterator<Item = &'a Arc<Pod>>, all: bool) {
        let (mut wanted, mut tokens, mut namespaces) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for pod in pods {
            namespaces.insert(pod.namespace.clone());
            wanted.extend(keys(pod));
            tokens.extend(tokens::keys(pod));
        }
        let mut recalled = self.recall_for(&tokens, &namespaces);
        let mut state = self.lock();
        let first = all && std::mem::replace(&mut state.link, Link::Reached) != Link::Reached;
        let (added, removed) = state.objects.refer(wanted, all);
        let (new_tokens, tokens_went) = state.tokens.refer(tokens, all, |key| recalled.tokens.remove(key));
        if !all {
            namespaces.extend(state.namespaces.iter().cloned());
        }
        let others = namespaces != state.namespaces;
        state.namespaces = namespaces;
        state.with_services.append(&mut recalled.with_services);
        let State { namespaces, with_services, .. } = &mut *state;
        with_services.retain(|namespace| namespaces.contains(namespace));
        let forgets = Forgets {
            objects: (first || removed).then(|| state.objects.keys()),
            tokens: (first || tokens_went).then(|| state.tokens.pods()),
            services: (first || (all && others)).then(|| state.namespaces.clone()),
        };
        drop(state);
        self.forget(&forgets);
        if others {
            self.0.service_work.notify_one();
            self.remember_services(&Touched::All);
        }
        if added || removed {
            self.0.work.notify_one();
        }
        if new_tokens {
            self.0.token_work.notify_one();
        }
        if first {
            self.0.more.send_replace(());
        }
    }

    /// What an earlier agent of this boot left for pods that were not known so far.
    fn recall_for(&self, tokens: &BTreeSet<TokenKey>, namespaces: &BTreeSet<String>) -> Recalled {
        let state = self.lock();
        let tokens: Vec<_> = tokens.iter().filter(|key| !state.tokens.has(key)).collect();
        let namespaces: Vec<_> = namespaces.difference(&state.namespaces).cloned().collect();
        drop(state);
        let tokens = tokens.into_iter().filter_map(|key| Some((key.clone(), self.recall_token(key)?)));
        let has_services = |namespace: &String| self.0.memory.recall_services(namespace).is_some();
        Recalled { tokens: tokens.collect(), with_services: namespaces.into_iter().filter(has_services).collect() }
    }

    /// Forgets what no pod needs.
    fn forget(&self, Forgets { objects, tokens, services }: &Forgets) {
        if let Some(kept) = objects {
            self.0.memory.retain(|key| kept.contains(key));
        }
        if let Some(kept) = tokens {
            self.0.memory.retain_tokens(|uid| kept.contains(uid));
        }
        if let Some(kept) = services {
            self.0.memory.retain_services(|namespace| kept.contains(namespace));
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

    /// The token that an earlier agent of this boot has received.
    fn recall_token(&self, key: &TokenKey) -> Option<Token> {
        let now_ms = self.now_ms();
        let remembered = self.0.memory.recall_tokens(&key.uid).into_iter();
        remembered.filter(|token| token.is_for(key) && token.is_good(now_ms)).max_by_key(|token| token.requested_ms)
    }

    fn now_ms(&self) -> i64 {
        self.0.clock.now().boot_ms
    }

    /// Why an object is not known, or what it is.
    fn seen(&self, key: &ObjectKey) -> Seen {
        let state = self.lock();
        match state.objects.seen(key) {
            Some(Seen::NotYet(why)) if why.is_empty() => Seen::NotYet(state.link.why(true)),
            Some(seen) => seen.clone(),
            None => Seen::NotYet(state.link.why(false)),
        }
    }

    /// Whether waiting would tell no more about what a pod refers to. The thread that plans pods asks: it reads memory and no file.
    fn is_settled(&self, pod: &Pod) -> bool {
        let state = self.lock();
        if matches!(state.link, Link::Away(_)) {
            return true;
        }
        let now_ms = self.now_ms();
        let has_token = |key: &TokenKey| state.tokens.get(key, now_ms).is_some_and(|token| token.is_ok());
        let services_failed = !state.services.why.is_empty();
        let knew_services = services_failed && state.with_services.contains(&pod.namespace);
        keys(pod).iter().all(|key| state.objects.is_known(key) || state.objects.is_recalled(key))
            && tokens::keys(pod).iter().all(has_token)
            && (state.services.are_complete() || knew_services)
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

    fn token(&self, pod: &Pod, wanted: &TokenSource) -> Result<Vec<u8>, ObjectError> {
        let mut keys = tokens::keys(pod).into_iter();
        let Some(key) = keys.find(|key| key.source == *wanted) else { return Err(ObjectError::NeedsApiServer) };
        let why = {
            let state = self.lock();
            match state.tokens.get(&key, self.now_ms()) {
                Some(Ok(token)) => return Ok(token.text.clone().into_bytes()),
                Some(Err(why)) => why.to_owned(),
                None => state.link.why(state.tokens.has(&key)),
            }
        };
        match self.recall_token(&key) {
            Some(token) => Ok(token.text.into_bytes()),
            None => Err(ObjectError::Token { account: format!("{}/{}", key.namespace, key.account), why }),
        }
    }

    fn has_services(&self, _: &Pod) -> bool {
        true
    }

    fn services(&self, pod: &Pod) -> Result<Vec<(String, String)>, ObjectError> {
        let links = pod.source.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
        let why = {
            let state = self.lock();
            if state.services.are_complete() {
                let seen = state.services.seen_from(&pod.namespace);
                return Ok(service_variables(seen, &pod.namespace, links));
            }
            let said = &state.services.why;
            if said.is_empty() { state.link.why(true) } else { said.clone() }
        };
        match self.0.memory.recall_services(&pod.namespace) {
            Some(services) => Ok(service_variables(&services, &pod.namespace, links)),
            None => Err(ObjectError::Services(why)),
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

// === impl Link ===

impl Link {
    /// Why the API server has not answered about something that pods refer to, or that no pod refers to.
    fn why(&self, asked: bool) -> String {
        match self {
            Self::Away(why) => why.clone(),
            Self::NotReached => "it has not been reached yet".to_owned(),
            Self::Reached if asked => "it has not answered yet".to_owned(),
            Self::Reached => "it has no such pod".to_owned(),
        }
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Carried")
    }
}

#[cfg(test)]
mod tests;
