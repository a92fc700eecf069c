//! The wall clock, which heartbeats carry. Latencies are measured with `tokio::time::Instant`.

use jiff::{Timestamp, Unit};

/// The time for a `metav1.Time`: seconds.
#[expect(clippy::disallowed_methods, reason = "a heartbeat carries the time of the machine")]
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now)
}

/// The time for a `metav1.MicroTime`. The API server rejects more digits than six and, if they are all zero, fewer.
#[expect(clippy::disallowed_methods, reason = "a lease carries the time of the machine")]
pub(crate) fn micro_now() -> String {
    let now = Timestamp::now();
    let whole = now.round(Unit::Microsecond).unwrap_or(now);
    format!("{whole:.6}")
}
