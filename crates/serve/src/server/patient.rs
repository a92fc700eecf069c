//! A connection that does not wait for ever to be rid of its bytes.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// How long a peer may take none of what it asked for, before it is left alone.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the peer of one connection may take nothing. It can be changed while the connection lasts.
#[derive(Clone, Debug)]
pub struct Patience(Arc<AtomicU64>);

/// A stream whose writes fail once the other side has taken nothing for a while. Reads wait as long as they like: a
/// client that follows a log has nothing to say.
#[derive(Debug)]
pub struct Patient<S> {
    stream: S,
    patience: Patience,
    /// Set while a write waits.
    stuck: Option<Pin<Box<Sleep>>>,
}

// === impl Patience ===

impl Patience {
    /// From now on the peer may take nothing for so long: a person may read a page of a log for hours.
    pub fn set(&self, patience: Duration) {
        self.0.store(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// From now on the peer has the usual time.
    pub fn set_usual(&self) {
        self.set(PATIENCE);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

impl Default for Patience {
    fn default() -> Self {
        let patience = Self(Arc::default());
        patience.set_usual();
        patience
    }
}

// === impl Patient ===

impl<S> Patient<S> {
    /// A stream whose peer has the usual time.
    pub fn new(stream: S) -> Self {
        Self::with(stream, Patience::default())
    }

    /// A stream whose peer has so much time.
    pub fn with(stream: S, patience: Patience) -> Self {
        Self { stream, patience, stuck: None }
    }

    fn watched<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let patience = &self.patience;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience.get())));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watched(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watched(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watched(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_given_up_and_one_that_reads_slowly_is_not() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = Patient::new(near);
        let slow = tokio::spawn(async move {
            let mut byte = [0; 1];
            for _ in 0..8 {
                tokio::time::sleep(PATIENCE / 2).await;
                far.read_exact(&mut byte).await.unwrap();
            }
            // And then never again.
            std::future::pending::<()>().await;
        });
        near.write_all(&[0; 12]).await.expect("slow is fine");
        let error = near.write_all(&[0; 12]).await.expect_err("the peer does not read");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        slow.abort();
    }
}
