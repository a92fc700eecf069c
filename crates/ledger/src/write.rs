//! Atomic writes: the name of a file always stands for a whole one, the old or the new.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use keelet_lifecycle::Moment;

use crate::{
    disk::{Disk, Sheet},
    envelope::LARGEST_FILE,
    names,
};

/// The result of one tier of a commit.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    /// The file is up to date.
    Unchanged,
    /// Written. `after_failures` counts the failed attempts before it, so that a recovered disk can be reported.
    Written {
        /// Attempts in a row that failed before.
        after_failures: u32,
    },
    /// Kept in memory for now. The next commit from that moment on writes it, or [`crate::Ledger::flush`].
    Deferred {
        /// The earliest time.
        until: Moment,
    },
    /// Not written. The newest value is in memory, and a later commit retries; the old file is still there.
    Failed(WriteError),
}

/// A write that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {path}: {source}")]
pub struct WriteError {
    /// Which step.
    pub step: WriteStep,
    /// Of what.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// The steps of a write, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteStep {
    /// Serialise it as JSON of an acceptable size.
    Encode,
    /// Make its directory.
    MakeDirectory,
    /// Set aside an unreadable file in its place.
    SetAside,
    /// Create a temporary file.
    Create,
    /// Write it.
    Write,
    /// Sync its contents.
    SyncFile,
    /// Rename it.
    Rename,
    /// Sync its directory.
    SyncDirectory,
    /// Remove it.
    Remove,
}

/// A complete file under its temporary name.
pub(crate) struct Draft {
    temporary: PathBuf,
    target: PathBuf,
    sheet: Box<dyn Sheet>,
}

/// Counts attempts that failed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failures {
    count: u32,
    last: Option<Moment>,
}

// === impl Outcome ===

impl Outcome {
    /// Why it was not written, if it was not.
    pub fn error(&self) -> Option<&WriteError> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Unchanged | Self::Written { .. } | Self::Deferred { .. } => None,
        }
    }

    /// Whether it was written.
    pub fn is_written(&self) -> bool {
        matches!(self, Self::Written { .. })
    }
}

// === impl WriteError ===

impl WriteError {
    pub(crate) fn at(step: WriteStep, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { step, path: path.to_owned(), source }
    }
}

// === impl WriteStep ===

impl fmt::Display for WriteStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Encode => "encode",
            Self::MakeDirectory => "make the directory",
            Self::SetAside => "set aside the unreadable",
            Self::Create => "create",
            Self::Write => "write",
            Self::SyncFile => "sync",
            Self::Rename => "rename to",
            Self::SyncDirectory => "sync the directory",
            Self::Remove => "remove",
        })
    }
}

// === impl Draft ===

impl Draft {
    /// Writes the content under a temporary name in the same directory. A failure leaves nothing behind if the disk
    /// allows it.
    pub(crate) fn write(disk: &impl Disk, target: &Path, bytes: &[u8]) -> Result<Self, WriteError> {
        let temporary = names::temporary(target);
        if bytes.len() > LARGEST_FILE {
            let error = io::Error::new(io::ErrorKind::FileTooLarge, format!("{} bytes are too many", bytes.len()));
            return Err(WriteError::at(WriteStep::Encode, target)(error));
        }
        let mut sheet = disk.create(&temporary).map_err(WriteError::at(WriteStep::Create, &temporary))?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = match sheet.write(rest) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other,
            };
            match written {
                Ok(count) => rest = &rest[count..],
                Err(error) => {
                    drop(sheet);
                    // The write has failed already; the next start removes the temporary file.
                    let _ = disk.remove(&temporary);
                    return Err(WriteError::at(WriteStep::Write, &temporary)(error));
                }
            }
        }
        Ok(Self { temporary, target: target.to_owned(), sheet })
    }

    pub(crate) fn sync(&mut self, disk: &impl Disk) -> Result<(), WriteError> {
        self.sheet.sync().map_err(|error| {
            let _ = disk.remove(&self.temporary);
            WriteError::at(WriteStep::SyncFile, &self.temporary)(error)
        })
    }

    /// Renames it to its final name.
    pub(crate) fn publish(self, disk: &impl Disk) -> Result<(), WriteError> {
        drop(self.sheet);
        disk.rename(&self.temporary, &self.target).map_err(|error| {
            let _ = disk.remove(&self.temporary);
            WriteError::at(WriteStep::Rename, &self.target)(error)
        })
    }
}

/// Writes a file that need not survive a power cut.
pub(crate) fn replace(disk: &impl Disk, target: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    Draft::write(disk, target, bytes)?.publish(disk)
}

/// Writes a file that must survive a power cut. After an error in the last step the new file is in place, whole, but
/// may not survive a power cut.
pub(crate) fn replace_durably(disk: &impl Disk, target: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let mut draft = Draft::write(disk, target, bytes)?;
    draft.sync(disk)?;
    draft.publish(disk)?;
    sync_parent(disk, target)
}

pub(crate) fn sync_parent(disk: &impl Disk, path: &Path) -> Result<(), WriteError> {
    let parent = path.parent().unwrap_or(path);
    disk.sync_dir(parent).map_err(WriteError::at(WriteStep::SyncDirectory, parent))
}

// === impl Failures ===

impl Failures {
    /// The same value is not retried before then.
    pub(crate) fn retry_at(&self, interval: std::time::Duration) -> Option<Moment> {
        self.last.map(|last| last.plus(interval))
    }

    /// There is a new value, which is tried at once.
    pub(crate) fn allow_retry(&mut self) {
        self.last = None;
    }

    pub(crate) fn record(&mut self, result: Result<(), WriteError>, now: Moment) -> Outcome {
        match result {
            Ok(()) => Outcome::Written { after_failures: std::mem::take(self).count },
            Err(error) => {
                self.count = self.count.saturating_add(1);
                self.last = Some(now);
                Outcome::Failed(error)
            }
        }
    }
}
