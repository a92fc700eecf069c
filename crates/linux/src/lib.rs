//! Linux primitives: what the kernel offers and the standard library does not.
//!
//! Nothing here knows of pods, of a shim or of the runtime; each module wraps one kernel interface.
//!
//! - [`capabilities`] and [`seccomp`] decide what a process may do and confine the calling one; [`device_filter`] does the same for
//!   the devices of a cgroup.
//! - [`cgroup`] finds, joins, limits, kills and removes cgroups of both versions.
//! - [`pidfd`] refers to processes in a way that survives PID reuse; [`ProcessRef`] is the same on disk.
//! - [`process`] forks, reaps and resets what a child inherits; [`oom`] sets the OOM score.
//! - [`mount`] creates detached mounts; [`seal`] uses one for an executable that no container can write to.
//! - [`userns`] creates and enters user namespaces, and maps the owners of files on a mount.
//! - [`beneath`] and [`in_root`] open paths that a hostile process may swap meanwhile, by descriptors; [`private`] finds out whether
//!   another user could.
//! - [`kernel`] reads the version of the running kernel; [`null_device`] creates null devices that are not shared with the node.
//!
//! Unsafe code is in `sys` alone: system calls that have no safe wrapper, one function each.

pub mod beneath;
pub mod capabilities;
pub mod cgroup;
pub mod device_filter;
pub mod in_root;
pub mod kernel;
pub mod mount;
pub mod null_device;
pub mod oom;
pub mod pidfd;
pub mod private;
pub mod process;
mod process_ref;
pub mod seal;
pub mod seccomp;
#[expect(unsafe_code, reason = "the one module that makes system calls without a safe wrapper")]
mod sys;
pub mod userns;

use std::io;

pub use process_ref::{BootId, InvalidBootId, ProcessRef};

/// Whether an error says only that the node has run out of something: open files, memory. It says nothing about what was asked for, so
/// a caller must not conclude from it that a process or file is gone.
pub fn is_resource_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}
