//! WebSocket (RFC 6455) as Kubernetes speaks it: messages whose first byte names a channel, or a tunnel for SPDY.
//!
//! The framing is our own because payload goes to its channel while it arrives: a message of a gigabyte needs no more
//! memory than one of a kilobyte.

use thiserror::Error;

mod connection;
mod frame;
mod handshake;
mod reader;

pub(crate) use connection::{Framing, Ws, channels};
pub(crate) use frame::WsFrame;
pub(crate) use handshake::{accept_key, new_key};

/// A violation of WebSocket by the peer.
#[derive(Debug, Error)]
pub enum WsError {
    /// An extension that was not negotiated.
    #[error("a frame has reserved bits set, but no extension was negotiated")]
    Reserved,
    /// An unknown opcode.
    #[error("a frame has the unknown opcode {0}")]
    Opcode(u8),
    /// A control frame that is too long or fragmented.
    #[error("a control frame has {length} bytes or is fragmented; at most 125 bytes in one frame are allowed")]
    Control {
        /// The length in the frame.
        length: u64,
    },
    /// A client has to mask, a server must not.
    #[error("wrong mask bit: a client must mask its frames, a server must not")]
    Mask,
    /// A continuation without a beginning, or a beginning within a message.
    #[error("a message begins within another, or continues without a beginning")]
    Order,
    /// A length with the highest bit set.
    #[error("a frame has a length of {0} bytes, more than WebSocket allows")]
    Length(u64),
    /// A message is not base64, although the protocol says so.
    #[error("a message on a base64 protocol is not base64")]
    Base64,
    /// A close signal that does not name one channel.
    #[error("a close signal must be followed by exactly one byte, its channel")]
    CloseSignal,
}
