//! Which changes of volatile evidence may wait.
//!
//! Evidence is recorded before it is acted upon, so a change that could influence a decision is written at once. Most
//! changes are not of that kind: a probe that passes again decides nothing. Such a change may wait for up to a second,
//! so a pod with many probes rewrites its file once a second at most. An agent that dies within that second loses only
//! the knowledge that passing probes kept passing, as if it had died one second earlier.
//!
//! The rule lists what may wait. Everything else, including fields of a later version, is decisive:
//!
//! - a probe attempt in progress: it dies with the agent, and its sequence number is of no use to the next one; it is
//!   never written on its own;
//! - when a probe was last tried, with what outcome, and when it is due again;
//! - the run of passing results of a probe whose verdict is "passed" already.
//!
//! A failing result is never quiet: it begins or lengthens a failing run. The probe history follows the same rule,
//! but more slowly: every ten seconds while probes pass, at once with whatever is decisive.

use keelet_lifecycle::{
    evidence::{Life, Volatile},
    operation::Operation,
    probe::ProbeMemory,
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

/// The urgency of the change from `before` to `after`.
pub(crate) fn change(before: &Volatile, after: &Volatile) -> Change {
    if before == after {
        return Change::None;
    }
    let [mut before, mut after] = [before, after].map(without_tries);
    if before == after {
        return Change::None;
    }
    for volatile in [&mut before, &mut after] {
        volatile.lives.values_mut().for_each(|life| keep_what_decides(life));
    }
    if before == after { Change::Quiet } else { Change::Decisive }
}

fn without_tries(volatile: &Volatile) -> Volatile {
    let mut volatile = volatile.clone();
    volatile.pending.retain(|pending| !matches!(pending.operation, Operation::Probe { .. }));
    // An operation of another kind takes a sequence number too, but is itself among the pending ones.
    volatile.next_operation = 0;
    volatile
}

fn keep_what_decides(life: &mut Life) {
    for memory in [&mut life.startup, &mut life.readiness, &mut life.liveness] {
        let ProbeMemory { verdict, run, due, last, late_since, .. } = memory;
        *due = None;
        *last = None;
        *late_since = None;
        if verdict.passed() == Some(true) {
            run.take_if(|run| run.passed);
        }
    }
}
