//! Numbers for monitoring a node: the kubelet's own names where it has one, `keelet_` where it has none.
//!
//! | metric | labels | counts |
//! | --- | --- | --- |
//! | `prober_probe_total` | probe_type, result, container, pod, namespace, pod_uid | probe attempts with a result |
//! | `prober_probe_duration_seconds` | probe_type, container, pod, namespace | how long passing and undecided ones took |
//! | `kubelet_started_containers_total` | container_type | containers started |
//! | `kubelet_started_containers_errors_total` | container_type, code | starts that failed, by reason |
//! | `kubelet_terminated_containers_total` | container_type, exit_code, reason | containers that ended |
//! | `kubelet_started_pods_total`, `kubelet_started_pods_errors_total` | | sandboxes made, and not made |
//! | `kubelet_restarted_pods_total` | static | pods replaced under the same name |
//! | `kubelet_running_containers`, `kubelet_running_pods` | container_state; none | what there is now |
//! | `kubelet_pod_start_duration_seconds` | | from the first sight of a pod to its containers' start |
//! | `kubelet_pod_status_sync_duration_seconds` | | from a status until others can see it |
//! | `kubelet_pod_worker_start_duration_seconds` | | from the first sight of a pod to its task's first plan |
//! | `kubelet_lifecycle_handler_http_fallbacks_total` | | hooks that fell back from HTTPS to HTTP |
//! | `kubelet_sleep_action_terminated_early_total` | | sleep hooks that the container's end cut short |
//! | `keelet_restart_all_containers_total` | trigger | restarts of all containers, by what asked for them |
//! | `keelet_restart_all_containers_duration_seconds` | | from the trigger to the first container's start |
//! | `keelet_agent_start_container_statuses_total` | outcome | statuses kept and reset when the agent started |
//! | `keelet_late_probes_total` | probe_type | attempts that say nothing: our own queue held them up |
//! | `keelet_overdue_probes` | | probes that were late for longer than three periods and half a minute, now |
//! | `keelet_disk_pressure` | | 1 while a disk of the node is nearly full |
//! | `keelet_probe_queueing_seconds` | | how long attempts waited for a permit |
//!
//! Series that name a pod go with it. A probe finds its series by two short lookups, and allocates nothing after its
//! first attempt.

mod labels;
mod probes;

use std::time::Duration;

use keelet_lifecycle::{operation::Outcome, restart::Trigger};
use keelet_pod::{Pod, ProbeKind, Role};
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};

use self::{
    labels::{
        AtStart, CONTAINER, ContainerState, EPHEMERAL, INIT, OfType, RestartedPod, StartFailed, Terminated, Triggered,
    },
    probes::Probes,
};

/// The buckets every Prometheus client has by default.
const USUAL: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// For what a person waits for: up to ten minutes, as a pull may take.
const LONG: [f64; 14] = [0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// For queues that should be empty: from a tenth of a millisecond on.
const SHORT: [f64; 10] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

/// All metrics of the agent. Methods may be called from any task.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    probes: Probes,
    started: Family<OfType, Counter>,
    start_failed: Family<StartFailed, Counter>,
    terminated: Family<Terminated, Counter>,
    pods_started: Counter,
    pods_failed: Counter,
    pods_restarted: Family<RestartedPod, Counter>,
    running_containers: Family<ContainerState, Gauge>,
    running_pods: Gauge,
    overdue_probes: Gauge,
    disk_pressure: Gauge,
    pod_start: Histogram,
    status_sync: Histogram,
    worker_start: Histogram,
    http_fallbacks: Counter,
    sleeps_cut_short: Counter,
    restarts_of_all: Family<Triggered, Counter>,
    restart_of_all: Histogram,
    at_start: Family<AtStart, Counter>,
}

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How many containers there are, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerCounts {
    /// Made and not yet started.
    pub created: usize,
    /// Running.
    pub running: usize,
    /// Ended and not yet removed.
    pub exited: usize,
    /// In a state that the runtime does not know.
    pub unknown: usize,
}

// === impl Metrics ===

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        Self {
            probes: Probes::new(r),
            started: add(r, "kubelet_started_containers", "Containers started"),
            start_failed: add(r, "kubelet_started_containers_errors", "Errors when starting containers"),
            terminated: add(r, "kubelet_terminated_containers", "Containers that terminated"),
            pods_started: add(r, "kubelet_started_pods", "Pods started"),
            pods_failed: add(r, "kubelet_started_pods_errors", "Errors when starting pods"),
            pods_restarted: add(r, "kubelet_restarted_pods", "Pods replaced by one of the same name"),
            running_containers: add(r, "kubelet_running_containers", "Containers in the runtime, by state"),
            running_pods: add(r, "kubelet_running_pods", "Pods with a running sandbox"),
            overdue_probes: add(r, "keelet_overdue_probes", "Probes without an attempt for too long"),
            disk_pressure: add(r, "keelet_disk_pressure", "Whether a disk of the node is nearly full"),
            pod_start: histogram(
                r,
                "kubelet_pod_start_duration_seconds",
                "From the first sight of a pod to the start of its containers",
                &LONG,
            ),
            status_sync: histogram(
                r,
                "kubelet_pod_status_sync_duration_seconds",
                "From a status until it is published",
                &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0],
            ),
            worker_start: histogram(
                r,
                "kubelet_pod_worker_start_duration_seconds",
                "From the first sight of a pod to the first plan for it",
                &USUAL,
            ),
            http_fallbacks: add(
                r,
                "kubelet_lifecycle_handler_http_fallbacks",
                "Lifecycle hooks that fell back from HTTPS to HTTP",
            ),
            sleeps_cut_short: add(
                r,
                "kubelet_sleep_action_terminated_early",
                "Sleep hooks that ended early because their container exited",
            ),
            restarts_of_all: add(r, "keelet_restart_all_containers", "Restarts of all containers of a pod"),
            restart_of_all: histogram(
                r,
                "keelet_restart_all_containers_duration_seconds",
                "From the trigger of RestartAllContainers to the first start of a container",
                &LONG,
            ),
            at_start: add(
                r,
                "keelet_agent_start_container_statuses",
                "Container statuses that an agent start kept or reset",
            ),
            registry,
        }
    }

    /// Everything as OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        match text::encode(&mut out, &self.registry) {
            Ok(()) => out,
            Err(std::fmt::Error) => unreachable!("a string takes all that is written to it"),
        }
    }

    /// A probe attempt ended. `latency` is how long its target took, `queued` how long it waited for a permit.
    pub fn probed(
        &self,
        pod: &Pod,
        container: &str,
        kind: ProbeKind,
        outcome: Outcome,
        latency: Duration,
        queued: Duration,
    ) {
        self.probes.probed(pod, container, kind, outcome, latency, queued);
    }

    /// That probe of that pod is made no more.
    pub fn forget_probe(&self, uid: &str, container: &str, kind: ProbeKind) {
        self.probes.forget(uid, |name, other| name == container && other == kind);
    }

    /// The pod is gone.
    pub fn forget_pod(&self, uid: &str) {
        self.probes.forget(uid, |_, _| true);
    }

    /// A container was started.
    pub fn started(&self, role: Role) {
        self.started.get_or_create(&OfType { container_type: container_type(role) }).inc();
    }

    /// A container could not be started, for this reason (`ErrImagePull`, `CreateContainerError`, ...).
    pub fn start_failed(&self, role: Role, reason: &str) {
        let labels = StartFailed { container_type: container_type(role), code: reason.to_owned() };
        self.start_failed.get_or_create(&labels).inc();
    }

    /// A container ended. To be called once for each instance.
    pub fn terminated(&self, role: Role, exit_code: i32, reason: &str) {
        let labels = Terminated { container_type: container_type(role), exit_code, reason: reason.to_owned() };
        self.terminated.get_or_create(&labels).inc();
    }

    /// A pod got a sandbox.
    pub fn pod_started(&self) {
        self.pods_started.inc();
    }

    /// A pod's sandbox could not be made.
    pub fn pod_start_failed(&self) {
        self.pods_failed.inc();
    }

    /// A pod came to stand in for an older one of the same name. Static ones do not come from an API server.
    pub fn pod_restarted(&self, is_static: bool) {
        let labels = RestartedPod { r#static: if is_static { "true" } else { "" } };
        self.pods_restarted.get_or_create(&labels).inc();
    }

    /// Whether a disk of the node is nearly full.
    pub fn disk_pressure(&self, holds: bool) {
        self.disk_pressure.set(i64::from(holds));
    }

    /// What there is now.
    pub fn running(&self, pods: usize, containers: ContainerCounts) {
        let ContainerCounts { created, running, exited, unknown } = containers;
        for (container_state, count) in
            [("created", created), ("running", running), ("exited", exited), ("unknown", unknown)]
        {
            self.running_containers.get_or_create(&ContainerState { container_state }).set(gauge(count));
        }
        self.running_pods.set(gauge(pods));
    }

    /// So many probes were late for too long.
    pub fn overdue_probes(&self, probes: usize) {
        self.overdue_probes.set(gauge(probes));
    }

    /// All containers of a pod run for the first time, this long after it was first seen.
    pub fn pod_start_took(&self, duration: Duration) {
        self.pod_start.observe(duration.as_secs_f64());
    }

    /// Others can see a status, this long after it was made.
    pub fn status_sync_took(&self, duration: Duration) {
        self.status_sync.observe(duration.as_secs_f64());
    }

    /// The first plan for a pod is made, this long after it was first seen.
    pub fn worker_start_took(&self, duration: Duration) {
        self.worker_start.observe(duration.as_secs_f64());
    }

    /// A hook fell back from HTTPS to HTTP.
    pub fn hook_fell_back_to_http(&self) {
        self.http_fallbacks.inc();
    }

    /// The end of its container cut a sleep hook short.
    pub fn sleep_cut_short(&self) {
        self.sleeps_cut_short.inc();
    }

    /// All containers of a pod are restarting.
    pub fn restart_all(&self, trigger: &Trigger) {
        let trigger = match trigger {
            Trigger::Exit { .. } => "exit",
            Trigger::Request { .. } => "request",
            Trigger::Inherited { .. } => "inherited",
        };
        self.restarts_of_all.get_or_create(&Triggered { trigger }).inc();
    }

    /// The first container runs again, this long after the trigger.
    pub fn restart_all_took(&self, duration: Duration) {
        self.restart_of_all.observe(duration.as_secs_f64());
    }

    /// The agent started and kept the statuses of that many containers.
    pub fn kept(&self, containers: u64) {
        self.at_start.get_or_create(&AtStart { outcome: "kept" }).inc_by(containers);
    }

    /// The agent started and reset the statuses of that many containers.
    pub fn reset(&self, containers: u64) {
        self.at_start.get_or_create(&AtStart { outcome: "reset" }).inc_by(containers);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Sidecars are init containers, as the kubelet counts them.
fn container_type(role: Role) -> &'static str {
    match role {
        Role::Init | Role::Sidecar => INIT,
        Role::Regular => CONTAINER,
        Role::Ephemeral => EPHEMERAL,
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Registers a metric. Counters get `_total` behind their name when they are written out.
fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    register(registry, name, help, M::default())
}

fn histogram(registry: &mut Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    register(registry, name, help, Histogram::new(buckets.iter().copied()))
}

fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

#[cfg(test)]
mod tests;
