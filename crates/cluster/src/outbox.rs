//! Which request is made next, and what comes of its answer. Pure: times are given, requests are values.
//!
//! Of a pod only the newest status waits; a newer one replaces it. At most one request of a pod is in flight, and a few of all. A change
//! of Ready goes before everything else. The object of a pod that is gone is deleted after its last status was delivered.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use keelet_agent::publish::Answers;
use keelet_api::ApiError;
use keelet_lifecycle::{observed::Known, status::PodStatus};
use serde_json::Value;

use crate::{
    patch::{is_urgent, rejection, status_patch},
    pods::Pods,
};

/// Requests in flight at once. Each is a connection of its own, and an API server answers a patch in a few milliseconds.
pub const IN_FLIGHT: usize = 5;

/// The shortest and the longest pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The pause after the API server has rejected a request: the same one would be rejected again, so only permissions can have changed.
const DENIED_PAUSE: Duration = Duration::from_secs(10);

/// The task of a pod, which waits for word of the API server.
pub trait Listener: Clone {
    /// Others can see the status of this version, and every one before it.
    fn acknowledge(&self, version: u64);
    /// What others knew of the pod when the API server was first reached.
    fn known(&self, known: Known);
}

/// What waits to be sent.
#[derive(Debug)]
pub struct Outbox<L = Answers> {
    pods: BTreeMap<String, Waiting<L>>,
    in_flight: BTreeSet<String>,
    /// Tasks of pods that were started before the API server was reached.
    asked: BTreeMap<String, L>,
    arrivals: u64,
}

/// What of one pod waits to be sent.
#[derive(Debug)]
struct Waiting<L> {
    what: What<L>,
    arrived: u64,
    failures: u32,
    not_before: Duration,
}

#[derive(Debug)]
struct What<L> {
    status: Option<Undelivered<L>>,
    rejected: Option<String>,
    deletion: bool,
}

/// A status that the API server does not have yet.
#[derive(Clone, Debug)]
struct Undelivered<L> {
    version: u64,
    status: PodStatus,
    answers: L,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Call {
    /// The pod's UID.
    pub uid: String,
    /// The path of the object.
    pub path: String,
    /// What is asked for.
    pub request: Request,
    /// Which version of the status it delivers.
    version: Option<u64>,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// This strategic merge patch, of the status.
    PatchStatus(Value),
    /// The deletion, of exactly this object.
    Delete(Value),
}

/// What has to be done, or when to ask again.
#[derive(Debug)]
pub enum Next {
    /// This.
    Call(Box<Call>),
    /// Nothing before this time.
    Wait(Duration),
    /// Nothing until something is new.
    Idle,
}

// === impl Listener ===

impl Listener for Answers {
    fn acknowledge(&self, version: u64) {
        Answers::acknowledge(self, version);
    }

    fn known(&self, known: Known) {
        Answers::known(self, known);
    }
}

// === impl Outbox ===

impl<L> Default for Outbox<L> {
    fn default() -> Self {
        Self { pods: BTreeMap::new(), in_flight: BTreeSet::new(), asked: BTreeMap::new(), arrivals: 0 }
    }
}

impl<L: Listener> Outbox<L> {
    /// The task of a pod wants to know the copy of its status, once the API server is reached.
    pub fn ask(&mut self, uid: &str, answers: L) {
        self.asked.insert(uid.to_owned(), answers);
    }

    /// The API server was reached for the first time. What these pods published before is forgotten: they publish again.
    pub fn reached(&mut self, pods: &Pods) {
        for (uid, answers) in std::mem::take(&mut self.asked) {
            if let Some(waiting) = self.pods.get_mut(&uid) {
                waiting.what.status = None;
            }
            answers.known(pods.known(&uid));
        }
        self.pods.retain(|_, waiting| !waiting.what.is_empty());
    }

    /// A status to be delivered. It replaces an older one.
    pub fn publish(&mut self, uid: &str, version: u64, status: &PodStatus, answers: L) {
        let undelivered = Undelivered { version, status: status.clone(), answers };
        self.waiting(uid).what.status = Some(undelivered);
    }

    /// A pod that the agent cannot run.
    pub fn reject(&mut self, uid: &str, why: &(impl fmt::Display + ?Sized)) {
        if !self.in_flight.contains(uid) {
            self.waiting(uid).what.rejected = Some(why.to_string());
        }
    }

    /// The object of a pod of which nothing is left has to go.
    pub fn delete(&mut self, uid: &str) {
        self.waiting(uid).what.deletion = true;
    }

    fn waiting(&mut self, uid: &str) -> &mut Waiting<L> {
        self.arrivals += 1;
        let arrived = self.arrivals;
        let new = || Waiting {
            what: What { status: None, rejected: None, deletion: false },
            arrived,
            failures: 0,
            not_before: Duration::ZERO,
        };
        self.pods.entry(uid.to_owned()).or_insert_with(new)
    }

    /// The next request, which counts as in flight from now on. What the API server has already is acknowledged on the way.
    pub fn next(&mut self, pods: &Pods, host_ip: Option<&str>, now: Duration) -> Next {
        // Before the first list nothing can be compared, and a status without comparison might take another writer's word back.
        if !pods.are_known() || self.in_flight.len() >= IN_FLIGHT {
            return Next::Idle;
        }
        loop {
            let free = self.pods.iter().filter(|(uid, _)| !self.in_flight.contains(*uid));
            let rank = |uid: &String, waiting: &Waiting<L>| {
                let urgent = waiting.what.status.as_ref().zip(pods.get(uid));
                (urgent.is_none_or(|(status, pod)| !is_urgent(&status.status, &pod.status)), waiting.arrived)
            };
            let due = free.clone().filter(|(_, waiting)| waiting.not_before <= now);
            let Some(uid) = due.min_by_key(|(uid, waiting)| rank(uid, waiting)).map(|(uid, _)| uid.clone()) else {
                let soonest = free.map(|(_, waiting)| waiting.not_before).min();
                return soonest.map_or(Next::Idle, Next::Wait);
            };
            match self.call(&uid, pods, host_ip) {
                Some(call) => {
                    self.in_flight.insert(uid);
                    return Next::Call(Box::new(call));
                }
                None => drop(self.pods.remove(&uid)),
            }
        }
    }

    /// The request that a pod needs; none if it needs none.
    fn call(&mut self, uid: &str, pods: &Pods, host_ip: Option<&str>) -> Option<Call> {
        let what = &mut self.pods.get_mut(uid)?.what;
        let Some(pod) = pods.get(uid) else {
            // There is no such object any more: whoever waits for the status waits for nothing.
            if let Some(Undelivered { version, answers, .. }) = what.status.take() {
                answers.acknowledge(version);
            }
            return None;
        };
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        if let Some(undelivered) = &what.status {
            match status_patch(uid, &undelivered.status, host_ip, &pod.status) {
                Some(patch) => {
                    let (path, version) = (format!("{path}/status"), Some(undelivered.version));
                    return Some(Call { uid: uid.to_owned(), path, request: Request::PatchStatus(patch), version });
                }
                None => {
                    undelivered.answers.acknowledge(undelivered.version);
                    what.status = None;
                }
            }
        }
        if let Some(why) = &what.rejected {
            let (path, request) = (format!("{path}/status"), Request::PatchStatus(rejection(uid, why)));
            return Some(Call { uid: uid.to_owned(), path, request, version: None });
        }
        what.deletion.then(|| {
            let options = serde_json::json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": uid } });
            Call { uid: uid.to_owned(), path, request: Request::Delete(options), version: None }
        })
    }

    /// A request was answered. The pods know the answer already.
    pub fn finished(&mut self, call: &Call, answer: Result<(), &ApiError>, now: Duration) {
        self.in_flight.remove(&call.uid);
        let Some(waiting) = self.pods.get_mut(&call.uid) else { return };
        let Some(outcome) = Outcome::of(answer) else {
            waiting.done(call);
            if waiting.what.is_empty() {
                self.pods.remove(&call.uid);
            }
            return;
        };
        match outcome {
            Outcome::NoObject => {
                if let Some(status) = waiting.what.status.take() {
                    status.answers.acknowledge(status.version);
                }
                self.pods.remove(&call.uid);
            }
            // What rejects a deletion (an admission policy, say) may change its mind, and the object has to go some time.
            Outcome::Rejected if matches!(call.request, Request::Delete(_)) => waiting.not_before = now + DENIED_PAUSE,
            // The same would be rejected again; a newer status may not be.
            Outcome::Rejected => {
                if waiting.what.status.as_ref().is_some_and(|status| Some(status.version) == call.version) {
                    waiting.what.status = None;
                }
                waiting.what.rejected = None;
                if waiting.what.is_empty() {
                    self.pods.remove(&call.uid);
                }
            }
            Outcome::Again(pause) => {
                let grown = (PAUSE * 2_u32.pow(waiting.failures.min(10))).min(LONGEST_PAUSE);
                waiting.failures = waiting.failures.saturating_add(1);
                waiting.not_before = now + pause.unwrap_or(grown);
            }
        }
    }

    /// How many pods have something that waits.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }
}

/// What follows from a request that was not done.
enum Outcome {
    /// The object is gone.
    NoObject,
    /// The API server rejects what was asked for.
    Rejected,
    /// It is to be asked again, after this long if the API server has said so.
    Again(Option<Duration>),
}

// === impl Outcome ===

impl Outcome {
    fn of(answer: Result<(), &ApiError>) -> Option<Self> {
        let Err(error) = answer else { return None };
        let ApiError::Refused { code, retry_after, .. } = error else { return Some(Self::Again(None)) };
        Some(match code {
            404 => Self::NoObject,
            400 | 413 | 422 => Self::Rejected,
            401 | 403 => Self::Again(Some(DENIED_PAUSE)),
            // A conflict (409) has two meanings: many writers at once, or another object of this name, because every request carries the UID. In
            // the second case the watch reports that this object is gone.
            _ => Self::Again(*retry_after),
        })
    }
}

// === impl Waiting ===

impl<L: Listener> Waiting<L> {
    /// What a call has done is not to be done again.
    fn done(&mut self, call: &Call) {
        self.failures = 0;
        self.not_before = Duration::ZERO;
        match (&call.request, call.version) {
            (Request::PatchStatus(_), Some(version)) => {
                if let Some(status) = &self.what.status {
                    status.answers.acknowledge(version);
                    if status.version == version {
                        self.what.status = None;
                    }
                }
            }
            (Request::PatchStatus(_), None) => self.what.rejected = None,
            (Request::Delete(_), _) => self.what.deletion = false,
        }
    }
}

// === impl What ===

impl<L> What<L> {
    fn is_empty(&self) -> bool {
        self.status.is_none() && self.rejected.is_none() && !self.deletion
    }
}

#[cfg(test)]
mod tests;
