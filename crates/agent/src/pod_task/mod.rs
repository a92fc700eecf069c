//! One task per pod, the owner of its state: observe, plan, write down, publish, act.
//!
//! Three rules hold here:
//!
//! - The task never awaits an operation. Operations run beside it and report to its [`Slot`]; it awaits the ledger
//!   alone, because evidence comes before action.
//! - An observation is dated by how many operations had ended when it began. The rules learn of the end of an operation only
//!   with an observation that began after it, so nothing it did is missing from what they see. Until then it counts as
//!   running, and nothing is started twice.
//! - No other task waits for this one. A runtime that does not answer delays observations and nothing else: probe results
//!   still count, deletions still take effect.

mod audit;
mod measure;
mod observe;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use keelet_ledger::PodRef;
use keelet_lifecycle::{
    Event, Evidence, Moment, Observed, Plan, Stage,
    evidence::Admission,
    observed::{Acknowledged, AgentRun, Before, Deletion, Known, RestartRequest},
    operation::{OpId, OpReport, OpResult, OpState, Operation, Outcome, Step},
};
use keelet_pod::Pod;
use tokio::{sync::oneshot, time::Instant};

pub(crate) use self::observe::Observation;
use self::{audit::Audit, observe::observe};
use crate::{
    board::OverdueProbe,
    events::Recorder,
    ledger_writer::Record,
    operations::{self, Executor},
    publish::Answers,
    shared::Shared,
    slot::{Finished, Inbox, Slot, Wanted},
};

/// A plan that asks to be woken in the past again and again must not keep the machine busy.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// The task of one pod.
pub(crate) struct PodTask {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    reference: Arc<PodRef>,
    wanted: Wanted,
    agent: AgentRun,
    evidence: Arc<Evidence>,
    restart_request: Option<RestartRequest>,
    acknowledged: u64,
    log_counts: BTreeMap<String, u32>,
    /// The newest observation at the runtime.
    observation: Option<Arc<Observation>>,
    /// An observation under way.
    observing: Option<Observing>,
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
    /// Probes that this node cannot ask, as the board shows them.
    overdue: Vec<OverdueProbe>,
    /// Whether what the pod takes of the node is counted.
    claimed: bool,
    executor: Executor,
}

struct Observing {
    began: u64,
    answer: BoxFuture<'static, Result<Observation, keelet_cri::Error>>,
}

struct Running {
    operation: Operation,
    /// Dropped to cancel.
    cancel: Option<oneshot::Sender<()>>,
}

enum Wake {
    Stop,
    Observed(Result<Observation, keelet_cri::Error>),
    Notified,
    Time,
}

/// How a pod's task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The runtime has nothing of the pod; its directories go next.
    Gone,
    /// The agent stops; the pod keeps running.
    Stopped,
}

// === impl PodTask ===

impl PodTask {
    /// A task for a pod, with what is remembered of it.
    pub(crate) fn new(shared: Arc<Shared>, slot: Arc<Slot>, wanted: Wanted, evidence: Evidence) -> Self {
        let pod = &wanted.pod;
        let reference =
            Arc::new(PodRef { uid: pod.uid.clone(), namespace: pod.namespace.clone(), name: pod.name.clone() });
        let recorder = Recorder::recalling(shared.board.events_of(&pod.uid));
        let ended = evidence.durable.published.as_ref().is_some_and(|status| status.phase.is_terminal());
        let claimed = evidence.durable.admission == Admission::Admitted && !ended;
        if claimed {
            // What an earlier agent admitted is counted before any new pod is asked about.
            shared.claims.claim(pod);
        }
        Self {
            agent: shared.agent_run(pod, &slot),
            audit: Audit::new(&pod.uid),
            executor: Executor::new(Arc::clone(&shared), Arc::clone(&slot)),
            shared,
            slot,
            reference,
            wanted,
            evidence: Arc::new(evidence),
            restart_request: None,
            acknowledged: 0,
            log_counts: BTreeMap::new(),
            observation: None,
            observing: None,
            running: BTreeMap::new(),
            finished: Vec::new(),
            plan_due: false,
            wake_at: None,
            published: None,
            sent: None,
            made: Some(Instant::now()),
            recorder,
            overdue: Vec::new(),
            claimed,
        }
    }

    /// Runs the pod until nothing of it is left, or the agent stops.
    pub(crate) async fn run(mut self) -> Ended {
        self.keep_copy().await;
        // A pod that neither ledger nor runtime knows may still have left log files: their numbers go on.
        if *self.evidence == Evidence::default() {
            self.log_counts = self.shared.host.log_counts(&self.wanted.pod).await;
        }
        loop {
            self.read_slot().await;
            self.begin_observation();
            if self.plan_due && self.observation.is_some() {
                if self.plan().await == Stage::Gone {
                    return Ended::Gone;
                }
                // A plan may have work for the next one: an operation that has ended already, a status that was seen.
                continue;
            }
            match self.wait().await {
                Wake::Stop => return Ended::Stopped,
                Wake::Observed(result) => self.finish_observation(result),
                Wake::Notified => {}
                Wake::Time => self.plan_due |= self.wake_at.is_some_and(|at| self.shared.clock.now().has_reached(&at)),
            }
        }
    }

    async fn keep_copy(&mut self) {
        if let Ok(copy) = self.wanted.pod.to_json() {
            self.shared.ledger.keep_pod(Arc::clone(&self.reference), copy).await;
        }
    }

    /// Takes what others have left in the slot.
    async fn read_slot(&mut self) {
        let Inbox { wanted, restart_request, hinted, acknowledged, known, finished, events, ended: _ } =
            self.slot.take();
        if let Some(wanted) = wanted
            && wanted != self.wanted
        {
            let other_spec = !Arc::ptr_eq(&wanted.pod, &self.wanted.pod);
            self.wanted = wanted;
            self.plan_due = true;
            if other_spec {
                self.claimed = false;
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
                self.shared.metrics.status_sync_took(sent.elapsed());
            }
        }
        // What others knew is compared once, when it is first heard of.
        if let (Some(known), Before::Cluster(Known::NotAskedYet)) = (known, &self.agent.before) {
            self.agent.before = Before::Cluster(known);
            self.plan_due = true;
            // What was planned without it may have been in vain: the publisher gets the newest status again.
            self.published = None;
        }
        self.audit.want(hinted);
        for event in &events {
            self.emit(event);
        }
        for finished in finished {
            let is_probe = self.running.get(&finished.id).is_some_and(Running::is_probe);
            if is_probe && needs_no_observation(&finished.result) {
                self.plan_due = true;
            } else {
                // It changed the runtime, or came out as it did because something changed there: observe first.
                self.audit.want(true);
                if !is_probe {
                    self.audit.note_activity(Instant::now());
                }
            }
            self.finished.push(finished);
        }
    }

    fn begin_observation(&mut self) {
        if self.observing.is_some() || !self.audit.is_due(Instant::now()) {
            return;
        }
        self.audit.begun();
        let began = self.slot.ended();
        let answer = observe(Arc::clone(&self.shared), Arc::clone(&self.wanted.pod), self.observation.clone(), began);
        self.observing = Some(Observing { began, answer: Box::pin(answer) });
    }

    fn finish_observation(&mut self, result: Result<Observation, keelet_cri::Error>) {
        let began = self.observing.take().map_or(0, |observing| observing.began);
        let now = Instant::now();
        match result {
            Ok(observation) => {
                self.audit.succeeded(now);
                for pid in &observation.new_processes {
                    self.watch_process(*pid);
                }
                self.shared.registry.note(&self.reference.uid, &observation);
                self.shared.board.note_running(&self.reference.uid, observation.running());
                self.observation = Some(Arc::new(observation));
            }
            Err(error) => {
                if self.audit.failed(now, began) {
                    tracing::warn!(pod = %self.name(), %error, "cannot get pod state from the container runtime; the status stays as it is until it answers");
                }
            }
        }
        self.plan_due = true;
    }

    fn watch_process(&self, pid: u32) {
        if let Some(end) = self.shared.host.process_end(pid) {
            let slot = Arc::downgrade(&self.slot);
            self.shared.tasks.spawn(Box::pin(async move {
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
        let now = self.shared.clock.now();
        if let Some(made) = self.made.take() {
            self.shared.metrics.worker_start_took(made.elapsed());
        }
        let (observed, told) = self.observed();
        let plan = self.shared.rules.plan(&self.wanted.pod, &observed, &self.evidence, now);
        self.finished.retain(|finished| !told.contains(&finished.id));
        self.running.retain(|id, _| !told.contains(id));

        let Plan { operations, status, version, why, evidence, results, events, wake_at, stage } = plan;
        // In the same step as the question: no other pod is asked in between.
        self.keep_claim(evidence.durable.admission == Admission::Admitted && !status.phase.is_terminal());
        if evidence != *self.evidence || !results.is_empty() {
            let evidence = Arc::new(evidence);
            measure::transitions(&self.shared.metrics, &self.wanted.pod, &self.evidence, &evidence, now);
            self.evidence = Arc::clone(&evidence);
            let overdue = measure::overdue(&self.wanted.pod, &evidence, now);
            if overdue != self.overdue {
                self.overdue.clone_from(&overdue);
                self.shared.board.note_overdue(&self.wanted.pod, overdue);
            }
            let record =
                Record { pod: Arc::clone(&self.reference), evidence: Arc::clone(&evidence), results, version, why };
            self.shared.ledger.commit(record).await;
            self.shared.board.note(&self.reference.uid, &evidence);
        }
        if self.evidence.volatile.restart_request == self.restart_request.as_ref().map(|request| request.id.clone()) {
            self.restart_request = None;
        }
        if self.published != Some(version) {
            self.published = Some(version);
            self.shared.board.publish(&self.wanted.pod, version, &status);
            match &self.shared.publisher {
                Some(publisher) => {
                    self.sent = Some(Instant::now());
                    publisher.publish(&self.wanted.pod, version, &status, Answers::new(&self.slot));
                }
                None => self.shared.metrics.status_sync_took(Duration::ZERO),
            }
        }
        for event in &events {
            self.emit(event);
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

    /// What the pod takes of the node is taken from its admission to its end.
    fn keep_claim(&mut self, takes: bool) {
        if std::mem::replace(&mut self.claimed, takes) == takes {
            return;
        }
        match takes {
            true => self.shared.claims.claim(&self.wanted.pod),
            false => self.shared.claims.release(&self.wanted.pod.uid),
        }
    }

    /// The observation for `plan`, and the IDs of the operations that it reports as finished.
    fn observed(&self) -> (Observed, BTreeSet<OpId>) {
        let mut observed = Observed::nothing(self.agent.clone());
        let observation = self.observation.as_deref();
        let began = observation.map_or(0, |observation| observation.began);
        let mut told = BTreeSet::new();
        for finished in &self.finished {
            let is_probe = self.running.get(&finished.id).is_some_and(Running::is_probe);
            let seen = finished.number <= began;
            // A probe changes nothing in the runtime. A good result, or none, may be reported with an older observation; a bad
            // one if the runtime does not answer, because what the container said still counts.
            let tell = seen
                || is_probe && (needs_no_observation(&finished.result) || self.audit.has_failed_since(finished.number));
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
        if let Some(observation) = observation {
            observed.sandboxes.clone_from(&observation.sandboxes);
            observed.containers.clone_from(&observation.containers);
        }
        observed.deletion.clone_from(&self.wanted.deletion);
        observed.restart_request.clone_from(&self.restart_request);
        observed.foreign_conditions.clone_from(&self.wanted.foreign_conditions);
        observed.acknowledged = match self.shared.publisher {
            Some(_) => Acknowledged::UpTo(self.acknowledged),
            None => Acknowledged::NotNeeded,
        };
        observed.log_counts.clone_from(&self.log_counts);
        observed.pending_gates = self.shared.node.gates_holding(&self.wanted.pod);
        if self.shared.publisher.is_some() && self.evidence.durable.admission == Admission::Undecided {
            let allocatable = self.shared.node.facts.allocatable();
            observed.objection = self.shared.claims.objection(&self.wanted.pod, &allocatable);
        }
        (observed, told)
    }

    /// Starts an operation beside the task.
    fn begin(&mut self, id: OpId, operation: Operation) {
        let (cancel, cancelled) = oneshot::channel();
        if !matches!(operation, Operation::Probe { .. }) {
            self.audit.note_activity(Instant::now());
        }
        if let Operation::Stop { container, reason, .. } = &operation {
            tracing::info!(pod = %self.name(), container, cause = %reason, "stopping container");
        }
        let work = self.executor.for_operation(&self.wanted, self.observation.as_deref());
        self.shared.tasks.spawn(Box::pin(operations::run(work, id, operation.clone(), cancelled)));
        self.running.insert(id, Running { operation, cancel: Some(cancel) });
    }

    async fn wait(&mut self) -> Wake {
        let now = self.shared.clock.now();
        let at = self.wake_at.map(|at| Instant::now() + at.since(&now).max(SHORTEST_SLEEP));
        let audit = self.observing.is_none().then(|| self.audit.next());
        let at = at.into_iter().chain(audit.flatten()).min();
        let mut stopping = self.shared.stopping.clone();
        let observing = async {
            match &mut self.observing {
                Some(observing) => (&mut observing.answer).await,
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
            result = observing => Wake::Observed(result),
            () = self.slot.changed() => Wake::Notified,
            () = timer => Wake::Time,
        }
    }

    fn emit(&mut self, event: &Event) {
        if let Some(record) = self.recorder.record(event, self.shared.clock.now()) {
            self.shared.board.event(&self.wanted.pod, &record);
            if let Some(publisher) = &self.shared.publisher {
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

/// Whether a probe gives no reason to observe the runtime: it passed, or was not made because this node cannot keep up,
/// which more work would not help.
fn needs_no_observation(result: &OpResult) -> bool {
    matches!(result, OpResult::Probed(report) if matches!(report.outcome, Outcome::Success | Outcome::Late))
}

/// The deletion of a pod for which no request named a grace period.
pub(crate) fn deletion_of(pod: &Pod) -> Deletion {
    Deletion { grace: pod.termination_grace }
}

#[cfg(test)]
mod tests;
