//! keelet: a Kubernetes node agent. This binary is arguments and wiring only.

mod agent;
mod completion;
mod controller;
mod embedded;
mod log;
mod run;

use std::{path::PathBuf, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};
use keelet_cli::{
    change, describe, events, exec, gates, get, image, logs, output, port_forward, simulate, timeline, top, validate,
    why,
};

/// A Kubernetes node agent with a container runtime of its own: keeps pod status over restarts, and explains it.
#[derive(Debug, Parser)]
#[command(name = "keelet", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Agent(Box<agent::Args>),
    Runtime(embedded::Args),
    Controller(controller::Args),
    Get(get::Args),
    Describe(describe::Args),
    Logs(logs::Args),
    Exec(exec::Args),
    PortForward(port_forward::Args),
    Events(events::Args),
    Top(top::Args),
    Restart(change::RestartArgs),
    Delete(change::DeleteArgs),
    Image(image::Args),
    Why(why::Args),
    Timeline(timeline::Args),
    Validate(validate::Args),
    Simulate(simulate::Args),
    Gates(gates::Args),
    Completion(completion::Args),
}

fn main() -> ExitCode {
    if let Some(dir) = shim_directory() {
        // The output of a shim has no reader.
        return keelet_shim::run(&dir).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let result = match Cli::parse().command {
        Command::Agent(args) => agent::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Runtime(args) => embedded::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Controller(args) => controller::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Run(args) => run::run(&args),
        Command::Get(args) => get::run(&args).map(ExitCode::from),
        Command::Describe(args) => describe::run(&args).map(ExitCode::from),
        Command::Logs(args) => logs::run(&args).map(ExitCode::from),
        Command::Exec(args) => exec::run(&args),
        Command::PortForward(args) => port_forward::run(&args).map(ExitCode::from),
        Command::Events(args) => events::run(&args).map(ExitCode::from),
        Command::Top(args) => top::run(&args).map(ExitCode::from),
        Command::Restart(args) => change::restart(&args).map(ExitCode::from),
        Command::Delete(args) => change::delete(&args).map(ExitCode::from),
        Command::Image(args) => image::run(&args).map(ExitCode::from),
        Command::Why(args) => why::run(&args).map(ExitCode::from),
        Command::Timeline(args) => timeline::run(&args).map(ExitCode::from),
        Command::Validate(args) => validate::run(&args).map(ExitCode::from),
        Command::Simulate(args) => simulate::run(&args),
        Command::Gates(args) => gates::run(&args).map(ExitCode::from),
        Command::Completion(args) => completion::run(&args, &mut Cli::command()).map(ExitCode::from),
    };
    result.unwrap_or_else(|error| {
        output::error(&format!("{error:#}"));
        keelet_cli::exit::ExitStatus::Usage.into()
    })
}

/// The directory of a sandbox, if this process is to be its shim. Asked before anything else: a shim stays, and what it has
/// touched stays in memory.
fn shim_directory() -> Option<PathBuf> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == "shim").then(|| args.next().map(PathBuf::from))?
}
