//! Points where a test can stop an operation as `kill -9` would: nothing after the point happens, and nothing is cleaned up.

use crate::Error;

/// Called after each step that changes something. A no-op outside of tests.
#[cfg(not(test))]
pub(crate) fn pass(_place: &'static str) -> Result<(), Error> {
    Ok(())
}

/// Whether an operation was stopped here, so that nothing is cleaned up.
#[cfg(not(test))]
pub(crate) fn is_stop(_error: &Error) -> bool {
    false
}

#[cfg(test)]
pub(crate) use armed::{arm, disarm, is_stop, pass};

#[cfg(test)]
mod armed {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::Error;

    static LEFT: AtomicI64 = AtomicI64::new(-1);

    /// Stops at the n-th point from now, counted from 0.
    pub(crate) fn arm(places: i64) {
        LEFT.store(places, Ordering::SeqCst);
    }

    /// Disarms. Returns whether the armed point was reached.
    pub(crate) fn disarm() -> bool {
        LEFT.swap(-1, Ordering::SeqCst) < 0
    }

    pub(crate) fn is_stop(error: &Error) -> bool {
        matches!(error, Error::Stopped(_))
    }

    pub(crate) fn pass(place: &'static str) -> Result<(), Error> {
        let before =
            LEFT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| (left >= 0).then_some(left - 1)).unwrap_or(-1);
        if before == 0 { Err(Error::Stopped(place)) } else { Ok(()) }
    }
}
