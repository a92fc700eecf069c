//! What the tests against a real containerd have in common.
//!
//! `make e2e` gives every test a containerd of its own (see `bed`) and tells where it is in the environment. The
//! tests are ignored unless asked for, so `cargo test` needs no containerd.
//!
//! - [`Bed`] is that containerd and a directory to work in.
//! - [`Node`] is an agent on it: a directory of manifests, an agent process that a test may kill and start again, and
//!   what can be seen of its pods in the ledger and in the runtime.

mod bed;
mod node;

pub use self::{
    bed::{Bed, eventually},
    node::{Node, Seen},
};
