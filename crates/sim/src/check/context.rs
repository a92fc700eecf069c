//! What went wrong lately, so that the checkers do not blame the agent for what it could not know.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use keelet_lifecycle::{Rules, status::PodStatus};

use super::bare;
use crate::{
    node::Node,
    sim::Mode,
    timeline::{Happening, Memory, Occurrence},
};

/// How long after the last fault things may still look odd: a hanging observation takes ten seconds to be given up.
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
    /// When the ledger first refused something, in runs of which none has published a status without a refusal since.
    refused: Option<Duration>,
    /// Instances that a status showed, and when the first did.
    shown: BTreeMap<String, Duration>,
    /// Instances that vanished without a request to remove them.
    vanished: BTreeSet<String>,
    /// Instances that a run of the agent could not know of: neither its ledger nor the runtime had them.
    forgotten: BTreeSet<String>,
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
    /// From when on the ledger it found may lack what was written.
    lacks_since: Option<Duration>,
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
            refused: None,
            shown: BTreeMap::new(),
            vanished: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            wall_set: None,
        }
    }

    pub(crate) fn see(&mut self, entry: &Occurrence, node: &Node, quiet: bool) {
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
                let lacks_since = if self.wiped { Some(Duration::ZERO) } else { self.refused.filter(|_| behind) };
                self.run = Some(Run { started: entry.at, away, forgetful, behind, lacks_since });
                self.disk_failed = false;
                self.forget(node);
            }
            Happening::AgentDies { .. } | Happening::AgentStops { .. } => {
                // A run that dies young may not have left a heartbeat.
                let seen = self.run.take().is_some_and(|run| entry.at >= run.started + HEARTBEAT);
                if seen || self.ended.is_none() {
                    self.ended = Some(entry.at);
                }
            }
            Happening::Published { status, .. } => {
                (self.wiped, self.behind) = (false, false);
                self.unpublished_away = Duration::ZERO;
                self.refused = self.refused.filter(|_| self.disk_failed);
                self.show(entry.at, status);
            }
            Happening::Undelivered { status, .. } => self.show(entry.at, status),
            Happening::Removed { instance, asked: false } => {
                self.vanished.insert(instance.id.clone());
            }
            Happening::WallSet { .. } => self.wall_set = Some(entry.at),
            Happening::DiskFailed { .. } => {
                self.disk_failed = true;
                self.refused.get_or_insert(entry.at);
            }
            Happening::Reboot | Happening::Note(_) => self.trouble = Some(entry.at),
            _ => {}
        }
    }

    fn show(&mut self, at: Duration, status: &PodStatus) {
        for id in status.all_containers().filter_map(|shown| shown.container_id.as_deref()) {
            if !self.shown.contains_key(bare(id)) {
                self.shown.insert(bare(id).to_owned(), at);
            }
        }
    }

    /// Whether the agent may never have known of an instance: it vanished before any status showed it.
    pub(crate) fn may_be_unknown(&self, id: &str) -> bool {
        self.vanished.contains(id) && !self.shown.contains_key(id)
    }

    /// A run begins: what neither its ledger nor the runtime has is lost for good.
    fn forget(&mut self, node: &Node) {
        let ids = node.all_runs().map(|run| &run.instance.id).filter(|id| !node.containers.contains_key(*id));
        let lost: Vec<String> = ids.filter(|id| self.may_lack(id)).cloned().collect();
        self.forgotten.extend(lost);
    }

    /// Whether an instance was lost for good for some run of the agent.
    pub(crate) fn was_forgotten(&self, id: &str) -> bool {
        self.forgotten.contains(id)
    }

    /// Whether the ledger that the present run found may lack an instance. Evidence is written before the status that rests on it is
    /// published.
    pub(crate) fn may_lack(&self, id: &str) -> bool {
        self.run.is_some_and(|run| run.may_lack(self.shown.get(id).copied().unwrap_or(Duration::MAX)))
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

// === impl Run ===

impl Run {
    /// Whether the ledger that it found may lack what a status first showed then.
    pub(crate) fn may_lack(&self, shown: Duration) -> bool {
        self.lacks_since.is_some_and(|since| shown >= since)
    }
}
