//! The output of a container: into its log, and to attach clients.

mod client;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use rustix::io::{Errno, read};

pub(super) use self::client::AttachClient;
use crate::logfile::{LogFile, Stream};

/// Read at once: the size of a pipe.
const CHUNK: usize = 64 * 1024;
/// Chunks that are read from one stream before other events are handled.
const CHUNKS_PER_TURN: usize = 16;
/// Chunks that are read after the exit: more than a pipe can hold.
const CHUNKS_AFTER_EXIT: usize = 64;

pub(super) struct Output {
    log: Option<LogFile>,
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
    input: Input,
    clients: Vec<AttachClient>,
}

enum Input {
    None,
    Pipe(OwnedFd),
    /// The terminal, which is the output as well.
    Terminal,
}

// === impl Output ===

impl Output {
    pub(super) fn pipes(log: Option<LogFile>, out: OwnedFd, err: OwnedFd, stdin: Option<OwnedFd>) -> Self {
        let input = stdin.map_or(Input::None, Input::Pipe);
        Self { log, out: Some(out), err: Some(err), input, clients: Vec::new() }
    }

    pub(super) fn terminal(log: Option<LogFile>, terminal: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&terminal, true)?;
        Ok(Self { log, out: Some(terminal), err: None, input: Input::Terminal, clients: Vec::new() })
    }

    pub(super) fn none(log: Option<LogFile>) -> Self {
        Self { log, out: None, err: None, input: Input::None, clients: Vec::new() }
    }

    /// The streams to read from; none while an attach client blocks the container.
    pub(super) fn sources(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        let is_blocked = self.is_blocked();
        let out = self.out.as_ref().map(|fd| (Stream::Out, fd.as_fd()));
        let err = self.err.as_ref().map(|fd| (Stream::Err, fd.as_fd()));
        out.into_iter().chain(err).filter(move |_| !is_blocked)
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = &AttachClient> {
        self.clients.iter()
    }

    /// Whether the container has to wait for a slow attach client.
    pub(super) fn is_blocked(&self) -> bool {
        self.clients.iter().any(AttachClient::is_full)
    }

    /// Writes the backlog of attach clients, as far as they read.
    pub(super) fn flush_clients(&mut self) {
        let now = Instant::now();
        self.clients.retain_mut(|one| one.flush(now));
    }

    /// Disconnects attach clients that have blocked the container for too long. Each is flushed first, because it may be the shim that was
    /// suspended.
    pub(super) fn drop_slow_clients(&mut self, now: Instant) {
        self.clients.retain_mut(|one| !one.is_too_slow(now) || (one.flush(now) && !one.is_too_slow(now)));
    }

    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), LogFile::reopen)
    }

    pub(super) fn attach(&mut self, fds: Vec<OwnedFd>) {
        if let Ok(pair) = <[OwnedFd; 2]>::try_from(fds) {
            self.clients.push(AttachClient::new(pair));
        }
    }

    /// The writing end of the container's standard input.
    pub(super) fn stdin(&self) -> io::Result<Option<OwnedFd>> {
        match &self.input {
            Input::None => Ok(None),
            Input::Pipe(pipe) => pipe.try_clone().map(Some),
            Input::Terminal => self.out.as_ref().map(OwnedFd::try_clone).transpose(),
        }
    }

    pub(super) fn close_stdin(&mut self) {
        if matches!(self.input, Input::Pipe(_)) {
            self.input = Input::None;
        }
    }

    /// Copies available output, up to a bound.
    pub(super) fn copy(&mut self, stream: Stream, now: i64) {
        let mut bytes = vec![0; CHUNK];
        for _ in 0..CHUNKS_PER_TURN {
            if self.is_blocked() || !self.copy_once(stream, now, &mut bytes) {
                return;
            }
        }
    }

    /// Copies the rest after the exit. Returns the attach clients that have a backlog.
    pub(super) fn finish(&mut self, now: i64) -> impl Iterator<Item = AttachClient> {
        let mut bytes = vec![0; CHUNK];
        for stream in [Stream::Out, Stream::Err] {
            for _ in 0..CHUNKS_AFTER_EXIT {
                if !self.copy_once(stream, now, &mut bytes) {
                    break;
                }
            }
        }
        if let Some(log) = &mut self.log {
            log.finish(now);
        }
        std::mem::take(&mut self.clients).into_iter().filter(AttachClient::has_backlog)
    }

    /// Whether there may be more.
    fn copy_once(&mut self, stream: Stream, now: i64, bytes: &mut [u8]) -> bool {
        let source = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        let Some(fd) = source.as_ref() else { return false };
        match read(fd, &mut *bytes) {
            Ok(length @ 1..) => {
                let text = &bytes[..length];
                if let Some(log) = &mut self.log {
                    log.write(stream, text, now);
                }
                self.clients.retain_mut(|one| one.write(stream, text));
                true
            }
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            // The end of the pipe, or a terminal whose other side is closed.
            Ok(_) | Err(_) => {
                *source = None;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rustix::{io::read, pipe::pipe};

    use super::{
        CHUNK, Output,
        client::{MOST_BACKLOG, TIMEOUT},
    };
    use crate::logfile::Stream;

    /// A client is disconnected because it does not read, not because the shim was suspended.
    #[test]
    fn an_attach_client_that_reads_is_not_disconnected() {
        let new = || pipe().expect("a pipe");
        let (mut output, (reader, out), (_unread, err)) = (Output::none(None), new(), new());
        rustix::io::ioctl_fionbio(&out, true).expect("non-blocking");
        output.attach(vec![out, err]);
        let text = vec![b'x'; CHUNK + MOST_BACKLOG];
        output.clients.retain_mut(|one| one.write(Stream::Out, &text));
        output.clients.retain_mut(|one| one.write(Stream::Out, &text));
        assert!(output.is_blocked());

        let later = Instant::now() + 2 * TIMEOUT;
        read(&reader, &mut [0; CHUNK]).expect("some of it");
        output.drop_slow_clients(later);
        assert!(output.is_blocked() && output.clients().count() == 1, "it has read, and has more to read");
        output.drop_slow_clients(later + TIMEOUT / 2);
        assert_eq!(output.clients().count(), 1, "the timeout has not passed since it last read");
        output.drop_slow_clients(later + TIMEOUT);
        assert_eq!(output.clients().count(), 0, "it has read nothing for the whole timeout");
        assert!(!output.is_blocked());
    }
}
