//! The assembly: from directories, a runtime and settings to an agent that runs pods and answers requests.
//!
//! ```text
//! Paths --Claim--> directories that no other process uses
//!                      |
//!       ChosenRuntime (a socket, or the embedded engine in these directories)
//!                      |
//!                  Assembly: clock, facts, settings, layout of files
//!                      | start
//!                  Assembled: the agent, and what its servers answer from
//!                      | Servers
//!                  a socket for root, a loopback port for health and metrics; in a cluster, HTTPS for clients on the network
//! ```
//!
//! `keelet agent` and `keelet run` differ in what they put in: [`Run`] is the agent of `keelet run`, with directories of its own and pods
//! that were named. What runs that were killed have left is found by [`leftovers`].

mod assembly;
mod claim;
mod cluster;
mod embedded;
mod https;
pub mod leftovers;
mod paths;
mod run;
mod service_manager;
mod thread;

pub use self::{
    assembly::{Assembled, Assembly, AssemblyError, Servers, agent_socket},
    claim::{Claim, ClaimError, Extra, Holder, Record, Refusal},
    cluster::{ClusterThread, JoinError},
    embedded::{ChosenRuntime, image_name, prepare_to_pull, pull_progress, settings_in},
    https::{HttpsSettings, HttpsThread},
    paths::Paths,
    run::{Place, PlaceError, Run},
    service_manager::ServiceManager,
};
