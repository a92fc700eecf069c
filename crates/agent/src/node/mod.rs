//! The node: what it is, what it says of itself, and which pods fit on it.
//!
//! ```text
//! Machine (files of the kernel) ------------> Facts ------.
//! runtime, disks, probes -----> Health                     object --> v1.Node
//!                                  '--> conditions -------'
//!                                       (before, health, now): transition times are kept
//! ```
//!
//! Facts are read once, when the agent starts. Health is looked at every ten seconds and when a client asks for the node.
//! Everything between what was read and the `v1.Node` is pure: a test needs neither a kernel nor a runtime.

mod conditions;
mod facts;
mod health;
mod machine;
mod object;
pub(crate) mod pressure;

use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1;
use keelet_lifecycle::Moment;

pub(crate) use self::health::{observe, watch};
pub use self::{
    conditions::{Condition, ConditionStatus, conditions},
    facts::{Facts, Resources, System},
    health::{Health, RuntimeHealth},
    machine::{Machine, Usage},
    object::{Versions, object},
    pressure::DiskPressure,
};

/// The node of one agent: what it is, and how it was when last looked at.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) facts: Facts,
    seen: Mutex<Seen>,
}

/// What the last look at the node has left.
#[derive(Debug, Default)]
struct Seen {
    conditions: Vec<Condition>,
    /// The runtime's name and version; none before it has answered.
    runtime: Option<String>,
}

// === impl Node ===

impl Node {
    pub(crate) fn new(facts: Facts) -> Self {
        Self { facts, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Conditions as they are now, with the time of the last transition of each.
    pub(crate) fn note(&self, health: &Health, now: Moment) {
        let mut seen = self.seen();
        seen.conditions = conditions(&seen.conditions, health, now.wall);
        if let RuntimeHealth::Answers { version: Some(version), .. } = &health.runtime {
            seen.runtime = Some(version.clone());
        }
    }

    /// The conditions that the last look has left.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        self.seen().conditions.clone()
    }

    /// The node as it was when last looked at.
    pub(crate) fn object(&self, started: Moment) -> v1::Node {
        let seen = self.seen();
        let versions = Versions { runtime: seen.runtime.as_deref(), boot_id: started.boot_id };
        object(&self.facts, &seen.conditions, &versions, started.wall)
    }
}
