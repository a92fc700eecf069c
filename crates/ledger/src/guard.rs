//! A disk on which the directories of a ledger are locked before anything is written to them.
//!
//! A directory that cannot be made when the ledger is opened, because the disk is full, cannot be locked either. It is locked
//! as soon as it is made: from then on a second agent finds it taken.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::disk::{Disk, DiskEntry, Lock, Sheet};

/// A disk, and the locks on the ledger's directories.
#[derive(Debug)]
pub(crate) struct Guarded<D> {
    disk: D,
    roots: [Root; 2],
}

/// A directory of the ledger.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    /// None as long as it is not there.
    lock: Mutex<Option<Lock>>,
}

/// Whether a directory belongs to this ledger alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It does.
    Ours,
    /// Another process has it.
    Taken,
}

// === impl Guarded ===

impl<D: Disk> Guarded<D> {
    pub(crate) fn new(disk: D, roots: [&Path; 2]) -> Self {
        let root = |path: &Path| Root { path: path.to_owned(), lock: Mutex::new(None) };
        Self { disk, roots: roots.map(root) }
    }

    /// Locks a directory of the ledger, unless that is done already.
    pub(crate) fn hold(&self, path: &Path) -> io::Result<Hold> {
        self.roots.iter().find(|root| root.path == path).map_or(Ok(Hold::Ours), |root| root.hold(&self.disk))
    }
}

impl<D: Disk> Disk for Guarded<D> {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.disk.read(path, limit)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DiskEntry>> {
        self.disk.list(directory)
    }

    /// Whatever is written to a directory of the ledger that was not there begins with this.
    fn make_dir(&self, directory: &Path) -> io::Result<()> {
        self.disk.make_dir(directory)?;
        for root in self.roots.iter().filter(|root| directory.starts_with(&root.path)) {
            if root.hold(&self.disk)? == Hold::Taken {
                let message = format!("another keelet agent works with {}", root.path.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
            }
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sheet>> {
        self.disk.create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn rename_aside(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename_aside(from, to)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.disk.sync_dir(directory)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn lock(&self, directory: &Path) -> io::Result<Option<Lock>> {
        self.disk.lock(directory)
    }
}

// === impl Root ===

impl Root {
    fn hold(&self, disk: &impl Disk) -> io::Result<Hold> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_none() {
            *lock = disk.lock(&self.path)?;
        }
        Ok(if lock.is_some() { Hold::Ours } else { Hold::Taken })
    }
}
