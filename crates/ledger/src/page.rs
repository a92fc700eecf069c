//! A pod's page: its newest state in memory, and how much of that is on disk.
//!
//! A page has the newest value of everything. Files follow it. A write that fails changes nothing here, so the next
//! commit finds the same difference and retries.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use keelet_lifecycle::{
    BootId, Evidence, Moment, Why,
    evidence::{Durable, Volatile},
    journal::Note,
};
use serde::{Deserialize, Serialize};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::{
    commit::PodCommit,
    disk::Disk,
    envelope::{Damage, Kind, Label, PodRef, check_generation},
    history::{Bounds, History},
    journal::Journal,
    ledger::Settings,
    names,
    quiet::{self, Change},
    set_aside::set_aside,
    write::{self, Failures, Outcome, WriteError, WriteStep},
};

/// The newest state of a pod, and how much of it is on disk.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) pod: PodRef,
    /// The name of its directories.
    pub(crate) directory: String,
    /// Rises with every commit that writes.
    pub(crate) generation: u64,
    /// Shared with the agent, so that there is one copy.
    pub(crate) evidence: Arc<Evidence>,
    pub(crate) durable: DurablePart,
    pub(crate) volatile: VolatilePart,
    pub(crate) copy: PodCopy,
    pub(crate) journal: Journal,
    /// Files that cannot be read and could not be moved. They are never overwritten.
    pub(crate) in_the_way: BTreeSet<PathBuf>,
}

/// The state of the durable evidence.
#[derive(Debug, Default)]
pub(crate) struct DurablePart {
    /// As JSON, on one line: the volatile file contains it unchanged.
    pub(crate) json: Box<RawValue>,
    /// The generation in which the value last changed; 0 before the first commit.
    pub(crate) generation: u64,
    /// The newest generation known to be on the durable disk; 0 if none is.
    pub(crate) on_disk: u64,
    /// Whether the pod's directory exists.
    pub(crate) has_directory: bool,
    pub(crate) failures: Failures,
}

/// The state of the volatile evidence, and of what is kept beside it.
#[derive(Debug, Default)]
pub(crate) struct VolatilePart {
    /// The content of the file, and the durable evidence in it; `None` if there is no usable file.
    pub(crate) written: Option<(Arc<Evidence>, u64)>,
    pub(crate) written_at: Option<Moment>,
    pub(crate) history: History,
    pub(crate) history_unwritten: bool,
    pub(crate) explanation: Option<Explanation>,
    pub(crate) explanation_unwritten: bool,
    pub(crate) has_directory: bool,
    pub(crate) failures: Failures,
}

/// The copy of the pod.
#[derive(Debug, Default)]
pub(crate) struct PodCopy {
    pub(crate) json: Option<Box<RawValue>>,
    pub(crate) unwritten: bool,
    pub(crate) failures: Failures,
}

/// The reasons of the newest status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The version of the status: [`keelet_lifecycle::Plan::version`].
    pub status_version: u64,
    /// Its reasons: [`keelet_lifecycle::Plan::why`].
    pub why: Vec<Why>,
}

/// The body of the volatile evidence file. It contains the durable evidence too: one rename commits both, whatever
/// happens to the durable file afterwards.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolatileBody<'a> {
    pub(crate) volatile: &'a Volatile,
    pub(crate) durable_generation: u64,
    pub(crate) durable_on_disk: u64,
    pub(crate) durable: &'a RawValue,
    /// The reasons that belong to this evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) explanation: Option<&'a Explanation>,
    /// Changes that are not in the journal's file yet.
    #[serde(skip_serializing_if = "<[Note]>::is_empty")]
    pub(crate) notes: &'a [Note],
}

/// The same, as read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadVolatileBody {
    pub(crate) volatile: Volatile,
    pub(crate) durable_generation: u64,
    pub(crate) durable_on_disk: u64,
    pub(crate) durable: Box<RawValue>,
    #[serde(default)]
    pub(crate) explanation: Option<Explanation>,
    #[serde(default)]
    pub(crate) notes: Vec<Note>,
}

// === impl ReadVolatileBody ===

impl ReadVolatileBody {
    /// Whether its generations are consistent with the generation of the file: durable evidence is put into it by the
    /// commit that changes it, and is on disk only afterwards.
    pub(crate) fn check(&self, generation: u64) -> Result<(), Damage> {
        check_generation(self.durable_generation, generation)?;
        check_generation(self.durable_on_disk, self.durable_generation)
    }
}

/// The effect of a commit on the volatile files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteDecision {
    /// They are up to date.
    Nothing,
    /// To be written from then on.
    Later(Moment),
    /// To be written at once.
    Now,
}

/// Changes that decide nothing, which are probes that passed again, are written every so many quiet intervals: a successor decides the same
/// without them.
const QUIET_INTERVALS: u32 = 10;

// === impl Page ===

impl Page {
    pub(crate) fn new(pod: PodRef, directory: String) -> Self {
        Self {
            pod,
            directory,
            generation: 0,
            evidence: Arc::default(),
            durable: DurablePart::default(),
            volatile: VolatilePart::default(),
            copy: PodCopy::default(),
            journal: Journal::default(),
            in_the_way: BTreeSet::new(),
        }
    }

    /// Adds durable evidence that was found on disk.
    pub(crate) fn take_found(&mut self, durable: Durable, generation: u64, on_disk: u64) {
        self.durable.json = to_raw_value(&durable).unwrap_or_default();
        self.durable.generation = generation;
        self.durable.on_disk = on_disk;
        Arc::make_mut(&mut self.evidence).durable = durable;
    }

    /// Adds the newest values, and returns when the volatile files have to be written. `last_seen` is when the previous
    /// agent was last alive.
    pub(crate) fn take(
        &mut self,
        entry: &PodCommit<'_>,
        bounds: Bounds,
        interval: Duration,
        last_seen: Option<Moment>,
        now: Moment,
    ) -> WriteDecision {
        self.pod.clone_from(entry.pod);
        let before = std::mem::replace(&mut self.evidence, Arc::clone(entry.evidence));
        self.journal.add(&before, entry.evidence, entry.why.map_or(&[], |(_, why)| why), last_seen, now);
        let mut decisive = false;
        if self.durable.generation == 0 || before.durable != entry.evidence.durable {
            // A map with string keys and finite numbers can always be serialised.
            if let Ok(json) = to_raw_value(&entry.evidence.durable) {
                self.durable.json = json;
                self.durable.generation = self.generation + 1;
                self.durable.failures.allow_retry();
            }
            decisive = true;
        }
        // Compared with the last commit: a file that could not be written does not make every later change decisive.
        decisive |= quiet::change(&before.volatile, &entry.evidence.volatile) == Change::Decisive;
        let volatile = &mut self.volatile;
        if !entry.results.is_empty() {
            volatile.history.add(entry.results, bounds);
            volatile.history_unwritten = true;
        }
        if let Some((status_version, why)) = entry.why
            && volatile.explanation.as_ref().is_none_or(|e| e.status_version != status_version || e.why != why)
        {
            volatile.explanation = Some(Explanation { status_version, why: why.to_vec() });
            volatile.explanation_unwritten = true;
        }
        if decisive { WriteDecision::Now } else { self.volatile_write(interval, now) }
    }

    /// Whether the volatile files are outdated, and whether a write is due.
    pub(crate) fn volatile_write(&self, interval: Duration, now: Moment) -> WriteDecision {
        let volatile = &self.volatile;
        let change = match &volatile.written {
            Some((written, durable)) if *durable == self.durable.generation => {
                quiet::change(&written.volatile, &self.evidence.volatile)
            }
            Some(_) | None => Change::Decisive,
        };
        let behind = change != Change::None || volatile.history_unwritten || volatile.explanation_unwritten;
        let wait = if volatile.explanation_unwritten { interval } else { interval * QUIET_INTERVALS };
        let due = match volatile.failures.retry_at(interval) {
            Some(retry_at) => Some(retry_at),
            None if change == Change::Decisive => None,
            None => volatile.written_at.map(|at| at.plus(wait)),
        };
        match due {
            _ if !behind => WriteDecision::Nothing,
            Some(due) if !now.has_reached(&due) => WriteDecision::Later(due),
            Some(_) | None => WriteDecision::Now,
        }
    }

    /// Whether the durable file is outdated, and whether a write is due.
    pub(crate) fn durable_write(&self, interval: Duration, now: Moment) -> WriteDecision {
        if self.durable.on_disk == self.durable.generation {
            return WriteDecision::Nothing;
        }
        match self.durable.failures.retry_at(interval) {
            Some(retry_at) if !now.has_reached(&retry_at) => WriteDecision::Later(retry_at),
            Some(_) | None => WriteDecision::Now,
        }
    }

    /// Writes the outdated volatile files.
    pub(crate) fn write_volatile(&mut self, disk: &impl Disk, settings: &Settings, now: Moment) -> Outcome {
        let directory = names::pod_dir(&settings.volatile_root, &self.directory);
        let result = self.try_write_volatile(disk, &directory, settings.boot_id);
        match &result {
            Ok(()) => self.volatile.written_at = Some(now),
            // Another program may have cleaned up /run.
            Err(_) => self.volatile.has_directory = false,
        }
        self.volatile.failures.record(result, now)
    }

    fn try_write_volatile(&mut self, disk: &impl Disk, directory: &Path, boot_id: BootId) -> Result<(), WriteError> {
        self.generation += 1;
        if !self.volatile.has_directory {
            disk.make_dir(directory).map_err(WriteError::at(WriteStep::MakeDirectory, directory))?;
            self.volatile.has_directory = true;
        }
        let label = Label { generation: self.generation, pod: Some(&self.pod), boot_id: Some(boot_id) };
        let body = VolatileBody {
            volatile: &self.evidence.volatile,
            durable_generation: self.durable.generation,
            durable_on_disk: self.durable.on_disk,
            durable: &self.durable.json,
            explanation: self.volatile.explanation.as_ref(),
            notes: self.journal.unwritten(),
        };
        let path = directory.join(names::EVIDENCE);
        let bytes = encoded(&path, Kind::Volatile.encode(label, &body))?;
        clear_the_way(disk, &mut self.in_the_way, &path)?;
        write::replace(disk, &path, &bytes)?;
        self.volatile.written = Some((Arc::clone(&self.evidence), self.durable.generation));
        self.volatile.explanation_unwritten = false;
        if self.volatile.history_unwritten {
            let path = directory.join(names::HISTORY);
            let bytes = encoded(&path, Kind::History.encode(label, self.volatile.history.body()))?;
            clear_the_way(disk, &mut self.in_the_way, &path)?;
            write::replace(disk, &path, &bytes)?;
            self.volatile.history_unwritten = false;
        }
        Ok(())
    }

    /// The durable file as it should be.
    pub(crate) fn durable_file(&mut self, disk: &impl Disk, path: &Path) -> Result<Vec<u8>, WriteError> {
        clear_the_way(disk, &mut self.in_the_way, path)?;
        let label = Label { generation: self.durable.generation, pod: Some(&self.pod), boot_id: None };
        encoded(path, Kind::Durable.encode(label, &self.evidence.durable))
    }

    /// The copy of the pod as it should be on disk.
    pub(crate) fn copy_file(&mut self, disk: &impl Disk, path: &Path) -> Result<Vec<u8>, WriteError> {
        clear_the_way(disk, &mut self.in_the_way, path)?;
        let label = Label { generation: self.generation, pod: Some(&self.pod), boot_id: None };
        // Parsed again for its line breaks; a pod seldom changes.
        let copy = self.copy.json.as_ref().and_then(|json| serde_json::from_str::<Value>(json.get()).ok());
        encoded(path, Kind::Pod.encode(label, &copy))
    }
}

pub(crate) fn encoded(path: &Path, bytes: Result<Vec<u8>, serde_json::Error>) -> Result<Vec<u8>, WriteError> {
    bytes.map_err(|error| WriteError::at(WriteStep::Encode, path)(error.into()))
}

/// Sets aside files that could not be moved at the start, before they are replaced.
pub(crate) fn clear_the_way(disk: &impl Disk, blocked: &mut BTreeSet<PathBuf>, path: &Path) -> Result<(), WriteError> {
    if blocked.contains(path) {
        set_aside(disk, path).map_err(WriteError::at(WriteStep::SetAside, path))?;
        blocked.remove(path);
    }
    Ok(())
}
