//! `keelet gates repair`: what the controller leaves to a person (GN-2), in one patch that fails if the node has changed.

mod plan;

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use keelet_gates::{
    api::ApiError,
    clock::{SystemClock, WallClock as _},
};
use keelet_serve::escaped;

use self::plan::{Choices, Plan, plan};
use super::{
    cluster::{Access, Cluster, PATIENCE, may},
    flags::GateFlags,
    survey::{Seen, Survey},
    view,
};
use crate::{exit::ExitStatus, output};

/// Repair the gates of a node where the controller leaves it to a person
///
/// It removes a taint that was added after its gate had passed, turns a taint with another effect than NoSchedule into
/// a gate, removes taints and annotations that no controller handles, and does what a controller would do if none runs.
/// A gate that waits for its condition is left alone, unless --open names it. The command shows what it would do and
/// asks. All of it is one patch, which the API server refuses if the node has changed meanwhile.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 repaired or nothing to repair, 1 not repaired, 2 wrong usage.\n\nExamples:\n  \
                        keelet gates repair gpu-node-1 --dry-run\n  keelet gates repair gpu-node-1 --open GPUReady\n  \
                        keelet gates repair gpu-node-1 --gate-again CNIReady --yes")]
pub(super) struct Args {
    /// Node, by name
    #[arg(value_name = "NODE")]
    node: String,
    /// Open this gate although its condition does not hold; repeat it for more
    #[arg(long, value_name = "GATE")]
    open: Vec<String>,
    /// Let this gate, whose taint was added after it had passed, wait for its condition again; repeat it for more
    #[arg(long, value_name = "GATE")]
    gate_again: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Only show what would be done; the API server checks the patch and does not store it
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    #[command(flatten)]
    access: Access,
    #[command(flatten, next_help_heading = "As given to keelet controller")]
    flags: GateFlags,
}

/// What a person says to the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
}

/// The person: what is shown, what is said beside it, and the question.
struct Person<'a> {
    show: &'a dyn Fn(&str) -> std::io::Result<()>,
    tell: &'a dyn Fn(&str),
    ask: &'a dyn Fn() -> Result<Answer>,
}

/// How often a patch is made again after a conflict. Another writer that is faster five times in a row is at war with us.
const TRIES: usize = 5;

/// What the API server notes as the writer.
const MANAGER: &str = "keelet-gates-repair";

pub(super) async fn run(args: &Args) -> Result<ExitStatus> {
    let settings = args.flags.settings()?;
    let cluster = Cluster::connect(&args.access).await?;
    let mut survey = Survey::begin(&cluster, settings).await?;
    let person = Person { show: &output::out, tell: &output::note, ask: &ask };
    repair(args, &mut survey, SystemClock.now(), &person).await
}

async fn repair(args: &Args, survey: &mut Survey<'_>, now: Timestamp, person: &Person<'_>) -> Result<ExitStatus> {
    let seen = survey.node(&args.node).await?;
    let choices = Choices { open: args.open.clone(), gate_again: args.gate_again.clone() };
    let planned = planned(survey, &seen, &choices, now)?;
    for note in &planned.notes {
        (person.tell)(note);
    }
    let name = &seen.node.name;
    if planned.steps.is_empty() {
        (person.tell)(&format!("Nothing to repair on node {name}"));
        return Ok(ExitStatus::Success);
    }
    let steps: String = planned.steps.iter().map(|step| format!("  - {step}\n")).collect();
    (person.show)(&format!("On node {name} (UID {}):\n{steps}", seen.node.uid)).context("cannot write the answer")?;
    if !args.dry_run && !args.yes && (person.ask)()? == Answer::No {
        (person.tell)("Nothing was changed");
        return Ok(ExitStatus::Failure);
    }
    send(args, survey, seen, &choices, planned, now).await?;
    let done = if args.dry_run { "Dry run: the API server accepts the patch; nothing was changed" } else { "Done" };
    (person.tell)(done);
    Ok(ExitStatus::Success)
}

/// Sends the patch. After a conflict it is made again, as long as it would do the same.
async fn send(
    args: &Args,
    survey: &mut Survey<'_>,
    mut seen: Seen,
    choices: &Choices,
    mut planned: Plan,
    now: Timestamp,
) -> Result<()> {
    let dry = if args.dry_run { "&dryRun=All" } else { "" };
    let path = format!("/api/v1/nodes/{}?fieldManager={MANAGER}{dry}", escaped(&seen.node.name));
    for _ in 0..TRIES {
        let patch = planned.edit.patch(&seen.node).to_string().into_bytes();
        match survey.cluster.api.patch(&path, patch, PATIENCE).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_conflict() => {}
            Err(error @ ApiError::NoAnswer(_)) => {
                let why = survey.cluster.explained(may("patch", "nodes"), &error);
                bail!("{why}\nWhether the patch was done is not known: keelet gates explain {}", seen.node.name);
            }
            Err(error) => return Err(survey.cluster.explained(may("patch", "nodes"), &error)),
        }
        let uid = seen.node.uid.clone();
        seen = survey.node(&args.node).await?;
        let again = self::planned(survey, &seen, choices, now)?;
        if seen.node.uid != uid || again.steps != planned.steps {
            bail!(
                "node {} has changed meanwhile, and something else would be done now: nothing was changed; repeat the command",
                seen.node.name
            );
        }
        planned = again;
    }
    bail!(
        "node {} was changed by another writer {TRIES} times while it was patched: nothing was changed; repeat the command",
        seen.node.name
    )
}

fn planned(survey: &Survey<'_>, seen: &Seen, choices: &Choices, now: Timestamp) -> Result<Plan> {
    let decision = survey.decide(&seen.node, now);
    let gates = view::gates(seen, &decision, &survey.rules, &survey.settings);
    plan(&seen.node, &decision, &gates, choices, now)
}

/// Asks on the terminal.
fn ask() -> Result<Answer> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("standard input is not a terminal, so nothing can be asked: --yes to do it, --dry-run to try it");
    }
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "Do it? [y/N] ").and_then(|()| stderr.flush());
    let mut line = String::new();
    stdin.lock().read_line(&mut line).context("cannot read the answer")?;
    Ok(if matches!(line.trim(), "y" | "Y" | "yes") { Answer::Yes } else { Answer::No })
}

#[cfg(test)]
mod tests;
