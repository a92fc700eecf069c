//! The HTTP side: from a request to a running session.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::StreamError;
use crate::backend::{Backend, PortForward, Request, Streams};
use crate::forward;
use crate::link::Role;
use crate::negotiate::{Transport, Version, negotiate};
use crate::session::{self, Command};
use crate::sessions::Sessions;
use crate::spdy::{Spdy, SpdyEnd};
use crate::ws::{self, Framing, Ws};

/// Connections that have not become a session yet. Each exists for moments. Any local user can open more and send
/// nothing, so beyond the limit the oldest is closed.
const MAX_CONNECTIONS: usize = 256;

/// How long a client may take to send its request. It is small, and comes from an API server or an agent nearby.
const REQUEST: Duration = Duration::from_secs(5);

/// How long to wait before accepting again when there are no more file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Time limits of a session.
#[derive(Clone, Debug)]
pub struct Config {
    /// A connection that is idle for this long is closed. Pings count as activity.
    pub idle: Duration,
    /// How long a SPDY client may take to open the streams of its session, or both streams of a forwarded connection.
    pub stream_creation: Duration,
}

/// Why the ports of a port-forward over WebSocket cannot be used. The client gets the text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum BadPorts {
    #[error("port-forward over WebSocket needs at least one port, as ?port=80")]
    None,
    #[error("port-forward over WebSocket takes at most {most} ports, not {0}", most = forward::MAX_PORTS)]
    TooMany(usize),
    #[error("invalid port={0:?}: must be a number from 1 to 65535")]
    Invalid(String),
}

/// Accepts connections on `listener` and runs the sessions that their requests name. Returns when the listener fails
/// permanently.
pub async fn serve(
    listener: TcpListener,
    sessions: Arc<Sessions>,
    backend: Arc<dyn Backend>,
    config: Config,
) -> io::Result<()> {
    let mut waiting: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) if is_passing(&error) => {
                tracing::warn!(%error, "cannot accept streaming connection; retrying");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        // Keystrokes are small and should be sent at once.
        let _ = socket.set_nodelay(true);
        waiting.retain(|connection| !connection.is_finished());
        if waiting.len() >= MAX_CONNECTIONS
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.abort();
        }
        let (sessions, backend, config) = (sessions.clone(), backend.clone(), config.clone());
        let connection = tokio::spawn(async move {
            let service = service_fn(|request| {
                let response = sessions.respond(request, backend.clone(), &config);
                async { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(REQUEST)
                .serve_connection(TokioIo::new(socket), service)
                .with_upgrades();
            if let Err(error) = connection.await {
                tracing::debug!(%error, "streaming request failed");
            }
        });
        waiting.push_back(connection.abort_handle());
    }
}

/// Whether accepting may work again later.
fn is_passing(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected | io::ErrorKind::Unsupported)
}

/// Responds to a request for an upgrade. If the upgrade is possible, a session for `what` runs in its own task after
/// the response; otherwise the response says why not. Has to be called within a tokio runtime.
pub fn upgrade<B>(
    mut request: http::Request<B>,
    what: Request,
    backend: Arc<dyn Backend>,
    config: &Config,
) -> Response<Full<Bytes>> {
    let agreed = match negotiate(request.method(), request.headers(), &what) {
        Ok(agreed) => agreed,
        Err(refused) => return with_headers(answer(refused.status, refused.message), refused.headers),
    };
    let what = match with_ports(what, agreed.transport, request.uri().query()) {
        Ok(what) => what,
        Err(error) => return answer(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let upgraded = hyper::upgrade::on(&mut request);
    let (transport, version, config) = (agreed.transport, agreed.version, config.clone());
    tokio::spawn(async move {
        let ended = match upgraded.await {
            Ok(socket) => run(TokioIo::new(socket), transport, version, what, backend, config).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "streaming session failed");
        }
    });
    with_headers(answer(StatusCode::SWITCHING_PROTOCOLS, Bytes::new()), agreed.headers)
}

/// A plain response. After a response other than an upgrade the connection is closed.
pub(crate) fn answer(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    if status != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn with_headers(mut response: Response<Full<Bytes>>, headers: HeaderMap) -> Response<Full<Bytes>> {
    response.headers_mut().extend(headers);
    response
}

/// Over WebSocket v4 a client has to name its ports in the request.
fn with_ports(what: Request, transport: Transport, query: Option<&str>) -> Result<Request, BadPorts> {
    let (Request::PortForward(mut wanted), Transport::WebSocket(framing)) = (what.clone(), transport) else {
        return Ok(what);
    };
    if framing == Framing::Tunnel {
        return Ok(what);
    }
    if wanted.ports.is_empty() {
        wanted.ports = query_ports(query.unwrap_or_default())?;
    }
    match wanted.ports.len() {
        0 => Err(BadPorts::None),
        1..=forward::MAX_PORTS => Ok(Request::PortForward(wanted)),
        count => Err(BadPorts::TooMany(count)),
    }
}

fn query_ports(query: &str) -> Result<Vec<u16>, BadPorts> {
    let values = query.split('&').filter_map(|pair| pair.strip_prefix("port="));
    // Go writes the comma of a list as %2C.
    let texts = values.flat_map(|value| value.split(',')).flat_map(|text| text.split("%2C"));
    texts
        .map(|text| match text.parse() {
            Ok(port @ 1..) => Ok(port),
            _ => Err(BadPorts::Invalid(text.to_owned())),
        })
        .collect()
}

async fn run<S>(
    socket: S,
    transport: Transport,
    version: Version,
    what: Request,
    backend: Arc<dyn Backend>,
    config: Config,
) -> Result<(), StreamError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    match (transport, what) {
        (Transport::Spdy, Request::PortForward(wanted)) => {
            let spdy = Spdy::start(socket, Role::Server, config.idle)?;
            forward::over_spdy(spdy, wanted.sandbox, config.stream_creation, backend).await;
        }
        (Transport::WebSocket(Framing::Tunnel), Request::PortForward(wanted)) => {
            let tunnel = Ws::tunnel(socket, Role::Server, config.idle)?;
            let spdy = Spdy::start(tunnel, Role::Server, config.idle)?;
            forward::over_spdy(spdy, wanted.sandbox, config.stream_creation, backend).await;
        }
        (Transport::WebSocket(framing), Request::PortForward(PortForward { sandbox, ports })) => {
            let channels = (0..=254).take(2 * ports.len());
            let mut ws = ws::channels(socket, Role::Server, framing, channels, config.idle);
            forward::over_websocket(&mut ws, &sandbox, &ports, &backend).await;
            ws.link.end(Ws::goodbye()).await;
        }
        (Transport::Spdy, Request::Exec(exec)) => {
            let streams = exec.streams;
            command_over_spdy(socket, streams, version, Command::Exec(exec), backend, config).await?;
        }
        (Transport::Spdy, Request::Attach(attach)) => {
            let streams = attach.streams;
            command_over_spdy(socket, streams, version, Command::Attach(attach), backend, config).await?;
        }
        (Transport::WebSocket(framing), Request::Exec(exec)) => {
            let ws = command_channels(socket, framing, exec.streams, &config);
            command_over_websocket(ws, version, Command::Exec(exec), backend).await;
        }
        (Transport::WebSocket(framing), Request::Attach(attach)) => {
            let ws = command_channels(socket, framing, attach.streams, &config);
            command_over_websocket(ws, version, Command::Attach(attach), backend).await;
        }
    }
    Ok(())
}

async fn command_over_spdy<S>(
    socket: S,
    streams: Streams,
    version: Version,
    command: Command,
    backend: Arc<dyn Backend>,
    config: Config,
) -> Result<(), StreamError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut spdy = Spdy::start(socket, Role::Server, config.idle)?;
    let lines = session::spdy_lines(&mut spdy, streams, version, config.stream_creation).await;
    let hangup = spdy.hangup();
    let link = spdy.into_link();
    match lines {
        Ok(lines) => {
            session::run(lines, hangup, version, command, backend).await;
            link.end(SpdyEnd::goodbye()).await;
            Ok(())
        }
        Err(error) => {
            link.end(SpdyEnd::goodbye()).await;
            Err(error)
        }
    }
}

fn command_channels<S>(socket: S, framing: Framing, streams: Streams, config: &Config) -> Ws
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    ws::channels(socket, Role::Server, framing, session::websocket_channels(streams), config.idle)
}

async fn command_over_websocket(mut ws: Ws, version: Version, command: Command, backend: Arc<dyn Backend>) {
    let lines = session::websocket_lines(&mut ws).await;
    session::run(lines, ws.link.hangup.clone(), version, command, backend).await;
    ws.link.end(Ws::goodbye()).await;
}

// === impl Config ===

impl Default for Config {
    /// The kubelet's values: four hours, thirty seconds.
    fn default() -> Self {
        Self { idle: Duration::from_secs(4 * 60 * 60), stream_creation: Duration::from_secs(30) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_from_the_query_if_the_request_has_none() {
        assert_eq!(query_ports("port=80&x=y&port=443"), Ok(vec![80, 443]));
        assert_eq!(query_ports("port=80,443"), Ok(vec![80, 443]));
        assert_eq!(query_ports("port=80%2C443"), Ok(vec![80, 443]));
        assert_eq!(query_ports(""), Ok(vec![]));
        for wrong in ["port=", "port=0", "port=65536", "port=http", "port=80,"] {
            assert!(query_ports(wrong).is_err(), "{wrong}");
        }
    }
}
