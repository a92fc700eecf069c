//! Reads WebSocket frames from a socket, payload piece by piece.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use super::WsError;
use super::frame::{FrameHead, MAX_HEAD, Opcode, apply_mask, head_length, parse};
use crate::StreamError;
use crate::link::{CHUNK, Role};

/// One thing that the peer sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A piece of a message, perhaps empty; `end` if it is the last.
    Payload { start: bool, end: bool, piece: Bytes },
    /// A ping, to be answered with the same bytes.
    Ping(Bytes),
    /// An answer to a ping.
    Pong,
    /// A close frame.
    Close,
    /// The socket was closed.
    Gone,
}

/// Reads events.
pub(crate) struct WsReader<R> {
    socket: BufReader<R>,
    /// The sender of the frames.
    from: Role,
    /// The position of the reader.
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Between two messages.
    Between,
    /// Between two frames of one message.
    WithinMessage,
    /// In a frame, `read` bytes of it.
    WithinFrame { head: FrameHead, read: u64 },
}

// === impl WsReader ===

impl<R: AsyncRead + Send + Unpin> WsReader<R> {
    /// Reads what `from` sends.
    pub(crate) fn new(socket: R, from: Role) -> Self {
        Self { socket: BufReader::with_capacity(CHUNK, socket), from, place: Place::Between }
    }

    /// The next event.
    pub(crate) async fn next(&mut self) -> Result<Event, StreamError> {
        let (head, read, start) = match self.place {
            Place::WithinFrame { head, read } => (head, read, false),
            Place::Between | Place::WithinMessage => {
                if self.socket.fill_buf().await.map_err(StreamError::Read)?.is_empty() {
                    return Ok(Event::Gone);
                }
                let head = self.head().await?;
                match (head.opcode, self.place) {
                    (opcode, _) if opcode.is_control() => return self.control(head).await,
                    (Opcode::Continuation, Place::WithinMessage) => (head, 0, false),
                    (Opcode::Text | Opcode::Binary, Place::Between) => (head, 0, true),
                    _ => return Err(WsError::Order.into()),
                }
            }
        };
        self.piece(head, read, start).await
    }

    async fn head(&mut self) -> Result<FrameHead, StreamError> {
        let mut head = [0; MAX_HEAD];
        self.socket.read_exact(&mut head[..2]).await.map_err(StreamError::Read)?;
        let length = head_length([head[0], head[1]]);
        self.socket.read_exact(&mut head[2..length]).await.map_err(StreamError::Read)?;
        Ok(parse(&head[..length], self.from)?)
    }

    async fn control(&mut self, head: FrameHead) -> Result<Event, StreamError> {
        let mut payload = BytesMut::zeroed(usize::try_from(head.length).unwrap_or(0));
        self.socket.read_exact(&mut payload).await.map_err(StreamError::Read)?;
        if let Some(mask) = head.mask {
            apply_mask(&mut payload, mask, 0);
        }
        Ok(match head.opcode {
            Opcode::Ping => Event::Ping(payload.freeze()),
            Opcode::Close => Event::Close,
            _ => Event::Pong,
        })
    }

    async fn piece(&mut self, head: FrameHead, read: u64, start: bool) -> Result<Event, StreamError> {
        let left = head.length - read;
        let mut piece = BytesMut::new();
        if left > 0 {
            let there = self.socket.fill_buf().await.map_err(StreamError::Read)?;
            if there.is_empty() {
                return Err(StreamError::Read(std::io::ErrorKind::UnexpectedEof.into()));
            }
            let taken = usize::try_from(left).unwrap_or(usize::MAX).min(there.len());
            piece.extend_from_slice(&there[..taken]);
            self.socket.consume(taken);
            if let Some(mask) = head.mask {
                apply_mask(&mut piece, mask, read);
            }
        }
        let read = read + piece.len() as u64;
        self.place = match (read == head.length, head.fin) {
            (false, _) => Place::WithinFrame { head, read },
            (true, false) => Place::WithinMessage,
            (true, true) => Place::Between,
        };
        Ok(Event::Payload { start, end: self.place == Place::Between, piece: piece.freeze() })
    }
}
