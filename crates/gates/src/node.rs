//! A node, as far as gates are concerned.
//!
//! A Node object of the API has some 20 KiB of JSON, most of it images and addresses. Of 5,000 nodes the controller keeps what a
//! decision reads and nothing else (GN-10): name, UID, resource version, taints, conditions, and the labels and annotations that gates
//! or rules are about. [`Reader`] reads that directly from the JSON of the API; words that many nodes share are kept once.

mod raw;
mod reader;

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeMap};

pub use keelet_api::{BadJson, Failure, Page, Version, WatchEvent};

pub use self::reader::{Detail, Interest, Reader};

/// A word that is kept once, however many nodes have it.
pub type Text = Arc<str>;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Text,
    /// The UID of the object: a node that was created again has another.
    pub uid: Text,
    /// The version of the object that this is.
    pub version: Version,
    /// When the object was created.
    pub created: Option<Timestamp>,
    /// The boot ID that the node reports; empty if it reports none.
    pub boot_id: Text,
    /// The labels that gates or rules are about.
    pub labels: Pairs,
    /// The annotations that gates or rules are about.
    pub annotations: Pairs,
    /// All of its taints, in their order.
    pub taints: Vec<Taint>,
    /// All of its conditions.
    pub conditions: Vec<Condition>,
}

/// Labels or annotations, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Vec<(Text, Text)>);

/// A taint. Everything that the API server said about it is kept, because a patch writes the whole list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: Text,
    /// Its value.
    pub value: Option<Text>,
    /// What it does to pods that do not tolerate it.
    pub effect: Effect,
    /// When it was added, as the API server wrote it.
    pub time_added: Option<Text>,
    /// Fields that this version of keelet does not know.
    pub more: More,
}

/// Fields of an object that are kept as they came.
pub type More = serde_json::Map<String, serde_json::Value>;

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// New pods are not scheduled here.
    NoSchedule,
    /// New pods are scheduled here if no other node is left.
    PreferNoSchedule,
    /// Running pods are evicted too.
    NoExecute,
    /// One that this version of keelet does not know.
    Other(Text),
}

/// A condition of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type, often with a domain: `vendor.example.com/NetworkReady`.
    pub kind: Text,
    /// Whether it holds.
    pub status: Status,
    /// A word on why.
    pub reason: Text,
    /// A sentence on why, where it was asked for ([`Detail::Full`]).
    pub message: Text,
    /// When its reporter last wrote it.
    pub heartbeat: Option<Timestamp>,
    /// When its status last changed.
    pub transition: Option<Timestamp>,
}

/// The status of a condition. Whatever is neither True nor False is Unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// `True`, in exactly this spelling.
    True,
    /// `False`.
    False,
    /// `Unknown`, or what is not known to the API.
    Unknown,
}

// === impl Node ===

impl Node {
    /// Its taint of this key and effect; the value does not count (PEER-15).
    pub fn taint(&self, key: &str, effect: &Effect) -> Option<&Taint> {
        self.taints.iter().find(|taint| taint.is(key, effect))
    }

    /// Whether another observation of the same node says the same, apart from heartbeats and the version (CTRL-13).
    pub fn says_the_same(&self, other: &Self) -> bool {
        let conditions = self.conditions.len() == other.conditions.len()
            && self.conditions.iter().zip(&other.conditions).all(|(a, b)| {
                (&a.kind, a.status, &a.reason, a.transition) == (&b.kind, b.status, &b.reason, b.transition)
            });
        conditions
            && self.uid == other.uid
            && self.taints == other.taints
            && self.annotations == other.annotations
            && self.labels == other.labels
            && self.boot_id == other.boot_id
    }
}

// === impl Pairs ===

impl Pairs {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Text> {
        let at = self.0.binary_search_by(|(found, _)| (**found).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Whether a key is there.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Text, &Text)> {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

impl FromIterator<(Text, Text)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (Text, Text)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort();
        pairs.dedup_by(|later, earlier| later.0 == earlier.0);
        pairs.shrink_to_fit();
        Self(pairs)
    }
}

// === impl Taint ===

impl Taint {
    /// A taint without a value.
    pub fn new(key: &str, effect: Effect) -> Self {
        Self { key: key.into(), value: None, effect, time_added: None, more: More::new() }
    }

    /// The same with a value, unless that is empty.
    pub fn with_value(self, value: &str) -> Self {
        Self { value: (!value.is_empty()).then(|| value.into()), ..self }
    }

    /// Whether it is the one of this key and effect.
    pub fn is(&self, key: &str, effect: &Effect) -> bool {
        &*self.key == key && self.effect == *effect
    }
}

impl Serialize for Taint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("key", &*self.key)?;
        if let Some(value) = &self.value {
            map.serialize_entry("value", &**value)?;
        }
        map.serialize_entry("effect", self.effect.as_str())?;
        if let Some(time) = &self.time_added {
            map.serialize_entry("timeAdded", &**time)?;
        }
        for (name, value) in &self.more {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

// === impl Effect ===

impl Effect {
    /// As the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
            Self::Other(text) => text,
        }
    }
}

impl From<&str> for Effect {
    fn from(text: &str) -> Self {
        match text {
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            other => Self::Other(other.into()),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Status ===

impl Status {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<&str> for Status {
    fn from(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
