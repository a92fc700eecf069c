//! The exit status of commands.

use std::process::ExitCode;

/// How a command ended. A greater one takes precedence over a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitStatus {
    /// It did what it was asked to do: 0.
    Success,
    /// Something was not found, is invalid, or failed: 1.
    Failure,
    /// Wrong usage, or a file that cannot be read: 2.
    Usage,
}

// === impl ExitStatus ===

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(match status {
            ExitStatus::Success => 0,
            ExitStatus::Failure => 1,
            ExitStatus::Usage => 2,
        })
    }
}
