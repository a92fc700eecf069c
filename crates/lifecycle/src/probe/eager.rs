//! Attempts between the scheduled ones, until a probe has passed once for an instance (PROBE-51).
//!
//! A container that is ready shortly after its first attempt would wait a whole period for the second. An eager attempt can only help: a
//! pass counts as a pass, anything else for nothing, and the schedule is as it is without them.

use std::time::Duration;

use keelet_pod::{Probe, ProbeKind};
use serde::{Deserialize, Serialize};

use crate::{operation::serde_millis, time::Moment};

/// How long after the first scheduled attempt the first eager one is.
const FIRST: Duration = Duration::from_millis(100);

/// When the next eager attempt of a probe is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Eager {
    /// No scheduled attempt has failed yet.
    #[default]
    NotYet,
    /// The probe has not passed.
    Next {
        /// When the attempt is due.
        due: Moment,
        /// How long after the attempt before.
        #[serde(with = "serde_millis")]
        delay: Duration,
    },
    /// The probe has passed once: only its schedule counts.
    Over,
}

// === impl Eager ===

impl Eager {
    pub(crate) fn is_not_yet(&self) -> bool {
        *self == Self::NotYet
    }

    /// When the next one is due, if there is one.
    pub(crate) fn due(&self) -> Option<Moment> {
        match self {
            Self::Next { due, .. } => Some(*due),
            Self::NotYet | Self::Over => None,
        }
    }

    /// A scheduled attempt did not pass: the first eager one follows soon. A later one keeps its time.
    pub(crate) fn after_scheduled(&mut self, kind: ProbeKind, probe: &Probe, at: Moment) {
        match *self {
            // A failing liveness probe is not in a hurry, and a short period is eager enough.
            Self::NotYet if kind == ProbeKind::Liveness || probe.period <= FIRST => {}
            Self::NotYet => *self = Self::Next { due: at.plus(FIRST), delay: FIRST },
            Self::Next { due, delay } if at.has_reached(&due) => *self = Self::Next { due: at.plus(delay), delay },
            Self::Next { .. } | Self::Over => {}
        }
    }

    /// An eager attempt did not pass: the next one is twice as far away, at most a period.
    pub(crate) fn after_eager(&mut self, probe: &Probe, at: Moment) {
        if let Self::Next { delay, .. } = *self {
            let delay = (2 * delay).min(probe.period);
            *self = Self::Next { due: at.plus(delay), delay };
        }
    }
}
