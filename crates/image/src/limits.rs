//! Limits on unpacking, and the budget that all layers of an image share.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{At, Error, LimitExceeded};

/// Limits on one image or archive. An image beyond them is refused and removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes after decompression, holes of sparse files counted in full. 64 GiB: the largest images in use (machine
    /// learning with all libraries) unpack to about a third of that.
    pub bytes: u64,
    /// Files, directories and links. 10 million: more than the inodes that ext4 gives a disk of 150 GB.
    pub entries: u64,
    /// Bytes that must stay free on the store's disk. 1 GiB: enough for logs and the agent's ledger.
    pub reserve: u64,
    /// Inodes that must stay free on the store's disk, if it counts them. 10 000: a pod takes tens of them for its directories,
    /// logs and ledger, and a node has some hundred pods.
    pub reserved_inodes: u64,
}

/// What is left of the limits for one image. Clones share one budget.
#[derive(Clone)]
pub(crate) struct Budget {
    limits: Limits,
    disk: Arc<File>,
    bytes: Arc<AtomicU64>,
    entries: Arc<AtomicU64>,
}

/// A reader that charges its bytes to a budget.
pub(crate) struct Metered<R> {
    inner: R,
    budget: Budget,
    /// charged since the last check of the disk
    unchecked: u64,
}

/// How many bytes are written between checks of the disk: small compared with the reserve, large compared with a system
/// call.
const CHECK_EVERY: u64 = 16 * 1024 * 1024;
/// The same for files, directories and links, which may be empty.
const CHECK_EVERY_ENTRIES: u64 = 1024;

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 << 30, entries: 10_000_000, reserve: 1 << 30, reserved_inodes: 10_000 }
    }
}

// === impl Budget ===

impl Budget {
    /// A full budget for what is unpacked below `directory`.
    pub(crate) fn new(limits: &Limits, directory: &Path) -> Result<Self, Error> {
        let disk = File::open(directory).at("open", directory)?;
        let budget =
            Self { limits: limits.clone(), disk: Arc::new(disk), bytes: Arc::default(), entries: Arc::default() };
        Ok(budget)
    }

    pub(crate) fn pay_bytes(&self, count: u64) -> Result<(), LimitExceeded> {
        let before = self.bytes.fetch_add(count, Ordering::Relaxed);
        match before.checked_add(count) {
            Some(total) if total <= self.limits.bytes => Ok(()),
            _ => Err(LimitExceeded::Bytes(self.limits.bytes)),
        }
    }

    pub(crate) fn pay_entry(&self) -> io::Result<()> {
        let before = self.entries.fetch_add(1, Ordering::Relaxed);
        if before >= self.limits.entries {
            return Err(LimitExceeded::Entries(self.limits.entries).into());
        }
        if before.is_multiple_of(CHECK_EVERY_ENTRIES) { self.check_disk() } else { Ok(()) }
    }

    /// Checks that the reserve is still free.
    pub(crate) fn check_disk(&self) -> io::Result<()> {
        let disk = rustix::fs::fstatvfs(&*self.disk)?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < self.limits.reserve {
            return Err(LimitExceeded::Reserve(self.limits.reserve).into());
        }
        // File systems that allocate inodes on demand report none.
        if disk.f_files > 0 && disk.f_favail < self.limits.reserved_inodes {
            return Err(LimitExceeded::Inodes(self.limits.reserved_inodes).into());
        }
        Ok(())
    }
}

// === impl Metered ===

impl<R> Metered<R> {
    pub(crate) fn new(inner: R, budget: Budget) -> Self {
        // The first read checks the disk.
        Self { inner, budget, unchecked: CHECK_EVERY }
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unchecked >= CHECK_EVERY {
            self.budget.check_disk()?;
            self.unchecked = 0;
        }
        let count = self.inner.read(buffer)?;
        self.budget.pay_bytes(count as u64)?;
        self.unchecked += count as u64;
        Ok(count)
    }
}
