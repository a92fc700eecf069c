//! The shim itself: one thread that waits for whatever happens next.

mod output;

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::OpenOptionsExt, net::UnixListener, net::UnixStream},
    },
    path::{Path, PathBuf},
};

use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use oci_spec::runtime::{Process, Spec};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::OFlags,
};

use self::output::Output;
use crate::{
    cgroup::Mounts,
    exec,
    logfile::{LogFile, Stream},
    maker::{self, FAILED, PID, STDERR, STDIN, STDOUT, WHY},
    pause,
    pidfd::{self, exit_code},
    process::{self, fork, now, reap, set_oom_score},
    protocol::{
        Answer, CONFIG, Exit, PAUSE, PLAN, Plan, ProcessRef, Request, STATE, Sandbox, State, container_dir, read, write,
    },
    seal, wire,
};

/// How the killer of processes is told to spare a shim and what holds the pod together, as far as that is allowed.
const OOM_SCORE: i32 = -998;

/// Requests are small: arguments and variables of a command are the largest part, and the kernel bounds those.
const LONGEST_REQUEST: usize = 8 * 1024 * 1024;

/// Exits of processes that nobody has claimed yet.
const MOST_STRAYS: usize = 256;

struct Shim {
    dir: PathBuf,
    /// Looked up once: the list of mounts grows with the node's containers.
    cgroups: Mounts,
    listener: UnixListener,
    signals: SignalFd,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    pending: Vec<Pending>,
    containers: BTreeMap<String, Container>,
    /// Commands that run.
    commands: BTreeMap<u32, Command>,
    pause: Option<u32>,
    strays: BTreeMap<u32, i32>,
    done: bool,
}

struct Connection {
    socket: UnixStream,
    received: Vec<u8>,
    fds: Vec<OwnedFd>,
    watches: bool,
    /// Whether its request has been read: from then on only its end matters.
    asked: bool,
}

/// Something that a forked process is about to become.
struct Pending {
    what: Becoming,
    connection: u64,
    report: OwnedFd,
    received: Vec<u8>,
    fds: Vec<OwnedFd>,
}

enum Becoming {
    Pause,
    Container {
        id: String,
        plan: Plan,
        cgroup: Option<String>,
        ends: Option<Ends>,
    },
    /// With the cgroup that holds all it starts.
    Command(Option<String>),
}

/// A command that runs.
struct Command {
    /// Who waits for it.
    connection: u64,
    cgroup: Option<String>,
}

/// The shim's ends of a container's pipes, open before there is a container: what is in a pipe is lost when nobody has
/// it open, and whoever opens one to read waits for a writer.
struct Ends {
    out: OwnedFd,
    err: OwnedFd,
    stdin: Option<OwnedFd>,
}

struct Container {
    process: ProcessRef,
    handle: Option<OwnedFd>,
    adopted: bool,
    started_at: i64,
    cgroup: Option<String>,
    output: Output,
}

/// What woke the loop.
enum Source {
    Listener,
    Signals,
    Connection(u64),
    Report,
    Output(String, Stream),
    Adopted(String),
}

/// Serves the pod whose directory this is, until told to go. Standard input is the socket that listens.
pub fn run(dir: &Path) -> io::Result<()> {
    let listener = UnixListener::from(seal::inherited(0));
    listener.set_nonblocking(true)?;
    // Nothing here reads or prints; what a careless library prints must not reach the socket.
    rustix::thread::set_name(c"keelet-shim")?;
    nix::unistd::setsid().ok();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    set_oom_score(OOM_SCORE)?;
    let mut mask = SigSet::empty();
    // A shim goes when it is told to by its server, not with the terminal or the service that started the server.
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let mut shim = Shim {
        dir: dir.to_owned(),
        cgroups: Mounts::find()?,
        listener,
        signals,
        connections: BTreeMap::new(),
        next_connection: 0,
        pending: Vec::new(),
        containers: BTreeMap::new(),
        commands: BTreeMap::new(),
        pause: None,
        strays: BTreeMap::new(),
        done: false,
    };
    while !shim.done {
        shim.step()?;
    }
    Ok(())
}

// === impl Shim ===

/// What happens next.
impl Shim {
    fn step(&mut self) -> io::Result<()> {
        for source in self.wait()? {
            match source {
                Source::Listener => self.accept(),
                Source::Signals => self.children(),
                Source::Connection(number) => self.hear(number),
                Source::Report => self.reports(),
                Source::Output(id, stream) => self.copy(&id, stream),
                Source::Adopted(id) => self.adopted_ended(&id),
            }
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut sources = vec![Source::Listener, Source::Signals];
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        for (number, connection) in &self.connections {
            sources.push(Source::Connection(*number));
            fds.push(PollFd::new(&connection.socket, PollFlags::IN));
        }
        for pending in &self.pending {
            sources.push(Source::Report);
            fds.push(PollFd::new(&pending.report, PollFlags::IN));
        }
        for (id, container) in &self.containers {
            for (stream, fd) in container.output.sources() {
                sources.push(Source::Output(id.clone(), stream));
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
            if let Some(handle) = container.handle.as_ref().filter(|_| container.adopted) {
                sources.push(Source::Adopted(id.clone()));
                fds.push(PollFd::new(handle, PollFlags::IN));
            }
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        Ok(sources.into_iter().zip(ready).filter_map(|(source, ready)| ready.then_some(source)).collect())
    }

    fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            let connection = Connection { socket, received: Vec::new(), fds: Vec::new(), watches: false, asked: false };
            self.connections.insert(self.next_connection, connection);
            self.next_connection += 1;
        }
    }

    /// Children that have ended. One that is not known may belong to something whose report has not been read yet.
    fn children(&mut self) {
        while matches!(self.signals.read_signal(), Ok(Some(_))) {}
        while let Some((pid, status)) = reap() {
            if !self.ended(pid, status) {
                self.reports();
                // Who has nothing to tell any more cannot be meant, and its number will be somebody else's.
                if !self.ended(pid, status) && !self.pending.is_empty() {
                    if self.strays.len() == MOST_STRAYS {
                        self.strays.pop_first();
                    }
                    self.strays.insert(pid, status);
                }
            }
        }
    }

    /// Whether it was one of ours.
    fn ended(&mut self, pid: u32, status: i32) -> bool {
        let code = Some(exit_code(status));
        if self.pause == Some(pid) {
            self.pause = None;
            self.announce(&Answer::Ended { id: String::new(), exit: Exit { code, at: now(), oom: false } });
            return true;
        }
        if let Some(Command { connection, .. }) = self.commands.remove(&pid) {
            let exit = Exit { code, at: now(), oom: false };
            self.answer(connection, &Answer::Ended { id: String::new(), exit }, &[]);
            self.connections.remove(&connection);
            return true;
        }
        let found = self.containers.iter().find(|(_, container)| container.process.pid == pid && !container.adopted);
        let Some(id) = found.map(|(id, _)| id.clone()) else { return false };
        self.container_ended(&id, code);
        true
    }

    fn adopted_ended(&mut self, id: &str) {
        let Some(handle) = self.containers.get(id).and_then(|container| container.handle.as_ref()) else { return };
        // Reaped by the node's first process, which may take a moment; before that nobody is told.
        let mut status = None;
        for _ in 0..100 {
            status = pidfd::wait_status(handle);
            if status.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        self.container_ended(id, status.map(exit_code));
    }

    fn container_ended(&mut self, id: &str, code: Option<i32>) {
        let Some(mut container) = self.containers.remove(id) else { return };
        let at = now();
        // Where processes are shared with others the kernel does not end the rest of the container.
        let oom = container.cgroup.as_deref().is_some_and(|cgroup| {
            self.cgroups.kill(cgroup);
            code != Some(0) && self.cgroups.oom_kills(cgroup) > 0
        });
        container.output.finish(at);
        let exit = Exit { code, at, oom };
        let dir = container_dir(&self.dir, id);
        let state = State { process: container.process, started_at: container.started_at, exit: Some(exit) };
        // Without a record the server finds the process gone and says that nobody knows how it ended.
        let _ = write(&dir.join(STATE), &state);
        for name in [STDIN, STDOUT, STDERR] {
            let _ = fs::remove_file(dir.join(name));
        }
        self.announce(&Answer::Ended { id: id.to_owned(), exit });
    }

    fn copy(&mut self, id: &str, stream: Stream) {
        if let Some(container) = self.containers.get_mut(id) {
            container.output.copy(stream, now());
        }
    }
}

/// Who asks, and what is answered.
impl Shim {
    fn hear(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let mut bytes = [0; 16 * 1024];
        match wire::receive(&connection.socket, &mut bytes, &mut connection.fds) {
            Ok(0) => self.hang_up(number),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.hang_up(number),
            Ok(length) => {
                connection.received.extend_from_slice(&bytes[..length]);
                if connection.asked || connection.received.len() > LONGEST_REQUEST {
                    return self.hang_up(number);
                }
                if connection.received.last() == Some(&b'\n') {
                    connection.asked = true;
                    let (line, fds) = (std::mem::take(&mut connection.received), std::mem::take(&mut connection.fds));
                    self.asked(number, &line, fds);
                }
            }
        }
    }

    /// Whoever started a command and went away no longer wants it: it is killed with all that it started.
    fn hang_up(&mut self, number: u64) {
        self.connections.remove(&number);
        for command in self.commands.values().filter(|command| command.connection == number) {
            self.kill(command.cgroup.as_deref());
        }
    }

    /// Kills whatever is in a cgroup.
    fn kill(&self, cgroup: Option<&str>) {
        if let Some(cgroup) = cgroup {
            self.cgroups.kill(cgroup);
        }
    }

    fn answer(&mut self, number: u64, answer: &Answer, fds: &[BorrowedFd<'_>]) {
        let Some(connection) = self.connections.get(&number) else { return };
        let Ok(mut line) = serde_json::to_vec(answer) else { return };
        line.push(b'\n');
        if wire::send(&connection.socket, &line, fds).is_err() {
            self.connections.remove(&number);
        }
    }

    fn finish(&mut self, number: u64, result: Result<(), String>) {
        let answer = match result {
            Ok(()) => Answer::Done,
            Err(message) => Answer::Failed { message },
        };
        self.answer(number, &answer, &[]);
        self.connections.remove(&number);
    }

    fn announce(&mut self, news: &Answer) {
        let watchers: Vec<_> =
            self.connections.iter().filter(|(_, one)| one.watches).map(|(number, _)| *number).collect();
        for number in watchers {
            self.answer(number, news, &[]);
        }
    }

    fn asked(&mut self, number: u64, line: &[u8], fds: Vec<OwnedFd>) {
        let request = match serde_json::from_slice::<Request>(line) {
            Ok(request) => request,
            Err(error) => return self.finish(number, Err(format!("not a request: {error}"))),
        };
        let begun = match request {
            Request::Sandbox(sandbox) => self.sandbox(number, &sandbox),
            Request::Start { id } => self.start(number, id),
            Request::Exec { id, command, terminal, cgroup } => {
                let stdio = stdio_of(terminal, fds);
                stdio.and_then(|stdio| self.exec(number, &id, command, cgroup.as_deref(), stdio))
            }
            Request::Watch => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.watches = true;
                }
                self.answer(number, &Answer::Done, &[]);
                Ok(())
            }
            Request::ReopenLog { id } => {
                let reopened =
                    self.container(&id).and_then(|one| one.output.reopen().map_err(|error| error.to_string()));
                return self.finish(number, reopened);
            }
            Request::CloseStdin { id } => {
                let closed = self.container(&id).map(|container| container.output.close_stdin());
                return self.finish(number, closed);
            }
            Request::Attach { id } => return self.attach(number, &id, fds),
            Request::Adopt { ids } => {
                let adopted = self.adopt(&ids, fds).map_err(|error| error.to_string());
                return self.finish(number, adopted);
            }
            Request::Quit { kill } => {
                if kill {
                    self.kill_all();
                }
                self.done = true;
                return self.finish(number, Ok(()));
            }
        };
        if let Err(error) = begun {
            self.finish(number, Err(error));
        }
    }

    fn kill_all(&self) {
        let processes = self.containers.values().map(|container| container.process.pid).chain(self.pause);
        for pid in processes.filter_map(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)) {
            // Those that were adopted are told by their handles.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    fn container(&mut self, id: &str) -> Result<&mut Container, String> {
        self.containers.get_mut(id).ok_or_else(|| format!("container {id} does not run"))
    }

    fn attach(&mut self, number: u64, id: &str, fds: Vec<OwnedFd>) {
        let attached = self.container(id).and_then(|container| {
            let stdin = container.output.stdin().map_err(|error| error.to_string())?;
            container.output.attach(fds);
            Ok(stdin)
        });
        match attached {
            Ok(stdin) => {
                let fds: Vec<_> = stdin.iter().map(AsFd::as_fd).collect();
                self.answer(number, &Answer::Done, &fds);
                self.connections.remove(&number);
            }
            Err(error) => self.finish(number, Err(error)),
        }
    }
}

/// What is started.
impl Shim {
    fn sandbox(&mut self, number: u64, sandbox: &Sandbox) -> Result<(), String> {
        if self.pause.is_some() {
            return Err("the pod has its namespaces already".to_owned());
        }
        let dir = self.dir.clone();
        self.become_(number, Becoming::Pause, |report| pause::hold(&dir, sandbox, report))
    }

    fn start(&mut self, number: u64, id: String) -> Result<(), String> {
        if self.containers.contains_key(&id) {
            return Err(format!("container {id} runs already"));
        }
        let dir = container_dir(&self.dir, &id);
        let spec = Spec::load(dir.join(CONFIG)).map_err(|error| process::chain(&error))?;
        let plan: Plan = read(&dir.join(PLAN)).map_err(|error| error.to_string())?;
        let ends = (!is_terminal(&spec)).then(|| {
            maker::make_pipes(&dir, &spec, &plan)?;
            let (out, err) = (open_end(&dir.join(STDOUT))?, open_end(&dir.join(STDERR))?);
            Ok(Ends { out, err, stdin: stdin_end(&dir, &plan)? })
        });
        let ends = ends.transpose().map_err(|error: io::Error| format!("pipes: {error}"))?;
        let becoming = Becoming::Container { id: id.clone(), plan: plan.clone(), cgroup: cgroup_of(&spec), ends };
        let cgroups = self.cgroups.clone();
        self.become_(number, becoming, |report| maker::make(&dir, &id, &spec, &plan, &cgroups, report))
    }

    fn exec(
        &mut self,
        number: u64,
        id: &str,
        command: Vec<String>,
        part: Option<&str>,
        stdio: Option<[OwnedFd; 3]>,
    ) -> Result<(), String> {
        let spec = Spec::load(container_dir(&self.dir, id).join(CONFIG)).map_err(|error| process::chain(&error))?;
        let container = self.container(id)?;
        let handle = container.handle.as_ref().and_then(|handle| handle.try_clone().ok());
        let handle = handle.ok_or_else(|| format!("container {id} has ended"))?;
        let pid = container.process.pid;
        let process = exec::process_of(&spec, command, stdio.is_none())?;
        let cgroup = cgroup_of(&spec).zip(part).map(|(whole, part)| format!("{whole}/{part}"));
        let cgroups = self.cgroups.clone();
        self.become_(number, Becoming::Command(cgroup), |report| {
            let (spec, handle, process, cgroups) = (&spec, &handle, &process, &cgroups);
            exec::run(exec::Command { spec, pid, handle, process, cgroups, part, stdio }, report)
        })
    }

    /// Forks a process that tells through a socket what becomes of it.
    fn become_(&mut self, connection: u64, what: Becoming, child: impl FnOnce(OwnedFd) -> i32) -> Result<(), String> {
        let pair = UnixStream::pair().and_then(|(ours, theirs)| ours.set_nonblocking(true).map(|()| (ours, theirs)));
        let (ours, theirs) = pair.map_err(|error| error.to_string())?;
        fork(|| child(theirs.into())).map_err(|error| format!("fork: {error}"))?;
        self.pending.push(Pending { what, connection, report: ours.into(), received: Vec::new(), fds: Vec::new() });
        Ok(())
    }

    /// Reads what forked processes tell, and concludes when one has told all.
    fn reports(&mut self) {
        let mut index = 0;
        while index < self.pending.len() {
            if self.pending[index].read_to_end() {
                let pending = self.pending.swap_remove(index);
                self.conclude(pending);
            } else {
                index += 1;
            }
        }
        if self.pending.is_empty() {
            self.strays.clear();
        }
    }

    fn conclude(&mut self, pending: Pending) {
        let Pending { what, connection, received, mut fds, .. } = pending;
        let pid = match concluded(&String::from_utf8_lossy(&received)) {
            Ok(pid) => pid,
            Err(error) => {
                if let Becoming::Container { id, cgroup, .. } = &what {
                    // It may have come as far as a process that waits to be started.
                    self.kill(cgroup.as_deref());
                    self.discard(id);
                }
                return self.finish(connection, Err(error));
            }
        };
        let running = Answer::Running { pid };
        match what {
            Becoming::Pause => {
                self.pause = Some(pid);
                // For a server that finds this sandbox unfinished, and no shim.
                let _ = pidfd::identify(pid).and_then(|process| write(&self.dir.join(PAUSE), &process));
                self.answer(connection, &running, &[]);
                self.connections.remove(&connection);
            }
            Becoming::Command(cgroup) => {
                let terminal: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                self.answer(connection, &running, &terminal);
                if !self.connections.contains_key(&connection) {
                    self.kill(cgroup.as_deref());
                }
                self.commands.insert(pid, Command { connection, cgroup });
            }
            Becoming::Container { id, plan, cgroup, ends } => {
                let taken = self.take(&id, pid, &plan, cgroup, fds.pop().ok_or(ends));
                match taken {
                    Ok(()) => {
                        self.answer(connection, &running, &[]);
                        self.announce(&Answer::Started { id });
                    }
                    Err(error) => {
                        // Nobody could ever say what became of it.
                        if let Ok(process) = pidfd::identify(pid)
                            && let Some(handle) = pidfd::open(process)
                        {
                            let _ = pidfd::send_signal(handle, libc::SIGKILL);
                        }
                        self.answer(connection, &Answer::Failed { message: error.to_string() }, &[]);
                    }
                }
                self.connections.remove(&connection);
            }
        }
        // It may have ended meanwhile.
        if let Some(status) = self.strays.remove(&pid) {
            self.ended(pid, status);
        }
    }

    /// A container that runs from now on.
    fn take(
        &mut self,
        id: &str,
        pid: u32,
        plan: &Plan,
        cgroup: Option<String>,
        terminal: Result<OwnedFd, Option<Ends>>,
    ) -> io::Result<()> {
        let dir = container_dir(&self.dir, id);
        let process = pidfd::identify(pid).unwrap_or(ProcessRef { pid, ticks: 0 });
        let log = plan.log.clone().map(LogFile::open).transpose();
        let log = log.map_err(|error| io::Error::new(error.kind(), format!("the log cannot be written: {error}")))?;
        let output = match terminal {
            Ok(terminal) => Output::terminal(log, terminal)?,
            Err(Some(Ends { out, err, stdin })) => Output::pipes(log, out, err, stdin),
            Err(None) => Output::none(log),
        };
        let started_at = now();
        write(&dir.join(STATE), &State { process, started_at, exit: None })?;
        let handle = pidfd::open(process);
        self.containers
            .insert(id.to_owned(), Container { process, handle, adopted: false, started_at, cgroup, output });
        Ok(())
    }

    /// What a failed start leaves.
    fn discard(&self, id: &str) {
        let dir = container_dir(&self.dir, id);
        for name in [STDIN, STDOUT, STDERR] {
            let _ = fs::remove_file(dir.join(name));
        }
    }

    /// Goes on where an earlier shim stopped. What goes through a terminal went with that shim.
    fn adopt(&mut self, ids: &[String], handles: Vec<OwnedFd>) -> io::Result<()> {
        for (id, handle) in ids.iter().zip(handles) {
            if self.containers.contains_key(id) {
                continue;
            }
            let dir = container_dir(&self.dir, id);
            let state: State = read(&dir.join(STATE))?;
            let plan: Plan = read(&dir.join(PLAN))?;
            let spec = Spec::load(dir.join(CONFIG)).map_err(io::Error::other)?;
            let log = plan.log.clone().and_then(|path| LogFile::open(path).ok());
            let output = match (open_end(&dir.join(STDOUT)), open_end(&dir.join(STDERR))) {
                (Ok(out), Ok(err)) => Output::pipes(log, out, err, stdin_end(&dir, &plan)?),
                _ => Output::none(log),
            };
            let container = Container {
                process: state.process,
                handle: Some(handle),
                adopted: true,
                started_at: state.started_at,
                cgroup: cgroup_of(&spec),
                output,
            };
            self.containers.insert(id.clone(), container);
        }
        Ok(())
    }
}

// === impl Pending ===

impl Pending {
    /// Whether all has been told.
    fn read_to_end(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match wire::receive(&self.report, &mut bytes, &mut self.fds) {
                Ok(0) => return true,
                Ok(length) => self.received.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
        }
    }
}

/// The number of the process that runs, or why none does.
fn concluded(report: &str) -> Result<u32, String> {
    if let Some(failed) = report.lines().find_map(|line| line.strip_prefix(FAILED)) {
        // What was told first is nearest to the cause.
        let why = report.lines().find_map(|line| line.strip_prefix(WHY)).filter(|why| !failed.contains(why));
        return Err(why.map_or_else(|| failed.to_owned(), |why| format!("{failed}: {why}")));
    }
    let pid = report.lines().find_map(|line| line.strip_prefix(PID)?.parse().ok());
    pid.ok_or_else(|| "the process that was to start it ended without a word".to_owned())
}

/// Standard input, output and error of a command; none if it gets a terminal.
fn stdio_of(terminal: bool, fds: Vec<OwnedFd>) -> Result<Option<[OwnedFd; 3]>, String> {
    match (terminal, <[OwnedFd; 3]>::try_from(fds)) {
        (true, _) => Ok(None),
        (false, Ok(fds)) => Ok(Some(fds)),
        (false, Err(fds)) => Err(format!("a command needs 3 descriptors, {} were sent", fds.len())),
    }
}

fn is_terminal(spec: &Spec) -> bool {
    spec.process().as_ref().and_then(Process::terminal).unwrap_or(false)
}

fn cgroup_of(spec: &Spec) -> Option<String> {
    Some(spec.linux().as_ref()?.cgroups_path().as_ref()?.to_string_lossy().into_owned())
}

/// The reading end of a container's output.
fn open_end(path: &Path) -> io::Result<OwnedFd> {
    let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
    Ok(OpenOptions::new().read(true).custom_flags(flags).open(path)?.into())
}

/// The writing end of a container's input. Open for reading as well, so that opening it does not wait for the container.
fn stdin_end(dir: &Path, plan: &Plan) -> io::Result<Option<OwnedFd>> {
    if !plan.stdin {
        return Ok(None);
    }
    let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
    Ok(Some(OpenOptions::new().read(true).write(true).custom_flags(flags).open(dir.join(STDIN))?.into()))
}

#[cfg(test)]
mod tests {
    use super::concluded;

    #[test]
    fn a_failure_counts_also_after_the_process_was_named() {
        assert_eq!(concluded("pid 7\n"), Ok(7));
        assert_eq!(concluded("pid 7\nfailed exec: \"x\": no\n"), Err("exec: \"x\": no".to_owned()));
        assert!(concluded("").is_err());
    }

    #[test]
    fn a_failure_has_its_cause_beside_it() {
        assert_eq!(concluded("why deep\nwhy above\nfailed all\n"), Err("all: deep".to_owned()));
        assert_eq!(concluded("why deep\npid 7\n"), Ok(7), "what did not matter in the end");
        assert_eq!(concluded("why deep\nfailed so deep\n"), Err("so deep".to_owned()));
    }
}
