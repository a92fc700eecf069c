//! Working directories for unfinished work.
//!
//! A working directory is below `tmp`, and its owner holds a lock on it. One without a lock may be removed: its owner
//! was killed. It may also list layers that its owner needs, so that no other process removes them meanwhile.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{At, Error};
use crate::tree;

/// A working directory. Dropping it removes everything in it.
pub(crate) struct Work {
    path: PathBuf,
    /// holds the lock
    _held: OwnedFd,
}

static NEXT: AtomicU64 = AtomicU64::new(0);
const LEASE: &str = "lease";

/// The state of all working directories.
#[derive(Default)]
pub(crate) struct Survey {
    /// layers that live owners need
    pub(crate) leased: BTreeSet<String>,
    /// working directories whose owners are dead
    pub(crate) abandoned: Vec<PathBuf>,
}

/// Lists all working directories. The caller holds the store's lock, so that none is being created.
pub(crate) fn survey(tmp: &Path) -> Result<Survey, Error> {
    let mut survey = Survey::default();
    for entry in std::fs::read_dir(tmp).at("list", tmp)? {
        let path = entry.at("list", tmp)?.path();
        let directory = match tree::open_directory(&path) {
            Ok(directory) => directory,
            // Removed by its owner meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => {
                survey.abandoned.push(path);
                continue;
            }
        };
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => survey.abandoned.push(path),
            Err(Errno::WOULDBLOCK) => {
                let lease = std::fs::read_to_string(path.join(LEASE)).unwrap_or_default();
                survey.leased.extend(lease.lines().map(str::to_owned));
            }
            Err(error) => return Err(error).at("lock", path),
        }
    }
    Ok(survey)
}

// === impl Work ===

impl Work {
    /// Creates a working directory. The caller holds the store's lock, so that no process takes it for abandoned before
    /// it is locked.
    pub(crate) fn new(tmp: &Path) -> Result<Self, Error> {
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = tmp.join(format!("{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                // Left by a killed process with the same PID.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.at("create", &path)?,
            }
            let held = tree::open_directory(&path).at("open", &path)?;
            flock(&held, FlockOperation::NonBlockingLockExclusive).at("lock", &path)?;
            return Ok(Self { path, _held: held });
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the layers that must not be removed while this working directory exists. The caller holds the store's lock.
    pub(crate) fn lease(&self, layers: &[String]) -> Result<(), Error> {
        let path = self.path.join(LEASE);
        std::fs::write(&path, layers.join("\n")).at("write", &path)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Err(error) = tree::remove(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "working directory not removed; the next start retries");
        }
    }
}
