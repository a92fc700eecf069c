//! What is remembered of the node itself: its conditions, the probes of its components, its gates.
//!
//! It is written to tmpfs, where an agent of the same boot finds it, at once where a decision could rest on the change. The copy on the durable
//! disk is for the transition times of conditions after a reboot: it follows once a minute if something has changed that they depend on, and
//! at a clean stop. A probe that passes again changes nothing of that.

use std::{path::Path, time::Duration};

use keelet_lifecycle::{Moment, node::NodeEvidence};
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    disk::Disk,
    envelope::{Kind, Label},
    ledger::Settings,
    load::Loader,
    names,
    page::encoded,
    write::{self, Failures, Outcome, WriteError},
};

/// How old the copy on the durable disk may be: what a reboot without a clean stop loses.
const DURABLE_INTERVAL: Duration = Duration::from_secs(60);

/// The newest evidence of the node, and how much of it is on disk.
#[derive(Debug, Default)]
pub(crate) struct NodeFile {
    newest: Option<Box<RawValue>>,
    generation: u64,
    failures: Failures,
    /// Whether the durable copy is outdated, and when it was last tried.
    behind: bool,
    tried: Option<Moment>,
}

// === impl NodeFile ===

impl NodeFile {
    /// The newest evidence found in either tier.
    pub(crate) fn load<D: Disk>(loader: &mut Loader<'_, D>) -> (Self, Option<NodeEvidence>) {
        let (mut generation, mut newest) = (0, None);
        for root in [loader.volatile_root, loader.durable_root] {
            let found = loader.node_file::<NodeEvidence>(&root.join(names::NODE), Kind::Node);
            if let Some(found) = found.filter(|found| found.generation > generation) {
                (generation, newest) = (found.generation, Some(found.body));
            }
        }
        (Self { generation, ..Self::default() }, newest)
    }

    /// Keeps the evidence. `lasting` says whether conditions have changed, which a reboot has to remember.
    pub(crate) fn keep(
        &mut self,
        disk: &impl Disk,
        settings: &Settings,
        evidence: &NodeEvidence,
        lasting: bool,
        now: Moment,
    ) -> Outcome {
        // The ledger's own types can always be serialised.
        let Ok(evidence) = to_raw_value(evidence) else { return Outcome::Unchanged };
        self.newest = Some(evidence);
        self.generation += 1;
        self.behind |= lasting;
        let written = self.put(disk, &settings.volatile_root);
        self.failures.record(written, now)
    }

    /// Writes the durable copy if it is due.
    pub(crate) fn flush(&mut self, disk: &impl Disk, settings: &Settings, now: Moment) -> Result<(), WriteError> {
        let early = self.tried.is_some_and(|tried| !now.has_reached(&tried.plus(DURABLE_INTERVAL)));
        if early { Ok(()) } else { self.catch_up(disk, settings, now) }
    }

    /// Writes the durable copy.
    pub(crate) fn catch_up(&mut self, disk: &impl Disk, settings: &Settings, now: Moment) -> Result<(), WriteError> {
        if !self.behind {
            return Ok(());
        }
        self.tried = Some(now);
        self.put(disk, &settings.durable_root)?;
        self.behind = false;
        Ok(())
    }

    fn put(&self, disk: &impl Disk, root: &Path) -> Result<(), WriteError> {
        let Some(evidence) = &self.newest else { return Ok(()) };
        let path = root.join(names::NODE);
        let label = Label { generation: self.generation, pod: None, boot_id: None };
        write::replace(disk, &path, &encoded(&path, Kind::Node.encode(label, evidence))?)
    }
}
