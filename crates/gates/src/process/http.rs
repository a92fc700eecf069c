//! `/healthz`, `/readyz` and `/metrics` over HTTP.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tracing::debug;

use super::Access;
use crate::{
    api::Denied,
    controller::Vitals,
    metrics::{self, Metrics},
};

/// Where to listen, as a person says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// Nowhere: `0`.
    Off,
    /// On a port of all addresses: `:8080`.
    Port(u16),
    /// On one address: `127.0.0.1:8080`.
    At(SocketAddr),
}

/// What is no [`BindAddress`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid address {0:?}: expected :8080, 127.0.0.1:8080 or [::1]:8080, or 0 to listen nowhere")]
pub struct BadAddress(String);

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}; choose another address with --bind-address, or 0 to listen nowhere")]
pub struct BindError {
    address: BindAddress,
    error: io::Error,
}

/// A socket that listens.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
}

/// The connections that are open, the oldest first.
#[derive(Debug, Default)]
struct Open(VecDeque<(IpAddr, JoinHandle<()>)>);

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Health {
    pub(super) vitals: watch::Receiver<Vitals>,
    pub(super) access: watch::Receiver<Access>,
    pub(super) metrics: Arc<Metrics>,
}

/// Connections at once: scrapers and health checks, each briefly. When there are more the oldest is closed, so that connections which say
/// nothing keep no probe waiting.
const CONNECTIONS: usize = 64;

/// Connections of one address at once: a kubelet has two probes. When there are more its own oldest is closed, so that no pod takes the
/// turns of a kubelet.
const OF_ADDRESS: usize = 4;

/// A connection lasts no longer. A probe of a kubelet takes milliseconds.
const LONGEST: Duration = Duration::from_secs(10);

/// A client sends the head of its request at once.
const HEAD: Duration = Duration::from_secs(1);

/// Bytes of a request's head.
const LARGEST_HEAD: usize = 16 << 10;

const TEXT: &str = "text/plain; charset=utf-8";

// === impl BindAddress ===

impl FromStr for BindAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if text == "0" {
            return Ok(Self::Off);
        }
        let port = text.strip_prefix(':').map(|port| port.parse().map(Self::Port).ok());
        port.unwrap_or_else(|| text.parse().map(Self::At).ok()).ok_or_else(|| BadAddress(text.to_owned()))
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => write!(f, "0"),
            Self::Port(port) => write!(f, ":{port}"),
            Self::At(address) => write!(f, "{address}"),
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// Listens; none if nothing is to listen.
    pub async fn bind(address: BindAddress) -> Result<Option<Self>, BindError> {
        let listener = match address {
            BindAddress::Off => return Ok(None),
            BindAddress::At(address) => TcpListener::bind(address).await,
            BindAddress::Port(port) => {
                let all = |ip: IpAddr| SocketAddr::new(ip, port);
                match TcpListener::bind(all(Ipv6Addr::UNSPECIFIED.into())).await {
                    // A machine without IPv6.
                    Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                        TcpListener::bind(all(Ipv4Addr::UNSPECIFIED.into())).await
                    }
                    listener => listener,
                }
            }
        };
        let bound = listener.and_then(|listener| Ok(Self { address: listener.local_addr()?, listener }));
        bound.map(Some).map_err(|error| BindError { address, error })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers, for as long as this is polled.
    pub(super) async fn serve(self, health: Health) {
        let mut open = Open::default();
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => open.admit(from.ip(), tokio::spawn(converse(stream, health.clone()))),
                Err(error) => {
                    // No file descriptor is left, for example.
                    debug!(%error, "cannot accept connection; retrying");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

// === impl Open ===

impl Open {
    fn admit(&mut self, from: IpAddr, talk: JoinHandle<()>) {
        self.0.retain(|(_, talk)| !talk.is_finished());
        let of_address = self.0.iter().filter(|(other, _)| *other == from).count();
        let too_many = if of_address >= OF_ADDRESS {
            self.0.iter().position(|(other, _)| *other == from)
        } else {
            (self.0.len() >= CONNECTIONS).then_some(0)
        };
        if let Some((_, oldest)) = too_many.and_then(|place| self.0.remove(place)) {
            oldest.abort();
        }
        self.0.push_back((from, talk));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, talk)| talk.abort());
    }
}

async fn converse(stream: TcpStream, health: Health) {
    let answer = service_fn(|request: Request<_>| {
        let answer = answer(request.method(), request.uri().path(), &health);
        async { Ok::<_, Infallible>(answer) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .header_read_timeout(HEAD)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), answer);
    match timeout(LONGEST, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "connection failed"),
        Err(_) => debug!("connection took too long"),
    }
}

fn answer(method: &Method, path: &str, health: &Health) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET is allowed\n".to_owned());
    }
    let said = |said: Result<(), String>| match said {
        Ok(()) => text(StatusCode::OK, TEXT, "ok\n".to_owned()),
        Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
    };
    match path {
        "/healthz" | "/livez" => said(health.alive()),
        "/readyz" => said(health.ready()),
        "/metrics" => text(StatusCode::OK, metrics::CONTENT_TYPE, health.metrics.encode()),
        _ => text(StatusCode::NOT_FOUND, TEXT, "there are /healthz, /readyz and /metrics\n".to_owned()),
    }
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}

// === impl Health ===

impl Health {
    fn alive(&self) -> Result<(), String> {
        let vitals = *self.vitals.borrow();
        if vitals.is_alive() {
            return Ok(());
        }
        Err(format!("stuck: nothing was done for {} s", vitals.beat.elapsed().as_secs()))
    }

    /// Whether it could act, or does: it knows all nodes and has all permissions.
    fn ready(&self) -> Result<(), String> {
        self.alive()?;
        match &*self.access.borrow() {
            Access::Lacking(lacking) => return Err(Denied(lacking.clone()).to_string()),
            Access::Unknown | Access::Complete => {}
        }
        if self.vitals.borrow().synced {
            return Ok(());
        }
        Err("nodes are not listed yet: the log says why if this lasts".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpSocket,
        time::Instant,
    };

    use super::*;
    use crate::api::Permission;

    #[test]
    fn addresses_are_written_as_users_of_controllers_write_them() {
        for (text, address) in [
            ("0", BindAddress::Off),
            (":8080", BindAddress::Port(8080)),
            ("127.0.0.1:0", BindAddress::At(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))),
            ("[::1]:8080", BindAddress::At(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 8080))),
        ] {
            assert_eq!(text.parse(), Ok(address));
            assert_eq!(address.to_string(), text);
        }
        for text in ["", ":", "8080", "127.0.0.1", ":65536", "localhost:8080", "http://127.0.0.1:80", ":-1"] {
            assert_eq!(text.parse::<BindAddress>(), Err(BadAddress(text.to_owned())));
        }
    }

    async fn ask(path: &str, vitals: Vitals, access: Access) -> (u16, String) {
        let (vitals, access) = (watch::Sender::new(vitals), watch::Sender::new(access));
        let metrics = Arc::new(Metrics::new());
        let health = Health { vitals: vitals.subscribe(), access: access.subscribe(), metrics };
        let response = answer(&Method::GET, path, &health);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// CTRL-18: a controller that lacks a permission is not ready, and says which one.
    #[tokio::test(start_paused = true)]
    async fn health_is_activity_and_readiness_is_knowledge_and_permissions() {
        let ok = (200, "ok\n".to_owned());
        let fine = Vitals { synced: true, leads: false, beat: Instant::now() };
        for path in ["/healthz", "/livez", "/readyz"] {
            assert_eq!(ask(path, fine, Access::Complete).await, ok, "{path}");
        }
        // A cluster that forbids to ask for permissions is no reason not to be ready.
        assert_eq!(ask("/readyz", fine, Access::Unknown).await, ok);
        let lists = Vitals { synced: false, ..fine };
        assert_eq!(ask("/healthz", lists, Access::Complete).await, ok);
        assert_eq!(ask("/readyz", lists, Access::Complete).await.0, 503);
        let lacking = Access::Lacking(vec![Permission::of_cluster(&["patch"], "", "nodes")]);
        let (status, body) = ask("/readyz", fine, lacking.clone()).await;
        assert!(status == 503 && body.contains("patch nodes") && body.contains("verbs: [patch]"), "{body}");
        assert_eq!(ask("/healthz", fine, lacking).await, ok, "a restart would not help");
        tokio::time::advance(Duration::from_secs(61)).await;
        for path in ["/healthz", "/readyz"] {
            assert_eq!(ask(path, fine, Access::Complete).await, (503, "stuck: nothing was done for 61 s\n".to_owned()));
        }
        assert!(ask("/metrics", fine, Access::Complete).await.1.ends_with("# EOF\n"));
        assert_eq!(ask("/", fine, Access::Complete).await.0, 404);
    }

    /// Connections that say nothing keep no probe waiting, of their own address or another.
    #[tokio::test]
    async fn silent_connections_keep_no_probe_waiting() {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().unwrap();
        let address = endpoint.address();
        let fine = Vitals { synced: true, leads: false, beat: Instant::now() };
        let (vitals, access) = (watch::Sender::new(fine), watch::Sender::new(Access::Complete));
        let health =
            Health { vitals: vitals.subscribe(), access: access.subscribe(), metrics: Arc::new(Metrics::new()) };
        let server = tokio::spawn(endpoint.serve(health));
        let from = |last: u8| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), 0)).unwrap();
            socket.connect(address)
        };
        let mut silent = Vec::new();
        for number in 0..200 {
            silent.push(from(2 + number % 100).await.unwrap());
        }
        for last in [1, 2] {
            let mut probe = from(last).await.unwrap();
            probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            probe.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
        }
        server.abort();
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named() {
        let first = Endpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().unwrap();
        let taken = BindAddress::At(first.address());
        let error = Endpoint::bind(taken).await.unwrap_err().to_string();
        assert!(error.contains(&format!("cannot listen on {taken}")) && error.contains("--bind-address"), "{error}");
        assert!(Endpoint::bind(BindAddress::Off).await.unwrap().is_none());
    }
}
