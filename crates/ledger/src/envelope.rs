//! What every file of the ledger has in common: what it is, of which version, about whom, and whether it is whole.
//!
//! ```text
//! {
//!   "format": "keelet.evidence.durable",
//!   "version": 1,
//!   "generation": 17,
//!   "pod": { "uid": ..., "namespace": ..., "name": ... },
//!   "bootId": ...,                    volatile files only
//!   "body": { ... },
//!   "crc32": "1c291ca3"
//! }
//! ```
//!
//! The last line but one covers every byte before it, so a flipped bit is found also where the JSON stays valid: a
//! restart count that was never written is worse than none.

use std::io;

use keelet_lifecycle::BootId;
use rustix::io::Errno;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{
    crc::crc32,
    disk::shortage,
    lines::Lines,
    migrate::{self, Migration},
};

/// No file of the ledger is larger. A pod is at most 1.5 MiB at an API server; the rest is bounded by us, and is
/// smaller.
pub const LARGEST_FILE: usize = 8 << 20;

/// No generation is larger. A commit every microsecond takes ten thousand years to get there, so a larger one was made
/// up; and there is always one after it.
pub(crate) const LARGEST_GENERATION: u64 = 1 << 58;

/// The pod that a file is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRef {
    /// Its UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Evidence that survives a reboot.
    Durable,
    /// Evidence about running containers.
    Volatile,
    /// A copy of the pod.
    Pod,
    /// What changed when.
    Journal,
    /// Probe results.
    History,
    /// The reasons of the newest plan.
    Why,
    /// When the agent was last seen alive.
    Heartbeat,
    /// The newest events of the node.
    Events,
    /// A pod that is gone.
    Gone,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The disk or its permissions forbid it, or it is no regular file, or too large.
    #[error("it cannot be read: {0}")]
    Unreadable(io::Error),
    /// It has no contents.
    #[error("it is empty")]
    Empty,
    /// It is cut off, or no JSON, or lacks what every file of ours has.
    #[error("it is cut off or was not written by keelet: {0}")]
    Malformed(serde_json::Error),
    /// Some byte is not what was written.
    #[error("its contents do not match its checksum: damaged, or edited by hand")]
    Checksum,
    /// It is something else.
    #[error("it holds {found:?} where {expected:?} belongs")]
    WrongFormat {
        /// What it says it is.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A newer keelet wrote it.
    #[error("a newer keelet wrote it (format version {found}, this one knows up to {known}); that keelet can read it")]
    Newer {
        /// Its version.
        found: u64,
        /// The newest known version.
        known: u64,
    },
    /// No way leads from its version to ours.
    #[error("its format version {found} is older than any that this keelet can read")]
    TooOld {
        /// Its version.
        found: u64,
    },
    /// It could not be brought to the present version.
    #[error("its format version {found} could not be brought up to date: {message}")]
    Migration {
        /// Its version.
        found: u64,
        /// What went wrong.
        message: String,
    },
    /// It belongs to another pod.
    #[error("it belongs to the pod with UID {found:?}")]
    WrongPod {
        /// Which one.
        found: String,
    },
    /// It is whole, but its fields are not those of its version.
    #[error("a field is missing or has a wrong type: {0}")]
    Fields(serde_json::Error),
    /// It is older than it was: a backup came back, or the disk lost a write that it had confirmed.
    #[error("it went back in time: generation {found} is there, generation {confirmed} had been written")]
    WentBack {
        /// The generation that is there.
        found: u64,
        /// The generation that had been written.
        confirmed: u64,
    },
    /// It was there and is not any more.
    #[error("it is gone: generation {confirmed} had been written")]
    Missing {
        /// The generation that had been written.
        confirmed: u64,
    },
    /// Its generation is one that nobody can have reached.
    #[error("its generation {found} is larger than {largest}, which it cannot be")]
    Generation {
        /// What it says.
        found: u64,
        /// What it could say at most.
        largest: u64,
    },
    /// It was not put there by keelet.
    #[error("no file or directory of keelet's has such a name or place")]
    Foreign,
}

/// What a file says.
#[derive(Debug)]
pub(crate) struct Decoded<B> {
    pub(crate) generation: u64,
    pub(crate) pod: Option<PodRef>,
    pub(crate) boot_id: Option<BootId>,
    pub(crate) body: B,
}

/// The part of a file that tells whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label<'a> {
    pub(crate) generation: u64,
    pub(crate) pod: Option<&'a PodRef>,
    pub(crate) boot_id: Option<BootId>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a, B> {
    format: &'static str,
    version: u64,
    generation: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a PodRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_id: Option<BootId>,
    body: &'a B,
}

/// Never to be changed: every version of every file has these two.
#[derive(Deserialize)]
struct Peek {
    format: String,
    version: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read<'a> {
    generation: u64,
    #[serde(default)]
    pod: Option<PodRef>,
    #[serde(default)]
    boot_id: Option<BootId>,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// How a file ends: these bytes around eight hexadecimal digits.
const SEAL: (&str, &str) = (",\n  \"crc32\": \"", "\"\n}\n");

// === impl Kind ===

impl Kind {
    /// The name of the format, as the files say it.
    pub fn format(self) -> &'static str {
        match self {
            Self::Durable => "keelet.evidence.durable",
            Self::Volatile => "keelet.evidence.volatile",
            Self::Pod => "keelet.pod",
            Self::Journal => "keelet.journal",
            Self::History => "keelet.probe-history",
            Self::Why => "keelet.why",
            Self::Heartbeat => "keelet.heartbeat",
            Self::Events => "keelet.events",
            Self::Gone => "keelet.gone",
        }
    }

    /// The version that this keelet writes. Raised when an older keelet would misread the file; a field with a
    /// default is no reason.
    pub fn version(self) -> u64 {
        1
    }

    /// What is in it, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Durable => "restart counts, backoff, exits and last status",
            Self::Volatile => "started and ready of running containers",
            Self::Pod => "the copy of the pod",
            Self::Journal => "the journal of what changed when",
            Self::History => "the probe history",
            Self::Why => "the reasons of the last status",
            Self::Heartbeat => "the agent's heartbeat",
            Self::Events => "the newest events of the node",
            Self::Gone => "a pod that is gone",
        }
    }

    /// How deep a file goes before a thought fits on one line: a probe of a container, an exit, a result, a reason.
    fn lines(self) -> usize {
        match self {
            Self::Heartbeat => 2,
            Self::Why | Self::Journal | Self::Events => 3,
            Self::Durable | Self::History => 4,
            Self::Volatile | Self::Gone => 5,
            // People know their pods as kubectl shows them.
            Self::Pod => 16,
        }
    }

    pub(crate) fn encode<B: Serialize>(self, label: Label<'_>, body: &B) -> Result<Vec<u8>, serde_json::Error> {
        let Label { generation, pod, boot_id } = label;
        let envelope = Written { format: self.format(), version: self.version(), generation, pod, boot_id, body };
        let mut bytes = Vec::with_capacity(4096);
        envelope.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Lines::down_to(self.lines())))?;
        // The closing bracket and the line break before it come back with the seal.
        bytes.truncate(bytes.len() - 2);
        let crc = crc32(&bytes);
        bytes.extend_from_slice(format!("{}{crc:08x}{}", SEAL.0, SEAL.1).as_bytes());
        Ok(bytes)
    }

    pub(crate) fn decode<B: DeserializeOwned>(self, bytes: &[u8]) -> Result<Decoded<B>, Damage> {
        self.decode_with(bytes, migrate::KNOWN)
    }

    pub(crate) fn decode_with<B: DeserializeOwned>(
        self,
        bytes: &[u8],
        migrations: &[Migration],
    ) -> Result<Decoded<B>, Damage> {
        if bytes.is_empty() {
            return Err(Damage::Empty);
        }
        let peek: Peek = serde_json::from_slice(bytes).map_err(Damage::Malformed)?;
        // Before the seal is looked at: a newer keelet may seal differently.
        if peek.format == self.format() && peek.version > self.version() {
            return Err(Damage::Newer { found: peek.version, known: self.version() });
        }
        if !is_sealed(bytes) {
            return Err(Damage::Checksum);
        }
        if peek.format != self.format() {
            return Err(Damage::WrongFormat { found: peek.format, expected: self.format() });
        }
        let read: Read<'_> = serde_json::from_slice(bytes).map_err(Damage::Fields)?;
        check_generation(read.generation, LARGEST_GENERATION)?;
        let body = if peek.version == self.version() {
            serde_json::from_str(read.body.get()).map_err(Damage::Fields)?
        } else {
            let body = serde_json::from_str(read.body.get()).map_err(Damage::Fields)?;
            let body = migrate::bring_up_to_date(migrations, self, peek.version, body)?;
            serde_json::from_value(body).map_err(Damage::Fields)?
        };
        Ok(Decoded { generation: read.generation, pod: read.pod, boot_id: read.boot_id, body })
    }
}

// === impl Decoded ===

impl<B> Decoded<B> {
    /// Only the pod whose directory it is in may be the one it is about.
    pub(crate) fn about(self, uid: &str) -> Result<Self, Damage> {
        match &self.pod {
            Some(pod) if pod.uid == uid => Ok(self),
            Some(pod) => Err(Damage::WrongPod { found: pod.uid.clone() }),
            None => Err(Damage::WrongPod { found: String::new() }),
        }
    }
}

// === impl Damage ===

impl Damage {
    /// The error that says nothing about the file, if it is one: the node has no more of something.
    pub(crate) fn shortage(&self) -> Option<Errno> {
        match self {
            Self::Unreadable(error) => shortage(error),
            _ => None,
        }
    }
}

/// Whether a generation can be one.
pub(crate) fn check_generation(found: u64, largest: u64) -> Result<(), Damage> {
    if found <= largest { Ok(()) } else { Err(Damage::Generation { found, largest }) }
}

fn is_sealed(bytes: &[u8]) -> bool {
    let Some((contents, seal)) = bytes.split_at_checked(bytes.len().wrapping_sub(SEAL.0.len() + 8 + SEAL.1.len()))
    else {
        return false;
    };
    seal == format!("{}{:08x}{}", SEAL.0, crc32(contents), SEAL.1).as_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sample() -> Vec<u8> {
        let pod = PodRef { uid: "u".into(), namespace: "default".into(), name: "web".into() };
        let label = Label { generation: 7, pod: Some(&pod), boot_id: Some(BootId::from_u128(1)) };
        Kind::Volatile.encode(label, &json!({"lives": {"app": {"verdict": {"passed": true}}}, "none": []})).unwrap()
    }

    #[test]
    fn a_file_reads_as_people_want_it() {
        let text = String::from_utf8(sample()).unwrap();
        assert_eq!(
            text,
            r#"{
  "format": "keelet.evidence.volatile",
  "version": 1,
  "generation": 7,
  "pod": {
    "uid": "u",
    "namespace": "default",
    "name": "web"
  },
  "bootId": "00000000-0000-0000-0000-000000000001",
  "body": {
    "lives": {
      "app": {
        "verdict": {
          "passed": true
        }
      }
    },
    "none": []
  },
  "crc32": "CRC"
}
"#
            .replace("CRC", &text[text.len() - 12..text.len() - 4])
        );
        serde_json::from_str::<Value>(&text).unwrap();
    }

    #[test]
    fn every_truncation_is_noticed() {
        let bytes = sample();
        for length in 0..bytes.len() {
            let damage = Kind::Volatile.decode::<Value>(&bytes[..length]).unwrap_err();
            let expected = match length {
                0 => matches!(damage, Damage::Empty),
                // Only the last line break is missing.
                n if n + 1 == bytes.len() => matches!(damage, Damage::Checksum),
                _ => matches!(damage, Damage::Malformed(_)),
            };
            assert!(expected, "{length}: {damage}");
        }
        Kind::Volatile.decode::<Value>(&bytes).unwrap();
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sample();
        for index in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[index] ^= 1 << bit;
                Kind::Volatile.decode::<Value>(&flipped).unwrap_err();
            }
        }
    }

    #[test]
    fn a_newer_version_is_told_from_damage_even_if_it_seals_differently() {
        let newer = br#"{"format": "keelet.why", "version": 2, "strange": true}"#;
        assert!(matches!(Kind::Why.decode::<Value>(newer), Err(Damage::Newer { found: 2, known: 1 })));
    }

    #[test]
    fn another_format_in_its_place_is_noticed() {
        let damage = Kind::Durable.decode::<Value>(&sample()).unwrap_err();
        assert_eq!(
            damage.to_string(),
            r#"it holds "keelet.evidence.volatile" where "keelet.evidence.durable" belongs"#
        );
    }

    fn as_version(version: u64) -> Vec<u8> {
        let text = String::from_utf8(sample()).unwrap().replace("\"version\": 1", &format!("\"version\": {version}"));
        let contents = &text[..text.len() - (SEAL.0.len() + 8 + SEAL.1.len())];
        format!("{contents}{}{:08x}{}", SEAL.0, crc32(contents.as_bytes()), SEAL.1).into_bytes()
    }

    #[test]
    fn an_older_version_without_a_way_up_is_a_loss() {
        assert!(matches!(Kind::Volatile.decode::<Value>(&as_version(0)), Err(Damage::TooOld { found: 0 })));
    }

    #[test]
    fn an_older_version_is_brought_up_to_date() {
        let steps = [Migration {
            kind: Kind::Volatile,
            from: 0,
            apply: |mut body| {
                body["launches"] = json!({});
                Ok(body)
            },
        }];
        let decoded = Kind::Volatile.decode_with::<Value>(&as_version(0), &steps).unwrap();
        assert_eq!(decoded.body["launches"], json!({}));
        assert_eq!(decoded.generation, 7);
    }

    #[test]
    fn a_migration_that_fails_is_a_loss() {
        let steps = [Migration { kind: Kind::Volatile, from: 0, apply: |_| Err("no lives".to_owned()) }];
        let damage = Kind::Volatile.decode_with::<Value>(&as_version(0), &steps).unwrap_err();
        assert_eq!(damage.to_string(), "its format version 0 could not be brought up to date: no lives");
    }
}
