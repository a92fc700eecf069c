//! Committing evidence.
//!
//! The volatile file is written first and carries all evidence, so its rename is the moment at which a commit holds
//! against the death of the agent. The durable file follows where durable evidence changed; once its directory is
//! synced, the commit holds against the death of the node. The journal comes last, because nothing waits for it.

use std::{collections::BTreeSet, sync::Arc};

use keelet_lifecycle::{Evidence, Moment, ProbeRecord, Why};

use crate::{
    disk::Disk,
    envelope::PodRef,
    ledger::Ledger,
    names::{self, BadUid},
    page::{Page, WriteDecision},
    write::{Draft, Outcome, WriteError, WriteStep},
};

/// What the ledger has to record of a pod.
#[derive(Clone, Copy, Debug)]
pub struct PodCommit<'a> {
    /// The pod.
    pub pod: &'a PodRef,
    /// Its evidence: [`keelet_lifecycle::Plan::evidence`].
    pub evidence: &'a Arc<Evidence>,
    /// New probe results: [`keelet_lifecycle::Plan::results`].
    pub results: &'a [ProbeRecord],
    /// The status version and its reasons, where they are known.
    pub why: Option<(u64, &'a [Why])>,
}

/// The result of a commit. Memory has the newest values in any case.
#[derive(Debug)]
#[must_use]
pub struct Committed {
    /// The generation of the pod's page.
    pub generation: u64,
    /// The volatile file: survives the death of the agent, not of the node.
    pub volatile: Outcome,
    /// The durable file: survives the death of the node.
    pub durable: Outcome,
    /// The journal, for people. No decision depends on it, so its failure is not a failure of the commit.
    pub journal: Outcome,
}

/// Commits that are in memory, and what has to be written for them: [`Ledger::take`].
#[derive(Debug)]
#[must_use]
pub struct Taken(Vec<Result<(String, WriteDecision), BadUid>>);

// === impl Ledger ===

impl<D: Disk> Ledger<D> {
    /// Records the output of a plan. To be called before the plan is acted upon.
    pub fn commit(&mut self, entry: &PodCommit<'_>, now: Moment) -> Result<Committed, BadUid> {
        self.commit_many(&[*entry], now).pop().unwrap_or(Err(BadUid::Empty))
    }

    /// Records the outputs of the plans of several pods; the results are in the order of the entries.
    ///
    /// It makes as many calls as single commits would, less one sync of the common directory for each new pod beyond
    /// the first. What it saves lies in their order: all files are written, then all synced, then all renamed, then
    /// all directories synced. A file system with a journal puts the renames into one transaction, which the first
    /// directory sync writes; the others find little left to do. That is not much: with 32 pods on ext4 over a virtual
    /// disk the benchmark shows between nothing and a tenth, because the file syncs, one per pod, are what costs.
    pub fn commit_many(&mut self, entries: &[PodCommit<'_>], now: Moment) -> Vec<Result<Committed, BadUid>> {
        let mut committed = Vec::with_capacity(entries.len());
        let mut round: Vec<PodCommit<'_>> = Vec::new();
        let mut seen = BTreeSet::new();
        for entry in entries {
            // Two entries of one pod are two commits, one after the other.
            if !seen.insert(&entry.pod.uid) {
                let taken = self.take(&round, now);
                committed.extend(self.write(taken, now));
                round.clear();
                seen = BTreeSet::from([&entry.pod.uid]);
            }
            round.push(*entry);
        }
        let taken = self.take(&round, now);
        committed.extend(self.write(taken, now));
        committed
    }

    /// Takes commits of different pods into memory. They hold once [`Self::write`] has returned, at once if nothing [is
    /// due](Self::is_due).
    pub fn take(&mut self, entries: &[PodCommit<'_>], now: Moment) -> Taken {
        let (settings, last_seen) = (&self.settings, self.heartbeat.found());
        let take = |entry: &PodCommit<'_>| {
            let page = page_of(&mut self.pages, entry.pod)?;
            let decision = page.take(entry, settings.history, settings.quiet_interval, last_seen, now);
            Ok((entry.pod.uid.clone(), decision))
        };
        Taken(entries.iter().map(take).collect())
    }

    /// Whether [`Self::write`] has anything to write or to refuse. Most commits are made because a probe passed again, and write nothing.
    pub fn is_due(&self, taken: &Taken, now: Moment) -> bool {
        let interval = self.settings.quiet_interval;
        taken.0.iter().any(|commit| match commit {
            // Its error is to be returned.
            Err(_) => true,
            Ok((uid, volatile)) => {
                let is_behind =
                    |page: &Page| page.durable_write(interval, now) == WriteDecision::Now || page.journal.is_behind();
                *volatile == WriteDecision::Now || self.pages.get(uid).is_some_and(is_behind)
            }
        })
    }

    /// Writes what these commits changed; the results are in their order.
    pub fn write(&mut self, taken: Taken, now: Moment) -> Vec<Result<Committed, BadUid>> {
        let mut uids = Vec::with_capacity(taken.0.len());
        let mut committed: Vec<Result<Committed, BadUid>> = Vec::with_capacity(taken.0.len());
        for commit in taken.0 {
            committed.push(commit.map(|(uid, decision)| {
                let page = self.pages.get_mut(&uid);
                let volatile = match (decision, page) {
                    (WriteDecision::Nothing, _) | (_, None) => Outcome::Unchanged,
                    (WriteDecision::Later(until), _) => Outcome::Deferred { until },
                    (WriteDecision::Now, Some(page)) => page.write_volatile(&self.disk, &self.settings, now),
                };
                uids.push(uid);
                Committed { generation: 0, volatile, durable: Outcome::Unchanged, journal: Outcome::Unchanged }
            }));
        }
        let durable = self.write_durable(&uids, now);
        let accepted = committed.iter_mut().filter_map(|result| result.as_mut().ok());
        for ((committed, outcome), uid) in accepted.zip(durable).zip(&uids) {
            committed.durable = outcome;
            if let Some(page) = self.pages.get_mut(uid) {
                committed.generation = page.generation;
                committed.journal = page.write_journal(&self.disk, &self.settings, now);
            }
        }
        committed
    }

    /// Writes deferred changes that are due, and retries failed writes. To be called on a slow timer if pods may stay
    /// without a commit for long; commits do the same for their own pod.
    pub fn flush(&mut self, now: Moment) -> Vec<WriteError> {
        self.flush_if(now, |decision| decision == WriteDecision::Now)
    }

    /// Writes all deferred changes.
    pub(crate) fn flush_all(&mut self, now: Moment) -> Vec<WriteError> {
        self.flush_if(now, |decision| decision != WriteDecision::Nothing)
    }

    fn flush_if(&mut self, now: Moment, is_due: impl Fn(WriteDecision) -> bool) -> Vec<WriteError> {
        let mut errors = Vec::new();
        let settings = &self.settings;
        for page in self.pages.values_mut() {
            if is_due(page.volatile_write(settings.quiet_interval, now)) {
                errors.extend(failed(page.write_volatile(&self.disk, settings, now)));
            }
        }
        let behind: Vec<String> = self.pages.keys().cloned().collect();
        for outcome in self.write_durable(&behind, now) {
            errors.extend(failed(outcome));
        }
        for page in self.pages.values_mut() {
            errors.extend(failed(page.write_journal(&self.disk, &self.settings, now)));
        }
        errors
    }

    /// Writes the durable files of these pods, step by step for all of them together.
    fn write_durable(&mut self, uids: &[String], now: Moment) -> Vec<Outcome> {
        let interval = self.settings.quiet_interval;
        let mut jobs: Vec<Job> = Vec::with_capacity(uids.len());
        let mut made_directory = false;
        for uid in uids {
            let decision = self.pages.get(uid).map_or(WriteDecision::Nothing, |page| page.durable_write(interval, now));
            jobs.push(match decision {
                WriteDecision::Nothing => Job::Settled(Outcome::Unchanged),
                WriteDecision::Later(until) => Job::Settled(Outcome::Deferred { until }),
                WriteDecision::Now => match self.begin_durable(uid, &mut made_directory) {
                    Ok(draft) => Job::Written(Box::new(draft)),
                    Err(error) => Job::Failed(error),
                },
            });
        }
        // Most commits end here, because nothing durable has changed.
        if jobs.iter().all(|job| matches!(job, Job::Settled(_))) {
            return jobs.into_iter().map(|job| job.settle()).collect();
        }
        for job in &mut jobs {
            job.advance(|mut draft| {
                draft.sync(&self.disk)?;
                Ok(Job::Written(draft))
            });
        }
        for job in &mut jobs {
            job.advance(|draft| draft.publish(&self.disk).map(|()| Job::Renamed));
        }
        // The name of a new directory has to be synced too.
        let pods = self.settings.durable_root.join(names::PODS);
        let above = if made_directory {
            self.disk.sync_dir(&pods).map_err(|error| (error.kind(), error.to_string()))
        } else {
            Ok(())
        };
        let mut outcomes = Vec::with_capacity(jobs.len());
        for (job, uid) in jobs.into_iter().zip(uids) {
            let Some(page) = self.pages.get_mut(uid) else {
                outcomes.push(Outcome::Unchanged);
                continue;
            };
            let result = match job {
                Job::Settled(outcome) => {
                    outcomes.push(outcome);
                    continue;
                }
                Job::Failed(error) => Err(error),
                Job::Written(_) | Job::Renamed => {
                    let directory = names::pod_dir(&self.settings.durable_root, &page.directory);
                    let synced = self.disk.sync_dir(&directory);
                    let synced = synced.map_err(WriteError::at(WriteStep::SyncDirectory, &directory));
                    let above = above.clone().map_err(|(kind, text)| std::io::Error::new(kind, text));
                    synced.and(above.map_err(WriteError::at(WriteStep::SyncDirectory, &pods)))
                }
            };
            match &result {
                Ok(()) => page.durable.on_disk = page.durable.generation,
                Err(_) => page.durable.has_directory = false,
            }
            outcomes.push(page.durable.failures.record(result, now));
        }
        outcomes
    }

    fn begin_durable(&mut self, uid: &str, made_directory: &mut bool) -> Result<Draft, WriteError> {
        let root = &self.settings.durable_root;
        let Some(page) = self.pages.get_mut(uid) else {
            return Err(WriteError::at(WriteStep::Create, root)(std::io::ErrorKind::NotFound.into()));
        };
        let directory = names::pod_dir(root, &page.directory);
        if !page.durable.has_directory {
            self.disk.make_dir(&directory).map_err(WriteError::at(WriteStep::MakeDirectory, &directory))?;
            page.durable.has_directory = true;
            *made_directory = true;
        }
        let path = directory.join(names::EVIDENCE);
        let bytes = page.durable_file(&self.disk, &path)?;
        Draft::write(&self.disk, &path, &bytes)
    }
}

/// The pod's page, a new one if it has none.
pub(crate) fn page_of<'a>(
    pages: &'a mut std::collections::BTreeMap<String, Page>,
    pod: &PodRef,
) -> Result<&'a mut Page, BadUid> {
    if !pages.contains_key(&pod.uid) {
        let directory = names::directory_name(&pod.uid)?;
        pages.insert(pod.uid.clone(), Page::new(pod.clone(), directory));
    }
    pages.get_mut(&pod.uid).ok_or(BadUid::Empty)
}

fn failed(outcome: Outcome) -> Option<WriteError> {
    match outcome {
        Outcome::Failed(error) => Some(error),
        Outcome::Unchanged | Outcome::Written { .. } | Outcome::Deferred { .. } => None,
    }
}

/// The progress of the durable write of a pod.
enum Job {
    /// There is nothing to write.
    Settled(Outcome),
    /// Under its temporary name.
    Written(Box<Draft>),
    /// Under its name.
    Renamed,
    /// The write failed.
    Failed(WriteError),
}

// === impl Job ===

impl Job {
    fn advance(&mut self, step: impl FnOnce(Box<Draft>) -> Result<Self, WriteError>) {
        *self = match std::mem::replace(self, Self::Renamed) {
            Self::Written(draft) => step(draft).unwrap_or_else(Self::Failed),
            other => other,
        };
    }

    fn settle(self) -> Outcome {
        match self {
            Self::Settled(outcome) => outcome,
            Self::Failed(error) => Outcome::Failed(error),
            Self::Written(_) | Self::Renamed => Outcome::Unchanged,
        }
    }
}
