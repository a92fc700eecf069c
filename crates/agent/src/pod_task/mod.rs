//! One task per pod, the owner of its state: look, plan, write down, publish, act.
//!
//! Three rules hold here:
//!
//! - The task never awaits an operation. Operations run beside it and report to its [`Slot`]; it awaits the ledger
//!   alone, because evidence comes before action.
//! - A look is dated by how many operations had ended when it began. The rules learn of the end of an operation only
//!   with a look that began after it, so nothing it did is missing from what they see. Until then it counts as
//!   running, and nothing is started twice.
//! - No other task waits for this one. A runtime that does not answer delays looks and nothing else: probe results
//!   still count, deletions are still heard.

mod audit;
mod look;
mod measure;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use keelet_ledger::PodRef;
use keelet_lifecycle::{
    Event, Evidence, Moment, Observed, Plan, Stage,
    observed::{Acknowledged, AgentRun, Before, Deletion, Known, RestartRequest},
    operation::{OpId, OpReport, OpResult, OpState, Operation, Outcome, Step},
};
use keelet_pod::Pod;
use tokio::{sync::oneshot, time::Instant};

pub(crate) use self::look::{Look, POD_UID};
use self::{audit::Audit, look::look};
use crate::{
    events::Recorder,
    ledger_writer::Record,
    node::Node,
    operations::{self, Executor},
    publish::Answers,
    registry::OverdueProbe,
    slot::{Finished, Inbox, Slot, Wanted},
};

/// A plan that asks to be woken in the past again and again must not keep the machine busy.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// The task of one pod.
pub(crate) struct PodTask {
    node: Arc<Node>,
    slot: Arc<Slot>,
    reference: Arc<PodRef>,
    wanted: Wanted,
    agent: AgentRun,
    evidence: Arc<Evidence>,
    restart_request: Option<RestartRequest>,
    acknowledged: u64,
    log_counts: BTreeMap<String, u32>,
    /// The newest look at the runtime.
    look: Option<Arc<Look>>,
    /// A look under way.
    looking: Option<Looking>,
    audit: Audit,
    /// Operations under way.
    running: BTreeMap<OpId, Running>,
    /// Ended, and not yet reported to the rules.
    finished: Vec<Finished>,
    /// Something is new that a plan should know.
    plan_due: bool,
    wake_at: Option<Moment>,
    published: Option<u64>,
    /// When the newest status went to the publisher, until it is acknowledged.
    sent: Option<Instant>,
    /// When the task was made, until its first plan.
    made: Option<Instant>,
    recorder: Recorder,
    /// Probes that this node cannot ask, as the registry knows them.
    overdue: Vec<OverdueProbe>,
    executor: Executor,
}

struct Looking {
    began: u64,
    answer: BoxFuture<'static, Result<Look, keelet_cri::Error>>,
}

struct Running {
    operation: Operation,
    /// Dropped to cancel.
    cancel: Option<oneshot::Sender<()>>,
}

enum Wake {
    Stop,
    Looked(Result<Look, keelet_cri::Error>),
    Told,
    Time,
}

/// How a pod's task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing of the pod is left.
    Gone,
    /// The agent stops; the pod runs on.
    Stopped,
}

// === impl PodTask ===

impl PodTask {
    /// A task for a pod, with what is remembered of it.
    pub(crate) fn new(node: Arc<Node>, slot: Arc<Slot>, wanted: Wanted, evidence: Evidence) -> Self {
        let pod = &wanted.pod;
        let reference =
            Arc::new(PodRef { uid: pod.uid.clone(), namespace: pod.namespace.clone(), name: pod.name.clone() });
        let recorder = Recorder::recalling(node.board.events_of(&pod.uid));
        Self {
            agent: node.agent_run(pod, &slot),
            audit: Audit::new(&pod.uid),
            executor: Executor::new(Arc::clone(&node), Arc::clone(&slot)),
            node,
            slot,
            reference,
            wanted,
            evidence: Arc::new(evidence),
            restart_request: None,
            acknowledged: 0,
            log_counts: BTreeMap::new(),
            look: None,
            looking: None,
            running: BTreeMap::new(),
            finished: Vec::new(),
            plan_due: false,
            wake_at: None,
            published: None,
            sent: None,
            made: Some(Instant::now()),
            recorder,
            overdue: Vec::new(),
        }
    }

    /// Runs the pod until nothing of it is left, or the agent stops.
    pub(crate) async fn run(mut self) -> Ended {
        self.keep_copy().await;
        // A pod that neither ledger nor runtime knows may still have left log files: their numbers go on.
        if *self.evidence == Evidence::default() {
            self.log_counts = self.node.host.log_counts(&self.wanted.pod).await;
        }
        loop {
            self.read_slot().await;
            self.begin_look();
            if self.plan_due && self.look.is_some() {
                if self.plan().await == Stage::Gone {
                    return Ended::Gone;
                }
                // A plan may have work for the next one: an operation that has ended already, a status that was seen.
                continue;
            }
            match self.wait().await {
                Wake::Stop => return Ended::Stopped,
                Wake::Looked(result) => self.looked(result),
                Wake::Told => {}
                Wake::Time => self.plan_due |= self.wake_at.is_some_and(|at| self.node.clock.now().has_reached(&at)),
            }
        }
    }

    async fn keep_copy(&mut self) {
        if let Ok(copy) = self.wanted.pod.to_json() {
            self.node.ledger.keep_pod(Arc::clone(&self.reference), copy).await;
        }
    }

    /// Takes what others have left in the slot.
    async fn read_slot(&mut self) {
        let Inbox { wanted, restart_request, look, acknowledged, known, finished, events, ended: _ } = self.slot.take();
        if let Some(wanted) = wanted
            && wanted != self.wanted
        {
            let other_spec = !Arc::ptr_eq(&wanted.pod, &self.wanted.pod);
            self.wanted = wanted;
            self.plan_due = true;
            if other_spec {
                self.keep_copy().await;
            }
        }
        if let Some(request) = restart_request {
            self.restart_request = Some(request);
            self.plan_due = true;
        }
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged;
            self.plan_due = true;
            if let Some(sent) = self.sent.take() {
                self.node.metrics.status_sync_took(sent.elapsed());
            }
        }
        // What others knew is compared once, when it is first heard of.
        if let (Some(known), Before::Cluster(Known::NotAskedYet)) = (known, &self.agent.before) {
            self.agent.before = Before::Cluster(known);
            self.plan_due = true;
            // What was planned without it may have been in vain: the publisher gets the newest status again.
            self.published = None;
        }
        self.audit.want(look);
        for event in &events {
            self.tell(event);
        }
        for finished in finished {
            let is_probe = self.running.get(&finished.id).is_some_and(Running::is_probe);
            if is_probe && needs_no_look(&finished.result) {
                self.plan_due = true;
            } else {
                // It changed the runtime, or came out as it did because something changed there: look first.
                self.audit.want(true);
                if !is_probe {
                    self.audit.note_activity(Instant::now());
                }
            }
            self.finished.push(finished);
        }
    }

    fn begin_look(&mut self) {
        if self.looking.is_some() || !self.audit.is_due(Instant::now()) {
            return;
        }
        self.audit.begun();
        let began = self.slot.ended();
        let answer = look(Arc::clone(&self.node), Arc::clone(&self.wanted.pod), self.look.clone(), began);
        self.looking = Some(Looking { began, answer: Box::pin(answer) });
    }

    fn looked(&mut self, result: Result<Look, keelet_cri::Error>) {
        let began = self.looking.take().map_or(0, |looking| looking.began);
        let now = Instant::now();
        match result {
            Ok(look) => {
                self.audit.succeeded(now);
                for pid in &look.new_processes {
                    self.watch_process(*pid);
                }
                self.node.registry.note(&self.reference.uid, &look);
                self.look = Some(Arc::new(look));
            }
            Err(error) => {
                if self.audit.failed(now, began) {
                    tracing::warn!(pod = %self.name(), %error, "the runtime cannot be asked about the pod; its status stays");
                }
            }
        }
        self.plan_due = true;
    }

    fn watch_process(&self, pid: u32) {
        if let Some(end) = self.node.host.process_end(pid) {
            let slot = Arc::downgrade(&self.slot);
            self.node.tasks.spawn(Box::pin(async move {
                end.await;
                if let Some(slot) = slot.upgrade() {
                    slot.hint();
                }
            }));
        }
    }

    /// Plans once: decide, write down, publish, act.
    async fn plan(&mut self) -> Stage {
        self.plan_due = false;
        let now = self.node.clock.now();
        if let Some(made) = self.made.take() {
            self.node.metrics.worker_start_took(made.elapsed());
        }
        let (observed, told) = self.observed();
        let plan = self.node.rules.plan(&self.wanted.pod, &observed, &self.evidence, now);
        self.finished.retain(|finished| !told.contains(&finished.id));
        self.running.retain(|id, _| !told.contains(id));

        let Plan { operations, status, version, why, evidence, results, events, wake_at, stage } = plan;
        if evidence != *self.evidence || !results.is_empty() {
            let evidence = Arc::new(evidence);
            measure::transitions(&self.node.metrics, &self.wanted.pod, &self.evidence, &evidence, now);
            self.evidence = Arc::clone(&evidence);
            let overdue = measure::overdue(&self.wanted.pod, &evidence, now);
            if overdue != self.overdue {
                self.overdue.clone_from(&overdue);
                self.node.registry.note_overdue(&self.reference.uid, overdue);
            }
            let record =
                Record { pod: Arc::clone(&self.reference), evidence: Arc::clone(&evidence), results, version, why };
            self.node.ledger.commit(record).await;
            self.node.board.note(&self.reference.uid, &evidence);
        }
        if self.evidence.volatile.restart_request == self.restart_request.as_ref().map(|request| request.id.clone()) {
            self.restart_request = None;
        }
        if self.published != Some(version) {
            self.published = Some(version);
            self.node.board.publish(&self.wanted.pod, version, &status);
            match &self.node.publisher {
                Some(publisher) => {
                    self.sent = Some(Instant::now());
                    publisher.publish(&self.wanted.pod, version, &status, Answers::new(&self.slot));
                }
                None => self.node.metrics.status_sync_took(Duration::ZERO),
            }
        }
        for event in &events {
            self.tell(event);
        }
        for step in operations {
            match step {
                Step::Start { id, operation } => self.begin(id, operation),
                Step::Cancel { id } => {
                    if let Some(running) = self.running.get_mut(&id) {
                        running.cancel = None;
                    }
                }
            }
        }
        self.wake_at = wake_at;
        stage
    }

    /// The observation for `plan`, and the IDs of the operations that it reports as finished.
    fn observed(&self) -> (Observed, BTreeSet<OpId>) {
        let mut observed = Observed::nothing(self.agent.clone());
        let look = self.look.as_deref();
        let began = look.map_or(0, |look| look.began);
        let mut told = BTreeSet::new();
        for finished in &self.finished {
            let is_probe = self.running.get(&finished.id).is_some_and(Running::is_probe);
            let seen = finished.number <= began;
            // A probe changes nothing in the runtime. A good result, or none, may be reported with an older look; a bad
            // one if the runtime does not answer, because what the container said still counts.
            let tell =
                seen || is_probe && (needs_no_look(&finished.result) || self.audit.has_failed_since(finished.number));
            let state = if tell {
                told.insert(finished.id);
                OpState::Finished { at: finished.at, result: finished.result.clone() }
            } else {
                OpState::InFlight
            };
            observed.operations.push(OpReport { id: finished.id, state });
        }
        for id in self.running.keys() {
            if !observed.operations.iter().any(|report| report.id == *id) {
                observed.operations.push(OpReport { id: *id, state: OpState::InFlight });
            }
        }
        if let Some(look) = look {
            observed.sandboxes.clone_from(&look.sandboxes);
            observed.containers.clone_from(&look.containers);
        }
        observed.deletion.clone_from(&self.wanted.deletion);
        observed.restart_request.clone_from(&self.restart_request);
        observed.foreign_conditions.clone_from(&self.wanted.foreign_conditions);
        observed.acknowledged = match self.node.publisher {
            Some(_) => Acknowledged::UpTo(self.acknowledged),
            None => Acknowledged::NotNeeded,
        };
        observed.log_counts.clone_from(&self.log_counts);
        (observed, told)
    }

    /// Starts an operation beside the task.
    fn begin(&mut self, id: OpId, operation: Operation) {
        let (cancel, cancelled) = oneshot::channel();
        if !matches!(operation, Operation::Probe { .. }) {
            self.audit.note_activity(Instant::now());
        }
        let work = self.executor.for_operation(&self.wanted, self.look.as_deref());
        self.node.tasks.spawn(Box::pin(operations::run(work, id, operation.clone(), cancelled)));
        self.running.insert(id, Running { operation, cancel: Some(cancel) });
    }

    async fn wait(&mut self) -> Wake {
        let now = self.node.clock.now();
        let at = self.wake_at.map(|at| Instant::now() + at.since(&now).max(SHORTEST_SLEEP));
        let audit = self.looking.is_none().then(|| self.audit.next());
        let at = at.into_iter().chain(audit.flatten()).min();
        let mut stopping = self.node.stopping.clone();
        let looking = async {
            match &mut self.looking {
                Some(looking) => (&mut looking.answer).await,
                None => std::future::pending().await,
            }
        };
        let timer = async {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => Wake::Stop,
            result = looking => Wake::Looked(result),
            () = self.slot.rung() => Wake::Told,
            () = timer => Wake::Time,
        }
    }

    fn tell(&mut self, event: &Event) {
        if let Some(record) = self.recorder.record(event, self.node.clock.now()) {
            self.node.board.event(&self.wanted.pod, &record);
            if let Some(publisher) = &self.node.publisher {
                publisher.event(&self.wanted.pod, &record);
            }
        }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.reference.namespace, self.reference.name)
    }
}

// === impl Running ===

impl Running {
    fn is_probe(&self) -> bool {
        matches!(self.operation, Operation::Probe { .. })
    }
}

/// Whether a probe gives no reason to look at the runtime: it passed, or was not made because this node cannot keep up,
/// which more work would not help.
fn needs_no_look(result: &OpResult) -> bool {
    matches!(result, OpResult::Probed(report) if matches!(report.outcome, Outcome::Success | Outcome::Late))
}

/// The deletion of a pod for which no request named a grace period.
pub(crate) fn deletion_of(pod: &Pod) -> Deletion {
    Deletion { grace: pod.termination_grace }
}

#[cfg(test)]
mod tests;
