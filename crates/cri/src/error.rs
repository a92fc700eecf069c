//! Why a call to the runtime failed.

use std::time::Duration;

use tonic::{Code, Status};

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {message}")]
pub struct Error {
    /// The call, as CRI names it.
    pub call: &'static str,
    /// The kind of failure, by which a caller decides.
    pub kind: ErrorKind,
    /// What happened, for people.
    pub message: String,
}

/// The kinds of failures, by which a caller decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The runtime answered that the time limit of the call was exceeded: a command ran too long, say. It may have acted.
    Deadline,
    /// The runtime did not answer before the client gave up. It may have acted.
    NoAnswer,
    /// The runtime is unreachable, or the connection was lost before it answered. It may have acted.
    Unavailable,
    /// The object of the call does not exist.
    NotFound,
    /// The runtime does not implement the call.
    Unimplemented,
    /// The object to be created exists already.
    AlreadyExists,
    /// The runtime was out of a resource (descriptors, memory) before it began, or this process had no descriptor for a
    /// connection to it. The runtime has not acted.
    Exhausted,
    /// The request or the response exceeds the size limit of one side.
    TooLarge,
    /// Any other error of the runtime.
    Rejected,
}

// === impl Error ===

impl Error {
    /// The deadline passed without a response.
    pub(crate) fn late(call: &'static str, deadline: Duration) -> Self {
        Self { call, kind: ErrorKind::NoAnswer, message: format!("timed out after {deadline:?}") }
    }

    /// A response without a required field.
    pub(crate) fn without(call: &'static str, what: &str) -> Self {
        Self { call, kind: ErrorKind::Rejected, message: format!("the runtime's response has no {what}") }
    }

    /// The error status of a response.
    pub(crate) fn answered(call: &'static str, endpoint: &str, status: &Status) -> Self {
        let kind = ErrorKind::of(status);
        let message = match (kind, status.code()) {
            (ErrorKind::Exhausted, _) => cause(status),
            (ErrorKind::Unavailable, _) => format!("cannot connect to the runtime at {endpoint}: {}", cause(status)),
            (ErrorKind::Rejected, code) if code != Code::Unknown => format!("{} ({code:?})", status.message()),
            _ => status.message().to_owned(),
        };
        Self { call, kind, message }
    }
}

// === impl ErrorKind ===

impl ErrorKind {
    fn of(status: &Status) -> Self {
        match status.code() {
            _ if no_descriptor(status) => Self::Exhausted,
            Code::DeadlineExceeded => Self::Deadline,
            Code::Unavailable => Self::Unavailable,
            // A status that the runtime sent has no source. One with a source was made here, because the connection
            // failed.
            _ if std::error::Error::source(status).is_some() => Self::Unavailable,
            Code::NotFound => Self::NotFound,
            Code::Unimplemented => Self::Unimplemented,
            Code::AlreadyExists => Self::AlreadyExists,
            Code::OutOfRange if status.message().contains("message length too large") => Self::TooLarge,
            Code::ResourceExhausted if status.message().contains("message larger than max") => Self::TooLarge,
            Code::ResourceExhausted => Self::Exhausted,
            _ => Self::Rejected,
        }
    }
}

/// Whether this process had no descriptor for a connection. An established connection needs none, so no call was sent.
fn no_descriptor(status: &Status) -> bool {
    /// Too many open files, of this process and of the machine.
    const MFILE: i32 = 24;
    const NFILE: i32 = 23;
    let mut source = std::error::Error::source(status);
    while let Some(inner) = source {
        let errno = inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        if matches!(errno, Some(MFILE | NFILE)) {
            return true;
        }
        source = inner.source();
    }
    false
}

/// The innermost reason: "No such file or directory" instead of "transport error".
fn cause(status: &Status) -> String {
    let mut source = std::error::Error::source(status);
    let mut said = status.message().to_owned();
    while let Some(inner) = source {
        said = inner.to_string();
        source = inner.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_becomes_what_a_caller_decides_by() {
        for (status, kind, shown) in [
            (Status::not_found("no such container"), ErrorKind::NotFound, "X: no such container"),
            (Status::already_exists("twice"), ErrorKind::AlreadyExists, "X: twice"),
            (Status::unimplemented("what?"), ErrorKind::Unimplemented, "X: what?"),
            (Status::deadline_exceeded("timeout 1s exceeded"), ErrorKind::Deadline, "X: timeout 1s exceeded"),
            (Status::unknown("runc: EOF"), ErrorKind::Rejected, "X: runc: EOF"),
            (Status::invalid_argument("bad"), ErrorKind::Rejected, "X: bad (InvalidArgument)"),
            (Status::resource_exhausted("no space"), ErrorKind::Exhausted, "X: no space"),
            (
                Status::resource_exhausted("grpc: received message larger than max (2 vs. 1)"),
                ErrorKind::TooLarge,
                "X: grpc: received message larger than max (2 vs. 1)",
            ),
            (Status::unavailable("bye"), ErrorKind::Unavailable, "X: cannot connect to the runtime at unix:///x: bye"),
        ] {
            let error = Error::answered("X", "unix:///x", &status);
            assert_eq!((error.kind, error.to_string().as_str()), (kind, shown));
        }
    }

    /// PROBE-47: no call was sent, so the runtime has not acted.
    #[test]
    fn a_connection_without_a_free_descriptor_is_exhausted() {
        for (errno, kind) in [(24, ErrorKind::Exhausted), (23, ErrorKind::Exhausted), (111, ErrorKind::Unavailable)] {
            let status = Status::from_error(Box::new(std::io::Error::from_raw_os_error(errno)));
            let error = Error::answered("X", "unix:///x", &status);
            assert_eq!(error.kind, kind, "errno {errno}: {error}");
        }
        let error = Error::answered("X", "unix:///x", &Status::resource_exhausted("pipe: too many open files"));
        assert_eq!(error.to_string(), "X: pipe: too many open files");
    }

    #[test]
    fn a_failed_connection_is_reported_with_its_innermost_cause() {
        let status = Status::from_error(Box::new(std::io::Error::other("pipe broke")));
        let error = Error::answered("X", "unix:///x", &status);
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert_eq!(error.message, "cannot connect to the runtime at unix:///x: pipe broke");
    }
}
