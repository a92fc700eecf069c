//! `keelet gates`: the node readiness gates of a cluster, for people. They ask the API server, and need neither an agent nor a controller of
//! keelet.
//!
//! What a gate needs is decided by `keelet_gates::decide`, the controller's own function, and said in its words. Here is what the commands
//! share: `cluster` (which API server, and what to say when it refuses), `flags` (what the controller was started with), `controller` (its lease), `survey`
//! (rules and nodes), `writers` (who wrote a field last) and `view` (a gate as it is shown).

mod cluster;
mod controller;
mod explain;
mod flags;
mod repair;
mod status;
mod survey;
#[cfg(test)]
mod testing;
mod view;
mod writers;

use anyhow::Result;
use clap::Subcommand;

use crate::{ask, exit::ExitStatus};

pub use self::flags::GateFlags;

/// Show, explain and repair the node readiness gates of a cluster
///
/// A gate is a taint such as readiness.k8s.io/CNIReady:NoSchedule, which keeps a node out of scheduling until its
/// condition CNIReady is True. `keelet controller` removes it then. These commands ask the API server that kubectl
/// would ask.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 success, 1 not found, refused or not reachable, 2 wrong usage.\n\nExamples:\n  \
                        keelet gates status --closed\n  keelet gates explain gpu-node-1\n  \
                        keelet gates repair gpu-node-1 --dry-run"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Status(status::Args),
    Explain(explain::Args),
    Repair(repair::Args),
}

/// Asks, prints, and in the case of `repair` acts.
pub fn run(args: &Args) -> Result<ExitStatus> {
    match &args.command {
        Command::Status(args) => ask::run(status::run(args)),
        Command::Explain(args) => ask::run(explain::run(args)),
        Command::Repair(args) => ask::run(repair::run(args)),
    }
}
