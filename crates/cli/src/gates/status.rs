//! `keelet gates status`: the gates of nodes, in a table.

mod watch;

use anyhow::{Context, Result};
use clap::ValueEnum;
use jiff::Timestamp;
use keelet_gates::clock::{SystemClock, WallClock as _};
use serde_json::json;

use super::{
    cluster::{Access, Cluster},
    controller::ago,
    flags::GateFlags,
    survey::{Listed, Seen, Survey},
    view::{self, GateView, Status},
};
use crate::{
    exit::ExitStatus,
    output,
    style::Style,
    view::{
        table::{Cell, Table, Tint},
        yaml,
    },
};

/// List the gates of nodes: which hold their node, since when, and when the condition was last reported
///
/// STATUS is Closed (the taint keeps pods away), Opening (the condition holds, and a controller removes the taint),
/// Open (no taint), Closing (a controller adds the taint, in continuous mode) or Ignored (a taint with the prefix of
/// gates that is not handled as one). REASON says why, in the words of the metric keelet_gates_waiting. SINCE is the
/// age of the condition's status, REPORTED that of its last heartbeat: a reporter that died leaves an old one behind.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 success, 1 not found, refused or not reachable, 2 wrong usage.\n\nExamples:\n  \
                        keelet gates status\n  keelet gates status --closed -o wide\n  keelet gates status -l pool=gpu -w\n  \
                        keelet gates status node-1 -o json"
)]
pub(super) struct Args {
    /// Only nodes with these names
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// Label selector for nodes, as in kubectl: pool=gpu, pool!=gpu, 'pool in (a, b)', !pool
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "nodes")]
    selector: Option<String>,
    /// Only gates that hold their node
    #[arg(long)]
    closed: bool,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
    /// After listing, watch for changes
    #[arg(short, long)]
    watch: bool,
    /// Do not print column headers
    #[arg(long)]
    no_headers: bool,
    #[command(flatten)]
    access: Access,
    #[command(flatten, next_help_heading = "As given to keelet controller")]
    flags: GateFlags,
}

/// How it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// More columns: taint, rules, reporter, the condition's reason and message
    Wide,
    /// For machines
    Json,
    /// For machines and people
    Yaml,
}

/// What is printed, and how. Rows that are printed later keep the columns where they are.
#[derive(Debug)]
struct Printer {
    format: Option<Format>,
    closed: bool,
    header: bool,
    table: Table,
}

pub(super) async fn run(args: &Args) -> Result<ExitStatus> {
    let settings = args.flags.settings()?;
    let cluster = Cluster::connect(&args.access).await?;
    let mut survey = Survey::begin(&cluster, settings).await?;
    let printer = Printer::new(args);
    if args.watch {
        return watch::follow(args, &mut survey, printer, || SystemClock.now()).await;
    }
    show(args, &mut survey, printer, SystemClock.now()).await
}

/// Prints once.
async fn show(args: &Args, survey: &mut Survey<'_>, mut printer: Printer, now: Timestamp) -> Result<ExitStatus> {
    let Found { nodes, missing, .. } = find(args, survey).await?;
    let gates = nodes.iter().flat_map(|seen| gates(survey, seen, now)).filter(|gate| printer.shows(gate));
    let gates: Vec<_> = gates.collect();
    match printer.is_for_people() && gates.is_empty() {
        true if nodes.is_empty() => {}
        true => output::note(&nothing(args, nodes.len())),
        false => output::out(&printer.text(&gates, now)?).context("cannot write the answer")?,
    }
    if nodes.is_empty() && missing.is_empty() && printer.is_for_people() {
        output::note("No nodes found");
    }
    missing.iter().for_each(|why| output::error(why));
    Ok(if missing.is_empty() { ExitStatus::Success } else { ExitStatus::Failure })
}

/// Nodes that were asked for, and what to say of those that are not there.
struct Found {
    nodes: Vec<Seen>,
    missing: Vec<String>,
    listed: Option<Listed>,
}

async fn find(args: &Args, survey: &mut Survey<'_>) -> Result<Found> {
    if args.nodes.is_empty() || args.watch {
        let listed = survey.list(&query(args)).await?;
        let nodes = listed.nodes.clone();
        return Ok(Found { nodes, missing: Vec::new(), listed: Some(listed) });
    }
    let (mut nodes, mut missing) = (Vec::new(), Vec::new());
    for name in &args.nodes {
        match survey.node(name).await {
            Ok(seen) => nodes.push(seen),
            Err(why) => missing.push(format!("{why:#}")),
        }
    }
    Ok(Found { nodes, missing, listed: None })
}

/// What a list or watch is limited to.
fn query(args: &Args) -> String {
    match &args.selector {
        Some(selector) => format!("labelSelector={}", keelet_serve::escaped(selector)),
        None => String::new(),
    }
}

fn gates(survey: &Survey<'_>, seen: &Seen, now: Timestamp) -> Vec<GateView> {
    view::gates(seen, &survey.decide(&seen.node, now), &survey.rules, &survey.settings)
}

fn nothing(args: &Args, nodes: usize) -> String {
    let of = if nodes == 1 { "the node".to_owned() } else { format!("the {nodes} nodes") };
    match args.closed {
        true => format!("No closed gates on {of}"),
        false => format!("No gates on {of}: none has a taint below readiness.k8s.io/, or had one"),
    }
}

// === impl Printer ===

impl Printer {
    fn new(args: &Args) -> Self {
        let usual = ["NODE", "GATE", "STATUS", "REASON", "CONDITION", "SINCE", "REPORTED"];
        let wide: &[&'static str] =
            if args.output == Some(Format::Wide) { &["REPORTER", "TAINT", "RULES", "MESSAGE"] } else { &[] };
        let table = Table::new(usual.into_iter().chain(wide.iter().copied()));
        Self { format: args.output, closed: args.closed, header: !args.no_headers, table }
    }

    fn is_for_people(&self) -> bool {
        !matches!(self.format, Some(Format::Json | Format::Yaml))
    }

    fn shows(&self, gate: &GateView) -> bool {
        !self.closed || matches!(gate.status, Status::Closed | Status::Opening | Status::Ignored)
    }

    /// All of it as one text.
    fn text(&mut self, gates: &[GateView], now: Timestamp) -> Result<String> {
        let whole = || {
            Ok::<_, serde_json::Error>(json!({"apiVersion": "keelet.dev/v1alpha1", "kind": "GateList", "items": gates}))
        };
        Ok(match self.format {
            Some(Format::Json) => format!("{}\n", serde_json::to_string_pretty(&whole()?)?),
            Some(Format::Yaml) => yaml::document(&whole()?)?,
            None | Some(Format::Wide) => {
                for gate in gates {
                    let row = row(gate, self.format == Some(Format::Wide), now);
                    self.table.row(row);
                }
                self.table.text(std::mem::take(&mut self.header), Style::of_stdout())
            }
        })
    }

    /// What has changed, as one text.
    fn changed(&mut self, gates: &[GateView], now: Timestamp) -> Result<String> {
        let mut text = String::new();
        match self.format {
            Some(Format::Json) => {
                for gate in gates {
                    text.push_str(&format!("{}\n", serde_json::to_string_pretty(gate)?));
                }
            }
            Some(Format::Yaml) => {
                for gate in gates {
                    text.push_str(&format!("---\n{}", yaml::document(&serde_json::to_value(gate)?)?));
                }
            }
            None | Some(Format::Wide) => text = self.text(gates, now)?,
        }
        Ok(text)
    }
}

/// The cells of a gate.
fn row(gate: &GateView, wide: bool, now: Timestamp) -> Vec<Cell> {
    let tint = match gate.status {
        Status::Open => Tint::Good,
        Status::Opening | Status::Closing => Tint::Unsure,
        Status::Closed | Status::Ignored => Tint::Bad,
    };
    let none = || "<none>".to_owned();
    let joined = |parts: Vec<String>| if parts.is_empty() { none() } else { parts.join(",") };
    let condition = |view: &view::ConditionView| match &view.found {
        Some(found) => format!("{}={}", found.kind, found.status),
        None => format!("{} {}", view.wanted, none()),
    };
    // Of several conditions the one that changed last, and the one that was reported longest ago.
    let since = gate.found().filter_map(|found| found.since).max().map_or_else(none, |since| ago(since, now));
    let reported = gate.found().filter_map(|found| found.reported).min().map_or_else(none, |at| ago(at, now));
    let mut row: Vec<Cell> = vec![
        gate.node.as_str().into(),
        gate.gate.as_str().into(),
        Cell::tinted(gate.status.as_str(), tint),
        gate.reason.into(),
        joined(gate.conditions.iter().map(condition).collect()).into(),
        since.into(),
        reported.into(),
    ];
    if wide {
        let reporters = gate.found().filter_map(|found| Some(found.reporter.as_ref()?.manager.clone()));
        let said = gate.found().map(|found| match (found.reason.is_empty(), found.message.is_empty()) {
            (_, true) => found.reason.clone(),
            (true, false) => found.message.clone(),
            (false, false) => format!("{}: {}", found.reason, found.message),
        });
        row.push(joined(reporters.collect()).into());
        row.push(gate.taint().into());
        row.push(joined(gate.rules.clone()).into());
        row.push(said.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ").into());
    }
    row
}

#[cfg(test)]
mod tests;
