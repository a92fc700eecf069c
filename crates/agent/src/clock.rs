//! The node's own clocks.

use std::{fs, io};

use keelet_lifecycle::{BadBootId, BootId, Moment, Wall};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::doors::Clock;

/// Where the kernel reports the ID of this boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The kernel's clocks: time since boot with suspend included, the wall clock, and which boot it is.
#[derive(Clone, Copy, Debug)]
pub struct OsClock {
    /// It cannot change while this process runs.
    boot_id: BootId,
}

/// Why it is not known which boot this is. Without that, what an earlier agent wrote down cannot be dated.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// The file cannot be read.
    #[error("cannot read the boot ID from {BOOT_ID}: {0}")]
    Unreadable(#[source] io::Error),
    /// There is something else in it.
    #[error("{BOOT_ID} has no valid boot ID: {0}")]
    Bad(#[from] BadBootId),
}

// === impl OsClock ===

impl OsClock {
    /// Asks which boot this is.
    pub fn new() -> Result<Self, ClockError> {
        let text = fs::read_to_string(BOOT_ID).map_err(ClockError::Unreadable)?;
        Ok(Self { boot_id: text.parse()? })
    }
}

impl Clock for OsClock {
    fn now(&self) -> Moment {
        Moment {
            boot_ms: millis(clock_gettime(ClockId::Boottime)),
            wall: Wall::from_millis(millis(clock_gettime(ClockId::Realtime))),
            boot_id: self.boot_id,
        }
    }
}

fn millis(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_within_the_boot_that_the_kernel_names() {
        let clock = OsClock::new().unwrap();
        let (earlier, later) = (clock.now(), clock.now());
        assert!(later.has_reached(&earlier));
        assert_eq!(earlier.boot_id, later.boot_id);
        assert_eq!(later.boot_id.to_string(), fs::read_to_string(BOOT_ID).unwrap().trim());
    }

    #[test]
    fn boot_time_and_wall_time_are_not_mistaken_for_each_other() {
        let now = OsClock::new().unwrap().now();
        let uptime = fs::read_to_string("/proc/uptime").unwrap();
        let seconds: i64 = uptime.split('.').next().unwrap().parse().unwrap();
        // A minute of slack for a machine that stood still between the two readings.
        assert!((seconds - now.boot_ms / 1000).abs() < 60, "{now:?}, up {seconds} s");
        assert!(now.wall > Wall::from_millis(1_700_000_000_000), "{now:?}");
    }

    #[test]
    fn times_are_milliseconds() {
        assert_eq!(millis(Timespec { tv_sec: 12, tv_nsec: 345_999_999 }), 12_345);
    }
}
