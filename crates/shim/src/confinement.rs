//! The privileges of a process in a container: capabilities, user, system call filter.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use keelet_linux::{capabilities, null_device::is_null_device, seccomp};
use oci_spec::runtime::{LinuxCapabilities, Process, Spec, User};

/// The privileges of a process.
#[derive(Clone, Debug)]
pub(crate) struct Confinement {
    capabilities: LinuxCapabilities,
    filter: Option<seccomp::Program>,
    no_new_privileges: bool,
}

/// A configuration that cannot be enforced.
#[derive(Debug, thiserror::Error)]
#[error("cannot enforce the seccomp profile: {0}")]
pub(crate) struct ConfinementError(#[from] seccomp::Error);

// === impl Confinement ===

impl Confinement {
    /// The privileges in a configuration; an error if any of it cannot be enforced.
    pub(crate) fn of(spec: &Spec, process: &Process) -> Result<Self, ConfinementError> {
        let profile = spec.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
        let filter = profile.map(seccomp::compile).transpose()?;
        Ok(Self {
            // A configuration without capabilities allows none.
            capabilities: process.capabilities().clone().unwrap_or_else(no_capabilities),
            filter,
            no_new_privileges: process.no_new_privileges().unwrap_or(false),
        })
    }

    /// Confines this process, which has switched to its user already.
    pub(crate) fn apply(&self) -> io::Result<()> {
        self.with_filter(|| {
            if self.no_new_privileges {
                rustix::thread::set_no_new_privs(true)?;
            }
            capabilities::apply(&self.capabilities)
        })
    }

    /// Confines this process and switches to a user.
    pub(crate) fn become_user(&self, user: &User) -> io::Result<()> {
        let groups = user.additional_gids().clone().unwrap_or_default();
        self.with_filter(|| {
            capabilities::become_user(user.uid(), user.gid(), &groups, &self.capabilities, self.no_new_privileges)
        })
    }

    /// With no_new_privs any process may load a filter, so it is loaded last and need not allow the steps before it. Without it, loading
    /// takes a capability, so it is loaded first.
    fn with_filter(&self, drop_privileges: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let load = || self.filter.as_ref().map_or(Ok(()), seccomp::load);
        if self.no_new_privileges {
            drop_privileges()?;
            load()
        } else {
            load()?;
            drop_privileges()
        }
    }
}

/// Five empty sets.
pub(crate) fn no_capabilities() -> LinuxCapabilities {
    capabilities::to_oci(&BTreeSet::new(), &BTreeSet::new())
}

/// Makes the user the owner of standard input, output and error, so that the command may reopen them by name. This process still has all
/// privileges.
pub(crate) fn own_stdio(uid: u32) -> io::Result<()> {
    [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()]
        .into_iter()
        .try_for_each(|fd| own(fd, uid))
}

/// Makes the user the owner of the file behind one descriptor.
pub(crate) fn own(fd: BorrowedFd<'_>, uid: u32) -> io::Result<()> {
    // A null device is usable by all users, and may be the node's.
    if rustix::fs::fstat(fd)?.st_uid == uid || is_null_device(fd.as_fd())? {
        return Ok(());
    }
    match rustix::fs::fchown(fd, Some(rustix::fs::Uid::from_raw(uid)), None) {
        // Sockets and files of some file systems cannot change owners.
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM | rustix::io::Errno::ROFS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
