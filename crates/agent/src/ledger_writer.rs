//! The writer of the ledger.
//!
//! All pods share one ledger and one disk, so one task owns it. It takes whatever is waiting, commits it in one go off
//! the tasks' threads, and acknowledges to each pod that its evidence holds. A pod acts on a plan only then. What need not be written,
//! that a probe passed again as a rule, is acknowledged on the spot: waking another thread would cost more than the probe.

use std::sync::{Arc, Mutex, PoisonError};

use keelet_ledger::{Committed, Disk, Ledger, Outcome, PodCommit, PodRef, Taken, WriteError};
use keelet_lifecycle::{Evidence, Moment, ProbeRecord, Why, node::NodeEvidence};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::{
    board::PodEvent,
    doors::{Clock, Tasks},
};

/// More than the pods of a node: a pod has one commit under way at a time, so senders hardly ever wait here.
const QUEUE: usize = 512;
/// One batch. Bounds how long the first of it waits for the last.
const BATCH: usize = 64;

/// Hands over what is to be written down.
#[derive(Clone, Debug)]
pub(crate) struct LedgerWriter {
    requests: mpsc::Sender<Request>,
}

/// What a plan wants remembered.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) pod: Arc<PodRef>,
    pub(crate) evidence: Arc<Evidence>,
    pub(crate) results: Vec<ProbeRecord>,
    pub(crate) version: u64,
    pub(crate) why: Vec<Why>,
}

#[derive(Debug)]
enum Request {
    Commit(Record, Acknowledge),
    KeepPod(Arc<PodRef>, Value, oneshot::Sender<()>),
    Remove(String, oneshot::Sender<bool>),
    KeepEvents(Vec<Arc<PodEvent>>),
    KeepNode(Box<NodeEvidence>, bool, oneshot::Sender<()>),
    Beat,
    Stop(oneshot::Sender<()>),
}

/// Says to a pod that its evidence holds.
type Acknowledge = oneshot::Sender<()>;

/// Says once that a disk does not take evidence, and once that it does again.
#[derive(Debug, Default)]
struct DiskTrouble {
    failing: bool,
}

// === impl LedgerWriter ===

impl LedgerWriter {
    /// Starts the task that owns the ledger.
    pub(crate) fn open<D: Disk + Send + 'static>(
        ledger: Ledger<D>,
        clock: Arc<dyn Clock>,
        tasks: &Arc<dyn Tasks>,
    ) -> Self {
        let (requests, inbox) = mpsc::channel(QUEUE);
        tasks.spawn(Box::pin(keep(Arc::new(Mutex::new(ledger)), inbox, clock, Arc::clone(tasks))));
        Self { requests }
    }

    /// Returns once the record holds against the death of the agent, or could not be written and is in memory only.
    pub(crate) async fn commit(&self, record: Record) {
        self.ask(|done| Request::Commit(record, done)).await;
    }

    /// Keeps a copy of the pod for an agent that starts without its source.
    pub(crate) async fn keep_pod(&self, pod: Arc<PodRef>, copy: Value) {
        self.ask(|done| Request::KeepPod(pod, copy, done)).await;
    }

    /// Forgets a pod for good. False if that did not work and has to be tried again.
    pub(crate) async fn remove(&self, uid: String) -> bool {
        self.ask(|done| Request::Remove(uid, done)).await.unwrap_or(false)
    }

    /// Keeps the newest events for the next agent.
    pub(crate) async fn keep_events(&self, events: Vec<Arc<PodEvent>>) {
        let _ = self.requests.send(Request::KeepEvents(events)).await;
    }

    /// Keeps what is remembered of the node; beyond the boot if it is `lasting`. Returns once it holds against the death of the agent.
    pub(crate) async fn keep_node(&self, evidence: NodeEvidence, lasting: bool) {
        self.ask(|done| Request::KeepNode(Box::new(evidence), lasting, done)).await;
    }

    /// Says that the agent is alive, and writes what was deferred and is due.
    pub(crate) async fn beat(&self) {
        let _ = self.requests.send(Request::Beat).await;
    }

    /// Writes everything that was deferred.
    pub(crate) async fn stop(&self) {
        self.ask(Request::Stop).await;
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (done, answer) = oneshot::channel();
        self.requests.send(request(done)).await.ok()?;
        answer.await.ok()
    }
}

async fn keep<D: Disk + Send + 'static>(
    ledger: Arc<Mutex<Ledger<D>>>,
    mut inbox: mpsc::Receiver<Request>,
    clock: Arc<dyn Clock>,
    tasks: Arc<dyn Tasks>,
) {
    let trouble = Arc::new(Mutex::new(DiskTrouble::default()));
    let mut batch = Vec::with_capacity(BATCH);
    while inbox.recv_many(&mut batch, BATCH).await > 0 {
        let mut requests = std::mem::take(&mut batch);
        let now = clock.now();
        let commits = leading_commits(&mut requests);
        let taken = take(&mut ledger.lock().unwrap_or_else(PoisonError::into_inner), commits, now);
        if taken.is_none() && requests.is_empty() {
            continue;
        }
        let (ledger, trouble) = (Arc::clone(&ledger), Arc::clone(&trouble));
        let work = move || {
            let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
            let mut trouble = trouble.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((taken, acknowledge)) = taken {
                write(&mut ledger, &mut trouble, taken, acknowledge, now);
            }
            serve(&mut ledger, &mut trouble, requests, now);
        };
        tasks.block(Box::new(work)).await;
    }
}

/// Takes the commits with which a batch begins out of it.
fn leading_commits(requests: &mut Vec<Request>) -> Vec<(Record, Acknowledge)> {
    let end = requests.iter().position(|request| !matches!(request, Request::Commit(..))).unwrap_or(requests.len());
    let commit = |request| match request {
        Request::Commit(record, done) => Some((record, done)),
        _ => None,
    };
    requests.drain(..end).filter_map(commit).collect()
}

/// Takes commits into memory, and acknowledges them if none has to be written. Otherwise returns what to write, and the pods that wait for it.
fn take<D: Disk>(
    ledger: &mut Ledger<D>,
    commits: Vec<(Record, Acknowledge)>,
    now: Moment,
) -> Option<(Taken, Vec<Acknowledge>)> {
    let entries: Vec<PodCommit<'_>> = commits.iter().map(|(record, _)| record.as_commit()).collect();
    let taken = ledger.take(&entries, now);
    let is_due = ledger.is_due(&taken, now);
    let acknowledge: Vec<Acknowledge> = commits.into_iter().map(|(_, done)| done).collect();
    if is_due {
        return Some((taken, acknowledge));
    }
    acknowledge_all(acknowledge);
    None
}

fn acknowledge_all(pods: Vec<Acknowledge>) {
    for done in pods {
        let _ = done.send(());
    }
}

/// Serves requests in their order; neighbouring commits are made together.
fn serve<D: Disk>(ledger: &mut Ledger<D>, trouble: &mut DiskTrouble, requests: Vec<Request>, now: Moment) {
    let mut commits = Vec::new();
    for request in requests {
        if let Request::Commit(record, done) = request {
            commits.push((record, done));
            continue;
        }
        commit(ledger, trouble, std::mem::take(&mut commits), now);
        match request {
            Request::Commit(..) => {}
            Request::KeepPod(pod, copy, done) => {
                match ledger.keep_pod(&pod, &copy, now) {
                    Ok(outcome) => trouble.note(&outcome),
                    Err(error) => {
                        tracing::warn!(pod = %pod.name, %error, "cannot write the copy of the pod to the ledger")
                    }
                }
                let _ = done.send(());
            }
            Request::Remove(uid, done) => {
                let removed = ledger.remove(&uid, now);
                if let Err(error) = &removed {
                    tracing::warn!(%uid, %error, "cannot remove deleted pod from the ledger; retrying");
                }
                let _ = done.send(removed.is_ok());
            }
            Request::KeepEvents(events) => {
                let events: Vec<&PodEvent> = events.iter().map(|told| &**told).collect();
                trouble.note(&ledger.keep_events(&events, now));
            }
            Request::KeepNode(evidence, lasting, done) => {
                trouble.note(&ledger.keep_node(&evidence, lasting, now));
                let _ = done.send(());
            }
            Request::Beat => {
                let beat = ledger.beat(now);
                trouble.note(&beat.volatile);
                trouble.note(&beat.durable);
                trouble.note_errors(&ledger.flush(now));
            }
            Request::Stop(done) => {
                trouble.note_errors(&ledger.stop(now));
                let _ = done.send(());
            }
        }
    }
    commit(ledger, trouble, commits, now);
}

fn commit<D: Disk>(
    ledger: &mut Ledger<D>,
    trouble: &mut DiskTrouble,
    commits: Vec<(Record, Acknowledge)>,
    now: Moment,
) {
    if let Some((taken, acknowledge)) = take(ledger, commits, now) {
        write(ledger, trouble, taken, acknowledge, now);
    }
}

fn write<D: Disk>(
    ledger: &mut Ledger<D>,
    trouble: &mut DiskTrouble,
    taken: Taken,
    acknowledge: Vec<Acknowledge>,
    now: Moment,
) {
    for committed in ledger.write(taken, now) {
        match committed {
            Ok(Committed { volatile, durable, journal, .. }) => {
                [volatile, durable, journal].iter().for_each(|outcome| trouble.note(outcome));
            }
            Err(error) => tracing::warn!(%error, "cannot commit evidence of a pod; it is kept in memory only"),
        }
    }
    acknowledge_all(acknowledge);
}

// === impl Record ===

impl Record {
    fn as_commit(&self) -> PodCommit<'_> {
        let Self { pod, evidence, results, version, why } = self;
        PodCommit { pod, evidence, results, why: Some((*version, why)) }
    }
}

// === impl DiskTrouble ===

impl DiskTrouble {
    fn note(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Failed(error) => self.fail(error),
            Outcome::Written { after_failures } if *after_failures > 0 && self.failing => {
                self.failing = false;
                tracing::info!("ledger is writable again");
            }
            Outcome::Written { .. } | Outcome::Unchanged | Outcome::Deferred { .. } => {}
        }
    }

    fn note_errors(&mut self, errors: &[WriteError]) {
        errors.iter().for_each(|error| self.fail(error));
    }

    fn fail(&mut self, error: &WriteError) {
        if !self.failing {
            self.failing = true;
            tracing::warn!(%error, "cannot write the ledger; continuing from memory and retrying: free space or make the disk writable");
        }
    }
}

#[cfg(test)]
mod tests;
