//! Processes that somebody else started.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::OnceLock,
};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

/// A process that can be told from a later one with the same PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRef {
    /// Its PID.
    pub pid: u32,
    /// When it was started, in clock ticks since the boot.
    pub ticks: u64,
    /// That boot. None was written by a version that did not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootId>,
}

/// The kernel's own name for a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BootId(u128);

/// Whether an error says nothing about what was asked for, only that the node has no more of something. Who takes it for an
/// answer ends what runs.
pub fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// A handle on the process, if it is still the one that is meant. It may have ended and not been reaped yet. An error if
/// there is none to be had just now, whatever became of the process.
pub fn open(process: ProcessRef) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    let opened = pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(io::Error::from);
    // Asked after it was opened: the PID can have been given to another only before.
    match opened.and_then(|handle| Ok((handle, identify(process.pid)?))) {
        Ok((handle, found)) => Ok(found.is_same(process).then_some(handle)),
        Err(error) if is_shortage(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// The process with that PID, as it is now.
pub fn identify(pid: u32) -> io::Result<ProcessRef> {
    Ok(ProcessRef { pid, ticks: start_ticks(pid)?, boot: boot() })
}

/// This boot, if it can be told: without it, processes are told apart by their start alone.
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
    ticks_in(&stat)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat cannot be read")))
}

/// The name of a process may contain spaces and brackets, so what counts begins after the last one.
fn ticks_in(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Whether the process has ended.
pub fn has_ended(handle: impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(&handle, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
}

/// Sends a signal to the process and to no later one with its number.
pub fn send_signal(handle: impl AsFd, signal: i32) -> io::Result<()> {
    if !(1..=64).contains(&signal) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{signal} is not a signal")));
    }
    // Not through a list of names: real-time signals have none, and images ask for them.
    let no_info = std::ptr::null::<libc::siginfo_t>();
    #[expect(unsafe_code, reason = "the kernel reads nothing of ours: there is no further information")]
    let answer =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle.as_fd().as_raw_fd(), signal, no_info, 0_u32) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `struct pidfd_info` as of Linux 6.15.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup_id: u64,
    numbers: [u32; 11],
    exit_code: i32,
}

const INFO_EXIT: u64 = 1 << 3;

/// How a process ended, told to somebody who need not be its parent: a wait status. None before Linux 6.15, before its
/// parent has reaped it, or if nobody held a handle on it when it was reaped.
pub fn wait_status(handle: impl AsFd) -> Option<i32> {
    const { assert!(size_of::<Info>() == 64) };
    let mut info = Info { mask: INFO_EXIT, ..Info::default() };
    // _IOWR(0xFF, 11, struct pidfd_info)
    let request: libc::c_ulong = (3 << 30) | ((size_of::<Info>() as libc::c_ulong) << 16) | (0xff << 8) | 11;
    #[expect(unsafe_code, reason = "the kernel fills in a structure of the size that is part of the request")]
    let answer = unsafe { libc::ioctl(handle.as_fd().as_raw_fd(), request as _, &raw mut info) };
    (answer == 0 && info.mask & INFO_EXIT != 0).then_some(info.exit_code)
}

/// The code of a wait status, as everybody writes it: the exit code, or 128 and the signal.
pub fn exit_code(wait_status: i32) -> i32 {
    match wait_status & 0x7f {
        0 => (wait_status >> 8) & 0xff,
        signal => 128 + signal,
    }
}

// === impl ProcessRef ===

impl ProcessRef {
    /// Whether both mean one process, as far as both say.
    pub fn is_same(self, other: Self) -> bool {
        let boots = self.boot.zip(other.boot);
        (self.pid, self.ticks) == (other.pid, other.ticks) && boots.is_none_or(|(one, other)| one == other)
    }
}

// === impl BootId ===

impl TryFrom<String> for BootId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits: String = text.chars().filter(|letter| *letter != '-').collect();
        match u128::from_str_radix(&digits, 16) {
            Ok(number) if digits.len() == 32 => Ok(Self(number)),
            _ => Err(format!("{text:?} is not a boot ID: 32 hexadecimal digits")),
        }
    }
}

impl From<BootId> for String {
    fn from(BootId(number): BootId) -> Self {
        let text = format!("{number:032x}");
        [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{BootId, ProcessRef, exit_code, has_ended, identify, open, ticks_in, wait_status};

    #[test]
    fn a_process_of_another_boot_is_another_one() {
        const ONE: &str = r#"{"pid":7,"ticks":99,"boot":"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"}"#;
        let one: ProcessRef = serde_json::from_str(ONE).expect("read");
        assert_eq!(serde_json::to_string(&one).expect("written"), ONE);
        let boot = BootId::try_from("00000000-0000-0000-0000-000000000001".to_owned()).expect("a boot ID");
        let other = ProcessRef { boot: Some(boot), ..one };
        assert!(one.is_same(one) && !one.is_same(other));
        assert!(!one.is_same(ProcessRef { ticks: 98, ..one }) && !one.is_same(ProcessRef { pid: 8, ..one }));
        // As it was written before there were boots in it: what runs is still known after an upgrade.
        let older: ProcessRef = serde_json::from_str(r#"{"pid":7,"ticks":99}"#).expect("read");
        assert!(older.is_same(one) && one.is_same(older));
        let error = serde_json::from_str::<ProcessRef>(r#"{"pid":7,"ticks":99,"boot":"0f1e"}"#).expect_err("too short");
        assert!(error.to_string().contains("\"0f1e\" is not a boot ID"), "{error}");
    }

    #[test]
    fn the_time_of_a_start_is_found_behind_any_name() {
        let fields = (4..=30).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(ticks_in(&format!("7 (a) b) c) S {fields}")), Some(22));
        assert_eq!(ticks_in("7 (cut"), None);
    }

    #[test]
    fn codes_are_written_as_shells_write_them() {
        assert_eq!(exit_code(7 << 8), 7);
        assert_eq!(exit_code(9), 137);
        assert_eq!(exit_code(9 | 0x80), 137, "with a core");
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    fn a_handle_is_for_one_process_only() {
        let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().expect("sh");
        let process = identify(child.id()).expect("there until it is reaped");
        let found = |process| open(process).expect("it can be asked");
        assert!(found(ProcessRef { ticks: process.ticks + 1, ..process }).is_none());
        let boot = BootId::try_from("1".repeat(32)).expect("a boot ID");
        assert!(
            found(ProcessRef { boot: Some(boot), ..process }).is_none(),
            "the same PID and start after another boot"
        );
        assert!(found(ProcessRef { boot: None, ..process }).is_some(), "written by an earlier version");
        let handle = found(process).expect("the same");
        let status = child.wait().expect("ended");
        assert!(has_ended(&handle));
        assert_eq!(status.code(), Some(7));
        // Kernels before 6.15 do not tell.
        if let Some(status) = wait_status(&handle) {
            assert_eq!(exit_code(status), 7);
        } else {
            println!("skipped: this kernel tells an exit code to parents only");
        }
        assert!(found(process).is_none(), "its number is free now");
    }
}
