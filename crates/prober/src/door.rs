//! The doors of the prober: connections to targets, and commands in containers.

use std::{fmt, io, time::Duration};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::text;

/// Opens connections to probe targets. [`crate::TcpDial`] is the real one.
pub trait Dial: Send + Sync + fmt::Debug {
    /// Connects to a host (an address, or a name to be resolved) and a port, on behalf of a pod, by UID. There is no
    /// deadline here: the caller has one, and drops the future when it has passed.
    fn connect<'a>(&'a self, pod: &'a str, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>>;
}

/// A connection to a probe target.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Runs commands in containers.
pub trait Exec: Send + Sync + fmt::Debug {
    /// Runs a command until it exits, or kills it after the timeout. A hook may have no time limit: its timeout is
    /// decades, in seconds that fit 32 bits. Dropping the future abandons the command; the runtime decides whether to
    /// kill it then.
    fn exec<'a>(
        &'a self,
        container_id: &'a str,
        command: &'a [String],
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Executed, ExecError>>;
}

/// A command that exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Its exit code.
    pub exit_code: i32,
    /// Its output, standard output first: the beginning of each stream, at least [`crate::LONGEST_OUTPUT`] bytes if
    /// there are that many.
    pub output: Vec<u8>,
}

/// Why there is no exit code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    /// The command exceeded its timeout and was killed.
    #[error("command timed out after {}", text::limit(*.0))]
    TimedOut(Duration),
    /// The command could not be started, or its exit status is unknown: something is wrong with the command or the
    /// container.
    #[error("{0}")]
    NotRun(String),
    /// The runtime did not answer: it is unknown whether the command ran.
    #[error("the runtime did not answer: {0}")]
    RuntimeAway(String),
    /// The node ran out of a resource needed to start a command (descriptors, memory), so nothing was started.
    #[error("not started: {0}")]
    Exhausted(String),
}
