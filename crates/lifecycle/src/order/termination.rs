//! Ending a pod: regular containers first, sidecars last and in reverse, all within one grace period (TERM-*).

use std::time::Duration;

use keelet_pod::{ProbeKind, Role};

use super::kill::{self, Turn};
use crate::{
    draft::Draft,
    observed::{Instance, InstanceState},
    operation::{KillReason, Operation},
    plan::Severity,
};

/// Does what an ending pod needs next.
pub(crate) fn proceed(draft: &mut Draft<'_>) {
    draft.cancel(|operation| match operation {
        Operation::PrepareVolumes
        | Operation::CreateSandbox { .. }
        | Operation::EnsureImage { .. }
        | Operation::Launch { .. }
        | Operation::StartCreated { .. }
        | Operation::PostStart { .. } => true,
        Operation::Probe { probe, .. } => *probe != ProbeKind::Readiness,
        Operation::StopSandbox { .. }
        | Operation::RemoveSandbox { .. }
        | Operation::PreStop { .. }
        | Operation::Stop { .. }
        | Operation::Remove { .. } => false,
    });
    let Some(ending) = draft.evidence.durable.ending.clone() else { return };
    let left = ending.since.plus(ending.grace).since(&draft.now);
    let observed = draft.observed;
    let running: Vec<&Instance> = observed.containers.iter().filter(|instance| instance.may_run()).collect();
    for instance in &running {
        stop(draft, instance, left, turn(draft, instance, &running));
    }
    if !running.is_empty() || may_still_begin(draft) {
        return;
    }
    for sandbox in observed.sandboxes.iter().filter(|sandbox| sandbox.ready) {
        draft.start(Operation::StopSandbox { sandbox: sandbox.id.clone() });
    }
    if ending.deleted && ended(draft) {
        remove_remains(draft);
    }
}

/// No container of the pod is running.
pub(crate) fn ended(draft: &Draft<'_>) -> bool {
    let observed = draft.observed;
    draft.evidence.durable.ending.is_some()
        && !observed.containers.iter().any(Instance::may_run)
        && !observed.sandboxes.iter().any(|sandbox| sandbox.ready)
        && !may_still_begin(draft)
}

/// The pod was deleted, and the runtime has nothing of it. Its directories go next: `forget` of the agent's manager.
pub(crate) fn gone(draft: &Draft<'_>) -> bool {
    ended(draft)
        && draft.evidence.durable.ending.as_ref().is_some_and(|ending| ending.deleted)
        && draft.observed.containers.is_empty()
        && draft.observed.sandboxes.is_empty()
}

/// An operation that was cancelled too late may still start a container or a sandbox.
fn may_still_begin(draft: &Draft<'_>) -> bool {
    draft.evidence.volatile.pending.iter().any(|pending| {
        pending.operation.starts_container() || matches!(pending.operation, Operation::CreateSandbox { .. })
    })
}

fn stop(draft: &mut Draft<'_>, instance: &Instance, left: Duration, turn: Turn) {
    let marked = |draft: &Draft<'_>| {
        let remembered = draft.evidence.volatile.instances.get(&instance.name);
        remembered.is_some_and(|remembered| remembered.id == instance.id && remembered.kill.is_some())
    };
    let before = marked(draft);
    draft.mark_killed(&instance.name, &instance.id, KillReason::PodEnding, left);
    if !before && marked(draft) {
        let message = format!("Stopping container {}", instance.name);
        draft.event(Some(&instance.name), "Killing", Severity::Normal, message);
    }
    kill::advance(draft, instance, KillReason::PodEnding, left, turn);
}

/// A sidecar waits for all regular containers and for the sidecars after it.
fn turn(draft: &Draft<'_>, instance: &Instance, running: &[&Instance]) -> Turn {
    let pod = draft.pod;
    let position = |name: &str| pod.init_containers.iter().position(|c| c.name == name && c.role == Role::Sidecar);
    let Some(own) = position(&instance.name) else { return Turn::Now };
    let goes_first = |other: &&Instance| match position(&other.name) {
        Some(index) => index > own,
        None => pod.container(&other.name).is_some_and(|c| c.role == Role::Regular),
    };
    if running.iter().any(goes_first) { Turn::Later } else { Turn::Now }
}

fn remove_remains(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    for instance in &observed.containers {
        debug_assert!(
            !matches!(instance.state, InstanceState::Running { .. }),
            "no container runs when containers are removed"
        );
        draft.start(Operation::Remove { container: instance.name.clone(), id: instance.id.clone() });
    }
    if observed.containers.is_empty() {
        for sandbox in &observed.sandboxes {
            draft.start(Operation::RemoveSandbox { sandbox: sandbox.id.clone() });
        }
    }
}
