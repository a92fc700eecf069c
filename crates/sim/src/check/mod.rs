//! What must hold whatever happens. Every checker is a small type of its own that sees every entry of the timeline.
//!
//! Checkers judge the agent by what the node and the readers saw, never by what the agent says of itself. Where a fault
//! leaves the agent no way to know better they let it pass: [`Context`] keeps track of what went wrong lately.

mod backoff;
mod context;
pub(crate) mod convergence;
mod counts;
mod evidence;
mod first_results;
mod order;
mod probing;
mod restart_all;
#[cfg(test)]
mod tests;
mod transitions;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use keelet_lifecycle::Rules;
use keelet_pod::Pod;

pub(crate) use self::context::Context;
use crate::{node::Node, sim::Mode, timeline::Occurrence};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, since the world began.
    pub at: Duration,
    /// Which checker found it.
    pub check: &'static str,
    /// What is wrong.
    pub message: String,
}

/// What a checker found, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding(pub(crate) String);

/// What a checker may read besides the entry.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) node: &'a Node,
    pub(crate) pods: &'a BTreeMap<String, Arc<Pod>>,
    pub(crate) context: &'a Context,
}

/// Something that must hold.
pub(crate) trait Check: Send {
    /// Its name, for people.
    fn name(&self) -> &'static str;
    /// Looks at what has just happened. The node is as it is after it.
    fn see(&mut self, entry: &Occurrence, view: View<'_>) -> Result<(), Finding>;
    /// Looks at a world that has come to rest.
    fn at_rest(&mut self, _: View<'_>) -> Result<(), Finding> {
        Ok(())
    }
}

/// All checkers.
pub(crate) struct Checks {
    context: Context,
    checks: Vec<Box<dyn Check>>,
}

// === impl Checks ===

impl Checks {
    pub(crate) fn new(rules: Rules, mode: Mode) -> Self {
        let checks: Vec<Box<dyn Check>> = vec![
            Box::new(evidence::Evidence::default()),
            Box::new(counts::Counts::default()),
            Box::new(order::Order::default()),
            Box::new(probing::Probing::default()),
            Box::new(restart_all::RestartAll::default()),
            Box::new(backoff::Backoff::default()),
            Box::new(first_results::FirstResults::default()),
            Box::new(transitions::Transitions::default()),
        ];
        Self { context: Context::new(rules, mode), checks }
    }

    /// From now on these rules count.
    pub(crate) fn expect(&mut self, rules: Rules) {
        self.context.rules = rules;
    }

    /// Shows an entry to all checkers.
    pub(crate) fn see(
        &mut self,
        entry: &Occurrence,
        node: &Node,
        pods: &BTreeMap<String, Arc<Pod>>,
        quiet: bool,
    ) -> Vec<Violation> {
        self.context.see(entry, node, quiet);
        let view = View { node, pods, context: &self.context };
        let findings = self.checks.iter_mut().map(|check| (check.name(), check.see(entry, view)));
        findings.filter_map(|(check, found)| violation(entry.at, check, found)).collect()
    }

    /// Asks all checkers about a world that has come to rest.
    pub(crate) fn at_rest(&mut self, at: Duration, node: &Node, pods: &BTreeMap<String, Arc<Pod>>) -> Vec<Violation> {
        let view = View { node, pods, context: &self.context };
        let findings = self.checks.iter_mut().map(|check| (check.name(), check.at_rest(view)));
        findings.filter_map(|(check, found)| violation(at, check, found)).collect()
    }
}

fn violation(at: Duration, check: &'static str, found: Result<(), Finding>) -> Option<Violation> {
    found.err().map(|Finding(message)| Violation { at, check, message })
}

// === impl Violation ===

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.at.as_millis();
        write!(f, "{}.{:03}s [{}] {}", millis / 1000, millis % 1000, self.check, self.message)
    }
}

/// A container ID as the node knows it, without the scheme.
pub(crate) fn bare(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, bare)| bare)
}
