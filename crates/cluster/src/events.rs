//! Events of pods and of the node, as the API server has them.
//!
//! The agent has counted and combined them already. An event's name follows from what it says, so that the same thing said again, by this
//! agent or the next, is one event with a higher count.

use std::collections::VecDeque;

use jiff::Timestamp;
use keelet_agent::board::{Involved, PodEvent};
use keelet_lifecycle::Severity;
use serde_json::{Value, json};

/// Events that wait. While the API server is away the oldest are dropped: after an hour it would drop them itself.
const WAITING: usize = 512;

/// Events to be written, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Events {
    waiting: VecDeque<PodEvent>,
    dropped: u64,
}

// === impl Events ===

impl Events {
    /// Takes an event. The same event with a lower count is replaced.
    pub(crate) fn push(&mut self, event: PodEvent) {
        let same = |other: &PodEvent| name(other) == name(&event);
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| same(waiting)) {
            *waiting = event;
            return;
        }
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(event);
    }

    pub(crate) fn front(&self) -> Option<PodEvent> {
        self.waiting.front().cloned()
    }

    /// An event was written, or never will be.
    pub(crate) fn remove(&mut self, event: &PodEvent) {
        // A newer one of the same name may have taken its place.
        self.waiting.retain(|waiting| waiting != event);
    }

    /// How many were dropped since this was last asked.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

/// The path of the events of a namespace.
pub(crate) fn path(event: &PodEvent) -> String {
    format!("/api/v1/namespaces/{}/events", event.pod.namespace)
}

/// `<pod>.<hash>`, the same for the same thing.
pub(crate) fn name(event: &PodEvent) -> String {
    let container = event.event.container.as_deref().unwrap_or_default();
    let parts: [&str; 4] = [&event.pod.uid, &event.event.reason, container, &event.event.message];
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.join("\0").bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // The name of an event may have 253 characters, as that of a pod may.
    let pod: String = event.pod.name.chars().take(230).collect();
    format!("{}.{hash:016x}", pod.trim_end_matches(['.', '-']))
}

/// The event as the API has it.
pub(crate) fn object(event: &PodEvent, node: &str) -> Value {
    let PodEvent { involved, pod, field_path, event: record } = event;
    let at = seconds(record.at.wall.as_millis());
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": name(event), "namespace": pod.namespace },
        "involvedObject": {
            "apiVersion": "v1", "kind": involved.kind(), "name": pod.name, "uid": pod.uid, "fieldPath": field_path,
            "namespace": (*involved == Involved::Pod).then_some(&pod.namespace),
        },
        "type": match record.severity { Severity::Normal => "Normal", Severity::Warning => "Warning" },
        "reason": record.reason, "message": record.message,
        "source": { "component": "keelet", "host": node },
        "reportingComponent": "keelet", "reportingInstance": node,
        "firstTimestamp": at, "lastTimestamp": at, "count": record.count,
    })
}

/// The merge patch for an event that exists.
pub(crate) fn patch(event: &PodEvent) -> Value {
    let record = &event.event;
    json!({ "count": record.count, "lastTimestamp": seconds(record.at.wall.as_millis()), "message": record.message })
}

fn seconds(millis: i64) -> String {
    Timestamp::from_second(millis.div_euclid(1000)).unwrap_or_default().to_string()
}
