//! An executable that a container cannot write to.
//!
//! A process that creates a container runs our own executable inside the container until it executes the container's command, and a
//! container can make `/proc/self/exe` its command. Root in the container could then write to our executable and own the node
//! (CVE-2019-5736). So the shim is started from a read-only mount of the executable that is in no mount namespace: it costs no memory,
//! cannot be remounted, and opening it for writing fails for every process.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::mount::{Attributes, READ_ONLY, detached, set_attributes};

/// The executable on a read-only detached mount. To be executed as `/proc/self/fd/<descriptor>`.
pub fn sealed(path: &Path) -> io::Result<OwnedFd> {
    // A link of procfs cannot be cloned as a mount; its target can.
    let file = fs::canonicalize(path)?;
    let mount = detached(&file, false)?;
    set_attributes(mount.as_fd(), &Attributes { set: READ_ONLY, propagation: 0, recursive: false })?;
    // The descriptor of a mount is O_PATH; a file that is opened through procfs stays on that mount.
    let through = format!("/proc/self/fd/{}", mount.as_raw_fd());
    Ok(openat(CWD, through, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, OpenOptions},
        io::ErrorKind,
        os::fd::AsRawFd,
        os::unix::fs::PermissionsExt,
        process::Command,
    };

    use super::sealed;

    #[test]
    fn a_sealed_executable_can_be_run_and_not_written() {
        if !rustix::process::geteuid().is_root() {
            return keelet_report::skipped("it needs root");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("program");
        fs::copy("/bin/true", &path).expect("copied");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
        let file = sealed(&path).expect("sealed");
        let through = format!("/proc/self/fd/{}", file.as_raw_fd());
        let error = OpenOptions::new().write(true).open(&through).expect_err("must not open");
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
        // Without the seal it could be written.
        OpenOptions::new().write(true).open(&path).expect("the file itself is not read-only");
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("inherited");
        assert!(Command::new(&through).status().expect("runs").success());
    }
}
