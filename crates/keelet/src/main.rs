//! keelet: a Kubernetes node agent. This binary is arguments and wiring only.

mod output;
mod source;
mod style;
mod validate;

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
    Validate(validate::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Validate(args) => validate::run(&args),
    };
    match result {
        Ok(verdict) => verdict.into(),
        Err(error) => {
            output::error(&format!("{error:#}"));
            validate::Verdict::Unreadable.into()
        }
    }
}
