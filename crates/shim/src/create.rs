//! Creating a container, in a forked process that exits afterwards.
//!
//! libcontainer, which is built in, or a `runc` program creates it. Both get the same configuration, pipes and report; the container does
//! not depend on which of them created it. Commands join a container through [`crate::exec`] in both cases.

mod device_rules;
mod diagnostics;
mod io;
mod libcontainer;
mod mounts;
mod runc;
mod userns_root;

use std::{
    cell::RefCell,
    fs,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    rc::Rc,
};

use ::libcontainer::error::LibcontainerError;
use keelet_linux::{
    cgroup::Mounts,
    in_root::{MountPointError, mount_point},
    oom,
    process::reset_inherited_state,
};
use oci_spec::{
    OciSpecError,
    runtime::{Process, Spec},
};
use rustix::fs::{CWD, Mode, OFlags, openat};

pub(crate) use self::io::{STDERR, STDIN, STDOUT, create_pipes};
use self::{
    io::{CONSOLE, Console},
    libcontainer::Libcontainer,
    mounts::MountError,
    runc::{Runc, RuncError},
};
use crate::{
    command::CommandError,
    confinement::ConfinementError,
    error::{Chain, StepError, step},
    protocol::{CONFIG, StartOptions},
    report::Report,
};

/// Where a container's own file systems are mounted. libcontainer creates files in them by path, which a link would redirect to the node.
const OWN_DIRECTORIES: [&str; 3] = ["dev", "proc", "sys"];

/// A program or library that creates and starts containers.
trait Creator {
    /// Creates a container, reports its first process with its terminal if it has one, then starts it.
    fn create(&self, job: &Job<'_>) -> Result<(), CreateError>;
}

/// A container to be created.
struct Job<'a> {
    id: &'a str,
    /// The container's directory.
    dir: &'a Path,
    spec: &'a Spec,
    process: &'a Process,
    options: &'a StartOptions,
    cgroups: &'a Mounts,
    /// Closed by the kernel when the command is executed.
    report: Rc<Report>,
    /// Directories of the root that cannot be replaced while they are open. They lead to the node, so the container must not get them.
    held: Rc<RefCell<Vec<OwnedFd>>>,
}

/// Why a container was not created or started.
#[derive(Debug, thiserror::Error)]
enum CreateError {
    #[error("the configuration has no process")]
    NoProcess,
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    MountPoint(#[from] MountPointError),
    #[error("cannot write the configuration {}: {}", path.display(), Chain(source))]
    Config { path: PathBuf, source: OciSpecError },
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Confinement(#[from] ConfinementError),
    #[error("{}", Chain(.0))]
    Libcontainer(#[from] LibcontainerError),
    #[error("libcontainer reports no PID")]
    NoPid,
    #[error(transparent)]
    Runc(#[from] RuncError),
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Creates and starts a container, in a process of its own. Errors go to `report`.
pub(crate) fn create(
    dir: &Path,
    id: &str,
    spec: &Spec,
    options: &StartOptions,
    cgroups: &Mounts,
    report: Report,
) -> i32 {
    // A panic would print into the container's log once its standard error is in place.
    std::panic::set_hook(Box::new(|_| {}));
    let report = Rc::new(report);
    let created = spec.process().as_ref().ok_or(CreateError::NoProcess).and_then(|process| {
        let (report, held) = (Rc::clone(&report), Rc::default());
        try_create(&Job { id, dir, spec, process, options, cgroups, report, held })
    });
    match created {
        Ok(()) => 0,
        Err(error) => {
            report.failed(error);
            1
        }
    }
}

fn try_create(job: &Job<'_>) -> Result<(), CreateError> {
    job.held.replace(hold_own_directories(job.spec)?);
    reset_inherited_state().map_err(step("reset signals, umask and keyring"))?;
    // The container inherits it, so that a container without a score does not get the shim's. libcontainer and runc would fail where a
    // score cannot be lowered.
    oom::set_score(job.process.oom_score_adj().unwrap_or_default()).map_err(step("set oom_score_adj"))?;
    match &job.options.runc {
        None => Libcontainer.create(job),
        Some(program) => Runc { program }.create(job),
    }
}

/// Opens the directories of the image that file systems are mounted on, and rejects an image that has anything else in their place. Only
/// this container uses the root until it runs, and the kernel finds an open directory under its name also if a layer of the image is
/// changed meanwhile.
fn hold_own_directories(spec: &Spec) -> Result<Vec<OwnedFd>, CreateError> {
    let Some(root) = spec.root() else { return Ok(Vec::new()) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = openat(CWD, root.path(), flags, Mode::empty());
    let open = open.map_err(step(format!("open the root {}", root.path().display())))?;
    let held = OWN_DIRECTORIES.iter().filter_map(|name| mount_point(open.as_fd(), name).transpose());
    Ok(held.collect::<Result<_, _>>()?)
}

// === impl Job ===

impl Job<'_> {
    fn is_terminal(&self) -> bool {
        self.process.terminal().unwrap_or(false)
    }

    /// Writes the OCI bundle: a directory with the configuration.
    fn bundle(&self, spec: &Spec) -> Result<PathBuf, CreateError> {
        let bundle = self.dir.join("bundle");
        fs::create_dir_all(&bundle).map_err(step(format!("create {}", bundle.display())))?;
        let path = bundle.join(CONFIG);
        spec.save(&path).map_err(|source| CreateError::Config { path, source })?;
        Ok(bundle)
    }

    /// Standard input, output and error of a container without a terminal.
    fn stdio(&self) -> Result<[OwnedFd; 3], CreateError> {
        Ok(io::container_ends(self.dir, self.options)?)
    }

    fn console(&self) -> Result<Option<Console>, CreateError> {
        let console = self.is_terminal().then(|| Console::listen(self.dir)).transpose();
        Ok(console.map_err(step("listen for the terminal of the container"))?)
    }

    /// Reports the container's first process, which waits to be started.
    fn report_pid(&self, pid: u32, console: Option<Console>) -> Result<(), CreateError> {
        let terminal = console.map(Console::receive).transpose();
        let terminal = terminal.map_err(step("receive the terminal of the container"))?;
        let fds: Vec<_> = terminal.iter().map(AsFd::as_fd).collect();
        Ok(self.report.pid(pid, &fds).map_err(step("report the PID to the shim"))?)
    }
}
