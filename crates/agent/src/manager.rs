//! The pods of the node: which ones run here, which ones have to go, and what of others is left in the runtime.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use keelet_ledger::Recovered;
use keelet_lifecycle::{Evidence, observed::Deletion};
use keelet_pod::{InvalidCopy, Pod};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use crate::{
    board::Departure,
    orphans::{self, Remains},
    pod_task::{Ended, PodTask, deletion_of},
    shared::Shared,
    slot::{Slot, Wanted},
    source::merge::{SourceId, Sources},
};

/// How often the runtime is searched for what belongs to no known pod.
const SEARCH: Duration = Duration::from_secs(60);
/// A failed removal of a pod from the ledger or of its directory is retried after this.
const FORGET_AGAIN: Duration = Duration::from_secs(5);

/// As many as a node has pods.
const REMEMBERED_GONE: usize = 128;

/// The desired set, by UID.
pub type WantedPods = BTreeMap<String, Wanted>;

/// How much a desired set says about pods that are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A pod that is not in it is not wanted.
    Complete,
    /// A pod that the ledger knows and that is not in it is not wanted. One that the ledger does not know may be: part of the source
    /// cannot be read, and has never been.
    Unreadable,
    /// A pod of an earlier run of the agent that is not in it may still be wanted: its source does not know yet.
    Partial,
    /// The source names everything anew, as after a watch that has expired: nothing that it named before is taken back until
    /// it is complete again.
    Relisting,
}

/// What other tasks report to the manager.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    notes: Mutex<Notes>,
    /// What the sources want, as they said it last.
    sources: Mutex<Sources>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Notes {
    /// Whether a source has said something new.
    listed: bool,
    ended: Vec<(String, Ended)>,
    found: BTreeMap<String, Remains>,
    cleared: Vec<String>,
    /// Callers that wait for a sign that the manager makes progress.
    pulses: Vec<oneshot::Sender<()>>,
}

/// Owner of the pods' tasks.
pub(crate) struct Manager {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    pods: BTreeMap<String, Managed>,
    /// What all sources want together.
    wanted: WantedPods,
    /// The same in the order in which pods get their names.
    in_order: Vec<Wanted>,
    /// Whether every source has named everything it wants.
    complete: bool,
    /// Whether all of every source can be read.
    readable: bool,
    /// Left by an earlier agent and not yet adopted.
    recovered: BTreeMap<String, Recovered>,
    /// Pods whose remains are being cleared away.
    clearing: BTreeSet<String>,
    /// Pods that neither a source nor the ledger knows, and that a source may want which cannot be read. Reported once.
    set_aside: BTreeSet<String>,
    /// The newest pods that are gone: one that comes back under its old UID was restarted by its source.
    gone: VecDeque<String>,
}

struct Managed {
    slot: Arc<Slot>,
    pod: Arc<Pod>,
    wanted: Wanted,
    /// Whether the source ever named it to this agent.
    named: bool,
    /// Whether the removal of the pod was requested, from this agent or an earlier one. There is no way back.
    leaving: bool,
}

// === impl Mailbox ===

impl Mailbox {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more source.
    pub(crate) fn open_source(&self) -> SourceId {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.open()
    }

    /// A source says what it wants.
    pub(crate) fn set_wanted(&self, source: SourceId, wanted: WantedPods, extent: Extent) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).set(source, wanted, extent);
        self.notes().listed = true;
        self.changed.notify_one();
    }

    fn ended(&self, uid: String, ended: Ended) {
        self.notes().ended.push((uid, ended));
        self.changed.notify_one();
    }

    /// The runtime has these remains of pods that were not known when it was asked.
    pub(crate) fn found(&self, remains: BTreeMap<String, Remains>) {
        self.notes().found.extend(remains);
        self.changed.notify_one();
    }

    /// Resolves when the manager has turned once more.
    pub(crate) async fn pulse(&self) {
        let (sender, turned) = oneshot::channel();
        {
            let mut notes = self.notes();
            // Callers that gave up waiting are not kept.
            notes.pulses.retain(|waiting| !waiting.is_closed());
            notes.pulses.push(sender);
        }
        self.changed.notify_one();
        // A manager that has ended gives no sign any more.
        if turned.await.is_err() {
            std::future::pending().await
        }
    }

    fn cleared(&self, uid: String) {
        self.notes().cleared.push(uid);
        self.changed.notify_one();
    }
}

// === impl Manager ===

impl Manager {
    pub(crate) fn new(shared: Arc<Shared>, mailbox: Arc<Mailbox>, recovered: Vec<Recovered>) -> Self {
        let recovered = recovered.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
        Self {
            shared,
            mailbox,
            pods: BTreeMap::new(),
            wanted: BTreeMap::new(),
            in_order: Vec::new(),
            complete: false,
            readable: true,
            recovered,
            clearing: BTreeSet::new(),
            set_aside: BTreeSet::new(),
            gone: VecDeque::new(),
        }
    }

    /// Runs until the agent stops and every pod's task has ended.
    pub(crate) async fn run(mut self) {
        self.adopt_recovered();
        let mut search_at = Instant::now();
        let mut stopping = self.shared.stopping.clone();
        loop {
            let notes = std::mem::take(&mut *self.mailbox.notes());
            for pulse in notes.pulses {
                let _ = pulse.send(());
            }
            for (uid, ended) in notes.ended {
                self.ended(&uid, ended);
            }
            for uid in notes.cleared {
                self.clearing.remove(&uid);
            }
            if notes.listed {
                let before = self.readable;
                self.receive();
                // What was set aside is judged at once.
                if self.readable && !before {
                    search_at = Instant::now();
                }
            }
            // An agent that was dropped stops too. Its channel stays ready for ever, so it is not waited for.
            let stop = *stopping.borrow_and_update() || stopping.has_changed().is_err();
            if stop && self.pods.is_empty() {
                return;
            }
            if !stop {
                self.reconcile();
                for (uid, remains) in notes.found {
                    self.clear(uid, remains);
                }
                if self.complete && Instant::now() >= search_at {
                    search_at = Instant::now() + SEARCH;
                    self.search();
                }
            }
            tokio::select! {
                biased;
                () = self.mailbox.changed.notified() => {}
                _ = stopping.changed(), if !stop => {}
                () = tokio::time::sleep_until(search_at), if self.complete && !stop => {}
            }
        }
    }

    /// Takes what the sources want together.
    fn receive(&mut self) {
        let sources = self.mailbox.sources.lock().unwrap_or_else(PoisonError::into_inner);
        (self.wanted, self.in_order) = (sources.wanted(), sources.in_order());
        (self.complete, self.readable) = (sources.are_complete(), sources.are_readable());
    }

    /// Pods that an earlier agent ran go on at once, before their source has listed anything: their containers run already.
    fn adopt_recovered(&mut self) {
        for (uid, recovered) in std::mem::take(&mut self.recovered) {
            match copy_of(&self.shared, &recovered) {
                Ok(pod) => self.start(Wanted::new(Arc::new(pod)), recovered.evidence, false),
                Err(error) => {
                    // Its source may still have it; its evidence waits until then.
                    tracing::warn!(%uid, %error, "cannot recover pod from the ledger; waiting for its source");
                    self.recovered.insert(uid, recovered);
                }
            }
        }
    }

    /// Starts the pods that are wanted and notifies the others that they are not.
    fn reconcile(&mut self) {
        for (uid, managed) in &mut self.pods {
            let now = match self.wanted.get(uid) {
                Some(wanted) => {
                    managed.named = true;
                    // What comes under the UID of a pod on its way out is for the next one. API-10, API-19.
                    if managed.leaving && wanted.deletion.is_none() { managed.wanted.clone() } else { wanted.clone() }
                }
                None if !managed.named && !self.complete => continue,
                None => {
                    managed.leaving = true;
                    Wanted {
                        deletion: Some(managed.wanted.deletion.clone().unwrap_or_else(|| deletion_of(&managed.pod))),
                        ..managed.wanted.clone()
                    }
                }
            };
            if now != managed.wanted {
                if now.deletion != managed.wanted.deletion {
                    note_departure(&self.shared, &managed.pod, now.deletion.as_ref());
                }
                // Everything that holds the pod gets to know what it is now.
                if !Arc::ptr_eq(&now.pod, &managed.pod) {
                    managed.pod = Arc::clone(&now.pod);
                    self.shared.registry.update(&now.pod);
                }
                managed.wanted = now.clone();
                managed.slot.want(now);
            }
        }
        for wanted in self.in_order.clone() {
            let uid = wanted.pod.uid.clone();
            // A pod takes the place of another of its name only when that one is gone.
            let taken = self
                .pods
                .values()
                .any(|managed| managed.pod.name == wanted.pod.name && managed.pod.namespace == wanted.pod.namespace);
            if !taken && !self.clearing.contains(&uid) {
                let recovered = self.recovered.remove(&uid);
                self.start(wanted, recovered.map(|recovered| recovered.evidence).unwrap_or_default(), true);
            }
        }
    }

    fn start(&mut self, wanted: Wanted, evidence: Evidence, named: bool) {
        let slot = Arc::new(Slot::default());
        let pod = Arc::clone(&wanted.pod);
        let uid = pod.uid.clone();
        if self.gone.contains(&uid) {
            self.shared.metrics.pod_restarted(self.shared.publisher.is_none());
        }
        let leaving = evidence.durable.ending.as_ref().is_some_and(|ending| ending.deleted);
        self.shared.registry.enter(&pod, &slot);
        let deletion = wanted.deletion.clone().or_else(|| leaving.then(|| deletion_of(&pod)));
        note_departure(&self.shared, &pod, deletion.as_ref());
        let task = PodTask::new(Arc::clone(&self.shared), Arc::clone(&slot), wanted.clone(), evidence);
        self.pods.insert(uid.clone(), Managed { slot, pod, wanted, named, leaving });
        let (shared, mailbox) = (Arc::clone(&self.shared), Arc::clone(&self.mailbox));
        self.shared.tasks.spawn(Box::pin(async move {
            let ended = task.run().await;
            if ended == Ended::Gone {
                forget(&shared, &uid).await;
            }
            mailbox.ended(uid, ended);
        }));
    }

    fn ended(&mut self, uid: &str, ended: Ended) {
        let Some(managed) = self.pods.remove(uid) else { return };
        self.shared.registry.leave(uid);
        self.shared.claims.release(uid);
        if ended == Ended::Gone {
            self.shared.metrics.forget_pod(uid);
            self.gone.truncate(REMEMBERED_GONE - 1);
            self.gone.push_front(uid.to_owned());
            let now = self.shared.clock.now();
            self.shared.board.gone(&managed.pod, now);
            if let Some(publisher) = &self.shared.publisher {
                publisher.gone(&managed.pod, now);
            }
            // A source that still names the pod would start it again: the source has to name it anew.
            self.mailbox.sources.lock().unwrap_or_else(PoisonError::into_inner).forget_deleted(uid);
            self.receive();
        }
    }

    /// Looks for sandboxes and containers that belong to no pod of this node, and for pods of the ledger that are not wanted and
    /// could not be run from their copy. What runs of these ends before their evidence and their directories go.
    fn search(&mut self) {
        let known: BTreeSet<String> =
            self.pods.keys().chain(self.wanted.keys()).chain(&self.clearing).cloned().collect();
        let left = self.recovered.keys().filter(|uid| !known.contains(*uid)).cloned().collect();
        let search = orphans::search(Arc::clone(&self.shared), Arc::clone(&self.mailbox), known, left);
        self.shared.tasks.spawn(Box::pin(search));
    }

    /// Clears away what is left of an unknown pod, unless a source has named it by now: it may wait for its name. Where a source cannot
    /// be read the pod may be one of it, whose ledger is lost: a broken file ends nothing that runs.
    fn clear(&mut self, uid: String, remains: Remains) {
        let known = self.pods.contains_key(&uid) || self.wanted.contains_key(&uid);
        if known || self.clearing.contains(&uid) {
            return;
        }
        if !self.readable && !self.recovered.contains_key(&uid) {
            if self.set_aside.insert(uid.clone()) {
                remains.report_set_aside(&uid);
            }
            return;
        }
        self.set_aside.remove(&uid);
        self.clearing.insert(uid.clone());
        self.recovered.remove(&uid);
        let (shared, mailbox) = (Arc::clone(&self.shared), Arc::clone(&self.mailbox));
        self.shared.tasks.spawn(Box::pin(async move {
            orphans::clear(&shared, &uid, &remains).await;
            forget(&shared, &uid).await;
            mailbox.cleared(uid);
        }));
    }
}

/// Notes on the board that a pod is to be deleted, if it is.
fn note_departure(shared: &Shared, pod: &Arc<Pod>, deletion: Option<&Deletion>) {
    if let Some(deletion) = deletion {
        shared.board.leaving(pod, Departure { asked: shared.clock.now(), grace: deletion.grace });
    }
}

/// Removes what is left of a pod on the node, and tries until it works.
async fn forget(shared: &Shared, uid: &str) {
    loop {
        let cleaned = shared.host.clean_up(uid).await;
        if let Err(error) = &cleaned {
            tracing::warn!(%uid, %error, "cannot remove directories of deleted pod; retrying");
        }
        if cleaned.is_ok() && shared.ledger.remove(uid.to_owned()).await {
            return;
        }
        tokio::time::sleep(FORGET_AGAIN).await;
    }
}

/// Why the ledger alone does not make a pod again.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error("the ledger has no copy of the pod")]
    NoCopy,
    #[error(transparent)]
    Invalid(#[from] InvalidCopy),
}

fn copy_of(shared: &Shared, recovered: &Recovered) -> Result<Pod, CopyError> {
    let copy = recovered.copy.clone().ok_or(CopyError::NoCopy)?;
    Ok(Pod::from_json(copy, &shared.features)?)
}

#[cfg(test)]
mod tests;
