//! The controller without its connections: which node is looked at when, and what came of a patch.
//!
//! Nodes come in ([`Engine::observe`]), requests go out ([`Engine::next`]), answers come in ([`Engine::finished`]). The engine asks no
//! clock and opens no connection, so every order of events is a unit test. One owner holds it, and a slow answer for one node delays
//! no other.
//!
//! ```text
//! observe -> queue -> next: decide -> nothing to do: idle, until a change or a time
//!              ^                   -> patch -> finished: done -> counted, reported, looked at once more
//!              |                                       conflict, no answer -> read again, if nothing newer came -> queue
//!              '---------------------------------------refused -> read again, after a pause
//! ```

mod finish;
mod queue;
mod report;
mod room;
mod rules;
mod seen;
mod trouble;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

pub use self::rules::{RuleCall, RulePart};
use self::{room::Count, rules::Upkeep, trouble::Trouble};
use crate::{
    decide::{self, Budget, Circumstances, State, Verdict},
    election::Instant,
    metrics::{Metrics, gauge},
    node::{Node, Text, Version},
    record,
    rule::{Rules, Seen},
    settings::Settings,
    words::Report,
};

/// Patches and reads under way at once. A request over HTTP/1.1 is a connection of its own; an API server answers a patch in some 5 ms, so
/// these are enough for thousands of nodes a second, and few enough for priority and fairness of the API server.
pub const IN_FLIGHT: usize = 32;

/// The time, twice: on our own monotonic clock and on the wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For waiting.
    pub at: Instant,
    /// For comparing with what others wrote.
    pub wall: Timestamp,
}

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are.
    #[default]
    Act,
    /// They are counted and reported only.
    DryRun,
}

/// A request about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Tells calls apart.
    pub id: u64,
    /// The node.
    pub node: Text,
    /// What to ask for.
    pub request: Request,
}

/// What to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read the node.
    Get,
    /// Send this JSON merge patch.
    Patch(Vec<u8>),
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The node as it is now.
    Node(Box<Node>),
    /// There is no such node.
    NotFound,
    /// The node is not what the patch was for.
    Conflict,
    /// Too many requests: come again after so long.
    Throttled(Option<Duration>),
    /// No answer, or one that says nothing about what was done.
    Unavailable(String),
    /// The API server does not want it.
    Refused(String),
    /// It was not sent, because this one does not lead any more.
    NotSent,
}

/// Something to be said about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The name of the node.
    pub node: Text,
    /// Its UID.
    pub uid: Text,
    /// What is said.
    pub report: Report,
    /// Whether it was done, or would be in earnest.
    pub mode: Mode,
}

/// The controller without its connections.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    mode: Mode,
    metrics: Arc<Metrics>,
    rules: Rules,
    /// Nothing is decided before all nodes and all rules are known (GN-5).
    nodes_known: bool,
    rules_known: bool,
    /// Only a leader decides.
    leads: bool,
    nodes: BTreeMap<Text, Entry>,
    /// Nodes to be looked at, in order.
    queue: VecDeque<Text>,
    /// Nodes to be looked at when their time has come. An entry counts only if the node still says so.
    later: BTreeSet<(Instant, Text)>,
    /// Nodes that count towards `--max-held`, with those whose patch is under way.
    held: BTreeSet<Text>,
    /// Nodes that should be held and are not, because there is no room, or it is not known yet.
    refused: BTreeSet<Text>,
    /// Nodes that wait for a gate, by since when.
    waits: BTreeSet<(Timestamp, Text)>,
    count: Count,
    in_flight: usize,
    last_call: u64,
    /// Which list of nodes is under way, or was last.
    list: u64,
    trouble: Trouble,
    upkeep: Upkeep,
    said: Vec<Said>,
}

/// Where a node comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A watch, which may be behind what an answer has said.
    Watch,
    /// A list or a read: the API server promises the newest.
    Newest,
}

/// A node and what is being done about it.
#[derive(Debug)]
struct Entry {
    node: Node,
    /// Rules that this process saw select it.
    seen: Vec<Seen>,
    /// The list that it was last in, or after which it appeared.
    list: u64,
    work: Work,
    /// When its version was seen.
    updated: Instant,
    /// When it was last put into the queue because it changed, and how often with less than [`QUIET`] in between.
    looked: Instant,
    hurry: u32,
    /// Whether the API server refused the last patch.
    refused: bool,
    /// Since when it waits for a gate.
    waits_since: Option<Timestamp>,
    /// When the change was seen that has not led to a decision yet.
    changed: Instant,
    /// How many patches in a row did not settle it.
    tries: u32,
    /// Whether it has to be read before the next decision: a patch failed, and nothing newer came since.
    stale: bool,
    /// A patch whose answer was lost.
    unsure: Option<Sent>,
    /// Notices that were given and still apply.
    told: BTreeSet<(&'static str, Text)>,
    counted: Counted,
    /// What a dry run has said last: keys and what would become of them.
    would: Vec<(Text, &'static str)>,
}

/// What is being done about a node.
#[derive(Debug, PartialEq, Eq)]
enum Work {
    /// Nothing.
    Idle,
    /// It is in the queue.
    Queued,
    /// It is looked at again then, or when it changes.
    Sleeping(Instant),
    /// It is looked at again then, and not sooner.
    BackingOff(Instant),
    /// The same, because it changes all the time.
    Spaced(Instant),
    /// A request is under way: its number, and what was sent with a patch.
    Calling(u64, Option<Sent>),
}

/// A patch that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    verdicts: Vec<Verdict>,
    /// The version that it was for.
    version: Version,
    /// The record that it writes.
    record: Option<String>,
    /// Rules that the node completes by it, and after how long if that is known.
    completes: Vec<(Text, Option<Duration>)>,
    changed: Instant,
}

/// What metrics have of a node.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    managed: bool,
    unready: bool,
    waiting: Vec<&'static str>,
}

// === impl Engine ===

impl Engine {
    /// One that knows nothing yet.
    pub fn new(settings: Settings, mode: Mode, metrics: Arc<Metrics>) -> Self {
        Self {
            settings,
            mode,
            metrics,
            rules: Rules::default(),
            nodes_known: false,
            rules_known: false,
            leads: false,
            nodes: BTreeMap::new(),
            queue: VecDeque::new(),
            later: BTreeSet::new(),
            held: BTreeSet::new(),
            refused: BTreeSet::new(),
            waits: BTreeSet::new(),
            count: Count::Unknown,
            in_flight: 0,
            last_call: 0,
            list: 0,
            trouble: Trouble::default(),
            upkeep: Upkeep::default(),
            said: Vec::new(),
        }
    }

    /// Whether all nodes and rules are known.
    pub fn is_synced(&self) -> bool {
        self.nodes_known && self.rules_known
    }

    /// How many requests are under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Leads from now on, or does not any more.
    pub fn lead(&mut self, leads: bool, now: Now) {
        if self.leads == leads {
            return;
        }
        self.leads = leads;
        self.metrics.leader.set(i64::from(leads));
        if leads {
            self.look_at_all(now);
            return;
        }
        // Requests under way still end, and are forgotten.
        self.queue.clear();
        self.later.clear();
        self.refused.clear();
        self.count = Count::Unknown;
        self.upkeep.step_down();
        for entry in self.nodes.values_mut() {
            entry.counted = Counted::default();
            entry.told.clear();
            if !matches!(entry.work, Work::Calling(..)) {
                entry.work = Work::Idle;
            }
        }
        self.metrics.stepped_down();
    }

    /// A list of all nodes begins. What is known stays known, unless nodes have to be read anew before anything can be decided.
    pub fn list_begins(&mut self, anew: bool) {
        self.list += 1;
        if anew {
            self.nodes_known = false;
        }
    }

    /// The list is complete: nodes that were not in it are gone.
    pub fn list_ends(&mut self, now: Now) {
        let gone: Vec<_> =
            self.nodes.iter().filter(|(_, entry)| entry.list < self.list).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.forget(&name);
        }
        if !self.nodes_known {
            self.nodes_known = true;
            self.see_all();
            self.look_at_all(now);
        }
        self.counted(now);
        self.metrics.synced.set(i64::from(self.is_synced()));
    }

    /// A node as a watch has it.
    pub fn observe(&mut self, node: Node, now: Now) {
        self.take(node, Origin::Watch, now);
    }

    /// A node as a list has it.
    pub fn listed(&mut self, node: Node, now: Now) {
        self.take(node, Origin::Newest, now);
    }

    fn take(&mut self, node: Node, origin: Origin, now: Now) {
        let name = Text::clone(&node.name);
        if let Some(entry) = self.nodes.get_mut(&name)
            && entry.node.uid == node.uid
        {
            entry.list = self.list;
            if node.version.is_older_than(&entry.node.version) && !entry.is_restored(origin, now.at) {
                return;
            }
            let news = !entry.node.says_the_same(&node);
            let fresher = entry.node.version != node.version;
            // A heartbeat matters only where the age of a condition does.
            let beat = self.settings.condition_max_age.is_some() && entry.node.conditions != node.conditions;
            entry.node = node;
            if fresher {
                (entry.stale, entry.updated) = (false, now.at);
            }
            let applied = entry.settle();
            if let Some(sent) = applied {
                self.account(&name, &sent, now);
            }
            if news {
                self.upkeep.nodes_changed();
                self.see(&name);
                self.wait(&name, now.wall);
            }
            self.count_held(&name);
            if news || beat {
                self.look_at(&name, now);
            }
            return;
        }
        self.forget(&name);
        self.nodes.insert(Text::clone(&name), Entry::new(node, self.list, now.at));
        self.metrics.nodes.set(gauge(self.nodes.len()));
        self.upkeep.nodes_changed();
        self.see(&name);
        let since = self.nodes.get(&name).and_then(|entry| decide::waits_since(&entry.node, &self.settings));
        self.wait(&name, since.unwrap_or(now.wall));
        self.count_held(&name);
        self.look_at(&name, now);
    }

    /// A node was deleted.
    pub fn deleted(&mut self, name: &str, uid: &str) {
        if self.nodes.get(name).is_some_and(|entry| &*entry.node.uid == uid) {
            self.forget(name);
        }
    }

    /// All rules that there are now.
    pub fn set_rules(&mut self, rules: Rules, now: Now) {
        if self.rules_known && self.rules == rules {
            return;
        }
        self.rules_known = true;
        self.metrics.synced.set(i64::from(self.is_synced()));
        for rule in self.rules.list.keys().filter(|name| !rules.list.contains_key(*name)) {
            self.metrics.forget_rule(rule);
        }
        self.metrics.rules.set(gauge(rules.list.len()));
        self.rules = rules;
        self.see_all();
        self.upkeep.rules_changed(&self.rules);
        self.look_at_all(now);
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The next request, if one has to be made and may be made now.
    pub fn next(&mut self, now: Now) -> Option<Call> {
        let call = self.find_call(now);
        self.show();
        call
    }

    fn find_call(&mut self, now: Now) -> Option<Call> {
        if !self.leads || !self.is_synced() {
            return None;
        }
        loop {
            if self.in_flight >= self.trouble.limit(IN_FLIGHT) || now.at < self.trouble.until() {
                return None;
            }
            self.wake(now.at);
            let name = self.queue.pop_front()?;
            let Some(entry) = self.nodes.get_mut(&name) else { continue };
            if entry.work != Work::Queued {
                continue;
            }
            let request = if entry.stale { Some((Request::Get, None)) } else { self.decide(&name, now) };
            let Some((request, sent)) = request else { continue };
            self.last_call += 1;
            self.in_flight += 1;
            let id = self.last_call;
            self.nodes.get_mut(&name)?.work = Work::Calling(id, sent);
            return Some(Call { id, node: name, request });
        }
    }

    /// When [`Self::next`] has to be asked again although nothing happened.
    pub fn wake_at(&self) -> Option<Instant> {
        if !self.leads || !self.is_synced() {
            return None;
        }
        if self.in_flight >= self.trouble.limit(IN_FLIGHT) {
            // The end of a request wakes it.
            return self.upkeep.wake_at();
        }
        let later = self.later.first().map(|(at, _)| (*at).max(self.trouble.until()));
        let trouble = (!self.queue.is_empty()).then(|| self.trouble.until());
        later.into_iter().chain(trouble).chain(self.upkeep.wake_at()).min()
    }

    /// What is to be said since the last time.
    pub fn said(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }

    /// Decides about a node: a request if it needs one.
    fn decide(&mut self, name: &Text, now: Now) -> Option<(Request, Option<Sent>)> {
        let room = self.room(name);
        let entry = self.nodes.get_mut(name)?;
        let with =
            Circumstances { rules: &self.rules, settings: &self.settings, seen: &entry.seen, room, now: now.wall };
        let decision = decide::decide(&entry.node, &with);
        entry.work = Work::Idle;
        let waits = |verdict: &Verdict| matches!(verdict.state, State::Refused { .. } | State::Counting { .. });
        let refused = decision.verdicts.iter().any(waits);
        if refused {
            self.refused.insert(Text::clone(name));
        } else {
            self.refused.remove(name);
        }
        self.metrics.decided();
        self.count(name, &decision);
        self.notice(name, &decision);
        let entry = self.nodes.get_mut(name)?;
        if let Some(wake_at) = decision.wake_at {
            let after = Duration::try_from(wake_at.duration_since(now.wall)).unwrap_or_default();
            entry.work = Work::Sleeping(now.at + after);
            self.later.insert((now.at + after, Text::clone(name)));
        }
        if decision.edit.is_empty() {
            (entry.tries, entry.refused) = (0, false);
            return None;
        }
        if self.mode == Mode::DryRun {
            self.would(name, &decision);
            return None;
        }
        let patch = decision.edit.patch(&entry.node).to_string().into_bytes();
        let counted = |verdict: &Verdict| matches!(verdict.state, State::Returns { budget: Budget::Counted, .. });
        if decision.verdicts.iter().any(counted) {
            self.held.insert(Text::clone(name));
        }
        let sent = Sent {
            version: entry.node.version.clone(),
            changed: entry.changed,
            record: decision.edit.annotations.get(record::ANNOTATION).cloned().flatten(),
            completes: finish::completes(&self.rules, &entry.node, &decision),
            verdicts: decision.verdicts,
        };
        Some((Request::Patch(patch), Some(sent)))
    }

    fn forget(&mut self, name: &str) {
        if let Some(entry) = self.nodes.remove(name) {
            if let Some(since) = entry.waits_since {
                self.waits.remove(&(since, Text::clone(&entry.node.name)));
            }
            entry.counted.show(&self.metrics, -1);
            self.held.remove(name);
            self.refused.remove(name);
            self.upkeep.nodes_changed();
            self.metrics.nodes.set(gauge(self.nodes.len()));
            self.show();
        }
    }

    fn show(&self) {
        self.metrics.in_flight.set(gauge(self.in_flight));
        if self.leads {
            self.metrics.oldest.set(self.waits.first().map_or(0, |(since, _)| since.as_second()));
            self.metrics.queue.set(gauge(self.queue.len()));
            self.metrics.held.set(gauge(self.held.len()));
            self.metrics.allowed.set(gauge(self.settings.max_held.of(self.nodes.len())));
        }
    }
}

// === impl Entry ===

impl Entry {
    fn new(node: Node, list: u64, now: Instant) -> Self {
        Self {
            node,
            seen: Vec::new(),
            list,
            work: Work::Idle,
            updated: now,
            looked: now,
            hurry: 0,
            refused: false,
            waits_since: None,
            changed: now,
            tries: 0,
            stale: false,
            unsure: None,
            told: BTreeSet::new(),
            counted: Counted::default(),
            would: Vec::new(),
        }
    }
}

// === impl Counted ===

impl Counted {
    fn show(&self, metrics: &Metrics, by: i64) {
        metrics.managed.inc_by(if self.managed { by } else { 0 });
        metrics.unready.inc_by(if self.unready { by } else { 0 });
        for reason in &self.waiting {
            metrics.waiting(reason, by);
        }
    }
}

#[cfg(test)]
mod tests;
