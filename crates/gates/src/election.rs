//! Who leads: leader election on a Lease of `coordination.k8s.io/v1`, as a pure function of the lease, the identity and the time.
//!
//! [`Candidate::step`] says what to do next; [`Candidate::saw`] and [`Candidate::wrote`] tell it what came of that. It never
//! compares clocks of two machines: a lease counts as expired when it has not changed for its duration, measured on our own monotonic
//! clock from the moment that we first saw it. The times in the lease are for people.
//!
//! Why two leaders never write at once, if clocks run equally fast: a leader counts its time from *before* it asked for the renewal, and
//! stops after `renew_deadline`. Another candidate counts from when it first saw that renewal, which is later, and waits for the
//! `duration`, which is longer. Beyond that every patch has the version of its object as precondition (GN-5).

use std::time::Duration;

use jiff::Timestamp;

use crate::node::Version;

/// How long a lease lasts, and how often it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Others wait for so long after the last renewal before they take over.
    pub duration: Duration,
    /// A leader that could not renew for so long stops. Shorter than the duration.
    pub renew_deadline: Duration,
    /// How often a leader renews, and how long an attempt that failed waits.
    pub retry: Duration,
}

/// Times that do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTiming {
    /// The lease has whole seconds.
    #[error("invalid lease duration {0:?}: expected whole seconds, and at least one")]
    Duration(Duration),
    /// A leader would write when others have taken over.
    #[error("the renew deadline ({renew_deadline:?}) must be shorter than the lease duration ({duration:?})")]
    Deadline {
        /// The duration.
        duration: Duration,
        /// The deadline.
        renew_deadline: Duration,
    },
    /// A leader could not try a second time.
    #[error(
        "the retry period ({retry:?}) must be greater than zero, and at most half of the renew deadline ({renew_deadline:?})"
    )]
    Retry {
        /// The deadline.
        renew_deadline: Duration,
        /// The period.
        retry: Duration,
    },
}

/// A time on our own monotonic clock, since some start.
pub type Instant = Duration;

/// A lease, as the API server has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The version of the object.
    pub version: Version,
    /// Who holds it; empty if it was released.
    pub holder: String,
    /// How long it lasts after a renewal.
    pub duration: Duration,
    /// When it was acquired.
    pub acquired: Option<Timestamp>,
    /// When it was renewed last, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// How often it went from one holder to another.
    pub transitions: u32,
}

/// One that wants to lead.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name, which no other process has, not even the same one restarted.
    identity: String,
    timing: Timing,
    view: View,
    /// The write that is under way, or whose answer was lost.
    attempt: Option<Attempt>,
    /// When the last renewal that is known to have worked was asked for.
    renewed_at: Option<Instant>,
    /// No write before this: the last one failed.
    not_before: Instant,
    /// The newest version that was seen: what is older says nothing, unless it is all that is read for as long as a lease lasts.
    newest: Version,
    /// Since when every read has found an older lease than that. Its API server lags behind, or was restored from a backup.
    older_since: Option<Instant>,
}

/// What is known of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
enum View {
    /// It has to be read: it was never, or a write may have changed it. If it turns out to be what it was, we know it since then.
    Unknown { before: Option<(Lease, Instant)> },
    /// There is none.
    Absent,
    /// It is so, and we know it since then.
    Seen { lease: Lease, since: Instant },
}

/// A write of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Attempt {
    /// The time in it, by which it is recognised.
    renewed: Option<Timestamp>,
    /// When it was sent.
    sent: Instant,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the lease.
    Read,
    /// Create the lease with this content.
    Create(Lease),
    /// Replace the lease by this content, if it still has the version that is in it.
    Replace(Lease),
    /// Wait for a change of the lease, until this time.
    Wait(Instant),
}

/// What came of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The API server took it: this is the lease now.
    Done(Lease),
    /// The API server refused it: another one was faster, or the lease is gone.
    Lost,
    /// There was no answer, or an error that says nothing.
    Unknown,
}

/// Whether one leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Another one leads, or none.
    Follower,
    /// It leads, and may write before this time.
    Leader {
        /// Until when.
        until: Instant,
    },
}

// === impl Timing ===

impl Timing {
    /// Times that go together.
    pub fn new(duration: Duration, renew_deadline: Duration, retry: Duration) -> Result<Self, BadTiming> {
        if duration.as_secs() == 0 || duration.subsec_nanos() != 0 {
            return Err(BadTiming::Duration(duration));
        }
        if renew_deadline >= duration {
            return Err(BadTiming::Deadline { duration, renew_deadline });
        }
        if retry.is_zero() || retry * 2 > renew_deadline {
            return Err(BadTiming::Retry { renew_deadline, retry });
        }
        Ok(Self { duration, renew_deadline, retry })
    }
}

impl Default for Timing {
    fn default() -> Self {
        // Those of Kubernetes' own controllers.
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

// === impl Candidate ===

impl Candidate {
    /// One that has seen nothing yet.
    pub fn new(identity: String, timing: Timing) -> Self {
        Self {
            identity,
            timing,
            view: View::Unknown { before: None },
            attempt: None,
            renewed_at: None,
            not_before: Duration::ZERO,
            newest: Version::default(),
            older_since: None,
        }
    }

    /// Its name.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The lease, if it was seen.
    pub fn lease(&self) -> Option<&Lease> {
        if let View::Seen { lease, .. } = &self.view { Some(lease) } else { None }
    }

    /// Whether it leads now.
    pub fn role(&self, now: Instant) -> Role {
        match self.renewed_at.map(|at| at + self.timing.renew_deadline) {
            Some(until) if now < until => Role::Leader { until },
            _ => Role::Follower,
        }
    }

    /// What to do next. `wall` is for people who read the lease.
    pub fn step(&mut self, now: Instant, wall: Timestamp) -> Action {
        if self.role(now) == Role::Follower {
            self.renewed_at = None;
        }
        let leads = self.renewed_at.is_some();
        let due = match (&self.view, self.renewed_at) {
            (View::Unknown { .. }, _) if now < self.not_before => return Action::Wait(self.not_before),
            (View::Unknown { .. }, _) => return Action::Read,
            (View::Absent, _) => now,
            (View::Seen { .. }, Some(renewed_at)) => renewed_at + self.timing.retry,
            // A lease that has our name although we do not lead: the answer came too late, or we were frozen. No other one has it.
            (View::Seen { lease, .. }, None) if lease.holder.is_empty() || lease.holder == self.identity => now,
            (View::Seen { lease, since }, None) => *since + lease.duration.max(Duration::from_secs(1)),
        }
        .max(self.not_before);
        if now < due {
            return Action::Wait(due);
        }
        self.attempt = Some(Attempt { renewed: Some(wall), sent: now });
        let before = self.lease().cloned();
        let same_holder = leads || before.as_ref().is_some_and(|lease| lease.holder == self.identity);
        let before = before.unwrap_or_default();
        let lease = Lease {
            version: before.version.clone(),
            holder: self.identity.clone(),
            duration: self.timing.duration,
            acquired: if same_holder { before.acquired.or(Some(wall)) } else { Some(wall) },
            renewed: Some(wall),
            transitions: if same_holder { before.transitions } else { before.transitions + 1 },
        };
        match self.view {
            View::Absent => Action::Create(Lease { transitions: 0, ..lease }),
            _ => Action::Replace(lease),
        }
    }

    /// The lease was read, or a watch reported it; none if there is none.
    pub fn saw(&mut self, lease: Option<Lease>, now: Instant) {
        let Some(lease) = lease else {
            // A lease that was deleted: whoever held it may write until its time is over, and creates it again itself.
            let held = match &self.view {
                View::Seen { lease, .. } | View::Unknown { before: Some((lease, _)) } => Some(lease),
                View::Unknown { before: None } | View::Absent => None,
            };
            let held = held.filter(|lease| !lease.holder.is_empty() && lease.holder != self.identity);
            if let Some(lease) = held {
                self.not_before = self.not_before.max(now + lease.duration.max(self.timing.duration));
            }
            (self.view, self.older_since) = (View::Absent, None);
            return;
        };
        if lease.version.is_older_than(&self.newest) && !self.is_restored(now) {
            return;
        }
        self.older_since = None;
        self.newest = lease.version.clone();
        if lease.holder != self.identity {
            self.renewed_at = None;
        } else if let Some(attempt) = self.attempt.take_if(|attempt| attempt.renewed == lease.renewed) {
            // The write whose answer was lost had worked.
            self.renewed_at = Some(attempt.sent);
        }
        let since = match &self.view {
            View::Seen { lease: known, since } | View::Unknown { before: Some((known, since)) } if *known == lease => {
                *since
            }
            _ => now,
        };
        self.view = View::Seen { lease, since };
    }

    /// An older lease than one that was seen. Whether that is what the API server has now, because it was restored from a backup: it has had
    /// nothing newer for the duration of a lease. Whoever held the newer one has lost it by then.
    fn is_restored(&mut self, now: Instant) -> bool {
        if !matches!(self.view, View::Unknown { .. }) {
            return false;
        }
        let since = *self.older_since.get_or_insert(now);
        // It is read again, and not at full speed.
        self.not_before = now + self.pause();
        now.saturating_sub(since) >= self.timing.duration
    }

    /// What came of the write that [`Self::step`] asked for.
    pub fn wrote(&mut self, written: Written, now: Instant) {
        match written {
            Written::Done(lease) => {
                self.not_before = Duration::ZERO;
                self.saw(Some(lease), now);
            }
            Written::Lost | Written::Unknown => {
                if written == Written::Lost {
                    self.attempt = None;
                }
                self.could_not_read(now);
            }
        }
    }

    /// The lease could not be read, or nothing is known of it any more.
    pub fn could_not_read(&mut self, now: Instant) {
        self.forget();
        self.not_before = now + self.pause();
    }

    /// The content that gives the lease away, so that another one takes it at once. None if it is not held.
    pub fn release(&mut self, now: Instant, wall: Timestamp) -> Option<Lease> {
        let leads = matches!(self.role(now), Role::Leader { .. });
        let lease = self.lease().filter(|lease| leads && lease.holder == self.identity)?.clone();
        self.renewed_at = None;
        self.forget();
        Some(Lease { holder: String::new(), duration: Duration::from_secs(1), renewed: Some(wall), ..lease })
    }

    /// The lease has to be read.
    fn forget(&mut self) {
        let before = match std::mem::replace(&mut self.view, View::Absent) {
            View::Seen { lease, since } => Some((lease, since)),
            View::Unknown { before } => before,
            View::Absent => None,
        };
        self.view = View::Unknown { before };
    }

    /// How long to wait after a failure: an eighth to a quarter of the usual pause, so that several attempts fit into the deadline, and not
    /// the same for everyone.
    fn pause(&self) -> Duration {
        let spread =
            self.identity.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 128;
        self.timing.retry * (128 + spread) / 1024
    }
}

#[cfg(test)]
mod tests;
