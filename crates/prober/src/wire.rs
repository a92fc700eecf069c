//! One request over one connection, all within the caller's future.
//!
//! hyper wants its connections polled beside their requests, and HTTP/2 wants to spawn tasks. Here the caller's future
//! polls both together with the request, so dropping an attempt drops everything.

use std::{
    error::Error,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{
    future::{BoxFuture, FutureExt},
    stream::{FuturesUnordered, StreamExt},
};
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::TokioIo;

use crate::door::Connection;

/// The largest message head that is read, and the limit on read-ahead. Ordinary servers send far less; accepting more
/// would only help an attacker.
const LARGEST_HEAD: u32 = 64 * 1024;
/// How many headers a response may have.
const MOST_HEADERS: usize = 256;
/// The flow-control window of an HTTP/2 stream: as much of a body as is read, and a little more.
const WINDOW: u32 = 16 * 1024;

/// The HTTP version to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
}

/// Where HTTP/2 spawns its tasks. It is dead once the [`Crew`] is dropped, even if a clone is left.
#[derive(Clone)]
struct Inbox(Weak<Mutex<Vec<BoxFuture<'static, ()>>>>);

/// The tasks of one HTTP/2 connection.
struct Crew {
    inbox: Arc<Mutex<Vec<BoxFuture<'static, ()>>>>,
    running: FuturesUnordered<BoxFuture<'static, ()>>,
}

/// Sends a request, passes the response to `listen`, and closes the connection when `listen` returns.
pub(crate) async fn converse<L, F, T>(
    wire: Wire,
    io: Box<dyn Connection>,
    request: Request<Full<Bytes>>,
    listen: L,
) -> Result<T, hyper::Error>
where
    L: FnOnce(Response<Incoming>) -> F,
    F: Future<Output = T>,
{
    let mut crew = Crew::new();
    match wire {
        Wire::Http1 => {
            let (mut sender, connection) = http1::Builder::new()
                .title_case_headers(true)
                .max_headers(MOST_HEADERS)
                .max_buf_size(LARGEST_HEAD as usize)
                .handshake(TokioIo::new(io))
                .await?;
            let talk = async move { Ok(listen(sender.send_request(request).await?).await) };
            drive(talk, connection, &mut crew).await
        }
        Wire::Http2 => {
            let mut builder = http2::Builder::new(crew.inbox());
            builder
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(2 * WINDOW)
                .max_header_list_size(LARGEST_HEAD)
                .max_send_buf_size(WINDOW as usize);
            let (mut sender, connection) = builder.handshake(TokioIo::new(io)).await?;
            let talk = async move { Ok(listen(sender.send_request(request).await?).await) };
            drive(talk, connection, &mut crew).await
        }
    }
}

/// Polls a request, its connection and the connection's tasks until the request is complete.
async fn drive<M, C, E>(talk: M, connection: C, crew: &mut Crew) -> M::Output
where
    M: Future,
    C: Future<Output = Result<(), E>>,
    E: Error,
{
    // A fused future is dropped when it is done: the request drops its sender, the connection its socket.
    let mut talk = pin!(talk.fuse());
    let mut connection = pin!(connection.fuse());
    poll_fn(|cx| {
        loop {
            let polled = talk.as_mut().poll(cx);
            // The request gets an error of the connection through its own channel. A completed request lets its
            // connection close in order, if that needs no waiting.
            let _ = connection.as_mut().poll(cx);
            let more = crew.poll(cx);
            if polled.is_ready() || !more {
                return polled;
            }
        }
    })
    .await
}

// === impl Crew ===

impl Crew {
    fn new() -> Self {
        Self { inbox: Arc::default(), running: FuturesUnordered::new() }
    }

    fn inbox(&self) -> Inbox {
        Inbox(Arc::downgrade(&self.inbox))
    }

    /// Adds new tasks and polls all of them. Returns whether there were new ones.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let new = std::mem::take(&mut *self.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        let more = !new.is_empty();
        self.running.extend(new);
        while let Poll::Ready(Some(())) = self.running.poll_next_unpin(cx) {}
        more
    }
}

// === impl Inbox ===

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Inbox {
    fn execute(&self, task: F) {
        if let Some(inbox) = self.0.upgrade() {
            inbox.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(task));
        }
    }
}
