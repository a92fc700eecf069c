//! Removed pods: the newest ones, for `keelet why`, `keelet timeline` and `keelet describe`.
//!
//! Each is one file, written from memory when the pod is removed, in one of [`KEPT`] slots that are reused in order:
//! there are never more, and nothing has to be cleaned up. No decision depends on them, so they are written without a
//! sync, and a failed write loses the record of one pod and nothing else.

use std::path::Path;

use keelet_lifecycle::{Evidence, Moment, journal::Note};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    disk::Disk,
    envelope::{Kind, Label},
    history::History,
    ledger::Settings,
    load::{Fate, Loader, Recovered},
    names,
    page::{Explanation, Page, encoded},
    write::{self, WriteError, WriteStep},
};

/// How many are kept: those of a bad hour on a small node, or of one rollout.
const KEPT: u64 = 20;

/// A removed pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Gone {
    /// When it was removed.
    pub at: Moment,
    /// What was known of it at that time.
    pub pod: Recovered,
}

/// The slot of the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    /// The sequence number of the newest, counted from the first pod that was ever removed.
    last: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenBody<'a, H> {
    at: Moment,
    copy: Option<&'a RawValue>,
    evidence: &'a Evidence,
    history: &'a H,
    explanation: Option<&'a Explanation>,
    journal: &'a [Note],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    at: Moment,
    copy: Option<Value>,
    evidence: Evidence,
    history: Box<RawValue>,
    explanation: Option<Explanation>,
    journal: Vec<Note>,
}

/// All removed pods on disk, the newest last.
pub(crate) fn load<D: Disk>(loader: &mut Loader<'_, D>) -> (Places, Vec<Gone>) {
    let directory = loader.durable_root.join(names::GONE_PODS);
    // Without the directory no pod was ever removed.
    let entries = loader.disk.list(&directory).unwrap_or_default();
    let mut found = Vec::new();
    for entry in entries {
        let path = directory.join(&entry.name);
        if names::is_leftover(&entry.name) {
            loader.tidy(&path);
        } else if names::place_of_gone(&entry.name).is_some_and(|place| place < KEPT) {
            found.extend(read(loader, &path));
        }
    }
    found.sort_by_key(|(generation, _)| *generation);
    let last = found.last().map_or(0, |(generation, _)| *generation);
    (Places { last }, found.into_iter().map(|(_, gone)| gone).collect())
}

fn read<D: Disk>(loader: &mut Loader<'_, D>, path: &Path) -> Option<(u64, Gone)> {
    let decoded = loader.node_file::<Body>(path, Kind::Gone)?;
    let Body { at, copy, evidence, history, explanation, journal } = decoded.body;
    let fate = Fate::Kept { generation: decoded.generation };
    let history = History::parse(&history, loader.bounds).unwrap_or_default();
    let pod = Recovered {
        uid: decoded.pod.as_ref().map(|pod| pod.uid.clone()).unwrap_or_default(),
        pod: decoded.pod,
        copy,
        evidence,
        durable: fate,
        volatile: fate,
        history: history.records(decoded.boot_id.unwrap_or_default()),
        explanation,
        journal,
    };
    Some((decoded.generation, Gone { at, pod }))
}

// === impl Places ===

impl Places {
    /// Writes the record of a removed pod.
    pub(crate) fn keep(
        &mut self,
        disk: &impl Disk,
        settings: &Settings,
        page: &Page,
        at: Moment,
    ) -> Result<(), WriteError> {
        let directory = settings.durable_root.join(names::GONE_PODS);
        disk.make_dir(&directory).map_err(WriteError::at(WriteStep::MakeDirectory, &directory))?;
        let generation = self.last + 1;
        let path = directory.join(names::gone_pod(generation % KEPT));
        let label = Label { generation, pod: Some(&page.pod), boot_id: Some(settings.boot_id) };
        let body = WrittenBody {
            at,
            copy: page.copy.json.as_deref(),
            evidence: &page.evidence,
            history: page.volatile.history.body(),
            explanation: page.volatile.explanation.as_ref(),
            journal: page.journal.notes(),
        };
        write::replace(disk, &path, &encoded(&path, Kind::Gone.encode(label, &body))?)?;
        self.last = generation;
        Ok(())
    }
}
