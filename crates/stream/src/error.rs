//! How a streaming connection fails.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::spdy::SpdyError;
use crate::ws::WsError;

/// How a streaming connection fails.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The socket could not be read.
    #[error("cannot read from the connection: {0}")]
    Read(#[source] io::Error),
    /// The socket could not be written.
    #[error("cannot write to the connection: {0}")]
    Write(#[source] io::Error),
    /// The peer broke SPDY.
    #[error("SPDY: {0}")]
    Spdy(#[from] SpdyError),
    /// The peer broke WebSocket.
    #[error("WebSocket: {0}")]
    WebSocket(#[from] WsError),
    /// Nothing happened for too long.
    #[error("nothing was sent or received for {} s", after.as_secs())]
    Idle {
        /// What is allowed.
        after: Duration,
    },
    /// Streams that belong to a session were not opened in time.
    #[error("the streams of the session were not opened within {} s", within.as_secs())]
    NoStreams {
        /// What is allowed.
        within: Duration,
    },
    /// The other side is gone.
    #[error("the other side closed the connection")]
    Hangup,
    /// The other side did not take a stream.
    #[error("the other side did not take a stream")]
    Refused,
    /// The kernel gave no random bytes.
    #[error("no random bytes: {0}")]
    Random(getrandom::Error),
    /// The URL cannot be used.
    #[error("the URL {url:?} is not one to stream to: {why}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// HTTP failed before the upgrade.
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// The server answered with something else than an upgrade.
    #[error("the server did not upgrade the connection: {status}: {body}")]
    NotUpgraded {
        /// The status of the answer.
        status: http::StatusCode,
        /// What it says, shortened.
        body: String,
    },
    /// The server agreed to something else than was asked for.
    #[error("the server answered with {name}: {found:?}, expected {expected}")]
    Handshake {
        /// The header.
        name: &'static str,
        /// What it says.
        found: String,
        /// What it should say.
        expected: String,
    },
    /// The server says that the work failed.
    #[error("{0}")]
    Remote(String),
    /// The server said nothing that can be understood about how the work ended.
    #[error("the server ended the session without a status that can be read: {0:?}")]
    NoStatus(String),
    /// A pipe to or from the caller failed.
    #[error("cannot copy {what}: {error}")]
    Local {
        /// Which one.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
}
