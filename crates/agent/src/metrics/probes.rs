//! The series of probes: one set for each probe of each container, kept at hand while the probe runs.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use keelet_lifecycle::operation::Outcome;
use keelet_pod::{Pod, ProbeKind};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::{
    SHORT, USUAL, add, histogram,
    labels::{ProbeOf, ProbeResult, ProbeType},
    register,
};

#[derive(Debug)]
pub(super) struct Probes {
    total: Family<ProbeResult, Counter>,
    duration: Family<ProbeOf, Histogram>,
    late: Family<ProbeType, Counter>,
    queueing: Histogram,
    /// By the UID of the pod.
    series: Mutex<BTreeMap<String, Vec<Series>>>,
}

/// What one probe has at hand. A result that never occurred has no series.
#[derive(Debug)]
struct Series {
    of: ProbeOf,
    kind: ProbeKind,
    duration: Option<Histogram>,
    results: [Option<Counter>; RESULTS.len()],
}

/// The values of the label `result`.
const RESULTS: [&str; 3] = ["successful", "failed", "unknown"];
const SUCCESSFUL: usize = 0;
const FAILED: usize = 1;
const UNKNOWN: usize = 2;

// === impl Probes ===

impl Probes {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let durations = Family::new_with_constructor((|| Histogram::new(USUAL)) as fn() -> Histogram);
        Self {
            total: add(registry, "prober_probe", "Probe attempts by result"),
            duration: register(registry, "prober_probe_duration_seconds", "Duration of probe attempts", durations),
            late: add(
                registry,
                "keelet_late_probes",
                "Probe attempts that the queue of the agent delayed for too long to count",
            ),
            queueing: histogram(
                registry,
                "keelet_probe_queueing_seconds",
                "How long probe attempts waited for a permit",
                &SHORT,
            ),
            series: Mutex::default(),
        }
    }

    pub(super) fn probed(
        &self,
        pod: &Pod,
        container: &str,
        kind: ProbeKind,
        outcome: Outcome,
        latency: Duration,
        queued: Duration,
    ) {
        let result = match outcome {
            Outcome::Success | Outcome::Warning => SUCCESSFUL,
            Outcome::Failure => FAILED,
            Outcome::Error => UNKNOWN,
            Outcome::Late => {
                self.queueing.observe(queued.as_secs_f64());
                self.late.get_or_create(&ProbeType { probe_type: kind.title() }).inc();
                return;
            }
            // Its container went away: the agent no longer probes it.
            Outcome::Cancelled => return,
        };
        self.queueing.observe(queued.as_secs_f64());
        self.with_series(pod, container, kind, |series| {
            let Series { of, results, duration, .. } = series;
            let total = || self.total.get_or_create_owned(&of.result(result, &pod.uid));
            results[result].get_or_insert_with(total).inc();
            // How long a failure takes is the timeout's business, and would hide how long an answer takes.
            if result != FAILED {
                let duration = duration.get_or_insert_with(|| self.duration.get_or_create_owned(of));
                duration.observe(latency.as_secs_f64());
            }
        });
    }

    /// Deletes the series of the pod's probes that are named.
    pub(super) fn forget(&self, uid: &str, named: impl Fn(&str, ProbeKind) -> bool) {
        let mut all = self.series();
        let Some(of_pod) = all.get_mut(uid) else { return };
        let (gone, rest): (Vec<_>, Vec<_>) =
            std::mem::take(of_pod).into_iter().partition(|series| named(&series.of.container, series.kind));
        if rest.is_empty() {
            all.remove(uid);
        } else {
            *of_pod = rest;
        }
        for series in gone {
            for result in (0..RESULTS.len()).filter(|result| series.results[*result].is_some()) {
                self.total.remove(&series.of.result(result, uid));
            }
            // A pod of the same name, which came in the place of this one, shares the series.
            if !all.values().flatten().any(|other| other.of == series.of) {
                self.duration.remove(&series.of);
            }
        }
    }

    fn series(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Series>>> {
        // Nothing that holds the lock leaves half a change behind.
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the series of a probe, which its first attempt makes.
    fn with_series(&self, pod: &Pod, container: &str, kind: ProbeKind, change: impl FnOnce(&mut Series)) {
        let mut all = self.series();
        let is_it = |known: &&mut Series| known.kind == kind && known.of.container == container;
        if let Some(series) = all.get_mut(&pod.uid).and_then(|of_pod| of_pod.iter_mut().find(is_it)) {
            return change(series);
        }
        let mut series = Series::new(pod, container, kind);
        change(&mut series);
        all.entry(pod.uid.clone()).or_default().push(series);
    }
}

// === impl Series ===

impl Series {
    fn new(pod: &Pod, container: &str, kind: ProbeKind) -> Self {
        let of = ProbeOf {
            probe_type: kind.title(),
            container: container.to_owned(),
            pod: pod.name.clone(),
            namespace: pod.namespace.clone(),
        };
        Self { of, kind, duration: None, results: [const { None }; RESULTS.len()] }
    }
}

// === impl ProbeOf ===

impl ProbeOf {
    fn result(&self, result: usize, uid: &str) -> ProbeResult {
        ProbeResult {
            probe_type: self.probe_type,
            result: RESULTS[result],
            container: self.container.clone(),
            pod: self.pod.clone(),
            namespace: self.namespace.clone(),
            pod_uid: uid.to_owned(),
        }
    }
}
