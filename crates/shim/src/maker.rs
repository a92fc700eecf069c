//! Making a container, in a process that goes away afterwards.
//!
//! Two can do it: libcontainer, which is built in, and the `runc` program, if the server names one. Both get the same
//! configuration, the same pipes and the same words to report with; what a container is afterwards does not depend on who
//! made it. Commands join a container in our own way ([`crate::exec`]) in both cases.

mod complaints;
mod late;
mod libcontainer;
mod runc;
mod stage;

use std::{
    cell::RefCell,
    fs::{self, OpenOptions},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::OpenOptionsExt, net::UnixListener},
    },
    path::{Path, PathBuf},
    rc::Rc,
};

use keelet_linux::{
    cgroup::Mounts,
    place,
    process::{set_oom_score, start_afresh},
};
use oci_spec::runtime::{Process, Spec};
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, chown, mkfifoat, openat};

use self::{libcontainer::Libcontainer, runc::Runc};
use crate::{
    on_node::OnNode,
    protocol::{CONFIG, Plan},
    text::chain,
    wire,
};

/// Names of the pipes between a container and its shim.
pub(crate) const STDIN: &str = "in";
pub(crate) const STDOUT: &str = "out";
pub(crate) const STDERR: &str = "err";

/// What is told to the shim, line by line; then the end of the connection. No failure is success.
pub(crate) const PID: &str = "pid ";
pub(crate) const FAILED: &str = "failed ";
/// What went wrong on the way, which explains a failure if there is one.
pub(crate) const WHY: &str = "why ";

/// Who makes and starts a container.
trait Maker {
    /// Makes it and tells its first process, with its terminal if it has one; then starts it.
    fn make(&self, job: &Job<'_>) -> Result<(), String>;
}

/// A container to be made.
struct Job<'a> {
    id: &'a str,
    /// The container's directory.
    dir: &'a Path,
    spec: &'a Spec,
    process: &'a Process,
    plan: &'a Plan,
    cgroups: &'a Mounts,
    /// Closed by the kernel when the command takes over.
    report: Rc<OwnedFd>,
    /// Directories of the root that stay what they are while they are open. They lead to the node, so the container must not have them.
    held: Rc<RefCell<Vec<OwnedFd>>>,
}

/// Makes the pipes of a container that has no terminal. They have names, so that a later shim finds them, and belong to
/// the container's user, who may open `/dev/stdout`.
pub(crate) fn make_pipes(dir: &Path, spec: &Spec, plan: &Plan) -> io::Result<()> {
    let owner = spec.process().as_ref().map(|process| (process.user().uid(), process.user().gid()));
    let (uid, gid) = owner.unwrap_or_default();
    let on_node = OnNode::of(spec);
    let stdin = plan.stdin.then_some(STDIN);
    for name in [STDOUT, STDERR].into_iter().chain(stdin) {
        let path = dir.join(name);
        match mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let (uid, gid) = (Uid::from_raw(on_node.uid(uid)), Gid::from_raw(on_node.gid(gid)));
        chown(&path, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Makes and starts a container, in a process of its own. Whatever goes wrong is told through `report`.
pub(crate) fn make(dir: &Path, id: &str, spec: &Spec, plan: &Plan, cgroups: &Mounts, report: OwnedFd) -> i32 {
    // A panic would print into the container's log once its output is in place.
    std::panic::set_hook(Box::new(|_| {}));
    let report = Rc::new(report);
    let made = spec.process().as_ref().ok_or_else(|| "the configuration has no process".to_owned());
    let made = made.and_then(|process| {
        let (report, held) = (Rc::clone(&report), Rc::default());
        try_make(&Job { id, dir, spec, process, plan, cgroups, report, held })
    });
    match made {
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

/// Where a container's own file systems are mounted, and by libcontainer filled by path: through a link, on the node.
const OWN_DIRECTORIES: [&str; 3] = ["dev", "proc", "sys"];

fn try_make(job: &Job<'_>) -> Result<(), String> {
    job.held.replace(check_root(job.spec)?);
    start_afresh().map_err(|error| text("a new start", error))?;
    // Inherited by the container, so that one which asks for none must not have the shim's. Left to others, a score that
    // cannot be lowered would be an error.
    set_oom_score(job.process.oom_score_adj().unwrap_or_default()).map_err(|error| text("oom_score_adj", error))?;
    match &job.plan.runc {
        None => Libcontainer.make(job),
        Some(program) => Runc { program }.make(job),
    }
}

/// Refuses an image that has something else in the place of these directories. The root is this container's alone until it runs, and
/// what is held open the kernel finds again under its name, also if a layer of the image is changed meanwhile.
fn check_root(spec: &Spec) -> Result<Vec<OwnedFd>, String> {
    let Some(root) = spec.root() else { return Ok(Vec::new()) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = openat(CWD, root.path(), flags, Mode::empty());
    let open = open.map_err(|error| format!("the root {}: {error}", root.path().display()))?;
    OWN_DIRECTORIES.iter().filter_map(|name| place::own_directory(open.as_fd(), name).transpose()).collect()
}

fn text(what: &str, error: io::Error) -> String {
    format!("{what}: {error}")
}

// === impl Job ===

impl Job<'_> {
    fn is_terminal(&self) -> bool {
        self.process.terminal().unwrap_or(false)
    }

    /// The bundle, with its configuration.
    fn bundle(&self, spec: &Spec) -> Result<PathBuf, String> {
        let bundle = self.dir.join("bundle");
        fs::create_dir_all(&bundle).map_err(|error| text("bundle", error))?;
        spec.save(bundle.join(CONFIG))
            .map_err(|error| format!("the configuration cannot be written: {}", chain(&error)))?;
        Ok(bundle)
    }

    /// Standard input, output and error of a container without a terminal.
    fn stdio(&self) -> Result<[OwnedFd; 3], String> {
        let pipe = |name: &str| open_pipe(&self.dir.join(name)).map_err(|error| text(name, error));
        let input = if self.plan.stdin { self.dir.join(STDIN) } else { PathBuf::from("/dev/null") };
        let input = OpenOptions::new().read(true).open(input).map_err(|error| text(STDIN, error))?;
        Ok([input.into(), pipe(STDOUT)?, pipe(STDERR)?])
    }

    fn console(&self) -> Result<Option<Console>, String> {
        self.is_terminal().then(|| Console::listen(self.dir)).transpose().map_err(|error| text("console", error))
    }

    /// The container's first process waits to be started.
    fn tell(&self, pid: i32, console: Option<Console>) -> Result<(), String> {
        let terminal = console.map(Console::receive).transpose().map_err(|error| text("console", error))?;
        let fds: Vec<_> = terminal.iter().map(AsFd::as_fd).collect();
        wire::send(&self.report, format!("{PID}{pid}\n").as_bytes(), &fds).map_err(|error| text("report", error))
    }
}

/// The writing end that a container gets. It can read as well, so that it never sees a pipe without a reader: if the
/// shim is killed the container waits for the next one, and does not die of SIGPIPE.
fn open_pipe(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::CLOEXEC.bits().cast_signed();
    Ok(OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?.into())
}

const CONSOLE: &str = "console.sock";

/// Where the terminal arrives that was made inside the container.
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
        fds.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no terminal was sent"))
    }
}
