//! What a container says: into its log, and to whoever is attached.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::io::{Errno, read, write};

use crate::logfile::{LogFile, Stream};

/// Read at once. A pipe holds as much.
const CHUNK: usize = 64 * 1024;
/// Chunks in a row from one stream before others get their turn.
const IN_A_ROW: usize = 16;
/// Chunks of what a container left when it ended: what its pipe can hold, and some.
const AT_THE_END: usize = 64;

pub(super) struct Output {
    log: Option<LogFile>,
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
    input: Input,
    attached: Vec<[OwnedFd; 2]>,
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
        Self { log, out: Some(out), err: Some(err), input, attached: Vec::new() }
    }

    pub(super) fn terminal(log: Option<LogFile>, terminal: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&terminal, true)?;
        Ok(Self { log, out: Some(terminal), err: None, input: Input::Terminal, attached: Vec::new() })
    }

    pub(super) fn none(log: Option<LogFile>) -> Self {
        Self { log, out: None, err: None, input: Input::None, attached: Vec::new() }
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        let out = self.out.as_ref().map(|fd| (Stream::Out, fd.as_fd()));
        let err = self.err.as_ref().map(|fd| (Stream::Err, fd.as_fd()));
        out.into_iter().chain(err)
    }

    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), LogFile::reopen)
    }

    pub(super) fn attach(&mut self, fds: Vec<OwnedFd>) {
        if let Ok(pair) = <[OwnedFd; 2]>::try_from(fds) {
            self.attached.push(pair);
        }
    }

    /// Where to write what the container is to read.
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

    /// Copies what is there, but not for ever.
    pub(super) fn copy(&mut self, stream: Stream, now: i64) {
        self.copy_some(stream, now, IN_A_ROW);
    }

    /// Copies the rest and closes.
    pub(super) fn finish(&mut self, now: i64) {
        for stream in [Stream::Out, Stream::Err] {
            self.copy_some(stream, now, AT_THE_END);
        }
        if let Some(log) = &mut self.log {
            log.finish(now);
        }
    }

    fn copy_some(&mut self, stream: Stream, now: i64, chunks: usize) {
        let source = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        let mut bytes = vec![0; CHUNK];
        for _ in 0..chunks {
            let Some(fd) = source.as_ref() else { return };
            match read(fd, &mut bytes) {
                Ok(0) => {
                    *source = None;
                    return;
                }
                Ok(length) => {
                    let text = &bytes[..length];
                    if let Some(log) = &mut self.log {
                        log.write(stream, text, now);
                    }
                    // Whoever does not keep up is let go: the container waits for nobody.
                    self.attached
                        .retain(|pair| matches!(write(&pair[stream as usize], text), Ok(written) if written == length));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // A terminal whose other side is closed.
                Err(_) => {
                    *source = None;
                    return;
                }
            }
        }
    }
}
