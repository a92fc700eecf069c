//! Sessions: commands with their streams, attaching, forwarded connections.
//!
//! CRI answers a request for a session with an address on loopback that holds a token. The server behind it is started
//! with the first such request, so a node whose agent has no use for it has no port open. It has a thread of its own: what
//! passes through sessions delays no pod.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use keelet_cri::v1;
use keelet_shim::protocol::Request;
use keelet_stream::{
    Attach, Backend, BoxFuture, Config, Duplex, Exec, ExitStatus, Failure, Input, Io, Output, PortForward, Resizes,
    Sessions, Streams,
};
use rustix::{
    fs::{Mode, OFlags, open},
    pipe::{PipeFlags, pipe_with},
    termios::{Winsize, tcsetwinsize},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, unix::pipe},
    runtime,
    sync::{OnceCell, oneshot},
};
use tonic::Status;

use crate::{
    engine::{Engine, Parts},
    exec::{Stdio, reader},
    sandbox::{failed, internal},
};

/// What may still come after a command has ended. Its children can hold its output open for ever.
const REMAINING_OUTPUT: Duration = Duration::from_millis(200);

/// The server of sessions, once a client has asked for one.
#[derive(Debug, Default)]
pub(crate) struct Server(OnceCell<Serving>);

/// The sessions of a server that listens.
#[derive(Debug)]
struct Serving {
    sessions: Arc<Sessions>,
    /// Dropped with the engine, which ends the thread.
    _stop: oneshot::Sender<()>,
}

/// Does the work of sessions. It does not keep the engine alive.
struct Worker(Weak<Parts>);

/// Serves sessions on a new thread, until what is returned is dropped.
fn serve(
    listener: std::net::TcpListener,
    sessions: Arc<Sessions>,
    worker: Arc<dyn Backend>,
) -> io::Result<oneshot::Sender<()>> {
    let (stop, stopped) = oneshot::channel();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let work = move || {
        runtime.block_on(async {
            let serving = async {
                keelet_stream::serve(TcpListener::from_std(listener)?, sessions, worker, Config::default()).await
            };
            tokio::select! {
                biased;
                _ = stopped => {}
                served = serving => if let Err(error) = served {
                    tracing::warn!(%error, "streaming server stopped: exec, attach and port-forward fail until keelet is restarted");
                },
            }
        });
    };
    thread::Builder::new().name("streams".to_owned()).spawn(work)?;
    Ok(stop)
}

// === impl Engine ===

impl Engine {
    pub(crate) async fn exec_url(&self, request: v1::ExecRequest) -> Result<String, Status> {
        let v1::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr } = request;
        let container = self.container(&container_id)?;
        if !container.is_running() {
            return Err(Status::failed_precondition(format!("container {} is not running", container.id)));
        }
        let streams = Streams { stdin, stdout, stderr, tty };
        prepared(self.sessions().await?.exec(Exec { container: container.id.clone(), cmd, streams }))
    }

    pub(crate) async fn attach_url(&self, request: v1::AttachRequest) -> Result<String, Status> {
        let v1::AttachRequest { container_id, tty, stdin, stdout, stderr } = request;
        let container = self.container(&container_id)?;
        if !container.is_running() {
            return Err(Status::failed_precondition(format!("container {} is not running", container.id)));
        }
        let streams = Streams { stdin, stdout, stderr, tty };
        prepared(self.sessions().await?.attach(Attach { container: container.id.clone(), streams }))
    }

    pub(crate) async fn port_forward_url(&self, request: v1::PortForwardRequest) -> Result<String, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        if !sandbox.is_ready() {
            return Err(Status::failed_precondition(format!("sandbox {} is not ready", sandbox.id)));
        }
        let ports = request.port.iter().map(|port| u16::try_from(*port).ok().filter(|port| *port > 0));
        let ports = ports.collect::<Option<Vec<_>>>().ok_or_else(|| {
            Status::invalid_argument(format!("invalid ports {:?}: expected 1 to 65535", request.port))
        })?;
        prepared(self.sessions().await?.port_forward(PortForward { sandbox: sandbox.id.clone(), ports }))
    }

    async fn sessions(&self) -> Result<Arc<Sessions>, Status> {
        let started = self.parts.streams.0.get_or_try_init(|| async {
            let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
            listener.set_nonblocking(true)?;
            let sessions = Arc::new(Sessions::new(format!("http://{}", listener.local_addr()?)));
            let worker: Arc<dyn Backend> = Arc::new(Worker(Arc::downgrade(&self.parts)));
            let stop = serve(listener, Arc::clone(&sessions), worker)?;
            Ok::<_, io::Error>(Serving { sessions, _stop: stop })
        });
        let started = started.await.map_err(|error| internal("the server of sessions", &error))?;
        Ok(Arc::clone(&started.sessions))
    }

    async fn run_session(&self, request: Exec, io: Io) -> Result<ExitStatus, Failure> {
        let container = self.container(&request.container).map_err(as_failure)?;
        let Io { stdin, stdout, stderr, resize, mut hangup } = io;
        let (stdio, ends) = if request.streams.tty {
            (Stdio::Terminal, Ends::default())
        } else {
            let (ends, theirs) = pipes(stdin.is_some())?;
            (Stdio::Pipes(theirs), ends)
        };
        let mut running = self.exec(&container, &request.cmd, stdio).await.map_err(as_failure)?;
        let Ends { input, output, errors } = match running.terminal() {
            Some(terminal) => {
                tokio::spawn(follow_sizes(terminal.try_clone()?, resize));
                terminal_ends(terminal)?
            }
            None => ends,
        };
        if let (Some(input), Some(stdin)) = (input, stdin) {
            tokio::spawn(copy_in(stdin, input));
        }
        let said = async { tokio::join!(copy_out(output, stdout), copy_out(errors, stderr)) };
        tokio::pin!(said);
        let mut silent = false;
        let code = {
            let ended = running.wait();
            tokio::pin!(ended);
            loop {
                tokio::select! {
                    code = &mut ended => break code.map_err(as_failure)?,
                    _ = &mut said, if !silent => silent = true,
                    // A client that leaves leaves nothing behind: dropped, the command is killed.
                    () = hangup.wait() => return Err("the client is gone".into()),
                }
            }
        };
        if !silent {
            // The client gets the output from before the end before it gets the end.
            let _ = tokio::time::timeout(REMAINING_OUTPUT, said).await;
        }
        Ok(ExitStatus(u8::try_from(code).unwrap_or(u8::MAX)))
    }

    async fn attach_session(&self, request: Attach, io: Io) -> Result<(), Failure> {
        let container = self.container(&request.container).map_err(as_failure)?;
        let sandbox = self.sandbox(&container.sandbox).map_err(as_failure)?;
        let Io { stdin, stdout, stderr, resize, mut hangup } = io;
        let (output, theirs_out) = reader()?;
        let (errors, theirs_err) = reader()?;
        for end in [&theirs_out, &theirs_err] {
            rustix::io::ioctl_fionbio(end, true)?;
        }
        let shim = sandbox.shim();
        let request = Request::Attach { id: container.id.clone() };
        let mut connection = shim.ask(&request, &[theirs_out.as_fd(), theirs_err.as_fd()]).await?;
        drop((theirs_out, theirs_err));
        connection.done().await.map_err(|error| as_failure(failed(&error)))?;
        if let (Some(input), Some(stdin)) = (connection.take_fds().pop(), stdin) {
            if container.config.tty {
                tokio::spawn(follow_sizes(input.try_clone()?, resize));
            }
            let input = pipe::Sender::from_owned_fd_unchecked(input)?;
            let once = (container.config.stdin_once && !container.config.tty).then(|| container.id.clone());
            tokio::spawn(async move {
                copy_in(stdin, input).await;
                if let Some(id) = once {
                    let _ = shim.done(&Request::CloseStdin { id }, &[]).await;
                }
            });
        }
        let said = async { tokio::join!(copy_out(Some(output), stdout), copy_out(Some(errors), stderr)) };
        tokio::pin!(said);
        // The shim alone has the other ends. It closes them when the container has ended and all has been said.
        tokio::select! {
            _ = &mut said => {}
            () = hangup.wait() => {}
        }
        Ok(())
    }

    async fn forward(&self, sandbox: &str, port: u16, mut stream: Box<dyn Duplex>) -> Result<(), Failure> {
        let sandbox = self.sandbox(sandbox).map_err(as_failure)?;
        if !sandbox.is_ready() {
            return Err(format!("sandbox {} is not ready", sandbox.id).into());
        }
        // On the node's own network this is the node's.
        let netns = format!("/proc/{}/ns/net", sandbox.pause_pid());
        let mut target = keelet_net::dial(netns.as_ref(), port).await?;
        tokio::io::copy_bidirectional(&mut stream, &mut target).await?;
        Ok(())
    }
}

// === impl Worker ===

impl Worker {
    fn engine(&self) -> Result<Engine, Failure> {
        let parts = self.0.upgrade().ok_or("the runtime is stopping")?;
        Ok(Engine { parts })
    }
}

impl Backend for Worker {
    fn exec(&self, request: Exec, io: Io) -> BoxFuture<'_, Result<ExitStatus, Failure>> {
        Box::pin(async move { self.engine()?.run_session(request, io).await })
    }

    fn attach(&self, request: Attach, io: Io) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move { self.engine()?.attach_session(request, io).await })
    }

    fn port_forward(&self, sandbox: String, port: u16, stream: Box<dyn Duplex>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move { self.engine()?.forward(&sandbox, port, stream).await })
    }
}

/// What went wrong, in the words for people: a code of gRPC is of no use to the client of a session.
fn as_failure(status: Status) -> Failure {
    status.message().to_owned().into()
}

fn prepared(url: Result<String, keelet_stream::SessionError>) -> Result<String, Status> {
    url.map_err(|error| match error {
        keelet_stream::SessionError::Invalid { .. } => Status::invalid_argument(error.to_string()),
        _ => Status::resource_exhausted(error.to_string()),
    })
}

/// Our ends of a command's streams.
#[derive(Default)]
struct Ends {
    input: Option<pipe::Sender>,
    output: Option<pipe::Receiver>,
    errors: Option<pipe::Receiver>,
}

fn pipes(stdin: bool) -> io::Result<(Ends, [OwnedFd; 3])> {
    let (output, theirs_out) = reader()?;
    let (errors, theirs_err) = reader()?;
    let (input, theirs_in) = if stdin {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        (Some(pipe::Sender::from_owned_fd(ours)?), theirs)
    } else {
        (None, open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    };
    Ok((Ends { input, output: Some(output), errors: Some(errors) }, [theirs_in, theirs_out, theirs_err]))
}

fn terminal_ends(terminal: OwnedFd) -> io::Result<Ends> {
    rustix::io::ioctl_fionbio(&terminal, true)?;
    // A terminal is read and written like a pipe, by two descriptors.
    let input = pipe::Sender::from_owned_fd_unchecked(terminal.try_clone()?)?;
    Ok(Ends { input: Some(input), output: Some(pipe::Receiver::from_owned_fd_unchecked(terminal)?), errors: None })
}

async fn copy_in(mut from: Input, mut to: pipe::Sender) {
    // A command that does not read any more gets no more.
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

/// Copies to the end. A terminal ends with an error once no process has its other side open.
async fn copy_out(from: Option<pipe::Receiver>, to: Option<Output>) {
    let Some(mut from) = from else { return };
    let mut to = to;
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        // Output without a reader is read all the same, or the command would wait.
        if let Some(writer) = &mut to
            && (writer.write_all(&bytes[..length]).await.is_err() || writer.flush().await.is_err())
        {
            to = None;
        }
    }
    if let Some(mut writer) = to {
        let _ = writer.shutdown().await;
    }
}

async fn follow_sizes(terminal: OwnedFd, mut sizes: Resizes) {
    while let Some(size) = sizes.next().await {
        let size = Winsize { ws_col: size.width, ws_row: size.height, ws_xpixel: 0, ws_ypixel: 0 };
        let _ = tcsetwinsize(&terminal, size);
    }
}
