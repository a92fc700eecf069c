//! The server: a request in, an answer out, at once. Time, connections and faults are around it.

mod admission;
mod create;
mod delete;
mod discovery;
mod list;
mod review;
mod update;
mod watch;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

pub(crate) use self::watch::Watch;
use crate::{
    access::{Access, Attributes, Identity},
    log::{Happening, Log, LogEntry, Write},
    random::Random,
    refusal::Refusal,
    request::{Path, Query, Target, Verb},
    resources::{Registry, Resource},
    store::{Key, Store},
};

/// What a client sends, and when.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) client: Arc<str>,
    pub(crate) identity: &'a Identity,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: Query,
    pub(crate) content_type: &'a str,
    pub(crate) accept: &'a str,
    pub(crate) body: &'a [u8],
    /// Since the beginning.
    pub(crate) at: Duration,
    /// The server's wall clock.
    pub(crate) now: Timestamp,
    /// The revision up to which this client is shown things; a stale server shows less than there is.
    pub(crate) shown: u64,
    /// Whether reads that the API promises to be the newest are stale, too.
    pub(crate) breaks_promise: bool,
}

/// What the server answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Body,
}

/// What is in an answer.
#[derive(Debug)]
pub(crate) enum Body {
    Json(Value),
    Text(&'static str),
    Refusal(Refusal),
    /// A watch, to be followed.
    Watch(Box<Watch>),
}

/// Called after every stored change, with what is stored by then.
pub(crate) type Observer = Box<dyn FnMut(&LogEntry, &Write) + Send>;

/// Everything there is on the server.
pub(crate) struct Server {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) access: Access,
    pub(crate) log: Log,
    pub(crate) observers: Vec<Observer>,
    /// Tokens that were given out, and whose they are.
    tokens: BTreeMap<String, review::Token>,
    /// For UIDs and generated names.
    random: Random,
    /// How many addresses of services were given out.
    addresses: u32,
}

/// Why a request is not answered with an object.
pub(crate) type Result<T> = std::result::Result<T, Refusal>;

/// Namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

// === impl Server ===

impl Server {
    /// A server of a new cluster.
    pub(crate) fn new(random: Random, at: Duration, now: Timestamp) -> Self {
        let mut server = Self {
            store: Store::default(),
            registry: Registry::built_in(),
            access: Access::default(),
            log: Log::default(),
            observers: Vec::new(),
            tokens: BTreeMap::new(),
            random,
            addresses: 0,
        };
        for namespace in NAMESPACES {
            server.make_namespace(namespace, at, now);
        }
        server
    }

    /// Carries out a request. Whatever it changes is in the log and was seen by the observers when this returns.
    pub(crate) fn handle(&mut self, call: &Call<'_>) -> Answer {
        let answer = match Path::parse(call.method, call.path, &call.query) {
            None => Err(Refusal::no_such_method()),
            Some(Path::Other) => discovery::answer(&self.registry, call),
            Some(Path::Resource(target)) => self.resource(call, &target),
        };
        answer.unwrap_or_else(|refusal| Answer { code: refusal.code, body: Body::Refusal(refusal) })
    }

    fn resource(&mut self, call: &Call<'_>, target: &Target) -> Result<Answer> {
        let selector = call.query.get("fieldSelector").unwrap_or("");
        self.access.check(call.identity, &Attributes::of(target, selector), &self.store)?;
        if let Some(answer) = self.review(call, target) {
            return answer;
        }
        let found = self.registry.find(&target.group, &target.version, &target.resource);
        let Some(resource) = found.cloned() else {
            let is_known = self.registry.iter().any(|known| {
                known.group == target.group && known.version == target.version && !known.strategy.keeps_type()
            });
            return if is_known { Err(Refusal::unknown_resource()) } else { Ok(Answer::not_there()) };
        };
        let nowhere = resource.namespaced && target.namespace.is_empty() && (target.named || target.verb.is_write());
        let somewhere = !resource.namespaced && !target.namespace.is_empty() && resource.plural != "namespaces";
        let subresource = target.subresource.as_str();
        if nowhere || somewhere || (!subresource.is_empty() && !resource.subresources.contains(&subresource)) {
            return Err(if resource.strategy.keeps_type() && !subresource.is_empty() {
                Refusal::not_found(resource.qualified(), &target.name)
            } else {
                Refusal::unknown_resource()
            });
        }
        match (target.subresource.as_str(), target.verb) {
            ("token", Verb::Create) => self.request_token(call, target),
            ("binding", Verb::Create) => self.bind(call, target, &resource),
            ("token" | "binding", _) => Err(Refusal::no_such_method()),
            (_, Verb::Get) => self.get(call, target, &resource),
            (_, Verb::List) => self.list(call, target, &resource),
            (_, Verb::Watch) => self.watch(call, target, &resource),
            ("", Verb::Create) if target.named && !resource.strategy.keeps_type() => Err(Refusal::no_such_method()),
            ("", Verb::Create) => self.create(call, target, &resource),
            (_, Verb::Update) if target.named => self.update(call, target, &resource),
            (_, Verb::Patch) if target.named => self.patch(call, target, &resource),
            ("", Verb::Delete) => self.delete(call, target, &resource),
            ("", Verb::DeleteCollection) => self.delete_collection(call, target, &resource),
            _ => Err(Refusal::no_such_method()),
        }
    }

    /// Writes a request into the log, before the changes that it made.
    pub(crate) fn note_request(&mut self, place: usize, call: &Call<'_>, request: crate::log::Request) {
        let what = Happening::Request(request);
        self.log.insert(place, LogEntry { at: call.at, client: Arc::clone(&call.client), what });
    }

    /// Stores an object, or deletes it, and notifies all watches.
    fn commit(&mut self, call: &Call<'_>, verb: Verb, key: Key, object: Option<Value>) -> Arc<Value> {
        let change = self.store.put(key, object, call.at);
        let write = Write {
            revision: change.revision,
            user: call.identity.user.as_str().into(),
            verb,
            key: change.key.clone(),
            before: change.before.clone(),
            after: change.after.clone(),
        };
        let stored = change.after.or(change.before).unwrap_or_default();
        let entry = LogEntry { at: call.at, client: Arc::clone(&call.client), what: Happening::Write(write.clone()) };
        for observer in &mut self.observers {
            observer(&entry, &write);
        }
        self.log.push(entry);
        stored
    }

    /// Removes a custom resource and its objects.
    pub(crate) fn uninstall(&mut self, group: &str, plural: &str, at: Duration) {
        let Some(resource) = self.registry.remove(group, plural) else { return };
        let objects: Vec<(String, String)> = self
            .store
            .list(&resource.stored, "")
            .map(|(_, object)| {
                let meta = |key: &str| object["metadata"][key].as_str().unwrap_or("").to_owned();
                (meta("namespace"), meta("name"))
            })
            .collect();
        let identity = Identity::admin();
        let call = Call::internal(&identity, at, Timestamp::UNIX_EPOCH);
        for (namespace, name) in objects {
            self.commit(&call, Verb::DeleteCollection, resource.key(&namespace, &name), None);
        }
    }

    /// A new UID.
    fn uid(&mut self) -> String {
        let (high, low) = (self.random.draw(), self.random.draw());
        let (high, low) = (high & !0xf000 | 0x4000, low & !(0b11 << 62) | 0b10 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// What is appended to a name that a client wants to have generated.
    fn suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| char::from(*self.random.pick(LETTERS))).collect()
    }
}

impl Resource {
    /// Where an object of this resource is.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> Key {
        let namespace = if self.namespaced { namespace.to_owned() } else { String::new() };
        Key { resource: Arc::clone(&self.stored), namespace, name: name.to_owned() }
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn json(code: u16, object: Value) -> Self {
        Self { code, body: Body::Json(object) }
    }

    /// A path that no handler is installed for.
    pub(crate) fn not_there() -> Self {
        Self { code: 404, body: Body::Text("404 page not found\n") }
    }
}

impl<'a> Call<'a> {
    /// A call of the cluster's own.
    fn internal(identity: &'a Identity, at: Duration, now: Timestamp) -> Self {
        Self {
            client: "cluster".into(),
            identity,
            method: "",
            path: "",
            query: Query::default(),
            content_type: "",
            accept: "",
            body: &[],
            at,
            now,
            shown: u64::MAX,
            breaks_promise: false,
        }
    }

    /// Whether the client wants only metadata.
    fn wants_metadata(&self) -> bool {
        self.accept.contains("as=PartialObjectMetadata")
    }
}
