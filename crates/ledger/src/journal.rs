//! The journal of a pod: what changed when, the newest changes only.
//!
//! It is there for `keelet why` and `keelet timeline`. Nothing is decided from it, so it is the one file on the durable
//! disk that is written without a sync: after a power cut it may be older than the evidence, or empty. It is written
//! after the evidence it was derived from, and only when there is something new; a probe that passes again is not.
//! What is new travels with that evidence, so that an agent that dies in between takes nothing along.

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

/// What the file holds.
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
    /// What a file said.
    pub(crate) fn found(body: Body) -> Self {
        let mut journal = Self { notes: body.notes, ..Self::default() };
        journal.bound();
        journal
    }

    /// Notes what changed.
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

    /// Takes notes that the file does not have.
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
    /// Writes the journal if it is behind. What became of it never changes what became of the evidence.
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
            // It counts as made once its name is synced, which is for the evidence to do.
            disk.make_dir(&directory).map_err(WriteError::at(WriteStep::MakeDirectory, &directory))?;
        }
        let path = directory.join(names::JOURNAL);
        let label = Label { generation: self.generation, pod: Some(&self.pod), boot_id: None };
        let bytes = encoded(&path, Kind::Journal.encode(label, &WrittenBody { notes: &self.journal.notes }))?;
        clear_the_way(disk, &mut self.in_the_way, &path)?;
        write::replace(disk, &path, &bytes)
    }
}
