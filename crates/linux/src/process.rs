//! Forking, reaping, and what a process inherits from its parent.

use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use rustix::{
    fs::Mode,
    process::{WaitOptions, umask, wait},
};

use crate::sys;

/// What other container runtimes start containers with.
const DEFAULT_UMASK: u32 = 0o022;

/// Forks a process that runs `child` and exits with its code. The answer is the PID of that process.
///
/// # Errors
///
/// When the kernel refuses, or when this process has more than one thread: the child would have only one, and could wait for ever for a
/// lock that another thread held.
pub fn fork(child: impl FnOnce() -> i32) -> io::Result<u32> {
    match sys::process::fork()? {
        Some(pid) => Ok(pid),
        None => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(101);
            sys::process::exit(code)
        }
    }
}

/// A child that has exited, and its wait status; none if no child has exited that was not reaped before.
pub fn reap() -> Option<(u32, i32)> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => return Some((pid.as_raw_nonzero().get().unsigned_abs(), status.as_raw())),
            Err(rustix::io::Errno::INTR) => {}
            _ => return None,
        }
    }
}

/// Resets what a container must not inherit: ignored and blocked signals, the umask, and the session keyring.
///
/// The shim blocks some signals, Rust ignores SIGPIPE, and the parent of the agent may have ignored more. The keys of a session are the
/// node's, and every process in the session may read them.
pub fn reset_inherited_state() -> io::Result<()> {
    sys::process::reset_signal_actions();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    umask(Mode::from_raw_mode(DEFAULT_UMASK));
    sys::process::new_session_keyring()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot join a new session keyring: {error}")))
}

/// Marks every descriptor after standard error to be closed when the process executes a program.
pub fn close_on_exec_after_stderr() {
    sys::process::close_on_exec_after_stderr();
}

/// Closes every descriptor and waits to be killed. Children, and orphans that this process inherits, are reaped by the kernel.
pub fn close_all_and_wait() -> ! {
    sys::process::close_all_and_wait()
}

#[cfg(test)]
mod tests {
    use super::fork;

    /// The test harness runs tests on threads.
    #[test]
    fn a_process_with_threads_is_not_forked() {
        let error = std::thread::spawn(|| fork(|| 0)).join().expect("no panic").expect_err("this process has threads");
        assert!(error.to_string().contains("several threads"), "{error}");
    }
}
