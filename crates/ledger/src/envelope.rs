//! The envelope of every file of the ledger: its format, version, pod and checksum.
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
//! The checksum covers every byte before it, so a flipped bit is found even if the JSON stays valid: a wrong restart
//! count is worse than none.

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

/// The size limit of every file. A pod has at most 1.5 MiB at an API server; the ledger bounds everything else to less.
pub const LARGEST_FILE: usize = 8 << 20;

/// The largest valid generation. A commit every microsecond takes ten thousand years to get there, so a larger one is
/// damage; and there is always a next one.
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

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Evidence that survives a reboot.
    Durable,
    /// Evidence about running containers.
    Volatile,
    /// A copy of the pod.
    Pod,
    /// The journal of changes.
    Journal,
    /// Probe results.
    History,
    /// The reasons of the newest plan.
    Why,
    /// When the agent was last alive.
    Heartbeat,
    /// The newest events of the node.
    Events,
    /// A removed pod.
    Gone,
    /// The node itself: conditions, probes of its components, gates.
    Node,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The disk or its permissions forbid it, or it is not a regular file, or too large.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// It has no contents.
    #[error("it is empty")]
    Empty,
    /// It is truncated, or not JSON, or lacks a field of the envelope.
    #[error("truncated, or not written by keelet: {0}")]
    Malformed(serde_json::Error),
    /// Some bytes differ from what was written.
    #[error("checksum mismatch: the file is damaged or was edited by hand")]
    Checksum,
    /// It has another format.
    #[error("it has the format {found:?}, expected {expected:?}")]
    WrongFormat {
        /// Its format.
        found: String,
        /// The expected format.
        expected: &'static str,
    },
    /// A newer keelet wrote it.
    #[error(
        "written by a newer keelet (format version {found}; this version reads up to {known}): use that keelet to read it"
    )]
    Newer {
        /// Its version.
        found: u64,
        /// The newest known version.
        known: u64,
    },
    /// No migration leads from its version to the present one.
    #[error("its format version {found} is older than any that this keelet reads")]
    TooOld {
        /// Its version.
        found: u64,
    },
    /// Its migration failed.
    #[error("cannot migrate format version {found}: {message}")]
    Migration {
        /// Its version.
        found: u64,
        /// The error.
        message: String,
    },
    /// It belongs to another pod.
    #[error("it belongs to the pod with UID {found:?}")]
    WrongPod {
        /// The UID.
        found: String,
    },
    /// Its checksum is right, but its fields are not those of its version.
    #[error("invalid fields: {0}")]
    Fields(serde_json::Error),
    /// It is older than before: a backup was restored, or the disk lost a write that it had confirmed.
    #[error("outdated: it has generation {found}, but generation {confirmed} was written before")]
    WentBack {
        /// The generation in the file.
        found: u64,
        /// The generation that was written.
        confirmed: u64,
    },
    /// It existed and is missing now.
    #[error("missing: generation {confirmed} was written before")]
    Missing {
        /// The generation that was written.
        confirmed: u64,
    },
    /// Its generation is beyond the limit.
    #[error("invalid generation {found}: the limit is {largest}")]
    Generation {
        /// The generation in the file.
        found: u64,
        /// The limit.
        largest: u64,
    },
    /// keelet did not create it.
    #[error("unknown file: keelet creates no file or directory of this name here")]
    Foreign,
}

/// The parsed file.
#[derive(Debug)]
pub(crate) struct Decoded<B> {
    pub(crate) generation: u64,
    pub(crate) pod: Option<PodRef>,
    pub(crate) boot_id: Option<BootId>,
    pub(crate) body: B,
}

/// The part of a file that identifies its pod.
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

/// Must never change: every version of every file has these two fields.
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

/// A file of the present version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Whole<'a, B> {
    format: &'a str,
    version: u64,
    generation: u64,
    #[serde(default)]
    pod: Option<PodRef>,
    #[serde(default)]
    boot_id: Option<BootId>,
    body: B,
}

/// The end of a file: these bytes around eight hexadecimal digits.
const SEAL: (&str, &str) = (",\n  \"crc32\": \"", "\"\n}\n");

// === impl Kind ===

impl Kind {
    /// The name of the format in the files.
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
            Self::Node => "keelet.node",
        }
    }

    /// The version that this keelet writes. To be raised when an older keelet would misread the file; a new field with
    /// a default does not need that.
    pub fn version(self) -> u64 {
        1
    }

    /// A description of the content, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Durable => "restart counts, backoff, exits and last status",
            Self::Volatile => "started and ready of running containers",
            Self::Pod => "the copy of the pod",
            Self::Journal => "the journal of changes",
            Self::History => "the probe history",
            Self::Why => "the reasons of the last status",
            Self::Heartbeat => "the agent's heartbeat",
            Self::Events => "the newest events of the node",
            Self::Gone => "a removed pod",
            Self::Node => "conditions of the node, probes of its components",
        }
    }

    /// The depth at which an item fits on one line: a probe of a container, an exit, a result, a reason.
    fn lines(self) -> usize {
        match self {
            Self::Heartbeat => 2,
            Self::Why | Self::Journal | Self::Events => 3,
            Self::Durable | Self::History | Self::Node => 4,
            Self::Volatile | Self::Gone => 5,
            // Namespace and name, as kubectl shows pods.
            Self::Pod => 16,
        }
    }

    pub(crate) fn encode<B: Serialize>(self, label: Label<'_>, body: &B) -> Result<Vec<u8>, serde_json::Error> {
        let Label { generation, pod, boot_id } = label;
        let envelope = Written { format: self.format(), version: self.version(), generation, pod, boot_id, body };
        // Enough for the files of most pods.
        let mut bytes = Vec::with_capacity(16 << 10);
        envelope.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Lines::down_to(self.lines())))?;
        // The checksum line restores the closing bracket and the line break before it.
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
        // What this keelet wrote is parsed once. Anything else is taken step by step, to say what is wrong with it.
        if is_sealed(bytes)
            && let Ok(whole) = serde_json::from_slice::<Whole<'_, B>>(bytes)
            && (whole.format, whole.version) == (self.format(), self.version())
            && whole.generation <= LARGEST_GENERATION
        {
            let Whole { generation, pod, boot_id, body, .. } = whole;
            return Ok(Decoded { generation, pod, boot_id, body });
        }
        let peek: Peek = serde_json::from_slice(bytes).map_err(Damage::Malformed)?;
        // Before the checksum is verified, because a newer keelet may compute it differently.
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
    /// Checks that the file is about the pod of its directory.
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
    /// The error, if it is a shortage of the node, which says nothing about the file.
    pub(crate) fn shortage(&self) -> Option<Errno> {
        match self {
            Self::Unreadable(error) => shortage(error),
            _ => None,
        }
    }
}

/// Whether a generation is valid.
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
    fn a_file_is_readable() {
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
    fn a_newer_version_is_not_damage_even_if_its_checksum_differs() {
        let newer = br#"{"format": "keelet.why", "version": 2, "strange": true}"#;
        assert!(matches!(Kind::Why.decode::<Value>(newer), Err(Damage::Newer { found: 2, known: 1 })));
    }

    #[test]
    fn another_format_in_its_place_is_noticed() {
        let damage = Kind::Durable.decode::<Value>(&sample()).unwrap_err();
        assert_eq!(
            damage.to_string(),
            r#"it has the format "keelet.evidence.volatile", expected "keelet.evidence.durable""#
        );
    }

    fn as_version(version: u64) -> Vec<u8> {
        let text = String::from_utf8(sample()).unwrap().replace("\"version\": 1", &format!("\"version\": {version}"));
        let contents = &text[..text.len() - (SEAL.0.len() + 8 + SEAL.1.len())];
        format!("{contents}{}{:08x}{}", SEAL.0, crc32(contents.as_bytes()), SEAL.1).into_bytes()
    }

    #[test]
    fn an_older_version_without_a_migration_is_a_loss() {
        assert!(matches!(Kind::Volatile.decode::<Value>(&as_version(0)), Err(Damage::TooOld { found: 0 })));
    }

    #[test]
    fn an_older_version_is_migrated() {
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
        let steps = [Migration { kind: Kind::Volatile, from: 0, apply: |_| Err(migrate::MissingField("lives")) }];
        let damage = Kind::Volatile.decode_with::<Value>(&as_version(0), &steps).unwrap_err();
        assert_eq!(damage.to_string(), "cannot migrate format version 0: field \"lives\" is missing");
    }
}
