//! Probes of components of the node: a network plugin, a driver, a security agent.
//!
//! They go by the rules of readiness probes: the same thresholds, the same schedule, the same non-results. What they say becomes a condition of
//! the node instead of a field of a pod.

use std::fmt;

use keelet_pod::{Handler, HttpGet, PortRef, Probe, ProbeKind, Scheme};
use serde::{Deserialize, Serialize};

use super::ConditionStatus;
use crate::{
    operation::{Outcome, ProbeReport},
    probe::{self, Attempt, Effect, ProbeMemory},
    time::Moment,
};

/// Attempts that are kept of each probe, for people.
const KEPT: usize = 10;

/// Bytes of an answer that are kept: a line of text, whatever the component sends.
const LONGEST_OUTPUT: usize = 256;

/// Where components listen unless the configuration says otherwise.
pub const LOOPBACK: &str = "127.0.0.1";

/// A probe of a component, as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeProbe {
    /// Its name.
    pub name: String,
    /// The type of the condition that it decides.
    pub condition: String,
    /// How and how often it asks.
    pub probe: Probe,
}

/// What is remembered of a probe of a component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ComponentProbe {
    /// The type of the condition that it decides.
    pub condition: String,
    /// What it asks, for people: `http://127.0.0.1:9090/healthz`.
    pub target: String,
    /// Its success threshold.
    pub success_threshold: u32,
    /// Its failure threshold.
    pub failure_threshold: u32,
    /// Its verdict, its streak, and when the next attempt is due.
    pub memory: ProbeMemory,
    /// The newest attempts, the newest last.
    pub attempts: Vec<Attempt>,
}

// === impl NodeProbe ===

impl NodeProbe {
    /// The probe as this run of the agent begins it. What an earlier run of the same boot found is carried if it was about the same target.
    pub fn begin(&self, before: Option<ComponentProbe>, now: Moment) -> ComponentProbe {
        let target = self.to_string();
        let Probe { success_threshold, failure_threshold, .. } = self.probe;
        let same = before.filter(|before| before.target == target && before.condition == self.condition);
        let (mut memory, attempts) = same.map(|before| (before.memory, before.attempts)).unwrap_or_default();
        if memory.due.is_some() {
            probe::after_restart(&mut memory, &self.probe, now);
        } else {
            memory.due = Some(probe::first_due(ProbeKind::Readiness, &self.probe, now, None));
        }
        ComponentProbe {
            condition: self.condition.clone(),
            target,
            success_threshold,
            failure_threshold,
            memory,
            attempts,
        }
    }

    /// Takes the result of an attempt. Whether the verdict changed with it.
    pub fn take(&self, known: &mut ComponentProbe, report: &ProbeReport, at: Moment) -> bool {
        let report = judged(report);
        known.attempts.push(Attempt {
            at,
            outcome: report.outcome,
            latency: report.latency,
            output: report.output.clone(),
        });
        let excess = known.attempts.len().saturating_sub(KEPT);
        known.attempts.drain(..excess);
        let memory = &mut known.memory;
        let effect = probe::take(memory, ProbeKind::Readiness, &self.probe, &report, at);
        let due = memory.due.unwrap_or(at);
        memory.due = Some(match effect {
            Effect::TryAgain => due,
            Effect::None | Effect::Changed => probe::after_attempt(&self.probe, due, at),
        });
        effect == Effect::Changed
    }
}

/// What the probe asks.
impl fmt::Display for NodeProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.probe.handler {
            Handler::HttpGet(HttpGet { host, port, path, scheme, .. }) => {
                let scheme = if *scheme == Scheme::Https { "https" } else { "http" };
                let host = host.as_deref().unwrap_or(LOOPBACK);
                let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
                let port = match port {
                    PortRef::Number(number) => number.to_string(),
                    PortRef::Name(name) => name.clone(),
                };
                let slash = if path.starts_with('/') { "" } else { "/" };
                write!(f, "{scheme}://{host}:{port}{slash}{path}")
            }
            Handler::Grpc(grpc) => {
                let (scheme, service) = (if grpc.tls { "grpcs" } else { "grpc" }, &grpc.service);
                write!(f, "{scheme}://{LOOPBACK}:{}/{service}", grpc.port)
            }
            // The configuration has neither of them (GATE-8).
            Handler::TcpSocket(_) => f.write_str("tcp"),
            Handler::Exec { .. } => f.write_str("exec"),
        }
    }
}

/// A result as it counts for a component. A redirect to another host is an answer of something else (GN-11); for a container it is a
/// success with a warning. The output becomes a line of bounded length.
fn judged(report: &ProbeReport) -> ProbeReport {
    let outcome = if report.outcome == Outcome::Warning { Outcome::Failure } else { report.outcome };
    let mut output = report.output.replace(char::is_control, " ");
    output.truncate(output.floor_char_boundary(LONGEST_OUTPUT));
    ProbeReport { outcome, latency: report.latency, output }
}

// === impl ComponentProbe ===

impl ComponentProbe {
    /// What the probe says of its condition. It is Unknown until a threshold is reached, and never True before a success (GATE-10).
    pub fn status(&self) -> ConditionStatus {
        self.memory.verdict.passed().map_or(ConditionStatus::Unknown, ConditionStatus::of)
    }

    /// The output of the attempt that decided, if one has.
    pub fn output(&self) -> &str {
        use crate::probe::{Basis, Verdict};
        match &self.memory.verdict {
            Verdict::Probed { output, .. } | Verdict::Carried { basis: Basis::Probe { output, .. }, .. } => output,
            Verdict::Carried { .. } | Verdict::NeverProbed => "",
        }
    }
}

#[cfg(test)]
mod tests;
