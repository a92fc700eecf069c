//! What the tests against a real containerd have in common.
//!
//! `make e2e` gives every test a containerd of its own (see `bed`) and passes its socket in the environment. The tests
//! are ignored by default, so `cargo test` needs no containerd.
//!
//! [`Bed`] is that containerd and a directory to work in; [`Node`] is an agent on it.

mod bed;

pub use self::bed::Bed;
pub use keelet_harness::{Node, Seen, eventually};
