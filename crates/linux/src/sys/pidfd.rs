//! pidfd_send_signal(2) and the ioctl of a pidfd.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// `struct pidfd_info` as of Linux 6.15.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup_id: u64,
    ids: [u32; 11],
    exit_code: i32,
}

const INFO_EXIT: u64 = 1 << 3;

/// Sends a signal. rustix takes named signals only, and images ask for real-time signals as well.
pub(crate) fn send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: without additional information the kernel reads no memory of this process.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, no_info, 0_u32) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The wait status of a process that was reaped; none before that, or on kernels before 6.15.
pub(crate) fn wait_status(pidfd: BorrowedFd<'_>) -> Option<i32> {
    const { assert!(size_of::<Info>() == 64) };
    let mut info = Info { mask: INFO_EXIT, ..Info::default() };
    // _IOWR(0xFF, 11, struct pidfd_info)
    let request: libc::c_ulong = (3 << 30) | ((size_of::<Info>() as libc::c_ulong) << 16) | (0xff << 8) | 11;
    // SAFETY: the size of the structure that the kernel fills in is part of the request.
    let answer = unsafe { libc::ioctl(pidfd.as_raw_fd(), request as _, &raw mut info) };
    (answer == 0 && info.mask & INFO_EXIT != 0).then_some(info.exit_code)
}
