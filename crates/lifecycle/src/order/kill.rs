//! Stopping one container: hook, order, signal, within its grace period (TERM-3, PROC-4).

use std::time::Duration;

use crate::{
    draft::Draft,
    evidence::HookProgress,
    observed::Instance,
    operation::{KillReason, OpKey, Operation},
};

/// The shortest time between the stop signal and SIGKILL.
const SHORTEST_STOP: Duration = Duration::from_secs(2);

/// Whether a container may get the stop signal now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It may.
    Now,
    /// Other containers stop first, as long as the grace period lasts.
    Later,
}

/// Stops a container at once.
pub(crate) fn kill(draft: &mut Draft<'_>, instance: &Instance, reason: KillReason, grace: Duration) {
    draft.mark_killed(&instance.name, &instance.id, reason, grace);
    advance(draft, instance, reason, grace, Turn::Now);
}

/// Does the next step of a marked kill, or of a kill of a container without evidence.
pub(crate) fn advance(draft: &mut Draft<'_>, instance: &Instance, reason: KillReason, grace: Duration, turn: Turn) {
    let (now, container, id) = (draft.now, instance.name.clone(), instance.id.clone());
    let kill = draft
        .evidence
        .volatile
        .instances
        .get(&container)
        .filter(|remembered| remembered.id == id)
        .and_then(|remembered| remembered.kill.clone());
    let Some(kill) = kill else {
        // A container without evidence (unknown to the spec, or abandoned) has neither a hook nor a place in the order.
        draft.start(Operation::Stop { container, id, timeout: grace.max(SHORTEST_STOP), reason });
        return;
    };
    let has_hook = draft.pod.container(&container).is_some_and(|c| c.pre_stop.is_some());
    let deadline = kill.since.plus(kill.grace);
    let expired = now.has_reached(&deadline);
    if has_hook && kill.pre_stop == HookProgress::Due && !expired {
        draft.wake(deadline);
        let timeout = deadline.since(&now);
        draft.start(Operation::PreStop { container, id, timeout });
        return;
    }
    draft.cancel(|operation| matches!(operation, Operation::PreStop { id: hooked, .. } if *hooked == id));
    if turn == Turn::Later && !expired {
        draft.wake(deadline);
        return;
    }
    let elapsed = Duration::from_secs(now.since(&kill.since).as_secs());
    let timeout = kill.grace.saturating_sub(elapsed).max(SHORTEST_STOP);
    shorten(draft, &id, timeout);
    draft.start(Operation::Stop { container, id, timeout, reason: kill.reason });
}

/// Cancels a running stop that would last longer than it may now, to start it again with less time.
pub(crate) fn shorten(draft: &mut Draft<'_>, id: &str, timeout: Duration) {
    let Some(pending) = draft.pending(&OpKey::Stop(id.to_owned())) else { return };
    let Operation::Stop { timeout: planned, .. } = pending.operation else { return };
    let left = planned.saturating_sub(draft.now.since(&pending.since));
    // A difference below a second is rounding, not a change of the grace period.
    if left > timeout + Duration::from_secs(1) {
        draft.cancel(|operation| matches!(operation, Operation::Stop { id: stopped, .. } if stopped == id));
    }
}
