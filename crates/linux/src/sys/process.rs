//! fork(2), _exit(2), signal actions, keyrings and descriptors of the calling process.

use std::io;

use nix::unistd::ForkResult;

/// Forks. The answer is the PID of the child, or none in the child.
///
/// # Errors
///
/// Also if this process has more than one thread: the child would have only this one, and the locks that the others held.
pub(crate) fn fork() -> io::Result<Option<u32>> {
    if !is_single_threaded()? {
        let message = "fork in a process with several threads: the child could wait for a lock for ever";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // SAFETY: the process has a single thread, so the child is as complete as the parent.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Some(child.as_raw().unsigned_abs())),
        ForkResult::Child => Ok(None),
    }
}

/// The kernel "unshares" a thread group only where there is nothing to unshare. Unlike `/proc` it also answers where no `/proc` is
/// mounted.
fn is_single_threaded() -> io::Result<bool> {
    // SAFETY: with this flag alone unshare(2) changes nothing.
    match unsafe { libc::unshare(libc::CLONE_THREAD) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            error => Err(error),
        },
    }
}

/// Exits without running destructors or exit handlers, which belong to the process that this one was forked from.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: _exit runs no code of this process.
    unsafe { libc::_exit(code) }
}

/// Sets the default action for every signal.
pub(crate) fn reset_signal_actions() {
    // The kernel's own structure: handler, flags, restorer, mask. All zero is SIG_DFL.
    const DEFAULT: [u64; 4] = [0; 4];
    for signal in 1..=64 {
        // By system call, because the C library refuses the signals that it keeps for itself. SIGKILL and SIGSTOP cannot be changed,
        // and always have the default action.
        // SAFETY: the kernel reads a structure of the size that its interface has; the default action runs no code of this process.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT.as_ptr(), std::ptr::null::<u64>(), size_of::<u64>());
        }
    }
}

/// Joins a new, empty session keyring. A kernel without keyrings has none to leave.
pub(crate) fn new_session_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: without a name the kernel reads no memory of this process.
    let joined = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) };
    match io::Error::last_os_error() {
        error if joined < 0 && error.raw_os_error() != Some(libc::ENOSYS) => Err(error),
        _ => Ok(()),
    }
}

/// Marks every descriptor after standard error to be closed by execve(2).
pub(crate) fn close_on_exec_after_stderr() {
    // SAFETY: marks descriptors and closes none.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed());
    }
}

/// Closes every descriptor and waits to be killed, while the kernel reaps all children.
pub(crate) fn close_all_and_wait() -> ! {
    // SAFETY: no code of this process uses a descriptor from here on, and no signal handler runs.
    unsafe {
        // The kernel reaps the children of a process that ignores SIGCHLD, orphans that it inherited as well.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::close_range(0, libc::c_uint::MAX, 0);
        loop {
            libc::pause();
        }
    }
}
