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
use rustix::{
    process::{Gid, Uid},
    thread,
};
use serde::{Deserialize, Serialize};

use crate::{mount, process::fork};

/// Who the users of a pod are on the node: they count from zero, their ranges start elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    /// Users.
    pub uids: IdRange,
    /// Groups.
    pub gids: IdRange,
}

/// IDs of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// What is zero in the pod.
    pub first: u32,
    /// How many there are.
    pub length: u32,
}

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
    let tree = mount::detached(path, false)?;
    translate(tree.as_fd(), users)?;
    Ok(tree)
}

/// The same for a tree that is open already: its top, not what is mounted below.
pub fn translate(tree: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    mount::set_users(tree, users).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => io::Error::new(
            io::ErrorKind::Unsupported,
            "its file system cannot be used with a user namespace (no idmapped mounts)",
        ),
        _ => error,
    })
}

/// Makes a user namespace. Only for a process with one thread.
pub fn make(users: &Users) -> Result<OwnedFd, String> {
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
pub fn enter(users: BorrowedFd<'_>) -> io::Result<()> {
    setns(users, CloneFlags::CLONE_NEWUSER)?;
    become_root()
}

/// In a user namespace that was just entered: until then this process is still the node's root, who is nobody in there.
pub fn become_root() -> io::Result<()> {
    thread::set_thread_groups(&[])?;
    thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    Ok(thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?)
}

// === impl IdRange ===

impl IdRange {
    /// Whether the pod has such an ID.
    pub fn has(self, inside: u32) -> bool {
        inside < self.length
    }

    /// What an ID of the pod is on the node. Ranges end before the numbers do, so this is always one.
    pub fn on_node(self, inside: u32) -> u32 {
        self.first.saturating_add(inside)
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
