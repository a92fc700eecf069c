//! `keelet timeline`: what happened to a pod, drawn.

use std::time::Duration;

use keelet_explain::{
    Known,
    timeline::{Caption, Timeline, Times, html, json, svg, text},
};

use keelet_pod::duration;

use crate::{ask::without_kind, exit::ExitStatus, format::Drawn, lookup::Question, output, text_style::TextStyleArgs};

/// Draw what happened to a pod: conditions, containers, probes, exits, restarts, times without an agent
///
/// The command reads the ledger, so it works while the agent is stopped too. The ledger has the newest 200 changes of a
/// pod, and the newest 16 attempts of each probe.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 success, 1 pod not found or no ledger, 2 wrong usage.\n\n\
                        Examples:\n  keelet timeline web\n  keelet timeline web --since 10m\n  \
                        keelet timeline web -n shop -o html > web.html")]
pub struct Args {
    /// Pod, by name or UID
    #[arg(value_name = "[pod/]POD")]
    pod: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Drawn::Text, value_name = "FORMAT")]
    output: Drawn,
    /// Only changes newer than this, such as 90s, 10m or 1h30m
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse_some)]
    since: Option<Duration>,
    #[command(flatten)]
    style: TextStyleArgs,
    #[command(flatten)]
    question: Question,
}

/// Draws and prints.
pub fn run(args: &Args) -> anyhow::Result<ExitStatus> {
    output::answer(answer(args))
}

fn answer(args: &Args) -> anyhow::Result<String> {
    let found = args.question.find(without_kind(&args.pod))?;
    let timeline = Timeline::build(&Known::from_ledger(&found.pod), args.since, found.now);
    Ok(match args.output {
        Drawn::Text => text(&timeline, args.style.style()),
        Drawn::Svg => svg(&timeline, &Times::Utc),
        Drawn::Html => html(&timeline, &Caption::default()),
        Drawn::Json => json(&timeline),
    })
}
