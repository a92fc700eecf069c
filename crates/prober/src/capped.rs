//! A connection that delivers a bounded number of bytes.
//!
//! Parsers limit one message head or one frame. This limit is for what they accept any number of times: informational
//! responses, chunk extensions, pings, empty frames.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{door::Connection, shortage};

/// The limit of one connection: a long certificate chain, the largest message head (64 KiB) and body (10 KiB) that
/// keelet reads, and as much again for framing and read-ahead.
const MOST_BYTES: usize = 256 * 1024;

/// A connection that fails once it has delivered more bytes than the limit.
pub(crate) struct Capped {
    inner: Box<dyn Connection>,
    left: usize,
    opening: Opening,
}

/// The record of a connection, which outlives it: its first bytes, which identify HTTP/1, and whether the connection
/// failed because the agent ran out of a resource. The bytes fill the integer from the lowest byte up; the topmost byte
/// counts them, and the one below is the flag for the shortage.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening(Arc<AtomicU64>);

// === impl Capped ===

impl Capped {
    pub(crate) fn new(inner: Box<dyn Connection>, opening: Opening) -> Self {
        Self { inner, left: MOST_BYTES, opening }
    }
}

impl AsyncRead for Capped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::other(format!("more than {} KiB received", MOST_BYTES / 1024))));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        let new = &buf.filled()[before..];
        if !new.is_empty() {
            self.opening.note(new);
            self.left = self.left.saturating_sub(new.len());
        }
        self.opening.watch(polled)
    }
}

impl AsyncWrite for Capped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.opening.watch(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.opening.watch(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

// === impl Opening ===

impl Opening {
    const KEPT: usize = 5;
    const LACKING: usize = 6;

    /// Whether the peer spoke HTTP/1 from its first byte on.
    pub(crate) fn is_http1(&self) -> bool {
        self.0.load(Ordering::Relaxed).to_le_bytes()[..Self::KEPT] == *b"HTTP/"
    }

    /// Whether the connection failed because the agent ran out of a resource.
    pub(crate) fn failed_here(&self) -> bool {
        self.0.load(Ordering::Relaxed).to_le_bytes()[Self::LACKING] != 0
    }

    fn watch<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &polled
            && shortage::is_ours(error)
        {
            let mut kept = self.0.load(Ordering::Relaxed).to_le_bytes();
            kept[Self::LACKING] = 1;
            self.0.store(u64::from_le_bytes(kept), Ordering::Relaxed);
        }
        polled
    }

    fn note(&self, bytes: &[u8]) {
        let mut kept = self.0.load(Ordering::Relaxed).to_le_bytes();
        let have = usize::from(kept[7]);
        if have == Self::KEPT {
            return;
        }
        let take = bytes.len().min(Self::KEPT - have);
        kept[have..have + take].copy_from_slice(&bytes[..take]);
        kept[7] += u8::try_from(take).unwrap_or_default();
        self.0.store(u64::from_le_bytes(kept), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TERM-11, PROBE-38: in whatever pieces the bytes arrive.
    #[test]
    fn the_first_five_bytes_identify_http_1() {
        for (pieces, expected) in [
            (&["HTTP/1.1 200 OK"][..], true),
            (&["H", "TT", "P/", "1.1 200 OK"], true),
            (&["HTTP", "/"], true),
            (&["HTTP"], false),
            (&["xHTTP/"], false),
            (&["x", "HTTP/"], false),
            (&["HTTP-like"], false),
            (&[], false),
        ] {
            let opening = Opening::default();
            pieces.iter().for_each(|piece| opening.note(piece.as_bytes()));
            assert_eq!(opening.is_http1(), expected, "{pieces:?}");
        }
    }
}
