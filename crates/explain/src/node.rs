//! Why the conditions of the node are as they are: which probe says so, since when, with which attempts; and what its readiness gates wait for.

use std::fmt::Write;

use keelet_lifecycle::{
    Moment, Wall,
    node::{ComponentProbe, ConditionStatus, GateState, NodeCondition, NodeEvidence},
    probe::{Attempt, Basis, Verdict},
};
use serde::Serialize;

use crate::{
    sentence::outcome,
    why::Detail,
    words::{clock, date, one_line, quoted, span, time_ago, times},
};

/// The answers about the node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedNode {
    /// The shape of this document. While it stays the same, fields may be added and none is renamed or dropped.
    pub format: &'static str,
    /// When the question was asked.
    pub as_of: Moment,
    /// When the agent started whose evidence this is.
    pub agent_started: Option<Moment>,
    /// What bears on all answers.
    pub remarks: Vec<String>,
    /// One for each condition.
    pub conditions: Vec<ConditionAnswer>,
    /// One for each gate that holds pods back on a node of its own.
    pub gates: Vec<GateAnswer>,
}

/// Why a condition is as it is.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionAnswer {
    /// The condition.
    #[serde(flatten)]
    pub condition: NodeCondition,
    /// The name of the probe that decides it, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
    /// What it rests on, one sentence each.
    pub because: Vec<String>,
    /// The attempts of the probe, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
}

/// What a gate does, and why.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GateAnswer {
    /// The key of its taint.
    pub key: String,
    /// Its state.
    pub state: GateState,
}

/// Attempts that are shown unless all are asked for.
const SHOWN: usize = 3;

/// Answers why the conditions of the node are as they are.
pub fn explain(known: &NodeEvidence, now: Moment) -> ExplainedNode {
    let mut remarks = Vec::new();
    if known.boot_id != now.boot_id {
        remarks.push("the node was booted since: no agent has observed it in this boot".to_owned());
    }
    let condition = |condition: &NodeCondition| {
        let probe = known.probes.iter().find(|(_, probe)| probe.condition == condition.kind);
        ConditionAnswer {
            condition: condition.clone(),
            probe: probe.map(|(name, _)| name.clone()),
            because: match probe {
                Some((name, probe)) => of_probe(name, probe, now),
                None => Some(one_line(&condition.message)).filter(|message| !message.is_empty()).into_iter().collect(),
            },
            attempts: probe.map(|(_, probe)| probe.attempts.clone()).unwrap_or_default(),
        }
    };
    ExplainedNode {
        format: "keelet.dev/why-node/v1",
        as_of: now,
        agent_started: known.agent_started,
        remarks,
        conditions: known.conditions.iter().map(condition).collect(),
        gates: known.gates.iter().map(|(key, state)| GateAnswer { key: key.clone(), state: state.clone() }).collect(),
    }
}

fn of_probe(name: &str, probe: &ComponentProbe, now: Moment) -> Vec<String> {
    let ComponentProbe { target, success_threshold, failure_threshold, memory, .. } = probe;
    let probed = |passed: bool, at: Moment, streak: u32, output: &str| {
        let (word, threshold) = match passed {
            true => ("passed", format!("successThreshold {success_threshold}")),
            false => ("failed", format!("failureThreshold {failure_threshold}")),
        };
        let streak = if streak == 1 { String::new() } else { format!(" {} in a row", times(streak)) };
        let (at, output) = (time_ago(at, now), quoted(output));
        format!("probe {name} ({target}) {word}{streak} ({threshold}) at {at}{output}")
    };
    let mut because = match &memory.verdict {
        Verdict::Probed { passed, at, streak, output } => vec![probed(*passed, *at, *streak, output)],
        Verdict::Carried { passed, basis: Basis::Probe { at, streak, output } } => {
            vec![probed(*passed, *at, *streak, output), "restarts of the agent since then do not change it".to_owned()]
        }
        Verdict::Carried { .. } | Verdict::NeverProbed => {
            vec![format!("probe {name} ({target}) has reached no threshold since the node was booted")]
        }
    };
    if let Some(streak) = memory.streak.filter(|streak| memory.verdict.passed() != Some(streak.passed)) {
        let (word, threshold) =
            if streak.passed { ("passed", success_threshold) } else { ("failed", failure_threshold) };
        because.push(format!("it {word} {} since then, of {threshold} that it takes", times(streak.length)));
    }
    because
}

/// The answers as text, with a line break at the end.
pub fn text(explained: &ExplainedNode, detail: Detail) -> String {
    let now = explained.as_of;
    let mut page = format!("node as of {} {} UTC\n", date(now.wall), clock(now.wall));
    for remark in &explained.remarks {
        let _ = writeln!(page, "{remark}");
    }
    if explained.conditions.is_empty() {
        page.push_str("no status yet\n");
    }
    for ConditionAnswer { condition, because, attempts, .. } in &explained.conditions {
        let NodeCondition { kind, status, reason, since, .. } = condition;
        let since = time_ago(of_wall(*since, now), now);
        let _ = writeln!(page, "\nnode   {kind}={} since {since}: {reason}", status.word());
        for because in because {
            let _ = writeln!(page, "  because {because}");
        }
        let left_out = if detail == Detail::Brief { attempts.len().saturating_sub(SHOWN) } else { 0 };
        for attempt in attempts.iter().skip(left_out) {
            let (at, latency, word) = (clock(attempt.at.wall), span(attempt.latency), outcome(attempt.outcome));
            let line = format!("    {at}  {word:9}  {latency:>7}  {}", one_line(&attempt.output));
            let _ = writeln!(page, "{}", line.trim_end());
        }
    }
    for GateAnswer { key, state } in &explained.gates {
        let _ = match state {
            GateState::Pending { waits_for } => {
                writeln!(page, "\ngate   {key} is pending: pods that do not tolerate it wait\n  because {waits_for}")
            }
            GateState::Passed { at, condition } => writeln!(
                page,
                "\ngate   {key} passed at {}, and stays open until the next boot\n  because condition {condition} was {}",
                time_ago(*at, now),
                ConditionStatus::True.word()
            ),
        };
    }
    page
}

/// A time of which only the wall clock is known. It is compared by that clock, as across boots.
fn of_wall(wall: Wall, now: Moment) -> Moment {
    let ago = now.wall.as_millis() - wall.as_millis();
    Moment { boot_ms: now.boot_ms - ago, wall, boot_id: now.boot_id }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keelet_lifecycle::{
        BootId,
        node::NodeProbe,
        operation::{Outcome, ProbeReport},
    };
    use keelet_pod::{GrpcProbe, Handler, Probe};

    use super::*;

    fn at(seconds: i64) -> Moment {
        let wall = Wall::from_millis(1_800_000_000_000 + seconds * 1000);
        Moment { boot_ms: seconds * 1000, wall, boot_id: BootId::from_u128(1) }
    }

    fn storage() -> NodeProbe {
        NodeProbe {
            name: "storage".to_owned(),
            condition: "example.com/StorageReady".to_owned(),
            probe: Probe {
                handler: Handler::Grpc(GrpcProbe { port: 19808, service: String::new(), tls: false }),
                initial_delay: Duration::ZERO,
                timeout: Duration::from_secs(1),
                period: Duration::from_secs(10),
                success_threshold: 1,
                failure_threshold: 2,
                termination_grace: None,
            },
        }
    }

    fn evidence(status: ConditionStatus, results: &[(i64, Outcome)]) -> NodeEvidence {
        let probe = storage();
        let mut known = NodeEvidence::begin(None, std::slice::from_ref(&probe), at(0));
        let memory = known.probes.get_mut("storage").expect("begun");
        for (seconds, outcome) in results {
            let output = if *outcome == Outcome::Success { "SERVING" } else { "connection refused" };
            let report =
                ProbeReport { outcome: *outcome, latency: Duration::from_millis(2), output: output.to_owned() };
            probe.take(memory, &report, at(*seconds));
        }
        let condition = NodeCondition {
            kind: probe.condition.clone(),
            status,
            reason: "ProbeFailed".to_owned(),
            message: String::new(),
            since: at(20).wall,
            seen: at(20).wall,
        };
        let ready = NodeCondition {
            kind: "Ready".to_owned(),
            status: ConditionStatus::True,
            reason: "KeeletReady".to_owned(),
            message: "keelet runs and the runtime is ready".to_owned(),
            ..condition.clone()
        };
        known.conditions = vec![condition, ready];
        known.gates = [
            (
                "readiness.k8s.io/A".to_owned(),
                GateState::Pending { waits_for: "the node has no condition A".to_owned() },
            ),
            ("readiness.k8s.io/B".to_owned(), GateState::Passed { at: at(5), condition: "B".to_owned() }),
        ]
        .into();
        known
    }

    /// GATE-11, GATE-16: which probe, which attempts, since when; and that a restart of the agent is no reason for anything.
    #[test]
    fn a_condition_is_followed_down_to_the_attempts_of_its_probe() {
        use Outcome::{Failure, Success};
        let known = evidence(ConditionStatus::False, &[(10, Failure), (20, Failure), (30, Failure)]);
        let page = text(&explain(&known, at(34)), Detail::Brief);
        assert_eq!(
            page,
            "\
node as of 2027-01-15 08:00:34 UTC

node   example.com/StorageReady=False since 08:00:20 (14 s ago): ProbeFailed
  because probe storage (grpc://127.0.0.1:19808/) failed twice in a row (failureThreshold 2) at 08:00:20 (14 s ago): \"connection refused\"
    08:00:10  failed        2 ms  connection refused
    08:00:20  failed        2 ms  connection refused
    08:00:30  failed        2 ms  connection refused

node   Ready=True since 08:00:20 (14 s ago): KeeletReady
  because keelet runs and the runtime is ready

gate   readiness.k8s.io/A is pending: pods that do not tolerate it wait
  because the node has no condition A

gate   readiness.k8s.io/B passed at 08:00:05 (29 s ago), and stays open until the next boot
  because condition B was True
"
        );
        let resumed = NodeEvidence::begin(
            Some(evidence(ConditionStatus::True, &[(10, Success), (20, Failure)])),
            &[storage()],
            at(21),
        );
        let page = text(&explain(&resumed, at(22)), Detail::Full);
        assert!(page.contains("  because restarts of the agent since then do not change it\n"), "{page}");
        assert!(page.contains("  because it failed once since then, of 2 that it takes\n"), "{page}");
        let rebooted = Moment { boot_id: BootId::from_u128(2), ..at(22) };
        assert_eq!(explain(&resumed, rebooted).remarks.len(), 1);
    }
}
