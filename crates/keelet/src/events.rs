//! `keelet events`: what happened to pods.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::{
    ask,
    get::{self, Kind},
    validate::Verdict,
};

/// Show what happened to pods, the newest last
///
/// The agent keeps the newest events since its start. For what happened before, and why, ask `keelet timeline` and
/// `keelet why`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 answered, 1 no agent, 2 wrong usage.\n\n\
                        Examples:\n  keelet events\n  keelet events -A -w")]
pub(crate) struct Args {
    #[command(flatten)]
    how: get::How,
}

/// Answers and prints.
pub(crate) fn run(args: &Args) -> Result<Verdict> {
    ask::run(get::show(Kind::Events, BTreeSet::new(), &args.how))
}
