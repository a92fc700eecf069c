//! What a forked process reports to its shim: lines over a socket, then the end of the connection.
//!
//! ```text
//! why TEXT      diagnostics, which explain a failure if there is one
//! pid PID       the process that was started, with its terminal beside the line if it has one
//! failed TEXT   the error; a report without one is a success
//! ```
//!
//! Both sides are always of the same version, because the process was forked from the shim.

use std::{
    fmt::Display,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use crate::wire;

const PID: &str = "pid ";
const FAILED: &str = "failed ";
const WHY: &str = "why ";

/// The reporting side. It is closed by execve(2), which reports success.
#[derive(Debug)]
pub(crate) struct Report {
    socket: OwnedFd,
}

/// Why a process was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The process reported an error.
    #[error("{message}{}", cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default())]
    Reported {
        message: String,
        /// The first diagnostics, which are nearest to the cause.
        cause: Option<String>,
    },
    /// The process exited or was killed before it reported.
    #[error("the process that was to start it exited without a report")]
    NoReport,
}

/// The PID in a complete report.
pub(crate) fn parse(report: &str) -> Result<u32, Failure> {
    let line = |prefix: &'static str| report.lines().find_map(|line| line.strip_prefix(prefix));
    if let Some(message) = line(FAILED) {
        let cause = line(WHY).filter(|cause| !message.contains(cause)).map(str::to_owned);
        return Err(Failure::Reported { message: message.to_owned(), cause });
    }
    line(PID).and_then(|pid| pid.parse().ok()).ok_or(Failure::NoReport)
}

// === impl Report ===

impl Report {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()? })
    }

    /// Reports the process that was started, with its terminal if it has one.
    pub(crate) fn pid(&self, pid: u32, terminal: &[BorrowedFd<'_>]) -> io::Result<()> {
        wire::send(&self.socket, format!("{PID}{pid}\n").as_bytes(), terminal)
    }

    /// Reports a failure.
    pub(crate) fn failed(&self, error: impl Display) {
        self.line(FAILED, &error.to_string());
    }

    /// Reports diagnostics.
    pub(crate) fn why(&self, text: &str) {
        self.line(WHY, text);
    }

    fn line(&self, prefix: &str, text: &str) {
        // An error means that the shim is gone, and with it the request.
        let _ = wire::send(self.socket.as_fd(), format!("{prefix}{}\n", text.replace('\n', " ")).as_bytes(), &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, parse};

    fn failure(report: &str) -> String {
        parse(report).expect_err("a failure").to_string()
    }

    #[test]
    fn a_failure_counts_also_after_the_pid_was_reported() {
        assert_eq!(parse("pid 7\n"), Ok(7));
        assert_eq!(failure("pid 7\nfailed exec: \"x\": no\n"), "exec: \"x\": no");
        assert_eq!(parse(""), Err(Failure::NoReport));
    }

    #[test]
    fn a_failure_is_followed_by_its_cause() {
        assert_eq!(failure("why deep\nwhy above\nfailed all\n"), "all: deep");
        assert_eq!(parse("why deep\npid 7\n"), Ok(7), "diagnostics without a failure are ignored");
        assert_eq!(failure("why deep\nfailed so deep\n"), "so deep");
    }
}
