//! Order: what may start, what has to stop, and what waits for what.

mod kill;
pub(crate) mod maintain;
mod probing;
mod sandbox;
mod startup;
mod termination;

use std::time::Duration;

pub(crate) use self::{
    kill::shorten,
    probing::{has_started, probes},
    sandbox::{SandboxView, view},
    termination::{ended, gone},
};
use crate::{
    draft::Draft,
    evidence::{Admission, Ending, EndingCause, GateHold},
    observed::{Instance, InstanceState, PendingGate},
    plan::Severity,
    restart::{self, RestartAllRule},
};

/// The shortest grace period of a pod (TERM-2).
const SHORTEST_GRACE: Duration = Duration::from_secs(1);

/// Decides once whether the pod may run here (RALL-29, API-29, NODE-5).
pub(crate) fn admit(draft: &mut Draft<'_>) {
    if draft.evidence.durable.admission != Admission::Undecided {
        return;
    }
    let runs_here = draft.evidence.durable.containers.values().any(|record| record.has_lived());
    let Some((reason, why)) = objection(draft).filter(|_| !runs_here) else {
        draft.evidence.durable.admission = Admission::Admitted;
        return;
    };
    let message = format!("Pod was rejected: {why}");
    draft.event(None, reason, Severity::Warning, message.clone());
    draft.evidence.durable.admission = Admission::Rejected { reason: reason.to_owned(), message };
    end(draft, EndingCause::Rejected);
}

/// Why this node refuses the pod: a reason and a message (API-21, API-29, NODE-5, CLU-20).
fn objection(draft: &Draft<'_>) -> Option<(&'static str, String)> {
    if draft.rules.restart_all == RestartAllRule::Ignored && draft.pod.has_restart_all_rule() {
        let why = "it asks for the restart rule action RestartAllContainers, and the feature gate \
                   RestartAllContainersOnContainerExits is off on this node";
        return Some(("PodFeatureUnsupported", why.to_owned()));
    }
    if let Some(forbidden) = draft.rules.sysctls.forbidden(draft.pod) {
        return Some(("SysctlForbidden", format!("forbidden sysctl: {forbidden}")));
    }
    if let Some(why) = keelet_pod::impossible_volume(draft.pod) {
        return Some(("UnsupportedVolume", why));
    }
    draft.observed.objection.as_ref().map(|objection| (objection.reason, objection.message.clone()))
}

/// Decides whether readiness gates of the node hold the pod back: those that it does not tolerate, until they open, and only while nothing of
/// it has started in this boot. A pod that runs is never stopped by a gate.
pub(crate) fn hold(draft: &mut Draft<'_>) {
    let (now, gates) = (draft.now, &draft.observed.pending_gates);
    // What is left of an earlier boot is neither running nor ready.
    let runs = |instance: &Instance| matches!(instance.state, InstanceState::Running { .. });
    let has_begun =
        draft.observed.containers.iter().any(runs) || draft.observed.sandboxes.iter().any(|sandbox| sandbox.ready);
    let hold = draft.evidence.volatile.gate_hold;
    let next = match hold {
        GateHold::Released => return,
        GateHold::Undecided | GateHold::Held { .. } if gates.is_empty() || has_begun => GateHold::Released,
        GateHold::Undecided => GateHold::Held { since: now },
        GateHold::Held { .. } => return,
    };
    draft.evidence.volatile.gate_hold = next;
    match (hold, next) {
        (_, GateHold::Held { .. }) => {
            let message = held_by(gates);
            draft.event(None, GATE_PENDING, Severity::Warning, message);
        }
        (GateHold::Held { .. }, GateHold::Released) => {
            let message = "The readiness gates of the node that held the pod back have passed".to_owned();
            draft.event(None, "NodeGatePassed", Severity::Normal, message);
        }
        _ => {}
    }
}

/// Why a pod is held back: the reason of its containers' waiting states.
pub(crate) const GATE_PENDING: &str = "NodeGatePending";

/// The gates that hold a pod back, and what each of them waits for.
pub(crate) fn held_by(gates: &[PendingGate]) -> String {
    let one = |gate: &PendingGate| format!("{}: {}", gate.taint, gate.waits_for);
    let gates: Vec<String> = gates.iter().map(one).collect();
    format!("the node has a readiness gate that the pod does not tolerate: {}", gates.join("; "))
}

/// Absorbs a deletion, and a grace period that has shrunk since.
pub(crate) fn end_if_asked(draft: &mut Draft<'_>) {
    let Some(deletion) = &draft.observed.deletion else { return };
    let grace = deletion.grace.max(SHORTEST_GRACE);
    let now = draft.now;
    match &mut draft.evidence.durable.ending {
        Some(ending) => {
            ending.deleted = true;
            ending.grace = ending.grace.min(now.since(&ending.since) + grace);
        }
        none => *none = Some(Ending { cause: EndingCause::Deleted, since: now, grace, deleted: true }),
    }
}

/// A pod with a terminal phase that another client wrote is ending (STAT-20).
pub(crate) fn end_if_final(draft: &mut Draft<'_>) {
    if draft.evidence.durable.published.as_ref().is_some_and(|status| status.phase.is_terminal()) {
        end(draft, EndingCause::Finished);
    }
}

/// Does what the pod needs next.
pub(crate) fn proceed(draft: &mut Draft<'_>) {
    if draft.evidence.durable.ending.is_none() {
        if is_held(draft) {
            return;
        }
        if !restart::release(draft) {
            startup::ephemeral_containers(draft);
            return;
        }
        startup::proceed(draft);
    }
    if draft.evidence.durable.ending.is_some() {
        termination::proceed(draft);
    }
}

/// Whether readiness gates of the node hold the pod back.
pub(crate) fn is_held(draft: &Draft<'_>) -> bool {
    matches!(draft.evidence.volatile.gate_hold, GateHold::Held { .. }) && draft.evidence.durable.ending.is_none()
}

/// The pod is ending, permanently.
fn end(draft: &mut Draft<'_>, cause: EndingCause) {
    let (since, grace) = (draft.now, draft.pod.termination_grace.max(SHORTEST_GRACE));
    draft.evidence.durable.ending.get_or_insert(Ending { cause, since, grace, deleted: false });
}
