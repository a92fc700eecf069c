//! Which changes of volatile evidence may wait.
//!
//! Evidence is recorded before it is acted upon, so a change that a decision could rest on is written at once. Most
//! changes are not of that kind: a probe that passes again, as it did before, decides nothing. Such a change may wait
//! for up to a second, so a pod with many probes rewrites its file once a second at most. Dying within that second
//! loses nothing but the knowledge that passing probes went on passing, which is what dying one second earlier would
//! have lost.
//!
//! The rule names what may wait. Everything else, fields of a later version included, is decisive:
//!
//! - a probe that is being tried: it dies with the agent, and its number is of no use to the next one; not worth a
//!   write at all;
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

/// What a change of volatile evidence is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// There is none worth a write.
    None,
    /// Passing probes went on passing: it may wait.
    Quiet,
    /// A decision could rest on it.
    Decisive,
}

/// What the change from `before` to `after` is worth.
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
    // An operation of another kind takes a number too, but is itself among the pending ones.
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
