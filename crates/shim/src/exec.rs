//! Executing a command in a running container.
//!
//! The command gets all that the container's first process has: its namespaces, cgroup, user, groups, capabilities, seccomp filter and
//! no_new_privs.

use std::{
    convert::Infallible,
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use keelet_linux::{
    cgroup::Mounts,
    null_device::NullDevices,
    oom,
    process::{close_on_exec_after_stderr, fork, reset_inherited_state},
    userns,
};
use nix::{
    sched::{CloneFlags, setns},
    sys::resource::{Resource, setrlimit},
    unistd::{chdir, dup2_stderr, dup2_stdin, dup2_stdout, setsid},
};
use oci_spec::runtime::{PosixRlimit, PosixRlimitType, Process, Spec};
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    process::{DumpableBehavior, set_dumpable_behavior, umask},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, unlockpt},
};

use crate::{
    command::{CommandError, check_inside, execute},
    confinement::{Confinement, ConfinementError, own, own_stdio},
    error::{StepError, step},
    node_ids::NodeIds,
    report::Report,
};

/// A command to be executed.
#[derive(Debug)]
pub(crate) struct Command<'a> {
    /// The container's own configuration.
    pub(crate) spec: &'a Spec,
    /// The PID of its first process.
    pub(crate) pid: u32,
    pub(crate) pidfd: &'a OwnedFd,
    pub(crate) process: &'a Process,
    pub(crate) cgroups: &'a Mounts,
    /// The child cgroup for the command and its descendants.
    pub(crate) part: Option<&'a str>,
    /// Standard input, output and error, unless it gets a terminal.
    pub(crate) stdio: Option<[OwnedFd; 3]>,
    pub(crate) null_devices: &'a NullDevices,
}

/// Why a command was not executed.
#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    Confinement(#[from] ConfinementError),
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// The container's own process with another command; none if the configuration has no process.
pub(crate) fn process_of(spec: &Spec, command: Vec<String>, terminal: bool) -> Option<Process> {
    let mut process = spec.process().clone()?;
    let mut env = process.env().clone().unwrap_or_default();
    if terminal && !env.iter().any(|variable| variable.starts_with("TERM=")) {
        env.push("TERM=xterm".to_owned());
    }
    process.set_args(Some(command)).set_terminal(Some(terminal)).set_env(Some(env));
    Some(process)
}

/// Joins the container and executes the command, in a process of its own.
pub(crate) fn run(command: Command<'_>, report: Report) -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    match join_and_fork(command, &report) {
        Ok(()) => 0,
        Err(error) => {
            report.failed(error);
            1
        }
    }
}

fn join_and_fork(mut command: Command<'_>, report: &Report) -> Result<(), ExecError> {
    // Before any process of the container can see this one.
    let confinement = Confinement::of(command.spec, command.process)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(step("make the process not dumpable"))?;
    reset_inherited_state().map_err(step("reset signals, umask and keyring"))?;
    let score = command.process.oom_score_adj().unwrap_or_default();
    oom::set_score(score).map_err(step("set oom_score_adj"))?;
    join_cgroups(&command).map_err(step("join the cgroup of the container"))?;
    // The client may have sent the node's null device.
    let stdio = command.stdio.take().map(|stdio| command.null_devices.replace(stdio)).transpose();
    command.stdio = stdio.map_err(step("create a null device"))?;
    own_mapped_stdio(&command).map_err(step("change the owner of standard input and output"))?;
    let namespaces = namespaces_to_join(command.pid).map_err(step("read the namespaces of the container"))?;
    // All or none of them; the mount namespace brings its root directory.
    setns(command.pidfd, namespaces).map_err(step("join the namespaces of the container"))?;
    if namespaces.contains(CloneFlags::CLONE_NEWUSER) {
        userns::become_root().map_err(step("become root of the user namespace"))?;
    }
    let Command { process, stdio, .. } = command;
    let terminal = stdio.is_none().then(Terminal::open).transpose().map_err(step("open a terminal"))?;
    let fds: Vec<_> = terminal.iter().map(|terminal| terminal.ours.as_fd()).collect();
    // Only children of this process are in the PID namespace that it has joined.
    let pid = fork(|| {
        let stdio = match &terminal {
            Some(terminal) => terminal.take(),
            None => stdio.as_ref().map_or(Ok(()), replace_stdio),
        };
        let stdio = stdio.and_then(|()| own_stdio(process.user().uid()));
        let stdio = stdio.map_err(step("set up standard input and output")).map_err(ExecError::from);
        match stdio.and_then(|()| confine_and_execute(process, &confinement)) {
            Ok(never) => match never {},
            Err(error) => {
                report.failed(error);
                126
            }
        }
    });
    let pid = pid.map_err(step("fork"))?;
    Ok(report.pid(pid, &fds).map_err(step("report the PID to the shim"))?)
}

fn join_cgroups(command: &Command<'_>) -> io::Result<()> {
    let Some(path) = command.spec.linux().as_ref().and_then(|linux| linux.cgroups_path().as_ref()) else {
        return Ok(());
    };
    command.cgroups.join(&path.to_string_lossy(), command.part)
}

/// In a user namespace owners are changed before it is joined: from inside, root of the node, which owns the pipes, is not mapped.
fn own_mapped_stdio(command: &Command<'_>) -> io::Result<()> {
    let ids = NodeIds::of(command.spec);
    if !ids.are_mapped() {
        return Ok(());
    }
    let uid = ids.uid(command.process.user().uid());
    command.stdio.iter().flatten().try_for_each(|fd| own(fd.as_fd(), uid))
}

/// The namespaces of the container's process that this process is not in.
fn namespaces_to_join(pid: u32) -> io::Result<CloneFlags> {
    let mut flags = CloneFlags::empty();
    for (name, flag) in [
        ("user", CloneFlags::CLONE_NEWUSER),
        ("mnt", CloneFlags::CLONE_NEWNS),
        ("pid", CloneFlags::CLONE_NEWPID),
        ("net", CloneFlags::CLONE_NEWNET),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("cgroup", CloneFlags::CLONE_NEWCGROUP),
    ] {
        let (ours, theirs) = (format!("/proc/self/ns/{name}"), format!("/proc/{pid}/ns/{name}"));
        flags.set(flag, fs::read_link(ours)? != fs::read_link(theirs)?);
    }
    Ok(flags)
}

/// Returns only if it fails.
fn confine_and_execute(process: &Process, confinement: &Confinement) -> Result<Infallible, ExecError> {
    let cwd = process.cwd();
    let mut entered = chdir(cwd);
    for limit in process.rlimits().iter().flatten() {
        set_limit(limit).map_err(step(format!("set {:?}", limit.typ())))?;
    }
    if let Some(mask) = process.user().umask() {
        umask(Mode::from_raw_mode(mask));
    }
    let none = Vec::new();
    let (args, env) = (process.args().as_ref().unwrap_or(&none), process.env().as_ref().unwrap_or(&none));
    close_on_exec_after_stderr();
    confinement.become_user(process.user()).map_err(step("drop privileges"))?;
    if entered.is_err() {
        // Only this user may enter the directory, for example on a network file system.
        entered = chdir(cwd);
    }
    entered.map_err(|errno| CommandError::Enter { path: cwd.clone(), errno })?;
    check_inside(cwd)?;
    Ok(execute(args, env)?)
}

fn set_limit(limit: &PosixRlimit) -> io::Result<()> {
    let resource = match limit.typ() {
        PosixRlimitType::RlimitCpu => Resource::RLIMIT_CPU,
        PosixRlimitType::RlimitFsize => Resource::RLIMIT_FSIZE,
        PosixRlimitType::RlimitData => Resource::RLIMIT_DATA,
        PosixRlimitType::RlimitStack => Resource::RLIMIT_STACK,
        PosixRlimitType::RlimitCore => Resource::RLIMIT_CORE,
        PosixRlimitType::RlimitRss => Resource::RLIMIT_RSS,
        PosixRlimitType::RlimitNproc => Resource::RLIMIT_NPROC,
        PosixRlimitType::RlimitNofile => Resource::RLIMIT_NOFILE,
        PosixRlimitType::RlimitMemlock => Resource::RLIMIT_MEMLOCK,
        PosixRlimitType::RlimitAs => Resource::RLIMIT_AS,
        PosixRlimitType::RlimitLocks => Resource::RLIMIT_LOCKS,
        PosixRlimitType::RlimitSigpending => Resource::RLIMIT_SIGPENDING,
        PosixRlimitType::RlimitMsgqueue => Resource::RLIMIT_MSGQUEUE,
        PosixRlimitType::RlimitNice => Resource::RLIMIT_NICE,
        PosixRlimitType::RlimitRtprio => Resource::RLIMIT_RTPRIO,
        PosixRlimitType::RlimitRttime => Resource::RLIMIT_RTTIME,
    };
    Ok(setrlimit(resource, limit.soft(), limit.hard())?)
}

fn replace_stdio(stdio: &[OwnedFd; 3]) -> io::Result<()> {
    setsid()?;
    dup2_stdin(&stdio[0])?;
    dup2_stdout(&stdio[1])?;
    Ok(dup2_stderr(&stdio[2])?)
}

/// A terminal of the container's own devpts.
struct Terminal {
    ours: OwnedFd,
    theirs: OwnedFd,
}

// === impl Terminal ===

impl Terminal {
    /// Opens one. This process is in the container's mount namespace already.
    fn open() -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let ours = match openat(CWD, Path::new("/dev/ptmx"), flags, Mode::empty()) {
            Ok(ours) => ours,
            Err(_) => openat(CWD, Path::new("/dev/pts/ptmx"), flags, Mode::empty())?,
        };
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        Ok(Self { ours, theirs })
    }

    /// Makes it the controlling terminal and the standard input and output of this process.
    fn take(&self) -> io::Result<()> {
        setsid()?;
        rustix::process::ioctl_tiocsctty(&self.theirs)?;
        dup2_stdin(&self.theirs)?;
        dup2_stdout(&self.theirs)?;
        Ok(dup2_stderr(&self.theirs)?)
    }
}
