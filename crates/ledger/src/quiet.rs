//! Which changes of volatile evidence may wait.
//!
//! Evidence is recorded before it is acted upon, so a change that could influence a decision is written at once. Most
//! changes are not of that kind: a probe that passes again decides nothing. Such a change may wait for ten
//! seconds, so a pod with many probes hardly ever rewrites its file. An agent that dies meanwhile loses only the knowledge
//! that passing probes kept passing, and its successor decides the same without it.
//!
//! The rule lists what may wait. Everything else, including fields of a later version, is decisive:
//!
//! - a probe attempt in progress: it dies with the agent, and its sequence number is of no use to the next one; it is
//!   never written on its own;
//! - when a probe was last tried, with what outcome, and when it is due again;
//! - the run of passing results of a probe whose verdict is "passed" already.
//!
//! A failing result is never quiet: it begins or lengthens a failing run. The probe history follows the same rule.

use keelet_lifecycle::{
    evidence::{RunningInstance, Volatile},
    operation::{Operation, Pending},
    probe::{ProbeMemory, Streak},
};

/// The urgency of a change of volatile evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// Nothing to write.
    None,
    /// Passing probes kept passing: it may wait.
    Quiet,
    /// A decision could depend on it.
    Decisive,
}

/// The urgency of the change from `before` to `after`. Nothing is copied for it: every commit asks, and most commits are
/// made because a probe passed again.
pub(crate) fn change(before: &Volatile, after: &Volatile) -> Change {
    // All fields by name: one that is added has to be judged here.
    let Volatile {
        boot_id,
        agent_started,
        instances,
        launches,
        gate_hold,
        pending,
        retries,
        // An operation of another kind takes a sequence number too, but is itself among the pending ones.
        next_operation: _,
        volumes_ready,
        reset_due,
        restart_request,
        copy_unchecked,
    } = before;
    let same = *boot_id == after.boot_id
        && *agent_started == after.agent_started
        && *launches == after.launches
        && *gate_hold == after.gate_hold
        && without_tries(pending).eq(without_tries(&after.pending))
        && *retries == after.retries
        && *volumes_ready == after.volumes_ready
        && *reset_due == after.reset_due
        && *restart_request == after.restart_request
        && *copy_unchecked == after.copy_unchecked;
    if !same {
        return Change::Decisive;
    }
    if *instances == after.instances {
        return Change::None;
    }
    let decide_the_same = instances.len() == after.instances.len()
        && instances
            .iter()
            .zip(&after.instances)
            .all(|((name, before), (other, after))| name == other && instances_decide_the_same(before, after));
    if decide_the_same { Change::Quiet } else { Change::Decisive }
}

fn without_tries(pending: &[Pending]) -> impl Iterator<Item = &Pending> {
    pending.iter().filter(|pending| !matches!(pending.operation, Operation::Probe { .. }))
}

fn instances_decide_the_same(before: &RunningInstance, after: &RunningInstance) -> bool {
    let RunningInstance { id, started, startup, readiness, liveness, post_start, kill } = before;
    *id == after.id
        && *started == after.started
        && probes_decide_the_same(startup, &after.startup)
        && probes_decide_the_same(readiness, &after.readiness)
        && probes_decide_the_same(liveness, &after.liveness)
        && *post_start == after.post_start
        && *kill == after.kill
}

fn probes_decide_the_same(before: &ProbeMemory, after: &ProbeMemory) -> bool {
    let ProbeMemory {
        verdict,
        streak: _,
        errors,
        tries,
        due: _,
        unscheduled,
        eager: _,
        late_since: _,
        on_hold,
        last: _,
    } = before;
    *verdict == after.verdict
        && decisive_streak(before) == decisive_streak(after)
        && *errors == after.errors
        && *tries == after.tries
        && *unscheduled == after.unscheduled
        && *on_hold == after.on_hold
}

/// The run of results, unless it goes on confirming a verdict that has been reached.
fn decisive_streak(memory: &ProbeMemory) -> Option<Streak> {
    memory.streak.filter(|streak| !(streak.passed && memory.verdict.passed() == Some(true)))
}
