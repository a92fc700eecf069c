//! The rules: what a pod needs next, what its status is, and why. Pure.
//!
//! One function, [`Rules::plan`], takes a validated [`keelet_pod::Pod`], a dated observation of it ([`Observed`]), its
//! evidence ([`Evidence`]) and the time ([`Now`]), and returns a [`Plan`]: operations to start and to cancel, the pod's
//! status with its reasons, the evidence to record, and when to plan again. Nothing in here reads a clock, a disk or a
//! socket, so a restarted agent decides exactly what the old one would have decided, and a simulator can compare the
//! two.
//!
//! A plan is made in three steps, each a module:
//!
//! - [`absorb`] folds the observation into the evidence: instances that started and exited, operations that finished, a
//!   new run of the agent. `probe` turns single probe results into verdicts.
//! - [`order`] and [`restart`] decide what has to happen: sandbox, init containers, sidecars, regular containers,
//!   termination; policy, exit-code rules, backoff, and the restart of all containers.
//! - [`status`] computes the result: container states, phase, conditions, each with the evidence behind it.
//!
//! [`node`] does for the node itself what these do for pods: probes of its components, and the conditions that follow from them.
//!
//! The caller owns the evidence. It records what a plan returns before it acts on it, and passes it to the next plan.

mod absorb;
mod draft;
pub mod evidence;
pub mod journal;
pub mod node;
pub mod observed;
pub mod operation;
mod order;
mod plan;
pub mod probe;
pub mod restart;
mod rules;
pub mod status;
pub mod sysctls;
mod time;

pub use self::{
    evidence::Evidence,
    observed::Observed,
    plan::{Because, Event, Plan, ProbeRecord, Severity, Stage, Subject, Why},
    rules::Rules,
    time::{BadBootId, BootId, Moment, Now, Wall},
};

#[cfg(test)]
mod tests;
