//! Hollow nodes: Node objects with renewed leases, heartbeating statuses, and no agent.
//!
//! - [`Shape`] is what the nodes look like, [`objects`] turns it into API objects.
//! - [`fleet`] creates them, keeps them alive at a [`Pace`], and deletes them.
//! - [`follow`] is a watch that never misses a change and survives an API server that is down for a while.
//! - [`flip`] sets a condition on nodes at a rate, and measures with a monotonic clock how long the node's taint outlives it.
//!
//! The `hollow` binary has a verb for each; `tests/bed hollow` runs it beside a control plane.

pub mod fleet;
pub mod flip;
pub mod follow;
pub mod objects;
pub mod percentiles;

mod clock;
mod shape;

pub use self::shape::{Pace, Shape, parse_taint};
