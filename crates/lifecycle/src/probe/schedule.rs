//! When the next attempt is due (PROBE-4, CON-8).

use std::time::Duration;

use keelet_pod::{Probe, ProbeKind};

use super::{Eager, ProbeMemory};
use crate::time::{Moment, millis};

/// The first liveness attempt is at most this long after the start, whatever the period.
const LONGEST_LIVENESS_HEAD_START: Duration = Duration::from_secs(10);

/// After an agent start, kept probes are spread over at most this long.
const LONGEST_SPREAD: Duration = Duration::from_secs(1);

/// When the first attempt for an instance is due.
///
/// `started` is the container's start, `startup_passed` the time at which its startup probe succeeded, if it has one.
/// Readiness is probed right after that. Liveness without an initial delay is probed one period later: the kubelet's
/// first attempt is anywhere within that period, so no pod relies on an earlier one, and a slow second during startup
/// must not kill a container.
pub(crate) fn first_due(kind: ProbeKind, probe: &Probe, started: Moment, startup_passed: Option<Moment>) -> Moment {
    let after_delay = started.plus(probe.initial_delay);
    let head_start = probe.period.min(LONGEST_LIVENESS_HEAD_START);
    match (kind, startup_passed) {
        (ProbeKind::Startup, _) | (ProbeKind::Readiness, None) => after_delay,
        (ProbeKind::Readiness, Some(passed)) => after_delay.later(passed),
        (ProbeKind::Liveness, None) if probe.initial_delay.is_zero() => started.plus(head_start),
        (ProbeKind::Liveness, None) => after_delay,
        (ProbeKind::Liveness, Some(passed)) => after_delay.later(passed.plus(head_start)),
    }
}

/// When the attempt after one that was due at `due` and ended at `now` is due: on the same grid, in the future.
pub(crate) fn after_attempt(probe: &Probe, due: Moment, now: Moment) -> Moment {
    let period = millis(probe.period).max(1);
    let elapsed = millis(now.since(&due));
    due.plus(Duration::from_millis((elapsed / period + 1) * period))
}

/// Carries the state over an agent restart: the verdict is carried, the streak only if it is fresh, and the next
/// attempt is due at once, spread by its former phase.
pub(crate) fn after_restart(memory: &mut ProbeMemory, probe: &Probe, now: Moment) {
    memory.verdict.carry();
    // A probe that has not passed has its first attempt under this agent now, and eager ones after it.
    if memory.eager.due().is_some() {
        memory.eager = Eager::NotYet;
    }
    memory.tries = 0;
    // The previous agent was late, not this one.
    memory.late_since = None;
    let stale = 2 * probe.period + probe.timeout;
    if memory.streak.is_some_and(|streak| now.since(&streak.last) >= stale) {
        memory.streak = None;
    }
    // Attempts that could not be made have their own streak, with its own age.
    if memory.last.as_ref().is_none_or(|last| now.since(&last.at) >= stale) {
        memory.errors = 0;
    }
    if let Some(due) = memory.due {
        let window = millis(probe.period.min(LONGEST_SPREAD)).max(1);
        // The phase within the window keeps probes apart that were apart before.
        let phase =
            u64::try_from((due.boot_ms - now.boot_ms).rem_euclid(i64::try_from(window).unwrap_or(1))).unwrap_or(0);
        // An initial delay that is not over is not shortened.
        let long_ahead = due.since(&now) >= Duration::from_millis(window) && memory.last.is_none();
        if !long_ahead {
            memory.due = Some(now.plus(Duration::from_millis(phase)));
            memory.unscheduled = true;
        }
    }
}
