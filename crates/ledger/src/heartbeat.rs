//! When the agent was last alive.
//!
//! A standalone node has no control plane that notices the absence of its agent, so the next agent has to know how long
//! it was. Two files record it:
//!
//! - On tmpfs, written every two seconds. An agent restart within a boot reads it and compares by boot time, so the
//!   answer is off by two seconds at most, whatever the wall clock did.
//! - On the durable disk, written at a clean stop and otherwise once a minute: a write with two syncs is too dear for
//!   more. It counts only after a reboot, when tmpfs is empty, and compares by wall time. Being up to a minute late
//!   then overstates the absence, which is harmless: no container has survived whose readiness could be doubted.
//!
//! A run that dies before it has planned every pod must not hide how long no agent ran before it. So the heartbeat also carries the
//! newest long absence ([`Absence`]).

use std::{path::Path, time::Duration};

use keelet_lifecycle::{Moment, observed::Absence};
use serde::{Deserialize, Serialize};

use crate::{
    disk::Disk,
    envelope::{Decoded, Kind, Label},
    ledger::Settings,
    load::Loader,
    names,
    write::{self, Failures, Outcome, WriteError, WriteStep},
};

/// A small part of the usual node monitor grace period of 50 s, so it does not blur the comparison with it.
const VOLATILE_INTERVAL: Duration = Duration::from_secs(2);
const DURABLE_INTERVAL: Duration = Duration::from_secs(60);

/// The result of a heartbeat.
#[derive(Debug)]
#[must_use]
pub struct Beat {
    /// On tmpfs.
    pub volatile: Outcome,
    /// On the durable disk.
    pub durable: Outcome,
}

/// When the agent was last alive, and what of it is on disk.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    found: Option<Moment>,
    /// The newest long absence: found, or set since.
    pub(crate) absence: Option<Absence>,
    generation: u64,
    volatile: Copy,
    durable: Copy,
}

#[derive(Debug, Default)]
struct Copy {
    tried: Option<Moment>,
    failures: Failures,
}

#[derive(Serialize, Deserialize)]
struct Body {
    at: Moment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    absence: Option<Absence>,
}

// === impl Heartbeat ===

impl Heartbeat {
    pub(crate) fn load<D: Disk>(loader: &mut Loader<'_, D>) -> Self {
        let mut found: Option<Body> = None;
        for root in [loader.volatile_root, loader.durable_root] {
            let body: Option<Decoded<Body>> = loader.node_file(&root.join(names::HEARTBEAT), Kind::Heartbeat);
            let newer = |body: &Body| found.as_ref().is_none_or(|other| !other.at.has_reached(&body.at));
            if let Some(body) = body.map(|decoded| decoded.body).filter(newer) {
                found = Some(body);
            }
        }
        let absence = found.as_ref().and_then(|body| body.absence);
        Self { found: found.map(|body| body.at), absence, ..Self::default() }
    }

    pub(crate) fn found(&self) -> Option<Moment> {
        self.found
    }

    pub(crate) fn beat(&mut self, disk: &impl Disk, settings: &Settings, now: Moment) -> Beat {
        self.generation += 1;
        let (generation, body) = (self.generation, Body { at: now, absence: self.absence });
        let volatile = self
            .volatile
            .write(now, VOLATILE_INTERVAL, || put(disk, &settings.volatile_root, generation, &body, write::replace));
        let durable = self.durable.write(now, DURABLE_INTERVAL, || {
            put(disk, &settings.durable_root, generation, &body, write::replace_durably)
        });
        Beat { volatile, durable }
    }

    pub(crate) fn stop(&mut self, disk: &impl Disk, settings: &Settings, now: Moment) -> Vec<WriteError> {
        let (last, body) = (self.generation + 1, Body { at: now, absence: self.absence });
        let volatile = put(disk, &settings.volatile_root, last, &body, write::replace);
        let durable = put(disk, &settings.durable_root, last, &body, write::replace_durably);
        [volatile, durable].into_iter().filter_map(Result::err).collect()
    }
}

fn put<D: Disk>(
    disk: &D,
    root: &Path,
    generation: u64,
    body: &Body,
    replace: impl FnOnce(&D, &Path, &[u8]) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let path = root.join(names::HEARTBEAT);
    let label = Label { generation, pod: None, boot_id: None };
    let bytes = Kind::Heartbeat.encode(label, body);
    let bytes = bytes.map_err(|error| WriteError::at(WriteStep::Encode, &path)(error.into()))?;
    replace(disk, &path, &bytes)
}

// === impl Copy ===

impl Copy {
    fn write(&mut self, now: Moment, interval: Duration, write: impl FnOnce() -> Result<(), WriteError>) -> Outcome {
        if let Some(until) = self.tried.map(|tried| tried.plus(interval))
            && !now.has_reached(&until)
        {
            return Outcome::Deferred { until };
        }
        self.tried = Some(now);
        self.failures.record(write(), now)
    }
}
