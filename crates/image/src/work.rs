//! Places for things that are not finished.
//!
//! A workplace is a directory below `tmp` that its owner holds locked. Whoever finds one that nobody holds may remove it: its owner
//! was killed. A workplace may also list layers that its owner counts on, so that nobody removes them meanwhile.

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

/// A workplace. Dropping it removes everything in it.
pub(crate) struct Work {
    path: PathBuf,
    /// holds the lock
    _held: OwnedFd,
}

static NEXT: AtomicU64 = AtomicU64::new(0);
const LEASE: &str = "lease";

/// What is found when all workplaces are looked at.
#[derive(Default)]
pub(crate) struct Survey {
    /// layers that owners who are alive count on
    pub(crate) leased: BTreeSet<String>,
    /// workplaces whose owners are gone
    pub(crate) abandoned: Vec<PathBuf>,
}

/// Looks at all workplaces. The caller holds the store's lock, so that none is being made.
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
    /// Makes a workplace. The caller holds the store's lock, so that nobody takes it for abandoned before it is locked.
    pub(crate) fn new(tmp: &Path) -> Result<Self, Error> {
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = tmp.join(format!("{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                // Left by a killed process that had the same ID.
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

    /// Says which layers must not go while this workplace exists. The caller holds the store's lock.
    pub(crate) fn lease(&self, layers: &[String]) -> Result<(), Error> {
        let path = self.path.join(LEASE);
        std::fs::write(&path, layers.join("\n")).at("write", &path)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Err(error) = tree::remove(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a workplace was not removed; the next start tries again");
        }
    }
}
