//! Making a container, in a process that goes away afterwards.
//!
//! libcontainer's ways that are not ours are kept from it here: it gets a configuration without capabilities, because it
//! would drop them before our filter can be set, and without a score for the killer of processes, because it fails where that
//! cannot be lowered. It logs through `tracing`, and nobody listens; what it reports as an error is passed on.

use std::{
    fs::{self, OpenOptions},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::OpenOptionsExt, net::UnixListener},
    },
    path::Path,
    rc::Rc,
};

use libcontainer::{
    container::builder::ContainerBuilder,
    syscall::syscall::SyscallType,
    workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError},
};
use oci_spec::runtime::Spec;
use rustix::fs::{CWD, Gid, Mode, Uid, chown, mkfifoat};

use crate::{
    cgroup, devices_v2,
    finish::{Confinement, become_command},
    process::{chain, reset_signals, set_oom_score},
    protocol::{CONFIG, Plan},
    wire,
};

/// Names of the pipes between a container and its shim.
pub(crate) const STDIN: &str = "in";
pub(crate) const STDOUT: &str = "out";
pub(crate) const STDERR: &str = "err";

/// What is told to the shim, line by line; then the end of the connection. No failure is success.
pub(crate) const PID: &str = "pid ";
pub(crate) const FAILED: &str = "failed ";

/// Makes the pipes of a container that has no terminal. They have names, so that a later shim finds them, and belong to
/// the container's user, who may open `/dev/stdout`.
pub(crate) fn make_pipes(dir: &Path, spec: &Spec, plan: &Plan) -> io::Result<()> {
    let owner = spec.process().as_ref().map(|process| (process.user().uid(), process.user().gid()));
    let (uid, gid) = owner.unwrap_or_default();
    let stdin = plan.stdin.then_some(STDIN);
    for name in [STDOUT, STDERR].into_iter().chain(stdin) {
        let path = dir.join(name);
        match mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        chown(&path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(())
}

/// Makes and starts a container, in a process of its own. Whatever goes wrong is told through `report`.
pub(crate) fn make(dir: &Path, id: &str, spec: &Spec, plan: &Plan, report: OwnedFd) -> i32 {
    // A panic would print into the container's log once its output is in place.
    std::panic::set_hook(Box::new(|_| {}));
    let report = Rc::new(report);
    match try_make(dir, id, spec, plan, &report) {
        Ok(()) => 0,
        Err(error) => {
            tell_failure(&report, &error);
            1
        }
    }
}

pub(crate) fn tell_failure(report: &impl AsFd, error: &str) {
    let line = error.replace('\n', " ");
    // A shim that is gone needs no reasons.
    let _ = wire::send(report, format!("{FAILED}{line}\n").as_bytes(), &[]);
}

fn try_make(dir: &Path, id: &str, spec: &Spec, plan: &Plan, report: &Rc<OwnedFd>) -> Result<(), String> {
    let process = spec.process().as_ref().ok_or("the configuration has no process")?;
    let executor = ContainerProcess { confinement: Confinement::of(spec, process)?, report: Rc::clone(report) };
    let text = |what: &str, error: io::Error| format!("{what}: {error}");
    reset_signals().map_err(|error| text("signals", error))?;
    if let Some(score) = process.oom_score_adj() {
        set_oom_score(score).map_err(|error| text("oom_score_adj", error))?;
    }
    let bundle = dir.join("bundle");
    fs::create_dir_all(&bundle).map_err(|error| text("bundle", error))?;
    without_what_is_ours(spec)
        .save(bundle.join(CONFIG))
        .map_err(|error| format!("the configuration cannot be written: {}", chain(&error)))?;

    let mut builder = ContainerBuilder::new(id.to_owned(), SyscallType::default())
        .with_root_path(dir.join("libcontainer"))
        .map_err(|error| chain(&error))?
        .with_executor(executor);
    let terminal = process.terminal().unwrap_or(false);
    let console = terminal.then(|| Console::listen(dir)).transpose().map_err(|error| text("console", error))?;
    if terminal {
        builder = builder.with_console_socket(Some(dir.join(CONSOLE)));
    } else {
        let pipe = |name: &str| open_pipe(&dir.join(name)).map_err(|error| format!("{name}: {error}"));
        let stdin = match plan.stdin {
            true => OpenOptions::new().read(true).open(dir.join(STDIN)).map(OwnedFd::from),
            false => OpenOptions::new().read(true).open("/dev/null").map(OwnedFd::from),
        };
        builder = builder
            .with_stdin(stdin.map_err(|error| text(STDIN, error))?)
            .with_stdout(pipe(STDOUT)?)
            .with_stderr(pipe(STDERR)?);
    }
    let made = builder.as_init(&bundle).with_systemd(false).with_detach(true).build();
    let mut container = made.map_err(|error| chain(&error))?;
    let pid = container.pid().ok_or("libcontainer names no process")?;
    let master = console.map(|console| console.receive()).transpose().map_err(|error| text("console", error))?;
    let fds: Vec<_> = master.iter().map(AsFd::as_fd).collect();
    limit_devices(spec).map_err(|error| text("device rules", error))?;
    wire::send(report, format!("{PID}{pid}\n").as_bytes(), &fds).map_err(|error| text("report", error))?;
    container.start().map_err(|error| chain(&error))
}

/// The configuration as libcontainer gets it.
fn without_what_is_ours(spec: &Spec) -> Spec {
    let mut spec = spec.clone();
    if let Some(process) = spec.process_mut() {
        process.set_capabilities(None).set_oom_score_adj(None);
    }
    if let Some(linux) = spec.linux_mut() {
        linux.set_seccomp(None);
    }
    spec
}

/// On the second generation of cgroups device rules are a program that libcontainer does not attach.
fn limit_devices(spec: &Spec) -> io::Result<()> {
    let cgroup::Mounts::V2(root) = cgroup::Mounts::find()? else { return Ok(()) };
    let Some(linux) = spec.linux() else { return Ok(()) };
    let rules = linux.resources().as_ref().and_then(|resources| resources.devices().clone()).unwrap_or_default();
    let Some(path) = linux.cgroups_path() else { return Ok(()) };
    devices_v2::attach(&root.join(path.strip_prefix("/").unwrap_or(path)), &rules)
}

/// The writing end that a container gets. It can read as well, so that it never sees a pipe without a reader: if the
/// shim is killed the container waits for the next one, and does not die of SIGPIPE.
fn open_pipe(path: &Path) -> io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::CLOEXEC.bits().cast_signed();
    Ok(OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?.into())
}

const CONSOLE: &str = "console.sock";

/// Where libcontainer sends the terminal it made inside the container.
struct Console(UnixListener);

// === impl Console ===

impl Console {
    fn listen(dir: &Path) -> io::Result<Self> {
        // A path to a socket must be short; this one is as long as people like.
        let before = std::env::current_dir()?;
        std::env::set_current_dir(dir)?;
        let _ = fs::remove_file(CONSOLE);
        let listener = UnixListener::bind(CONSOLE);
        std::env::set_current_dir(before)?;
        Ok(Self(listener?))
    }

    fn receive(self) -> io::Result<OwnedFd> {
        let (stream, _) = self.0.accept()?;
        let mut fds = Vec::new();
        wire::receive(&stream, &mut [0; 4096], &mut fds)?;
        fds.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "libcontainer sent no terminal"))
    }
}

/// What libcontainer calls in place of the command.
#[derive(Clone)]
struct ContainerProcess {
    confinement: Confinement,
    /// Closed by the kernel when the command takes over.
    report: Rc<OwnedFd>,
}

// === impl ContainerProcess ===

impl Executor for ContainerProcess {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let fail = |error: String| {
            tell_failure(&self.report, &error);
            ExecutorError::Other(error)
        };
        let process = spec.process().as_ref().ok_or(ExecutorError::InvalidArg)?;
        self.confinement.apply().map_err(|error| fail(format!("cannot be confined: {error}")))?;
        let none = Vec::new();
        let (args, env) = (process.args().as_ref().unwrap_or(&none), process.env().as_ref().unwrap_or(&none));
        Err(fail(become_command(args, env)))
    }

    /// Nothing before the command takes over: it may only be found with the privileges it will have.
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        Ok(())
    }

    /// The environment is given to the command itself.
    #[expect(clippy::disallowed_types, reason = "libcontainer's own signature")]
    fn setup_envs(&self, _: std::collections::HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        Ok(())
    }
}
