//! A client that is attached to a container's output.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::io::{Errno, write};

use crate::logfile::Stream;

/// The most output that waits for a client, for each stream. Beyond that the container waits.
pub(super) const MOST_BACKLOG: usize = 1024 * 1024;
/// How long a container waits for a client that does not read.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// An attach client: its pipes, and the output that did not fit into them.
pub(in crate::shim) struct AttachClient {
    pipes: [OwnedFd; 2],
    backlog: [VecDeque<u8>; 2],
    /// When the backlog became full, or the client last read while it was.
    full_since: Option<Instant>,
}

// === impl AttachClient ===

impl AttachClient {
    pub(super) fn new(pipes: [OwnedFd; 2]) -> Self {
        Self { pipes, backlog: Default::default(), full_since: None }
    }

    /// Writes output, or keeps it as backlog. False if the client is gone.
    pub(super) fn write(&mut self, stream: Stream, text: &[u8]) -> bool {
        self.backlog[stream as usize].extend(text);
        self.flush(Instant::now())
    }

    /// Whether the container has to wait for it.
    pub(super) fn is_full(&self) -> bool {
        self.full_since.is_some()
    }

    /// Whether it has blocked the container for longer than the timeout.
    pub(super) fn is_too_slow(&self, now: Instant) -> bool {
        self.full_since.is_some_and(|since| now.duration_since(since) >= TIMEOUT)
    }

    /// Writes as much backlog as fits into its pipes. False if the client is gone.
    pub(in crate::shim) fn flush(&mut self, now: Instant) -> bool {
        let mut since = self.full_since.unwrap_or(now);
        for (pipe, backlog) in self.pipes.iter().zip(&mut self.backlog) {
            while !backlog.is_empty() {
                match write(pipe, backlog.as_slices().0) {
                    Ok(written) => {
                        backlog.drain(..written);
                        since = now;
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(_) => return false,
                }
            }
        }
        let is_full = self.backlog.iter().any(|backlog| backlog.len() >= MOST_BACKLOG);
        self.full_since = is_full.then_some(since);
        true
    }

    pub(in crate::shim) fn has_backlog(&self) -> bool {
        self.backlogged().next().is_some()
    }

    /// Its pipes that have a backlog.
    pub(in crate::shim) fn backlogged(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pipes = self.pipes.iter().zip(&self.backlog);
        pipes.filter(|(_, backlog)| !backlog.is_empty()).map(|(pipe, _)| pipe.as_fd())
    }
}
