//! keelet: a Kubernetes node agent. This binary is arguments and wiring only.

mod agent;
mod embedded;
mod gates;
mod look;
mod lookup;
mod number;
mod output;
mod paths;
mod registries;
mod rules;
mod simulate;
mod source;
mod span;
mod style;
mod timeline;
mod validate;
mod why;

use std::{path::PathBuf, process::ExitCode};

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
    Runtime(embedded::Args),
    Simulate(simulate::Args),
    Timeline(timeline::Args),
    Validate(validate::Args),
    Why(why::Args),
}

fn main() -> ExitCode {
    if let Some(dir) = shim_directory() {
        // Nobody reads what a shim prints.
        return keelet_shim::run(&dir).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let result = match Cli::parse().command {
        Command::Agent(args) => agent::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Runtime(args) => embedded::run(&args).map(|()| ExitCode::SUCCESS),
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

/// The directory of a sandbox, if this process is to be its shim. Asked before anything else: a shim stays, and what it has
/// touched stays in memory.
fn shim_directory() -> Option<PathBuf> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == "shim").then(|| args.next().map(PathBuf::from))?
}
