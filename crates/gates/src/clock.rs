//! The wall clock, as a door. Waiting is tokio's business, which a simulation pauses.

use std::{fmt, time::SystemTime};

use jiff::Timestamp;

/// What time it is on the wall.
pub trait WallClock: Send + Sync + fmt::Debug {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

// === impl SystemClock ===

impl WallClock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the door to the wall clock")]
        let now = SystemTime::now();
        Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}
