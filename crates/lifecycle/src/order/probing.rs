//! Which probes are due (PROBE-9..18, PROBE-42..44).

use keelet_pod::{Container, ProbeKind};

use crate::{
    draft::Draft,
    evidence::RunningInstance,
    operation::{OpKey, Operation},
    probe::{self, Basis, Verdict},
    restart::RestartAllStage,
    time::Moment,
};

/// Starts the probes that are due, and cancels those whose container exited or is being stopped.
pub(crate) fn probes(draft: &mut Draft<'_>) {
    let instances = &draft.evidence.volatile.instances;
    let orphans: Vec<String> = draft
        .evidence
        .volatile
        .pending
        .iter()
        .filter_map(|pending| match &pending.operation {
            Operation::Probe { container, id, .. }
                if instances.get(container).is_none_or(|instance| instance.id != *id) =>
            {
                Some(id.clone())
            }
            _ => None,
        })
        .collect();
    if !orphans.is_empty() {
        draft.cancel(|operation| matches!(operation, Operation::Probe { id, .. } if orphans.contains(id)));
    }
    if matches!(draft.evidence.durable.restart_all.stage, RestartAllStage::Terminating(_)) {
        return;
    }
    if draft.evidence.volatile.reset_due {
        // An attempt now would be for values that the legacy reset is about to take back.
        return;
    }
    for container in draft.pod.lasting_containers().filter(|container| container.role.is_probed()) {
        for kind in ProbeKind::ALL {
            one(draft, container, kind);
        }
    }
}

fn one(draft: &mut Draft<'_>, container: &Container, kind: ProbeKind) {
    let Some(spec) = container.probe(kind) else { return };
    let ending = draft.evidence.durable.ending.is_some();
    let Some(instance) = draft.evidence.volatile.instances.get_mut(&container.name) else { return };
    let id = instance.id.clone();
    if !is_wanted(container, instance, kind, ending) {
        draft.cancel(
            |operation| matches!(operation, Operation::Probe { id: probed, probe, .. } if *probed == id && *probe == kind),
        );
        return;
    }
    let is_eager = draft.rules.eager_probes && draft.pod.eager_probes;
    let passed_at = startup_passed(container, instance);
    let started = instance.started;
    let memory = instance.probe_mut(kind);
    if memory.due.is_none() {
        memory.due = Some(probe::first_due(kind, spec, started, passed_at));
        if draft.resuming {
            // An instance that is new to this run is probed with the others, not sooner, and a period later the second
            // time.
            probe::after_restart(memory, spec, draft.now);
        }
    }
    let due = memory.due.unwrap_or(draft.now);
    let eager_due = memory.eager.due().filter(|_| is_eager && memory.verdict.passed() != Some(true));
    let attempt = |eager| Operation::Probe { container: container.name.clone(), id: id.clone(), probe: kind, eager };
    let is_due = draft.now.has_reached(&due);
    if let Some(pending) = draft.pending(&OpKey::Probe(id.clone(), kind)) {
        match pending.operation == attempt(true) {
            // A scheduled attempt does not wait for an eager one.
            true if is_due => draft.cancel(|operation| *operation == attempt(true)),
            true => draft.wake(due),
            false => {}
        }
        return;
    }
    if is_due {
        draft.start(attempt(false));
        return;
    }
    draft.wake(due);
    let Some(eager_due) = eager_due else { return };
    if draft.now.has_reached(&eager_due) {
        draft.start(attempt(true));
    } else {
        draft.wake(eager_due);
    }
}

/// The startup probe runs until it has decided; the others wait for its success. A container that is being stopped has
/// its readiness probe only.
fn is_wanted(container: &Container, instance: &RunningInstance, kind: ProbeKind, ending: bool) -> bool {
    let started = has_started(container, instance);
    let staying = instance.kill.is_none() && !ending;
    match kind {
        ProbeKind::Startup => !started && staying && !instance.startup.on_hold,
        ProbeKind::Readiness => started,
        ProbeKind::Liveness => started && staying && !instance.liveness.on_hold,
    }
}

/// Whether a running container has started.
pub(crate) fn has_started(container: &Container, instance: &RunningInstance) -> bool {
    container.startup.is_none() || instance.startup.verdict.passed() == Some(true)
}

/// When the startup probe succeeded; long ago if only the fact is known.
fn startup_passed(container: &Container, instance: &RunningInstance) -> Option<Moment> {
    container.startup.as_ref()?;
    match &instance.startup.verdict {
        Verdict::Probed { passed: true, at, .. }
        | Verdict::Carried { passed: true, basis: Basis::Probe { at, .. } } => Some(*at),
        Verdict::Carried { passed: true, .. } => Some(instance.started),
        Verdict::Probed { .. } | Verdict::Carried { .. } | Verdict::NeverProbed => None,
    }
}
