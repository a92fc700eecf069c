//! User namespaces: IDs inside that have no privileges on the node.
//!
//! The pause process of a pod creates one ([`create`]) and enters it; containers and commands join it there. Files keep the owners they
//! have on disk: a container sees them through mounts that map owners ([`mapped`]).

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
};

use nix::{
    sched::{CloneFlags, setns, unshare},
    sys::wait::waitpid,
    unistd::Pid,
};
use rustix::{
    process::{Gid, Uid},
    thread,
};
use serde::{Deserialize, Serialize};

use crate::{kernel, mount, process::fork};

/// The first Linux that takes ID-mapped detached mounts as layers of an overlay.
const FIRST_LINUX: (u32, u32) = (6, 15);

/// How the IDs of a user namespace are mapped: from 0 on, to these ranges of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    /// User IDs.
    pub uids: IdRange,
    /// Group IDs.
    pub gids: IdRange,
}

/// IDs of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// The ID that 0 is mapped to.
    pub first: u32,
    /// How many IDs are mapped.
    pub length: u32,
}

/// Why a user namespace was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The process that is to create it cannot be forked, or exited early.
    #[error("cannot create a user namespace: no process to create it: {0}")]
    Process(#[source] io::Error),
    /// The kernel refuses the namespace.
    #[error("cannot create a user namespace: {0}")]
    Unshare(#[source] io::Error),
    /// The kernel refuses a mapping.
    #[error("cannot create a user namespace: cannot write {mapping:?} to {}: {source}", path.display())]
    Mapping {
        /// `uid_map` or `gid_map`.
        path: PathBuf,
        /// What was written to it.
        mapping: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The namespace cannot be opened.
    #[error("cannot create a user namespace: cannot open {}: {source}", path.display())]
    Open {
        /// The namespace.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
}

/// Why pods cannot have a user namespace on this kernel; none if they can.
pub fn unsupported() -> Option<String> {
    if kernel::version().is_none_or(|version| version < FIRST_LINUX) {
        let (major, minor) = FIRST_LINUX;
        return Some(format!("user namespaces need Linux {major}.{minor}, this is {}", kernel::release()));
    }
    let most = fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap_or_default();
    match (most.trim(), Path::new("/proc/self/ns/user").exists()) {
        (_, false) => Some("this kernel has no user namespaces".to_owned()),
        ("0", _) => Some("user namespaces are disabled by the sysctl user.max_user_namespaces".to_owned()),
        _ => None,
    }
}

/// A directory or file as a detached mount whose owners are mapped by a user namespace: files of root on disk belong to its root.
pub fn mapped(path: &Path, user_namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let tree = mount::detached(path, false)?;
    map_owners(tree.as_fd(), user_namespace)?;
    Ok(tree)
}

/// Maps the owners of a detached mount, not those of mounts below it.
pub fn map_owners(tree: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    mount::map_owners(tree, user_namespace).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => io::Error::new(
            io::ErrorKind::Unsupported,
            "its file system does not support user namespaces (no ID-mapped mounts)",
        ),
        _ => error,
    })
}

/// Creates a user namespace. Only for a process with a single thread.
pub fn create(users: &Users) -> Result<OwnedFd, CreateError> {
    let (mut ours, mut theirs) = UnixStream::pair().map_err(CreateError::Process)?;
    // Only a process outside the namespace may write its mappings. So a child creates it, and exits when they are written.
    let child = fork(|| {
        let created = unshare(CloneFlags::CLONE_NEWUSER).err().map_or(0, |error| error as i32);
        let reported = theirs.write_all(&created.to_ne_bytes());
        let _ = reported.and_then(|()| theirs.read(&mut [0]));
        0
    })
    .map_err(CreateError::Process)?;
    let opened = write_mappings(child, &mut ours, users);
    let _ = ours.shutdown(std::net::Shutdown::Both);
    let _ = waitpid(Pid::from_raw(child.cast_signed()), None);
    opened
}

fn write_mappings(child: u32, report: &mut UnixStream, users: &Users) -> Result<OwnedFd, CreateError> {
    let mut created = [0; size_of::<i32>()];
    report.read_exact(&mut created).map_err(CreateError::Process)?;
    match i32::from_ne_bytes(created) {
        0 => {}
        errno => return Err(CreateError::Unshare(io::Error::from_raw_os_error(errno))),
    }
    let process = Path::new("/proc").join(child.to_string());
    for (file, IdRange { first, length }) in [("uid_map", users.uids), ("gid_map", users.gids)] {
        let (path, mapping) = (process.join(file), format!("0 {first} {length}"));
        fs::write(&path, format!("{mapping}\n")).map_err(|source| CreateError::Mapping { path, mapping, source })?;
    }
    let path = process.join("ns/user");
    Ok(File::open(&path).map_err(|source| CreateError::Open { path, source })?.into())
}

/// Enters a user namespace as its root. Only for a process with a single thread.
pub fn enter(user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    setns(user_namespace, CloneFlags::CLONE_NEWUSER)?;
    become_root()
}

/// Becomes root of the user namespace that this process has just entered. Until then it has the node's root ID, which is not mapped.
pub fn become_root() -> io::Result<()> {
    thread::set_thread_groups(&[])?;
    thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    Ok(thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?)
}

// === impl IdRange ===

impl IdRange {
    /// Whether an ID of the namespace is mapped.
    pub fn has(self, inside: u32) -> bool {
        inside < self.length
    }

    /// The node's ID for an ID of the namespace. Ranges end below the largest ID, so this does not overflow.
    pub fn on_node(self, inside: u32) -> u32 {
        self.first.saturating_add(inside)
    }
}
