//! Nodes for tests with real containers.
//!
//! - [`Node`] is a directory of manifests, an agent process that a test may kill and start again, and the observed state of
//!   its pods. It runs on a containerd or on the embedded runtime ([`Runs`]).
//! - [`Seen`] is a pod's state in the ledger beside its state in the runtime. On the embedded runtime the latter is read
//!   from files and processes, not from the runtime's own answers.
//! - [`bed`] gives each test its own machine: private mounts, network, PIDs and cgroups.
//! - [`Actor`] is a container that a test controls while it runs, and that writes a diary.
//! - [`Remains`] lists resources that pods could leave behind on such a machine.

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
    patience::{eventually, patience},
    remains::Remains,
    runtime::{Container, Runs, Sandbox},
    seen::Seen,
};
