//! A simulated cluster with controllers in it.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use keelet_gates::{
    api::Api,
    clock::WallClock,
    controller::{Controller, Election, LeaseOptions, Options, RuleObjects, Vitals},
    election::Timing,
    engine::Mode,
    metrics::Metrics,
    process::Process,
    settings::Settings,
};
use keelet_sim_api::{Connection, Grant, Identity, Key, SimApi};
use serde_json::{Value, json};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep},
};

/// The gate that most tests are about.
pub const GATE: &str = "readiness.k8s.io/CNIReady";

/// What the API server gives to a new node, and the node lifecycle controller takes away. There is none here, so it stays.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready:NoSchedule";

/// The longest that anything takes: a lease that has to expire, a watch that has to be noticed dead, a backoff of requests.
const PATIENCE: Duration = Duration::from_secs(100);

/// A cluster.
pub struct World {
    /// Its API server.
    pub api: SimApi,
}

/// A controller in a process of its own.
pub struct Replica {
    /// Its process.
    pub process: keelet_sim_api::Process,
    /// The connection that its client uses.
    pub connection: Connection,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// Whether it leads, and what else `/healthz` asks for.
    pub vitals: watch::Receiver<Vitals>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

#[derive(Debug)]
struct SimClock(ClockOf);

#[derive(Clone)]
struct ClockOf(Connection);

impl std::fmt::Debug for ClockOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

impl WallClock for SimClock {
    fn now(&self) -> Timestamp {
        self.0.0.now()
    }
}

/// What a controller does by default, with an election.
pub fn options(identity: &str) -> Options {
    Options {
        settings: Settings::default(),
        mode: Mode::Act,
        election: Election::Lease(Box::new(LeaseOptions {
            namespace: "kube-system".to_owned(),
            name: "keelet-gates".to_owned(),
            identity: identity.to_owned(),
            timing: Timing::default(),
        })),
        rules: RuleObjects::Auto,
    }
}

/// The user that controllers are.
pub fn user() -> Identity {
    Identity::service_account("kube-system", "keelet-controller")
}

/// Exactly what a controller asks for.
pub fn grants(options: &Options) -> Vec<Grant> {
    let of = |permission: keelet_gates::api::Permission| {
        let mut grant =
            Grant::to_user(&user().user).verbs(&permission.verbs).on(permission.group, &[permission.resource]);
        if let Some(name) = &permission.name {
            grant = grant.named(&[name]);
        }
        match &permission.namespace {
            Some(namespace) => grant.within(namespace),
            None => grant,
        }
    };
    options.permissions().into_iter().map(of).chain([basic()]).collect()
}

/// What every user may do.
pub fn basic() -> Grant {
    Grant::to_group("system:authenticated").verbs(&["create"]).on("authorization.k8s.io", &["selfsubjectaccessreviews"])
}

impl World {
    /// A cluster without nodes, where controllers may do what they ask for and no more (CTRL-18).
    pub fn new(seed: u64) -> Self {
        let api = SimApi::new(seed);
        api.grant(grants(&options("any")));
        Self { api }
    }

    /// Starts a controller.
    pub fn start(&self, name: &str, options: Options) -> Replica {
        let process = self.api.process();
        let connection = self.api.connect_in(&process, name, user());
        let client = kube::Client::new(connection.clone(), "kube-system");
        let metrics = Arc::new(Metrics::new());
        let clock = Arc::new(SimClock(ClockOf(connection.clone())));
        let controller = Controller::new(Api::new(client), clock, options, Arc::clone(&metrics));
        let (stop, stopped) = oneshot::channel::<()>();
        let vitals = controller.vitals();
        let running = tokio::spawn(drop_output(process.own(controller.run(async {
            let _ = stopped.await;
        }))));
        Replica { process, connection, metrics, vitals, stop: Some(stop), running }
    }

    /// Starts a controller with what is around it in a process.
    pub fn process(&self, name: &str, options: Options) -> JoinHandle<()> {
        let connection = self.api.connect(name, user());
        let api = Api::new(kube::Client::new(connection.clone(), "kube-system"));
        let process = Process { api, clock: Arc::new(SimClock(ClockOf(connection))), options, endpoint: None };
        tokio::spawn(process.run(std::future::pending()))
    }

    /// Starts a controller with an election.
    pub fn replica(&self, name: &str) -> Replica {
        self.start(name, options(name))
    }

    /// Creates a node with taints `key:effect`.
    pub fn node(&self, name: &str, taints: &[&str]) -> Value {
        let taints: Vec<_> = taints
            .iter()
            .map(|taint| {
                let (key, effect) = taint.rsplit_once(':').unwrap();
                json!({"key": key, "effect": effect})
            })
            .collect();
        let node = json!({"metadata": {"name": name, "labels": {"role": "worker"}}, "spec": {"taints": taints}});
        let (code, created) = self.api.act("POST", "/api/v1/nodes", &node);
        assert_eq!(code, 201, "{created}");
        created
    }

    /// Creates a node with the gate `CNIReady`.
    pub fn gated(&self, name: &str) {
        self.node(name, &[&format!("{GATE}:NoSchedule")]);
    }

    /// A reporter writes a condition; the others stay.
    pub fn report(&self, node: &str, kind: &str, status: &str) {
        let now = Timestamp::from_second(self.api.clock().now().as_second()).unwrap().to_string();
        let condition = json!({"type": kind, "status": status, "reason": "Reported", "lastHeartbeatTime": now, "lastTransitionTime": now});
        let patch = json!({"status": {"conditions": [condition]}});
        let path = format!("/api/v1/nodes/{node}/status");
        let (code, answer) = self.api.act_as(
            "reporter",
            &Identity::admin(),
            "PATCH",
            &path,
            "application/strategic-merge-patch+json",
            &patch,
        );
        assert_eq!(code, 200, "{answer}");
    }

    /// A node as it is stored.
    pub fn get(&self, name: &str) -> Value {
        let key = Key { resource: "nodes".into(), namespace: String::new(), name: name.to_owned() };
        self.api.stored(&key).map(|node| (*node).clone()).unwrap_or_default()
    }

    /// The taints of a node, `key:effect`, without the one that the API server itself gives to a new node.
    pub fn taints(&self, name: &str) -> Vec<String> {
        let node = self.get(name);
        let taints = taints(&node);
        assert!(
            node.is_null() || taints.iter().any(|taint| taint == NOT_READY),
            "{name} has lost {NOT_READY}: {taints:?}"
        );
        taints.into_iter().filter(|taint| taint != NOT_READY).collect()
    }

    /// Reasons of events on a node, with their counts.
    pub fn events(&self, node: &str) -> Vec<(String, u64)> {
        let events = self.api.stored_of("events");
        let about = events.iter().filter(|event| event["involvedObject"]["name"] == node);
        about.map(|event| (event["reason"].as_str().unwrap().to_owned(), event["count"].as_u64().unwrap())).collect()
    }

    /// Waits until something is true; time passes in steps of 10 ms. How long it took.
    ///
    /// # Panics
    ///
    /// If it is not true in time.
    pub async fn until(&self, what: &str, is_so: impl FnMut(&Self) -> bool) -> Duration {
        let began = Instant::now();
        assert!(self.comes_to(is_so).await, "{what}: not so after {PATIENCE:?}\n{}", tail(&self.api));
        began.elapsed()
    }

    /// Whether something becomes true in time; time passes in steps of 10 ms.
    pub async fn comes_to(&self, mut is_so: impl FnMut(&Self) -> bool) -> bool {
        let began = Instant::now();
        while !is_so(self) {
            if began.elapsed() >= PATIENCE {
                return false;
            }
            sleep(Duration::from_millis(10)).await;
        }
        true
    }

    /// How often clients sent a kind of request: verb and resource.
    pub fn requests(&self, client: &str, verb: &str, resource: &str) -> usize {
        self.api.with_log(|log| {
            let of = |request: &keelet_sim_api::Request| {
                request.verb.is_some_and(|found| found.as_str() == verb) && request.resource == resource
            };
            log.requests().filter(|(found, request)| *found == client && of(request)).count()
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.api.end();
    }
}

impl Replica {
    /// Tells it to stop, as SIGTERM does.
    pub fn terminate(&mut self) {
        drop(self.stop.take());
    }

    /// Whether it says that it leads.
    pub fn leads(&self) -> bool {
        self.vitals.borrow().leads
    }

    /// Whether it has come to its end by itself.
    pub fn has_ended(&self) -> bool {
        self.running.is_finished()
    }

    /// The value of a metric.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.metrics.encode();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().unwrap())
    }
}

/// The taints of a stored node.
pub fn taints(node: &Value) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints
        .iter()
        .map(|taint| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap()))
        .collect()
}

/// The end of the log.
pub fn tail(api: &SimApi) -> String {
    api.with_log(|log| {
        let from = log.entries().len().saturating_sub(60);
        log.entries()[from..].iter().map(|entry| format!("{entry}\n")).collect()
    })
}

async fn drop_output(task: impl Future<Output = ()>) {
    task.await;
}
