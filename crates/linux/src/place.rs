//! A place in a container's files, where every name may be a hostile link.
//!
//! The path is walked here, one name at a time: each name is looked up from a descriptor of the directory that was reached and never
//! through a link, and what a link says is read and followed from the root. So nothing leads out of that root, also when a process of the
//! pod swaps directories and links meanwhile. A link that leads nowhere is followed like any other, and what is missing is made.

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
/// As many directories as a path can name. What is made and removed by another process again and again ends here too.
const MOST_MADE: usize = 4096;

/// What is looked for, and made if it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
}

/// What is found in place of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found(FileType);

/// Finds a place below a root and makes what is missing on the way. The descriptor can be mounted on and entered, not read.
pub fn find_or_make(root: BorrowedFd<'_>, path: &Path, kind: Kind) -> io::Result<OwnedFd> {
    // Directories on the way, so that `..` is the one we came from, wherever it is by now.
    let mut way: Vec<OwnedFd> = Vec::new();
    let mut names = names_of(path.as_os_str());
    let (mut links, mut made) = (0, 0);
    while let Some(name) = names.pop() {
        if name == ".." {
            way.pop();
            continue;
        }
        let at = way.last().map_or(root, AsFd::as_fd);
        let found = match openat(at, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::NOENT) => {
                count(&mut made, MOST_MADE)?;
                make(at, &name, if names.is_empty() { kind } else { Kind::Directory })?;
                names.push(name);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match FileType::from_raw_mode(fstat(&found)?.st_mode) {
            FileType::Symlink => {
                count(&mut links, MOST_LINKS)?;
                // Links in there lead to what a process has open, and only seem to say where that is.
                if fstatfs(&found)?.f_type == PROC_SUPER_MAGIC {
                    return Err(Errno::LOOP.into());
                }
                let target = OsString::from_vec(readlinkat(&found, "", Vec::new())?.into_bytes());
                if target.as_bytes().starts_with(b"/") {
                    way.clear();
                }
                names.extend(names_of(&target));
            }
            FileType::Directory => way.push(found),
            _ if names.is_empty() => return Ok(found),
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    match way.pop() {
        Some(found) => Ok(found),
        None => root.try_clone_to_owned(),
    }
}

/// The names of a path, the first one last.
fn names_of(path: &OsStr) -> Vec<OsString> {
    let names = path.as_bytes().split(|letter| *letter == b'/').rev();
    names.filter(|name| !name.is_empty() && *name != b".").map(|name| OsString::from_vec(name.to_vec())).collect()
}

fn count(number: &mut usize, most: usize) -> io::Result<()> {
    *number += 1;
    if *number > most { Err(Errno::LOOP.into()) } else { Ok(()) }
}

/// Makes what is missing. It belongs to the container's root, also when this process has the container's user already.
fn make(at: BorrowedFd<'_>, name: &OsStr, kind: Kind) -> io::Result<()> {
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
        Ok(made) => {
            // A volume of another machine may keep its owners.
            let _ = fchown(made, Some(Uid::ROOT), Some(Gid::ROOT));
            Ok(())
        }
        // Another process was faster, and is about to be found.
        Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether two descriptors are of the same file.
pub fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// The directory of this name in a root, where something else is refused. That it is missing is fine.
pub fn own_directory(root: BorrowedFd<'_>, name: &str) -> Result<Option<OwnedFd>, String> {
    let fail = |error: &dyn fmt::Display| format!("{:?} in the image: {error}", format!("/{name}"));
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match openat(root, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        found => found.map_err(|error| fail(&error))?,
    };
    match FileType::from_raw_mode(fstat(&found).map_err(|error| fail(&error))?.st_mode) {
        FileType::Directory => Ok(Some(found)),
        other => Err(fail(&format!("it is {}, and must be a directory: the runtime mounts there", Found(other)))),
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
