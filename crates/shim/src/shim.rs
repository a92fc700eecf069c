//! The shim itself: one thread with an event loop.

mod adopt;
mod error;
mod exits;
mod output;
mod pending;
mod requests;
mod starts;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant, SystemTime},
};

use keelet_linux::{ProcessRef, cgroup::Mounts, is_resource_shortage, null_device::NullDevices, oom};
use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::{
    output::{AttachClient, Output},
    pending::Pending,
};
use crate::{
    logfile::Stream,
    protocol::{Answer, State},
    wire,
};

/// The interval of retries: for exits that could not be written, and for attach clients that are too slow.
const RETRY: Duration = Duration::from_secs(1);

/// How long a shim without any free descriptor waits before it polls its listener again, instead of using a whole processor.
const DESCRIPTOR_RETRY: Duration = Duration::from_millis(10);

struct Shim {
    dir: PathBuf,
    /// Found once: the list of mounts grows with the node's containers.
    cgroups: Mounts,
    listener: UnixListener,
    /// A duplicate of the listener, closed when there is no other free descriptor.
    spare: Option<UnixListener>,
    signals: SignalFd,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    pending: Vec<Pending>,
    containers: BTreeMap<String, Container>,
    /// Running commands, by their PIDs.
    commands: BTreeMap<u32, Command>,
    /// The PID of the pause process.
    pause: Option<u32>,
    /// Wait statuses of children whose report has not been read yet, by their PIDs.
    unclaimed: BTreeMap<u32, i32>,
    /// Exited containers whose state could not be written to disk yet.
    unwritten: BTreeMap<String, State>,
    /// When writing them was last tried.
    last_write: Instant,
    /// Null devices for commands, from the first command on.
    null_devices: Option<Rc<NullDevices>>,
    /// Attach clients of exited containers that have not read all output yet.
    draining: Vec<AttachClient>,
    done: bool,
}

struct Connection {
    socket: UnixStream,
    received: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// Whether it gets events.
    watches: bool,
    /// Whether its request has been read: from then on only the end of the connection matters.
    has_request: bool,
}

/// A running command.
struct Command {
    /// The connection that gets its exit.
    connection: u64,
    cgroup: Option<String>,
}

struct Container {
    process: ProcessRef,
    pidfd: Option<OwnedFd>,
    /// Whether an earlier shim started it, so that it is not a child of this one.
    adopted: bool,
    started_at: i64,
    cgroup: Option<String>,
    output: Output,
}

/// A source of events.
enum EventSource {
    Listener,
    Signals,
    Connection(u64),
    Report,
    Output(String, Stream),
    AttachClient(String),
    Draining,
    Adopted,
}

/// Serves the pod of this directory until a request to exit. Standard input is the listening socket.
pub fn run(dir: &Path) -> io::Result<()> {
    let listener = UnixListener::from(rustix::stdio::stdin().try_clone_to_owned()?);
    listener.set_nonblocking(true)?;
    rustix::thread::set_name(c"keelet-shim")?;
    nix::unistd::setsid().ok();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    oom::set_score(oom::PROTECTED)?;
    let mut mask = SigSet::empty();
    // A shim exits at the request of the runtime, not with the terminal or the service that the agent was started from.
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let mut shim = Shim::new(dir.to_owned(), Mounts::find()?, listener, signals);
    while !shim.done {
        shim.step()?;
    }
    Ok(())
}

/// The wall clock, in nanoseconds since the Unix epoch.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

// === impl Shim ===

impl Shim {
    fn new(dir: PathBuf, cgroups: Mounts, listener: UnixListener, signals: SignalFd) -> Self {
        Self {
            dir,
            cgroups,
            spare: listener.try_clone().ok(),
            listener,
            signals,
            connections: BTreeMap::new(),
            next_connection: 0,
            pending: Vec::new(),
            containers: BTreeMap::new(),
            commands: BTreeMap::new(),
            pause: None,
            unclaimed: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            last_write: Instant::now(),
            null_devices: None,
            draining: Vec::new(),
            done: false,
        }
    }

    /// Waits for events and handles them.
    fn step(&mut self) -> io::Result<()> {
        let now = Instant::now();
        self.retry_writes(now);
        self.containers.values_mut().for_each(|container| container.output.drop_slow_clients(now));
        for source in self.wait()? {
            match source {
                EventSource::Listener => self.accept(),
                EventSource::Signals => self.reap_children(),
                EventSource::Connection(connection) => self.receive(connection),
                EventSource::Report => self.read_reports(),
                EventSource::Output(id, stream) => self.copy_output(&id, stream),
                EventSource::AttachClient(id) => self.flush_clients(&id),
                EventSource::Draining => self.draining.retain_mut(|one| one.flush(Instant::now()) && one.has_backlog()),
                // Handles all of them: a second event finds nothing left to do.
                EventSource::Adopted => self.adopted_exits(),
            }
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<Vec<EventSource>> {
        let (mut sources, mut fds): (Vec<_>, Vec<_>) =
            self.sources().into_iter().map(|(source, fd, flags)| (source, PollFd::from_borrowed_fd(fd, flags))).unzip();
        let is_blocked = self.containers.values().any(|container| container.output.is_blocked());
        let retry = Timespec { tv_sec: RETRY.as_secs().cast_signed(), tv_nsec: 0 };
        let timeout = (is_blocked || !self.unwritten.is_empty()).then_some(&retry);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        sources.retain(|_| ready.next().unwrap_or(false));
        Ok(sources)
    }

    /// Everything that is waited for.
    fn sources(&self) -> Vec<(EventSource, BorrowedFd<'_>, PollFlags)> {
        use std::os::fd::AsFd;
        let mut sources = vec![
            (EventSource::Listener, self.listener.as_fd(), PollFlags::IN),
            (EventSource::Signals, self.signals.as_fd(), PollFlags::IN),
        ];
        for (connection, one) in &self.connections {
            sources.push((EventSource::Connection(*connection), one.socket.as_fd(), PollFlags::IN));
        }
        for pending in &self.pending {
            sources.push((EventSource::Report, pending.report.as_fd(), PollFlags::IN));
        }
        for (id, container) in &self.containers {
            for (stream, fd) in container.output.sources() {
                sources.push((EventSource::Output(id.clone(), stream), fd, PollFlags::IN));
            }
            for fd in container.output.clients().flat_map(AttachClient::backlogged) {
                sources.push((EventSource::AttachClient(id.clone()), fd, PollFlags::OUT));
            }
            if let Some(pidfd) = container.pidfd.as_ref().filter(|_| container.adopted) {
                sources.push((EventSource::Adopted, pidfd.as_fd(), PollFlags::IN));
            }
        }
        for fd in self.draining.iter().flat_map(AttachClient::backlogged) {
            sources.push((EventSource::Draining, fd, PollFlags::OUT));
        }
        sources
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((socket, _)) if socket.set_nonblocking(true).is_ok() => {
                    self.add_connection(socket);
                }
                Ok(_) => {}
                Err(error) if is_resource_shortage(&error) => return self.turn_away(),
                Err(_) => return,
            }
        }
    }

    /// Answers one request with [`Answer::Exhausted`]. Without a free descriptor a request cannot even be refused, and its client would wait
    /// for its timeout. So the spare descriptor is closed for that moment.
    fn turn_away(&mut self) {
        self.spare = None;
        if let Ok((socket, _)) = self.listener.accept()
            && let Ok(mut line) = serde_json::to_vec(&Answer::Exhausted)
        {
            line.push(b'\n');
            let _ = wire::send(&socket, &line, &[]);
        }
        self.spare = self.listener.try_clone().ok();
        if self.spare.is_none() {
            std::thread::sleep(DESCRIPTOR_RETRY);
        }
    }

    fn add_connection(&mut self, socket: UnixStream) -> u64 {
        let id = self.next_connection;
        self.next_connection += 1;
        let connection =
            Connection { socket, received: Vec::new(), fds: Vec::new(), watches: false, has_request: false };
        self.connections.insert(id, connection);
        id
    }

    fn copy_output(&mut self, id: &str, stream: Stream) {
        if let Some(container) = self.containers.get_mut(id) {
            container.output.copy(stream, now());
        }
    }

    fn flush_clients(&mut self, id: &str) {
        if let Some(container) = self.containers.get_mut(id) {
            container.output.flush_clients();
        }
    }
}
