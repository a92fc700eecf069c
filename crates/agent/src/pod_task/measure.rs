//! What a plan's evidence means for the node's metrics: lives that began and ended, restarts of all containers, what
//! an agent start kept.

use keelet_lifecycle::{
    Evidence, Moment,
    evidence::Life,
    probe::{Basis, Verdict},
};
use keelet_pod::{Pod, ProbeKind};

use crate::metrics::Metrics;

/// Counts what became different.
pub(crate) fn transitions(metrics: &Metrics, pod: &Pod, before: &Evidence, after: &Evidence, now: Moment) {
    for (name, record) in &after.durable.containers {
        let Some(container) = pod.container(name) else { continue };
        let known = before.durable.containers.get(name);
        let started = record.running.as_ref().filter(|running| {
            known.and_then(|known| known.running.as_ref()).is_none_or(|known| known.id != running.id)
        });
        if started.is_some() && record.newest != known.and_then(|known| known.newest.clone()) {
            metrics.started(container.role);
        }
        let ended = record.last_exit.as_ref();
        if let Some(exit) =
            ended.filter(|exit| known.and_then(|k| k.last_exit.as_ref()).is_none_or(|k| k.id != exit.id))
        {
            metrics.terminated(container.role, exit.exit_code, &exit.reason);
        }
    }
    let (old, new) = (&before.durable.restart_all.stage, &after.durable.restart_all.stage);
    if new.is_under_way()
        && !old.is_under_way()
        && let Some(trigger) = new.triggers().first()
    {
        metrics.restart_all(trigger);
    }
    if let Some(trigger) = old.triggers().first().filter(|_| old.is_under_way() && !new.is_under_way()) {
        metrics.restart_all_took(now.since(&trigger.at()));
    }
    if before.volatile.agent_started != after.volatile.agent_started && before.volatile.agent_started.is_some() {
        let verdicts = || after.volatile.lives.values().flat_map(carried);
        let reset = verdicts().filter(|basis| !matches!(basis, Basis::Probe { .. } | Basis::Status)).count();
        metrics.kept((verdicts().count() - reset) as u64);
        metrics.reset(reset as u64);
    }
}

fn carried(life: &Life) -> impl Iterator<Item = &Basis> {
    [ProbeKind::Startup, ProbeKind::Readiness].into_iter().filter_map(|kind| match &life.probe(kind).verdict {
        Verdict::Carried { basis, .. } => Some(basis),
        Verdict::NeverProbed | Verdict::Probed { .. } => None,
    })
}
