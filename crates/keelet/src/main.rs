//! keelet: a Kubernetes node agent. This binary is arguments and wiring only.

mod agent;
mod gates;
mod look;
mod lookup;
mod number;
mod output;
mod paths;
mod rules;
mod simulate;
mod source;
mod span;
mod style;
mod timeline;
mod validate;
mod why;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A Kubernetes node agent that keeps status, explains itself and costs next to nothing.
#[derive(Debug, Parser)]
#[command(name = "keelet", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    Agent(agent::Args),
    Simulate(simulate::Args),
    Timeline(timeline::Args),
    Validate(validate::Args),
    Why(why::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Agent(args) => agent::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Simulate(args) => simulate::run(&args),
        Command::Timeline(args) => timeline::run(&args).map(ExitCode::from),
        Command::Validate(args) => validate::run(&args).map(ExitCode::from),
        Command::Why(args) => why::run(&args).map(ExitCode::from),
    };
    result.unwrap_or_else(|error| {
        output::error(&format!("{error:#}"));
        validate::Verdict::Unreadable.into()
    })
}
