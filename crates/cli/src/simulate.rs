//! `keelet simulate`: a pod in simulated time, on the real agent.
//!
//! ```text
//! options --requested--> scenario --play--> record --+--> summary                    --+
//!                        ^                        '--> timeline, moments            +--> findings --> text, page
//!            manifest ---+--------------------------> outlook (what probes promise)-'
//! ```
//!
//! Nothing is read but the manifest, and nothing is written but the answer: runtime, network, disk and clock are those
//! of [`keelet_sim`]. Its checkers run along, so an answer that breaks one of the agent's promises never gets out.

mod horizon;
mod options;
mod page;
mod plain;
mod play;
mod scenario;
#[cfg(test)]
mod tests;
mod text;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, anyhow, bail};
use keelet_explain::{
    simulation::{Absence, Finding, Moment, Outlook, Record, Summary, findings, moments, outlooks},
    timeline::{BandKind, Timeline, Times},
};
use keelet_lifecycle::{Rules, Wall};
use keelet_pod::{Features, Pod, Strictness, duration, read_manifest};
use keelet_sim::Violation;

use self::{
    options::{Exit, ProbeTrouble, SlowStart, While},
    play::Played,
    scenario::{Requested, Scenario},
};
use crate::{
    feature_gates::FeatureGateArgs, format::Drawn, manifest, number, output, text_style::TextStyleArgs,
    validate::InvalidManifests,
};

/// Run a pod in simulated time, and show what its probes and restart rules lead to
///
/// The real agent runs the pod on a simulated node: minutes pass in milliseconds, and nothing outside the process is
/// changed. Without options nothing fails: containers run and pass their probes, init containers end after a second,
/// images are present. The output is a timeline, the important changes with their reasons, and a summary: time to
/// ready, how long a start may take, how soon a hang is detected, what agent restarts changed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Times after @ count from the start of the simulation, except with --exit: there they count from the start of the container.\n\
    The same options and seed give the same answer, byte for byte.\n\n\
    Exit status: 0 simulated, whatever the pod's result; 1 the manifest is invalid; 2 wrong usage or an unreadable file;\n\
    3 the agent broke a promise, which is a bug in keelet.\n\n\
    Examples:\n  \
    keelet simulate pod.yaml\n  \
    keelet simulate pod.yaml --slow-start 45s\n  \
    keelet simulate pod.yaml --exit main=1@5s*3 --for 10m\n  \
    keelet simulate pod.yaml --probe-fails main/readiness@30s+20s --agent-restart @40s+90s\n  \
    keelet simulate pod.yaml --probe-hangs liveness@1m -o html > pod.html"
)]
pub struct Args {
    /// Manifest with one pod; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Simulated duration, such as 90s or 10m [default: long enough for all options]
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse_day)]
    span: Option<Duration>,
    /// A container exits this long after its start; *3 for three instances, * for every instance [repeatable: one after the other]
    #[arg(long = "exit", value_name = "CONTAINER=CODE[@DURATION][*COUNT]")]
    exits: Vec<Exit>,
    /// Probes fail for this long after each start [repeatable]
    #[arg(long = "slow-start", value_name = "[CONTAINER=]DURATION")]
    slow_starts: Vec<SlowStart>,
    /// A probe fails from this time on, for the second duration or to the end [repeatable]
    #[arg(long = "probe-fails", value_name = "[CONTAINER/]PROBE@DURATION[+DURATION]")]
    failing: Vec<ProbeTrouble>,
    /// A probe gets no answer from this time on, for the second duration or to the end [repeatable]
    #[arg(long = "probe-hangs", value_name = "[CONTAINER/]PROBE@DURATION[+DURATION]")]
    hanging: Vec<ProbeTrouble>,
    /// The agent is killed at this time, and starts again after 1 s or the second duration [repeatable]
    #[arg(long = "agent-restart", value_name = "@DURATION[+DURATION]")]
    agent_restarts: Vec<While>,
    /// The node loses power at this time, and is back after 20 s or the second duration [repeatable]
    #[arg(long = "reboot", value_name = "@DURATION[+DURATION]")]
    reboots: Vec<While>,
    /// No image is present, and each pull takes this long
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse_day)]
    pull: Option<Duration>,
    /// Seed for everything random, such as the outcome of a call in flight when the agent is killed
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 1, value_parser = number::parse::<u64>)]
    seed: u64,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Drawn::Text, value_name = "FORMAT")]
    output: Drawn,
    #[command(flatten)]
    style: TextStyleArgs,
    /// Accept unknown fields and repeated keys
    #[arg(long)]
    lenient: bool,
    #[command(flatten)]
    feature_gates: FeatureGateArgs,
}

/// A simulation and what to make of it.
struct Simulation {
    seed: u64,
    scenario: Scenario,
    /// What is simulated differently from what the manifest says.
    remarks: Vec<String>,
    record: Record,
    summary: Summary,
    outlooks: Vec<Outlook>,
    findings: Vec<Finding>,
    moments: Vec<Moment>,
    timeline: Timeline,
}

/// Simulates and prints. The exit status says how it went.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let resolution = args.feature_gates.resolve()?;
    for warning in &resolution.warnings {
        output::warning(&warning.to_string());
    }
    let features = &resolution.features;
    let pod = match args.read(features)? {
        Ok(pod) => pod,
        Err(problems) => {
            output::error(&problems.to_string());
            return Ok(ExitCode::from(1));
        }
    };
    let (pod, remarks) = plain::plain(pod, features);
    let scenario = Scenario::new(&pod, &args.requested())?;
    let rules = Rules::of(features);
    let Played { record, violations } = play::play(&pod, &scenario, features, rules, args.seed);
    if !violations.is_empty() {
        output::error(&broken(&violations, args.seed));
        return Ok(ExitCode::from(3));
    }
    let simulation = Simulation::new(args.seed, scenario, remarks, record);
    let answer = match args.output {
        Drawn::Text => text::text(&simulation, args.style.style()),
        Drawn::Svg => page::svg(&simulation),
        Drawn::Html => page::html(&simulation),
        Drawn::Json => page::json(&simulation)?,
    };
    output::out(&answer).context("cannot write the answer")?;
    Ok(ExitCode::SUCCESS)
}

fn broken(violations: &[Violation], seed: u64) -> String {
    let list: Vec<String> = violations.iter().map(|violation| format!("\n  {violation}")).collect();
    let promises =
        if violations.len() == 1 { "a promise".to_owned() } else { format!("{} promises", violations.len()) };
    format!(
        "internal error: the simulated agent broke {promises}. This is a bug in keelet; please report it with the \
         manifest, the options and the seed {seed}:{}",
        list.concat()
    )
}

/// A ledger knows when an agent was last heard of; here it is known when it left.
fn be_exact(timeline: &mut Timeline, scenario: &Scenario) {
    let began = timeline.from.as_millis();
    let wall = |since: Duration| Wall::from_millis(began + i64::try_from(since.as_millis()).unwrap_or(0));
    for band in timeline.bands.iter_mut().filter(|band| band.kind == BandKind::NoAgent) {
        let over = |absence: &&Absence| wall(absence.from + absence.lasts) <= band.to;
        if let Some(absence) = scenario.absences.iter().rev().find(over) {
            band.from = wall(absence.from);
            band.label = format!("no agent for {}", duration::words(absence.lasts));
        }
    }
}

// === impl Args ===

impl Args {
    /// The one pod of the manifest, or what is wrong with it, in the words of `keelet validate`.
    fn read(&self, features: &Features) -> anyhow::Result<Result<Pod, InvalidManifests>> {
        if self.file.is_dir() {
            bail!("{} is a directory: expected one manifest", self.file.display());
        }
        let source = manifest::manifests(&self.file).pop().ok_or_else(|| anyhow!("no manifest"))?;
        let name = source.origin.name().to_owned();
        let bytes = source.bytes.map_err(|why| anyhow!("{name}: {why}"))?;
        let strictness = if self.lenient { Strictness::Lenient } else { Strictness::Strict };
        let mut report = read_manifest(&bytes, &source.origin, strictness, features);
        if !report.is_ok() {
            let mut text = format!("{name} is invalid");
            text.extend(report.errors.iter().map(|problem| format!("\nerror: {problem}")));
            if report.omitted > 0 {
                text.push_str(&format!("\n{} more problems not shown", report.omitted));
            }
            return Ok(Err(InvalidManifests(text)));
        }
        for problem in &report.warnings {
            output::warning(&problem.to_string());
        }
        match (report.pods.len(), report.pods.pop()) {
            (1, Some(pod)) => Ok(Ok(pod)),
            (number, _) => bail!("{name} has {number} pods: expected one"),
        }
    }

    fn requested(&self) -> Requested {
        Requested {
            exits: self.exits.clone(),
            slow_starts: self.slow_starts.clone(),
            failing: self.failing.clone(),
            hanging: self.hanging.clone(),
            agent_restarts: self.agent_restarts.clone(),
            reboots: self.reboots.clone(),
            pull: self.pull,
            span: self.span,
        }
    }
}

// === impl Simulation ===

impl Simulation {
    fn new(seed: u64, scenario: Scenario, remarks: Vec<String>, record: Record) -> Self {
        let summary = Summary::of(&record, &scenario.absences, scenario.span);
        let outlooks = outlooks(&record.pod);
        let findings = findings(&summary, &outlooks, &scenario.slow);
        let moments = moments(&record);
        let mut timeline = Timeline::build(&record.known(), None, record.ended);
        timeline.from = record.began.wall;
        be_exact(&mut timeline, &scenario);
        Self { seed, scenario, remarks, summary, outlooks, findings, moments, timeline, record }
    }

    /// How its times count.
    fn times(&self) -> Times {
        Times::FromZero { told: format!("simulated with seed {}", self.seed) }
    }

    /// What was asked for, and what is simulated differently, one sentence each.
    fn asked(&self) -> Vec<String> {
        self.scenario.sentences().into_iter().chain(self.remarks.iter().cloned()).collect()
    }
}
