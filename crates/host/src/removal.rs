//! Removing a directory that others wrote into.
//!
//! What a container left in its volumes may be hostile: links out of the volume, thousands of directories in each
//! other, and mounts that a privileged container spread to the node. So:
//!
//! - Nothing is looked up through a link, nor by more than one name at a time.
//! - No mount point is entered. The kernel refuses to remove or to move one, and that is how it is noticed: it is
//!   unmounted, never emptied. If that fails, it stays as it is, and the error reports it.
//! - Depth costs nothing: a directory that is not empty is moved aside, to the top, and emptied there in its turn.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, mkdirat, openat, renameat_with, unlinkat},
    io::Errno,
    mount::{UnmountFlags, unmount},
};

/// Where directories wait to be emptied.
const ASIDE: &CStr = c".gone";

/// Names that are read from a directory before they are worked through: some 100 KiB, however many there are.
const BATCH: usize = 1024;

/// Mounts on top of each other that are unmounted.
const STACKED: usize = 16;

/// Problems that the error reports; there may be as many as there are files.
const REPORTED: usize = 5;

/// Removes a directory with everything in it. It is no error if there is none. What cannot be removed stays, and the
/// error reports it.
pub(super) fn remove(path: &Path) -> Result<(), RemoveError> {
    let failed = |source: Errno| RemoveError::Directory { path: path.to_owned(), source };
    let top = match open(CWD, path) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let mut removal = Removal::new(top).map_err(failed)?;
    removal.run();
    if !removal.problems.is_empty() {
        let mut problems = removal.problems;
        problems.sort_by_key(ToString::to_string);
        return Err(RemoveError::Entries { path: path.to_owned(), problems });
    }
    match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// A directory that could not be removed, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    /// The directory itself cannot be opened, written to or removed.
    #[error("cannot remove {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        source: Errno,
    },
    /// Something in the directory cannot be removed.
    #[error("cannot remove {}: {}", path.display(), listed(problems, ", "))]
    Entries {
        /// The directory.
        path: PathBuf,
        /// The first problems, in the order of the names.
        problems: Vec<EntryError>,
    },
}

/// A file or directory that stays. It is named as it is in its own directory, which may be anywhere below the top.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {source}", name.to_string_lossy())]
pub struct EntryError {
    /// The name.
    pub name: CString,
    /// Why it stays.
    pub source: EntryProblem,
}

/// Why a file or directory stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryProblem {
    /// The kernel does not remove it.
    #[error(transparent)]
    Remove(#[from] Errno),
    /// It is a mount point that the kernel does not unmount.
    #[error("cannot unmount the mount point: {0}")]
    Unmount(#[source] Errno),
    /// It was unmounted as often as is sensible, and is still a mount point.
    #[error("more than {STACKED} mounts on top of each other")]
    Stacked,
}

struct Removal {
    top: OwnedFd,
    aside: OwnedFd,
    /// How many directories were moved aside.
    moved: u64,
    problems: Vec<EntryError>,
}

/// What became of an entry of a directory.
#[derive(PartialEq, Eq)]
enum Fate {
    Gone,
    Stays,
}

// === impl Removal ===

impl Removal {
    fn new(top: OwnedFd) -> Result<Self, Errno> {
        match mkdirat(&top, ASIDE, Mode::RWXU) {
            // An earlier attempt left it behind.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let aside = open(&top, ASIDE)?;
        Ok(Self { top, aside, moved: 0, problems: Vec::new() })
    }

    fn run(&mut self) {
        if let Ok(top) = self.top.try_clone() {
            self.each_in(&top, |removal, name| match name {
                name if name == ASIDE => Fate::Stays,
                name => removal.entry(&top, name),
            });
        }
        if let Ok(aside) = self.aside.try_clone() {
            self.each_in(&aside, Self::put_aside);
        }
        if self.problems.is_empty()
            && let Err(error) = unlinkat(&self.top, ASIDE, AtFlags::REMOVEDIR)
        {
            self.problem(ASIDE, error);
        }
    }

    /// Empties and removes a directory that was moved aside. It is no mount point, or it could not have been moved.
    fn put_aside(&mut self, name: &CStr) -> Fate {
        let removed = open(&self.aside, name).and_then(|directory| {
            self.each_in(&directory, |removal, name| removal.entry(&directory, name));
            unlinkat(&self.aside, name, AtFlags::REMOVEDIR)
        });
        match removed {
            Ok(()) | Err(Errno::NOENT) => Fate::Gone,
            // What is left in it has been reported.
            Err(Errno::NOTEMPTY) => Fate::Stays,
            Err(error) => self.problem(name, error),
        }
    }

    /// Works through a directory until nothing in it can be removed any more.
    fn each_in(&mut self, directory: &OwnedFd, mut work: impl FnMut(&mut Self, &CStr) -> Fate) {
        loop {
            let names = match names_in(directory) {
                Ok(names) => names,
                Err(error) => {
                    self.problem(c"a directory", error);
                    return;
                }
            };
            // All are tried, so no `any`.
            let gone = names.iter().filter(|name| work(self, name) == Fate::Gone).count();
            if gone == 0 {
                return;
            }
        }
    }

    /// Removes a file or an empty directory, moves a full one aside, unmounts what is mounted.
    fn entry(&mut self, directory: &OwnedFd, name: &CStr) -> Fate {
        for _ in 0..STACKED {
            let tried = match unlinkat(directory, name, AtFlags::empty()) {
                Err(Errno::ISDIR | Errno::PERM) => match unlinkat(directory, name, AtFlags::REMOVEDIR) {
                    Err(Errno::NOTEMPTY | Errno::EXIST) => self.move_aside(directory, name),
                    Err(Errno::NOTDIR) => Err(Errno::PERM),
                    other => other,
                },
                other => other,
            };
            match tried {
                Ok(()) | Err(Errno::NOENT) => return Fate::Gone,
                Err(Errno::BUSY) => {
                    if let Err(error) = unmount_at(directory, name) {
                        return self.problem(name, EntryProblem::Unmount(error));
                    }
                }
                Err(error) => return self.problem(name, error),
            }
        }
        self.problem(name, EntryProblem::Stacked)
    }

    fn move_aside(&mut self, directory: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        loop {
            let number = CString::new(self.moved.to_string()).map_err(|_| Errno::INVAL)?;
            self.moved += 1;
            match renameat_with(directory, name, &self.aside, &number, RenameFlags::NOREPLACE) {
                // Of an earlier attempt.
                Err(Errno::EXIST) => {}
                other => return other,
            }
        }
    }

    fn problem(&mut self, name: &CStr, problem: impl Into<EntryProblem>) -> Fate {
        let problem = EntryError { name: name.to_owned(), source: problem.into() };
        if self.problems.len() < REPORTED && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
        Fate::Stays
    }
}

/// Errors in one line.
pub(super) fn listed<E: ToString>(errors: &[E], separator: &str) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

/// Opens a directory, and neither a link nor anything else.
fn open(directory: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

/// The first names in a directory.
fn names_in(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let entries = Dir::read_from(directory)?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    names
        .filter(|name| !matches!(name, Ok(name) if name.as_c_str() == c"." || name.as_c_str() == c".."))
        .take(BATCH)
        .collect()
}

/// Unmounts what is mounted in a directory under that name. The path leads through the open directory, so it means
/// this one, whatever has become of its name.
fn unmount_at(directory: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    unmount(path, UnmountFlags::NOFOLLOW)
}

#[cfg(test)]
mod tests;
