//! The node agent: pods in, running containers and statuses out.
//!
//! ```text
//! source ----> manager ----> pod task (one per pod): observe -> plan -> ledger -> board -> operations
//!                              ^  ^  ^                 |                                      |
//!               watch (events)-'  |  '--- slot <-------+--- operations report their end <-----'
//!                      audit (time)
//! ```
//!
//! The agent decides nothing about containers: [`keelet_lifecycle::Rules::plan`] does. What is here carries plans out
//! and brings back what came of it. Everything outside is behind a door ([`doors`]), so the same agent runs on a real
//! node and in a simulation that stops it between any two effects.
//!
//! State has one owner each: a pod's evidence its [`pod_task`], the set of pods the [`manager`], the ledger the
//! [`ledger_writer`]. They notify each other through slots that hold the latest value and never make a sender wait.

#[cfg(test)]
mod bed;
pub mod board;
pub mod clock;
pub mod config;
pub mod doors;
pub mod events;
mod exec;
mod ledger_writer;
mod manager;
pub mod metrics;
pub mod node;
mod operations;
mod orphans;
mod pod_task;
pub mod publish;
mod refresh;
mod registry;
mod shared;
mod slot;
pub mod source;
mod tasks;
pub mod upkeep;
mod watch;

use std::{
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
    time::Duration,
};

use k8s_openapi::api::core::v1;
use keelet_cri::Runtime;
use keelet_ledger::{Disk, Ledger, OpenError, Opened};
use keelet_lifecycle::{
    Moment, Rules,
    node::NodeProbe,
    observed::{Absence, RestartRequest},
    restart::{RestartRefused, check_request},
};
use keelet_pod::Features;
use keelet_prober::Prober;
use tokio::sync::{Notify, OnceCell, Semaphore, watch as signal};

use self::{
    board::{Board, GonePod, Recall},
    exec::RuntimeExec,
    ledger_writer::LedgerWriter,
    manager::{Mailbox, Manager},
    node::{Condition, DiskPressure, Facts, Gating, Node, admission::Claims},
    registry::Registry,
    shared::Shared,
};
pub use self::{
    doors::Doors,
    manager::{Extent, WantedPods},
    metrics::Metrics,
    slot::Wanted,
    source::{Feed, Source},
    tasks::TokioTasks,
    upkeep::{ImageRules, Upkeep},
};

/// How often the agent says in the ledger that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The node's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the rules depend on.
    pub rules: Rules,
    /// Feature switches, for pods that are read back from the ledger.
    pub features: Features,
    /// Where the ledger is.
    pub ledger: keelet_ledger::Settings,
    /// Whether the board shows what earlier runs of the agent emitted.
    pub recall: Recall,
    /// Permits of the whole node for probes by command, and as many for probes over the network; pods share them fairly.
    pub probe_limit: usize,
    /// What is known of the node.
    pub facts: Facts,
    /// Pulls of images that may be under way at once on the whole node; none for as many as there are.
    pub parallel_pulls: Option<NonZeroUsize>,
    /// What is done about logs and images.
    pub upkeep: Upkeep,
    /// Probes of components of the node.
    pub node_probes: Vec<NodeProbe>,
    /// What the node has to do with readiness gates.
    pub gating: Gating,
}

/// Permits for probes where nothing else is asked for: a pod may have a quarter of them, and 110 pods with a probe a second need less
/// than half of them if each takes a fifth of a second.
pub const PROBES: usize = 64;

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    stop: signal::Sender<bool>,
    stopped: signal::Receiver<bool>,
    upkeep: signal::Sender<Upkeep>,
    /// The source of [`Agent::set_pods`], once there is one.
    only_source: OnceLock<Feed>,
}

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The ledger cannot be opened.
    #[error(transparent)]
    Ledger(#[from] OpenError),
}

/// Why a restart of all containers is refused.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There is no such pod.
    #[error("no pod with UID {0:?} runs on this node")]
    UnknownPod(String),
    /// Its new state would be rejected.
    #[error(transparent)]
    Refused(#[from] RestartRefused),
}

// === impl Settings ===

impl Settings {
    /// The usual ones, on a node of which nothing is known.
    pub fn new(features: Features, ledger: keelet_ledger::Settings) -> Self {
        Self {
            rules: Rules::of(&features),
            features,
            ledger,
            recall: Recall::AllRuns,
            probe_limit: PROBES,
            facts: Facts::default(),
            parallel_pulls: None,
            upkeep: Upkeep::default(),
            node_probes: Vec::new(),
            gating: Gating::default(),
        }
    }
}

// === impl Agent ===

impl Agent {
    /// Starts an agent: opens the ledger, and adopts every pod in it at once. Nothing waits for the runtime.
    pub async fn start<D: Disk + Send + 'static>(doors: Doors<D>, settings: Settings) -> Result<Self, StartError> {
        let started = doors.clock.now();
        let disk = settings.ledger.durable_root.clone();
        let Opened { mut ledger, pods, gone, events, node, losses, troubles } =
            Ledger::open_on(doors.disk, settings.ledger)?;
        for loss in &losses {
            tracing::warn!(file = %loss.file.display(), error = %loss.why, "moved damaged ledger file aside");
        }
        for trouble in &troubles {
            tracing::warn!(error = %trouble, "cannot write the ledger; continuing from memory and retrying: free space or make the disk writable");
        }
        let events = events.into_iter().filter_map(|event| serde_json::from_value(event).ok()).collect();
        let gone = gone.into_iter().filter_map(|pod| GonePod::recalled(pod, &settings.features)).collect();
        let board = Arc::new(Board::new(settings.recall, doors.observer));
        board.recall(events, gone);
        let absence = ledger.absence(started);
        let missed = ledger.long_absence();
        if let Some(away) = absence.filter(|away| *away > settings.rules.node_monitor_grace) {
            ledger.set_long_absence(Some(Absence { until: started, away }));
        }
        let (pressure, _) = signal::channel(DiskPressure::default());
        let (stop, stopping) = signal::channel(false);
        let (upkeep, present_upkeep) = signal::channel(settings.upkeep);
        let (ended, stopped) = signal::channel(false);
        let exec = Arc::new(RuntimeExec::new(doors.runtime.clone()));
        let shared = Arc::new(Shared {
            ledger: LedgerWriter::open(ledger, Arc::clone(&doors.clock), &doors.tasks),
            prober: Prober::new(doors.dial, exec, settings.probe_limit),
            runtime: doors.runtime,
            clock: doors.clock,
            tasks: doors.tasks,
            host: doors.host,
            board,
            publisher: doors.publisher,
            metrics: Arc::new(Metrics::new()),
            registry: Registry::default(),
            claims: Claims::default(),
            rules: settings.rules,
            features: settings.features,
            node: Node::new(settings.facts, settings.node_probes, settings.gating, node, started),
            started,
            absence,
            missed,
            stopping,
            runtime_name: OnceCell::new(),
            pulls: settings.parallel_pulls.map(|most| Semaphore::new(most.get())),
            disk,
            pressure,
            upkeep: present_upkeep,
            refresh_objects: Notify::new(),
        });
        let mailbox = Arc::new(Mailbox::default());
        let manager = Manager::new(Arc::clone(&shared), Arc::clone(&mailbox), pods);
        let last = Arc::clone(&shared);
        shared.tasks.spawn(Box::pin(async move {
            manager.run().await;
            keep_news(&last).await;
            last.ledger.stop().await;
            let _ = ended.send(true);
        }));
        shared.tasks.spawn(Box::pin(watch::follow(Arc::clone(&shared))));
        shared.tasks.spawn(Box::pin(heartbeat(Arc::clone(&shared))));
        shared.tasks.spawn(Box::pin(refresh::keep(Arc::clone(&shared))));
        shared.tasks.spawn(Box::pin(node::pressure::watch(Arc::clone(&shared))));
        shared.tasks.spawn(Box::pin(node::watch(Arc::clone(&shared))));
        node::probes::start(&shared);
        upkeep::start(&shared);
        Ok(Self { shared, mailbox, stop, stopped, upkeep, only_source: OnceLock::new() })
    }

    /// Opens a source of pods. All sources are to be opened before the first of them says anything: what none of them names is
    /// stopped and removed once all of them are complete. Until then the pods of the ledger run as they did.
    pub fn source(&self) -> Feed {
        Feed::open(&self.mailbox)
    }

    /// Follows a source of pods for as long as the agent is there.
    pub fn follow(&self, source: Box<dyn Source>) {
        self.shared.tasks.spawn(source.follow(self.source()));
    }

    /// The pods that are to run here, where there is one source only.
    pub fn set_pods(&self, wanted: WantedPods, extent: Extent) {
        self.only_source.get_or_init(|| self.source()).set(wanted, extent);
    }

    /// The newest of every pod, for everything on this node.
    pub fn board(&self) -> &Arc<Board> {
        &self.shared.board
    }

    /// Whether no pod is here, also none that an earlier agent left and that is on its way out.
    pub fn is_empty(&self) -> bool {
        self.shared.registry.is_empty()
    }

    /// Asks for all containers of a pod to be restarted in place.
    pub fn request_restart(&self, uid: &str, request: RestartRequest) -> Result<(), RequestError> {
        let (pod, slot) = self.shared.registry.find(uid).ok_or_else(|| RequestError::UnknownPod(uid.to_owned()))?;
        if self.shared.publisher.is_some() {
            check_request(&pod, self.shared.rules.restart_all)?;
        }
        slot.request_restart(request);
        Ok(())
    }

    /// Resolves once the loop that owns all pods has turned. One that hangs does not, nor one that has ended.
    pub async fn pulse(&self) {
        self.mailbox.pulse().await;
    }

    /// What is known of the node.
    pub fn facts(&self) -> &Facts {
        &self.shared.node.facts
    }

    /// When this agent started.
    pub fn started(&self) -> Moment {
        self.shared.started
    }

    /// The time.
    pub fn now(&self) -> Moment {
        self.shared.clock.now()
    }

    /// The container runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// The node as it was last observed.
    pub fn node(&self) -> v1::Node {
        self.shared.node.object(self.shared.started)
    }

    /// The node's conditions as last observed; none before the first observation.
    pub fn node_conditions(&self) -> Vec<Condition> {
        self.shared.node.conditions()
    }

    /// Whether the node was observed since this agent started. Before that, [`Agent::node`] has what an earlier agent said.
    pub fn node_is_observed(&self) -> bool {
        self.shared.node.is_observed()
    }

    /// Changes when the node is first observed, and when its conditions change.
    pub fn node_changes(&self) -> signal::Receiver<u64> {
        self.shared.node.changes()
    }

    /// Types of conditions that earlier agents reported of this node, and this one does not: their probes are gone.
    pub fn retired_conditions(&self) -> Vec<String> {
        self.shared.node.retired()
    }

    /// The node as it is now. It takes as long as the runtime takes to answer.
    pub async fn observe_node(&self) -> v1::Node {
        node::observe(&self.shared).await;
        self.node()
    }

    /// Whether a disk of the node is nearly full, as last seen.
    pub fn disk_pressure(&self) -> DiskPressure {
        self.shared.pressure.borrow().clone()
    }

    /// From now on logs and images are kept by these rules.
    pub fn set_upkeep(&self, upkeep: Upkeep) {
        self.upkeep.send_replace(upkeep);
    }

    /// Config maps and secrets may have changed: volumes are brought up to date now.
    pub fn refresh_objects(&self) {
        self.shared.refresh_objects.notify_one();
    }

    /// The node's metrics, in the text format of [`metrics::CONTENT_TYPE`].
    pub fn metrics(&self) -> String {
        let (pods, containers) = self.shared.board.running();
        self.shared.metrics.running(pods, containers);
        self.shared.metrics.overdue_probes(self.shared.board.overdue_probes().len());
        self.shared.metrics.encode()
    }

    /// Stops the agent and leaves the pods running. Returns when everything that was deferred is written.
    pub async fn stop(&self) {
        let _ = self.stop.send(true);
        let mut stopped = self.stopped.clone();
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }
}

/// Keeps the newest events and probe results for the next agent, if there are new ones.
async fn keep_news(shared: &Shared) {
    if let Some(evidence) = shared.node.unsaved() {
        shared.ledger.keep_node(evidence, false).await;
    }
    if let Some(events) = shared.board.unsaved() {
        shared.ledger.keep_events(events).await;
    }
}

async fn heartbeat(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.clone();
    loop {
        keep_news(&shared).await;
        shared.ledger.beat().await;
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(HEARTBEAT) => {}
        }
    }
}
