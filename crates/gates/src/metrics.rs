//! Numbers for monitoring gates: the names of KEP-5233 and of the node-readiness-controller where they have one, `keelet_gates_` where
//! they have none.
//!
//! | metric | labels | counts |
//! | --- | --- | --- |
//! | `readiness_gate_controller_nodes_managed_total` | | gauge: nodes that have or had a gate |
//! | `readiness_gate_controller_nodes_unready_total` | | gauge: nodes with a gate taint now |
//! | `readiness_gate_controller_taint_removal_latency_seconds` | | from the condition's transition to the answer of the patch |
//! | `readiness_gate_controller_taints_removed_total` | | gate taints removed |
//! | `keelet_gates_reaction_seconds` | | from the sight of a change to the answer of the patch, on our own clock |
//! | `keelet_gates_taints_added_total` | | gate taints added, by rules or continuous enforcement |
//! | `keelet_gates_waiting` | reason | gauge: gates that are closed, or should be, by the reason |
//! | `keelet_gates_held_nodes`, `keelet_gates_held_nodes_allowed` | | gauges: nodes held, and how many may be |
//! | `keelet_gates_patches_total` | outcome | patches of nodes by what came of them |
//! | `keelet_gates_decisions_total` | | how often the gates of a node were looked at |
//! | `keelet_gates_oldest_wait_timestamp_seconds` | | gauge: since when the node waits that has waited longest; 0 if none does |
//! | `keelet_gates_queue`, `keelet_gates_calls_in_flight` | | gauges: nodes to be looked at, requests under way |
//! | `keelet_gates_leader`, `keelet_gates_synced` | | gauges: 1 while this process leads; 1 once it knows all nodes |
//! | `keelet_gates_nodes` | | gauge: nodes that there are |
//! | `keelet_gates_watches_total` | resource, end | watches that ended, by how |
//! | `keelet_gates_events_total` | outcome | events written, failed and dropped |
//! | `keelet_gates_would_total` | change | what a dry run would have done |
//! | `node_readiness_rules_total` | | gauge: rules |
//! | `node_readiness_rule_nodes` | rule, state | gauge: nodes held and released by a rule |
//! | `node_readiness_taint_operations_total` | rule, operation | taints added and removed for a rule |
//! | `node_readiness_bootstrap_completed_total` | rule | nodes that have passed a bootstrap-only rule |
//! | `node_readiness_bootstrap_duration_seconds` | rule | from the creation of a node to its conditions, for nodes younger than the rule |
//! | `node_readiness_reconciliation_latency_seconds` | rule, operation | from the condition's transition to the answer of the patch |
//! | `node_readiness_failures_total` | rule, reason | patches that failed |
//! | `node_readiness_rule_last_reconciliation_timestamp_seconds` | rule | gauge: when all nodes of a rule were last counted |
//!
//! Numbers about the cluster are the leader's: a follower shows 0, so that a sum over replicas is right.

use std::time::Duration;

use keelet_api::WatchObserver;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// From a transition, which has whole seconds, to an hour; 10 s is the objective (CTRL-10).
const LATENCY: [f64; 15] = [0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 1200.0, 3600.0];
/// From a millisecond to half a minute.
const REACTION: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// All metrics of the controller.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub(crate) managed: Gauge,
    pub(crate) unready: Gauge,
    latency: Histogram,
    removed: Counter,
    reaction: Histogram,
    added: Counter,
    waiting: Family<OfReason, Gauge>,
    pub(crate) held: Gauge,
    pub(crate) allowed: Gauge,
    patches: Family<OfOutcome, Counter>,
    decisions: Counter,
    pub(crate) oldest: Gauge,
    pub(crate) queue: Gauge,
    pub(crate) in_flight: Gauge,
    pub(crate) leader: Gauge,
    pub(crate) synced: Gauge,
    pub(crate) nodes: Gauge,
    watches: Family<OfWatch, Counter>,
    events: Family<OfOutcome, Counter>,
    would: Family<OfChange, Counter>,
    pub(crate) rules: Gauge,
    rule_nodes: Family<OfRuleState, Gauge>,
    rule_operations: Family<OfRuleOperation, Counter>,
    rule_completed: Family<OfRule, Counter>,
    rule_bootstrap: Family<OfRule, Histogram, fn() -> Histogram>,
    rule_latency: Family<OfRuleOperation, Histogram, fn() -> Histogram>,
    rule_failures: Family<OfRuleFailure, Counter>,
    rule_counted: Family<OfRule, Gauge>,
}

/// What is done to a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is added.
    Add,
    /// It is removed.
    Remove,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOutcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfWatch {
    resource: &'static str,
    end: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfChange {
    change: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRule {
    rule: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRuleState {
    rule: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRuleOperation {
    rule: String,
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRuleFailure {
    rule: String,
    reason: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        let kep = |name: &str| format!("readiness_gate_controller_{name}");
        Self {
            managed: add(r, &kep("nodes_managed_total"), "Nodes that have or had a readiness gate"),
            unready: add(r, &kep("nodes_unready_total"), "Nodes that have a readiness gate taint now"),
            latency: histogram(
                r,
                &kep("taint_removal_latency_seconds"),
                "From the transition of the condition to the removal of its taint",
                &LATENCY,
            ),
            removed: add(r, &kep("taints_removed"), "Readiness gate taints removed"),
            reaction: histogram(
                r,
                "keelet_gates_reaction_seconds",
                "From the sight of a change to the answer of the patch",
                &REACTION,
            ),
            added: add(r, "keelet_gates_taints_added", "Readiness gate taints added"),
            waiting: add(r, "keelet_gates_waiting", "Gates that are closed, or should be, by the reason"),
            held: add(r, "keelet_gates_held_nodes", "Nodes in use that are held by a taint of the controller"),
            allowed: add(r, "keelet_gates_held_nodes_allowed", "How many nodes may be held"),
            patches: add(r, "keelet_gates_patches", "Patches of nodes"),
            decisions: add(r, "keelet_gates_decisions", "Looks at the gates of a node"),
            oldest: add(
                r,
                "keelet_gates_oldest_wait_timestamp_seconds",
                "Since when the node waits that has waited longest for a gate; 0 if none does",
            ),
            queue: add(r, "keelet_gates_queue", "Nodes that have to be looked at"),
            in_flight: add(r, "keelet_gates_calls_in_flight", "Requests about nodes that are under way"),
            leader: add(r, "keelet_gates_leader", "Whether this process leads"),
            synced: add(r, "keelet_gates_synced", "Whether all nodes are known"),
            nodes: add(r, "keelet_gates_nodes", "Nodes"),
            watches: add(r, "keelet_gates_watches", "Watches that ended"),
            events: add(r, "keelet_gates_events", "Events on nodes"),
            would: add(r, "keelet_gates_would", "What a dry run would have done"),
            rules: add(r, "node_readiness_rules_total", "NodeReadinessRule objects"),
            rule_nodes: add(r, "node_readiness_rule_nodes", "Nodes that a rule holds, and that it has released"),
            rule_operations: add(r, "node_readiness_taint_operations", "Taints added and removed for a rule"),
            rule_completed: add(
                r,
                "node_readiness_bootstrap_completed",
                "Nodes that have passed a bootstrap-only rule",
            ),
            rule_bootstrap: family(
                r,
                "node_readiness_bootstrap_duration_seconds",
                "From the creation of a node to its conditions",
            ),
            rule_latency: family(
                r,
                "node_readiness_reconciliation_latency_seconds",
                "From the transition of the condition to the change of the taint",
            ),
            rule_failures: add(r, "node_readiness_failures", "Patches for a rule that failed"),
            rule_counted: add(
                r,
                "node_readiness_rule_last_reconciliation_timestamp_seconds",
                "When the nodes of a rule were last counted",
            ),
            registry,
        }
    }

    /// All of them, in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("a string takes everything");
        text
    }

    /// A gate taint was removed; `latency` from the transition of its condition, if a condition was the ground.
    pub(crate) fn taint_removed(&self, latency: Option<Duration>) {
        self.removed.inc();
        if let Some(latency) = latency {
            self.latency.observe(latency.as_secs_f64());
        }
    }

    pub(crate) fn taint_added(&self) {
        self.added.inc();
    }

    pub(crate) fn reacted(&self, after: Duration) {
        self.reaction.observe(after.as_secs_f64());
    }

    pub(crate) fn waiting(&self, reason: &'static str, change: i64) {
        self.waiting.get_or_create(&OfReason { reason }).inc_by(change);
    }

    pub(crate) fn patched(&self, outcome: &'static str) {
        self.patches.get_or_create(&OfOutcome { outcome }).inc();
    }

    pub(crate) fn decided(&self) {
        self.decisions.inc();
    }

    pub(crate) fn event(&self, outcome: &'static str) {
        self.events.get_or_create(&OfOutcome { outcome }).inc();
    }

    pub(crate) fn would(&self, change: &'static str) {
        self.would.get_or_create(&OfChange { change }).inc();
    }

    pub(crate) fn rule_operated(&self, rule: &str, operation: Operation, latency: Option<Duration>) {
        let (rule, short) = (rule.to_owned(), matches!(operation, Operation::Add));
        let operation = if short { "add" } else { "remove" };
        self.rule_operations.get_or_create(&OfRuleOperation { rule: rule.clone(), operation }).inc();
        if let Some(latency) = latency {
            let operation = if short { "add_taint" } else { "remove_taint" };
            self.rule_latency.get_or_create(&OfRuleOperation { rule, operation }).observe(latency.as_secs_f64());
        }
    }

    pub(crate) fn rule_completed(&self, rule: &str, bootstrap: Option<Duration>) {
        let labels = OfRule { rule: rule.to_owned() };
        self.rule_completed.get_or_create(&labels).inc();
        if let Some(bootstrap) = bootstrap {
            self.rule_bootstrap.get_or_create(&labels).observe(bootstrap.as_secs_f64());
        }
    }

    pub(crate) fn rule_failed(&self, rule: &str, reason: &'static str) {
        self.rule_failures.get_or_create(&OfRuleFailure { rule: rule.to_owned(), reason }).inc();
    }

    pub(crate) fn rule_counted(&self, rule: &str, held: usize, released: usize, at: i64) {
        for (state, count) in [("held", held), ("released", released)] {
            self.rule_nodes.get_or_create(&OfRuleState { rule: rule.to_owned(), state }).set(gauge(count));
        }
        self.rule_counted.get_or_create(&OfRule { rule: rule.to_owned() }).set(at);
    }

    /// A rule is not enforced, so it holds and releases no nodes.
    pub(crate) fn rule_not_counted(&self, rule: &str) {
        for state in ["held", "released"] {
            self.rule_nodes.remove(&OfRuleState { rule: rule.to_owned(), state });
        }
        self.rule_counted.remove(&OfRule { rule: rule.to_owned() });
    }

    /// A rule is gone, and what is said about it with it.
    pub(crate) fn forget_rule(&self, rule: &str) {
        let labels = OfRule { rule: rule.to_owned() };
        self.rule_completed.remove(&labels);
        self.rule_bootstrap.remove(&labels);
        self.rule_not_counted(rule);
        for operation in ["add", "remove"] {
            self.rule_operations.remove(&OfRuleOperation { rule: rule.to_owned(), operation });
        }
        for operation in ["add_taint", "remove_taint"] {
            self.rule_latency.remove(&OfRuleOperation { rule: rule.to_owned(), operation });
        }
        for reason in ["AddTaintError", "RemoveTaintError"] {
            self.rule_failures.remove(&OfRuleFailure { rule: rule.to_owned(), reason });
        }
    }

    /// Numbers about the cluster are the leader's.
    pub(crate) fn stepped_down(&self) {
        for gauge in [&self.managed, &self.unready, &self.held, &self.allowed, &self.queue, &self.oldest] {
            gauge.set(0);
        }
        self.waiting.clear();
        self.rule_nodes.clear();
    }
}

impl WatchObserver for Metrics {
    fn watch_ended(&self, resource: &'static str, end: &'static str) {
        self.watches.get_or_create(&OfWatch { resource, end }).inc();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Registers a metric. Counters get `_total` behind their name when they are written out.
fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    register(registry, name, help, M::default())
}

fn histogram(registry: &mut Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    register(registry, name, help, Histogram::new(buckets.iter().copied()))
}

fn family<S: EncodeLabelSet + Clone + std::hash::Hash + Eq + std::fmt::Debug + Send + Sync + 'static>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> Family<S, Histogram, fn() -> Histogram> {
    register(registry, name, help, Family::new_with_constructor(|| Histogram::new(LATENCY)))
}

fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    /// METR-7, CON-23, CON-24: the four of the KEP, by their literal names, and not the one that is defined nowhere.
    #[test]
    fn the_metrics_of_the_kep_have_their_names() {
        let metrics = Metrics::new();
        metrics.managed.set(3);
        metrics.unready.set(2);
        metrics.taint_removed(Some(Duration::from_secs(8)));
        metrics.taint_removed(None);
        let text = metrics.encode();
        for line in [
            "# TYPE readiness_gate_controller_nodes_managed_total gauge",
            "readiness_gate_controller_nodes_managed_total 3",
            "# TYPE readiness_gate_controller_nodes_unready_total gauge",
            "readiness_gate_controller_nodes_unready_total 2",
            "# TYPE readiness_gate_controller_taint_removal_latency_seconds histogram",
            "readiness_gate_controller_taint_removal_latency_seconds_bucket{le=\"7.5\"} 0",
            "readiness_gate_controller_taint_removal_latency_seconds_bucket{le=\"10.0\"} 1",
            "readiness_gate_controller_taint_removal_latency_seconds_count 1",
            "# TYPE readiness_gate_controller_taints_removed counter",
            "readiness_gate_controller_taints_removed_total 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("unschedulable_nodes"));
    }

    /// METR-9, PEER-21
    #[test]
    fn the_metrics_of_rules_go_with_the_rule() {
        let metrics = Metrics::new();
        metrics.rules.set(1);
        metrics.rule_operated("net", Operation::Add, Some(Duration::from_secs(1)));
        metrics.rule_operated("net", Operation::Remove, None);
        metrics.rule_completed("net", Some(Duration::from_secs(30)));
        metrics.rule_failed("net", "AddTaintError");
        metrics.rule_counted("net", 1, 2, 1_700_000_000);
        let text = metrics.encode();
        for line in [
            "node_readiness_rules_total 1",
            "node_readiness_taint_operations_total{rule=\"net\",operation=\"add\"} 1",
            "node_readiness_taint_operations_total{rule=\"net\",operation=\"remove\"} 1",
            "node_readiness_bootstrap_completed_total{rule=\"net\"} 1",
            "node_readiness_bootstrap_duration_seconds_count{rule=\"net\"} 1",
            "node_readiness_reconciliation_latency_seconds_count{rule=\"net\",operation=\"add_taint\"} 1",
            "node_readiness_failures_total{rule=\"net\",reason=\"AddTaintError\"} 1",
            "node_readiness_rule_nodes{rule=\"net\",state=\"held\"} 1",
            "node_readiness_rule_nodes{rule=\"net\",state=\"released\"} 2",
            "node_readiness_rule_last_reconciliation_timestamp_seconds{rule=\"net\"} 1700000000",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        metrics.forget_rule("net");
        assert!(!metrics.encode().contains("rule=\"net\""));
    }

    /// SCN-G16, CTRL-14: a follower shows nothing about the cluster.
    #[test]
    fn numbers_about_the_cluster_are_the_leaders() {
        let metrics = Metrics::new();
        metrics.unready.set(4);
        metrics.waiting("condition-false", 4);
        metrics.stepped_down();
        let text = metrics.encode();
        assert!(text.contains("readiness_gate_controller_nodes_unready_total 0"));
        assert!(!text.contains("condition-false"));
    }
}
