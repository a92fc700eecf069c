//! The machine's own disk, with a word in everything that is changed on it.

use std::{fmt, io, path::Path, sync::Arc};

use keelet_ledger::{Disk, DiskEntry, Lock, OsDisk, Sheet};

/// Asked before anything is changed: which path, and whether it may be.
type Fault = Arc<dyn Fn(&Path) -> io::Result<()> + Send + Sync>;

/// A disk that asks before it changes anything.
#[derive(Clone)]
pub(crate) struct FaultyDisk(Fault);

// === impl FaultyDisk ===

impl FaultyDisk {
    pub(crate) fn new(fault: impl Fn(&Path) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(fault))
    }
}

impl Disk for FaultyDisk {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        OsDisk.read(path, limit)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DiskEntry>> {
        OsDisk.list(directory)
    }

    fn make_dir(&self, directory: &Path) -> io::Result<()> {
        (self.0)(directory)?;
        OsDisk.make_dir(directory)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sheet>> {
        (self.0)(path)?;
        OsDisk.create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.0)(to)?;
        OsDisk.rename(from, to)
    }

    fn rename_aside(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.0)(to)?;
        OsDisk.rename_aside(from, to)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        (self.0)(directory)?;
        OsDisk.sync_dir(directory)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        (self.0)(path)?;
        OsDisk.remove(path)
    }

    fn lock(&self, directory: &Path) -> io::Result<Option<Lock>> {
        OsDisk.lock(directory)
    }
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyDisk")
    }
}
