//! Operations: what a plan starts, carried out beside the pod's task.
//!
//! Each runs in a task of its own and reports to the pod's slot when it has ended, however that came about.

mod image;
mod launch;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::{Either, select};
use keelet_cri::ErrorKind;
use keelet_host::{HostError, Volumes};
use keelet_launch::has_contents;
use keelet_lifecycle::{
    Event, Severity,
    operation::{OpFailure, OpId, OpResult, Operation, Outcome, ProbeReport},
};
use keelet_pod::{Container, Hook, Pod};
use keelet_prober::{Attempt, HookError, Target};
use tokio::sync::oneshot;

use crate::{
    pod_task::Observation,
    shared::{Shared, bare},
    slot::{Slot, Wanted},
};

/// Bytes of a probe's output that evidence and events carry. The ledger is rewritten with every change, and people read
/// the beginning.
const REMEMBERED_OUTPUT: usize = 1024;

/// How long an operation that is cancelled may take to end what it has begun to make. A runtime that hangs must not
/// keep a pod for ever.
const WIND_UP: Duration = Duration::from_secs(10);

/// What operations of one pod share.
#[derive(Clone, Debug)]
pub(crate) struct Executor {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    /// The pod's volumes, once known to this agent.
    volumes: Arc<Mutex<Option<Volumes>>>,
}

/// What one operation works with.
pub(crate) struct Work {
    pub(crate) shared: Arc<Shared>,
    slot: Arc<Slot>,
    volumes: Arc<Mutex<Option<Volumes>>>,
    pub(crate) pod: Arc<Pod>,
    /// The pod's addresses.
    pub(crate) addresses: Vec<String>,
    /// How often its present sandbox was made before.
    pub(crate) sandbox_attempt: u32,
    /// Containers that run, by name, with the ID the runtime knows them by.
    pub(crate) running: BTreeMap<String, String>,
    /// The pod no longer wants the operation: what has been begun is ended, and nothing else is begun.
    cancelled: AtomicBool,
}

/// Reports the end of an operation, also of one that panicked.
struct Report {
    slot: Arc<Slot>,
    shared: Arc<Shared>,
    id: OpId,
    result: Option<OpResult>,
}

/// Carries out an operation and reports to the slot.
pub(crate) async fn run(work: Work, id: OpId, operation: Operation, cancelled: oneshot::Receiver<()>) {
    let mut report = Report { slot: Arc::clone(&work.slot), shared: Arc::clone(&work.shared), id, result: None };
    let carried_out = std::pin::pin!(work.carry_out(&operation));
    report.result = Some(match select(carried_out, cancelled).await {
        Either::Left((result, _)) => result,
        Either::Right((_, rest)) if makes_something(&operation) => {
            work.cancelled.store(true, Ordering::Relaxed);
            tokio::time::timeout(WIND_UP, rest).await.unwrap_or(OpResult::Cancelled)
        }
        Either::Right(_) => OpResult::Cancelled,
    });
}

/// Whether the operation may create something though no task waits for it any more. A pod that is going away has to
/// know: the pod would be gone before the new thing appears.
fn makes_something(operation: &Operation) -> bool {
    match operation {
        Operation::PrepareVolumes
        | Operation::CreateSandbox { .. }
        | Operation::Launch { .. }
        | Operation::StartCreated { .. } => true,
        Operation::StopSandbox { .. }
        | Operation::RemoveSandbox { .. }
        | Operation::EnsureImage { .. }
        | Operation::PostStart { .. }
        | Operation::PreStop { .. }
        | Operation::Stop { .. }
        | Operation::Remove { .. }
        | Operation::Probe { .. } => false,
    }
}

fn failed(reason: &str, message: impl Into<String>) -> OpResult {
    OpResult::Failed(OpFailure { reason: reason.to_owned(), message: message.into() })
}

/// What a call came to; that there is nothing left to act on is as good as having acted.
fn call(reason: &str, result: Result<(), keelet_cri::Error>) -> OpResult {
    match result {
        Ok(()) => OpResult::Done,
        Err(error) if error.kind == ErrorKind::NotFound => OpResult::Done,
        Err(error) => failed(reason, error.to_string()),
    }
}

// === impl Executor ===

impl Executor {
    pub(crate) fn new(shared: Arc<Shared>, slot: Arc<Slot>) -> Self {
        Self { shared, slot, volumes: Arc::default() }
    }

    pub(crate) fn for_operation(&self, wanted: &Wanted, observation: Option<&Observation>) -> Work {
        let sandbox = observation.and_then(|observation| {
            let ready = observation.sandboxes.iter().filter(|sandbox| sandbox.ready);
            ready.max_by_key(|sandbox| sandbox.attempt)
        });
        let addresses = match sandbox {
            Some(sandbox) if !sandbox.host_network => sandbox.ips.clone(),
            _ if wanted.pod.host_network => self.shared.facts().address.iter().cloned().collect(),
            _ => Vec::new(),
        };
        let instances = observation.map_or(&[][..], |observation| &observation.containers);
        let running = instances.iter().filter(|instance| instance.may_run());
        Work {
            running: running.map(|instance| (instance.name.clone(), bare(&instance.id).to_owned())).collect(),
            shared: Arc::clone(&self.shared),
            slot: Arc::clone(&self.slot),
            volumes: Arc::clone(&self.volumes),
            pod: Arc::clone(&wanted.pod),
            addresses,
            sandbox_attempt: sandbox.map_or(0, |sandbox| sandbox.attempt),
            cancelled: AtomicBool::new(false),
        }
    }
}

// === impl Work ===

impl Work {
    /// The future is allocated for every probe, so whatever is larger and seldom done is boxed.
    async fn carry_out(&self, operation: &Operation) -> OpResult {
        let runtime = &self.shared.runtime;
        match operation {
            Operation::PrepareVolumes => match Box::pin(self.prepare_volumes()).await {
                Ok(_) => OpResult::Done,
                Err(error) => failed(error.reason, error.message),
            },
            Operation::CreateSandbox { attempt } => Box::pin(self.create_sandbox(*attempt)).await,
            Operation::StopSandbox { sandbox } => call("KillPodSandboxError", runtime.stop_pod_sandbox(sandbox).await),
            Operation::RemoveSandbox { sandbox } => {
                call("KillPodSandboxError", runtime.remove_pod_sandbox(sandbox).await)
            }
            Operation::EnsureImage { container, image } => Box::pin(self.ensure_image(container, image)).await,
            Operation::Launch { container, attempt, sandbox } => {
                let result = Box::pin(self.launch(container, *attempt, sandbox)).await;
                self.count_failed_start(container, result)
            }
            Operation::StartCreated { container, id } => {
                let result = Box::pin(self.start(bare(id))).await;
                self.count_failed_start(container, result)
            }
            Operation::PostStart { container, id } => {
                let hook = |container: &Container| container.post_start.clone();
                Box::pin(self.hook(container, id, hook, None)).await
            }
            Operation::PreStop { container, id, timeout } => {
                let hook = |container: &Container| container.pre_stop.clone();
                Box::pin(self.hook(container, id, hook, Some(*timeout))).await
            }
            Operation::Stop { id, timeout, .. } => {
                call("KillContainerError", runtime.stop_container(bare(id), *timeout).await)
            }
            Operation::Remove { id, .. } => call("RemoveContainerError", runtime.remove_container(bare(id)).await),
            Operation::Probe { container, id, probe: kind, eager } => {
                let Some(container) = self.pod.container(container) else { return OpResult::Cancelled };
                let Some(probe) = container.probe(*kind) else { return OpResult::Cancelled };
                let target = self.target(container, bare(id));
                let attempted = self.shared.prober.attempt(Attempt { target, kind: *kind, probe }).await;
                let ProbeReport { outcome, latency, .. } = &attempted.report;
                let metrics = &self.shared.metrics;
                // An eager attempt counts if it passes, here as well.
                if !eager || matches!(outcome, Outcome::Success | Outcome::Warning) {
                    metrics.probed(&self.pod, &container.name, *kind, *outcome, *latency, attempted.queued);
                }
                let mut report = attempted.report;
                report.output.truncate(report.output.floor_char_boundary(REMEMBERED_OUTPUT));
                OpResult::Probed(report)
            }
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// The pod's volumes. They are made once for each agent; an agent that did not make them finds them in place.
    pub(crate) async fn prepare_volumes(&self) -> Result<Volumes, HostError> {
        let known = self.volumes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(volumes) = known {
            self.refresh_volumes().await;
            return Ok(volumes);
        }
        let volumes = self.shared.host.prepare(&self.pod).await?;
        *self.volumes.lock().unwrap_or_else(PoisonError::into_inner) = Some(volumes.clone());
        Ok(volumes)
    }

    /// What starts now sees config maps and secrets as they are now. If they are gone, what was there has to do.
    async fn refresh_volumes(&self) {
        if !has_contents(&self.pod) {
            return;
        }
        if let Err(error) = self.shared.host.refresh(&self.pod).await {
            self.say(None, error.reason, Severity::Warning, error.message);
        }
    }

    async fn hook(
        &self,
        container: &str,
        id: &str,
        hook: impl FnOnce(&Container) -> Option<Hook>,
        timeout: Option<Duration>,
    ) -> OpResult {
        let Some(container) = self.pod.container(container) else { return OpResult::Cancelled };
        let Some(hook) = hook(container) else { return OpResult::Done };
        match self.shared.prober.hook(&hook, self.target(container, bare(id)), timeout).await {
            Ok(done) => {
                if let Some(message) = done.http_fallback {
                    self.shared.metrics.hook_fell_back_to_http();
                    self.say(Some(&container.name), "LifecycleHTTPFallback", Severity::Warning, message);
                }
                OpResult::Done
            }
            Err(error) => {
                if matches!((&hook, &error), (Hook::Sleep(_), HookError::TimedOut(_))) {
                    self.shared.metrics.sleep_cut_short();
                }
                failed("HookFailed", error.to_string())
            }
        }
    }

    fn count_failed_start(&self, container: &str, result: OpResult) -> OpResult {
        if let (OpResult::Failed(failure), Some(container)) = (&result, self.pod.container(container)) {
            self.shared.metrics.start_failed(container.role, &failure.reason);
        }
        result
    }

    fn target<'a>(&'a self, container: &'a Container, container_id: &'a str) -> Target<'a> {
        Target { pod: &self.pod, container, container_id, address: self.addresses.first().map(String::as_str) }
    }

    /// Emits an event of normal severity about what happens meanwhile.
    pub(crate) fn emit(&self, container: Option<&str>, reason: &'static str, message: String) {
        self.say(container, reason, Severity::Normal, message);
    }

    fn say(&self, container: Option<&str>, reason: &'static str, severity: Severity, message: String) {
        self.slot.emit(Event { container: container.map(str::to_owned), reason, severity, message });
    }
}

// === impl Report ===

impl Drop for Report {
    fn drop(&mut self) {
        let lost = || failed("InternalError", "the operation ended without a result; this is a defect of keelet");
        self.slot.finish(self.id, self.shared.clock.now(), self.result.take().unwrap_or_else(lost));
    }
}

#[cfg(test)]
mod tests;
