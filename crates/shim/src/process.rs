//! Small things that a forked process does.

use std::{io, time::SystemTime};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use rustix::process::{WaitOptions, wait};

/// The time in nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Signals as a program expects to find them. The shim blocks some and Rust ignores SIGPIPE; both are inherited.
pub(crate) fn reset_signals() -> io::Result<()> {
    let usual = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    #[expect(unsafe_code, reason = "the usual action runs no code of ours")]
    unsafe {
        sigaction(Signal::SIGPIPE, &usual)?;
    }
    Ok(sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?)
}

/// Who is killed first when memory is short. Root without CAP_SYS_RESOURCE may only raise its own, so what cannot be
/// lowered stays as it is.
pub(crate) fn set_oom_score(score: i32) -> io::Result<()> {
    match std::fs::write("/proc/self/oom_score_adj", score.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

/// A child that has ended, and its wait status.
pub(crate) fn reap() -> Option<(u32, i32)> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => return Some((pid.as_raw_nonzero().get().unsigned_abs(), status.as_raw())),
            Err(rustix::io::Errno::INTR) => {}
            _ => return None,
        }
    }
}

/// Forks. Only for a process with one thread: the child may then do whatever the parent could.
///
/// `child` must not return; if it does the process ends with its code.
pub(crate) fn fork(child: impl FnOnce() -> i32) -> io::Result<u32> {
    #[expect(unsafe_code, reason = "the shim has one thread, so the child is as whole as the parent")]
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => Ok(child.as_raw().unsigned_abs()),
        nix::unistd::ForkResult::Child => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(101);
            exit(code)
        }
    }
}

/// Ends this process without running anything on the way out: that is its parent's business.
pub(crate) fn exit(code: i32) -> ! {
    #[expect(unsafe_code, reason = "_exit runs no code of ours")]
    unsafe {
        libc::_exit(code)
    }
}

/// An error and what it came from, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some repeat their cause in their own words.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
