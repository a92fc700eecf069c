//! What came of a request about a node.

use std::time::Duration;

use super::{Engine, Entry, Now, Origin as From, Outcome, Said, Sent, Text, Work};
use crate::{
    decide::{Decision, Origin, Pass, State, Verdict},
    metrics::Operation,
    node::Node,
    record,
    rule::{Mode, Rules},
    words,
};

/// How often a node is patched in a row without a pause. One is usual, two after a conflict; more means that another writer undoes it.
const AT_ONCE: u32 = 4;

// === impl Engine ===

impl Engine {
    /// A request has ended.
    pub fn finished(&mut self, id: u64, name: &Text, outcome: Outcome, now: Now) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match &outcome {
            Outcome::Unavailable(_) => self.trouble.failed(now.at),
            Outcome::Throttled(after) => self.trouble.throttled(now.at, *after),
            Outcome::NotSent => {}
            _ => self.trouble.over(),
        }
        // The node may have been deleted, and created again, since the request was made.
        let Some(entry) = self.nodes.get_mut(name) else { return self.show() };
        let sent = match std::mem::replace(&mut entry.work, Work::Idle) {
            Work::Calling(found, sent) if found == id => sent,
            other => {
                entry.work = other;
                return self.show();
            }
        };
        if sent.is_some() && outcome != Outcome::NotSent {
            self.metrics.patched(outcome.word());
        }
        match outcome {
            Outcome::Node(node) => self.answered(name, *node, sent, now),
            Outcome::NotFound if sent.is_some() => self.forget(name),
            // A read may be older than the node. Whether it exists is what the watch says; until then it is read again.
            Outcome::NotFound => self.read_again(name, now),
            Outcome::Conflict => {
                // What a watch has brought meanwhile is newer than what the patch was for.
                entry.stale = sent.as_ref().is_none_or(|sent| sent.version == entry.node.version);
                self.again(name, now, Duration::from_millis(10), Duration::from_secs(1));
            }
            Outcome::NotSent => self.queue_again(name),
            Outcome::Throttled(_) => self.again(name, now, Duration::from_millis(100), Duration::from_secs(60)),
            Outcome::Unavailable(_) => {
                // It may have been done: the node itself tells.
                entry.stale = true;
                entry.unsure = sent.or(entry.unsure.take());
                if let Some(sent) = entry.settle() {
                    self.account(name, &sent, now);
                }
                self.queue_again(name);
            }
            Outcome::Refused(why) => {
                if let Some(sent) = &sent {
                    self.failed(sent);
                    self.complain(name, sent, &why);
                }
                let Some(entry) = self.nodes.get_mut(name) else { return };
                (entry.stale, entry.refused) = (true, true);
                entry.tries = entry.tries.max(AT_ONCE);
                self.again(name, now, Duration::from_secs(1), Duration::from_secs(300));
            }
        }
        self.count_held(name);
        self.show();
    }

    fn answered(&mut self, name: &Text, node: Node, sent: Option<Sent>, now: Now) {
        // The same for a read that finds an earlier node of that name.
        let is_earlier = |entry: &Entry| entry.node.uid != node.uid && node.version.is_older_than(&entry.node.version);
        if sent.is_none() && self.nodes.get(name).is_some_and(is_earlier) {
            return self.read_again(name, now);
        }
        if let Some(entry) = self.nodes.get_mut(name) {
            entry.stale = false;
            if sent.is_some() {
                entry.unsure = None;
            }
        }
        if let Some(sent) = sent {
            self.account(name, &sent, now);
            let was_refused = self.nodes.get_mut(name).is_some_and(|entry| std::mem::take(&mut entry.refused));
            if was_refused {
                self.try_refused(now);
            }
        }
        self.take(node, From::Newest, now);
        // It is looked at once more, which usually finds nothing to do. Where another writer undoes the patch each time, this waits
        // longer and longer.
        self.again(name, now, Duration::from_millis(100), Duration::from_secs(60));
    }

    /// Counts and reports what a patch has done.
    pub(super) fn account(&mut self, name: &Text, sent: &Sent, now: Now) {
        let Some(entry) = self.nodes.get(name) else { return };
        let uid = Text::clone(&entry.node.uid);
        let mut changed = false;
        for verdict in &sent.verdicts {
            let (operation, since) = match &verdict.state {
                State::Passes(Pass { since, .. }) => (Operation::Remove, *since),
                State::Returns { unmet, .. } => {
                    (Operation::Add, unmet.iter().filter_map(|unmet| unmet.found.since()).max())
                }
                _ => continue,
            };
            changed = true;
            // A transition in the future is one of a fast clock (VEC-76).
            let latency = since.map(|since| Duration::try_from(now.wall.duration_since(since)).unwrap_or_default());
            match operation {
                Operation::Remove => self.metrics.taint_removed(latency),
                Operation::Add => self.metrics.taint_added(),
            }
            for rule in names(verdict) {
                self.metrics.rule_operated(rule, operation, latency);
            }
            if let Some(report) = words::change(verdict) {
                self.said.push(Said { node: Text::clone(name), uid: Text::clone(&uid), report, mode: self.mode });
            }
        }
        for (rule, bootstrap) in &sent.completes {
            self.metrics.rule_completed(rule, *bootstrap);
        }
        if changed {
            self.metrics.reacted(now.at.saturating_sub(sent.changed));
        }
    }

    /// Says once why the API server does not take a patch, for as long as it does not.
    fn complain(&mut self, name: &Text, sent: &Sent, why: &str) {
        let Some(entry) = self.nodes.get(name).filter(|entry| !entry.refused) else { return };
        let uid = Text::clone(&entry.node.uid);
        let changes =
            |verdict: &&Verdict| matches!(verdict.state, State::Passes(_) | State::Returns { .. } | State::Completes);
        let refused = sent.verdicts.iter().find(changes).map(|verdict| words::refused(verdict, why));
        self.said.extend(refused.map(|report| Said { node: Text::clone(name), uid, report, mode: self.mode }));
    }

    /// What the API server refused may be allowed now: every node whose patch was refused is tried again at once.
    pub fn try_refused(&mut self, now: Now) {
        let refused: Vec<_> =
            self.nodes.iter().filter(|(_, entry)| entry.refused).map(|(name, _)| Text::clone(name)).collect();
        for name in refused {
            self.look_at(&name, now);
        }
    }

    fn failed(&self, sent: &Sent) {
        for verdict in &sent.verdicts {
            let reason = match verdict.state {
                State::Passes(_) => "RemoveTaintError",
                State::Returns { .. } => "AddTaintError",
                _ => continue,
            };
            for rule in names(verdict) {
                self.metrics.rule_failed(rule, reason);
            }
        }
    }

    /// Looks at a node again: at once for the first few times, then after pauses that double.
    fn again(&mut self, name: &Text, now: Now, shortest: Duration, longest: Duration) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        entry.tries = entry.tries.saturating_add(1);
        if entry.tries <= AT_ONCE {
            return self.queue_again(name);
        }
        let pause = (shortest * 2_u32.pow((entry.tries - AT_ONCE).min(16))).min(longest);
        let at = now.at + pause;
        entry.work = Work::BackingOff(at);
        self.later.insert((at, Text::clone(name)));
    }

    /// Reads a node again, later: what was read is older than what is known.
    fn read_again(&mut self, name: &Text, now: Now) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        entry.stale = true;
        entry.tries = entry.tries.max(AT_ONCE);
        self.again(name, now, Duration::from_secs(1), Duration::from_secs(60));
    }

    fn queue_again(&mut self, name: &Text) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        if self.leads && entry.work != Work::Queued {
            entry.work = Work::Queued;
            self.queue.push_back(Text::clone(name));
        }
    }
}

/// The rules that a node completes by a decision, and how long after its creation its conditions held. Nodes that are older than the
/// rule say nothing about that.
pub(super) fn completes(rules: &Rules, node: &Node, decision: &Decision) -> Vec<(Text, Option<Duration>)> {
    let mut completes = Vec::new();
    for (rule, spec) in rules.specs() {
        let marked = decision.edit.annotations.contains_key(&rule.completed_key());
        if spec.mode != Mode::BootstrapOnly || !marked {
            continue;
        }
        let times = || {
            let of_rule = |verdict: &&Verdict| verdict.gate.key == spec.key && verdict.gate.effect == spec.effect;
            let since = match &decision.verdicts.iter().find(of_rule)?.state {
                State::Passes(pass) => pass.since?,
                _ => return None,
            };
            let created = node.created.filter(|created| rule.created.is_none_or(|rule| rule <= *created))?;
            Duration::try_from(since.duration_since(created)).ok()
        };
        completes.push((Text::clone(&rule.name), times()));
    }
    completes
}

fn names(verdict: &Verdict) -> impl Iterator<Item = &str> {
    let rules = if let Origin::Rules(rules) = &verdict.gate.origin { &rules[..] } else { &[] };
    rules.iter().map(|rule| &*rule.name)
}

// === impl Entry ===

impl Entry {
    /// Whether the patch whose answer was lost has been applied after all: by the record that it would have written.
    pub(super) fn settle(&mut self) -> Option<Sent> {
        let sent = self.unsure.as_ref()?;
        let found = self.node.annotations.get(record::ANNOTATION).map(|text| &**text);
        if sent.record.is_some() && found == sent.record.as_deref() {
            return self.unsure.take();
        }
        if self.node.version != sent.version {
            // Another version: the patch was not applied, and cannot be any more.
            self.unsure = None;
        }
        None
    }
}

// === impl Outcome ===

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Self::Node(_) => "done",
            Self::NotFound => "not-found",
            Self::Conflict => "conflict",
            Self::Throttled(_) => "throttled",
            Self::Unavailable(_) => "unavailable",
            Self::Refused(_) => "refused",
            Self::NotSent => "not-sent",
        }
    }
}
