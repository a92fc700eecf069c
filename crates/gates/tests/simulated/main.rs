//! The real controller under the real client, on a simulated API server in simulated time.

mod access;
mod leaders;
mod nodes;
mod random;
mod rules;
mod scale;

use keelet_sim_gates::{self as world, secs, simulate};
