//! SPDY/3.1 as Kubernetes speaks it: many streams over one connection, each opened with a few headers, each half closed
//! by a flag. No flow control, no priorities, no push.

use thiserror::Error;

mod connection;
mod dictionary;
mod frame;
mod headers;

pub(crate) use connection::{Incoming, Spdy, SpdyEnd};
pub(crate) use headers::Headers;

/// A violation of SPDY, or of a limit.
#[derive(Debug, Error)]
pub enum SpdyError {
    /// Another version of the protocol.
    #[error("a frame has SPDY version {found}, only version 3 is supported")]
    Version {
        /// The version in the frame.
        found: u16,
    },
    /// A control frame is too large.
    #[error("a control frame has {length} bytes, at most {allowed} are allowed")]
    ControlTooLarge {
        /// The length in the frame.
        length: usize,
        /// The limit.
        allowed: usize,
    },
    /// A control frame ends too early.
    #[error("a control frame of kind {kind} has only {length} bytes")]
    Short {
        /// The kind of the frame.
        kind: u16,
        /// Its length.
        length: usize,
    },
    /// A frame for stream 0, which cannot exist.
    #[error("a frame is for stream 0, which cannot exist")]
    StreamZero,
    /// The peer opened a stream with an ID of the other side, or out of order.
    #[error("stream {id} was opened after stream {last}: IDs must grow, and a client's must be odd")]
    StreamOrder {
        /// The new stream.
        id: u32,
        /// The newest before it.
        last: u32,
    },
    /// Headers inflate to more than is allowed.
    #[error("a header block inflates to more than {allowed} bytes")]
    HeadersTooLarge {
        /// The limit.
        allowed: usize,
    },
    /// There are more headers than allowed.
    #[error("a header block has {count} headers, at most {allowed} are allowed")]
    TooManyHeaders {
        /// The count in the block.
        count: u32,
        /// The limit.
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
    /// zlib refuses it.
    #[error("a header block cannot be inflated: {0}")]
    Zlib(&'static str),
}
