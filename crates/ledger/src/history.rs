//! The newest probe results: a ring for each probe of each container.
//!
//! A record is turned into JSON once, when it comes in. Rewriting the file with one record more then copies bytes
//! instead of serialising every record again; that is what makes a history affordable that is rewritten every second.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use keelet_lifecycle::{BootId, Moment, ProbeRecord, Wall, operation::Outcome};
use keelet_pod::ProbeKind;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// The limits of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Records for each probe of each container. Sixteen show a flapping probe's last minutes at the usual period.
    pub records: usize,
    /// Bytes of a probe's output. Enough for a status line and the beginning of a response.
    pub output_bytes: usize,
}

/// The newest results of all probes of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    rings: Rings,
}

/// By container and probe, oldest record first.
type Rings = BTreeMap<String, BTreeMap<ProbeKind, VecDeque<Box<RawValue>>>>;

/// One result in a file. Container and probe are its keys, and the boot is in the envelope.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    id: String,
    boot_ms: i64,
    wall: Wall,
    outcome: Outcome,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    eager: bool,
    latency_ms: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    output: String,
}

// === impl Bounds ===

impl Default for Bounds {
    fn default() -> Self {
        Self { records: 16, output_bytes: 256 }
    }
}

// === impl History ===

impl History {
    /// Adds results, and drops the oldest beyond the limits.
    pub(crate) fn add(&mut self, results: &[ProbeRecord], bounds: Bounds) {
        for record in results {
            let line = Line {
                id: record.id.clone(),
                boot_ms: record.at.boot_ms,
                wall: record.at.wall,
                outcome: record.outcome,
                eager: record.eager,
                latency_ms: u64::try_from(record.latency.as_millis()).unwrap_or(u64::MAX),
                output: shortened(&record.output, bounds.output_bytes).to_owned(),
            };
            let Ok(line) = to_raw_value(&line) else { continue };
            let probes = self.rings.entry(record.container.clone()).or_default();
            let ring = probes.entry(record.probe).or_default();
            ring.push_back(line);
            while ring.len() > bounds.records {
                ring.pop_front();
            }
        }
    }

    /// The body of the file.
    pub(crate) fn body(&self) -> &impl Serialize {
        &self.rings
    }

    /// Parses a file's body. An invalid body is an error, not a shorter history.
    pub(crate) fn parse(body: &RawValue, bounds: Bounds) -> Result<Self, serde_json::Error> {
        let mut rings: Rings = serde_json::from_str(body.get())?;
        for ring in rings.values_mut().flat_map(BTreeMap::values_mut) {
            for line in ring.iter() {
                serde_json::from_str::<Line>(line.get())?;
            }
            while ring.len() > bounds.records {
                ring.pop_front();
            }
        }
        Ok(Self { rings })
    }

    /// All results, by container and probe, oldest first.
    pub(crate) fn records(&self, boot_id: BootId) -> Vec<ProbeRecord> {
        let mut records = Vec::new();
        for (container, probes) in &self.rings {
            for (probe, ring) in probes {
                let lines = ring.iter().filter_map(|line| serde_json::from_str::<Line>(line.get()).ok());
                records.extend(lines.map(|line| ProbeRecord {
                    container: container.clone(),
                    id: line.id,
                    probe: *probe,
                    eager: line.eager,
                    at: Moment { boot_ms: line.boot_ms, wall: line.wall, boot_id },
                    outcome: line.outcome,
                    latency: Duration::from_millis(line.latency_ms),
                    output: line.output,
                }));
            }
        }
        records
    }
}

/// At most `limit` bytes of the text, whole characters only.
fn shortened(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}
