//! Linux primitives that more than one crate needs.
//!
//! - [`beneath`] opens files in directories that pods may be able to write to: no link is followed, and nothing blocks.

pub mod beneath;
pub mod capabilities;
pub mod cgroup;
pub mod devices_v2;
pub mod mount;
pub mod null;
pub mod pidfd;
pub mod place;
pub mod process;
pub mod seccomp;
pub mod userns;
