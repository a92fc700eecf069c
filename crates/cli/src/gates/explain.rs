//! `keelet gates explain`: the chain behind every gate of a node.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use clap::ValueEnum;
use jiff::Timestamp;
use keelet_gates::{
    clock::{SystemClock, WallClock as _},
    decide::{Decision, Evidence, State, Verdict},
    node::{Node, Status as ConditionStatus},
    record::{self, Found},
    settings::{Enforcement, Settings},
};
use serde::Serialize;

use super::{
    cluster::{Access, Cluster},
    controller::{Leadership, LeasePlace, ago},
    flags::GateFlags,
    survey::{Seen, Survey},
    view::{self, ConditionView, FoundCondition, GateView, Status},
    writers::Writer,
};
use crate::{exit::ExitStatus, output, style::Style};

/// Explain the gates of a node, with the evidence for each
///
/// For every gate: its taint, its condition and who wrote it last, the annotation and the record of the controller,
/// what the controller decides, and what would happen next. Also whether a controller leads. "Written by" is the name
/// that a program gave itself (managedFields).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 success, 1 not found, refused or not reachable, 2 wrong usage.\n\nExamples:\n  \
                        keelet gates explain gpu-node-1\n  keelet gates explain gpu-node-1 -o json | jq '.gates[].next'"
)]
pub(super) struct Args {
    /// Node, by name
    #[arg(value_name = "NODE")]
    node: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    access: Access,
    #[command(flatten, next_help_heading = "As given to keelet controller")]
    flags: GateFlags,
    #[command(flatten)]
    lease: LeasePlace,
}

/// How the answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For machines
    Json,
}

/// Everything that is said about a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    api_version: &'static str,
    kind: &'static str,
    node: NodeView,
    gates: Vec<Chain>,
    controller: Leadership,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeView {
    name: String,
    uid: String,
    created: Option<Timestamp>,
    #[serde(skip_serializing_if = "String::is_empty")]
    boot_id: String,
    /// The taints that no gate is about.
    other_taints: Vec<String>,
}

/// A gate, down to its evidence.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Chain {
    #[serde(flatten)]
    gate: GateView,
    /// Who wrote the taints of the node last.
    taints_written_by: Option<Writer>,
    annotation: Option<Written>,
    record: String,
    next: String,
}

/// An annotation.
#[derive(Debug, Serialize)]
struct Written {
    value: String,
    by: Option<Writer>,
}

pub(super) async fn run(args: &Args) -> Result<ExitStatus> {
    let settings = args.flags.settings()?;
    let cluster = Cluster::connect(&args.access).await?;
    let text = answer(args, &cluster, settings, SystemClock.now()).await?;
    output::out(&text).context("cannot write the answer")?;
    Ok(ExitStatus::Success)
}

async fn answer(args: &Args, cluster: &Cluster, settings: Settings, now: Timestamp) -> Result<String> {
    let mut survey = Survey::begin(cluster, settings).await?;
    let seen = survey.node(&args.node).await?;
    let controller = args.lease.leadership(cluster, now).await;
    let decision = survey.decide(&seen.node, now);
    let gates = view::gates(&seen, &decision, &survey.rules, &survey.settings);
    let chains = gates.into_iter().map(|gate| chain(&seen, &decision, gate, &survey.settings, &controller));
    let explanation = Explanation {
        api_version: "keelet.dev/v1alpha1",
        kind: "GateExplanation",
        gates: chains.collect(),
        node: node_view(&seen.node, &survey.settings),
        controller,
    };
    Ok(match args.output {
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&explanation)?),
        Format::Text => text(&explanation, now, Style::of_stdout()),
    })
}

fn node_view(node: &Node, settings: &Settings) -> NodeView {
    let others = node.taints.iter().filter(|taint| settings.prefixes.split(&taint.key).is_none());
    NodeView {
        name: node.name.to_string(),
        uid: node.uid.to_string(),
        created: node.created,
        boot_id: node.boot_id.to_string(),
        other_taints: others.map(|taint| format!("{}:{}", taint.key, taint.effect)).collect(),
    }
}

fn chain(seen: &Seen, decision: &Decision, gate: GateView, settings: &Settings, controller: &Leadership) -> Chain {
    let is_it =
        |verdict: &&Verdict| *verdict.gate.key == *gate.taint.key && verdict.gate.effect.as_str() == gate.taint.effect;
    let verdict = decision.verdicts.iter().find(is_it);
    let annotation = seen
        .node
        .annotations
        .get(&gate.taint.key)
        .map(|value| Written { value: value.to_string(), by: seen.writers.of_annotation(&gate.taint.key) });
    Chain {
        taints_written_by: gate.taint.present.then(|| seen.writers.of_taints()).flatten(),
        record: recorded(&seen.node, &gate),
        next: next(&seen.node, verdict, &gate, settings, controller),
        annotation,
        gate,
    }
}

/// What the record of the controller says about a gate.
fn recorded(node: &Node, gate: &GateView) -> String {
    let name = record::ANNOTATION;
    let record = match Found::on(node) {
        Found::Absent => return format!("none ({name})"),
        Found::Unreadable => return format!("unreadable ({name}): it counts for nothing"),
        Found::OfAnother { uid } => {
            return format!("of another node object, {uid} ({name}): it counts for nothing");
        }
        Found::Ours(record) => record,
    };
    let effect = gate.taint.effect.as_str().into();
    let Some(entry) = record.entry(&gate.taint.key, &effect) else {
        return format!("nothing about this gate ({name})");
    };
    let times =
        [("removed the taint", entry.passed), ("added it to a new node", entry.added), ("added it", entry.held)];
    let done = times.iter().filter_map(|(what, at)| Some(format!("{what} at {}", (*at)?)));
    let mut text = format!("keelet {} ({name})", done.collect::<Vec<_>>().join(", "));
    if !entry.boot.is_empty() && *entry.boot != *node.boot_id && !node.boot_id.is_empty() {
        text.push_str(", before the node's last reboot");
    }
    text
}

/// What would happen next, and what a person can do.
fn next(
    node: &Node,
    verdict: Option<&Verdict>,
    gate: &GateView,
    settings: &Settings,
    controller: &Leadership,
) -> String {
    let (name, repair) = (&gate.gate, format!("keelet gates repair {}", node.name));
    let acts = |what: &str| match controller.is_led() {
        true => format!("the controller {what} now; if that does not happen, an event on the node says why"),
        false => format!("a controller would {}, and none leads", infinitive(what)),
    };
    let continuous = settings.enforcement == Enforcement::Continuous;
    match verdict.map(|verdict| &verdict.state) {
        Some(State::Passes(_)) => acts("removes the taint"),
        Some(State::Completes) => acts("writes down that the gate has passed"),
        Some(State::Returns { .. }) => acts("adds the taint"),
        Some(State::Counting { .. }) => acts("counts the held nodes first, and adds the taint if there is room"),
        Some(State::Refused { .. }) => {
            "the taint is added when fewer nodes are held, unless the condition holds again first".to_owned()
        }
        Some(State::Waits { unmet, .. }) => {
            let wants = unmet.iter().map(|unmet| match &unmet.found {
                Evidence::Absent { .. } => format!(
                    "a reporter sets condition {} to {} (is one running, and is that the type it reports?)",
                    unmet.wanted, unmet.required
                ),
                Evidence::Ambiguous { kinds } => format!(
                    "the node has one condition of that name only, not {}, or one of exactly the type {}",
                    kinds.join(" and "),
                    unmet.wanted
                ),
                Evidence::Stale { kind, .. } => format!("the reporter of condition {kind} writes it again"),
                Evidence::Is { kind, .. } => format!("condition {kind} becomes {}", unmet.required),
            });
            let wants: Vec<_> = wants.collect();
            format!("the taint is removed when {}. To open it anyway: {repair} --open {name}", wants.join(", and "))
        }
        Some(State::SetByHand { .. }) => {
            format!(
                "nothing, until a person decides: {repair} removes the taint, --gate-again {name} lets it wait for its condition"
            )
        }
        Some(State::Left(_)) => format!("nothing, until a person decides: {repair} says what it would do"),
        Some(State::Open) | None if continuous && gate.passed.is_some() => {
            "the taint returns when the condition leaves True (--enforcement=continuous)".to_owned()
        }
        Some(State::Open) if !gate.rules.is_empty() => "what its rules say when the conditions change".to_owned(),
        Some(State::Open) | None => "nothing: a gate that has passed stays open".to_owned(),
    }
}

/// `removes the taint` as `remove the taint`.
fn infinitive(what: &str) -> String {
    let (verb, rest) = what.split_once(' ').unwrap_or((what, ""));
    format!("{} {rest}", verb.strip_suffix('s').unwrap_or(verb))
}

fn text(explanation: &Explanation, now: Timestamp, style: Style) -> String {
    let Explanation { node, gates, controller, .. } = explanation;
    let closed = gates.iter().filter(|chain| chain.gate.taint.present).count();
    let created = node.created.map(|at| format!(", created {} ago", ago(at, now))).unwrap_or_default();
    let summary = match (gates.len(), closed) {
        (0, _) => "no gates".to_owned(),
        (_, 0) => "no gate holds it".to_owned(),
        (all, closed) => format!("held by {closed} of {all} gates"),
    };
    let mut text = format!("{}: {summary}{created}, UID {}\n", style.bold(&format!("Node {}", node.name)), node.uid);
    if !node.other_taints.is_empty() {
        let _ = writeln!(text, "Other taints, which gates do not touch: {}", node.other_taints.join(", "));
    }
    for chain in gates {
        text.push_str(&of_gate(chain, now, style));
    }
    let _ = writeln!(text, "\n{}: {}", style.bold("Controller"), controller.sentence(now));
    text
}

fn of_gate(chain: &Chain, now: Timestamp, style: Style) -> String {
    let Chain { gate, taints_written_by, annotation, record, next } = chain;
    let by = |writer: &Option<Writer>| writer.as_ref().map(|writer| format!(", last written by {writer}"));
    let status = match gate.status {
        Status::Open => style.green(gate.status.as_str()),
        Status::Opening | Status::Closing => style.yellow(gate.status.as_str()),
        Status::Closed | Status::Ignored => style.red(gate.status.as_str()),
    };
    let mut text = format!("\n{}  {status}\n", style.bold(&format!("Gate {}", gate.gate)));
    let mut line = |label: &str, content: &str| {
        let _ = writeln!(text, "  {label:<11} {content}");
    };
    match gate.taint.present {
        true => line("taint", &format!("{}{}", gate.taint(), by(taints_written_by).unwrap_or_default())),
        false => line("taint", &format!("none ({})", gate.taint())),
    }
    if !gate.rules.is_empty() {
        line("rules", &gate.rules.join(", "));
    }
    for condition in &gate.conditions {
        line("condition", &of_condition(condition, now));
        if let Some(found) = &condition.found {
            line("", &format!("reported {}{}", past(found.reported, now), by(&found.reporter).unwrap_or_default()));
        }
    }
    match annotation {
        None => line("annotation", "none"),
        Some(Written { value, by: writer }) => {
            line("annotation", &format!("{}: {value}{}", gate.taint.key, by(writer).unwrap_or_default()));
        }
    }
    line("record", record);
    line("decision", &gate.decision);
    line("next", next);
    text
}

fn of_condition(condition: &ConditionView, now: Timestamp) -> String {
    let wanted = match condition.required == ConditionStatus::True.as_str() {
        true => String::new(),
        false => format!(", and has to be {}", condition.required),
    };
    let Some(FoundCondition { kind, status, reason, message, since, .. }) = &condition.found else {
        return format!("the node has no condition {}{wanted}", condition.wanted);
    };
    let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    let message = if message.is_empty() { String::new() } else { format!(": {}", one_line(message)) };
    format!("{kind} is {status}{reason} since {}{message}{wanted}", past(*since, now))
}

fn past(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "an unknown time".to_owned(), |at| format!("{at} ({} ago)", ago(at, now)))
}

/// What others wrote must not break the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
