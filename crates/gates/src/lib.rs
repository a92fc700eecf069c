//! Node readiness gates (KEP-5233): taints that keep a node out of scheduling until its components report ready.
//!
//! A node is registered with the taint `readiness.k8s.io/CNIReady:NoSchedule`. When a reporter sets its condition `CNIReady` to True, the
//! controller removes the taint. It works in any cluster with any kubelet, and needs no objects of its own; `NodeReadinessRule`
//! objects of the node-readiness-controller are honoured where there are some.
//!
//! Pure, from what is known to what has to be done:
//!
//! - [`node`]: what of a Node object is kept, read directly from the JSON of the API. [`gate`]: which taints are gates. [`rule`]: rules.
//!   [`record`]: what the controller writes down on a node.
//! - [`decide`]: `decide(node, rules, settings, room, now)`: a verdict with its reason for every gate, and one patch for the node.
//! - [`election`]: who leads, from the lease, the identity and the time.
//! - [`engine`]: which node is looked at when, and what came of a patch. It is the controller without connections and clocks.
//! - [`words`]: the one place that makes sentences. [`settings`]: what a person chooses.
//!
//! With the world:
//!
//! - [`api`]: requests through one `kube::Client`, each with a deadline; list and watch. [`clock`]: the wall clock, a door.
//! - [`controller`]: all of it as one future, which a simulation can freeze between two steps. [`metrics`]: numbers.
//! - [`process`]: the controller with the check of its permissions and with `/healthz`, `/readyz` and `/metrics`.
//!
//! The state is owned by one place, the engine, inside of one task; a follower has the same state and decides nothing.

pub mod clock;
pub mod controller;
pub mod decide;
pub mod election;
pub mod engine;
pub mod gate;
pub mod metrics;
pub mod node;
pub mod process;
pub mod record;
pub mod rule;
pub mod settings;
#[cfg(test)]
mod testing;
pub mod words;

pub use keelet_api as api;
