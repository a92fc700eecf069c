//! Starting the pause process, containers and commands.

use std::{
    fs::{self, OpenOptions},
    io,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::Path,
    rc::Rc,
};

use keelet_linux::{ProcessRef, null_device::NullDevices, pidfd};
use oci_spec::runtime::{Process, Spec};
use rustix::fs::OFlags;

use super::{Container, Shim, error::RequestError, now, output::Output, pending::Child};
use crate::{
    create::{self, STDERR, STDIN, STDOUT},
    error::{StepError, step},
    exec,
    logfile::LogFile,
    pause,
    protocol::{CONFIG, START_OPTIONS, STATE, Sandbox, StartOptions, State, container_dir, read, write},
};

/// The shim's ends of a container's pipes. They are opened before the container exists: the content of a pipe is lost when no process has
/// it open, and opening a pipe for reading waits for a writer.
pub(super) struct PipeEnds {
    out: OwnedFd,
    err: OwnedFd,
    stdin: Option<OwnedFd>,
}

// === impl Shim ===

impl Shim {
    pub(super) fn sandbox(&mut self, connection: u64, sandbox: &Sandbox) -> Result<(), RequestError> {
        if self.pause.is_some() {
            return Err(RequestError::SandboxExists);
        }
        let dir = self.dir.clone();
        self.fork(connection, Child::Pause, |report| pause::hold(&dir, sandbox, report))
    }

    pub(super) fn start(&mut self, connection: u64, id: String) -> Result<(), RequestError> {
        let dir = container_dir(&self.dir, &id);
        // A container is started once. A restarted agent may repeat a request of the agent before it.
        if self.containers.contains_key(&id) || self.unwritten.contains_key(&id) || dir.join(STATE).exists() {
            return Err(RequestError::StartedAlready(id));
        }
        if let Some(pending) = self.pending.iter_mut().find(|pending| pending.is_container(&id)) {
            let earlier = std::mem::replace(&mut pending.connection, connection);
            self.finish(earlier, Err(RequestError::Superseded(id)));
            return Ok(());
        }
        let spec = load_config(&dir)?;
        let options: StartOptions =
            read(&dir.join(START_OPTIONS)).map_err(step(format!("read {}", dir.join(START_OPTIONS).display())))?;
        let pipes = (!is_terminal(&spec)).then(|| PipeEnds::create(&dir, &spec, &options)).transpose();
        let pipes = pipes.map_err(step("create the pipes of the container"))?;
        let what = Child::Container { id: id.clone(), options: options.clone(), cgroup: cgroup_of(&spec), pipes };
        let cgroups = self.cgroups.clone();
        self.fork(connection, what, |report| create::create(&dir, &id, &spec, &options, &cgroups, report))
    }

    pub(super) fn exec(
        &mut self,
        connection: u64,
        id: &str,
        command: Vec<String>,
        part: Option<&str>,
        stdio: Option<[OwnedFd; 3]>,
    ) -> Result<(), RequestError> {
        let spec = load_config(&container_dir(&self.dir, id))?;
        let container = self.container(id)?;
        let pidfd = container.pidfd.as_ref().and_then(|pidfd| pidfd.try_clone().ok());
        let pidfd = pidfd.ok_or_else(|| RequestError::NotRunning(id.to_owned()))?;
        let pid = container.process.pid;
        let process = exec::process_of(&spec, command, stdio.is_none());
        let process = process.ok_or_else(|| RequestError::NoProcess(id.to_owned()))?;
        let cgroup = cgroup_of(&spec).zip(part).map(|(whole, part)| format!("{whole}/{part}"));
        let cgroups = self.cgroups.clone();
        let null_devices = self.null_devices().map_err(step("create a tmpfs for null devices"))?;
        self.fork(connection, Child::Command(cgroup), |report| {
            let (spec, pidfd, process, cgroups, null_devices) = (&spec, &pidfd, &process, &cgroups, &*null_devices);
            exec::run(exec::Command { spec, pid, pidfd, process, cgroups, part, stdio, null_devices }, report)
        })
    }

    fn null_devices(&mut self) -> io::Result<Rc<NullDevices>> {
        match &self.null_devices {
            Some(devices) => Ok(Rc::clone(devices)),
            None => Ok(Rc::clone(self.null_devices.insert(Rc::new(NullDevices::new()?)))),
        }
    }

    /// Adds a container that was started, and writes its state.
    pub(super) fn add_container(
        &mut self,
        id: &str,
        pid: u32,
        options: &StartOptions,
        cgroup: Option<String>,
        terminal: Result<OwnedFd, Option<PipeEnds>>,
    ) -> Result<(), StepError> {
        let dir = container_dir(&self.dir, id);
        let process = pidfd::identify(pid).unwrap_or(ProcessRef { pid, ticks: 0, boot: pidfd::boot() });
        let log = options.log.clone().map(LogFile::open).transpose().map_err(step("open the log of the container"))?;
        let output = match terminal {
            Ok(terminal) => Output::terminal(log, terminal).map_err(step("set up the terminal of the container"))?,
            Err(Some(pipes)) => pipes.into_output(log),
            Err(None) => Output::none(log),
        };
        let pidfd = pidfd::open(process).map_err(step(format!("open a pidfd of process {pid}")))?;
        let started_at = now();
        let state = State { process, started_at, exit: None };
        write(&dir.join(STATE), &state).map_err(step(format!("write {}", dir.join(STATE).display())))?;
        let container = Container { process, pidfd, adopted: false, started_at, cgroup, output };
        self.containers.insert(id.to_owned(), container);
        Ok(())
    }

    /// Removes the pipes of a container that has exited or was not started.
    pub(super) fn remove_pipes(&self, id: &str) {
        let dir = container_dir(&self.dir, id);
        for name in [STDIN, STDOUT, STDERR] {
            let _ = fs::remove_file(dir.join(name));
        }
    }
}

// === impl PipeEnds ===

impl PipeEnds {
    fn create(dir: &Path, spec: &Spec, options: &StartOptions) -> io::Result<Self> {
        create::create_pipes(dir, spec, options)?;
        let (out, err) = (open_output(&dir.join(STDOUT))?, open_output(&dir.join(STDERR))?);
        Ok(Self { out, err, stdin: open_stdin(dir, options)? })
    }

    fn into_output(self, log: Option<LogFile>) -> Output {
        Output::pipes(log, self.out, self.err, self.stdin)
    }
}

pub(super) fn load_config(dir: &Path) -> Result<Spec, RequestError> {
    let path = dir.join(CONFIG);
    Spec::load(&path).map_err(|source| RequestError::Config { path, source })
}

fn is_terminal(spec: &Spec) -> bool {
    spec.process().as_ref().and_then(Process::terminal).unwrap_or(false)
}

pub(super) fn cgroup_of(spec: &Spec) -> Option<String> {
    Some(spec.linux().as_ref()?.cgroups_path().as_ref()?.to_string_lossy().into_owned())
}

/// Opens the reading end of a container's output.
pub(super) fn open_output(path: &Path) -> io::Result<OwnedFd> {
    let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
    Ok(OpenOptions::new().read(true).custom_flags(flags).open(path)?.into())
}

/// Opens the writing end of a container's standard input. Also for reading, so that opening it does not wait for the container.
pub(super) fn open_stdin(dir: &Path, options: &StartOptions) -> io::Result<Option<OwnedFd>> {
    if !options.stdin {
        return Ok(None);
    }
    let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
    Ok(Some(OpenOptions::new().read(true).write(true).custom_flags(flags).open(dir.join(STDIN))?.into()))
}
