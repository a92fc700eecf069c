//! The server's side of a shim: starting one, asking it, hearing from it.

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, OnceLock},
    time::Duration,
};

use keelet_shim::protocol::{Answer, Exit, Request, SOCKET};
use keelet_shim::wire;
use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit},
};
use tokio::{io::Interest, net::UnixStream, process::Command};

/// A shim does at once what it is asked for here; only a new one, or one that gets no processor time, takes longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to start shims.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    executable: Arc<OwnedFd>,
    /// What makes a shim of the executable; the directory of the sandbox follows.
    arguments: Arc<[String]>,
    /// How many open files shims may have, and what runs in them.
    open_files: Rlimit,
}

/// The way to the shim of one sandbox. Each request has a connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct Shim {
    dir: Arc<PathBuf>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    fds: Vec<OwnedFd>,
}

// === impl Launcher ===

impl Launcher {
    /// Shims that run from this program or another, sealed.
    pub(crate) fn new(executable: Option<&Path>, arguments: &[String]) -> io::Result<Self> {
        let executable = keelet_linux::seal::sealed(executable.unwrap_or(Path::new("/proc/self/exe")))?;
        Ok(Self { executable: Arc::new(executable), arguments: arguments.into(), open_files: take_all_files() })
    }

    /// Starts a shim for the sandbox. The socket is there before it, so it can be asked at once.
    pub(crate) fn launch(&self, dir: &Path) -> io::Result<Shim> {
        let shim = Shim { dir: Arc::new(dir.to_owned()) };
        let listener = shim.listen()?;
        let executable = self.executable.try_clone()?;
        // Inherited by the shim, which closes it by becoming the program.
        let program = format!("/proc/self/fd/{}", executable.as_raw_fd());
        rustix::io::fcntl_setfd(&executable, rustix::io::FdFlags::empty())?;
        // Dropped at once: it outlives us, and while we live tokio reaps it.
        let child = Command::new(program)
            .args(self.arguments.iter())
            .arg(dir)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(listener))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // It has nothing to do before it is asked.
        if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) {
            prlimit(Some(pid), Resource::Nofile, self.open_files)?;
        }
        Ok(shim)
    }
}

/// Every pod has some open files here, so as many are taken as may be. What was given before is for others: programs that
/// close all there could be take their time with many.
fn take_all_files() -> Rlimit {
    static GIVEN: OnceLock<Rlimit> = OnceLock::new();
    *GIVEN.get_or_init(|| {
        let given = getrlimit(Resource::Nofile);
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: given.maximum, ..given }) {
            tracing::warn!(%error, "cannot raise the limit of open files (RLIMIT_NOFILE)");
        }
        given
    })
}

// === impl Shim ===

impl Shim {
    /// The shim of a sandbox that was made earlier. It need not live.
    pub(crate) fn of(dir: &Path) -> Self {
        Self { dir: Arc::new(dir.to_owned()) }
    }

    /// A path to the socket that is short enough, whatever the directory.
    fn address(&self) -> io::Result<(OwnedFd, PathBuf)> {
        let dir = open(self.dir.as_path(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd()));
        Ok((dir, path))
    }

    fn listen(&self) -> io::Result<UnixListener> {
        let (_dir, path) = self.address()?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        UnixListener::bind(path)
    }

    /// Asks for one thing.
    pub(crate) async fn ask(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> io::Result<Connection> {
        let (_dir, path) = self.address()?;
        let stream = UnixStream::connect(path).await?;
        let mut connection = Connection { stream, received: Vec::new(), fds: Vec::new() };
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        connection.send(&line, fds).await?;
        Ok(connection)
    }

    /// Asks for something that is answered by a process.
    pub(crate) async fn run(&self, request: &Request) -> Result<u32, ShimError> {
        match self.ask(request, &[]).await?.answer().await? {
            Answer::Running { pid } => Ok(pid),
            other => Err(ShimError::unexpected(other)),
        }
    }

    /// Asks for something that is done or not.
    pub(crate) async fn done(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(), ShimError> {
        in_time(async { self.ask(request, fds).await?.done().await }).await
    }

    /// Subscribes to what happens; also returns how containers ended of which that is not on disk.
    pub(crate) async fn watch(&self) -> Result<(Connection, Vec<Ended>), ShimError> {
        in_time(async {
            let mut connection = self.ask(&Request::Watch, &[]).await?;
            let mut ended = Vec::new();
            loop {
                match connection.answer().await? {
                    Answer::Done => return Ok((connection, ended)),
                    Answer::Ended { id, exit } => ended.push(Ended { id, exit }),
                    other => return Err(ShimError::unexpected(other)),
                }
            }
        })
        .await
    }
}

/// No caller waits for ever for one shim.
async fn in_time<T>(work: impl Future<Output = Result<T, ShimError>>) -> Result<T, ShimError> {
    match tokio::time::timeout(PATIENCE, work).await {
        // The shim has not even accepted the connections before this one.
        Ok(Err(ShimError::Gone(error))) if error.kind() == io::ErrorKind::WouldBlock => Err(ShimError::Late),
        Ok(done) => done,
        Err(_) => Err(ShimError::Late),
    }
}

// === impl Connection ===

impl Connection {
    async fn send(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            let fds = if sent == 0 { fds } else { &[] };
            sent += self
                .stream
                .async_io(Interest::WRITABLE, || wire::send_some(self.stream.as_fd(), &bytes[sent..], fds))
                .await?;
        }
        Ok(())
    }

    /// The next answer. An error if the shim is gone.
    pub(crate) async fn answer(&mut self) -> Result<Answer, ShimError> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = self.received.drain(..=end).collect();
                return match serde_json::from_slice(&line).map_err(io::Error::from)? {
                    Answer::Failed { message } => Err(ShimError::Refused(message)),
                    Answer::Exhausted => Err(ShimError::Exhausted),
                    answer => Ok(answer),
                };
            }
            let mut bytes = [0; 4096];
            let fds = &mut self.fds;
            let stream = &self.stream;
            let length = stream.async_io(Interest::READABLE, || wire::receive(stream.as_fd(), &mut bytes, fds)).await?;
            if length == 0 {
                return Err(ShimError::Gone(io::ErrorKind::UnexpectedEof.into()));
            }
            self.received.extend_from_slice(&bytes[..length]);
        }
    }

    pub(crate) async fn done(&mut self) -> Result<(), ShimError> {
        match self.answer().await? {
            Answer::Done => Ok(()),
            other => Err(ShimError::unexpected(other)),
        }
    }

    /// Descriptors that came with the answers so far.
    pub(crate) fn take_fds(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }
}

/// A container that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) id: String,
    pub(crate) exit: Exit,
}

/// Why a shim did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShimError {
    /// It could not, and says why.
    #[error("{0}")]
    Refused(String),
    /// It is not there.
    #[error("the pod's shim does not answer: {0}")]
    Gone(#[from] io::Error),
    /// It is there, and has no free descriptors for what it was asked.
    #[error("the pod's shim has no free file descriptors")]
    Exhausted,
    /// It is there, and says nothing.
    #[error("the pod's shim has not answered within {PATIENCE:?}")]
    Late,
}

// === impl ShimError ===

impl ShimError {
    fn unexpected(answer: Answer) -> Self {
        Self::Refused(format!("unexpected answer of the shim: {answer:?}"))
    }
}
