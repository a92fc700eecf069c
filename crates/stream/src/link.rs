//! What both transports share: one task per connection that reads and writes, pipes between it and the streams, and the
//! ways in which a connection ends.
//!
//! ```text
//! consumer -- outbound pipe --> pump (one per stream) -- queue of frames --> writer --> socket
//! consumer <-- inbound pipe <-- reader <------------------------------------------- socket
//! ```
//!
//! Everything in between is bounded, so a peer that does not read, or a process that does not read its stdin, slows the
//! other side down and costs no memory. SPDY as Kubernetes speaks it has no flow control: one stream that is not read
//! blocks its whole connection.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::StreamError;

/// Bytes buffered in one direction of one stream: one read of the usual copy loops.
pub(crate) const PIPE: usize = 32 * 1024;

/// The payload of one frame that keelet writes.
pub(crate) const CHUNK: usize = 32 * 1024;

/// Frames queued for the socket: a quarter of a megabyte, what a loopback socket buffers.
pub(crate) const QUEUE: usize = 8;

/// How much is encoded before it is written.
const BATCH: usize = 64 * 1024;

/// How long a peer may take to close its side after the closing frame. If keelet closed earlier, the kernel would reset
/// the connection, and the peer would lose what it did not read yet.
const LINGER: Duration = Duration::from_secs(10);

/// How long a peer that violated the protocol may take to read the error.
const FAREWELL: Duration = Duration::from_secs(1);

/// The side that opened the connection, or the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// From frames to bytes.
pub(crate) trait Encode: Send + 'static {
    /// What is encoded.
    type Frame: Send + 'static;

    /// Appends `frame` to `buffer`.
    fn encode(&mut self, frame: &Self::Frame, buffer: &mut BytesMut) -> Result<(), StreamError>;

    /// Whether nothing follows `frame`.
    fn is_last(frame: &Self::Frame) -> bool;
}

/// One stream, as its user sees it. Dropping the inbound pipe signals to the peer that no more is read; dropping the
/// outbound pipe ends what is written.
pub(crate) struct Channel {
    pub(crate) inbound: DuplexStream,
    pub(crate) outbound: DuplexStream,
    /// Resolves when everything written to `outbound` is in the writer's queue, after `outbound` was dropped. An error
    /// means that the peer reset the stream or disconnected.
    pub(crate) sent: oneshot::Receiver<()>,
}

/// A connection, as its user sees it. Dropping it closes the connection, also if its user panics.
pub(crate) struct Link<F> {
    pub(crate) frames: mpsc::Sender<F>,
    pub(crate) hangup: Hangup,
    task: AbortOnDrop,
}

struct AbortOnDrop(Option<AbortHandle>);

/// Resolves when the client disconnects.
#[derive(Clone, Debug)]
pub struct Hangup(watch::Receiver<()>);

/// When something was last read or written.
#[derive(Clone)]
pub(crate) struct Activity {
    start: Instant,
    last_millis: Arc<AtomicU64>,
    allowed: Duration,
}

/// Starts the task of a connection. `reader` ends when the peer disconnects or violates the protocol; then `farewell`
/// is sent.
pub(crate) fn start<E: Encode>(
    socket: impl AsyncWrite + Send + Unpin + 'static,
    encoder: E,
    queue: (mpsc::Sender<E::Frame>, mpsc::Receiver<E::Frame>),
    reader: impl Future<Output = Result<(), StreamError>> + Send + 'static,
    farewell: E::Frame,
    activity: Activity,
) -> Link<E::Frame> {
    let (frames, queued) = queue;
    let (alive, hangup) = watch::channel(());
    let goodbye = frames.clone();
    let task = tokio::spawn(async move {
        let mut writer = pin!(write(socket, encoder, queued, activity.clone()));
        let mut reader = pin!(reader);
        let ended = tokio::select! {
            ended = &mut reader => ended,
            written = &mut writer => match written {
                Ok(()) => timeout(LINGER, &mut reader).await.unwrap_or(Ok(())),
                Err(error) => Err(error),
            },
            () = activity.idle() => Err(StreamError::Idle { after: activity.allowed }),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "streaming connection ended");
            if goodbye.try_send(farewell).is_ok() {
                let _ = timeout(FAREWELL, writer).await;
            }
        }
        drop(alive);
    });
    Link { frames, hangup: Hangup(hangup), task: AbortOnDrop(Some(task.abort_handle())) }
}

/// Writes frames as they arrive, and several at once if they are queued.
async fn write<E: Encode>(
    mut socket: impl AsyncWrite + Send + Unpin,
    mut encoder: E,
    mut frames: mpsc::Receiver<E::Frame>,
    activity: Activity,
) -> Result<(), StreamError> {
    let mut buffer = BytesMut::new();
    while let Some(frame) = frames.recv().await {
        encoder.encode(&frame, &mut buffer)?;
        let mut last = E::is_last(&frame);
        while !last && buffer.len() < BATCH {
            let Ok(frame) = frames.try_recv() else { break };
            encoder.encode(&frame, &mut buffer)?;
            last = E::is_last(&frame);
        }
        socket.write_all(&buffer).await.map_err(StreamError::Write)?;
        socket.flush().await.map_err(StreamError::Write)?;
        activity.now();
        buffer.clear();
        if last {
            break;
        }
    }
    socket.shutdown().await.map_err(StreamError::Write)
}

/// Moves what is written to a stream into the queue of its connection, then `fin`. The returned pipe is the writing end.
pub(crate) fn pump<F: Send + 'static>(
    frames: mpsc::Sender<F>,
    frame: impl Fn(Bytes) -> F + Send + 'static,
    fin: Option<F>,
    ended: impl FnOnce() + Send + 'static,
) -> (DuplexStream, oneshot::Receiver<()>, AbortHandle) {
    let (near, mut far) = tokio::io::duplex(PIPE);
    let (done, sent) = oneshot::channel();
    let task = tokio::spawn(async move {
        let _ = forward(&mut far, &frames, frame).await;
        if let Some(fin) = fin {
            let _ = frames.send(fin).await;
        }
        ended();
        let _ = done.send(());
    });
    (near, sent, task.abort_handle())
}

async fn forward<F>(
    far: &mut DuplexStream,
    frames: &mpsc::Sender<F>,
    frame: impl Fn(Bytes) -> F,
) -> Result<(), io::Error> {
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        let read = tokio::select! {
            read = far.read_buf(&mut chunk) => read?,
            () = frames.closed() => 0,
        };
        if read == 0 || frames.send(frame(chunk.freeze())).await.is_err() {
            return Ok(());
        }
    }
}

// === impl Link ===

impl<F> Link<F> {
    /// Sends the closing frame and waits until the peer closes, for a few seconds at most.
    pub(crate) async fn end(mut self, last: F) {
        if self.frames.send(last).await.is_ok() {
            self.hangup.wait().await;
        }
    }

    /// Detaches the connection; it lasts until its streams end it.
    pub(crate) fn detach(mut self) {
        self.task.0 = None;
    }
}

// === impl AbortOnDrop ===

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

// === impl Hangup ===

impl Hangup {
    /// Resolves when the client disconnects.
    pub async fn wait(&mut self) {
        // No value is ever sent: the sender is dropped.
        while self.0.changed().await.is_ok() {}
    }
}

// === impl Activity ===

impl Activity {
    pub(crate) fn new(allowed: Duration) -> Self {
        Self { start: Instant::now(), last_millis: Arc::default(), allowed }
    }

    /// Records activity.
    pub(crate) fn now(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_millis.store(millis, Ordering::Relaxed);
    }

    /// Resolves when the connection was idle for longer than allowed.
    async fn idle(&self) {
        loop {
            let last = Duration::from_millis(self.last_millis.load(Ordering::Relaxed));
            let until = self.start + last + self.allowed;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}
