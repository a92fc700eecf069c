//! The simulated server as a simulation holds it: clients are made here, and what happened is read here.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::SignedDuration;
use serde_json::Value;
use tokio::sync::Notify;

use crate::{
    access::{Grant, Identity},
    clock::Clock,
    connection::Connection,
    faults::{Faults, Partition},
    kinds::define,
    log::{Happening, Log, LogEntry, Write},
    process::Process,
    random::Random,
    request::Query,
    server::{Body, Call, Server},
    store::Key,
};

/// A simulated API server. It is cheap to clone.
#[derive(Clone)]
pub struct SimApi {
    shared: Arc<Shared>,
}

/// What all connections share.
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) clock: Clock,
    /// Notified of changes of what is stored and of faults, to wake up the requests that wait for one. They wake up in the order in which
    /// they began to wait, so that a run can be replayed.
    pub(crate) changed: Notify,
    /// Notified when the faults end.
    calm: Notify,
}

pub(crate) struct State {
    pub(crate) server: Server,
    pub(crate) clients: BTreeMap<Arc<str>, Client>,
    processes: Vec<Process>,
    random: Random,
}

/// What is particular to one client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) faults: Faults,
    pub(crate) random: Random,
    /// By how much its wall clock is ahead.
    pub(crate) skew: SignedDuration,
}

// === impl SimApi ===

impl SimApi {
    /// A server of a new cluster. To be called inside of a tokio runtime; time should be paused there.
    pub fn new(seed: u64) -> Self {
        let clock = Clock::start();
        let mut random = Random::new(seed);
        let server = Server::new(random.fork(), clock.elapsed(), clock.now());
        let state = State { server, clients: BTreeMap::new(), processes: Vec::new(), random };
        let shared = Shared { state: Mutex::new(state), clock, changed: Notify::new(), calm: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    /// A connection of a process of its own. Its name is in the log; clients of one name share their faults.
    pub fn connect(&self, name: &str, identity: Identity) -> Connection {
        self.connect_in(&self.process(), name, identity)
    }

    /// A connection of a process.
    pub fn connect_in(&self, process: &Process, name: &str, identity: Identity) -> Connection {
        let name: Arc<str> = name.into();
        self.shared.lock().client(&name);
        Connection { shared: Arc::clone(&self.shared), name, identity: Arc::new(identity), process: process.clone() }
    }

    /// A new process.
    pub fn process(&self) -> Process {
        let process = Process::new();
        self.shared.lock().processes.push(process.clone());
        process
    }

    /// The server's wall clock.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Changes the faults of a client.
    pub fn faults(&self, client: &str, change: impl FnOnce(&mut Faults)) {
        let name: Arc<str> = client.into();
        change(&mut self.shared.lock().client(&name).faults);
        self.shared.changed.notify_waiters();
    }

    /// Ends all faults: requests that hang and watches that went silent break, so that clients notice.
    pub fn calm(&self) {
        for client in self.shared.lock().clients.values_mut() {
            client.faults = Faults::default();
        }
        self.shared.calm.notify_waiters();
        self.shared.changed.notify_waiters();
    }

    /// Gives rights.
    pub fn grant(&self, grants: impl IntoIterator<Item = Grant>) {
        self.shared.lock().server.access.grants.extend(grants);
    }

    /// Takes all rights back that were given.
    pub fn revoke_all(&self) {
        self.shared.lock().server.access.grants.clear();
    }

    /// How strategic merge patches merge the lists of a resource: by path, with the merge key if the elements are objects. Lists
    /// that are not named are replaced. Nothing, for resources that take no such patches.
    pub fn merged_lists(&self, group: &str, version: &str, plural: &str) -> Vec<(String, Option<&'static str>)> {
        let state = self.shared.lock();
        let resource = state.server.registry.find(group, version, plural);
        resource.and_then(|resource| resource.strategy.schema()).map_or_else(Vec::new, crate::patch::Schema::lists)
    }

    /// Carries out a request of the administrator at once, without any faults: a status code and the answer. The path may
    /// have a query; patches are merge patches.
    pub fn act(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        self.act_as("admin", &Identity::admin(), method, path, content_type, body)
    }

    /// Carries out a request of any user at once, without faults.
    pub fn act_as(
        &self,
        client: &str,
        identity: &Identity,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> (u16, Value) {
        let at = self.shared.clock.elapsed();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let call = Call {
            client: client.into(),
            identity,
            method,
            path,
            query: Query::parse(query),
            content_type,
            accept: "application/json",
            body: &body,
            at,
            now: self.shared.clock.at(at),
            shown: u64::MAX,
            breaks_promise: false,
        };
        let answer = self.shared.lock().server.handle(&call);
        self.shared.changed.notify_waiters();
        let object = match answer.body {
            Body::Json(object) => object,
            Body::Refusal(refusal) => refusal.to_status(),
            Body::Text(text) => text.into(),
            Body::Watch(_) => Value::Null,
        };
        (answer.code, object)
    }

    /// Installs a custom resource from its CustomResourceDefinition.
    ///
    /// # Panics
    ///
    /// If the definition lacks something.
    pub fn install(&self, definition: &Value) {
        match define(definition) {
            Ok(resource) => self.shared.lock().server.registry.install(resource),
            Err(error) => panic!("{error}"),
        }
    }

    /// Removes a custom resource and all its objects, as the deletion of its definition does. Watches of it stay open and
    /// see the objects go.
    pub fn uninstall(&self, group: &str, plural: &str) {
        let at = self.shared.clock.elapsed();
        self.shared.lock().server.uninstall(group, plural, at);
        self.shared.changed.notify_waiters();
    }

    /// What is stored of an object.
    pub fn stored(&self, key: &Key) -> Option<Arc<Value>> {
        self.shared.lock().server.store.get(key).cloned()
    }

    /// Everything that is stored of a resource: `nodes`, `leases.coordination.k8s.io`.
    pub fn stored_of(&self, resource: &str) -> Vec<Arc<Value>> {
        self.shared.lock().server.store.list(resource, "").map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.shared.lock().server.store.revision()
    }

    /// Forgets what was before a revision: lists and watches from there get 410.
    pub fn compact(&self, revision: u64) {
        self.shared.lock().server.store.compact(revision);
    }

    /// Has again what was stored at a revision, as after a backup of etcd was restored. Watches break.
    pub fn restore(&self, revision: u64) {
        self.shared.lock().server.store.restore(revision);
        self.shared.changed.notify_waiters();
    }

    /// Calls a checker after every stored change. It must not call the server.
    pub fn observe(&self, observer: impl FnMut(&LogEntry, &Write) + Send + 'static) {
        self.shared.lock().server.observers.push(Box::new(observer));
    }

    /// What happened so far.
    pub fn log(&self) -> Log {
        self.shared.lock().server.log.clone()
    }

    /// Looks at what happened so far without a copy of it.
    pub fn with_log<T>(&self, read: impl FnOnce(&Log) -> T) -> T {
        read(&self.shared.lock().server.log)
    }

    /// Writes something into the log.
    pub fn note(&self, client: &str, text: impl Into<String>) {
        self.shared.note(&client.into(), Happening::Note(text.into()));
    }

    /// Ends the simulation: kills all processes and drops what they owned.
    pub fn end(&self) {
        let processes = std::mem::take(&mut self.shared.lock().processes);
        processes.iter().for_each(Process::bury);
        self.shared.lock().server.observers.clear();
    }
}

impl std::fmt::Debug for SimApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimApi").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // An observer that panics leaves nothing half-done that any code would look at again.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, client: &Arc<str>, what: Happening) {
        let entry = LogEntry { at: self.clock.elapsed(), client: Arc::clone(client), what };
        self.lock().server.log.push(entry);
    }

    /// Waits until the client's partition ends, or all faults do.
    pub(crate) async fn reachable_again(&self, client: &Arc<str>) {
        let cut_off = self.lock().client(client).faults.partition == Partition::Silent;
        let mut calm = pin!(self.calm.notified());
        calm.as_mut().enable();
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if cut_off && self.lock().client(client).faults.partition != Partition::Silent {
                return;
            }
            tokio::select! {
                biased;
                () = calm.as_mut() => return,
                () = changed, if cut_off => {}
            }
        }
    }
}

// === impl State ===

impl State {
    pub(crate) fn client(&mut self, name: &Arc<str>) -> &mut Client {
        let random = &mut self.random;
        self.clients.entry(Arc::clone(name)).or_insert_with(|| Client {
            faults: Faults::default(),
            random: random.fork(),
            skew: SignedDuration::ZERO,
        })
    }
}
