//! A node of a cluster: what lies between the agent and an API server.
//!
//! ```text
//! API server --watch--> pods: what the API server has of this node's pods --> Feed --> agent
//!     ^                   '-- the copy of each status, compared before anything is written
//!     |
//!     +--watch--> carry: config maps and secrets that these pods refer to --> ObjectStore --> host
//!     +--- deliver: status patches and deletions, a bounded number in flight <-- Publisher <-- agent
//!     +--- events: one at a time, when there is nothing else to do           <--'
//!     '--- node: registration, status, lease
//! ```
//!
//! - [`pods`]: the pods of this node as the API server has them. Pure.
//! - [`patch`]: from a status to the patch that makes the API server's copy equal to it, or to none. Pure.
//! - [`outbox`]: which request is made next, and what comes of its answer. Pure.
//! - [`node`]: the Node object: registration, what of its status is reported when, the lease.
//! - [`carry`]: what pods refer to: config maps and secrets, watched one by one.
//! - [`Cluster`]: all of it as one future over one [`Api`](keelet_api::Api), which a simulation can freeze between two steps. It spawns no task.
//!
//! The state has one owner, a mutex that is never held over an await. The agent's side ([`ClusterPublisher`]) only ever puts
//! something into it and notifies the connection: an API server that is slow or away delays no pod.

mod carry;
mod events;
pub mod node;
pub mod outbox;
pub mod patch;
pub mod pods;
mod publisher;
mod run;

pub use self::{
    carry::Carried,
    node::{NodeView, Registration},
    publisher::ClusterPublisher,
    run::{Cluster, Settings},
};
