//! Killing all that is in a cgroup.
//!
//! A list of processes is out of date when it has been read: those in it may have exited and their PIDs may be reused, and they may have
//! forked others. The kernel kills a whole cgroup at once on the second generation from 5.14 on. Otherwise the cgroup is frozen while its
//! processes are listed and killed: what is frozen neither forks nor exits, so the list is right. Where it cannot be frozen, processes
//! are killed through pidfds, and only those that are still listed once their pidfds are open.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Mounts;

/// Each round catches what the one before could not.
const ROUNDS: usize = 100;
/// How often it is asked whether a cgroup is frozen by now. What waits for a disk that does not answer is never.
const FROZEN_WITHIN: usize = 100;
const FROZEN_AGAIN: Duration = Duration::from_millis(1);
/// Pidfds that are open at once: fewer than any limit of open files.
const AT_ONCE: usize = 128;

/// A cgroup in which nothing runs until this is dropped.
struct Frozen {
    file: PathBuf,
    thawed: &'static str,
}

// === impl Mounts ===

impl Mounts {
    /// Kills whatever is in a cgroup, and whatever that forks meanwhile.
    pub fn kill(&self, cgroup: &str) {
        let at_once = self.kill_at_once(cgroup);
        for _ in 0..ROUNDS {
            if self.processes(cgroup).is_empty() {
                return;
            }
            if !at_once {
                // Killed and still frozen, they would stay.
                let _frozen = self.freeze(cgroup);
                self.kill_each(cgroup);
            }
            std::thread::yield_now();
        }
    }

    /// Whether the kernel has killed all of them.
    fn kill_at_once(&self, cgroup: &str) -> bool {
        let Self::V2(point) = self else { return false };
        let file = point.join(cgroup.trim_start_matches('/')).join("cgroup.kill");
        fs::OpenOptions::new().write(true).open(file).and_then(|mut file| file.write_all(b"1")).is_ok()
    }

    /// Freezes a cgroup, if that can be done.
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
        for _ in 0..FROZEN_WITHIN {
            // One that is gone needs no freezing.
            if is_frozen().unwrap_or(true) {
                break;
            }
            std::thread::sleep(FROZEN_AGAIN);
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
                    // It may have ended, which is as good.
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
        // One that is gone has nothing left to thaw.
        let _ = thaw();
    }
}
