//! What a plan's evidence means for the node's metrics and its status: instances that began and ended, restarts of all
//! containers, what an agent start kept, probes that the node cannot ask.

use std::time::Duration;

use keelet_lifecycle::{
    Evidence, Moment,
    evidence::RunningInstance,
    probe::{Basis, Verdict},
    status::Phase,
};
use keelet_pod::{Pod, ProbeKind};

use crate::{board::OverdueProbe, metrics::Metrics};

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
    for (name, instance) in &before.volatile.instances {
        if after.volatile.instances.get(name).is_none_or(|now| now.id != instance.id) {
            ProbeKind::ALL.into_iter().for_each(|kind| metrics.forget_probe(&pod.uid, name, kind));
        }
    }
    let phase = |evidence: &Evidence| evidence.durable.published.as_ref().map(|status| status.phase);
    let first_time = after.durable.containers.values().all(|record| record.restart_count == 0);
    if phase(before) == Some(Phase::Pending) && phase(after) == Some(Phase::Running) && first_time {
        metrics.pod_start_took(after.durable.first_seen.map_or(Duration::ZERO, |seen| now.since(&seen)));
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
        let verdicts = || after.volatile.instances.values().flat_map(|instance| carried(instance));
        let reset =
            verdicts().filter(|basis| !matches!(basis, Basis::Probe { .. } | Basis::Status | Basis::Age)).count();
        metrics.kept((verdicts().count() - reset) as u64);
        metrics.reset(reset as u64);
    }
}

/// Probes that this node has not managed to ask for too long.
pub(crate) fn overdue(pod: &Pod, evidence: &Evidence, now: Moment) -> Vec<OverdueProbe> {
    let mut overdue = Vec::new();
    for (name, instance) in &evidence.volatile.instances {
        for kind in ProbeKind::ALL {
            let memory = instance.probe(kind);
            let Some(since) = memory.late_since else { continue };
            let probe = pod.container(name).and_then(|container| container.probe(kind));
            if probe.is_some_and(|probe| memory.overdue(probe, now).is_some()) {
                overdue.push(OverdueProbe { container: name.clone(), kind, since });
            }
        }
    }
    overdue
}

fn carried(instance: &RunningInstance) -> impl Iterator<Item = &Basis> {
    [ProbeKind::Startup, ProbeKind::Readiness].into_iter().filter_map(|kind| match &instance.probe(kind).verdict {
        Verdict::Carried { basis, .. } => Some(basis),
        Verdict::NeverProbed | Verdict::Probed { .. } => None,
    })
}
