//! User namespaces: users of a pod that are nobody on the node.
//!
//! A pod's holder makes one ([`make`]) and enters it; containers and commands join it there. Files keep the owners they
//! have on disk: what a container sees of them goes through mounts that translate ([`translated`]).

use std::{
    fs,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
};

use nix::{
    sched::{CloneFlags, setns, unshare},
    sys::wait::waitpid,
    unistd::Pid,
};
use oci_spec::runtime::{LinuxIdMapping, Spec};
use rustix::{
    process::{Gid, Uid},
    thread,
};

use crate::{
    process::fork,
    protocol::{IdRange, Users},
    seal,
};

/// The first Linux that takes translated trees as layers of an overlay without a place for them in between.
const FIRST_LINUX: (u32, u32) = (6, 15);

/// Why pods cannot have users of their own on this kernel; none if they can.
pub fn missing() -> Option<String> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if !is_new_enough(&release) {
        let (major, minor) = FIRST_LINUX;
        return Some(format!("user namespaces need Linux {major}.{minor}, this is {release}"));
    }
    let most = fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap_or_default();
    match (most.trim(), Path::new("/proc/self/ns/user").exists()) {
        (_, false) => Some("this kernel has no user namespaces".to_owned()),
        ("0", _) => Some("user namespaces are switched off by user.max_user_namespaces".to_owned()),
        _ => None,
    }
}

fn is_new_enough(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= FIRST_LINUX
}

/// A directory or file as a mount of its own, in no place yet, where everybody is who he is in that user namespace:
/// what belongs to root on disk belongs to its root.
pub fn translated(path: &Path, users: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let tree = seal::detached(path, false)?;
    translate(tree.as_fd(), users)?;
    Ok(tree)
}

/// The same for a tree that is open already: its top, not what is mounted below.
pub(crate) fn translate(tree: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    seal::set_users(tree, users).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => io::Error::new(
            io::ErrorKind::Unsupported,
            "its file system cannot be used with a user namespace (no idmapped mounts)",
        ),
        _ => error,
    })
}

/// Makes a user namespace. Only for a process with one thread.
pub(crate) fn make(users: &Users) -> Result<OwnedFd, String> {
    let fail = |error: io::Error| format!("cannot make a user namespace: {error}");
    let (mut ours, mut theirs) = UnixStream::pair().map_err(fail)?;
    // Only somebody outside may say who is who inside. So a child makes it, and goes when that is done.
    let child = fork(|| {
        let made = unshare(CloneFlags::CLONE_NEWUSER).err().map_or(0, |error| error as i32);
        let told = theirs.write_all(&made.to_ne_bytes());
        let _ = told.and_then(|()| theirs.read(&mut [0]));
        0
    })
    .map_err(fail)?;
    let found = describe(child, &mut ours, users).map_err(fail);
    let _ = ours.shutdown(std::net::Shutdown::Both);
    let _ = waitpid(Pid::from_raw(child.cast_signed()), None);
    found
}

fn describe(child: u32, told: &mut UnixStream, users: &Users) -> io::Result<OwnedFd> {
    let mut made = [0; size_of::<i32>()];
    told.read_exact(&mut made)?;
    match i32::from_ne_bytes(made) {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    for (file, IdRange { first, length }) in [("uid_map", users.uids), ("gid_map", users.gids)] {
        fs::write(format!("/proc/{child}/{file}"), format!("0 {first} {length}\n"))
            .map_err(|error| io::Error::new(error.kind(), format!("{file} 0 {first} {length}: {error}")))?;
    }
    Ok(File::open(format!("/proc/{child}/ns/user"))?.into())
}

/// Enters a user namespace as its root. Only for a process with one thread.
pub(crate) fn enter(users: BorrowedFd<'_>) -> io::Result<()> {
    setns(users, CloneFlags::CLONE_NEWUSER)?;
    become_root()
}

/// In a user namespace that was just entered: until then this process is still the node's root, who is nobody in there.
pub(crate) fn become_root() -> io::Result<()> {
    thread::set_thread_groups(&[])?;
    thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    Ok(thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?)
}

/// Who users of a container are on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnNode {
    users: Option<Users>,
}

// === impl OnNode ===

impl OnNode {
    pub(crate) fn of(spec: &Spec) -> Self {
        let range = |mappings: &Option<Vec<LinuxIdMapping>>| {
            let first = mappings.as_ref()?.first()?;
            Some(IdRange { first: first.host_id(), length: first.size() })
        };
        let of = |linux: &oci_spec::runtime::Linux| {
            Some(Users { uids: range(linux.uid_mappings())?, gids: range(linux.gid_mappings())? })
        };
        Self { users: spec.linux().as_ref().and_then(of) }
    }

    /// Whether they are others than in the container.
    pub(crate) fn differ(self) -> bool {
        self.users.is_some()
    }

    pub(crate) fn uid(self, inside: u32) -> u32 {
        self.users.map_or(inside, |users| users.uids.on_node(inside))
    }

    pub(crate) fn gid(self, inside: u32) -> u32 {
        self.users.map_or(inside, |users| users.gids.on_node(inside))
    }
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for (release, enough) in [("6.15.0", true), ("6.18.44-fc", true), ("10.0", true), ("7", true)] {
            assert_eq!(is_new_enough(release), enough, "{release}");
        }
        for release in ["6.14.9-generic", "6.9", "5.19.0", "6", "", "linux"] {
            assert!(!is_new_enough(release), "{release}");
        }
    }
}
