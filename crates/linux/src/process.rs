//! Small things that a forked process does.

use std::{fs, io};

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use rustix::{
    fs::Mode,
    process::{WaitOptions, umask, wait},
};

/// How the killer of processes is told to spare a shim and what holds the pod together, as far as that is allowed.
pub const OOM_SCORE: i32 = -998;
const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// What everybody else's containers start with.
const USUAL_UMASK: u32 = 0o022;

/// Lets go of what a container must not inherit: signals that are blocked or ignored, the mask for new files, and keys.
///
/// The shim blocks some signals, Rust ignores SIGPIPE, and whoever started the server may have ignored more. The kernel's keys of a
/// session are the node's, and anybody in the session may read them.
pub fn start_afresh() -> io::Result<()> {
    // The kernel's own structure: handler, flags, restorer, mask. All zero is the usual action.
    const USUAL: [u64; 4] = [0; 4];
    for signal in 1..=64 {
        // The C library would refuse those that it keeps for itself; and two cannot be changed, which is as good.
        #[expect(unsafe_code, reason = "the usual action runs no code of ours")]
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, USUAL.as_ptr(), std::ptr::null::<u64>(), size_of::<u64>());
        }
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    umask(Mode::from_raw_mode(USUAL_UMASK));
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    #[expect(unsafe_code, reason = "no name is given, so the kernel reads nothing")]
    let joined = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) };
    match io::Error::last_os_error() {
        // A kernel without keys has none to share.
        error if joined < 0 && error.raw_os_error() != Some(libc::ENOSYS) => {
            Err(io::Error::new(error.kind(), format!("no keyring for a new session: {error}")))
        }
        _ => Ok(()),
    }
}

/// Who is killed first when memory is short. Root without CAP_SYS_RESOURCE may only raise its own, so what cannot be
/// lowered stays as it is.
pub fn set_oom_score(score: i32) -> io::Result<()> {
    match fs::write(OOM_SCORE_FILE, score.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

/// Why a process of ours cannot be spared when memory is short; none if it can. What it takes is not one's own to know: in
/// a user namespace everybody has the capability, and it counts for nothing. So it is tried, and taken back.
pub fn not_spared() -> Option<io::Error> {
    let before = fs::read_to_string(OOM_SCORE_FILE).ok()?;
    let tried = fs::write(OOM_SCORE_FILE, OOM_SCORE.to_string());
    let restored = fs::write(OOM_SCORE_FILE, before.trim());
    tried.and(restored).err()
}

/// A child that has ended, and its wait status.
pub fn reap() -> Option<(u32, i32)> {
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
pub fn fork(child: impl FnOnce() -> i32) -> io::Result<u32> {
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
pub fn exit(code: i32) -> ! {
    #[expect(unsafe_code, reason = "_exit runs no code of ours")]
    unsafe {
        libc::_exit(code)
    }
}
