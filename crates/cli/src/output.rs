//! The only place that writes to the terminal.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::exit::ExitStatus;

/// Writes to standard output. A reader that went away (`keelet validate ... | head -1`) is no failure.
pub fn out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Whether standard output still has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It has one.
    There,
    /// `| head` has seen enough: there is no point in going on.
    Gone,
}

/// Writes a part of something that goes on.
pub fn live(bytes: &[u8]) -> io::Result<Reader> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error),
    }
}

/// Whether the reader of standard output has closed it. A file never counts as closed.
pub(crate) fn reader_is_gone() -> bool {
    let stdout = io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    let answered = poll(&mut asked, Some(&Timespec::default()));
    answered.is_ok_and(|count| count > 0) && asked[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL)
}

/// Waits until it has. Without this, a command that follows something quiet would notice only at its next write.
pub(crate) async fn reader_gone() {
    while !reader_is_gone() {
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// How often to check for a reader: `| head` should end about when a person has read it.
const POLL_EVERY: Duration = Duration::from_millis(250);

/// Lines, without their line breaks, of what comes in pieces. A last one without a line break is one too.
pub(crate) fn lines<E>(pieces: impl Stream<Item = Result<Bytes, E>>) -> impl Stream<Item = Result<Vec<u8>, E>> {
    let pieces = Box::pin(pieces);
    futures::stream::unfold((pieces, BytesMut::new()), |(mut pieces, mut rest)| async {
        loop {
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest.split_to(at + 1)[..at].to_vec();
                return Some((Ok(line), (pieces, rest)));
            }
            match pieces.next().await {
                Some(Ok(piece)) => rest.extend_from_slice(&piece),
                Some(Err(error)) => return Some((Err(error), (pieces, rest))),
                None if rest.is_empty() => return None,
                None => return Some((Ok(rest.split().to_vec()), (pieces, rest))),
            }
        }
    })
}

/// Writes lines to standard error as they are.
pub fn text_to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Whether a line on standard error can be drawn again.
pub(crate) fn stderr_is_live() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Writes a line to standard error that is neither an error nor a warning.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes an error to standard error. A failure to do so cannot be reported.
pub fn error(text: &str) {
    let _ = writeln!(io::stderr().lock(), "error: {text}");
}

/// Writes a warning to standard error.
pub fn warning(text: &str) {
    let _ = writeln!(io::stderr().lock(), "warning: {text}");
}

/// Prints an answer, or says why there is none; the exit status says which.
pub fn answer(answer: anyhow::Result<String>) -> anyhow::Result<ExitStatus> {
    match answer {
        Ok(text) => {
            out(&text).context("cannot write the answer")?;
            Ok(ExitStatus::Success)
        }
        Err(why) => {
            error(&format!("{why:#}"));
            Ok(ExitStatus::Failure)
        }
    }
}
