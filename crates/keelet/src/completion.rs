//! `keelet completion`: what the shell needs to complete our commands.

use anyhow::{Context, Result};
use clap_complete::Shell;

use keelet_cli::{exit::ExitStatus, output};

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  source <(keelet completion bash)\n  \
                        keelet completion zsh > \"${fpath[1]}/_keelet\"\n  \
                        keelet completion fish > ~/.config/fish/completions/keelet.fish")]
pub(crate) struct Args {
    /// bash, zsh or fish
    #[arg(value_name = "SHELL", value_parser = shell)]
    shell: Shell,
}

/// A shell without a script.
#[derive(Debug, thiserror::Error)]
#[error("unknown shell {0:?}: expected bash, zsh or fish")]
struct UnknownShell(String);

fn shell(text: &str) -> Result<Shell, UnknownShell> {
    match text {
        "bash" => Ok(Shell::Bash),
        "zsh" => Ok(Shell::Zsh),
        "fish" => Ok(Shell::Fish),
        _ => Err(UnknownShell(text.to_owned())),
    }
}

/// Prints the script.
pub(crate) fn run(args: &Args, command: &mut clap::Command) -> Result<ExitStatus> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "keelet", &mut script);
    output::live(&script).context("cannot write the script")?;
    Ok(ExitStatus::Success)
}
