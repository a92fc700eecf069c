//! A SPDY connection: frames are read and passed to their streams, streams are opened by either side.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::SpdyError;
use super::frame::{Decoder, Encoder, Frame, HEAD, Head, goaway, reset};
use super::headers::Headers;
use crate::StreamError;
use crate::link::{self, Activity, CHUNK, Channel, Encode, Hangup, Link, PIPE, QUEUE, Role};

/// Concurrent streams: a forwarded connection takes two, and a browser opens tens of them. With both pipes full this is
/// 32 MiB, from an authorised client.
const MAX_STREAMS: usize = 512;

/// Streams that were opened and not yet accepted.
const BACKLOG: usize = 16;

/// How long the peer may take to answer a new stream.
const REPLY: Duration = Duration::from_secs(30);

/// The queue and the end of a SPDY connection.
pub(crate) type SpdyLink = Link<Frame>;

/// One end of a connection.
pub(crate) struct Spdy {
    pub(crate) link: SpdyLink,
    incoming: mpsc::Receiver<Incoming>,
    table: Table,
    next: tokio::sync::Mutex<u32>,
}

/// A stream that the peer wants to open.
pub(crate) struct Incoming {
    pub(crate) id: u32,
    pub(crate) headers: Headers,
    inbound: DuplexStream,
    frames: mpsc::Sender<Frame>,
    table: Table,
}

/// How a connection says goodbye.
pub(crate) struct SpdyEnd;

/// The open streams. The reader and the pumps share it; no task awaits while holding the lock.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<BTreeMap<u32, Stream>>>);

#[derive(Default)]
struct Stream {
    /// Where payload goes. `None` once the peer finished, or the local side stopped reading.
    inbound: Option<DuplexStream>,
    /// Whether more may be sent.
    outbound_open: bool,
    pump: Option<AbortHandle>,
    reply: Option<oneshot::Sender<()>>,
}

struct Reader<R> {
    socket: BufReader<R>,
    role: Role,
    decoder: Decoder,
    table: Table,
    frames: mpsc::Sender<Frame>,
    incoming: mpsc::Sender<Incoming>,
    newest: u32,
    activity: Activity,
}

// === impl Spdy ===

impl Spdy {
    /// Starts to speak SPDY on `socket`.
    pub(crate) fn start<S>(socket: S, role: Role, idle: Duration) -> Result<Self, StreamError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (read, write) = tokio::io::split(socket);
        let (frames, queued) = mpsc::channel(QUEUE);
        let (new_stream, incoming) = mpsc::channel(BACKLOG);
        let (table, activity) = (Table::default(), Activity::new(idle));
        let reader = Reader {
            socket: BufReader::with_capacity(CHUNK, read),
            role,
            decoder: Decoder::new(),
            table: table.clone(),
            frames: frames.clone(),
            incoming: new_stream,
            newest: 0,
            activity: activity.clone(),
        };
        let farewell = Frame::GoAway { last: 0, status: goaway::PROTOCOL_ERROR };
        let link = link::start(write, Encoder::new()?, (frames, queued), reader.run(), farewell, activity);
        let first = match role {
            Role::Client => 1,
            Role::Server => 2,
        };
        Ok(Self { link, incoming, table, next: tokio::sync::Mutex::new(first) })
    }

    /// The next stream that the peer opens; `None` when it disconnected.
    pub(crate) async fn accept(&mut self) -> Option<Incoming> {
        self.incoming.recv().await
    }

    /// Opens a stream and waits until the peer accepts it.
    pub(crate) async fn open(&self, headers: Headers) -> Result<(u32, Channel), StreamError> {
        let (inbound, far) = tokio::io::duplex(PIPE);
        let (replied, reply) = oneshot::channel();
        let id = {
            // Held until the frame is queued: stream IDs have to grow on the wire too.
            let mut next = self.next.lock().await;
            let id = *next;
            *next += 2;
            let stream = Stream { inbound: Some(far), outbound_open: true, pump: None, reply: Some(replied) };
            self.table.lock().insert(id, stream);
            let frame = Frame::SynStream { id, fin: false, headers };
            self.link.frames.send(frame).await.map_err(|_| StreamError::Hangup)?;
            id
        };
        let (outbound, sent) = self.table.pump(id, self.link.frames.clone());
        match tokio::time::timeout(REPLY, reply).await {
            Ok(Ok(())) => Ok((id, Channel { inbound, outbound, sent })),
            Ok(Err(_)) => Err(StreamError::Refused),
            Err(_) => Err(StreamError::NoStreams { within: REPLY }),
        }
    }

    /// Ends a stream in both directions at once, if it did not end already.
    pub(crate) async fn reset(&self, id: u32) {
        if self.table.remove(id) {
            let _ = self.link.frames.send(Frame::RstStream { id, status: reset::CANCEL }).await;
        }
    }

    /// Splits off the end of the connection, which outlives the streams.
    pub(crate) fn into_link(self) -> SpdyLink {
        self.link
    }

    /// Resolves when the peer disconnects.
    pub(crate) fn hangup(&self) -> Hangup {
        self.link.hangup.clone()
    }
}

// === impl SpdyEnd ===

impl SpdyEnd {
    /// The last frame of a connection without errors.
    pub(crate) fn goodbye() -> Frame {
        Frame::GoAway { last: 0, status: goaway::OK }
    }
}

// === impl Incoming ===

impl Incoming {
    /// Accepts the stream; the peer gets the reply before any data.
    pub(crate) async fn accept(self) -> Result<Channel, StreamError> {
        let reply = Frame::SynReply { id: self.id, fin: false, headers: Headers::new() };
        self.frames.send(reply).await.map_err(|_| StreamError::Hangup)?;
        let (outbound, sent) = self.table.pump(self.id, self.frames);
        Ok(Channel { inbound: self.inbound, outbound, sent })
    }

    /// Refuses the stream.
    pub(crate) async fn refuse(self) {
        self.table.remove(self.id);
        let _ = self.frames.send(Frame::RstStream { id: self.id, status: reset::REFUSED }).await;
    }
}

// === impl Table ===

impl Table {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Stream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a stream; returns whether it existed.
    fn remove(&self, id: u32) -> bool {
        let removed = self.lock().remove(&id);
        let existed = removed.is_some();
        if let Some(pump) = removed.and_then(|stream| stream.pump) {
            pump.abort();
        }
        existed
    }

    /// Starts to send what is written to stream `id`.
    fn pump(&self, id: u32, frames: mpsc::Sender<Frame>) -> (DuplexStream, oneshot::Receiver<()>) {
        let table = self.clone();
        let (outbound, sent, pump) = link::pump(
            frames,
            move |payload| Frame::Data { id, fin: false, payload },
            Some(Frame::Data { id, fin: true, payload: bytes::Bytes::new() }),
            move || table.update(id, |stream| stream.outbound_open = false),
        );
        match self.lock().get_mut(&id) {
            Some(stream) => stream.pump = Some(pump),
            // The peer reset it in the meantime.
            None => pump.abort(),
        }
        (outbound, sent)
    }

    /// Changes a stream, and removes it once both directions have ended.
    fn update(&self, id: u32, change: impl FnOnce(&mut Stream)) {
        let mut streams = self.lock();
        if let Some(stream) = streams.get_mut(&id) {
            change(stream);
            if stream.inbound.is_none() && !stream.outbound_open {
                streams.remove(&id);
            }
        }
    }
}

// === impl Reader ===

impl<R: AsyncRead + Send + Unpin> Reader<R> {
    /// Reads until the peer closes or violates the protocol.
    async fn run(mut self) -> Result<(), StreamError> {
        loop {
            if self.socket.fill_buf().await.map_err(StreamError::Read)?.is_empty() {
                return Ok(());
            }
            let mut head = [0; HEAD];
            self.socket.read_exact(&mut head).await.map_err(StreamError::Read)?;
            self.activity.now();
            match Head::parse(head)? {
                Head::Data { id, fin, length } => self.data(id, fin, length).await?,
                Head::Control { kind, fin, length } => {
                    let mut body = BytesMut::zeroed(length);
                    self.socket.read_exact(&mut body).await.map_err(StreamError::Read)?;
                    let frame = self.decoder.control(kind, fin, &body)?;
                    self.control(frame).await?;
                }
            }
        }
    }

    /// Passes the payload of a frame on as it arrives. Payload for a stream that is no longer read is discarded.
    async fn data(&mut self, id: u32, fin: bool, length: usize) -> Result<(), StreamError> {
        let mut pipe = self.table.lock().get_mut(&id).and_then(|stream| stream.inbound.take());
        let mut left = length;
        while left > 0 {
            let chunk = self.socket.fill_buf().await.map_err(StreamError::Read)?;
            if chunk.is_empty() {
                return Err(StreamError::Read(std::io::ErrorKind::UnexpectedEof.into()));
            }
            let taken = chunk.len().min(left);
            if let Some(open) = &mut pipe
                && open.write_all(&chunk[..taken]).await.is_err()
            {
                pipe = None;
            }
            self.socket.consume(taken);
            self.activity.now();
            left -= taken;
        }
        self.table.update(id, |stream| stream.inbound = pipe.filter(|_| !fin));
        Ok(())
    }

    async fn control(&mut self, frame: Frame) -> Result<(), StreamError> {
        match frame {
            Frame::SynStream { id, fin, headers } => self.opened(id, fin, headers).await?,
            Frame::SynReply { id, fin, .. } => self.table.update(id, |stream| {
                if let Some(reply) = stream.reply.take() {
                    let _ = reply.send(());
                }
                stream.inbound = stream.inbound.take().filter(|_| !fin);
            }),
            Frame::Headers { id, fin: true, .. } => self.table.update(id, |stream| stream.inbound = None),
            Frame::RstStream { id, .. } => _ = self.table.remove(id),
            Frame::Ping(id) if id % 2 == self.peer_parity() => self.send(Frame::Ping(id)).await,
            // After a GOAWAY the peer opens no new stream; open ones continue until it closes.
            Frame::GoAway { .. } | Frame::Ping(_) | Frame::Headers { .. } | Frame::Data { .. } | Frame::Ignored => {}
        }
        Ok(())
    }

    async fn opened(&mut self, id: u32, fin: bool, headers: Headers) -> Result<(), StreamError> {
        if id % 2 != self.peer_parity() || id <= self.newest {
            return Err(SpdyError::StreamOrder { id, last: self.newest }.into());
        }
        self.newest = id;
        let (inbound, far) = tokio::io::duplex(PIPE);
        let refused = {
            let mut streams = self.table.lock();
            let refused = streams.len() >= MAX_STREAMS;
            if !refused {
                let inbound = Some(far).filter(|_| !fin);
                streams.insert(id, Stream { inbound, outbound_open: true, ..Stream::default() });
            }
            refused
        };
        if refused {
            self.send(Frame::RstStream { id, status: reset::REFUSED }).await;
            return Ok(());
        }
        let frames = self.frames.clone();
        let incoming = Incoming { id, headers, inbound, frames, table: self.table.clone() };
        if self.incoming.send(incoming).await.is_err() {
            // The acceptor of streams is gone, so new ones are refused.
            self.table.remove(id);
            self.send(Frame::RstStream { id, status: reset::CANCEL }).await;
        }
        Ok(())
    }

    fn peer_parity(&self) -> u32 {
        match self.role {
            Role::Server => 1,
            Role::Client => 0,
        }
    }

    /// After the closing frame nothing is sent, but reading continues for a while.
    async fn send(&mut self, frame: Frame) {
        let _ = self.frames.send(frame).await;
    }
}

/// All streams end with the reader, for whatever reason it ended.
impl<R> Drop for Reader<R> {
    fn drop(&mut self) {
        let streams = std::mem::take(&mut *self.table.lock());
        for pump in streams.into_values().filter_map(|stream| stream.pump) {
            pump.abort();
        }
    }
}

// === impl Encoder ===

impl Encode for Encoder {
    type Frame = Frame;

    fn encode(&mut self, frame: &Frame, buffer: &mut BytesMut) -> Result<(), StreamError> {
        Ok(Self::encode(self, frame, buffer)?)
    }

    fn is_last(frame: &Frame) -> bool {
        matches!(frame, Frame::GoAway { .. })
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
