//! Errors of a streaming connection.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::spdy::SpdyError;
use crate::ws::WsError;

/// Why a streaming connection failed.
#[derive(Debug, Error)]
pub enum StreamError {
    /// Reading from the socket failed.
    #[error("cannot read from the connection: {0}")]
    Read(#[source] io::Error),
    /// Writing to the socket failed.
    #[error("cannot write to the connection: {0}")]
    Write(#[source] io::Error),
    /// The peer violated SPDY.
    #[error("SPDY: {0}")]
    Spdy(#[from] SpdyError),
    /// The peer violated WebSocket.
    #[error("WebSocket: {0}")]
    WebSocket(#[from] WsError),
    /// The connection was idle for too long.
    #[error("the connection was idle for {} s", after.as_secs())]
    Idle {
        /// The limit.
        after: Duration,
    },
    /// The client did not open the streams of a session in time.
    #[error("the streams of the session were not opened within {} s", within.as_secs())]
    NoStreams {
        /// The limit.
        within: Duration,
    },
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Hangup,
    /// The peer refused a stream.
    #[error("the peer refused a stream")]
    Refused,
    /// The kernel returned no random bytes.
    #[error("cannot read random bytes from the kernel: {0}")]
    Random(getrandom::Error),
    /// The URL cannot be used.
    #[error("invalid streaming URL {url:?}: {why}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// HTTP failed before the upgrade.
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// The server responded without an upgrade.
    #[error("the server did not upgrade the connection: {status}: {body}")]
    NotUpgraded {
        /// The status of the response.
        status: http::StatusCode,
        /// Its body, shortened.
        body: String,
    },
    /// The server agreed to something the client did not ask for.
    #[error("unexpected header in the upgrade response: {name}: {found:?}, expected {expected}")]
    Handshake {
        /// The header.
        name: &'static str,
        /// Its value.
        found: String,
        /// The expected value.
        expected: String,
    },
    /// The server reports that the work failed.
    #[error("{0}")]
    Remote(String),
    /// The server sent no valid status of the work.
    #[error("the server ended the session with an invalid status: {0:?}")]
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
