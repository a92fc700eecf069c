//! mount_setattr(2).

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// `struct mount_attr`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct MountAttr {
    pub(crate) set: u64,
    pub(crate) clear: u64,
    pub(crate) propagation: u64,
    pub(crate) user_namespace: u64,
}

/// Changes a mount, and with `recursive` all mounts below it.
pub(crate) fn set_attributes(mount: BorrowedFd<'_>, attributes: &MountAttr, recursive: bool) -> io::Result<()> {
    const RECURSIVE: libc::c_int = 0x8000;
    let flags = libc::AT_EMPTY_PATH | if recursive { RECURSIVE } else { 0 };
    // SAFETY: the kernel reads as many bytes of the structure as the last argument says.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<MountAttr>(),
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
