//! What a shim starts: the holder of namespaces, containers, commands.

use std::{
    fs::{self, OpenOptions},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::OpenOptionsExt, net::UnixStream},
    },
    path::Path,
    rc::Rc,
};

use keelet_linux::{
    null::Nulls,
    pidfd::{self, ProcessRef},
    process::fork,
};
use oci_spec::runtime::{Process, Spec};
use rustix::fs::OFlags;

use super::{Command, Container, Shim, output::Output};
use crate::{
    exec,
    logfile::LogFile,
    maker::{self, FAILED, PID, STDERR, STDIN, STDOUT, WHY},
    pause,
    protocol::{Answer, CONFIG, PAUSE, PLAN, Plan, STATE, Sandbox, State, container_dir, read, write},
    text::{chain, now},
    wire,
};

/// Something that a forked process is about to become.
pub(super) struct Pending {
    what: Becoming,
    connection: u64,
    pub(super) report: OwnedFd,
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

/// The shim's ends of a container's pipes, open before there is a container: what is in a pipe is lost when nobody has
/// it open, and whoever opens one to read waits for a writer.
struct Ends {
    out: OwnedFd,
    err: OwnedFd,
    stdin: Option<OwnedFd>,
}

// === impl Shim ===

impl Shim {
    pub(super) fn sandbox(&mut self, number: u64, sandbox: &Sandbox) -> Result<(), String> {
        if self.pause.is_some() {
            return Err("the pod has its namespaces already".to_owned());
        }
        let dir = self.dir.clone();
        self.become_(number, Becoming::Pause, |report| pause::hold(&dir, sandbox, report))
    }

    pub(super) fn start(&mut self, number: u64, id: String) -> Result<(), String> {
        let dir = container_dir(&self.dir, &id);
        // A container is started once. Who asks again may be a server that does not know what the one before it asked for.
        if self.containers.contains_key(&id) || self.unwritten.contains_key(&id) || dir.join(STATE).exists() {
            return Err(format!("container {id} was started already"));
        }
        if let Some(pending) = self.pending.iter_mut().find(|pending| pending.is_container(&id)) {
            let earlier = std::mem::replace(&mut pending.connection, number);
            self.finish(earlier, Err(format!("the start of container {id} was asked for once more")));
            return Ok(());
        }
        let spec = Spec::load(dir.join(CONFIG)).map_err(|error| chain(&error))?;
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

    pub(super) fn exec(
        &mut self,
        number: u64,
        id: &str,
        command: Vec<String>,
        part: Option<&str>,
        stdio: Option<[OwnedFd; 3]>,
    ) -> Result<(), String> {
        let spec = Spec::load(container_dir(&self.dir, id).join(CONFIG)).map_err(|error| chain(&error))?;
        let container = self.container(id)?;
        let handle = container.handle.as_ref().and_then(|handle| handle.try_clone().ok());
        let handle = handle.ok_or_else(|| format!("container {id} has ended"))?;
        let pid = container.process.pid;
        let process = exec::process_of(&spec, command, stdio.is_none())?;
        let cgroup = cgroup_of(&spec).zip(part).map(|(whole, part)| format!("{whole}/{part}"));
        let cgroups = self.cgroups.clone();
        let nulls = self.nulls().map_err(|error| format!("null devices: {error}"))?;
        self.become_(number, Becoming::Command(cgroup), |report| {
            let (spec, handle, process, cgroups, nulls) = (&spec, &handle, &process, &cgroups, &*nulls);
            exec::run(exec::Command { spec, pid, handle, process, cgroups, part, stdio, nulls }, report)
        })
    }

    /// Where null devices are made, from the first command on.
    fn nulls(&mut self) -> io::Result<Rc<Nulls>> {
        match &self.nulls {
            Some(nulls) => Ok(Rc::clone(nulls)),
            None => Ok(Rc::clone(self.nulls.insert(Rc::new(Nulls::new()?)))),
        }
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
    pub(super) fn reports(&mut self) {
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
                            && let Ok(Some(handle)) = pidfd::open(process)
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
        let process = pidfd::identify(pid).unwrap_or(ProcessRef { pid, ticks: 0, boot: pidfd::boot() });
        let log = plan.log.clone().map(LogFile::open).transpose();
        let log = log.map_err(|error| io::Error::new(error.kind(), format!("the log cannot be written: {error}")))?;
        let output = match terminal {
            Ok(terminal) => Output::terminal(log, terminal)?,
            Err(Some(Ends { out, err, stdin })) => Output::pipes(log, out, err, stdin),
            Err(None) => Output::none(log),
        };
        let (handle, started_at) = (pidfd::open(process)?, now());
        write(&dir.join(STATE), &State { process, started_at, exit: None })?;
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

    /// Goes on where an earlier shim stopped. What goes through a terminal went with that shim. What is known already stays
    /// as it is. An error names what could not be taken on as it was, and the others are all the same.
    pub(super) fn adopt(&mut self, ids: &[String], handles: Vec<OwnedFd>) -> Result<(), String> {
        let mut complaints = Vec::new();
        if let Some(without) = ids.get(handles.len()..).filter(|without| !without.is_empty()) {
            complaints.push(format!("no handle came for the containers {}", without.join(", ")));
        }
        for (id, handle) in ids.iter().zip(handles) {
            if self.containers.contains_key(id) || self.unwritten.contains_key(id) {
                continue;
            }
            let mut complain = |error: &dyn std::error::Error| complaints.push(format!("container {id}: {error}"));
            if let Err(error) = self.adopt_one(id, handle, &mut complain) {
                complain(&error);
            }
        }
        if complaints.is_empty() { Ok(()) } else { Err(complaints.join("; ")) }
    }

    /// Without its plan a container has no log, without its configuration no cgroup, without its pipe no input; its end can be
    /// seen all the same.
    fn adopt_one(
        &mut self,
        id: &str,
        handle: OwnedFd,
        complain: &mut impl FnMut(&dyn std::error::Error),
    ) -> io::Result<()> {
        let dir = container_dir(&self.dir, id);
        let state: State = read(&dir.join(STATE))?;
        if state.exit.is_some() {
            return Ok(());
        }
        let plan = read(&dir.join(PLAN)).unwrap_or_else(|error| {
            complain(&error);
            Plan::default()
        });
        let spec = Spec::load(dir.join(CONFIG)).map_err(|error| complain(&error)).ok();
        let log = plan.log.clone().and_then(|path| LogFile::open(path).ok());
        let output = match (open_end(&dir.join(STDOUT)), open_end(&dir.join(STDERR))) {
            (Ok(out), Ok(err)) => {
                let stdin = stdin_end(&dir, &plan).map_err(|error| complain(&error));
                Output::pipes(log, out, err, stdin.ok().flatten())
            }
            _ => Output::none(log),
        };
        let container = Container {
            process: state.process,
            handle: Some(handle),
            adopted: true,
            started_at: state.started_at,
            cgroup: spec.as_ref().and_then(cgroup_of),
            output,
        };
        self.containers.insert(id.to_owned(), container);
        Ok(())
    }
}

#[cfg(test)]
impl Shim {
    /// As if a command had been forked: the end that its process would report to.
    pub(super) fn expect_command(&mut self, connection: u64) -> UnixStream {
        self.expect(connection, Becoming::Command(None))
    }

    /// The same for a container.
    pub(super) fn expect_container(&mut self, connection: u64, id: &str) -> UnixStream {
        let what = Becoming::Container { id: id.to_owned(), plan: Plan::default(), cgroup: None, ends: None };
        self.expect(connection, what)
    }

    fn expect(&mut self, connection: u64, what: Becoming) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("set");
        self.pending.push(Pending { what, connection, report: ours.into(), received: Vec::new(), fds: Vec::new() });
        theirs
    }
}

// === impl Pending ===

impl Pending {
    fn is_container(&self, wanted: &str) -> bool {
        matches!(&self.what, Becoming::Container { id, .. } if id == wanted)
    }

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
