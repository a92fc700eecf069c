//! A path in a container's root, where every component may be a hostile link.
//!
//! The path is resolved here, one component at a time: each is looked up from the descriptor of its directory without following links,
//! and the target of a link is read and resolved from the root. So no path leads out of that root, also when a process of the pod swaps
//! directories and links meanwhile. A dangling link is followed like any other, and missing components are created.

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::Path,
};

use rustix::{
    fs::{FileType, Gid, Mode, OFlags, PROC_SUPER_MAGIC, Uid, fchown, fstat, fstatfs, mkdirat, openat, readlinkat},
    io::Errno,
};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;
/// As many directories as a path can name. The bound also ends a race with a process that removes what is created here.
const MOST_CREATED: usize = 4096;

/// What is opened, and created if it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
}

/// What is in the place of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found(FileType);

/// Why a directory of an image cannot be mounted on.
#[derive(Debug, thiserror::Error)]
pub enum MountPointError {
    /// It cannot be opened.
    #[error("cannot open {path:?} in the image: {source}")]
    Open {
        /// The path in the image.
        path: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Something else is in its place.
    #[error("{path:?} in the image is {found} and must be a directory, because the runtime mounts there")]
    NotADirectory {
        /// The path in the image.
        path: String,
        /// What it is.
        found: Found,
    },
}

/// Opens a path below a root and creates what is missing of it. The descriptor is `O_PATH`: it can be mounted on and entered, not read.
pub fn open_or_create(root: BorrowedFd<'_>, path: &Path, kind: Kind) -> io::Result<OwnedFd> {
    // The directories on the path: `..` is the one before, wherever it was moved since.
    let mut parents: Vec<OwnedFd> = Vec::new();
    let mut names = names_of(path.as_os_str());
    let (mut links, mut created) = (0, 0);
    while let Some(name) = names.pop() {
        if name == ".." {
            parents.pop();
            continue;
        }
        let at = parents.last().map_or(root, AsFd::as_fd);
        let found = match openat(at, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::NOENT) => {
                count(&mut created, MOST_CREATED)?;
                create(at, &name, if names.is_empty() { kind } else { Kind::Directory })?;
                names.push(name);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match FileType::from_raw_mode(fstat(&found)?.st_mode) {
            FileType::Symlink => {
                count(&mut links, MOST_LINKS)?;
                // Links of procfs lead to the open files of a process; their text only seems to be a path.
                if fstatfs(&found)?.f_type == PROC_SUPER_MAGIC {
                    return Err(Errno::LOOP.into());
                }
                let target = OsString::from_vec(readlinkat(&found, "", Vec::new())?.into_bytes());
                if target.as_bytes().starts_with(b"/") {
                    parents.clear();
                }
                names.extend(names_of(&target));
            }
            FileType::Directory => parents.push(found),
            _ if names.is_empty() => return Ok(found),
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    match parents.pop() {
        Some(found) => Ok(found),
        None => root.try_clone_to_owned(),
    }
}

/// The components of a path, the first one last.
fn names_of(path: &OsStr) -> Vec<OsString> {
    let names = path.as_bytes().split(|letter| *letter == b'/').rev();
    names.filter(|name| !name.is_empty() && *name != b".").map(|name| OsString::from_vec(name.to_vec())).collect()
}

fn count(counter: &mut usize, most: usize) -> io::Result<()> {
    *counter += 1;
    if *counter > most { Err(Errno::LOOP.into()) } else { Ok(()) }
}

/// Creates a missing component. Root owns it, also when this process has switched to the container's user already.
fn create(at: BorrowedFd<'_>, name: &OsStr, kind: Kind) -> io::Result<()> {
    let opened = match kind {
        Kind::Directory => mkdirat(at, name, Mode::from_raw_mode(0o755)).and_then(|()| {
            openat(at, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
        }),
        Kind::File => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(at, name, flags, Mode::from_raw_mode(0o644))
        }
    };
    match opened {
        Ok(created) => {
            // A network file system may refuse to change owners.
            let _ = fchown(created, Some(Uid::ROOT), Some(Gid::ROOT));
            Ok(())
        }
        // Another process created it first; the next lookup finds that.
        Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether two descriptors refer to the same file.
pub fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Opens the directory of this name in the root of an image; none if it is missing.
///
/// # Errors
///
/// Also if it is not a directory: a mount on a link would be on its target.
pub fn mount_point(root: BorrowedFd<'_>, name: &str) -> Result<Option<OwnedFd>, MountPointError> {
    let path = || format!("/{name}");
    let fail = |errno: Errno| MountPointError::Open { path: path(), source: errno.into() };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match openat(root, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        found => found.map_err(fail)?,
    };
    match FileType::from_raw_mode(fstat(&found).map_err(fail)?.st_mode) {
        FileType::Directory => Ok(Some(found)),
        other => Err(MountPointError::NotADirectory { path: path(), found: Found(other) }),
    }
}

// === impl Found ===

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            FileType::RegularFile => "a file",
            FileType::Symlink => "a symbolic link",
            FileType::Fifo => "a FIFO",
            FileType::Socket => "a socket",
            FileType::CharacterDevice | FileType::BlockDevice => "a device",
            _ => "something else",
        })
    }
}

#[cfg(test)]
mod tests;
