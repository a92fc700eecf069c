//! The door to the file system.
//!
//! Everything the ledger does to a disk is one of these calls, so a test can count them, make any of them fail, and
//! simulate a crash between any two.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt},
    path::Path,
};

use rustix::{
    fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with},
    io::Errno,
};

/// A file system, as far as the ledger needs one.
pub trait Disk {
    /// The whole of a regular file, if it has at most `limit` bytes. Never follows a symbolic link and never waits
    /// for the other end of a pipe.
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;
    /// What is in a directory, sorted by name.
    fn list(&self, directory: &Path) -> io::Result<Vec<DiskEntry>>;
    /// Creates a directory and its missing parents, with access for the owner only.
    fn make_dir(&self, directory: &Path) -> io::Result<()>;
    /// Creates an empty file to be written, with access for the owner only. Truncates an existing one.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sheet>>;
    /// Renames a file to its final name, which it replaces atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Like `rename`, but fails if the new name is taken.
    fn rename_aside(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Returns once the names in a directory will survive a power cut.
    fn sync_dir(&self, directory: &Path) -> io::Result<()>;
    /// Removes a file, or a directory with everything in it. Succeeds if it does not exist.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Locks a directory until the returned value is dropped; `None` if another process holds the lock.
    fn lock(&self, directory: &Path) -> io::Result<Option<Lock>>;
}

/// A file that is being written.
pub trait Sheet {
    /// Writes some of the bytes and returns how many.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Returns once the file's contents will survive a power cut.
    fn sync(&mut self) -> io::Result<()>;
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskEntry {
    /// Its name. Bytes that are not UTF-8 are replaced, so such a name never matches one of the ledger's.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
}

/// What an entry of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, a pipe, a device, a socket.
    Other,
}

/// Held as long as the process uses a directory. The kernel releases it when the process dies.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "held for its drop")] Option<File>);

/// How long to wait for a lock. Between fork and exec a child holds the locks of its parent. If the parent dies
/// meanwhile, the next process has to wait for the exec, which may take long on a busy machine: two seconds, with the
/// pauses between attempts.
const ATTEMPTS_TO_LOCK: usize = 200;

#[expect(clippy::disallowed_methods, reason = "no task runs yet: the caller is about to open the ledger")]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(10));
}

/// The machine's own file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

/// The error, if it is a shortage of the node (open files, memory), which says nothing about the file.
pub(crate) fn shortage(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error).filter(|errno| matches!(*errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

// === impl Lock ===

impl Lock {
    /// For simulated disks: nothing is locked.
    pub fn pretended() -> Self {
        Self(None)
    }
}

// === impl OsDisk ===

impl Disk for OsDisk {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            let kind = metadata.file_type();
            let what = if kind.is_dir() {
                "a directory"
            } else if kind.is_fifo() {
                "a pipe"
            } else {
                "no regular file"
            };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}")));
        }
        // Reading one byte more than allowed detects a larger file, even one that grows meanwhile.
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(limit).min(limit) + 1);
        file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > limit {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {limit} bytes")));
        }
        Ok(bytes)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DiskEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let kind = match entry.file_type()? {
                kind if kind.is_file() => EntryKind::File,
                kind if kind.is_dir() => EntryKind::Directory,
                _ => EntryKind::Other,
            };
            entries.push(DiskEntry { name: entry.file_name().to_string_lossy().into_owned(), kind });
        }
        entries.sort();
        Ok(entries)
    }

    fn make_dir(&self, directory: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sheet>> {
        // A pod's environment may contain secrets that other users of the node must not read.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(flags.bits().cast_signed())
            .open(path)?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn rename_aside(&self, from: &Path, to: &Path) -> io::Result<()> {
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Some file systems do not know the flag. The lock excludes other processes between the check and the
            // rename.
            Err(Errno::INVAL | Errno::NOSYS) => match fs::symlink_metadata(to) {
                Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                Err(_) => fs::rename(from, to),
            },
            other => other.map_err(Into::into),
        }
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn lock(&self, directory: &Path) -> io::Result<Option<Lock>> {
        let file = File::open(directory)?;
        for _ in 0..ATTEMPTS_TO_LOCK {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Lock(Some(file)))),
                Err(Errno::WOULDBLOCK) => pause(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

// === impl File ===

impl Sheet for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}
