//! Thresholds: from single results to a verdict (PROBE-19..24).

use keelet_pod::{Probe, ProbeKind};

use super::{Attempt, ProbeMemory, Streak, Verdict};
use crate::{
    operation::{Outcome, ProbeReport},
    time::Moment,
};

/// Attempts of one round, if none of them can be made.
const TRIES_PER_ROUND: u32 = 3;

/// The effect of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The verdict is unchanged.
    None,
    /// The verdict changed.
    Changed,
    /// The attempt could not be made and is to be retried at once.
    TryAgain,
}

/// Absorbs one result.
pub(crate) fn take(
    memory: &mut ProbeMemory,
    kind: ProbeKind,
    probe: &Probe,
    report: &ProbeReport,
    at: Moment,
) -> Effect {
    memory.last = Some(Attempt { at, outcome: report.outcome, latency: report.latency, output: report.output.clone() });
    let effect = match report.outcome {
        Outcome::Success | Outcome::Warning => count(memory, kind, probe, report, at, true),
        Outcome::Failure => count(memory, kind, probe, report, at, false),
        Outcome::Error => error(memory, kind, probe, report, at),
        // Neither says anything about the target; the next attempt begins a new round.
        Outcome::Late | Outcome::Cancelled => {
            memory.tries = 0;
            if report.outcome == Outcome::Late {
                memory.late_since.get_or_insert(memory.due.unwrap_or(at));
            }
            return Effect::None;
        }
    };
    memory.late_since = None;
    effect
}

fn count(
    memory: &mut ProbeMemory,
    kind: ProbeKind,
    probe: &Probe,
    report: &ProbeReport,
    at: Moment,
    passed: bool,
) -> Effect {
    memory.errors = 0;
    memory.tries = 0;
    let unscheduled = std::mem::take(&mut memory.unscheduled);
    let threshold = if passed { probe.success_threshold } else { probe.failure_threshold };
    let length = match memory.streak.filter(|streak| streak.passed == passed) {
        // An agent that restarts often probes more often than once in a period. That must not kill a container or make it unready
        // sooner.
        Some(streak) if unscheduled && !passed && at.since(&streak.last) < probe.period => return Effect::None,
        Some(streak) => streak.length.saturating_add(1),
        None => 1,
    };
    memory.streak = Some(Streak { passed, length, last: at });
    if length < threshold { Effect::None } else { decide(memory, kind, passed, length, &report.output, at) }
}

/// An attempt that could not be made says nothing about liveness, however often. But a container whose readiness or
/// startup probe cannot run must not stay undecided for ever: after as many rounds as the failure threshold it counts
/// as a failure.
fn error(memory: &mut ProbeMemory, kind: ProbeKind, probe: &Probe, report: &ProbeReport, at: Moment) -> Effect {
    memory.tries = memory.tries.saturating_add(1);
    if memory.tries < TRIES_PER_ROUND {
        return Effect::TryAgain;
    }
    memory.tries = 0;
    memory.errors = memory.errors.saturating_add(1);
    let rounds = memory.errors;
    if kind == ProbeKind::Liveness || rounds < probe.failure_threshold {
        return Effect::None;
    }
    // Earlier successes do not count towards the success threshold.
    memory.streak = None;
    decide(memory, kind, false, rounds, &report.output, at)
}

fn decide(memory: &mut ProbeMemory, kind: ProbeKind, passed: bool, streak: u32, output: &str, at: Moment) -> Effect {
    // A startup probe runs until its first verdict, and a container that is being killed is not probed any more.
    if kind == ProbeKind::Startup || (kind == ProbeKind::Liveness && !passed) {
        memory.on_hold = true;
        memory.streak = None;
    }
    let before = memory.verdict.passed();
    // The time of the first decision is the evidence for the status; later equal ones only confirm it.
    if before != Some(passed) || !matches!(memory.verdict, Verdict::Probed { .. }) {
        memory.verdict = Verdict::Probed { passed, at, streak, output: output.to_owned() };
    }
    if before == Some(passed) { Effect::None } else { Effect::Changed }
}
