//! The requests of sessions, and the trait that carries them out.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::link::Hangup;
use crate::status::ExitStatus;

/// A future that can be kept in a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a backend failed. The client gets the text.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Where the client's bytes are read.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;

/// Where bytes for the client are written.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Does the work behind the streams of a session.
///
/// When the client disconnects, its input ends, writing to it fails, and [`Io::hangup`] resolves. Exec and attach
/// continue until they return: the backend decides whether a command outlives its client. A forwarded connection is
/// dropped a few seconds later.
pub trait Backend: Send + Sync + 'static {
    /// Runs a command in a container and returns its exit status.
    fn exec(&self, request: Exec, io: Io) -> BoxFuture<'_, Result<ExitStatus, Failure>>;

    /// Attaches to a container until it exits or the client disconnects.
    fn attach(&self, request: Attach, io: Io) -> BoxFuture<'_, Result<(), Failure>>;

    /// Carries one connection to a port of a sandbox. Shutting the stream down for writing signals the end of data to
    /// the client; the session of this connection ends with the future.
    fn port_forward(&self, sandbox: String, port: u16, stream: Box<dyn Duplex>) -> BoxFuture<'_, Result<(), Failure>>;
}

/// What a session is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run a command.
    Exec(Exec),
    /// Attach to the running process.
    Attach(Attach),
    /// Carry connections.
    PortForward(PortForward),
}

/// A command in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// The id of the container.
    pub container: String,
    /// The command and its arguments.
    pub cmd: Vec<String>,
    /// What is connected.
    pub streams: Streams,
}

/// A request to attach to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The id of the container.
    pub container: String,
    /// What is connected.
    pub streams: Streams,
}

/// A request to forward ports of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortForward {
    /// The id of the sandbox.
    pub sandbox: String,
    /// The ports, for clients that open all connections at once (WebSocket v4). Others name the port with each
    /// connection. If empty, a WebSocket v4 client has to name them in the query, as `port=80&port=443`.
    pub ports: Vec<u16>,
}

/// The streams that a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// The client writes.
    pub stdin: bool,
    /// The client reads what is written.
    pub stdout: bool,
    /// The client reads stderr apart from stdout.
    pub stderr: bool,
    /// A terminal: no separate stderr, and a size that changes.
    pub tty: bool,
}

/// The streams of a session.
pub struct Io {
    /// Ends when the client closes it or disconnects.
    pub stdin: Option<Input>,
    /// Dropping it signals its end to the client.
    pub stdout: Option<Output>,
    /// The same.
    pub stderr: Option<Output>,
    /// Sizes of the terminal.
    pub resize: Resizes,
    /// Resolves when the client disconnects.
    pub hangup: Hangup,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Columns.
    #[serde(rename = "Width")]
    pub width: u16,
    /// Rows.
    #[serde(rename = "Height")]
    pub height: u16,
}

/// Sizes of a terminal as they change. Only the newest matters, so older ones may be left out.
#[derive(Debug)]
pub struct Resizes(pub(crate) watch::Receiver<Option<Size>>);

// === impl Resizes ===

impl Resizes {
    /// The next size; `None` if there are no more.
    pub async fn next(&mut self) -> Option<Size> {
        loop {
            self.0.changed().await.ok()?;
            let newest = *self.0.borrow_and_update();
            if newest.is_some() {
                return newest;
            }
        }
    }
}
