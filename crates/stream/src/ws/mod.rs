//! WebSocket (RFC 6455) as Kubernetes speaks it: messages whose first byte names a channel, or a tunnel for SPDY.
//!
//! The framing is our own because messages go to their channel while they arrive: one of a gigabyte needs no more memory
//! than one of a kilobyte.

use thiserror::Error;

mod connection;
mod frame;
mod handshake;
mod reader;

pub(crate) use connection::{Framing, Ws, channels};
pub(crate) use frame::WsFrame;
pub(crate) use handshake::{accept_key, new_key};

/// What a peer did that WebSocket does not allow.
#[derive(Debug, Error)]
pub enum WsError {
    /// An extension is used that was not agreed upon.
    #[error("a frame has reserved bits set, but no extension was agreed upon")]
    Reserved,
    /// A kind of frame that does not exist.
    #[error("a frame has opcode {0}, which does not exist")]
    Opcode(u8),
    /// A ping, pong or close that is too long or in pieces.
    #[error("a control frame has {length} bytes or is in pieces; it has at most 125 bytes and is whole")]
    Control {
        /// What the frame says.
        length: u64,
    },
    /// A client has to mask, a server must not.
    #[error("a frame is masked where it must not be, or not where it has to be")]
    Mask,
    /// A continuation without a beginning, or a beginning within a message.
    #[error("a message begins within another, or goes on without a beginning")]
    Order,
    /// A length with the highest bit set.
    #[error("a frame says that it has {0} bytes, more than WebSocket allows")]
    Length(u64),
    /// A message is not base64, although the protocol says so.
    #[error("a message on a base64 protocol is not base64")]
    Base64,
    /// A close signal that does not name one channel.
    #[error("a close signal has to be followed by the one byte of its channel")]
    CloseSignal,
}
