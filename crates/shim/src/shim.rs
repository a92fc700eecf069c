//! The shim itself: one thread that waits for whatever happens next.

mod answers;
mod ends;
mod output;
mod starts;

use std::{
    collections::BTreeMap,
    io,
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use keelet_linux::{
    cgroup::Mounts,
    mount::inherited,
    null::Nulls,
    pidfd::{ProcessRef, exit_code, is_shortage},
    process::{OOM_SCORE, reap, set_oom_score},
};
use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::{
    output::{Attached, Output},
    starts::Pending,
};
use crate::{
    logfile::Stream,
    protocol::{Answer, Exit, State},
    text::now,
    wire,
};

/// Exits of processes that nobody has claimed yet.
const MOST_STRAYS: usize = 256;

/// Between two attempts at what could not be done, and two looks at who holds others up.
const AGAIN: Duration = Duration::from_secs(1);

/// How long a shim waits that has no descriptor for those who ask.
const NO_DESCRIPTORS: Duration = Duration::from_millis(10);

struct Shim {
    dir: PathBuf,
    /// Looked up once: the list of mounts grows with the node's containers.
    cgroups: Mounts,
    listener: UnixListener,
    /// A descriptor to be given up when there are no others, another one of the listener.
    spare: Option<UnixListener>,
    signals: SignalFd,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    pending: Vec<Pending>,
    containers: BTreeMap<String, Container>,
    /// Commands that run.
    commands: BTreeMap<u32, Command>,
    pause: Option<u32>,
    strays: BTreeMap<u32, i32>,
    /// How containers ended, as far as it could not be written down yet.
    unwritten: BTreeMap<String, State>,
    /// When that was last tried.
    wrote_down_at: Instant,
    /// Where null devices for commands are made.
    nulls: Option<Rc<Nulls>>,
    /// Those who have yet to hear the last of a container that has ended.
    last_words: Vec<Attached>,
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

/// A command that runs.
struct Command {
    /// Who waits for it.
    connection: u64,
    cgroup: Option<String>,
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
    Attached(String),
    LastWords,
    Adopted,
}

/// Serves the pod whose directory this is, until told to go. Standard input is the socket that listens.
pub fn run(dir: &Path) -> io::Result<()> {
    let listener = UnixListener::from(inherited(0));
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
    let mut shim = Shim::new(dir.to_owned(), Mounts::find()?, listener, signals);
    while !shim.done {
        shim.step()?;
    }
    Ok(())
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
            strays: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            wrote_down_at: Instant::now(),
            nulls: None,
            last_words: Vec::new(),
            done: false,
        }
    }
}

/// What happens next.
impl Shim {
    fn step(&mut self) -> io::Result<()> {
        let now = Instant::now();
        self.write_down_again(now);
        self.containers.values_mut().for_each(|container| container.output.let_go(now));
        for source in self.wait()? {
            match source {
                Source::Listener => self.accept(),
                Source::Signals => self.children(),
                Source::Connection(number) => self.hear(number),
                Source::Report => self.reports(),
                Source::Output(id, stream) => self.copy(&id, stream),
                Source::Attached(id) => self.pass_on(&id),
                Source::LastWords => self.last_words.retain_mut(|one| one.catch_up(Instant::now()) && one.is_behind()),
                // All at once: a second one finds nothing left to do.
                Source::Adopted => self.adopted_ended(),
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
            for fd in container.output.attached().flat_map(Attached::behind) {
                sources.push(Source::Attached(id.clone()));
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::OUT));
            }
            if let Some(handle) = container.handle.as_ref().filter(|_| container.adopted) {
                sources.push(Source::Adopted);
                fds.push(PollFd::new(handle, PollFlags::IN));
            }
        }
        for fd in self.last_words.iter().flat_map(Attached::behind) {
            sources.push(Source::LastWords);
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::OUT));
        }
        let held_up = self.containers.values().any(|container| container.output.is_held_up());
        let again = Timespec { tv_sec: AGAIN.as_secs().cast_signed(), tv_nsec: 0 };
        let timeout = (held_up || !self.unwritten.is_empty()).then_some(&again);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        Ok(sources.into_iter().zip(ready).filter_map(|(source, ready)| ready.then_some(source)).collect())
    }

    fn accept(&mut self) {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if is_shortage(&error) => return self.turn_away(),
                Err(_) => return,
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            let connection = Connection { socket, received: Vec::new(), fds: Vec::new(), watches: false, asked: false };
            self.connections.insert(self.next_connection, connection);
            self.next_connection += 1;
        }
    }

    /// Without a free descriptor a request cannot even be refused, and would wait until its time is over. The spare descriptor is
    /// given up for that moment.
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
            // Not even one: the listener is looked at again after a pause, not in a loop that takes a whole processor.
            std::thread::sleep(NO_DESCRIPTORS);
        }
    }

    /// Children that have ended. One that is not known may belong to something whose report has not been read yet.
    fn children(&mut self) {
        while matches!(self.signals.read_signal(), Ok(Some(_))) {}
        while let Some((pid, status)) = reap() {
            self.child_ended(pid, status);
        }
    }

    fn child_ended(&mut self, pid: u32, status: i32) {
        if self.ended(pid, status) {
            return;
        }
        self.reports();
        // Once no report is outstanding the process belongs to none, and its PID may be reused.
        if !self.ended(pid, status) && !self.pending.is_empty() {
            if self.strays.len() == MOST_STRAYS {
                self.strays.pop_first();
            }
            self.strays.insert(pid, status);
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

    fn copy(&mut self, id: &str, stream: Stream) {
        if let Some(container) = self.containers.get_mut(id) {
            container.output.copy(stream, now());
        }
    }

    fn pass_on(&mut self, id: &str) {
        if let Some(container) = self.containers.get_mut(id) {
            container.output.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Read, Write},
        os::unix::net::{UnixListener, UnixStream},
        path::Path,
        time::Instant,
    };

    use keelet_linux::{cgroup::Mounts, pidfd::ProcessRef};
    use nix::sys::{signal::SigSet, signalfd::SignalFd};

    use super::{AGAIN, Connection, Shim};
    use crate::{
        maker::{STDERR, STDOUT},
        protocol::{Answer, Exit, PLAN, Plan, STATE, State, container_dir, read, write},
    };

    /// A shim that nobody speaks to. It must not look for children: this process has those of other tests.
    fn shim(dir: &Path) -> Shim {
        let listener = UnixListener::bind(dir.join("shim.sock")).expect("a socket");
        let signals = SignalFd::new(&SigSet::empty()).expect("no signals");
        Shim::new(dir.to_owned(), Mounts::V2(dir.join("cgroups")), listener, signals)
    }

    /// A request that is being answered, and its other end.
    fn asking(shim: &mut Shim) -> (u64, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        theirs.set_nonblocking(true).expect("set");
        let connection =
            Connection { socket: ours, received: Vec::new(), fds: Vec::new(), watches: false, asked: true };
        let number = shim.next_connection;
        shim.next_connection += 1;
        shim.connections.insert(number, connection);
        (number, theirs)
    }

    fn answers(client: &mut UnixStream) -> Vec<Answer> {
        let mut text = String::new();
        // What was sent is there; the end of the connection may not be.
        let _ = client.read_to_string(&mut text);
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// A PID that no process has: the kernel gives none so high.
    const ENDED: u32 = (1 << 22) + 7;

    /// A command may end before the shim has read the report that names it. Its exit is kept until then.
    #[test]
    fn a_child_that_is_reaped_before_its_report_is_read_has_its_exit_code() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut shim = shim(directory.path());
        let (number, mut client) = asking(&mut shim);
        let mut report = shim.expect_command(number);
        shim.child_ended(ENDED, 7 << 8);
        assert_eq!(answers(&mut client), [], "the report is still outstanding");
        writeln!(report, "pid {ENDED}").expect("written");
        drop(report);
        shim.reports();
        match answers(&mut client).as_slice() {
            [Answer::Running { pid: ENDED }, Answer::Ended { exit, .. }] => {
                assert_eq!(exit.code, Some(7), "its exit code")
            }
            other => panic!("it runs and has ended, in this order; the shim answered {other:?}"),
        }
        assert!(shim.commands.is_empty(), "it has ended and is still waited for");
        assert!(shim.strays.is_empty(), "its exit was used, and the PID may be reused");
    }

    /// The report may also have come and not been read, when the exit is noticed.
    #[test]
    fn a_report_that_has_come_is_read_before_an_exit_is_put_aside() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut shim = shim(directory.path());
        let (number, mut client) = asking(&mut shim);
        let mut report = shim.expect_command(number);
        writeln!(report, "pid {ENDED}").expect("written");
        drop(report);
        shim.child_ended(ENDED, 7 << 8);
        let answered = answers(&mut client);
        let both = matches!(answered.as_slice(), [Answer::Running { .. }, Answer::Ended { .. }]);
        assert!(both, "it runs and has ended; the shim answered {answered:?}");
        // Nothing is outstanding now: an exit of any other child means nothing.
        shim.child_ended(ENDED + 1, 0);
        assert!(shim.strays.is_empty(), "an exit was kept for a later process with the same PID");
    }

    /// A container that ends as soon as it runs.
    #[test]
    fn a_container_that_is_reaped_before_its_report_is_read_has_its_exit_code() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut shim = shim(directory.path());
        let dir = container_dir(directory.path(), "a");
        fs::create_dir_all(&dir).expect("made");
        let (number, mut client) = asking(&mut shim);
        let mut report = shim.expect_container(number, "a");
        shim.child_ended(ENDED, 7 << 8);
        writeln!(report, "pid {ENDED}").expect("written");
        drop(report);
        shim.reports();
        assert_eq!(answers(&mut client), [Answer::Running { pid: ENDED }]);
        let state = read::<State>(&dir.join(STATE)).expect("written down");
        assert_eq!(state.exit.map(|exit| exit.code), Some(Some(7)), "how it ended: {state:?}");
        assert!(shim.containers.is_empty(), "it has ended and is still taken for running");
    }

    fn running() -> State {
        State { process: ProcessRef { pid: 7, ticks: 99, boot: None }, started_at: 1, exit: None }
    }

    #[test]
    fn what_is_missing_is_named_and_the_end_is_seen_all_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut shim = shim(directory.path());
        let dir = container_dir(directory.path(), "a");
        fs::create_dir_all(&dir).expect("made");
        write(&dir.join(STATE), &running()).expect("written");
        write(&dir.join(PLAN), &Plan { stdin: true, ..Plan::default() }).expect("written");
        for pipe in [STDOUT, STDERR] {
            fs::write(dir.join(pipe), "").expect("written");
        }
        let handle = fs::File::open(&dir).expect("any").into();
        let ids = ["a", "b", "c"].map(str::to_owned);
        let complaints = shim.adopt(&ids, vec![handle]).expect_err("it has neither input nor configuration");
        assert!(shim.containers.contains_key("a"), "{complaints}");
        assert!(complaints.contains("no handle came for the containers b, c"), "{complaints}");
    }

    #[test]
    fn what_cannot_be_written_is_tried_again_at_its_pace() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut shim = shim(directory.path());
        let dir = container_dir(directory.path(), "a");
        // In the way of what is to be written.
        fs::create_dir_all(dir.join(STATE)).expect("made");
        let (start, ended) = (Instant::now(), Exit { code: Some(7), at: 2, oom: false });
        shim.unwritten.insert("a".to_owned(), State { exit: Some(ended), ..running() });
        shim.write_down(start);
        assert!(shim.unwritten.contains_key("a"));
        fs::remove_dir(dir.join(STATE)).expect("removed");
        shim.write_down_again(start + AGAIN / 2);
        assert!(shim.unwritten.contains_key("a"), "it is not time yet");
        shim.write_down_again(start + AGAIN);
        assert!(shim.unwritten.is_empty());
        assert_eq!(read::<State>(&dir.join(STATE)).expect("written").exit, Some(ended));
    }

    /// A server that does not know of an end yet, because there was no room to write it down, hands over the container once more.
    #[test]
    fn what_has_ended_is_not_adopted_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut shim = shim(directory.path());
        let dir = container_dir(directory.path(), "a");
        fs::create_dir_all(&dir).expect("made");
        write(&dir.join(STATE), &running()).expect("written");
        let ended = Exit { code: Some(7), at: 2, oom: false };
        shim.unwritten.insert("a".to_owned(), State { exit: Some(ended), ..running() });
        let handle = fs::File::open(&dir).expect("any").into();
        shim.adopt(&["a".to_owned()], vec![handle]).expect("there is nothing to do");
        assert!(!shim.containers.contains_key("a"), "a container that has ended is taken for one that runs");
        assert!(shim.unwritten.contains_key("a"), "its end is kept until it can be written down");
    }

    /// A container that ends well was not killed for its memory, whatever became of a process in it.
    #[test]
    fn only_a_container_that_failed_was_killed_for_its_memory() {
        for (code, oom_kills, expected) in
            [(Some(0), 1, false), (Some(137), 1, true), (Some(1), 1, true), (None, 1, true), (Some(137), 0, false)]
        {
            let directory = tempfile::tempdir().expect("a directory");
            let mut shim = shim(directory.path());
            let cgroup = directory.path().join("cgroups/pod");
            fs::create_dir_all(&cgroup).expect("made");
            fs::write(cgroup.join("memory.events"), format!("oom 9\noom_kill {oom_kills}\n")).expect("written");
            let dir = container_dir(directory.path(), "a");
            fs::create_dir_all(&dir).expect("made");
            let State { process, started_at, .. } = running();
            let (cgroup, output) = (Some("/pod".to_owned()), super::Output::none(None));
            let container = super::Container { process, handle: None, adopted: false, started_at, cgroup, output };
            shim.containers.insert("a".to_owned(), container);
            shim.container_ended("a", code);
            let exit = read::<State>(&dir.join(STATE)).expect("written").exit.expect("it has ended");
            assert_eq!((exit.code, exit.oom), (code, expected), "{oom_kills} processes were killed");
        }
    }
}
