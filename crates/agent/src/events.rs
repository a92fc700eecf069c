//! Events, made fit to be read: repeats are counted, similar ones combined, floods held back.
//!
//! A container whose probe fails every second must neither bury everything else that happens to its pod nor keep an
//! API server busy. The numbers are those of the recorder in client-go, which every user of `kubectl describe` knows:
//!
//! - The same event again raises the count of the first one.
//! - From the tenth different message of one reason on, each at most ten minutes after the one before, new messages
//!   share one record: "(combined from similar events): " and the newest message.
//! - Per reason 25 records are passed on at once, and then one every five minutes. (client-go has one such budget for
//!   all events of a pod, so that failing probes can hide the kill they lead to.)
//!
//! What is held back is counted all the same, and this node sees it in [`Recorder::newest`].

use std::{collections::VecDeque, time::Duration};

use keelet_lifecycle::{Event, Moment, Severity};
use serde::{Deserialize, Serialize};

/// Records kept per pod. Nine messages and a combined one for each of half a dozen reasons fit in.
const KEPT: usize = 64;

/// Different messages of one reason from which on they are combined.
const SIMILAR: usize = 10;
/// Events of one reason that are further apart than this have nothing to do with each other.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
const COMBINED: &str = "(combined from similar events): ";

/// Records of one reason that are passed on at once.
const BURST: u32 = 25;
/// The time after which one more is.
const REFILL: Duration = Duration::from_secs(300);

/// Bytes of a message that are kept: the API's own limit for the note of an event.
const LONGEST_MESSAGE: usize = 1024;

/// Something that happened to a pod, as people get to see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRecord {
    /// When.
    pub at: Moment,
    /// The container it is about; the pod if there is none.
    pub container: Option<String>,
    /// `Unhealthy`, `Killing`, `BackOff`, ...
    pub reason: String,
    /// Whether the event calls for an operator's attention.
    pub severity: Severity,
    /// For people.
    pub message: String,
    /// How often it happened since the first time, this time included.
    pub count: u32,
}

/// Keeps the events of one pod. The memory it takes is bounded by constants and by the number of reasons there are.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// The oldest first, by the last time each happened.
    kept: VecDeque<Kept>,
    reasons: Vec<Reason>,
}

#[derive(Clone, Debug)]
struct Kept {
    record: EventRecord,
    /// Whether it stands for all similar events.
    combined: bool,
}

/// What is known of all events of one reason and severity.
#[derive(Clone, Debug)]
struct Reason {
    reason: &'static str,
    severity: Severity,
    last: Moment,
    /// The first different messages, at most nine.
    messages: Vec<String>,
    /// Time saved up: every record passed on costs one refill.
    credit: Duration,
}

// === impl Recorder ===

impl Recorder {
    /// A recorder that continues the counts of events emitted before, oldest first.
    pub fn recalling(told: impl IntoIterator<Item = EventRecord>) -> Self {
        let mut recorder = Self::default();
        for record in told {
            let combined = record.message.starts_with(COMBINED);
            recorder.file(Kept { record, combined });
        }
        recorder
    }

    /// Takes note of an event. Returns its record if it should be passed on now: the newest state of a record that may
    /// have been passed on already.
    pub fn record(&mut self, event: &Event, now: Moment) -> Option<EventRecord> {
        let message = shortened(&event.message);
        let reason = self.reason(event, now);
        let combined = reason.is_similar(&message, now);
        let passed_on = reason.spend(now);
        reason.last = now;
        let record = EventRecord {
            at: now,
            container: event.container.clone(),
            reason: event.reason.to_owned(),
            severity: event.severity,
            message: if combined { shortened(&format!("{COMBINED}{message}")) } else { message },
            count: 1,
        };
        let record = self.keep(Kept { record, combined });
        passed_on.then_some(record)
    }

    /// The newest records, the newest last.
    pub fn newest(&self) -> impl DoubleEndedIterator<Item = &EventRecord> + ExactSizeIterator {
        self.kept.iter().map(|kept| &kept.record)
    }

    fn reason(&mut self, event: &Event, now: Moment) -> &mut Reason {
        let same = |known: &Reason| known.reason == event.reason && known.severity == event.severity;
        let index = self.reasons.iter().position(same).unwrap_or_else(|| {
            self.reasons.push(Reason {
                reason: event.reason,
                severity: event.severity,
                last: now,
                messages: Vec::new(),
                credit: REFILL * BURST,
            });
            self.reasons.len() - 1
        });
        &mut self.reasons[index]
    }

    /// Files a record, on top of an equal one if there is any.
    fn keep(&mut self, mut new: Kept) -> EventRecord {
        if let Some(index) = self.kept.iter().position(|old| old.is_same(&new))
            && let Some(old) = self.kept.remove(index)
        {
            new.record.count = old.record.count.saturating_add(1);
        }
        let record = new.record.clone();
        self.file(new);
        record
    }

    /// Files a record in the place of an equal one.
    fn file(&mut self, new: Kept) {
        self.kept.retain(|old| !old.is_same(&new));
        while self.kept.len() >= KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(new);
    }
}

// === impl Kept ===

impl Kept {
    fn is_same(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.record, &other.record);
        self.combined == other.combined
            && ours.reason == theirs.reason
            && ours.severity == theirs.severity
            && (self.combined || (ours.container == theirs.container && ours.message == theirs.message))
    }
}

// === impl Reason ===

impl Reason {
    /// Whether it is one too many that differs in its message only.
    fn is_similar(&mut self, message: &str, now: Moment) -> bool {
        if now.since(&self.last) > SIMILAR_WITHIN {
            self.messages.clear();
        }
        if self.messages.iter().any(|known| known == message) {
            return false;
        }
        if self.messages.len() + 1 >= SIMILAR {
            return true;
        }
        self.messages.push(message.to_owned());
        false
    }

    /// Whether there is enough left to pass on one more.
    fn spend(&mut self, now: Moment) -> bool {
        self.credit = (self.credit + now.since(&self.last)).min(REFILL * BURST);
        match self.credit.checked_sub(REFILL) {
            Some(rest) => {
                self.credit = rest;
                true
            }
            None => false,
        }
    }
}

/// The text up to the longest that is kept, dots at its end if there was more.
fn shortened(text: &str) -> String {
    const DOTS: &str = "...";
    if text.len() <= LONGEST_MESSAGE {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(LONGEST_MESSAGE - DOTS.len());
    format!("{}{DOTS}", &text[..end])
}

#[cfg(test)]
mod tests;
