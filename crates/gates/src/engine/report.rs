//! What people see of a decision: gauges, reports of what is not done, and what a dry run would do.

use jiff::Timestamp;

use super::{Counted, Engine, Mode, Said, Text};
use crate::{
    decide::{self, Decision, State, Verdict},
    words,
};

// === impl Engine ===

impl Engine {
    /// Keeps gauges right.
    pub(super) fn count(&mut self, name: &Text, decision: &Decision) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let matters = |verdict: &&Verdict| {
            verdict.state.blocks() || matches!(verdict.state, State::Refused { .. } | State::Counting { .. })
        };
        let counted = Counted {
            managed: decide::is_managed(&entry.node, &self.settings),
            unready: decide::is_unready(&entry.node, &self.settings),
            waiting: decision.verdicts.iter().filter(matters).map(|verdict| words::word(&verdict.state)).collect(),
        };
        let before = std::mem::replace(&mut entry.counted, counted);
        before.show(&self.metrics, -1);
        entry.counted.show(&self.metrics, 1);
    }

    /// Keeps since when a node waits for a gate: since `since`, unless it has waited before.
    pub(super) fn wait(&mut self, name: &Text, since: Timestamp) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let waits = decide::waits_since(&entry.node, &self.settings).is_some();
        let after = waits.then(|| entry.waits_since.unwrap_or(since));
        let before = std::mem::replace(&mut entry.waits_since, after);
        if let Some(before) = before {
            self.waits.remove(&(before, Text::clone(name)));
        }
        self.waits.extend(after.map(|after| (after, Text::clone(name))));
    }

    /// Says once what is not done, for as long as it is so.
    pub(super) fn notice(&mut self, name: &Text, decision: &Decision) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let reports: Vec<_> = decision.verdicts.iter().filter_map(words::notice).collect();
        let apply = |told: &(&'static str, Text)| {
            reports.iter().any(|report| (report.reason, &report.key) == (told.0, &told.1))
        };
        entry.told.retain(apply);
        for report in reports {
            if entry.told.insert((report.reason, Text::clone(&report.key))) {
                let uid = Text::clone(&entry.node.uid);
                self.said.push(Said { node: Text::clone(name), uid, report, mode: self.mode });
            }
        }
    }

    /// Says and counts what would be done.
    pub(super) fn would(&mut self, name: &Text, decision: &Decision) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let would = |verdict: &Verdict| match verdict.state {
            State::Passes(_) => Some("remove"),
            State::Returns { .. } => Some("add"),
            State::Completes => Some("complete"),
            _ => None,
        };
        let changes =
            decision.verdicts.iter().filter_map(|verdict| Some((Text::clone(&verdict.gate.key), would(verdict)?)));
        let changes: Vec<_> = changes.collect();
        if entry.would == changes {
            return;
        }
        entry.would = changes;
        for verdict in &decision.verdicts {
            if let Some(change) = would(verdict) {
                self.metrics.would(change);
            }
            if let Some(report) = words::change(verdict) {
                let uid = Text::clone(&entry.node.uid);
                self.said.push(Said { node: Text::clone(name), uid, report, mode: Mode::DryRun });
            }
        }
    }
}
