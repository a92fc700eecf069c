//! What the tests against a real control plane have in common.
//!
//! `make e2e` runs every test binary here beside an etcd, kube-apiserver, kube-controller-manager and kube-scheduler of its own
//! (`tests/bed run`), one test after the other. The tests are ignored by default, so `cargo test` needs no control plane.
//!
//! - [`Cluster`] is that control plane: clients for any user, manifests, components that can be stopped, the [`audit`] log.
//! - [`until`] waits for a state of an object, by a watch. No test sleeps.
//! - [`Hollow`] is a fleet of nodes without an agent, kept alive until it is dropped.
//! - [`Process`] is a keelet that a test may freeze, kill and start again.
//! - [`Worker`] is a node of the cluster: directories of its own, and agents in them, one after the other.

pub mod audit;

mod bed;
mod hollow;
mod process;
mod wait;
mod worker;

pub use self::{
    bed::{Cluster, Identity},
    hollow::Hollow,
    process::{Process, http_get},
    wait::{gone, until},
    worker::{IMAGE, Worker, condition, is_ready, pods, probed_pod, ready_node},
};
