//! Events on nodes, written when nothing more important is to do.
//!
//! An event has a name that follows from the node, the reason and the gate, so that the same thing said again, by this leader or the next,
//! is one event with a higher count.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{engine::Said, node::Text};

/// The namespace of events on things without a namespace.
pub(super) const NAMESPACE: &str = "default";

/// The path of events.
pub(super) const EVENTS: &str = "/api/v1/namespaces/default/events";

/// Events that wait. A cluster whose 5,000 nodes pass at once has as many; an event has some 300 bytes.
const WAITING: usize = 8192;

/// Counts that are remembered. An event that is forgotten begins at 2 when it comes again.
const REMEMBERED: usize = 8192;

/// The longest message that the API takes.
const MESSAGE: usize = 1024;

/// Events to be written.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<(Said, Timestamp)>,
    /// How often each event was written, by its name.
    counts: BTreeMap<String, u32>,
}

/// An event to be written.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) name: String,
    /// How often it was written before, as far as we know.
    pub(super) count: u32,
    said: Said,
    at: Timestamp,
}

// === impl Outbox ===

impl Outbox {
    /// Takes an event; false if there are too many.
    pub(super) fn push(&mut self, said: Said, at: Timestamp) -> bool {
        let fits = self.waiting.len() < WAITING;
        if fits {
            self.waiting.push_back((said, at));
        }
        fits
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the oldest event happened.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.waiting.front().map(|(_, at)| *at)
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let (said, at) = self.waiting.pop_front()?;
        let name = name(&said);
        let count = self.counts.get(&name).copied().unwrap_or_default();
        Some(Event { name, count, said, at })
    }

    /// An event was written.
    pub(super) fn written(&mut self, event: Event) {
        if self.counts.len() >= REMEMBERED {
            self.counts.pop_first();
        }
        self.counts.insert(event.name, event.count + 1);
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

/// `<node>.<hash>`, the same for the same thing.
fn name(said: &Said) -> String {
    let parts: [&str; 3] = [&said.uid, said.report.reason, &said.report.key];
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.join("\0").bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // The name of an event may have 253 characters, as that of a node may.
    let node: String = said.node.chars().take(230).collect();
    format!("{}.{hash:016x}", node.trim_end_matches(['.', '-']))
}

// === impl Event ===

impl Event {
    /// The event as the API has it.
    pub(super) fn object(&self) -> Value {
        let node: &Text = &self.said.node;
        let at = seconds(self.at);
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": &**node, "uid": &*self.said.uid},
            "type": self.said.report.tone.as_str(), "reason": self.said.report.reason, "message": self.message(),
            "source": {"component": "keelet-controller"},
            "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        })
    }

    /// The patch for an event that exists.
    pub(super) fn patch(&self) -> Value {
        json!({ "count": (self.count + 1).max(2), "lastTimestamp": seconds(self.at), "message": self.message() })
    }

    fn message(&self) -> String {
        let mut message = self.said.report.message.clone();
        if message.len() > MESSAGE {
            let end = (0..=MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
            message.truncate(end);
        }
        message
    }
}

fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::Mode,
        testing::now,
        words::{Report, Tone},
    };

    fn said(node: &str, message: &str) -> Said {
        let report = Report {
            tone: Tone::Normal,
            reason: "ReadinessGatePassed",
            key: "readiness.k8s.io/A".into(),
            message: message.to_owned(),
        };
        Said { node: node.into(), uid: "u".into(), report, mode: Mode::Act }
    }

    /// EVT-9
    #[test]
    fn an_event_is_about_the_node_object() {
        let mut outbox = Outbox::default();
        assert!(outbox.push(said("n1", "Taint removed"), now()));
        let event = outbox.pop().unwrap();
        let object = event.object();
        assert_eq!(object["involvedObject"], json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}));
        assert_eq!(
            (&object["type"], &object["reason"], &object["message"]),
            (&json!("Normal"), &json!("ReadinessGatePassed"), &json!("Taint removed"))
        );
        assert_eq!((&object["firstTimestamp"], &object["count"]), (&json!("2026-03-01T12:00:00Z"), &json!(1)));
        assert!(event.name.starts_with("n1.") && event.name.len() == 19);
    }

    #[test]
    fn the_same_thing_said_again_is_the_same_event() {
        let mut outbox = Outbox::default();
        for count in 1..4 {
            outbox.push(said("n1", "once more"), now());
            let event = outbox.pop().unwrap();
            assert_eq!(event.count, count - 1);
            if count > 1 {
                assert_eq!(event.patch()["count"], count);
            }
            outbox.written(event);
        }
        assert_ne!(name(&said("n1", "")), name(&Said { uid: "v".into(), ..said("n1", "") }), "of another object");
    }

    #[test]
    fn events_that_wait_are_bounded() {
        let mut outbox = Outbox::default();
        let taken = (0..WAITING + 5).filter(|_| outbox.push(said("n", ""), now())).count();
        assert_eq!(taken, WAITING);
        for number in 0..REMEMBERED + 5 {
            let event = Event { name: number.to_string(), count: 0, said: said("n", ""), at: now() };
            outbox.written(event);
        }
        assert_eq!(outbox.counts.len(), REMEMBERED);
    }

    #[test]
    fn names_and_messages_are_cut_to_what_the_api_takes() {
        let long = said(&"n".repeat(253), &"ä".repeat(1000));
        let event = Event { name: name(&long), count: 0, said: long, at: now() };
        assert!(event.name.len() <= 253 && event.message().len() == 1024);
    }
}
