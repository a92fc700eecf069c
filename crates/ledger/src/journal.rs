//! The journal of a pod: the newest changes with their times.
//!
//! It is for `keelet why` and `keelet timeline`. No decision depends on it, so it is the one file on the durable disk
//! that is written without a sync: after a power cut it may be older than the evidence, or empty. It is written after
//! the evidence it was derived from, and only when there are new changes; a probe that passes again is not one. New
//! changes are also part of that evidence, so an agent that dies in between loses none.

use keelet_lifecycle::{Evidence, Moment, Why, journal};
use serde::{Deserialize, Serialize};

use crate::{
    disk::Disk,
    envelope::{Kind, Label},
    ledger::Settings,
    names,
    page::{Page, clear_the_way, encoded},
    write::{self, Failures, Outcome, WriteError, WriteStep},
};

/// How many changes are kept. A crash loop has about ten for each restart, so an hour of one at its longest backoff fits.
pub(crate) const KEPT: usize = 200;

/// The newest changes, and whether they are on disk.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    notes: Vec<journal::Note>,
    /// How many of them, the newest, are not in the file.
    unwritten: usize,
    failures: Failures,
}

/// The body of the file.
#[derive(Deserialize)]
pub(crate) struct Body {
    notes: Vec<journal::Note>,
}

#[derive(Serialize)]
struct WrittenBody<'a> {
    notes: &'a [journal::Note],
}

// === impl Journal ===

impl Journal {
    /// The journal of a file.
    pub(crate) fn found(body: Body) -> Self {
        let mut journal = Self { notes: body.notes, ..Self::default() };
        journal.bound();
        journal
    }

    /// Adds changes.
    pub(crate) fn add(
        &mut self,
        before: &Evidence,
        after: &Evidence,
        why: &[Why],
        last_seen: Option<Moment>,
        now: Moment,
    ) {
        self.append(journal::between(before, after, why, last_seen, now));
    }

    /// Adds changes that the file does not have.
    pub(crate) fn append(&mut self, notes: Vec<journal::Note>) {
        if !notes.is_empty() {
            self.unwritten += notes.len();
            self.notes.extend(notes);
            self.bound();
            self.failures.allow_retry();
        }
    }

    /// The changes that are not in the file, oldest first.
    pub(crate) fn unwritten(&self) -> &[journal::Note] {
        &self.notes[self.notes.len() - self.unwritten..]
    }

    /// Whether the file lacks changes.
    pub(crate) fn is_behind(&self) -> bool {
        self.unwritten > 0
    }

    /// All changes that are known, oldest first.
    pub(crate) fn notes(&self) -> &[journal::Note] {
        &self.notes
    }

    fn bound(&mut self) {
        let excess = self.notes.len().saturating_sub(KEPT);
        self.notes.drain(..excess);
        self.unwritten = self.unwritten.min(self.notes.len());
    }
}

// === impl Page ===

impl Page {
    /// Writes the journal if the file is outdated. A failure never affects the result for the evidence.
    pub(crate) fn write_journal(&mut self, disk: &impl Disk, settings: &Settings, now: Moment) -> Outcome {
        if self.journal.unwritten == 0 {
            return Outcome::Unchanged;
        }
        if let Some(until) = self.journal.failures.retry_at(settings.quiet_interval)
            && !now.has_reached(&until)
        {
            return Outcome::Deferred { until };
        }
        let result = self.try_write_journal(disk, settings);
        if result.is_ok() {
            self.journal.unwritten = 0;
        }
        self.journal.failures.record(result, now)
    }

    fn try_write_journal(&mut self, disk: &impl Disk, settings: &Settings) -> Result<(), WriteError> {
        let directory = names::pod_dir(&settings.durable_root, &self.directory);
        if !self.durable.has_directory {
            // The directory counts as created once its name is synced, which the write of the evidence does.
            disk.make_dir(&directory).map_err(WriteError::at(WriteStep::MakeDirectory, &directory))?;
        }
        let path = directory.join(names::JOURNAL);
        let label = Label { generation: self.generation, pod: Some(&self.pod), boot_id: None };
        let bytes = encoded(&path, Kind::Journal.encode(label, &WrittenBody { notes: &self.journal.notes }))?;
        clear_the_way(disk, &mut self.in_the_way, &path)?;
        write::replace(disk, &path, &bytes)
    }
}
