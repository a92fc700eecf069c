//! SPDY/3.1 as Kubernetes speaks it: many streams over one connection, each opened with a few headers, each half closed
//! by a flag. No windows, no priorities, no push.

use thiserror::Error;

mod connection;
mod dictionary;
mod frame;
mod headers;

pub(crate) use connection::{Incoming, Spdy, SpdyEnd};
pub(crate) use headers::Headers;

/// What a peer did that SPDY, or a limit, does not allow.
#[derive(Debug, Error)]
pub enum SpdyError {
    /// Another version of the protocol.
    #[error("a frame is of SPDY version {found}, only version 3 is spoken here")]
    Version {
        /// What the frame says.
        found: u16,
    },
    /// A control frame is too large.
    #[error("a control frame has {length} bytes, at most {allowed} are allowed")]
    ControlTooLarge {
        /// What the frame says.
        length: usize,
        /// What is allowed.
        allowed: usize,
    },
    /// A control frame ends too early.
    #[error("a control frame of kind {kind} has only {length} bytes")]
    Short {
        /// The kind of the frame.
        kind: u16,
        /// How long it is.
        length: usize,
    },
    /// A frame for the stream with the number 0, which cannot exist.
    #[error("a frame is for stream 0, which cannot exist")]
    StreamZero,
    /// A stream was opened with a number that is not the peer's to give, or not the next.
    #[error("stream {id} was opened after stream {last}: numbers grow, and a client's are odd")]
    StreamOrder {
        /// The new stream.
        id: u32,
        /// The newest before it.
        last: u32,
    },
    /// Headers inflate to more than is allowed.
    #[error("a header block inflates to more than {allowed} bytes")]
    HeadersTooLarge {
        /// What is allowed.
        allowed: usize,
    },
    /// There are more headers than allowed.
    #[error("a header block has {count} headers, at most {allowed} are allowed")]
    TooManyHeaders {
        /// What the block says.
        count: u32,
        /// What is allowed.
        allowed: u32,
    },
    /// A header twice.
    #[error("a header block has {name:?} twice")]
    DuplicateHeader {
        /// The name.
        name: String,
    },
    /// A header block is damaged.
    #[error("a header block is damaged: {0}")]
    HeaderBlock(&'static str),
    /// zlib does not like it.
    #[error("a header block cannot be inflated: {0}")]
    Zlib(&'static str),
}
