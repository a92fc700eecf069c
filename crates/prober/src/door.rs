//! The doors of the prober: connections to targets, and commands in containers.

use std::{fmt, io, time::Duration};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::text;

/// Opens connections to probe targets. [`crate::TcpDial`] is the real one.
pub trait Dial: Send + Sync + fmt::Debug {
    /// Connects to a host (an address, or a name to be resolved) and a port, on behalf of a pod, by UID. No deadline: the
    /// caller has one, and drops the future when it has passed.
    fn connect<'a>(&'a self, pod: &'a str, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>>;
}

/// A connection to a probe target.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Runs commands in containers.
pub trait Exec: Send + Sync + fmt::Debug {
    /// Runs a command to its end, or kills it after the timeout. A hook may have no time limit: its timeout is decades,
    /// in a number of seconds that fits 32 bits. Dropping the future gives the command up; whether it is killed then is
    /// the runtime's affair.
    fn exec<'a>(
        &'a self,
        container_id: &'a str,
        command: &'a [String],
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Executed, ExecError>>;
}

/// A command that ran to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Its exit code.
    pub exit_code: i32,
    /// What it wrote, standard output first: the beginning of each, at least [`crate::LONGEST_OUTPUT`] if there is that
    /// much.
    pub output: Vec<u8>,
}

/// Why a command did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    /// It took longer than it may; it was killed.
    #[error("command timed out after {}", text::limit(*.0))]
    TimedOut(Duration),
    /// It could not be started, or its end is not known: something is wrong with command or container.
    #[error("{0}")]
    NotRun(String),
    /// The runtime did not answer: whether the command ran is not known.
    #[error("the runtime did not answer: {0}")]
    RuntimeAway(String),
    /// The node lacked something that it takes to start a command (descriptors, memory), so nothing was started.
    #[error("not started: {0}")]
    Exhausted(String),
}
