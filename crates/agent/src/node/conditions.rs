//! The node's conditions: from what was found to what is said, with the time of the last transition of each.

use keelet_lifecycle::Wall;

use super::health::{Health, RuntimeHealth};

/// Probes that a condition names; their number is reported in any case.
const MOST_NAMED: usize = 5;

/// The summary of the others, for schedulers and people.
const READY: &str = "Ready";

/// A condition of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type: `Ready`, `DiskPressure`, ...
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// Since when the status is what it is, as far as it is known.
    pub since: Wall,
    /// When it was last looked at.
    pub seen: Wall,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It was not looked at yet.
    Unknown,
}

/// What is found of a condition at one look.
struct Found {
    kind: String,
    status: ConditionStatus,
    reason: String,
    message: String,
    /// When the status began, if that is known better than by this look.
    since: Option<Wall>,
}

/// The conditions that follow from a look at the node. `before` is what was said last, by this agent or by the one before it: a
/// condition whose status is the same keeps its transition time, for every reader.
pub fn conditions(before: &[Condition], health: &Health, now: Wall) -> Vec<Condition> {
    let mut found = vec![disk_pressure(health), probe_pressure(health)];
    let (of_runtime, ready) = runtime(&health.runtime);
    found.extend(of_runtime);
    // Last, so that a reader of the list has seen the reasons before the summary.
    found.push(ready);
    found.into_iter().map(|found| found.after(before, now)).collect()
}

fn disk_pressure(health: &Health) -> Found {
    let pressure = &health.disk;
    let reason = if pressure.holds { "KeeletHasDiskPressure" } else { "KeeletHasNoDiskPressure" };
    let status = if pressure.since.is_some() { ConditionStatus::of(pressure.holds) } else { ConditionStatus::Unknown };
    let since = pressure.since.map(|since| since.wall);
    Found { since, ..Found::new("DiskPressure", status, reason, &pressure.message) }
}

/// Whether the node cannot keep up with its probes, so that what they say is not up to date.
fn probe_pressure(health: &Health) -> Found {
    let overdue = &health.overdue;
    let names: Vec<String> = overdue
        .iter()
        .take(MOST_NAMED)
        .map(|(pod, probe)| format!("{}/{} {} {}", pod.namespace, pod.name, probe.container, probe.kind))
        .collect();
    let (status, reason, message) = match overdue.len() {
        0 => (ConditionStatus::False, "ProbesOnTime", "all probes are made in time".to_owned()),
        count => {
            let rest = if count > names.len() { ", ..." } else { "" };
            let message = format!("late for too long: {count} probes: {}{rest}", names.join(", "));
            (ConditionStatus::True, "ProbesLate", message)
        }
    };
    Found::new("ProbePressure", status, reason, &message)
}

/// What the runtime says of itself, and whether that is enough for pods.
fn runtime(health: &RuntimeHealth) -> (Vec<Found>, Found) {
    let conditions = match health {
        RuntimeHealth::NotAskedYet => {
            let message = "the container runtime has not been asked yet";
            return (Vec::new(), Found::new(READY, ConditionStatus::Unknown, "RuntimeNotAskedYet", message));
        }
        RuntimeHealth::Silent(error) => {
            return (Vec::new(), Found::new(READY, ConditionStatus::False, "RuntimeNotAnswering", error));
        }
        RuntimeHealth::Answers { conditions, .. } => conditions,
    };
    let own = conditions.iter().map(|c| Found::new(&c.r#type, ConditionStatus::of(c.status), &c.reason, &c.message));
    let ready = match conditions.iter().find(|condition| !condition.status) {
        None => Found::new(READY, ConditionStatus::True, "KeeletReady", "keelet runs and the runtime is ready"),
        Some(missing) => Found::new(READY, ConditionStatus::False, &missing.reason, &missing.message),
    };
    (own.collect(), ready)
}

// === impl Found ===

impl Found {
    fn new(kind: &str, status: ConditionStatus, reason: &str, message: &str) -> Self {
        Self { kind: kind.to_owned(), status, reason: reason.to_owned(), message: message.to_owned(), since: None }
    }

    fn after(self, before: &[Condition], now: Wall) -> Condition {
        let same = before.iter().find(|condition| condition.kind == self.kind && condition.status == self.status);
        let since = same.map_or_else(|| self.since.unwrap_or(now), |condition| condition.since);
        let Self { kind, status, reason, message, .. } = self;
        Condition { kind, status, reason, message, since, seen: now }
    }
}

// === impl ConditionStatus ===

impl ConditionStatus {
    fn of(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }

    /// The API's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

#[cfg(test)]
mod tests;
