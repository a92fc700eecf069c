//! The sandbox: one that is ready, newest, alone, and in the right network (STAT-25).

use keelet_pod::Pod;

use super::kill;
use crate::{
    draft::Draft,
    observed::{Observed, Sandbox},
    operation::{KillReason, OpKey, Operation},
    plan::Severity,
};

/// The state of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SandboxView<'a> {
    /// This one is usable.
    Usable(&'a Sandbox),
    /// None is usable.
    Unusable {
        /// Why.
        why: &'static str,
        /// What is missing in the newest one, where the runtime reports it.
        lost: Option<&'a str>,
    },
}

/// The state of the sandbox.
pub(crate) fn view<'a>(pod: &Pod, observed: &'a Observed) -> SandboxView<'a> {
    let newest = observed.sandboxes.iter().max_by_key(|sandbox| (sandbox.attempt, sandbox.created_at));
    let ready = observed.sandboxes.iter().filter(|sandbox| sandbox.ready).count();
    let unusable = |why| SandboxView::Unusable { why, lost: None };
    match newest {
        None => unusable("no sandbox has been created"),
        Some(_) if ready > 1 => unusable("several sandboxes are ready"),
        Some(sandbox) if !sandbox.ready => {
            SandboxView::Unusable { why: "the newest sandbox is not ready", lost: sandbox.lost.as_deref() }
        }
        Some(sandbox) if sandbox.host_network != pod.host_network => {
            unusable("the sandbox is not in the network that the spec asks for")
        }
        Some(sandbox) if !sandbox.host_network && sandbox.ips.is_empty() => unusable("the sandbox has no address"),
        Some(sandbox) => SandboxView::Usable(sandbox),
    }
}

/// Removes unusable sandboxes, then creates a new one.
pub(crate) fn rebuild(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    // The cause of its lost files may have removed the pod's volumes too. Existing ones stay as they are.
    if observed.sandboxes.iter().any(|sandbox| sandbox.lost.is_some()) {
        draft.evidence.volatile.volumes_ready = false;
    }
    let mut busy = false;
    for instance in observed.containers.iter().filter(|instance| instance.may_run()) {
        let grace = draft.pod.termination_grace;
        kill::kill(draft, instance, KillReason::SandboxGone, grace);
        busy = true;
    }
    if busy || draft.launches_in_flight() {
        return;
    }
    for sandbox in &observed.sandboxes {
        let sandbox_id = sandbox.id.clone();
        draft.start(if sandbox.ready {
            Operation::StopSandbox { sandbox: sandbox_id }
        } else {
            // The evidence about its containers and their logs stay.
            Operation::RemoveSandbox { sandbox: sandbox_id }
        });
        busy = true;
    }
    if busy {
        return;
    }
    if !draft.evidence.volatile.volumes_ready {
        draft.start(Operation::PrepareVolumes);
        return;
    }
    let attempt = draft.evidence.durable.sandbox_attempts;
    let failed_before = draft.evidence.volatile.retries.iter().any(|retry| retry.key == OpKey::NewSandbox);
    if draft.start(Operation::CreateSandbox { attempt }) {
        if attempt > 0 && !failed_before {
            let message = "Pod sandbox changed, it is created again".to_owned();
            draft.event(None, "SandboxChanged", Severity::Normal, message);
        }
        draft.evidence.durable.sandbox_attempts = attempt.saturating_add(1);
    }
}
