//! The node's conditions: from what was found to what is said, with the time of the last transition of each.

use std::collections::BTreeMap;

use keelet_lifecycle::{
    Wall,
    node::{ComponentProbe, ConditionStatus, NodeCondition},
};

use super::health::{Health, RuntimeHealth};

/// Probes that a condition names; their number is reported in any case.
const MOST_NAMED: usize = 5;

/// The summary of the others, for schedulers and people.
const READY: &str = "Ready";

/// What every container runtime says of itself. It is part of `Ready`, and a condition of its own where a gate of the node names it (GN-12).
pub const BUILT_IN_CONDITIONS: [&str; 2] = ["RuntimeReady", "NetworkReady"];

/// Conditions that the agent always reports by itself. A probe of a component may not have one of them.
pub const OWN_CONDITIONS: [&str; 3] = [READY, "DiskPressure", "ProbePressure"];

/// What one observation finds of a condition.
struct Found {
    kind: String,
    what: What,
    reason: String,
    message: String,
    /// When the status began, if that is known better than by this observation.
    since: Option<Wall>,
    /// A message that begins so stays as it is while the status does: it tells of the transition.
    told_once: Option<String>,
}

/// What is found.
enum What {
    Is(ConditionStatus),
    /// It was not observed since the agent started: what an earlier agent said stays, else it is Unknown.
    NotLookedAt,
}

/// The conditions that follow from an observation of the node, if there was one, and from the probes of its components. `before` is what was said last,
/// by this agent or by the one before it; `built_in` are those of [`BUILT_IN_CONDITIONS`] that are wanted. A condition whose status is the same keeps its transition time, for every reader.
pub fn conditions(
    before: &[NodeCondition],
    health: Option<&Health>,
    probes: &BTreeMap<String, ComponentProbe>,
    built_in: &[String],
    now: Wall,
) -> Vec<NodeCondition> {
    let of_probes = probes.iter().map(|(name, probe)| component(name, probe));
    let Some(health) = health else {
        // Nothing is known but what an earlier agent of this boot has said, and what probes have found.
        let of_probes: Vec<Found> = of_probes.collect();
        let is_probed = |kind: &str| of_probes.iter().any(|found| found.kind == kind);
        let mut said: Vec<_> = before.iter().filter(|known| !is_probed(&known.kind)).cloned().collect();
        let place = said.len() - usize::from(said.last().is_some_and(|last| last.kind == READY));
        said.splice(place..place, of_probes.into_iter().map(|found| found.after(before, now)));
        return said;
    };
    let mut found = vec![disk_pressure(health), probe_pressure(health)];
    let (of_runtime, ready) = runtime(&health.runtime, built_in);
    found.extend(of_runtime);
    found.extend(of_probes);
    // Last, so that a reader of the list has seen the reasons before the summary.
    found.push(ready);
    found.into_iter().map(|found| found.after(before, now)).collect()
}

/// What the probe of a component says (GATE-10, GATE-11).
fn component(name: &str, probe: &ComponentProbe) -> Found {
    let told = format!("probe {name} ({}) ", probe.target);
    let status = probe.status();
    let (reason, message) = match status {
        ConditionStatus::True => ("ProbeSucceeded", "passed".to_owned()),
        ConditionStatus::False => {
            ("ProbeFailed", format!("failed {} times in a row: {}", probe.failure_threshold, probe.output()))
        }
        ConditionStatus::Unknown => ("ProbePending", "has reached no threshold yet".to_owned()),
    };
    Found { told_once: Some(told.clone()), ..Found::new(&probe.condition, status, reason, &format!("{told}{message}")) }
}

fn disk_pressure(health: &Health) -> Found {
    let pressure = &health.disk;
    let reason = if pressure.holds { "KeeletHasDiskPressure" } else { "KeeletHasNoDiskPressure" };
    let since = pressure.since.map(|since| since.wall);
    let what = if since.is_some() { What::Is(ConditionStatus::of(pressure.holds)) } else { What::NotLookedAt };
    let status = ConditionStatus::of(pressure.holds);
    Found { since, what, ..Found::new("DiskPressure", status, reason, &pressure.message) }
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
fn runtime(health: &RuntimeHealth, built_in: &[String]) -> (Vec<Found>, Found) {
    let conditions = match health {
        RuntimeHealth::NotAskedYet => {
            let message = "the container runtime has not been asked yet";
            let unknown = Found::new(READY, ConditionStatus::Unknown, "RuntimeNotAskedYet", message);
            return (Vec::new(), Found { what: What::NotLookedAt, ..unknown });
        }
        RuntimeHealth::Silent(error) => {
            const SILENT: &str = "RuntimeNotAnswering";
            let unknown = |kind: &String| Found::new(kind, ConditionStatus::Unknown, SILENT, error);
            let of_runtime = built_in.iter().map(unknown).collect();
            return (of_runtime, Found::new(READY, ConditionStatus::False, SILENT, error));
        }
        RuntimeHealth::Answers { conditions, .. } => conditions,
    };
    let wanted = conditions.iter().filter(|condition| built_in.contains(&condition.r#type));
    let own = wanted.map(|c| Found::new(&c.r#type, ConditionStatus::of(c.status), &c.reason, &c.message));
    let ready = match conditions.iter().find(|condition| !condition.status) {
        None => Found::new(READY, ConditionStatus::True, "KeeletReady", "keelet runs and the runtime is ready"),
        Some(missing) => Found::new(READY, ConditionStatus::False, &missing.reason, &missing.message),
    };
    (own.collect(), ready)
}

// === impl Found ===

impl Found {
    fn new(kind: &str, status: ConditionStatus, reason: &str, message: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            what: What::Is(status),
            reason: reason.to_owned(),
            message: message.to_owned(),
            since: None,
            told_once: None,
        }
    }

    fn after(self, before: &[NodeCondition], now: Wall) -> NodeCondition {
        let Self { kind, what, reason, mut message, since, told_once } = self;
        let known = before.iter().find(|condition| condition.kind == kind);
        let status = match (what, known) {
            (What::Is(status), _) => status,
            (What::NotLookedAt, Some(known)) => return known.clone(),
            (What::NotLookedAt, None) => ConditionStatus::Unknown,
        };
        let same = known.filter(|condition| condition.status == status);
        let since = same.map_or_else(|| since.unwrap_or(now), |condition| condition.since);
        if let (Some(same), Some(told)) = (same, told_once)
            && same.reason == reason
            && same.message.starts_with(&told)
        {
            message.clone_from(&same.message);
        }
        NodeCondition { kind, status, reason, message, since, seen: now }
    }
}

#[cfg(test)]
mod tests;
