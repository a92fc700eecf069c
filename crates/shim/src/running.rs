//! The running shims of this node, found in its process table: also those whose directories are gone.
//!
//! An empty state directory does not prove that no pods run: it may be another directory than before, or on a file system that is not
//! mounted. A shim has the directory of its sandbox in its arguments.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use keelet_linux::{ProcessRef, is_resource_shortage, pidfd};

/// The argument that starts the program as a shim; the directory of the sandbox follows it.
pub const ARGUMENT: &str = "shim";

/// The name of the directory of all sandboxes.
pub const SANDBOXES: &str = "sandboxes";

/// The bits in the mode of a program that runs as its owner or group, whichever user starts it.
const SETUID_OR_SETGID: u32 = 0o6000;

/// A running shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningShim {
    /// Its process.
    pub process: ProcessRef,
    /// The directory of its sandbox, which may have been removed.
    pub dir: PathBuf,
}

/// The running shims in the mount namespace of this process, and of its user. A container has a mount namespace of its own, so its
/// processes cannot pass for a shim, and neither can those of other users, who choose the arguments of their processes.
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
    if fs::read_link(process.join("ns/mnt"))? != mounts || !is_of_this_user(&process)? {
        return Ok(None);
    }
    Ok(Some(RunningShim { process: pidfd::identify(pid)?, dir }))
}

/// Whether this user has started a process, so that its arguments are this user's too. Any user can start a setuid program with arguments
/// of their own, and some of these programs then change all their user IDs: such a program is never a shim.
fn is_of_this_user(process: &Path) -> io::Result<bool> {
    let status = fs::read_to_string(process.join("status"))?;
    let own = rustix::process::geteuid().as_raw().to_string();
    // Real, effective, saved and file system.
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let is_own = uids.split_whitespace().count() == 4 && uids.split_whitespace().all(|uid| uid == own);
    Ok(is_own && fs::metadata(process.join("exe"))?.mode() & SETUID_OR_SETGID == 0)
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
    use std::{
        fs,
        os::unix::{fs::PermissionsExt, process::CommandExt},
        path::Path,
        process::{Child, Command},
    };

    use super::{directory, running_shims};

    /// A process that is killed with this value.
    struct Process(Child);

    impl Drop for Process {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// DIR-10: any user can start a process that looks like a shim, and can choose the directory.
    #[test]
    fn a_process_of_another_user_is_no_shim() {
        if !rustix::process::geteuid().is_root() {
            keelet_report::skipped("processes of another user need root");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let sandbox = place.path().join("sandboxes/abc");
        fs::create_dir_all(sandbox.parent().unwrap()).unwrap();
        // A program that waits for as long as no process writes to its input, whatever its first argument is.
        rustix::fs::mkfifoat(rustix::fs::CWD, &sandbox, rustix::fs::Mode::from_raw_mode(0o644)).unwrap();
        let setuid = place.path().join("setuid");
        fs::copy("/bin/grep", &setuid).unwrap();
        fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
        let is_shim = |program: &Path, user: u32| {
            let process =
                Process(Command::new(program).args(["shim".as_ref(), sandbox.as_os_str()]).uid(user).spawn().unwrap());
            // The new program has replaced the one that was forked before `spawn` returns.
            running_shims().unwrap().iter().any(|shim| shim.process.pid == process.0.id())
        };
        let grep = Path::new("/bin/grep");
        assert!(is_shim(grep, 0), "a process of this user with the arguments of a shim");
        assert!(!is_shim(grep, 65534), "a process of another user");
        assert!(!is_shim(&setuid, 65534), "a setuid program that another user has started");
        assert!(!is_shim(&setuid, 0), "a setuid program that has changed all its user IDs");
    }

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
