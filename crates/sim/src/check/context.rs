//! What went wrong lately, so that the checkers do not blame the agent for what it could not know.

use std::time::Duration;

use keelet_lifecycle::Rules;

use crate::{
    sim::Mode,
    timeline::{Entry, Happening, Memory},
};

/// How long after the last fault things may still look odd: a hanging look takes ten seconds to be given up.
const AFTERMATH: Duration = Duration::from_secs(30);

/// The heartbeat dates the end of a run no better than this.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// The circumstances of the present moment.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) rules: Rules,
    pub(crate) mode: Mode,
    now: Duration,
    /// When a fault was last on, or its doing last seen.
    trouble: Option<Duration>,
    /// The run of the agent that is up.
    pub(crate) run: Option<Run>,
    /// When the run before ended.
    ended: Option<Duration>,
    /// The longest absence that no status has followed yet. A run that dies before it publishes leaves its doubt to the next.
    unpublished_away: Duration,
    /// Whether the ledger refused something in the present run or, once it has ended, in that one.
    disk_failed: bool,
    /// The ledger was wiped, and no run since has lived to say anything.
    wiped: bool,
    /// The same of a ledger that is older than what was published.
    behind: bool,
    /// When the wall clock was last set.
    pub(crate) wall_set: Option<Duration>,
}

/// A run of the agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) started: Duration,
    /// No agent was there for at most this long before, at a time since the last status.
    pub(crate) away: Duration,
    /// Whether it may have forgotten something.
    pub(crate) forgetful: bool,
    /// Whether the ledger it found is older than the end of the run before.
    pub(crate) behind: bool,
}

// === impl Context ===

impl Context {
    pub(crate) fn new(rules: Rules, mode: Mode) -> Self {
        Self {
            rules,
            mode,
            now: Duration::ZERO,
            trouble: None,
            run: None,
            ended: None,
            unpublished_away: Duration::ZERO,
            disk_failed: false,
            wiped: false,
            behind: false,
            wall_set: None,
        }
    }

    pub(crate) fn see(&mut self, entry: &Entry, quiet: bool) {
        self.now = entry.at;
        if !quiet {
            self.trouble = Some(entry.at);
        }
        match &entry.what {
            Happening::AgentStarts { memory, .. } => {
                let away = self.ended.map_or(Duration::ZERO, |ended| entry.at - ended + HEARTBEAT);
                let away = away.max(self.unpublished_away);
                self.unpublished_away = away;
                self.behind |= self.disk_failed && *memory == Memory::Kept;
                let behind = self.behind;
                self.wiped |= *memory == Memory::Wiped;
                let forgetful = self.wiped || behind;
                self.run = Some(Run { started: entry.at, away, forgetful, behind });
                self.disk_failed = false;
            }
            Happening::AgentDies { .. } | Happening::AgentStops { .. } => {
                // A run that dies young may not have left a heartbeat.
                let seen = self.run.take().is_some_and(|run| entry.at >= run.started + HEARTBEAT);
                if seen || self.ended.is_none() {
                    self.ended = Some(entry.at);
                }
            }
            Happening::Published { .. } => {
                (self.wiped, self.behind) = (false, false);
                self.unpublished_away = Duration::ZERO;
            }
            Happening::WallSet { .. } => self.wall_set = Some(entry.at),
            Happening::DiskFailed { .. } => self.disk_failed = true,
            Happening::Reboot | Happening::Note(_) => self.trouble = Some(entry.at),
            _ => {}
        }
    }

    /// Whether everything has been well for a while.
    pub(crate) fn is_calm(&self) -> bool {
        self.trouble.is_none_or(|trouble| self.now > trouble + AFTERMATH)
    }

    /// Whether nothing went wrong since then.
    pub(crate) fn was_calm_since(&self, since: Duration) -> bool {
        self.trouble.is_none_or(|trouble| trouble + AFTERMATH < since)
    }
}
