//! Killing all processes of a cgroup.
//!
//! A list of PIDs is out of date once it has been read: processes may have exited, their PIDs may be reused, and they may have forked
//! others. On cgroup v2 the kernel kills a whole cgroup atomically since Linux 5.14. Otherwise the cgroup is frozen while its processes are
//! listed and killed: a frozen process neither forks nor exits, so the list stays correct. Where a cgroup cannot be frozen, processes are
//! killed through pidfds, and only those that are still listed after their pidfds were opened.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Mounts;

/// Each round kills the processes that the round before missed.
const ROUNDS: usize = 100;
/// How often the state is read until a cgroup is frozen. A process that waits for a disk without an answer never freezes.
const FREEZE_POLLS: usize = 100;
const FREEZE_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Pidfds that are open at once: below any limit of open files.
const AT_ONCE: usize = 128;

/// A frozen cgroup, thawed on drop.
struct Frozen {
    file: PathBuf,
    thawed: &'static str,
}

// === impl Mounts ===

impl Mounts {
    /// Kills all processes of a cgroup, also those that are forked meanwhile.
    pub fn kill(&self, cgroup: &str) {
        let killed = self.kill_atomically(cgroup);
        for _ in 0..ROUNDS {
            if self.processes(cgroup).is_empty() {
                return;
            }
            if !killed {
                // Thawed at the end of each round: frozen processes do not exit.
                let _frozen = self.freeze(cgroup);
                self.kill_each(cgroup);
            }
            std::thread::yield_now();
        }
    }

    /// Kills all of them atomically; false if the kernel cannot.
    fn kill_atomically(&self, cgroup: &str) -> bool {
        let Self::V2(point) = self else { return false };
        let file = point.join(cgroup.trim_start_matches('/')).join("cgroup.kill");
        fs::OpenOptions::new().write(true).open(file).and_then(|mut file| file.write_all(b"1")).is_ok()
    }

    /// Freezes a cgroup, if it has a freezer.
    fn freeze(&self, cgroup: &str) -> Option<Frozen> {
        let (name, frozen, thawed) = match self {
            Self::V1(_) => ("freezer.state", "FROZEN", "THAWED"),
            Self::V2(_) => ("cgroup.freeze", "1", "0"),
        };
        let directory = self.directory("freezer", cgroup)?;
        let file = directory.join(name);
        fs::OpenOptions::new().write(true).open(&file).and_then(|mut file| file.write_all(frozen.as_bytes())).ok()?;
        let guard = Frozen { file, thawed };
        let is_frozen = || match self {
            Self::V1(_) => fs::read_to_string(&guard.file).map(|state| state.trim() == frozen),
            Self::V2(_) => fs::read_to_string(directory.join("cgroup.events"))
                .map(|events| super::field(&events, "frozen") == Some(1)),
        };
        for _ in 0..FREEZE_POLLS {
            // A cgroup that is gone needs no freezing.
            if is_frozen().unwrap_or(true) {
                break;
            }
            std::thread::sleep(FREEZE_POLL_INTERVAL);
        }
        Some(guard)
    }

    fn kill_each(&self, cgroup: &str) {
        for some in self.processes(cgroup).chunks(AT_ONCE) {
            let open = |pid: &u32| {
                let pid = Pid::from_raw(i32::try_from(*pid).ok()?)?;
                Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?))
            };
            let handles: Vec<_> = some.iter().filter_map(open).collect();
            let still: BTreeSet<_> = self.processes(cgroup).into_iter().collect();
            for (pid, handle) in handles {
                if still.contains(&pid.as_raw_nonzero().get().unsigned_abs()) {
                    // An error means that it has exited.
                    let _ = pidfd_send_signal(handle, Signal::KILL);
                }
            }
        }
    }
}

// === impl Frozen ===

impl Drop for Frozen {
    fn drop(&mut self) {
        let thaw = || -> io::Result<()> {
            fs::OpenOptions::new().write(true).open(&self.file)?.write_all(self.thawed.as_bytes())
        };
        // An error means that the cgroup is gone.
        let _ = thaw();
    }
}
