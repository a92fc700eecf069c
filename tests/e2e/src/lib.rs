//! What the tests against a real containerd have in common.
//!
//! `make e2e` gives every test a containerd of its own (see `bed`) and tells where it is in the environment. The
//! tests are ignored unless asked for, so `cargo test` needs no containerd.
//!
//! [`Bed`] is that containerd and a directory to work in; [`Node`] is an agent on it.

mod bed;

pub use self::bed::Bed;
pub use keelet_harness::{Node, Seen, eventually};
