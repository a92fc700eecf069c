//! Nodes for tests with real containers.
//!
//! - [`Node`] is a directory of manifests, an agent process that a test may kill and start again, and what can be seen of
//!   its pods. It runs on a containerd or on the embedded runtime ([`Runs`]).
//! - [`Seen`] is a pod as the ledger has it beside the pod as the runtime has it. On the embedded runtime that second
//!   look is at files and processes, not at what the runtime says of itself.
//! - [`bed`] gives a test a machine of its own: private mounts, network, processes and cgroups.
//! - [`Actor`] is a container that does what a test tells it while it runs, and writes a diary.
//! - [`Remains`] is what pods could leave behind on such a machine.

pub mod bed;

mod actor;
mod diary;
mod node;
mod patience;
mod processes;
mod reboot;
mod remains;
mod runtime;
mod seen;

pub use self::{
    actor::{Actor, manifest},
    node::{Node, Place},
    patience::eventually,
    remains::Remains,
    runtime::{Container, Runs, Sandbox},
    seen::Seen,
};
