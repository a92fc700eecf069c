//! A simulated cluster to run the real gates controller in, and to break it in.
//!
//! Replicas of the controller of [`keelet_gates`] run unchanged, each under the real client, on the simulated API server of
//! [`keelet_sim_api`]. Time is tokio's paused time, there is one thread and one source of chance, so a seed replays a run.
//!
//! ```text
//! Replica (a process) --kube::Client--> Connection --faults--> SimApi <--- World: nodes, conditions, foreign taints
//!   killed, frozen, told to stop                                  |
//!                                                checker <--- every write of a controller to a node
//! ```
//!
//! - [`World`] is the way in: it holds the nodes, lets reporters write conditions, and starts replicas.
//! - [`watch_over`] judges every write of a controller to a node, the moment it is stored.
//! - [`random_run`] has several replicas, nodes that come and go, and random faults; then the faults stop, and every node must be as
//!   its conditions ask. `make sim` has many of them.

mod check;
mod random_run;
pub mod rules;
mod world;

use std::time::Duration;

use tokio::runtime::Builder;

pub use self::{
    check::{Watched, removes_gate, watch_over},
    random_run::{Failure, Report, random_run},
    world::{GATE, NOT_READY, Replica, World, basic, grants, options, tail, taints, user},
};

/// Runs a course of events in simulated time, on one thread.
///
/// # Panics
///
/// If tokio cannot make a runtime.
pub fn simulate<T>(course: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without threads").block_on(course)
}

/// So many seconds.
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
