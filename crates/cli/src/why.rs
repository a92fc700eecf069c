//! `keelet why`: the chain from a status to its evidence.

use anyhow::bail;
use keelet_explain::{
    Known, node,
    why::{Detail, explain, text},
};

use crate::{ask::without_kind, exit::ExitStatus, format::Format, lookup::Question, output};

/// Explain the status of a pod or of the node, with the evidence for every part of it
///
/// For every condition, the phase, and each container's state, started, ready and restart count: the reason, and the
/// reason for that, down to what was observed: exits, probe attempts with their output and latency, restart rules,
/// backoffs, requests, times without an agent. The command reads the ledger, so it works while the agent is stopped
/// too.
///
/// `keelet why node` explains the conditions of the node: which probe of which component says so, with its attempts, and
/// what its readiness gates wait for.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 success, 1 pod not found or no ledger, 2 wrong usage.\n\n\
                        Examples:\n  keelet why web\n  keelet why web/main -n shop\n  keelet why web -o json | jq '.answers[0]'\n  keelet why node")]
pub struct Args {
    /// Pod, by name or UID; with /CONTAINER only that container. `node` is the node; a pod of that name is pod/node
    #[arg(value_name = "[pod/]POD[/CONTAINER]|node")]
    pod: String,
    /// Print every probe attempt with all of its output
    #[arg(long)]
    full: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    question: Question,
}

/// `web`, `web/main`, and both with `pod/` before them.
fn pod_and_container(text: &str) -> (&str, Option<&str>) {
    match without_kind(text).split_once('/') {
        Some((pod, container)) => (pod, Some(container)),
        None => (without_kind(text), None),
    }
}

/// Answers and prints.
pub fn run(args: &Args) -> anyhow::Result<ExitStatus> {
    output::answer(answer(args))
}

/// Whether the node is meant.
fn is_node(text: &str) -> bool {
    ["node", "nodes", "no"].contains(&text.split_once('/').map_or(text, |(kind, _)| kind))
}

fn answer(args: &Args) -> anyhow::Result<String> {
    let detail = if args.full { Detail::Full } else { Detail::Brief };
    if is_node(&args.pod) {
        let (known, now) = args.question.node()?;
        let explained = node::explain(&known, now);
        return Ok(match args.output {
            Format::Text => node::text(&explained, detail),
            Format::Json => format!("{}\n", serde_json::to_string_pretty(&explained)?),
        });
    }
    let (name, container) = pod_and_container(&args.pod);
    let found = args.question.find(name)?;
    let known = Known::from_ledger(&found.pod);
    let explained = explain(&known, container, found.now);
    if let (Some(container), true) = (container, explained.answers.is_empty()) {
        let names: Vec<&str> =
            known.status().into_iter().flat_map(|status| status.all_containers()).map(|c| c.name.as_str()).collect();
        match names.is_empty() {
            true => bail!("no status of pod {}/{} is known yet", known.namespace, known.name),
            false => bail!(
                "container {container:?} not found in pod {}/{}; containers: {}",
                known.namespace,
                known.name,
                names.join(", ")
            ),
        }
    }
    Ok(match args.output {
        Format::Text => text(&explained, detail),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&explained)?),
    })
}

#[cfg(test)]
mod tests {
    use super::{is_node, pod_and_container};

    #[test]
    fn the_node_is_meant_by_its_kind() {
        for (text, expected) in
            [("node", true), ("no", true), ("nodes/worker", true), ("pod/node", false), ("web", false)]
        {
            assert_eq!(is_node(text), expected, "{text}");
        }
    }

    #[test]
    fn a_pod_may_be_named_with_its_kind_and_with_a_container() {
        for (text, expected) in [
            ("web", ("web", None)),
            ("pod/web", ("web", None)),
            ("po/web", ("web", None)),
            ("web/main", ("web", Some("main"))),
            ("pods/web/main", ("web", Some("main"))),
        ] {
            assert_eq!(pod_and_container(text), expected, "{text}");
        }
    }
}
