//! The newest events of the node, as readers were told them: so that `keelet events` knows what an earlier agent told.
//!
//! What an event looks like is the agent's business; here they are one piece of JSON. It is written when there is something
//! new: to tmpfs at once, which costs a copy of some hundred kilobytes at most, and to the durable disk once a minute and at a
//! clean stop, without a sync. A probe that passes makes no event, so nothing of this happens while all is well.

use std::{path::Path, time::Duration};

use keelet_lifecycle::Moment;
use serde::{Deserialize, Serialize};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::{
    disk::Disk,
    envelope::{Kind, Label},
    ledger::Settings,
    load::Loader,
    names,
    page::encoded,
    write::{self, Failures, Outcome, WriteError},
};

/// How long the durable disk may be behind: what a reboot without a clean stop costs.
const DURABLE_INTERVAL: Duration = Duration::from_secs(60);

/// The newest events, and how much of them is on disk.
#[derive(Debug, Default)]
pub(crate) struct Events {
    newest: Option<Box<RawValue>>,
    generation: u64,
    failures: Failures,
    /// Whether the durable disk is behind, and when it was last tried.
    behind: bool,
    tried: Option<Moment>,
}

#[derive(Serialize)]
struct WrittenBody<'a> {
    events: &'a RawValue,
}

#[derive(Deserialize)]
struct Body {
    events: Vec<Value>,
}

// === impl Events ===

impl Events {
    /// The newest that there are, in whichever tier.
    pub(crate) fn load<D: Disk>(loader: &mut Loader<'_, D>) -> (Self, Vec<Value>) {
        let (mut generation, mut newest) = (0, Vec::new());
        for root in [loader.volatile_root, loader.durable_root] {
            let found = loader.node_file::<Body>(&root.join(names::EVENTS), Kind::Events);
            if let Some(found) = found.filter(|found| found.generation > generation) {
                (generation, newest) = (found.generation, found.body.events);
            }
        }
        (Self { generation, ..Self::default() }, newest)
    }

    pub(crate) fn keep(
        &mut self,
        disk: &impl Disk,
        settings: &Settings,
        events: &impl Serialize,
        now: Moment,
    ) -> Outcome {
        // What was made by the agent can be written.
        let Ok(events) = to_raw_value(events) else { return Outcome::Unchanged };
        self.newest = Some(events);
        self.generation += 1;
        self.behind = true;
        let written = self.put(disk, &settings.volatile_root);
        self.failures.record(written, now)
    }

    /// Brings the durable disk up to date, if it is time to.
    pub(crate) fn flush(&mut self, disk: &impl Disk, settings: &Settings, now: Moment) -> Result<(), WriteError> {
        let early = self.tried.is_some_and(|tried| !now.has_reached(&tried.plus(DURABLE_INTERVAL)));
        if early { Ok(()) } else { self.catch_up(disk, settings, now) }
    }

    /// Brings the durable disk up to date.
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
        let Some(events) = &self.newest else { return Ok(()) };
        let path = root.join(names::EVENTS);
        let label = Label { generation: self.generation, pod: None, boot_id: None };
        write::replace(disk, &path, &encoded(&path, Kind::Events.encode(label, &WrittenBody { events }))?)
    }
}
