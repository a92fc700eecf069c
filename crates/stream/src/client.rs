//! The client: exec and attach over WebSocket, port-forward over SPDY, on a connection that the caller opened.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONNECTION, HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::StreamError;
use crate::backend::{Input, Output, Size};
use crate::forward::{PORT, REQUEST_ID};
use crate::link::Role;
use crate::negotiate::{PORT_FORWARD, SPDY, STREAM_VERSION};
use crate::session::{STREAM_TYPE, channel};
use crate::spdy::{Headers, Spdy};
use crate::status::{self, ExitStatus};
use crate::ws::{self, Framing, Ws, accept_key, new_key};

/// The protocol versions offered for exec and attach, the best first.
const PROTOCOLS: [(&str, Framing); 2] = [
    ("v5.channel.k8s.io", Framing::Channels { close_signal: true }),
    ("v4.channel.k8s.io", Framing::Channels { close_signal: false }),
];

/// The idle timeout: a server that sends nothing for a day is presumed dead. People leave shells open over night.
const IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// How much is read of a response other than an upgrade, and of an error stream.
const MAX_TEXT: usize = 64 * 1024;

/// The caller's side of an exec or attach.
#[derive(Default)]
pub struct Terminal {
    /// Read and sent to the command. Version 4 of the protocol cannot signal its end.
    pub stdin: Option<Input>,
    /// Gets the command's stdout.
    pub stdout: Option<Output>,
    /// Gets the command's stderr.
    pub stderr: Option<Output>,
    /// Sizes of the terminal, as they change.
    pub resize: Option<mpsc::Receiver<Size>>,
}

/// A connection that carries other connections to the ports of a sandbox.
pub struct Forwarder {
    spdy: Spdy,
    next: AtomicU64,
}

/// Runs the exec or attach that `url` was prepared for, over `socket`, and returns its exit status. It is an error if
/// the server does not know the URL, or if the work failed; the error has the server's message.
pub async fn run<S>(socket: S, url: &str, terminal: Terminal) -> Result<ExitStatus, StreamError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let key = new_key()?;
    let offered = PROTOCOLS.map(|(name, _)| name).join(", ");
    let headers = [
        (UPGRADE, "websocket"),
        (SEC_WEBSOCKET_VERSION, "13"),
        (SEC_WEBSOCKET_KEY, &key),
        (SEC_WEBSOCKET_PROTOCOL, &offered),
    ];
    let (socket, answer) = upgrade(socket, url, Method::GET, &headers).await?;
    expect(&answer, SEC_WEBSOCKET_ACCEPT, "Sec-WebSocket-Accept", &accept_key(&key))?;
    let chosen = answer.get(SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some((_, framing)) = PROTOCOLS.iter().find(|(name, _)| *name == chosen) else {
        let found = chosen.to_owned();
        return Err(StreamError::Handshake { name: "Sec-WebSocket-Protocol", found, expected: offered });
    };
    let names = channel::STDIN..=channel::RESIZE;
    let ws = ws::channels(TokioIo::new(socket), Role::Client, *framing, names, IDLE);
    session(ws, terminal).await
}

async fn session(mut ws: Ws, terminal: Terminal) -> Result<ExitStatus, StreamError> {
    let mut take = |name| ws.channels.remove(&name).ok_or(StreamError::Hangup);
    let (stdin, stdout, stderr) = (take(channel::STDIN)?, take(channel::STDOUT)?, take(channel::STDERR)?);
    let (error, resize) = (take(channel::ERROR)?, take(channel::RESIZE)?);
    // The copies end with the session, however far they are.
    let mut writers = JoinSet::new();
    match terminal.stdin {
        Some(local) => _ = writers.spawn(send_input(local, stdin.outbound)),
        None => drop(stdin.outbound),
    }
    match terminal.resize {
        Some(sizes) => _ = writers.spawn(send_sizes(sizes, resize.outbound)),
        None => drop(resize.outbound),
    }
    let status = async {
        let mut text = Vec::new();
        let read = error.inbound.take(MAX_TEXT as u64).read_to_end(&mut text).await;
        read.map(|_| text).map_err(StreamError::Read)
    };
    let (written, failed, text) = tokio::join!(
        copy_output("stdout", stdout.inbound, terminal.stdout),
        copy_output("stderr", stderr.inbound, terminal.stderr),
        status,
    );
    // The exit status matters more than a broken pipe on this side.
    let status = match text? {
        empty if empty.is_empty() => Err(StreamError::Hangup),
        text => status::decode(&text),
    };
    ws.link.end(Ws::goodbye()).await;
    written.and(failed).and(status)
}

async fn copy_output(what: &'static str, mut from: DuplexStream, to: Option<Output>) -> Result<(), StreamError> {
    let mut to = to.unwrap_or_else(|| Box::new(tokio::io::sink()));
    let copied = async {
        tokio::io::copy(&mut from, &mut to).await?;
        to.flush().await
    };
    match copied.await {
        Ok(()) => Ok(()),
        Err(error) => {
            // The rest has to be read, because the status comes after it.
            let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
            Err(StreamError::Local { what, error })
        }
    }
}

/// Sends the input; dropping the stream signals its end. It is not an error of the session if the command stops
/// reading.
async fn send_input(mut from: Input, mut to: DuplexStream) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

async fn send_sizes(mut sizes: mpsc::Receiver<Size>, mut to: DuplexStream) {
    while let Some(size) = sizes.recv().await {
        let Ok(text) = serde_json::to_vec(&size) else { continue };
        if to.write_all(&text).await.is_err() {
            return;
        }
    }
}

/// Sends the request and upgrades the connection.
async fn upgrade<S>(
    socket: S,
    url: &str,
    method: Method,
    headers: &[(HeaderName, &str)],
) -> Result<(Upgraded, HeaderMap), StreamError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let wrong = |why: String| StreamError::Url { url: url.to_owned(), why };
    let uri: Uri = url.parse().map_err(|error| wrong(format!("{error}")))?;
    let host = uri.authority().map_or("localhost", |authority| authority.as_str()).to_owned();
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let mut request = Request::builder().method(method).uri(path).header(HOST, host).header(CONNECTION, "Upgrade");
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| wrong(error.to_string()))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    tokio::spawn(async move {
        // The task that waits for the response sees the error.
        let _ = connection.with_upgrades().await;
    });
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_TEXT).collect().await;
        let body = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
        return Err(StreamError::NotUpgraded { status, body });
    }
    let answer = response.headers().clone();
    Ok((hyper::upgrade::on(response).await?, answer))
}

fn expect(answer: &HeaderMap, header: HeaderName, name: &'static str, expected: &str) -> Result<(), StreamError> {
    let found = answer.get(header).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if found == expected {
        return Ok(());
    }
    Err(StreamError::Handshake { name, found: found.to_owned(), expected: expected.to_owned() })
}

// === impl Forwarder ===

impl Forwarder {
    /// Begins the port-forward that `url` was prepared for, over `socket`.
    pub async fn connect<S>(socket: S, url: &str) -> Result<Self, StreamError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let headers = [(UPGRADE, SPDY), (STREAM_VERSION, PORT_FORWARD)];
        let (socket, answer) = upgrade(socket, url, Method::POST, &headers).await?;
        expect(&answer, STREAM_VERSION, "X-Stream-Protocol-Version", PORT_FORWARD)?;
        let spdy = Spdy::start(TokioIo::new(socket), Role::Client, IDLE)?;
        Ok(Self { spdy, next: AtomicU64::new(0) })
    }

    /// Carries one connection to `port` until the peer has no more to send. Several can be carried at once.
    pub async fn forward<L>(&self, local: L, port: u16) -> Result<(), StreamError>
    where
        L: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let request = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let headers = |kind: &str| {
            Headers::from([
                (STREAM_TYPE.to_owned(), kind.to_owned()),
                (PORT.to_owned(), port.to_string()),
                (REQUEST_ID.to_owned(), request.clone()),
            ])
        };
        let (_, error) = self.spdy.open(headers("error")).await?;
        drop(error.outbound);
        let (id, data) = self.spdy.open(headers("data")).await?;
        let (mut from_remote, mut to_remote) = (data.inbound, data.outbound);
        let (mut from_local, mut to_local) = tokio::io::split(local);
        let mut upward = JoinSet::new();
        upward.spawn(async move {
            // Dropping the stream signals its end.
            let _ = tokio::io::copy(&mut from_local, &mut to_remote).await;
        });
        let downward = async {
            tokio::io::copy(&mut from_remote, &mut to_local).await?;
            to_local.shutdown().await
        };
        downward.await.or_else(|error| match error.kind() {
            // A local peer that disconnects ends the connection; that is not an error.
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected => Ok(()),
            _ => Err(StreamError::Local { what: "a forwarded connection", error }),
        })?;
        // The rest is not needed any more, and must not block the other connections.
        drop(from_remote);
        self.spdy.reset(id).await;
        upward.shutdown().await;
        let mut text = Vec::new();
        error.inbound.take(MAX_TEXT as u64).read_to_end(&mut text).await.map_err(StreamError::Read)?;
        if text.is_empty() { Ok(()) } else { Err(StreamError::Remote(String::from_utf8_lossy(&text).into_owned())) }
    }

    /// Resolves when the server disconnects.
    pub async fn closed(&self) {
        self.spdy.hangup().wait().await;
    }
}
