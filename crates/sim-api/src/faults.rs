//! What can go wrong between a client and the server, and how often.
//!
//! Each client has faults of its own, so that two replicas see different ones. A fault is drawn by its odds, or sealed by a
//! test for the next requests of a kind.

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::{random::Random, request::Verb};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Carried out and answered.
    #[default]
    Answered,
    /// Carried out; the client sees that the connection broke.
    AnswerLost,
    /// Not carried out; the client sees that the connection broke.
    Lost,
    /// Not carried out; nothing listens.
    Refused,
    /// Neither carried out nor answered, until the faults end and the connection breaks.
    Hangs,
    /// Carried out, and not answered until the faults end and the connection breaks.
    HangsApplied,
    /// Not carried out: 429 with so many seconds in `Retry-After`.
    TooManyRequests(u32),
    /// Not carried out: 500, 503 or 504.
    Error(u16),
    /// Carried out, and answered with 500 or 504 all the same, as when etcd answers too late.
    ErrorApplied(u16),
    /// Not carried out: a proxy on the way answers with a page for people. The code is the proxy's.
    Page(u16),
    /// Answered with what was true some time ago, where the API allows that: reads with a resourceVersion.
    Stale(Duration),
    /// Answered with what was true some time ago, also where the API promises the newest.
    StaleAlways(Duration),
}

/// Odds of trouble with a request, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Odds {
    /// The answer is lost.
    pub answer_lost: u32,
    /// The request is lost.
    pub lost: u32,
    /// The connection is refused.
    pub refused: u32,
    /// No answer ever comes; half of the requests are carried out.
    pub hangs: u32,
    /// 429.
    pub too_many: u32,
    /// 500, 503 or 504; a third of the requests are carried out.
    pub errors: u32,
    /// A page from a proxy.
    pub pages: u32,
    /// A read is stale.
    pub stale: u32,
    /// A read is stale though the API promises the newest.
    pub stale_always: u32,
    /// How old a stale answer is at most.
    pub staleness: Duration,
    /// A request takes up to this much longer, on its way or on the way back.
    pub slow: Duration,
}

/// Odds of trouble with a watch, in thousandths of all watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchOdds {
    /// It ends early, as if its time was over.
    pub ends: u32,
    /// Its connection breaks, maybe in the middle of a line.
    pub breaks: u32,
    /// It goes silent: no events, no end, until the faults end and the connection breaks.
    pub stalls: u32,
    /// It ends with an event that says 410.
    pub gone: u32,
    /// It is refused with 410 when it is opened.
    pub refused_gone: u32,
    /// It gets events up to this much later. Each watch has a lag of its own.
    pub lag: Duration,
}

/// Whether a client can reach the server at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partition {
    /// It can.
    #[default]
    Open,
    /// Connections are refused, and those that are open break.
    Refused,
    /// Packets vanish: nothing is carried out, nothing is answered, watches go silent.
    Silent,
}

/// The faults of one client.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// For all requests that are not named below.
    pub requests: Odds,
    /// By verb.
    pub by_verb: BTreeMap<Verb, Odds>,
    /// Of watches that were opened.
    pub watches: WatchOdds,
    /// Whether the server can be reached.
    pub partition: Partition,
    sealed: Vec<Sealed>,
}

#[derive(Clone, Debug)]
struct Sealed {
    verb: Verb,
    subject: String,
    fate: Fate,
    left: u32,
}

/// What becomes of a watch, and when, since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchFate {
    pub(crate) lag: Duration,
    pub(crate) end: Option<(Duration, WatchEnd)>,
}

/// How a watch ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchEnd {
    Ends,
    Breaks,
    Stalls,
    Gone,
}

/// A watch that ends early does so within this time.
const EARLY: Duration = Duration::from_secs(90);

// === impl Fate ===

impl Fate {
    /// Whether the server carries the request out.
    pub fn is_applied(self) -> bool {
        match self {
            Self::Answered
            | Self::AnswerLost
            | Self::HangsApplied
            | Self::ErrorApplied(_)
            | Self::Stale(_)
            | Self::StaleAlways(_) => true,
            Self::Lost | Self::Refused | Self::Hangs | Self::TooManyRequests(_) | Self::Error(_) | Self::Page(_) => {
                false
            }
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered => Ok(()),
            Self::AnswerLost => f.write_str("answer lost"),
            Self::Lost => f.write_str("lost"),
            Self::Refused => f.write_str("connection refused"),
            Self::Hangs => f.write_str("hangs"),
            Self::HangsApplied => f.write_str("applied, hangs"),
            Self::TooManyRequests(seconds) => write!(f, "429, retry after {seconds} s"),
            Self::Error(code) => write!(f, "error {code}"),
            Self::ErrorApplied(code) => write!(f, "applied, error {code}"),
            Self::Page(code) => write!(f, "a proxy's page, {code}"),
            Self::Stale(age) | Self::StaleAlways(age) => write!(f, "stale by {:.3} s", age.as_secs_f64()),
        }
    }
}

// === impl Odds ===

impl Odds {
    fn draw(&self, verb: Option<Verb>, random: &mut Random) -> Fate {
        let reads = verb.is_none_or(|verb| !verb.is_write());
        let drawn = random.within(0..1000);
        let mut below = 0;
        let mut hit = |odds: u32| {
            below += u64::from(odds);
            drawn < below
        };
        if hit(self.answer_lost) {
            Fate::AnswerLost
        } else if hit(self.lost) {
            Fate::Lost
        } else if hit(self.refused) {
            Fate::Refused
        } else if hit(self.hangs) {
            if random.chance(500) { Fate::HangsApplied } else { Fate::Hangs }
        } else if hit(self.too_many) {
            Fate::TooManyRequests(1 + u32::try_from(random.within(0..5)).unwrap_or(0))
        } else if hit(self.errors) {
            let code = *random.pick(&[500, 503, 504]);
            if code != 503 && random.chance(333) { Fate::ErrorApplied(code) } else { Fate::Error(code) }
        } else if hit(self.pages) {
            Fate::Page(*random.pick(&[502, 503, 200, 404]))
        } else if reads && hit(self.stale) {
            Fate::Stale(random.millis(self.staleness))
        } else if reads && hit(self.stale_always) {
            Fate::StaleAlways(random.millis(self.staleness))
        } else {
            Fate::Answered
        }
    }
}

// === impl Faults ===

impl Faults {
    /// Seals the fate of the next so many requests of that verb whose subject (`nodes n1`, `pods/status default/web`)
    /// contains the text.
    pub fn seal(&mut self, verb: Verb, subject: &str, fate: Fate, times: u32) {
        self.sealed.push(Sealed { verb, subject: subject.to_owned(), fate, left: times });
    }

    /// Whether everything goes well.
    pub fn is_quiet(&self) -> bool {
        self.requests == Odds::default()
            && self.by_verb.values().all(|odds| *odds == Odds::default())
            && self.watches == WatchOdds::default()
            && self.partition == Partition::Open
            && self.sealed.iter().all(|sealed| sealed.left == 0)
    }

    /// What becomes of a request, and how much longer it is on its way and on the way back.
    pub(crate) fn fate(
        &mut self,
        verb: Option<Verb>,
        subject: &str,
        random: &mut Random,
    ) -> (Fate, Duration, Duration) {
        let is_meant =
            |sealed: &&mut Sealed| Some(sealed.verb) == verb && sealed.left > 0 && subject.contains(&sealed.subject);
        if let Some(sealed) = self.sealed.iter_mut().find(is_meant) {
            sealed.left -= 1;
            return (sealed.fate, Duration::ZERO, Duration::ZERO);
        }
        let odds = verb.and_then(|verb| self.by_verb.get(&verb)).unwrap_or(&self.requests);
        let fate = odds.draw(verb, random);
        let slow = random.millis(odds.slow);
        if random.chance(500) { (fate, slow, Duration::ZERO) } else { (fate, Duration::ZERO, slow) }
    }

    /// Whether a watch is refused with 410.
    pub(crate) fn refuses_watch(&self, random: &mut Random) -> bool {
        random.chance(self.watches.refused_gone)
    }

    /// What becomes of a watch.
    pub(crate) fn watch_fate(&self, random: &mut Random) -> WatchFate {
        let odds = self.watches;
        let lag = random.millis(odds.lag);
        let at = random.millis(EARLY);
        let drawn = random.within(0..1000);
        let mut below = 0;
        let ends = [
            (odds.ends, WatchEnd::Ends),
            (odds.breaks, WatchEnd::Breaks),
            (odds.stalls, WatchEnd::Stalls),
            (odds.gone, WatchEnd::Gone),
        ];
        for (odds, end) in ends {
            below += u64::from(odds);
            if drawn < below {
                return WatchFate { lag, end: Some((at, end)) };
            }
        }
        WatchFate { lag, end: None }
    }
}
