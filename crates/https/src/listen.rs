//! The listener: TLS connections, and HTTP/1.1 over them.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use keelet_serve::{Patience, Patient};
use rustix::net::sockopt;
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use crate::guard::{Guard, Peer};

/// A handshake takes milliseconds of work and two round trips.
const HANDSHAKE_TAKES: Duration = Duration::from_secs(10);

/// A client has this long for the head of its request, also of the next one on the same connection.
const HEAD_TAKES: Duration = Duration::from_secs(10);

/// Bytes of a request's head. The command of an exec is in it, and people put scripts there.
const LARGEST_HEAD: usize = 128 << 10;

/// How long to wait before accepting again when there are no more file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A client that says nothing for so long is asked by the kernel whether it is there: one packet of a connection without any traffic. Address
/// translators on the way forget such connections after minutes.
const ALIVE_AFTER: Duration = Duration::from_secs(30);

/// How often a client that does not answer is asked again, and how many times. Its connection is closed after a minute and a half without an answer:
/// longer than a switch or a router takes to restart, and short enough that the sessions of a client whose machine has vanished are free
/// before people notice. What waits to be sent is repeated by the kernel instead, for some fifteen minutes.
const ALIVE_AGAIN: Duration = Duration::from_secs(15);
const ALIVE_TIMES: u32 = 4;

/// The port that the server listens on, for the Node object: 0 while it does not.
#[derive(Clone, Debug, Default)]
pub struct Listening(Arc<AtomicU16>);

/// While it exists, the server listens.
struct Open<'a>(&'a Listening);

/// Serves clients for as long as this is polled.
pub async fn serve(listener: TcpListener, guard: Arc<Guard>, listening: &Listening) {
    listening.0.store(listener.local_addr().map_or(0, |address| address.port()), Ordering::Relaxed);
    let _open = Open(listening);
    let mut next: u64 = 0;
    loop {
        let (socket, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of the HTTPS server; retrying");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        next += 1;
        let id = next;
        let task = tokio::spawn(converse(socket, address, id, Arc::clone(&guard)));
        guard.strangers.add(id, address.ip(), task.abort_handle());
    }
}

async fn converse(socket: TcpStream, address: SocketAddr, id: u64, guard: Arc<Guard>) {
    // Keystrokes are small and should be sent at once.
    let _ = socket.set_nodelay(true);
    if let Err(error) = keep_alive(&socket) {
        tracing::debug!(%address, %error, "cannot set TCP keepalive");
    }
    let acceptor = TlsAcceptor::from(Arc::clone(&guard.certificates.current().config));
    let stream = match timeout(HANDSHAKE_TAKES, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%address, %error, "TLS handshake failed"),
        Err(_) => return tracing::debug!(%address, "TLS handshake took too long"),
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
    let patience = Patience::default();
    let peer = Arc::new(Peer { id, chain, patience: patience.clone(), hold: Mutex::default() });
    let service = service_fn(|request| {
        let (guard, peer) = (Arc::clone(&guard), Arc::clone(&peer));
        async move { Ok::<_, Infallible>(guard.answer(&peer, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TAKES)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(Patient::with(stream, patience)), service)
        .with_upgrades();
    if let Err(error) = served.await {
        tracing::debug!(%address, %error, "connection of the HTTPS server failed");
    }
}

/// A client whose machine has vanished never closes its connection: the kernel notices.
fn keep_alive(socket: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(socket, ALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(socket, ALIVE_AGAIN)?;
    sockopt::set_tcp_keepcnt(socket, ALIVE_TIMES)?;
    sockopt::set_socket_keepalive(socket, true)
}

// === impl Listening ===

impl Listening {
    /// The port; none while the server does not listen.
    pub fn port(&self) -> Option<u16> {
        Some(self.0.load(Ordering::Relaxed)).filter(|port| *port != 0)
    }
}

// === impl Open ===

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Relaxed);
    }
}
