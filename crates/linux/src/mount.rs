//! An executable that nobody who reaches it can write to.
//!
//! Until it becomes the container's command, a maker runs our own file inside the container, and a container can have
//! itself executed as `/proc/self/exe`. Whoever is root in there could then write to that file and own the node
//! (CVE-2019-5736). So the shim is started through a read-only mount of our file that is in no mount namespace: it costs no memory,
//! cannot be remounted, and opening it for writing fails whoever asks.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    mount::{OpenTreeFlags, open_tree},
};

/// `struct mount_attr`.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

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
const TRANSLATE_OWNERS: u64 = 0x10_0000;
/// The bits of one value: whoever sets some of them clears all before.
const ACCESS_TIMES: u64 = 0x70;

/// An executable, sealed. To be executed as `/proc/self/fd/<number>`.
pub fn sealed(path: &Path) -> io::Result<OwnedFd> {
    // A link of procfs cannot be cloned as a tree; what it leads to can.
    let file = fs::canonicalize(path)?;
    let tree = detached(&file, false)?;
    set_attributes(tree.as_fd(), &Attributes { set: READ_ONLY, propagation: 0, recursive: false })?;
    // The tree is a path only; opened through procfs, the file keeps the mount.
    let through = format!("/proc/self/fd/{}", tree.as_raw_fd());
    Ok(openat(CWD, through, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A directory or file as a mount of its own, in no place yet; with what is mounted below it, if that is asked for.
pub fn detached(path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    flags.set(OpenTreeFlags::AT_RECURSIVE, recursive);
    Ok(open_tree(CWD, path, flags)?)
}

/// What is to be changed of a mount.
pub struct Attributes {
    /// What it is to be besides what it is.
    pub set: u64,
    /// As for `mount(2)`; zero leaves it.
    pub propagation: u64,
    /// For all below it as well.
    pub recursive: bool,
}

/// Changes a mount that need not be in a mount namespace yet.
pub fn set_attributes(tree: BorrowedFd<'_>, wanted: &Attributes) -> io::Result<()> {
    let clear = if wanted.set & ACCESS_TIMES == 0 { 0 } else { ACCESS_TIMES };
    let attributes = MountAttr { set: wanted.set, clear, propagation: wanted.propagation, user_namespace: 0 };
    const RECURSIVE: libc::c_int = 0x8000;
    change(tree, if wanted.recursive { RECURSIVE } else { 0 }, &attributes)
}

/// Has a mount show the owners of files as a user namespace knows them.
pub fn set_users(tree: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    let user_namespace = users.as_raw_fd().unsigned_abs().into();
    change(tree, 0, &MountAttr { set: TRANSLATE_OWNERS, clear: 0, propagation: 0, user_namespace })
}

fn change(tree: BorrowedFd<'_>, flags: libc::c_int, attributes: &MountAttr) -> io::Result<()> {
    #[expect(unsafe_code, reason = "the kernel reads a structure of the size it is given")]
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            std::ptr::from_ref(attributes),
            size_of::<MountAttr>(),
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A descriptor that a parent left open at this number.
pub fn inherited(number: i32) -> OwnedFd {
    #[expect(unsafe_code, reason = "the server passes the socket at this number, and nobody else uses it")]
    unsafe {
        OwnedFd::from_raw_fd(number)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, OpenOptions},
        io::ErrorKind,
        os::fd::AsRawFd,
        os::unix::fs::PermissionsExt,
        process::Command,
    };

    use super::sealed;

    #[test]
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    fn what_is_sealed_can_be_run_and_not_written() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("program");
        fs::copy("/bin/true", &path).expect("copied");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
        let file = sealed(&path).expect("sealed");
        let through = format!("/proc/self/fd/{}", file.as_raw_fd());
        let error = OpenOptions::new().write(true).open(&through).expect_err("must not open");
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
        // Without the seal it could be written.
        OpenOptions::new().write(true).open(&path).expect("the file itself is not read-only");
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("inherited");
        assert!(Command::new(&through).status().expect("runs").success());
    }
}
