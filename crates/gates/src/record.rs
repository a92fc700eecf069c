//! What the controller did to a node, in an annotation of the node: `keelet.dev/gates`.
//!
//! The annotation `readiness.k8s.io/X: passed` is a claim that the node itself may write. The record says more: for which node
//! object it is, when our patch removed or added a taint, and in which boot. It is written by the same patch as the taints, so the two
//! cannot disagree: a taint beside a record that says `passed` was added later, by a person or another program (GN-2). A record with
//! another UID counts for nothing (GN-3). The node itself may write the whole record, so a record alone removes no taint: one that says a
//! taint was added for a rule counts only in a process that saw this rule select the node ([`crate::rule::Seen`]).
//!
//! ```json
//! {"node":"<UID>","gates":{"readiness.k8s.io/CNIReady:NoSchedule":{"passed":"2026-01-02T03:04:05Z","boot":"<boot ID>"}}}
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::node::{Effect, Node, Text};

/// The key of the annotation.
pub const ANNOTATION: &str = "keelet.dev/gates";

/// The longest record that is read. An entry takes some 200 bytes and a node has a handful; a longer one is not ours.
pub const LONGEST: usize = 16 * 1024;

/// What the annotation of a node turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is none.
    Absent,
    /// A record of this node.
    Ours(Record),
    /// A record of another node object: a copy, or the node was created again from a template.
    OfAnother {
        /// The UID it was written for.
        uid: String,
    },
    /// It cannot be read.
    Unreadable,
}

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The UID of the node object that it is for.
    pub node: String,
    /// By `key:effect` of the taint.
    #[serde(default)]
    gates: BTreeMap<String, Entry>,
}

/// What the controller did about one gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When our patch last removed the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<Timestamp>,
    /// When our patch added the taint to a new node, for a rule. None once it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Timestamp>,
    /// When our patch added the taint to a node that pods were scheduled to; counts towards `--max-held`. None once it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Timestamp>,
    /// The boot ID of the node then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot: String,
    /// The value of the taint that was removed, for putting it back.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The UID of the rule that the taint was added for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rule: String,
}

// === impl Found ===

impl Found {
    /// The record of a node.
    pub fn on(node: &Node) -> Self {
        let Some(text) = node.annotations.get(ANNOTATION) else { return Self::Absent };
        match serde_json::from_str::<Record>(text) {
            Ok(record) if record.node == *node.uid => Self::Ours(record),
            Ok(record) => Self::OfAnother { uid: record.node },
            Err(_) => Self::Unreadable,
        }
    }

    /// The record that counts: an empty one unless it is this node's.
    pub fn trusted(self, uid: &Text) -> Record {
        match self {
            Self::Ours(record) => record,
            Self::Absent | Self::OfAnother { .. } | Self::Unreadable => {
                Record { node: uid.to_string(), gates: BTreeMap::new() }
            }
        }
    }
}

// === impl Record ===

impl Record {
    /// What it says about a taint.
    pub fn entry(&self, key: &str, effect: &Effect) -> Option<&Entry> {
        self.gates.get(&id(key, effect))
    }

    /// Writes down what was done about a taint.
    pub fn set(&mut self, key: &str, effect: &Effect, entry: Entry) {
        self.gates.insert(id(key, effect), entry);
    }

    /// All entries: key, effect, entry. One whose key has no effect is not ours and is left out.
    pub fn entries(&self) -> impl Iterator<Item = (&str, Effect, &Entry)> {
        self.gates.iter().filter_map(|(id, entry)| {
            let (key, effect) = id.rsplit_once(':')?;
            Some((key, Effect::from(effect), entry))
        })
    }

    /// The value of the annotation.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("strings and times are always JSON")
    }
}

fn id(key: &str, effect: &Effect) -> String {
    format!("{key}:{effect}")
}

// === impl Entry ===

impl Entry {
    /// Whether the last thing that our patches did was to remove the taint.
    pub fn has_passed(&self) -> bool {
        self.passed.is_some() && self.held.is_none() && self.added.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn written() -> Record {
        let mut record = Found::Absent.trusted(&Text::from("uid-n"));
        let entry = Entry { passed: Some(at(9)), boot: "b".to_owned(), ..Entry::default() };
        record.set("readiness.k8s.io/A", &Effect::NoSchedule, entry);
        record
    }

    /// GN-2
    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = written();
        let text = record.to_text();
        assert_eq!(
            text,
            r#"{"node":"uid-n","gates":{"readiness.k8s.io/A:NoSchedule":{"passed":"1970-01-01T00:00:09Z","boot":"b"}}}"#
        );
        let node = node("n").annotated(ANNOTATION, &text).build();
        assert_eq!(Found::on(&node), Found::Ours(record.clone()));
        let entry = record.entry("readiness.k8s.io/A", &Effect::NoSchedule).unwrap();
        assert!(entry.has_passed());
        assert_eq!(record.entry("readiness.k8s.io/A", &Effect::NoExecute), None, "another taint");
        let entries: Vec<_> = record.entries().map(|(key, effect, _)| (key.to_owned(), effect)).collect();
        assert_eq!(entries, [("readiness.k8s.io/A".to_owned(), Effect::NoSchedule)]);
    }

    /// GN-3
    #[test]
    fn a_record_of_another_node_counts_for_nothing() {
        let node = node("n").uid("other").annotated(ANNOTATION, &written().to_text()).build();
        let found = Found::on(&node);
        assert_eq!(found, Found::OfAnother { uid: "uid-n".to_owned() });
        let trusted = found.trusted(&node.uid);
        assert_eq!((trusted.node.as_str(), trusted.entries().count()), ("other", 0));
    }

    /// GN-3
    #[test]
    fn what_cannot_be_read_counts_for_nothing() {
        for text in [
            "",
            "passed",
            "{}",
            "[]",
            r#"{"node":7}"#,
            r#"{"node":"uid-n","gates":{"a:NoSchedule":{"passed":"soon"}}}"#,
        ] {
            let node = node("n").annotated(ANNOTATION, text).build();
            assert_eq!(Found::on(&node), Found::Unreadable, "{text}");
            assert_eq!(Found::on(&node).trusted(&node.uid).entries().count(), 0);
        }
        assert_eq!(Found::on(&node("n").build()), Found::Absent);
    }

    #[test]
    fn a_gate_that_is_held_has_not_passed() {
        let passed = Entry { passed: Some(at(1)), ..Entry::default() };
        assert!(passed.has_passed());
        assert!(!Entry { held: Some(at(2)), ..passed.clone() }.has_passed());
        assert!(!Entry { added: Some(at(2)), ..passed }.has_passed());
        assert!(!Entry::default().has_passed());
    }
}
