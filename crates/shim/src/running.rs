//! The running shims of this node, found in its process table: also those whose directories are gone.
//!
//! An empty state directory does not prove that no pods run: it may be another directory than before, or on a file system that is not
//! mounted. A shim has the directory of its sandbox in its arguments.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use keelet_linux::{ProcessRef, is_resource_shortage, pidfd};

/// The argument that starts the program as a shim; the directory of the sandbox follows it.
pub const ARGUMENT: &str = "shim";

/// The name of the directory of all sandboxes.
pub const SANDBOXES: &str = "sandboxes";

/// A running shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningShim {
    /// Its process.
    pub process: ProcessRef,
    /// The directory of its sandbox, which may have been removed.
    pub dir: PathBuf,
}

/// The running shims in the mount namespace of this process. A container has a mount namespace of its own, so its processes cannot pass for
/// a shim.
///
/// # Errors
///
/// When the processes cannot be listed, which never means that there are none.
pub fn running_shims() -> io::Result<Vec<RunningShim>> {
    let mounts = fs::read_link("/proc/self/ns/mnt")?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        match shim(pid, &mounts) {
            Ok(shim) => found.extend(shim),
            Err(error) if is_resource_shortage(&error) => return Err(error),
            // It has exited since.
            Err(_) => {}
        }
    }
    Ok(found)
}

fn shim(pid: u32, mounts: &Path) -> io::Result<Option<RunningShim>> {
    let process = Path::new("/proc").join(pid.to_string());
    let Some(dir) = directory(&fs::read(process.join("cmdline"))?) else { return Ok(None) };
    if fs::read_link(process.join("ns/mnt"))? != mounts {
        return Ok(None);
    }
    Ok(Some(RunningShim { process: pidfd::identify(pid)?, dir }))
}

/// The directory in the arguments of a shim; none for any other process.
fn directory(arguments: &[u8]) -> Option<PathBuf> {
    let mut arguments = arguments.strip_suffix(b"\0")?.split(|byte| *byte == 0).skip(1);
    let (argument, dir) = (arguments.next()?, Path::new(std::ffi::OsStr::from_bytes(arguments.next()?)));
    let is_shim = argument == ARGUMENT.as_bytes() && arguments.next().is_none();
    let in_place = dir.is_absolute() && dir.parent()?.file_name()? == SANDBOXES;
    (is_shim && in_place).then(|| dir.to_owned())
}

// === impl RunningShim ===

impl RunningShim {
    /// The ID of its sandbox.
    pub fn sandbox(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether its sandbox is in that directory, also if one of the paths has links.
    pub fn is_in(&self, sandboxes: &Path) -> bool {
        let Some(parent) = self.dir.parent() else { return false };
        let real = |path: &Path| fs::canonicalize(path).ok();
        parent == sandboxes || real(parent).is_some_and(|real_parent| real(sandboxes) == Some(real_parent))
    }

    /// Kills it and its children: the pause process, and the first processes of containers.
    pub fn kill(&self) {
        let Ok(Some(handle)) = pidfd::open(self.process) else { return };
        // Stopped first, so that it starts no more children and reaps none, whose PIDs could be reused.
        let _ = pidfd::send_signal(&handle, libc::SIGSTOP);
        for child in children(self.process.pid) {
            if let Ok(Some(child)) = pidfd::identify(child).and_then(pidfd::open) {
                let _ = pidfd::send_signal(child, libc::SIGKILL);
            }
        }
        let _ = pidfd::send_signal(&handle, libc::SIGKILL);
    }
}

fn children(pid: u32) -> BTreeSet<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::directory;

    #[test]
    fn a_shim_is_recognised_by_its_arguments() {
        let found = directory(b"/proc/self/fd/9\0shim\0/run/keelet/runtime/sandboxes/abc\0");
        assert_eq!(found.as_deref(), Some(Path::new("/run/keelet/runtime/sandboxes/abc")));
        for other in [
            &b"/proc/self/fd/9\0shim\0/run/keelet/runtime/sandboxes/abc"[..],
            b"keelet\0shim\0sandboxes/abc\0",
            b"keelet\0shim\0/run/abc\0",
            b"keelet\0shim\0/run/sandboxes/abc\0more\0",
            b"grep\0keelet\0shim\0/run/sandboxes/abc\0",
            b"keelet\0shim\0",
            b"",
        ] {
            assert_eq!(directory(other), None, "{:?}", String::from_utf8_lossy(other));
        }
    }
}
