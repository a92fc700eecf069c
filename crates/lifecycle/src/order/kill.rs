//! Stopping one container: hook, turn, signal, within its grace period (TERM-3, PROC-4).

use std::time::Duration;

use crate::{
    draft::Draft,
    evidence::HookProgress,
    observed::Instance,
    operation::{KillReason, OpKey, Operation},
};

/// The shortest time between the stop signal and SIGKILL.
const SHORTEST_STOP: Duration = Duration::from_secs(2);

/// Whether it is a container's turn to get the stop signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is.
    Now,
    /// Others go first, as long as the grace period lasts.
    Later,
}

/// Has a container stopped, at once.
pub(crate) fn kill(draft: &mut Draft<'_>, instance: &Instance, reason: KillReason, grace: Duration) {
    draft.mark_killed(&instance.name, &instance.id, reason, grace);
    advance(draft, instance, reason, grace, Turn::Now);
}

/// Does the next step of a kill that was marked, or of one nobody remembers the life of.
pub(crate) fn advance(draft: &mut Draft<'_>, instance: &Instance, reason: KillReason, grace: Duration, turn: Turn) {
    let (now, container, id) = (draft.now, instance.name.clone(), instance.id.clone());
    let kill =
        draft.evidence.volatile.lives.get(&container).filter(|life| life.id == id).and_then(|life| life.kill.clone());
    let Some(kill) = kill else {
        // Not a life we follow (unknown to the spec, or given up): there is no hook and no turn to wait for.
        draft.start(Operation::Stop { container, id, timeout: grace.max(SHORTEST_STOP), reason });
        return;
    };
    let has_hook = draft.pod.container(&container).is_some_and(|c| c.pre_stop.is_some());
    let deadline = kill.since.plus(kill.grace);
    let expired = now.has_reached(&deadline);
    if has_hook && kill.pre_stop == HookProgress::Owed && !expired {
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

/// A stop under way that would last longer than it now may is called off, to be started again with less time.
pub(crate) fn shorten(draft: &mut Draft<'_>, id: &str, timeout: Duration) {
    let Some(pending) = draft.pending(&OpKey::Stop(id.to_owned())) else { return };
    let Operation::Stop { timeout: planned, .. } = pending.operation else { return };
    let left = planned.saturating_sub(draft.now.since(&pending.since));
    // Less than a second is the rounding of elapsed time, not a change of mind.
    if left > timeout + Duration::from_secs(1) {
        draft.cancel(|operation| matches!(operation, Operation::Stop { id: stopped, .. } if stopped == id));
    }
}
