//! Sockets: the agent's own for root, and one on loopback for clients that only ask how it is.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener, UnixStream},
    sync::Semaphore,
};

use super::{Local, open_router, patient::Patient, router};

/// Connections at once on the agent's own socket: some dozens of people with logs and watches open.
const CONNECTIONS: usize = 64;

/// Connections at once on loopback: scrapers and health checks, each briefly.
const LOOPBACK_CONNECTIONS: usize = 16;

/// How long one of these connections may last. An answer there takes milliseconds; any process of the node can open connections and
/// read slowly, and a health check must still be answered.
const LOOPBACK_TAKES: Duration = Duration::from_secs(30);

/// A peer has this long to say what it wants.
const HEAD_TAKES: Duration = Duration::from_secs(10);

/// Bytes of a request's head.
const LARGEST_HEAD: usize = 16 << 10;

/// An agent that does not take a connection within this is stuck, but there.
const ANSWER_TAKES: Duration = Duration::from_secs(1);

/// A port that is taken may be free later.
const BIND_AGAIN: Duration = Duration::from_secs(10);

/// The longest path of a socket: what fits into `sun_path` with its final zero.
const LONGEST_PATH: usize = 107;

/// A socket for root alone, such as the agent's own. It goes with this value.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process has it.
    #[error("another keelet{} runs here: it answers on {}", .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default(), .path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
        /// The other one.
        pid: Option<i32>,
    },
    /// Something else is in its place.
    #[error("{} exists and is not a socket; remove it, or use another path", .0.display())]
    NotASocket(PathBuf),
    /// It cannot be made.
    #[error("cannot create the socket {}: {source}", .path.display())]
    Failed {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

// === impl Listener ===

impl Listener {
    /// Makes the socket, for root alone. One that a dead agent left is replaced.
    pub async fn bind(path: impl Into<PathBuf>) -> Result<Self, BindError> {
        let path = path.into();
        check_place(&path).await?;
        match make(&path) {
            Ok((listener, inode)) => Ok(Self { listener, path, inode }),
            Err(source) => Err(BindError::Failed { path, source }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection of a client that may have one.
    pub async fn accept(&self) -> UnixStream {
        let own = rustix::process::geteuid().as_raw();
        loop {
            match self.listener.accept().await {
                // The mode of the socket says the same; this holds even if another process changed it.
                Ok((stream, _)) => match stream.peer_cred().map(|peer| peer.uid()) {
                    Ok(uid) if uid == 0 || uid == own => return stream,
                    refused => tracing::warn!(
                        ?refused, socket = %self.path.display(), "refused connection: only root may use the socket"
                    ),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connection; retrying");
                    tokio::time::sleep(ANSWER_TAKES).await;
                }
            }
        }
    }

    /// Serves the clients that may connect, for as long as this is polled.
    pub async fn serve(&self, local: Arc<Local>) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        let router = router(local);
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            let (stream, router) = (self.accept().await, router.clone());
            tokio::spawn(async move {
                converse(stream, router).await;
                drop(permit);
            });
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The next agent may have put its own there.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a socket may be made there.
async fn check_place(path: &Path) -> Result<(), BindError> {
    if path.as_os_str().len() > LONGEST_PATH {
        let source = io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("the path of a socket has at most {LONGEST_PATH} bytes"),
        );
        return Err(BindError::Failed { path: path.to_owned(), source });
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(BindError::NotASocket(path.to_owned())),
        Ok(_) => {}
        Err(_) => return Ok(()),
    }
    let taken = |pid| Err(BindError::Taken { path: path.to_owned(), pid });
    match tokio::time::timeout(ANSWER_TAKES, UnixStream::connect(path)).await {
        Ok(Ok(stream)) => taken(stream.peer_cred().ok().and_then(|peer| peer.pid())),
        Err(_) => taken(None),
        // No process listens any more.
        Ok(Err(_)) => Ok(()),
    }
}

fn make(path: &Path) -> io::Result<(UnixListener, u64)> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    // Under another name until it has its mode: no client can connect in between. A rename replaces in one step.
    let aside = path.with_extension(format!("{}", std::process::id()));
    if aside.as_os_str().len() > LONGEST_PATH {
        let message = format!("the path of a socket has at most {LONGEST_PATH} bytes, including a temporary suffix");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let _ = fs::remove_file(&aside);
    let listener = UnixListener::bind(&aside)?;
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o600))?;
    let inode = fs::symlink_metadata(&aside)?.ino();
    fs::rename(&aside, path)?;
    Ok((listener, inode))
}

/// Health and metrics on a port of loopback, for as long as this is polled. A port that is taken is tried again.
pub async fn serve_loopback(address: SocketAddr, local: Arc<Local>) {
    let mut told = false;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) if !told => {
                tracing::warn!(%address, %error, "cannot listen for health checks and metrics; retrying");
                told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(BIND_AGAIN).await;
    };
    let permits = Arc::new(Semaphore::new(LOOPBACK_CONNECTIONS));
    let router = open_router(local);
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router.clone();
                tokio::spawn(async move {
                    converse_briefly(stream, router).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(ANSWER_TAKES).await,
        }
    }
}

async fn converse_briefly(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, router: Router) {
    if tokio::time::timeout(LOOPBACK_TAKES, converse(stream, router)).await.is_err() {
        tracing::debug!("closed a loopback connection that lasted too long");
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TAKES)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(Patient::new(stream)), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        tracing::debug!(%error, "connection of the local API failed");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Any process of the node can connect to loopback. Clients that read slowly must not hold all connections.
    #[tokio::test(start_paused = true)]
    async fn a_slow_client_on_loopback_gives_up_its_connection() {
        let router = Router::new().route("/", get(async || "x".repeat(1 << 20)));
        let (near, mut far) = tokio::io::duplex(64);
        let server = tokio::spawn(converse_briefly(near, router));
        far.write_all(b"GET / HTTP/1.1\r\nhost: node\r\n\r\n").await.expect("sent");
        let client = tokio::spawn(async move {
            // Often enough for a server that waits for any progress.
            while far.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        tokio::time::timeout(Duration::from_secs(3600), server)
            .await
            .expect("the connection is closed")
            .expect("no panic");
        client.await.expect("the client sees the end");
    }
}
