//! What a container says: into its log, and to whoever is attached.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::io::{Errno, read, write};

use crate::logfile::{LogFile, Stream};

/// Read at once. A pipe holds as much.
const CHUNK: usize = 64 * 1024;
/// Chunks in a row from one stream before others get their turn.
const IN_A_ROW: usize = 16;
/// Chunks of what a container left when it ended: what its pipe can hold, and some.
const AT_THE_END: usize = 64;
/// What may wait for somebody who is attached, for each stream. Beyond that the container waits.
const MOST_WAITING: usize = 1024 * 1024;
/// How long a container waits for somebody who does not read at all.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Output {
    log: Option<LogFile>,
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
    input: Input,
    attached: Vec<Attached>,
}

/// Somebody who hears what a container says.
pub(super) struct Attached {
    pipes: [OwnedFd; 2],
    /// What its pipes had no room for.
    waiting: [VecDeque<u8>; 2],
    /// Since when nothing more can wait, or something was last read of it.
    full_since: Option<Instant>,
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

    /// What to read from next; nothing while somebody has to catch up first.
    pub(super) fn sources(&self) -> impl Iterator<Item = (Stream, BorrowedFd<'_>)> {
        let listen = !self.is_held_up();
        let out = self.out.as_ref().map(|fd| (Stream::Out, fd.as_fd()));
        let err = self.err.as_ref().map(|fd| (Stream::Err, fd.as_fd()));
        out.into_iter().chain(err).filter(move |_| listen)
    }

    pub(super) fn attached(&self) -> impl Iterator<Item = &Attached> {
        self.attached.iter()
    }

    /// Whether the container has to wait for somebody who is attached.
    pub(super) fn is_held_up(&self) -> bool {
        self.attached.iter().any(|one| one.full_since.is_some())
    }

    /// Passes on what could not be before.
    pub(super) fn pass_on(&mut self) {
        let now = Instant::now();
        self.attached.retain_mut(|one| one.catch_up(now));
    }

    /// Lets go of those for whom the container has waited long enough. Each is tried first: it may be this shim that was away.
    pub(super) fn let_go(&mut self, now: Instant) {
        self.attached.retain_mut(|one| !one.is_late(now) || (one.catch_up(now) && !one.is_late(now)));
    }

    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), LogFile::reopen)
    }

    pub(super) fn attach(&mut self, fds: Vec<OwnedFd>) {
        if let Ok(pair) = <[OwnedFd; 2]>::try_from(fds) {
            self.attached.push(Attached::new(pair));
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
        let mut bytes = vec![0; CHUNK];
        for _ in 0..IN_A_ROW {
            if self.is_held_up() || !self.copy_once(stream, now, &mut bytes) {
                return;
            }
        }
    }

    /// Copies the rest and closes. Those are returned who have yet to hear some of it.
    pub(super) fn finish(&mut self, now: i64) -> impl Iterator<Item = Attached> {
        let mut bytes = vec![0; CHUNK];
        for stream in [Stream::Out, Stream::Err] {
            for _ in 0..AT_THE_END {
                if !self.copy_once(stream, now, &mut bytes) {
                    break;
                }
            }
        }
        if let Some(log) = &mut self.log {
            log.finish(now);
        }
        std::mem::take(&mut self.attached).into_iter().filter(Attached::is_behind)
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
                self.attached.retain_mut(|one| one.hear(stream, text));
                true
            }
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            // The end; or a terminal whose other side is closed.
            Ok(_) | Err(_) => {
                *source = None;
                false
            }
        }
    }
}

// === impl Attached ===

impl Attached {
    fn new(pipes: [OwnedFd; 2]) -> Self {
        Self { pipes, waiting: Default::default(), full_since: None }
    }

    /// Takes what was said. Whether it still listens.
    fn hear(&mut self, stream: Stream, text: &[u8]) -> bool {
        self.waiting[stream as usize].extend(text);
        self.catch_up(Instant::now())
    }

    /// Whether nothing of it was read for longer than a container waits.
    fn is_late(&self, now: Instant) -> bool {
        self.full_since.is_some_and(|since| now.duration_since(since) >= PATIENCE)
    }

    /// Writes as much as there is room for. Whether it still listens.
    pub(super) fn catch_up(&mut self, now: Instant) -> bool {
        let mut since = self.full_since.unwrap_or(now);
        for (pipe, waiting) in self.pipes.iter().zip(&mut self.waiting) {
            while !waiting.is_empty() {
                match write(pipe, waiting.as_slices().0) {
                    Ok(written) => {
                        waiting.drain(..written);
                        since = now;
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(_) => return false,
                }
            }
        }
        let full = self.waiting.iter().any(|waiting| waiting.len() >= MOST_WAITING);
        self.full_since = full.then_some(since);
        true
    }

    /// Whether something waits for it.
    pub(super) fn is_behind(&self) -> bool {
        self.behind().next().is_some()
    }

    /// Its pipes that something waits for.
    pub(super) fn behind(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pipes = self.pipes.iter().zip(&self.waiting);
        pipes.filter(|(_, waiting)| !waiting.is_empty()).map(|(pipe, _)| pipe.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rustix::{io::read, pipe::pipe};

    use super::{CHUNK, MOST_WAITING, Output, PATIENCE};
    use crate::logfile::Stream;

    /// A reader is let go for what it does not read, not for the time that a shim was away.
    #[test]
    fn who_reads_is_not_let_go() {
        let new = || pipe().expect("a pipe");
        let (mut output, (reader, hears), (_silent, hears_errors)) = (Output::none(None), new(), new());
        rustix::io::ioctl_fionbio(&hears, true).expect("it does not wait");
        output.attach(vec![hears, hears_errors]);
        let text = vec![b'x'; CHUNK + MOST_WAITING];
        output.attached.retain_mut(|one| one.hear(Stream::Out, &text));
        output.attached.retain_mut(|one| one.hear(Stream::Out, &text));
        assert!(output.is_held_up());

        let later = Instant::now() + 2 * PATIENCE;
        read(&reader, &mut [0; CHUNK]).expect("some of it");
        output.let_go(later);
        assert!(output.is_held_up() && output.attached().count() == 1, "it has read, and has more to read");
        output.let_go(later + PATIENCE / 2);
        assert_eq!(output.attached().count(), 1, "since then it had no time to speak of");
        output.let_go(later + PATIENCE);
        assert_eq!(output.attached().count(), 0, "it has read nothing for long");
        assert!(!output.is_held_up());
    }
}
