//! The agent on its embedded runtime, with real containers. Each test has a machine of its own (`keelet_harness::bed`);
//! without root they are skipped.
//!
//! The scenarios are those that `crates/sim` plays in simulated time. Here they show that containers, processes, networks
//! and files behave as the simulation says. Nothing is asserted about how long something takes: only what happens, in which
//! order and how often.

use keelet_harness::{Node, bed};

mod agent_restart;
#[path = "../blocks/mod.rs"]
mod blocks;
mod commands;
mod containers;
mod directories;
mod disk;
mod examples;
mod host_port;
mod images;
mod long;
mod manifests;
mod memory;
mod network;
mod probes;
mod readme;
mod restart_all;
mod runtime;
mod users;
mod volumes;

/// Runs a test on a machine of its own.
fn on_a_node<T: AsyncFnOnce(&mut Node)>(test: T) {
    bed::run(env!("CARGO_BIN_EXE_keelet"), test);
}
