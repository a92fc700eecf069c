//! How a run ends: the signals that a user or a service manager may send meanwhile, and the exit status of each ending.

use std::{fs, io, process::ExitCode};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All pods succeeded.
    Succeeded,
    /// Some pod did not.
    Failed,
    /// Nothing was run.
    WrongUsage,
    /// Its terminal was closed.
    HungUp,
    /// By Ctrl-C.
    Interrupted,
    /// By SIGTERM.
    Terminated,
}

/// The signals that a user at the terminal, or a service manager, may send meanwhile.
pub struct Signals {
    pub(super) interrupt: Signal,
    pub(super) terminate: Signal,
    pub(super) hang_up: HangUp,
    pub(super) resize: Signal,
}

/// The terminal was closed (SIGHUP); none if the process was started with SIGHUP ignored.
pub(super) struct HangUp(Option<Signal>);

// === impl Ending ===

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(match ending {
            Ending::Succeeded => 0,
            Ending::Failed => 1,
            Ending::WrongUsage => 2,
            // 128 and the number of the signal, as shells have it.
            Ending::HungUp => 129,
            Ending::Interrupted => 130,
            Ending::Terminated => 143,
        })
    }
}

// === impl Signals ===

impl Signals {
    /// Signals are kept from now on. To be called before anything is made: a process that a signal kills cleans nothing
    /// up.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: HangUp::listen()?,
            resize: signal(SignalKind::window_change())?,
        })
    }
}

// === impl HangUp ===

impl HangUp {
    /// To listen would undo what `nohup` does: a process that is started with it goes on without its terminal.
    fn listen() -> io::Result<Self> {
        let unwanted = fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hang_up(&status));
        Ok(Self(if unwanted { None } else { Some(signal(SignalKind::hangup())?) }))
    }

    /// Resolves when the terminal was closed.
    pub(super) async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }
}

/// What the kernel says of a process: whether SIGHUP is among the signals that it ignores.
fn ignores_hang_up(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal number N is bit N - 1, and SIGHUP is number 1.
    ignored.is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::ignores_hang_up;

    #[test]
    fn a_run_started_with_nohup_is_not_ended_by_a_hang_up() {
        let status = |mask: &str| format!("Name:\tkeelet\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t0\n");
        assert!(ignores_hang_up(&status("0000000000001001")));
        // Only SIGPIPE, as every Rust program does.
        assert!(!ignores_hang_up(&status("0000000000001000")));
        assert!(!ignores_hang_up(""));
    }
}
