//! A WebSocket connection with its channels, or as a tunnel.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, Join};
use tokio::sync::mpsc;

use super::WsError;
use super::frame::{CLOSE_NORMAL, CLOSE_PROTOCOL_ERROR, CLOSE_SIGNAL, Codec, WsEncoder, WsFrame};
use super::reader::{Event, WsReader};
use crate::StreamError;
use crate::link::{self, Activity, Channel, Link, PIPE, QUEUE, Role};

/// Some clients pad base64, some do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What messages look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The first byte is a channel. With `close_signal` a channel can be closed by its own message.
    Channels { close_signal: bool },
    /// The first byte is the digit of a channel, the rest is base64.
    Base64Channels,
    /// There are no channels: messages are pieces of one stream.
    Tunnel,
}

/// A connection.
pub(crate) struct Ws {
    pub(crate) link: Link<WsFrame>,
    pub(crate) channels: BTreeMap<u8, Channel>,
}

struct Demux<R> {
    reader: WsReader<R>,
    framing: Framing,
    pipes: BTreeMap<u8, DuplexStream>,
    frames: mpsc::Sender<WsFrame>,
    activity: Activity,
}

/// The destination of the rest of a message.
enum Target {
    /// The first byte has not arrived yet.
    Unknown,
    Channel(u8),
    /// The next byte names the channel to close.
    CloseSignal,
    /// The message is complete, more is an error.
    Closed,
}

/// Starts to speak WebSocket on `socket`, with the given channels.
pub(crate) fn channels<S>(
    socket: S,
    role: Role,
    framing: Framing,
    names: impl IntoIterator<Item = u8>,
    idle: Duration,
) -> Ws
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (read, write) = tokio::io::split(socket);
    let (frames, queued) = mpsc::channel(QUEUE);
    let activity = Activity::new(idle);
    let (mut pipes, mut channels) = (BTreeMap::new(), BTreeMap::new());
    for name in names {
        let (inbound, far) = tokio::io::duplex(PIPE);
        let (prefix, fin) = endings(framing, role, name);
        let message = move |payload| WsFrame::Message { channel: prefix, payload };
        let (outbound, sent, _) = link::pump(frames.clone(), message, fin, || {});
        pipes.insert(name, far);
        channels.insert(name, Channel { inbound, outbound, sent });
    }
    let from = match role {
        Role::Client => Role::Server,
        Role::Server => Role::Client,
    };
    let demux =
        Demux { reader: WsReader::new(read, from), framing, pipes, frames: frames.clone(), activity: activity.clone() };
    let encoder = WsEncoder { role, codec: framing.codec() };
    let farewell = WsFrame::Close(CLOSE_PROTOCOL_ERROR);
    let link = link::start(write, encoder, (frames, queued), demux.run(), farewell, activity);
    Ws { link, channels }
}

/// What precedes the messages of a channel, and what is sent at its end. Only clients signal the end of a channel: they
/// do not expect the signal from a server.
fn endings(framing: Framing, role: Role, name: u8) -> (Option<u8>, Option<WsFrame>) {
    match (framing, role) {
        (Framing::Tunnel, _) => (None, Some(WsFrame::Close(CLOSE_NORMAL))),
        (Framing::Channels { close_signal: true }, Role::Client) => {
            let signal = Bytes::copy_from_slice(&[CLOSE_SIGNAL, name]);
            (Some(name), Some(WsFrame::Message { channel: None, payload: signal }))
        }
        (Framing::Channels { .. } | Framing::Base64Channels, _) => (Some(name), None),
    }
}

// === impl Ws ===

impl Ws {
    /// The last frame of a connection without errors.
    pub(crate) fn goodbye() -> WsFrame {
        WsFrame::Close(CLOSE_NORMAL)
    }

    /// The two directions of a tunnel on `socket`.
    pub(crate) fn tunnel<S>(
        socket: S,
        role: Role,
        idle: Duration,
    ) -> Result<Join<DuplexStream, DuplexStream>, StreamError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut ws = channels(socket, role, Framing::Tunnel, [0], idle);
        let channel = ws.channels.remove(&0).ok_or(StreamError::Hangup)?;
        ws.link.detach();
        Ok(tokio::io::join(channel.inbound, channel.outbound))
    }
}

// === impl Framing ===

impl Framing {
    fn codec(self) -> Codec {
        match self {
            Self::Base64Channels => Codec::Base64,
            Self::Channels { .. } | Self::Tunnel => Codec::Binary,
        }
    }
}

// === impl Demux ===

impl<R: AsyncRead + Send + Unpin> Demux<R> {
    /// Reads until the peer closes or violates the protocol.
    async fn run(mut self) -> Result<(), StreamError> {
        let mut target = Target::Unknown;
        // The incomplete group of four characters of a base64 message.
        let mut carry = Vec::new();
        loop {
            let event = self.reader.next().await?;
            self.activity.now();
            match event {
                Event::Gone => return Ok(()),
                Event::Pong => {}
                Event::Ping(payload) => self.send(WsFrame::Pong(payload)).await,
                Event::Close => {
                    // The peer sends no more; the outbound rest is discarded.
                    self.pipes.clear();
                    self.send(WsFrame::Close(CLOSE_NORMAL)).await;
                }
                Event::Payload { start, end, piece } => {
                    if start {
                        target = if self.framing == Framing::Tunnel { Target::Channel(0) } else { Target::Unknown };
                    }
                    self.payload(&mut target, &mut carry, piece, end).await?;
                }
            }
        }
    }

    async fn payload(
        &mut self,
        target: &mut Target,
        carry: &mut Vec<u8>,
        mut piece: Bytes,
        end: bool,
    ) -> Result<(), StreamError> {
        if matches!(target, Target::Unknown) {
            let Some((first, _)) = piece.split_first() else { return Ok(()) };
            *target = match (self.framing, *first) {
                (Framing::Channels { close_signal: true }, CLOSE_SIGNAL) => Target::CloseSignal,
                (Framing::Base64Channels, digit) => Target::Channel(digit.wrapping_sub(b'0')),
                (_, channel) => Target::Channel(channel),
            };
            piece = piece.slice(1..);
        }
        match target {
            Target::Channel(channel) if self.framing == Framing::Base64Channels => {
                let decoded = decode(carry, &piece, end)?;
                self.deliver(*channel, &decoded).await;
            }
            Target::Channel(channel) => self.deliver(*channel, &piece).await,
            Target::CloseSignal => match (&piece[..], end) {
                ([], false) => {}
                ([channel], _) => {
                    self.pipes.remove(channel);
                    *target = Target::Closed;
                }
                _ => return Err(WsError::CloseSignal.into()),
            },
            Target::Closed if piece.is_empty() => {}
            Target::Unknown | Target::Closed => return Err(WsError::CloseSignal.into()),
        }
        Ok(())
    }

    /// Passes payload to its channel. Payload for a channel that is unknown or no longer read is discarded.
    async fn deliver(&mut self, channel: u8, payload: &[u8]) {
        if let Some(pipe) = self.pipes.get_mut(&channel)
            && pipe.write_all(payload).await.is_err()
        {
            self.pipes.remove(&channel);
        }
    }

    /// After the closing frame nothing is sent, but reading continues for a while.
    async fn send(&mut self, frame: WsFrame) {
        let _ = self.frames.send(frame).await;
    }
}

/// Decodes the complete part of a base64 message; all of it at its end.
fn decode(carry: &mut Vec<u8>, piece: &[u8], end: bool) -> Result<Vec<u8>, WsError> {
    carry.extend_from_slice(piece);
    let whole = if end { carry.len() } else { carry.len() / 4 * 4 };
    let text: Vec<u8> = carry.drain(..whole).collect();
    BASE64.decode(text).map_err(|_| WsError::Base64)
}
