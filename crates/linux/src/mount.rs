//! Mounts that are in no mount namespace yet, and their attributes.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::CWD,
    mount::{OpenTreeFlags, open_tree},
};

use crate::sys::mount::{MountAttr, set_attributes as sys_set_attributes};

/// `MOUNT_ATTR_RDONLY`
pub const READ_ONLY: u64 = 1;
/// `MOUNT_ATTR_NOSUID`
pub const NO_SUID: u64 = 2;
/// `MOUNT_ATTR_NODEV`
pub const NO_DEV: u64 = 4;
/// `MOUNT_ATTR_NOEXEC`
pub const NO_EXEC: u64 = 8;
/// `MOUNT_ATTR_NOATIME`
pub const NO_ACCESS_TIMES: u64 = 0x10;
/// `MOUNT_ATTR_STRICTATIME`
pub const ALL_ACCESS_TIMES: u64 = 0x20;
/// `MOUNT_ATTR_NODIRATIME`
pub const NO_DIRECTORY_ACCESS_TIMES: u64 = 0x80;
/// `MOUNT_ATTR_NOSYMFOLLOW`
pub const NO_LINKS: u64 = 0x20_0000;
/// `MOUNT_ATTR_IDMAP`
const MAP_OWNERS: u64 = 0x10_0000;
/// `MOUNT_ATTR__ATIME`: the bits of one value. The kernel wants all of them cleared when some are set.
const ACCESS_TIMES: u64 = 0x70;

/// What is to be changed of a mount.
pub struct Attributes {
    /// Attributes to add to those that it has.
    pub set: u64,
    /// As for `mount(2)`; zero leaves it unchanged.
    pub propagation: u64,
    /// For all mounts below it as well.
    pub recursive: bool,
}

/// A directory or file as a detached mount, with the mounts below it if `recursive`.
pub fn detached(path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    flags.set(OpenTreeFlags::AT_RECURSIVE, recursive);
    Ok(open_tree(CWD, path, flags)?)
}

/// Changes a mount, which may be detached.
pub fn set_attributes(mount: BorrowedFd<'_>, wanted: &Attributes) -> io::Result<()> {
    let clear = if wanted.set & ACCESS_TIMES == 0 { 0 } else { ACCESS_TIMES };
    let attributes = MountAttr { set: wanted.set, clear, propagation: wanted.propagation, user_namespace: 0 };
    sys_set_attributes(mount, &attributes, wanted.recursive)
}

/// Maps the owners of files on a mount by a user namespace.
///
/// # Errors
///
/// `InvalidInput` also if the file system does not support ID-mapped mounts.
pub fn map_owners(mount: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let user_namespace = user_namespace.as_raw_fd().unsigned_abs().into();
    sys_set_attributes(mount, &MountAttr { set: MAP_OWNERS, user_namespace, ..MountAttr::default() }, false)
}
