//! What a session asks for, and who does it.

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

/// Why a backend could not do what it was asked for. The text goes to the client.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Where the client's bytes are read.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;

/// Where bytes for the client are written.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Does the work behind the streams.
///
/// When the client goes away, its input ends, writing to it fails, and [`Io::hangup`] says so. Exec and attach go on
/// until they return: whether a command outlives its client is the backend's choice. A forwarded connection is dropped a
/// few seconds later.
pub trait Backend: Send + Sync + 'static {
    /// Runs a command in a container and says how it ended.
    fn exec(&self, request: Exec, io: Io) -> BoxFuture<'_, Result<ExitStatus, Failure>>;

    /// Attaches to a container until it ends or the client goes.
    fn attach(&self, request: Attach, io: Io) -> BoxFuture<'_, Result<(), Failure>>;

    /// Carries one connection to a port of a sandbox. Shutting the stream down for writing tells the client that no more
    /// comes; the session of this connection ends when the future does.
    fn port_forward(&self, sandbox: String, port: u16, stream: Box<dyn Duplex>) -> BoxFuture<'_, Result<(), Failure>>;
}

/// What a session is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run a command.
    Exec(Exec),
    /// Attach to what runs.
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

/// A container whose streams are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The id of the container.
    pub container: String,
    /// What is connected.
    pub streams: Streams,
}

/// A sandbox whose ports are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortForward {
    /// The id of the sandbox.
    pub sandbox: String,
    /// The ports, for clients that open all connections at once (WebSocket v4). Others name them with each connection. If
    /// empty, such a client has to name them in the query, as `port=80&port=443`.
    pub ports: Vec<u16>,
}

/// Which streams a client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// The client writes.
    pub stdin: bool,
    /// The client reads what is written.
    pub stdout: bool,
    /// The client reads errors apart.
    pub stderr: bool,
    /// A terminal: no stderr apart, and a size that changes.
    pub tty: bool,
}

/// The streams of a session.
pub struct Io {
    /// Ends when the client has no more, or is gone.
    pub stdin: Option<Input>,
    /// The client learns that it ended when it is dropped.
    pub stdout: Option<Output>,
    /// The same.
    pub stderr: Option<Output>,
    /// Sizes of the terminal.
    pub resize: Resizes,
    /// Learns when the client is gone.
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
