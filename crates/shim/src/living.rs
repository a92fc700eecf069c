//! Which shims run on this machine, as its processes show: also those of whose directories nothing is left.
//!
//! A server that finds an empty directory cannot know by it that no pods run: the directory may be another one than usual, or
//! be on a file system that is not mounted. Shims carry the directory of their sandbox in their arguments.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use keelet_linux::pidfd::{self, ProcessRef, is_shortage};

/// The argument that makes a shim of the program; the directory of the sandbox follows it.
pub const ARGUMENT: &str = "shim";

/// The directory that the directories of sandboxes are in.
pub const SANDBOXES: &str = "sandboxes";

/// A shim that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Living {
    /// Its process.
    pub process: ProcessRef,
    /// The directory of its sandbox, which may be gone.
    pub dir: PathBuf,
}

/// The shims that run and have this process's mounts. What a container runs has mounts of its own, so no container can pass for
/// a shim.
///
/// # Errors
///
/// When it cannot be said which processes there are: that never means that there are none.
pub fn living() -> io::Result<Vec<Living>> {
    let mounts = fs::read_link("/proc/self/ns/mnt")?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        match shim(pid, &mounts) {
            Ok(shim) => found.extend(shim),
            Err(error) if is_shortage(&error) => return Err(error),
            // It has ended since.
            Err(_) => {}
        }
    }
    Ok(found)
}

fn shim(pid: u32, mounts: &Path) -> io::Result<Option<Living>> {
    let process = Path::new("/proc").join(pid.to_string());
    let Some(dir) = directory(&fs::read(process.join("cmdline"))?) else { return Ok(None) };
    if fs::read_link(process.join("ns/mnt"))? != mounts {
        return Ok(None);
    }
    Ok(Some(Living { process: pidfd::identify(pid)?, dir }))
}

/// The directory in the arguments of a shim; none if they are not those of a shim.
fn directory(arguments: &[u8]) -> Option<PathBuf> {
    let mut arguments = arguments.strip_suffix(b"\0")?.split(|byte| *byte == 0).skip(1);
    let (argument, dir) = (arguments.next()?, Path::new(std::ffi::OsStr::from_bytes(arguments.next()?)));
    let is_shim = argument == ARGUMENT.as_bytes() && arguments.next().is_none();
    let in_place = dir.is_absolute() && dir.parent()?.file_name()? == SANDBOXES;
    (is_shim && in_place).then(|| dir.to_owned())
}

// === impl Living ===

impl Living {
    /// The ID of its sandbox.
    pub fn sandbox(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether its sandbox is one of that directory, by this name of it or another.
    pub fn is_in(&self, sandboxes: &Path) -> bool {
        let Some(parent) = self.dir.parent() else { return false };
        let real = |path: &Path| fs::canonicalize(path).ok();
        parent == sandboxes || real(parent).is_some_and(|real_parent| real(sandboxes) == Some(real_parent))
    }

    /// Kills it and its children: the process that holds the pod's namespaces, and the first processes of containers.
    pub fn kill(&self) {
        let Ok(Some(handle)) = pidfd::open(self.process) else { return };
        // Stopped first, so that it makes no more of them, and reaps none, whose number could become another's.
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
    fn a_shim_is_known_by_its_arguments() {
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
