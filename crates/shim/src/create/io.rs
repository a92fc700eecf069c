//! Pipes and terminals between a container and its shim.
//!
//! Pipes have names, so that a later shim finds them, and belong to the container's user, who may open `/dev/stdout`.

use std::{
    fs::{self, OpenOptions},
    io,
    os::{
        fd::OwnedFd,
        unix::{fs::OpenOptionsExt, net::UnixListener},
    },
    path::{Path, PathBuf},
};

use oci_spec::runtime::Spec;
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, chown, mkfifoat};

use crate::{
    error::{StepError, step},
    node_ids::NodeIds,
    protocol::StartOptions,
    wire,
};

/// Names of the pipes between a container and its shim.
pub(crate) const STDIN: &str = "in";
pub(crate) const STDOUT: &str = "out";
pub(crate) const STDERR: &str = "err";

/// The socket that receives a terminal, in the container's directory.
pub(super) const CONSOLE: &str = "console.sock";

/// A socket that receives the terminal that was opened inside the container.
pub(super) struct Console(UnixListener);

/// Creates the pipes of a container that has no terminal.
pub(crate) fn create_pipes(dir: &Path, spec: &Spec, options: &StartOptions) -> io::Result<()> {
    let owner = spec.process().as_ref().map(|process| (process.user().uid(), process.user().gid()));
    let (uid, gid) = owner.unwrap_or_default();
    let ids = NodeIds::of(spec);
    let stdin = options.stdin.then_some(STDIN);
    for name in [STDOUT, STDERR].into_iter().chain(stdin) {
        let path = dir.join(name);
        match mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        chown(&path, Some(Uid::from_raw(ids.uid(uid))), Some(Gid::from_raw(ids.gid(gid))))?;
    }
    Ok(())
}

/// The container's ends: standard input, output and error.
pub(super) fn container_ends(dir: &Path, options: &StartOptions) -> Result<[OwnedFd; 3], StepError> {
    let opening = |path: &Path| step(format!("open {}", path.display()));
    let output = |name: &str| {
        let path = dir.join(name);
        open_output(&path).map_err(opening(&path))
    };
    let input = if options.stdin { dir.join(STDIN) } else { PathBuf::from("/dev/null") };
    let stdin = OpenOptions::new().read(true).open(&input).map_err(opening(&input))?;
    Ok([stdin.into(), output(STDOUT)?, output(STDERR)?])
}

/// The writing end that a container gets. It is open for reading as well, so that the pipe always has a reader: if the shim is killed, the
/// container waits for the next shim instead of getting SIGPIPE.
fn open_output(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::CLOEXEC.bits().cast_signed();
    Ok(OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?.into())
}

// === impl Console ===

impl Console {
    pub(super) fn listen(dir: &Path) -> io::Result<Self> {
        // The path of a socket has at most 107 bytes, and the directory may have more.
        let before = std::env::current_dir()?;
        std::env::set_current_dir(dir)?;
        let _ = fs::remove_file(CONSOLE);
        let listener = UnixListener::bind(CONSOLE);
        std::env::set_current_dir(before)?;
        Ok(Self(listener?))
    }

    pub(super) fn receive(self) -> io::Result<OwnedFd> {
        let (stream, _) = self.0.accept()?;
        let mut fds = Vec::new();
        wire::receive(&stream, &mut [0; 4096], &mut fds)?;
        fds.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the connection carries no descriptor"))
    }
}
