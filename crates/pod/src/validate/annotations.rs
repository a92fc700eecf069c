//! keelet's own annotations.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    Pod, ProbeKind,
    path::FieldPath,
    problem::{invalid, not_found, quoted, suspicious},
    review::Review,
};

const PREFIX: &str = "keelet.dev/";
const RESTART_ALL_GRACE: &str = "keelet.dev/restart-all-grace-period-seconds";
const EAGER_PROBES: &str = "keelet.dev/eager-probes";
const PROBE_PERIOD: &str = "keelet.dev/probe-period-ms.";
/// The file that a pod comes from. The agent writes it; a copy of the pod has it too.
pub const MANIFEST: &str = "keelet.dev/manifest";

/// The shortest probe period.
const LEAST_PERIOD_MS: u64 = 100;
/// The longest: what `periodSeconds` could say.
const MOST_PERIOD_MS: u64 = i32::MAX as u64 * 1000;

/// Applies keelet's annotations to a pod that is otherwise complete.
pub(super) fn apply(pod: &mut Pod, annotations: &BTreeMap<String, String>, review: &mut Review<'_>) {
    let path = FieldPath::root().field("metadata").field("annotations");
    for (key, value) in annotations.iter().filter(|(key, _)| key.starts_with(PREFIX)) {
        let path = path.key(key);
        if key == RESTART_ALL_GRACE {
            restart_all_grace(pod, value, &path, review);
        } else if key == EAGER_PROBES {
            match value.parse() {
                Ok(is_eager) => pod.eager_probes = is_eager,
                Err(_) => review.object(&path, invalid(quoted(value), "must be true or false")),
            }
        } else if let Some(target) = key.strip_prefix(PROBE_PERIOD) {
            probe_period(pod, target, value, &path, review);
        } else if key != MANIFEST {
            let known = format!(
                "known annotations are {EAGER_PROBES}, {RESTART_ALL_GRACE} and {PROBE_PERIOD}<container>.<type>"
            );
            review.warn(&path, suspicious(format!("unknown annotation; {known}")));
        }
    }
}

fn restart_all_grace(pod: &mut Pod, value: &str, path: &FieldPath, review: &mut Review<'_>) {
    let most = pod.termination_grace.as_secs();
    match number(value).filter(|seconds| *seconds <= most) {
        Some(seconds) => pod.restart_all_grace = Duration::from_secs(seconds),
        None => {
            let message = format!("must be a whole number from 0 to terminationGracePeriodSeconds ({most})");
            review.object(path, invalid(quoted(value), message));
        }
    }
}

fn probe_period(pod: &mut Pod, target: &str, value: &str, path: &FieldPath, review: &mut Review<'_>) {
    let Some((container, kind)) = target.rsplit_once('.') else {
        return review.object(path, invalid(quoted(target), "must be <container>.<startup|readiness|liveness>"));
    };
    let Some(kind) = ProbeKind::ALL.into_iter().find(|known| known.as_str() == kind) else {
        return review.object(path, invalid(quoted(kind), "must be startup, readiness or liveness"));
    };
    let Some(container) =
        pod.init_containers.iter_mut().chain(&mut pod.containers).find(|known| known.name == container)
    else {
        return review.object(path, not_found(container, "the pod has no such container"));
    };
    let name = container.name.clone();
    let probe = match kind {
        ProbeKind::Startup => &mut container.startup,
        ProbeKind::Readiness => &mut container.readiness,
        ProbeKind::Liveness => &mut container.liveness,
    };
    let Some(probe) = probe else {
        return review.object(path, not_found(kind.as_str(), format!("container {name:?} has no such probe")));
    };
    match number(value).filter(|period| (LEAST_PERIOD_MS..=MOST_PERIOD_MS).contains(period)) {
        Some(period) => probe.period = Duration::from_millis(period),
        None => {
            let message = format!("must be a whole number of milliseconds from {LEAST_PERIOD_MS} to {MOST_PERIOD_MS}");
            review.object(path, invalid(quoted(value), message));
        }
    }
}

/// Digits and nothing else: no sign, no spaces.
fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}
