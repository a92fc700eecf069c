//! The newest events of the node, so that `keelet events` shows those of earlier agents too.
//!
//! The agent defines what an event looks like; here they are one piece of JSON. It is written when there is a new
//! event: to tmpfs at once, which costs a copy of some hundred kilobytes at most, and to the durable disk once a minute
//! and at a clean stop, without a sync. A probe that passes emits no event, so nothing is written while all is well.

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

/// How old the copy on the durable disk may be: what a reboot without a clean stop loses.
const DURABLE_INTERVAL: Duration = Duration::from_secs(60);

/// The newest events, and how much of them is on disk.
#[derive(Debug, Default)]
pub(crate) struct Events {
    newest: Option<Box<RawValue>>,
    generation: u64,
    failures: Failures,
    /// Whether the durable copy is outdated, and when it was last tried.
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
    /// The newest events found in either tier.
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
        // The agent's own JSON can always be serialised.
        let Ok(events) = to_raw_value(events) else { return Outcome::Unchanged };
        self.newest = Some(events);
        self.generation += 1;
        self.behind = true;
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
        let Some(events) = &self.newest else { return Ok(()) };
        let path = root.join(names::EVENTS);
        let label = Label { generation: self.generation, pod: None, boot_id: None };
        write::replace(disk, &path, &encoded(&path, Kind::Events.encode(label, &WrittenBody { events }))?)
    }
}
