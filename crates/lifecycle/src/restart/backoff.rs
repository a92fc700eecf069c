//! Exponential backoff (BACK-*): the first restart is immediate, the delays double, ten quiet minutes reset them.

use std::time::Duration;

use keelet_pod::Features;
use serde::{Deserialize, Serialize};

use crate::{operation::serde_millis, time::Moment};

/// The parameters of a backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffLimits {
    /// The first delay.
    pub initial: Duration,
    /// The longest delay.
    pub cap: Duration,
}

/// Why the node's cap on the crash backoff cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackoffConfigError {
    /// The feature gate is off.
    #[error(
        "crashLoopBackOff.maxContainerRestartPeriod is set, but the feature gate KubeletCrashLoopBackOffMax is off"
    )]
    GateOff,
    /// Too short or too long.
    #[error("crashLoopBackOff.maxContainerRestartPeriod is {period:?}: must be between 1s and 300s, both included")]
    OutOfRange {
        /// What was asked for.
        period: Duration,
    },
}

/// The state of a backoff.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backoff {
    /// The delay before the next start.
    #[serde(with = "serde_millis")]
    pub delay: Duration,
    /// When it was last lengthened.
    pub advanced: Moment,
    /// What it is for; a change of it resets the backoff.
    pub key: String,
    /// The ID of the exit that the delay was last applied to. An exit is not delayed twice, even if the agent died before it
    /// acted.
    pub served: String,
}

/// Whether a start may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackoffState {
    /// It may; this is the backoff to remember.
    Elapsed(Backoff),
    /// It has to wait until then, which is in the present boot.
    Waiting { until: Moment, delay: Duration },
}

/// What a node may choose as its cap.
const CAPS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);

/// The first delay under the feature gate `ReduceDefaultCrashLoopBackOffDecay`.
const REDUCED_INITIAL: Duration = Duration::from_secs(1);

/// The cap under that feature gate, where nodes have no cap of their own.
const REDUCED_CAP: Duration = Duration::from_secs(60);

/// A backoff without an advance for this long is reset.
const RESET_AFTER: Duration = Duration::from_secs(600);

/// Whether a start may happen `now` after the event `event` that happened at `finished`.
pub(crate) fn backoff_state(
    entry: Option<&Backoff>,
    limits: BackoffLimits,
    key: &str,
    event: &str,
    finished: Moment,
    now: Moment,
) -> BackoffState {
    let next = |delay| Backoff { delay, advanced: now, key: key.to_owned(), served: event.to_owned() };
    let Some(entry) = entry.filter(|entry| entry.key == key && finished.since(&entry.advanced) <= RESET_AFTER) else {
        return BackoffState::Elapsed(next(limits.initial));
    };
    if entry.served == event {
        return BackoffState::Elapsed(entry.clone());
    }
    let waited = now.since(&finished);
    if waited < entry.delay {
        BackoffState::Waiting { until: now.plus(entry.delay - waited), delay: entry.delay }
    } else {
        BackoffState::Elapsed(next((entry.delay * 2).min(limits.cap)))
    }
}

// === impl BackoffLimits ===

impl BackoffLimits {
    /// 10 s, doubling up to 5 minutes.
    pub const DEFAULT: Self = Self { initial: Duration::from_secs(10), cap: Duration::from_secs(300) };

    /// By the node's configuration and feature gates (BACK-7).
    ///
    /// `max_period` is `crashLoopBackOff.maxContainerRestartPeriod`. A node with the feature gate for its own cap has one, 300
    /// s by default, and that one overrides the cap of the reduced backoff.
    pub fn for_node(max_period: Option<Duration>, features: &Features) -> Result<Self, BackoffConfigError> {
        let usual = Self::of(features);
        match max_period {
            None => Ok(usual),
            Some(_) if !features.crash_loop_max.is_on() => Err(BackoffConfigError::GateOff),
            Some(period) if !CAPS.contains(&period) => Err(BackoffConfigError::OutOfRange { period }),
            Some(period) => Ok(usual.with_cap(period)),
        }
    }

    /// By the node's gates alone.
    pub fn of(features: &Features) -> Self {
        let is_reduced = features.reduced_backoff.is_on();
        let initial = if is_reduced { REDUCED_INITIAL } else { Self::DEFAULT.initial };
        let cap = if is_reduced && !features.crash_loop_max.is_on() { REDUCED_CAP } else { Self::DEFAULT.cap };
        Self { initial, cap }.with_cap(cap)
    }

    /// With the node's own cap (`crashLoopBackOff.maxContainerRestartPeriod`), which also bounds the first delay.
    pub fn with_cap(self, cap: Duration) -> Self {
        Self { initial: self.initial.min(cap), cap }
    }
}

impl Default for BackoffLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

// === impl Backoff ===

impl Backoff {
    /// Whether it has been quiet for so long that it is reset.
    pub(crate) fn is_idle(&self, now: Moment) -> bool {
        now.since(&self.advanced) > RESET_AFTER
    }
}
