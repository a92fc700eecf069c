//! `keelet why`: the chain from a status to its evidence.

use anyhow::bail;
use clap::ValueEnum;
use keelet_explain::{
    Known,
    why::{explain, text},
};

use crate::{lookup::Question, output, validate::Verdict};

/// Say why a pod's status is as it is, down to the evidence
///
/// For every condition, the phase, and each container's state, started, ready and restart count: what it rests on, and
/// what that rests on, down to what was observed: exits, probe attempts with their output and latency, restart rules,
/// backoffs, requests, times without an agent. Read from the ledger, so it works with the agent stopped too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 answered, 1 no such pod or no ledger, 2 wrong usage.\n\n\
                        Examples:\n  keelet why web\n  keelet why web/main -n shop\n  keelet why web -o json | jq '.answers[0]'")]
pub struct Args {
    /// Pod, by name or UID, and one of its containers if only that one is of interest
    #[arg(value_name = "POD[/CONTAINER]")]
    pod: String,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    question: Question,
}

/// How the answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For machines; the shape is stable
    Json,
}

/// Answers and prints.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    output::answer(answer(args))
}

fn answer(args: &Args) -> anyhow::Result<String> {
    let (name, container) = match args.pod.split_once('/') {
        Some((pod, container)) => (pod, Some(container)),
        None => (args.pod.as_str(), None),
    };
    let found = args.question.find(name)?;
    let known = Known::from_ledger(&found.pod);
    let explained = explain(&known, container, found.now);
    if let (Some(container), true) = (container, explained.answers.is_empty()) {
        let names: Vec<&str> =
            known.status().into_iter().flat_map(|status| status.all_containers()).map(|c| c.name.as_str()).collect();
        match names.is_empty() {
            true => bail!("nothing is known of the containers of pod {}/{} yet", known.namespace, known.name),
            false => bail!(
                "pod {}/{} has no container {container:?}; it has {}",
                known.namespace,
                known.name,
                names.join(", ")
            ),
        }
    }
    Ok(match args.output {
        Format::Text => text(&explained),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&explained)?),
    })
}
