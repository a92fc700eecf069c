//! A file of the node in both tiers: written to tmpfs at once, and to the durable disk once a minute and at a clean stop, without a sync.

use std::{path::Path, time::Duration};

use keelet_lifecycle::Moment;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    disk::Disk,
    envelope::{Kind, Label},
    ledger::Settings,
    load::Loader,
    page::encoded,
    write::{self, Failures, Outcome, WriteError},
};

/// How old the copy on the durable disk may be: what a reboot without a clean stop loses.
const DURABLE_INTERVAL: Duration = Duration::from_secs(60);

/// The newest content of the file, and how much of it is on disk.
#[derive(Debug)]
pub(crate) struct TwoTiers {
    kind: Kind,
    name: &'static str,
    newest: Option<Box<RawValue>>,
    generation: u64,
    failures: Failures,
    /// Whether the durable copy is outdated, and when it was last tried.
    behind: bool,
    tried: Option<Moment>,
}

// === impl TwoTiers ===

impl TwoTiers {
    /// The file of that name, and the newest content found in either tier.
    pub(crate) fn load<D: Disk, B: DeserializeOwned>(
        loader: &mut Loader<'_, D>,
        kind: Kind,
        name: &'static str,
    ) -> (Self, Option<B>) {
        let (mut generation, mut newest) = (0, None);
        for root in [loader.volatile_root, loader.durable_root] {
            let found = loader.node_file::<B>(&root.join(name), kind);
            if let Some(found) = found.filter(|found| found.generation > generation) {
                (generation, newest) = (found.generation, Some(found.body));
            }
        }
        let failures = Failures::default();
        (Self { kind, name, newest: None, generation, failures, behind: false, tried: None }, newest)
    }

    /// Keeps a new content. `lasting` says whether a reboot has to remember the change.
    pub(crate) fn keep(
        &mut self,
        disk: &impl Disk,
        settings: &Settings,
        body: &impl Serialize,
        lasting: bool,
        now: Moment,
    ) -> Outcome {
        // The agent's own types can always be serialised.
        let Ok(body) = to_raw_value(body) else { return Outcome::Unchanged };
        self.newest = Some(body);
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
        let Some(body) = &self.newest else { return Ok(()) };
        let path = root.join(self.name);
        let label = Label { generation: self.generation, pod: None, boot_id: None };
        write::replace(disk, &path, &encoded(&path, self.kind.encode(label, body))?)
    }
}
