//! Confinement against the real kernel: filters are loaded, users changed, device rules attached.
//!
//! None of that can be undone, and none of it is allowed in a process with threads. So this test has no harness: each case starts the test
//! binary once more in a role (`confinement as ROLE ARGS`) and checks the output and exit status of that process. Cases that this machine
//! cannot run are printed as skipped.

#![expect(clippy::print_stdout, reason = "the output of a test")]
#![expect(clippy::disallowed_methods, reason = "a test waits for the processes it starts")]

use std::env;
use std::panic;
use std::process::{Command, ExitCode, Output};

use keelet_report::{Ended, Tally};

#[path = "confinement/capabilities.rs"]
mod capabilities;
#[path = "confinement/devices.rs"]
mod devices;
#[path = "confinement/seccomp.rs"]
mod seccomp;

/// The outcome of a case that does not fail.
enum Shown {
    Yes,
    Skipped(String),
}

type Case = (&'static str, fn() -> Shown);

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let [first, role, args @ ..] = args.as_slice()
        && first == "as"
    {
        play(role, args);
        return ExitCode::SUCCESS;
    }
    let cases: Vec<Case> = [seccomp::CASES, capabilities::CASES, devices::CASES].concat();
    if args.iter().any(|arg| arg == "--list") {
        cases.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let is_chosen = |case: &&Case| filter.is_none_or(|part| case.0.contains(part.as_str()));
    let tally = Tally::new();
    let chosen: Vec<&Case> = cases.iter().filter(is_chosen).collect();
    for (name, case) in &chosen {
        tally.report(name, run(*case));
    }
    let well = tally.close(cases.len() - chosen.len());
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(case: fn() -> Shown) -> Ended {
    match panic::catch_unwind(case) {
        Ok(Shown::Yes) => Ended::Passed,
        Ok(Shown::Skipped(reason)) => Ended::Skipped(reason),
        // The panic has printed the reason.
        Err(_) => Ended::Failed(String::new()),
    }
}

fn play(role: &str, args: &[String]) {
    let known = seccomp::play(role, args) || capabilities::play(role, args) || devices::play(role, args);
    assert!(known, "no role {role:?}");
}

/// Starts a process in a role, and waits for its exit.
fn child(role: &str, args: &[&str]) -> Output {
    Command::new(env::current_exe().unwrap()).arg("as").arg(role).args(args).output().unwrap()
}

/// The output of such a process, which must succeed.
fn output_of(role: &str, args: &[&str]) -> String {
    let output = child(role, args);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{role} {args:?} failed with {}: {out}{err}", output.status);
    out.into_owned()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn needs_root() -> Shown {
    Shown::Skipped("needs root".to_owned())
}
