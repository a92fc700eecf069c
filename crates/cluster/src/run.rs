//! Everything between the agent and the API server, as one future.

use std::{fmt, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use keelet_agent::{Feed, board::PodEvent, doors::Clock, events::EventRecord};
use keelet_api::{
    Api, ApiError, BadJson, News, Objects, Page, SHORT, Version, WatchEvent, WatchObserver, escaped, follow,
    log_list_failed, read_event, read_page,
};
use keelet_lifecycle::Severity;
use keelet_pod::Pod;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};
use tracing::{debug, info, warn};

use crate::{
    Carried, events,
    node::{self, GateLabels, NodeView, Registration, Reporter},
    outbox::{Call, Next, Request},
    publisher::{ClusterPublisher, Shared},
};

/// What is known of this node's place in the cluster.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the node.
    pub name: String,
    /// The address of the node, which is in the status of its pods.
    pub address: Option<String>,
    /// How the Node object is created; none if another program creates it.
    pub registration: Option<Registration>,
}

/// What lies between the agent and the API server.
#[derive(Debug)]
pub struct Cluster {
    api: Api,
    clock: Arc<dyn Clock>,
    settings: Settings,
    shared: Arc<Shared>,
    carried: Carried,
}

/// How often the node's own view of itself is compared with what was reported.
const NODE_PERIOD: Duration = Duration::from_secs(10);

/// How long a change of a condition waits for others, so that there is at most one report a second.
const NODE_CHANGE_PAUSE: Duration = Duration::from_secs(1);

/// The shortest and the longest pause between attempts to register (CLU-23).
const REGISTER_AGAIN: Duration = Duration::from_millis(100);
const LONGEST_REGISTER_PAUSE: Duration = Duration::from_secs(7);

/// The pause after an event could not be written.
const EVENT_AGAIN: Duration = Duration::from_secs(5);

/// News of pods that wait for their reader, which only ever takes a lock.
const NEWS: usize = 64;

/// Pods that are bound to a node.
struct PodsOfNode {
    selector: String,
}

/// A pod as it came, with its version.
struct PodObject {
    version: Version,
    object: Value,
}

/// What hears of pods that cannot be listed. Watches of the agent are not counted yet.
struct PodWatcher(Carried);

/// What was last logged of a request that fails again and again: an outage of hours is no reason to fill the log.
#[derive(Default)]
struct LastError(String);

// === impl Cluster ===

impl Cluster {
    /// What delivers what that publisher was given.
    pub fn new(
        api: Api,
        clock: Arc<dyn Clock>,
        settings: Settings,
        publisher: &ClusterPublisher,
        carried: Carried,
    ) -> Self {
        Self { api, clock, settings, shared: Arc::clone(&publisher.0), carried }
    }

    /// Runs for as long as it is polled. `feed` is the agent's way to hear of pods.
    pub async fn run(self, feed: Feed, view: Arc<dyn NodeView>) {
        let this = &self;
        let (news, heard) = mpsc::channel(NEWS);
        let selector = format!("fieldSelector={}", escaped(&format!("spec.nodeName={}", self.settings.name)));
        let pods = follow(self.api.clone(), PodsOfNode { selector }, news, Arc::new(PodWatcher(self.carried.clone())));
        let in_cluster = async {
            let uid = this.register(&*view).await;
            futures::join!(this.report(&*view), this.keep_lease(&uid));
        };
        let carry = this.carried.run(&this.api);
        futures::join!(pods, this.hear(heard, &feed), this.deliver(), this.write_events(), in_cluster, carry);
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.clock.now().wall.as_millis()).unwrap_or_default()
    }

    // === Pods ===

    /// Takes news of pods, and tells the agent what it should run.
    async fn hear(&self, mut news: mpsc::Receiver<News<PodObject>>, feed: &Feed) {
        while let Some(news) = news.recv().await {
            let (running, all_known) = self.note(news);
            // The state is not locked meanwhile: files are read and written, and the agent waits for the lock when it publishes.
            self.carried.set_pods(&running, all_known);
            {
                let state = self.shared.lock();
                let (wanted, extent) = state.pods.wanted();
                feed.set(wanted, extent);
            }
            self.shared.bell.notify_one();
        }
    }

    /// Takes news of pods. The pods that run, and whether these are all of them.
    fn note(&self, news: News<PodObject>) -> (Vec<Arc<Pod>>, bool) {
        let mut known_now = false;
        match news {
            News::ListBegins => self.shared.lock().pods.list_begins(),
            // One lock for each: a page takes a while to read, and the agent publishes meanwhile.
            News::Listed(pods) => pods.into_iter().for_each(|pod| self.take(&mut self.shared.lock(), pod.object)),
            News::ListEnds => {
                let mut state = self.shared.lock();
                known_now = !state.pods.are_known();
                state.pods.list_ends();
            }
            News::Changed(pod) => self.take(&mut self.shared.lock(), pod.object),
            News::Deleted(pod) => {
                if let Some(uid) = pod.object.pointer("/metadata/uid").and_then(Value::as_str) {
                    self.shared.lock().pods.deleted(uid);
                }
            }
            News::NoSuchKind | News::NotServed(_) => warn!("the API server has no pods: is it one of Kubernetes?"),
        }
        let state = &mut *self.shared.lock();
        if known_now {
            info!("reached the API server");
            state.outbox.reached(&state.pods);
        }
        let refused: Vec<_> = state
            .pods
            .refused()
            .filter_map(|(uid, pod)| Some((uid.clone(), pod.pod.as_ref().err()?.clone())))
            .collect();
        for (uid, why) in refused {
            state.outbox.reject(&uid, &why);
        }
        for uid in state.pods.refused_and_deleted() {
            state.outbox.delete(uid);
        }
        (state.pods.running().cloned().collect(), state.pods.are_known())
    }

    fn take(&self, state: &mut crate::publisher::State, object: Value) {
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Err(error) = state.pods.changed(object, &self.settings.name) {
            warn!(%error, "ignoring a pod");
            return;
        }
        // Its deletion was requested after nothing of it was left.
        let late = |pod: &crate::pods::ApiPod| {
            pod.finished && pod.deletion.as_ref().is_some_and(|deletion| !deletion.grace.is_zero())
        };
        if state.pods.get(&uid).is_some_and(late) {
            state.outbox.delete(&uid);
        }
    }

    // === Statuses ===

    /// Sends what waits, a bounded number of requests at once.
    async fn deliver(&self) {
        let began = Instant::now();
        let mut in_flight = FuturesUnordered::new();
        let mut last = LastError::default();
        loop {
            let next = {
                let state = &mut *self.shared.lock();
                state.outbox.next(&state.pods, self.settings.address.as_deref(), began.elapsed())
            };
            let wait = match next {
                Next::Call(call) => {
                    in_flight.push(self.send(call));
                    continue;
                }
                Next::Wait(until) => Some(began + until),
                Next::Idle => None,
            };
            tokio::select! {
                biased;
                Some((call, answer)) = in_flight.next(), if !in_flight.is_empty() => self.finish(&call, answer, began, &mut last),
                () = self.shared.bell.notified() => {}
                () = sleep_until(wait.unwrap_or_else(Instant::now)), if wait.is_some() => {}
            }
        }
    }

    async fn send(&self, call: Box<Call>) -> (Box<Call>, Result<Value, ApiError>) {
        let answer = match &call.request {
            Request::PatchStatus(patch) => {
                self.api.patch_strategic(&call.path, patch.to_string().into_bytes(), SHORT).await
            }
            Request::Delete(options) => self.api.delete(&call.path, options, SHORT).await,
        };
        (call, answer.map(|body| serde_json::from_slice(&body).unwrap_or_default()))
    }

    fn finish(&self, call: &Call, answer: Result<Value, ApiError>, began: Instant, last: &mut LastError) {
        match &answer {
            Ok(_) => {
                last.clear();
            }
            Err(error) if last.is_new(error) => {
                warn!(path = call.path, uid = call.uid, %error, "cannot update the pod at the API server");
            }
            Err(error) => debug!(path = call.path, uid = call.uid, %error, "cannot update the pod at the API server"),
        }
        let state = &mut *self.shared.lock();
        let done = match answer {
            // The answer is the newest copy: the watch brings it later.
            Ok(object) if matches!(call.request, Request::PatchStatus(_)) => {
                self.take(state, object);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        state.outbox.finished(call, done.as_ref().copied(), began.elapsed());
    }

    // === Events ===

    async fn write_events(&self) {
        loop {
            let (event, dropped) = {
                let state = &mut *self.shared.lock();
                (state.events.front(), state.events.take_dropped())
            };
            if dropped > 0 {
                warn!(dropped, "too many events wait for the API server: dropped the oldest");
            }
            let Some(event) = event else {
                self.shared.events_bell.notified().await;
                continue;
            };
            let path = events::path(&event);
            let mut answer = self.api.create(&path, &events::object(&event, &self.settings.name)).await;
            if answer.as_ref().is_err_and(ApiError::is_conflict) {
                let path = format!("{path}/{}", events::name(&event));
                answer = self.api.patch(&path, events::patch(&event).to_string().into_bytes(), SHORT).await;
            }
            match answer {
                Err(error) if error.code().is_none_or(|code| code.is_server_error() || code.as_u16() == 429) => {
                    sleep(EVENT_AGAIN).await;
                    continue;
                }
                Err(error) => {
                    warn!(kind = event.involved.kind(), name = event.pod.name, %error, "cannot write an event")
                }
                Ok(_) => {}
            }
            self.shared.lock().events.remove(&event);
        }
    }

    // === The node ===

    /// Creates the Node object, or adopts the one that there is. Its UID.
    async fn register(&self, view: &dyn NodeView) -> String {
        let mut pause = REGISTER_AGAIN;
        let mut last = LastError::default();
        loop {
            match self.register_once(view).await {
                Ok(uid) => return uid,
                Err(error) if last.is_new(&error) => {
                    warn!(node = self.settings.name, %error, "cannot register the node; retrying");
                }
                Err(error) => debug!(node = self.settings.name, %error, "cannot register the node; retrying"),
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_REGISTER_PAUSE);
        }
    }

    async fn register_once(&self, view: &dyn NodeView) -> Result<String, ApiError> {
        let Some(registration) = &self.settings.registration else {
            return self.node().await.map(|node| uid_of(&node));
        };
        let own = view.node();
        let create = async |gates| self.api.create("/api/v1/nodes", &node::new_node(&own, registration, gates)).await;
        let mut created = create(GateLabels::Set).await;
        if self.may_lack_gate_labels(registration, &created) {
            created = create(GateLabels::LeftOut).await;
            self.told_of_gate_labels(registration, created.is_ok());
        }
        match created {
            Ok(body) => {
                info!(node = self.settings.name, "registered the node");
                return Ok(uid_of(&serde_json::from_slice(&body).unwrap_or_default()));
            }
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        let object = self.node().await?;
        info!(node = self.settings.name, "the node is registered already: adopting its object");
        let patch = async |gates| match node::label_patch(&own, registration, gates, &object) {
            Some(patch) => self.api.patch(&self.node_path(), patch.to_string().into_bytes(), SHORT).await.map(drop),
            None => Ok(()),
        };
        let mut patched = patch(GateLabels::Set).await;
        if self.may_lack_gate_labels(registration, &patched) {
            patched = patch(GateLabels::LeftOut).await;
            self.told_of_gate_labels(registration, patched.is_ok());
        }
        patched?;
        Ok(uid_of(&object))
    }

    /// Whether the labels of readiness gates may be why the API server refuses something (GATE-5).
    fn may_lack_gate_labels<T>(&self, registration: &Registration, answer: &Result<T, ApiError>) -> bool {
        let forbidden = answer.as_ref().is_err_and(|error| error.code().is_some_and(|code| code.as_u16() == 403));
        forbidden && node::gate_keys(registration).next().is_some()
    }

    /// Reports that the labels of readiness gates were the reason, if it went well without them.
    fn told_of_gate_labels(&self, registration: &Registration, went_well: bool) {
        if !went_well {
            return;
        }
        let keys: Vec<&str> = node::gate_keys(registration).collect();
        let message = format!(
            "The API server forbids the labels of readiness gates to nodes: {}; the controller of the gates sets them",
            keys.join(", ")
        );
        let at = self.clock.now();
        let (reason, severity) = ("ReadinessGateLabelForbidden".to_owned(), Severity::Warning);
        let event = EventRecord { at, container: None, reason, severity, message, count: 1 };
        self.shared.lock().events.push(PodEvent::of_node(&self.settings.name, event));
        self.shared.events_bell.notify_one();
    }

    fn node_path(&self) -> String {
        format!("/api/v1/nodes/{}", self.settings.name)
    }

    async fn node(&self) -> Result<Value, ApiError> {
        let body = self.api.get(&self.node_path(), SHORT).await?;
        serde_json::from_slice(&body).map_err(|error| ApiError::NoAnswer(format!("the answer is not a node: {error}")))
    }

    /// Reports the node's status when it changes, and every few minutes.
    async fn report(&self, view: &dyn NodeView) {
        let began = Instant::now();
        let mut reporter = Reporter::default();
        let none = Registration::default();
        let registration = self.settings.registration.as_ref().unwrap_or(&none);
        // What the object says now: read once, then known from the answers.
        let mut object: Option<Value> = None;
        let mut changes = view.changes();
        loop {
            if object.is_none() {
                object = self.node().await.ok();
            }
            changes.mark_unchanged();
            // Before its first look at the node the agent knows less than the object may say.
            let observed = view.is_observed();
            let time = node::Time { running: began.elapsed(), wall: self.now() };
            if let Some(known) = object.as_ref().filter(|_| observed)
                && let Some(patch) = reporter.patch(&view.node(), registration, &view.retired(), known, time)
            {
                let path = format!("{}/status", self.node_path());
                match self.api.patch_strategic(&path, patch.to_string().into_bytes(), SHORT).await {
                    Ok(body) => object = serde_json::from_slice(&body).ok(),
                    Err(error) => {
                        warn!(node = self.settings.name, %error, "cannot report the status of the node");
                        reporter.failed();
                        object = None;
                    }
                }
            }
            // A condition that changes is reported soon; those that flap together, together.
            let changed = async {
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                sleep(NODE_CHANGE_PAUSE).await;
            };
            tokio::select! {
                () = sleep(NODE_PERIOD) => {}
                () = changed => {}
            }
        }
    }

    /// Renews the lease. It waits for nothing else (CLU-27).
    async fn keep_lease(&self, node_uid: &str) {
        let name = &self.settings.name;
        let mut last = LastError::default();
        loop {
            let began = Instant::now();
            let patch = node::lease_patch(name, self.now()).to_string().into_bytes();
            let mut renewed = self.api.patch(&node::lease_path(name), patch, SHORT).await;
            if renewed.as_ref().is_err_and(ApiError::is_not_found) {
                let (path, lease) = node::new_lease(name, node_uid, self.now());
                renewed = self.api.create(path, &lease).await;
            }
            match &renewed {
                Ok(_) if last.clear() => info!(node = name, "renewed the lease of the node again"),
                Ok(_) => {}
                Err(error) if last.is_new(error) => {
                    warn!(node = name, %error, "cannot renew the lease of the node: the cluster may take it for lost");
                }
                Err(error) => debug!(node = name, %error, "cannot renew the lease of the node"),
            }
            let pause = if renewed.is_err() { LEASE_AGAIN } else { node::LEASE_PERIOD };
            sleep_until(began + pause).await;
        }
    }
}

/// A renewal that failed is tried again soon: the lease lasts for four of its periods.
const LEASE_AGAIN: Duration = Duration::from_secs(2);

fn uid_of(object: &Value) -> String {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned()
}

// === impl PodsOfNode ===

impl Objects for PodsOfNode {
    type Object = PodObject;
    const RESOURCE: &'static str = "pods";

    fn path(&self) -> &str {
        "/api/v1/pods"
    }

    fn selector(&self) -> &str {
        &self.selector
    }

    fn page(&mut self, json: &[u8]) -> Result<Page<PodObject>, BadJson> {
        read_page(json, |object| Ok(PodObject::new(object)))
    }

    fn event(&mut self, json: &[u8]) -> Result<WatchEvent<PodObject>, BadJson> {
        read_event(json, |object| Ok(PodObject::new(object)))
    }

    fn version(pod: &PodObject) -> &Version {
        &pod.version
    }
}

// === impl PodObject ===

impl PodObject {
    fn new(object: Value) -> Self {
        Self { version: Version::of(&object), object }
    }
}

// === impl LastError ===

impl LastError {
    /// Whether this error has not just been logged.
    fn is_new(&mut self, error: &ApiError) -> bool {
        let text = error.to_string();
        let is_new = self.0 != text;
        self.0 = text;
        is_new
    }

    /// The request works again. Whether it did not before.
    fn clear(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }
}

// === impl PodWatcher ===

impl WatchObserver for PodWatcher {
    fn watch_ended(&self, _: &'static str, _: &'static str) {}

    fn list_failed(&self, resource: &'static str, failures: u32, error: &dyn fmt::Display) {
        log_list_failed(resource, failures, error);
        self.0.away(error.to_string());
    }
}
