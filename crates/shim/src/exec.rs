//! Running a command in a container that runs.
//!
//! The command gets all that the container's first process has: its namespaces, its cgroup, its user, groups and
//! capabilities, its filter and its promise to gain no privileges.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use keelet_linux::{
    cgroup::Mounts,
    null::Nulls,
    process::{fork, set_oom_score, start_afresh},
    userns,
};
use nix::{
    sched::{CloneFlags, setns},
    unistd::{chdir, dup2_stderr, dup2_stdin, dup2_stdout, setsid},
};
use oci_spec::runtime::{Process, Spec};
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    process::{DumpableBehavior, set_dumpable_behavior, umask},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, unlockpt},
};

use crate::{
    finish::{Confinement, become_command, inside, own, own_stdio},
    maker::{PID, tell_failure},
    on_node::OnNode,
    wire,
};

/// A command to be run.
#[derive(Debug)]
pub(crate) struct Command<'a> {
    /// The container's own configuration.
    pub(crate) spec: &'a Spec,
    /// Its first process.
    pub(crate) pid: u32,
    pub(crate) handle: &'a OwnedFd,
    pub(crate) process: &'a Process,
    pub(crate) cgroups: &'a Mounts,
    pub(crate) part: Option<&'a str>,
    /// Standard input, output and error, unless it gets a terminal.
    pub(crate) stdio: Option<[OwnedFd; 3]>,
    pub(crate) nulls: &'a Nulls,
}

/// The container's own process with another command.
pub(crate) fn process_of(spec: &Spec, command: Vec<String>, terminal: bool) -> Result<Process, String> {
    let mut process = spec.process().clone().ok_or("the configuration has no process")?;
    let mut env = process.env().clone().unwrap_or_default();
    if terminal && !env.iter().any(|variable| variable.starts_with("TERM=")) {
        env.push("TERM=xterm".to_owned());
    }
    process.set_args(Some(command)).set_terminal(Some(terminal)).set_env(Some(env));
    Ok(process)
}

/// Joins the container and becomes the command, in a process of its own.
pub(crate) fn run(command: Command<'_>, report: OwnedFd) -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    match join_and_fork(command, &report) {
        Ok(()) => 0,
        Err(error) => {
            tell_failure(&report, &error);
            1
        }
    }
}

fn join_and_fork(mut command: Command<'_>, report: &OwnedFd) -> Result<(), String> {
    // Before anything of the container can see this process.
    let confinement = Confinement::of(command.spec, command.process)?;
    let fail = |what: &str, error: io::Error| format!("{what}: {error}");
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| fail("not dumpable", error.into()))?;
    start_afresh().map_err(|error| fail("a new start", error))?;
    let score = command.process.oom_score_adj().unwrap_or_default();
    set_oom_score(score).map_err(|error| fail("oom_score_adj", error))?;
    join_cgroups(&command).map_err(|error| error.to_string())?;
    // Whoever asked has the node's.
    let stdio = command.stdio.take().map(|stdio| command.nulls.replace(stdio)).transpose();
    command.stdio = stdio.map_err(|error| fail("a null device", error))?;
    let on_node = OnNode::of(command.spec);
    if on_node.differ() {
        // From inside they could not be given to anybody: they belong to the node's root, who is nobody in there.
        let uid = on_node.uid(command.process.user().uid());
        let mut stdio = command.stdio.iter().flatten();
        let owned = stdio.try_for_each(|fd| own(fd.as_fd(), uid));
        owned.map_err(|error| fail("standard input and output", error))?;
    }
    let namespaces = namespaces_to_join(command.pid).map_err(|error| fail("namespaces", error))?;
    // All or none, and with the mounts the root directory.
    setns(command.handle, namespaces).map_err(|error| format!("cannot join the container: {error}"))?;
    if namespaces.contains(CloneFlags::CLONE_NEWUSER) {
        userns::become_root().map_err(|error| fail("the container's root", error))?;
    }
    let Command { process, stdio, .. } = command;
    let terminal = stdio.is_none().then(Terminal::open).transpose().map_err(|error| fail("terminal", error))?;
    let fds: Vec<_> = terminal.iter().map(|terminal| terminal.ours.as_fd()).collect();
    // Only a child of this process is in the container's tree of processes.
    let pid = fork(|| {
        let stdio = match &terminal {
            Some(terminal) => terminal.take(),
            None => stdio.as_ref().map_or(Ok(()), put_in_place),
        };
        let stdio = stdio.and_then(|()| own_stdio(process.user().uid()));
        let failed = stdio.map_err(|error| fail("standard input and output", error));
        let failed = failed.and_then(|()| become_process(process, &confinement));
        let error = failed.err().unwrap_or_default();
        tell_failure(report, &error);
        126
    });
    let pid = pid.map_err(|error| fail("fork", error))?;
    wire::send(report, format!("{PID}{pid}\n").as_bytes(), &fds).map_err(|error| fail("report", error))
}

fn join_cgroups(command: &Command<'_>) -> io::Result<()> {
    let Some(path) = command.spec.linux().as_ref().and_then(|linux| linux.cgroups_path().as_ref()) else {
        return Ok(());
    };
    command.cgroups.join(&path.to_string_lossy(), command.part)
}

/// Those in which the container's process is not where we are.
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
fn become_process(process: &Process, confinement: &Confinement) -> Result<(), String> {
    let cwd = process.cwd();
    let mut entered = chdir(cwd);
    for limit in process.rlimits().iter().flatten() {
        set_limit(limit).map_err(|error| format!("rlimit {:?}: {error}", limit.typ()))?;
    }
    if let Some(mask) = process.user().umask() {
        umask(Mode::from_raw_mode(mask));
    }
    let none = Vec::new();
    let (args, env) = (process.args().as_ref().unwrap_or(&none), process.env().as_ref().unwrap_or(&none));
    close_the_rest();
    confinement.become_user(process.user()).map_err(|error| format!("cannot be confined: {error}"))?;
    if entered.is_err() {
        // A directory that only this user may enter.
        entered = chdir(cwd);
    }
    entered.map_err(|error| format!("cannot enter the directory {:?}: {}", cwd.display(), error.desc()))?;
    inside(cwd)?;
    Err(become_command(args, env))
}

/// Whatever is open beyond standard error ends when the command takes over.
fn close_the_rest() {
    #[expect(unsafe_code, reason = "marks descriptors and closes none")]
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed());
    }
}

fn set_limit(limit: &oci_spec::runtime::PosixRlimit) -> io::Result<()> {
    use nix::sys::resource::{Resource, setrlimit};
    use oci_spec::runtime::PosixRlimitType as Kind;
    let resource = match limit.typ() {
        Kind::RlimitCpu => Resource::RLIMIT_CPU,
        Kind::RlimitFsize => Resource::RLIMIT_FSIZE,
        Kind::RlimitData => Resource::RLIMIT_DATA,
        Kind::RlimitStack => Resource::RLIMIT_STACK,
        Kind::RlimitCore => Resource::RLIMIT_CORE,
        Kind::RlimitRss => Resource::RLIMIT_RSS,
        Kind::RlimitNproc => Resource::RLIMIT_NPROC,
        Kind::RlimitNofile => Resource::RLIMIT_NOFILE,
        Kind::RlimitMemlock => Resource::RLIMIT_MEMLOCK,
        Kind::RlimitAs => Resource::RLIMIT_AS,
        Kind::RlimitLocks => Resource::RLIMIT_LOCKS,
        Kind::RlimitSigpending => Resource::RLIMIT_SIGPENDING,
        Kind::RlimitMsgqueue => Resource::RLIMIT_MSGQUEUE,
        Kind::RlimitNice => Resource::RLIMIT_NICE,
        Kind::RlimitRtprio => Resource::RLIMIT_RTPRIO,
        Kind::RlimitRttime => Resource::RLIMIT_RTTIME,
    };
    Ok(setrlimit(resource, limit.soft(), limit.hard())?)
}

fn put_in_place(stdio: &[OwnedFd; 3]) -> io::Result<()> {
    setsid()?;
    dup2_stdin(&stdio[0])?;
    dup2_stdout(&stdio[1])?;
    Ok(dup2_stderr(&stdio[2])?)
}

/// A terminal of the container's own.
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

    /// Makes it this process's own.
    fn take(&self) -> io::Result<()> {
        setsid()?;
        rustix::process::ioctl_tiocsctty(&self.theirs)?;
        dup2_stdin(&self.theirs)?;
        dup2_stdout(&self.theirs)?;
        Ok(dup2_stderr(&self.theirs)?)
    }
}
