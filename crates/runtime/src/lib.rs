//! The embedded container runtime: a CRI server over shims, images and networks.
//!
//! ```text
//! agent --in process--> Engine --+--> keelet-image   images and root file systems
//! crictl --socket-----> (CRI v1) +--> keelet-net     addresses, interfaces
//!                                +--> keelet-shim    one process per pod: containers, logs, exits
//! ```
//!
//! The server holds nothing that it could not find again. What was asked for is in a sandbox's directory before anything
//! is made, and what became of it is written down by the pod's shim; so a server that was killed is followed by one that
//! knows the same, and containers notice neither.
//!
//! | what | where |
//! | --- | --- |
//! | the calls of CRI | `service`, `image_service` |
//! | how far pulls have come | `pulls` |
//! | what is known, and finding it again | `engine`, `records`, `recover` |
//! | sandboxes, containers | `sandbox`, `container` |
//! | from a request to an OCI configuration | `spec` |
//! | shims: starting, asking, replacing | `shim`, `keeper` |
//! | commands, sessions | `exec`, `streams` |
//! | usage | `stats`, `update` |
//! | noticing what was removed by other programs | `audit` |

mod audit;
mod container;
mod engine;
mod events;
mod exec;
mod files;
mod image_service;
mod keeper;
mod pulls;
mod records;
mod recover;
mod remains;
mod sandbox;
mod security;
mod service;
mod settings;
mod shim;
mod spec;
mod stats;
mod streams;
mod update;
mod users;

pub use keelet_image::Image;
pub use keelet_net::OwnedBridge;

pub use self::{
    engine::{Engine, OpenError},
    pulls::Pulling,
    remains::{end_without_records, has_records, owned_bridges, pods_in, remove_idle_bridge, runs_in},
    settings::{OciRuntime, OciRuntimeError, PidsLimit, RootfsImages, Settings},
};
