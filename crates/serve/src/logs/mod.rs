//! The logs of containers, as people want to read them.
//!
//! A runtime writes `<time> <stream> <tags> <text>`, one file for each instance, and rotation splits these into parts.
//! What comes out here is what the container wrote: lines whole again, parts and instances in order, from the file that
//! is written right now if asked to follow.
//!
//! ```text
//! files::instances --> reader::Reader --> assemble::Assembler --> read (a stream)
//!                       ^ tail::find, where the last lines begin
//! ```

mod assemble;
mod files;
mod line;
mod reader;
mod tail;
#[cfg(test)]
mod tests;

use std::{io, path::PathBuf, time::Duration};

use bytes::Bytes;
use futures::{Stream, stream};
use jiff::Timestamp;

use self::reader::{Reader, Step};

/// How often a client that follows a log looks for more. A person does not notice; a watch on the directory would cost
/// each reader a descriptor of a kind of which a node has few.
const READ_AGAIN: Duration = Duration::from_millis(200);

/// What to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    /// The directory with the logs of the container.
    pub directory: PathBuf,
    /// Of which instance.
    pub which: Which,
    /// Goes on with what is written later.
    pub follow: bool,
    /// Whether following goes on in later instances.
    pub instances: Instances,
    /// Only the last so many lines.
    pub tail: Option<u64>,
    /// Only what was written from then on.
    pub since: Option<Timestamp>,
    /// The time of each line before it.
    pub timestamps: bool,
    /// Only what was written to this stream.
    pub stream: Option<LogStream>,
}

/// Which instances are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instances {
    /// The newest, and those that come after it.
    #[default]
    AndLater,
    /// The one that was chosen.
    One,
}

/// Where a container writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// Of which instance of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The newest that left a log.
    #[default]
    Newest,
    /// The one before that.
    BeforeNewest,
}

/// Whether a container may write more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// It runs, or may run again.
    Open,
    /// It has ended for good.
    Closed,
}

/// Whether there is any log of that instance.
pub fn exists(request: &LogRequest) -> io::Result<bool> {
    let instances = files::instances(&request.directory)?.len();
    Ok(match request.which {
        Which::Newest => instances > 0,
        Which::BeforeNewest => instances > 1,
    })
}

/// Reads a log: whole lines, in pieces of no more than some 64 KiB. Only as much is read as is taken.
pub fn read(
    request: LogRequest,
    log_state: impl FnMut() -> LogState + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold(Some((Reader::new(request), log_state)), |state| async {
        let (mut reader, mut log_state) = state?;
        loop {
            // Asked before the files are: what is written before the answer is seen after it.
            if log_state() == LogState::Closed {
                reader.no_more();
            }
            let stepped = tokio::task::spawn_blocking(move || {
                let step = reader.step();
                (reader, step)
            });
            let step;
            (reader, step) = match stepped.await {
                Ok(stepped) => stepped,
                Err(error) => return Some((Err(io::Error::other(error)), None)),
            };
            match step {
                Ok(Step::Lines(lines)) => return Some((Ok(lines.into()), Some((reader, log_state)))),
                Ok(Step::Nothing) => tokio::time::sleep(READ_AGAIN).await,
                Ok(Step::End) => return None,
                Err(error) => return Some((Err(error), None)),
            }
        }
    })
}
