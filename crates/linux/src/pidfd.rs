//! Processes that need not be children of this one, through pidfds.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    sync::OnceLock,
};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::{BootId, ProcessRef, is_resource_shortage, sys};

/// A pidfd of the process; none if the process is gone or its PID was reused. The process may have exited and not been reaped yet.
///
/// # Errors
///
/// Only if the node has run out of something, which says nothing about the process.
pub fn open(process: ProcessRef) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    let opened = pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(io::Error::from);
    // Identified after it was opened: the PID of an open pidfd is not reused.
    match opened.and_then(|pidfd| Ok((pidfd, identify(process.pid)?))) {
        Ok((pidfd, found)) => Ok(found.is_same(process).then_some(pidfd)),
        Err(error) if is_resource_shortage(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// The process that has this PID now.
pub fn identify(pid: u32) -> io::Result<ProcessRef> {
    Ok(ProcessRef { pid, ticks: start_ticks(pid)?, boot: boot() })
}

/// The ID of this boot; none if it cannot be read, so that processes are distinguished by their start times alone.
pub fn boot() -> Option<BootId> {
    static BOOT: OnceLock<Option<BootId>> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        BootId::try_from(text.trim().to_owned()).ok()
    })
}

/// When a process was started, in clock ticks since the boot: field 22 of its `stat`.
fn start_ticks(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    ticks_in(&stat).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat has no start time: {stat:?}"))
    })
}

/// The name of a process may contain spaces and brackets, so the fields are counted from the last bracket.
fn ticks_in(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Whether the process has exited.
pub fn has_exited(pidfd: impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
}

/// Sends a signal to the process, and never to a later one with the same PID.
pub fn send_signal(pidfd: impl AsFd, signal: i32) -> io::Result<()> {
    if !(1..=64).contains(&signal) {
        let message = format!("invalid signal {signal}: must be 1 to 64");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    sys::pidfd::send_signal(pidfd.as_fd(), signal)
}

/// The wait status of a process that need not be a child of this one. None before Linux 6.15, before its parent has reaped it, or if no
/// pidfd of it was open when it was reaped.
pub fn wait_status(pidfd: impl AsFd) -> Option<i32> {
    sys::pidfd::wait_status(pidfd.as_fd())
}

/// The exit code in a wait status as shells write it: the code, or 128 plus the signal.
pub fn exit_code(wait_status: i32) -> i32 {
    match wait_status & 0x7f {
        0 => (wait_status >> 8) & 0xff,
        signal => 128 + signal,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{exit_code, has_exited, identify, open, ticks_in, wait_status};
    use crate::{BootId, ProcessRef};

    #[test]
    fn the_start_time_is_found_behind_any_process_name() {
        let fields = (4..=30).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(ticks_in(&format!("7 (a) b) c) S {fields}")), Some(22));
        assert_eq!(ticks_in("7 (cut"), None);
    }

    #[test]
    fn exit_codes_are_written_as_shells_write_them() {
        assert_eq!(exit_code(7 << 8), 7);
        assert_eq!(exit_code(9), 137);
        assert_eq!(exit_code(9 | 0x80), 137, "with a core");
    }

    #[test]
    fn a_pidfd_is_opened_only_for_the_same_process() {
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().expect("sh");
        let process = identify(child.id()).expect("there until it is reaped");
        let found = |process| open(process).expect("the node has descriptors");
        assert!(found(ProcessRef { ticks: process.ticks + 1, ..process }).is_none());
        let boot = BootId::try_from("1".repeat(32)).expect("a boot ID");
        assert!(
            found(ProcessRef { boot: Some(boot), ..process }).is_none(),
            "the same PID and start time after another boot"
        );
        assert!(found(ProcessRef { boot: None, ..process }).is_some(), "written by an earlier version");
        let pidfd = found(process).expect("the same process");
        let status = child.wait().expect("it exits");
        assert!(has_exited(&pidfd));
        assert_eq!(status.code(), Some(7));
        if let Some(status) = wait_status(&pidfd) {
            assert_eq!(exit_code(status), 7);
        } else {
            keelet_report::skipped("only a parent gets the exit code before Linux 6.15");
        }
        assert!(found(process).is_none(), "the process was reaped and its PID is free");
    }
}
