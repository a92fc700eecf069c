//! Evidence for people: why a status is as it is, and how it came to be so.
//!
//! What comes in is [`Known`]: a pod's evidence, the reasons of its newest status, the results of its probes, its
//! journal, and its spec. The ledger has all of it, so everything here works with the agent stopped. What goes out is
//! text, JSON and graphics:
//!
//! - [`why`] follows every part of a status down to what was observed: the exit, the probe attempts with their output
//!   and latency, the rule, the backoff, the request. [`why::check_chains`] says whether every chain gets there.
//! - [`node`] does the same for the conditions of the node.
//! - [`timeline`] draws a pod's history: conditions, one lane per container, probe attempts, exits, restarts, and the
//!   times at which no agent was there.
//! - [`simulation`] says what a simulated pod's probes and restart rules amount to.
//!
//! Pure: nothing here reads a clock or a file; `now` is an argument. Sentences about a pod are made in this crate,
//! and nowhere else.

mod known;
pub mod node;
mod sentence;
pub mod simulation;
pub mod timeline;
pub mod why;
mod words;

pub use self::{
    known::{Known, spec_in},
    sentence::{because_of_note, note_sentence},
    words::wrapped,
};

#[cfg(test)]
mod tests;
