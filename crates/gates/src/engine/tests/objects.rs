//! Rule objects: taints, finalizers, status.

use serde_json::json;

use super::*;
use crate::rule::{FINALIZER, Rule};

const TAINT: &str = "readiness.k8s.io/network:NoSchedule";

fn rule_json(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "7", "generation": 3, "finalizers": [FINALIZER]},
        "spec": {
            "conditions": [{"type": "CNI", "requiredStatus": "True"}], "enforcementMode": "continuous",
            "taint": {"key": "readiness.k8s.io/network", "effect": "NoSchedule"},
            "nodeSelector": {"matchLabels": {"role": "worker"}},
        },
    })
}

fn rules(json: impl IntoIterator<Item = Value>) -> Rules {
    Rules::new(json.into_iter().map(|json| Rule::read(json).unwrap()))
}

fn worker(name: &str, status: Status) -> Node {
    node(name).labelled("role", "worker").condition("CNI", status).created(crate::testing::ago(60)).build()
}

impl Bed {
    fn set_rules(&mut self, json: impl IntoIterator<Item = Value>) {
        let now = self.now();
        self.engine.set_rules(rules(json), now);
    }

    fn rule_calls(&mut self) -> Vec<RuleCall> {
        let now = self.now();
        self.engine.rule_calls(now)
    }

    fn finish_rule(&mut self, call: &RuleCall, done: bool) {
        let now = self.now();
        self.engine.rule_finished(call, done, now);
    }
}

/// PEER-16, SCN-G10, PEER-17
#[test]
fn rules_come_and_go_and_their_taints_with_them() {
    let mut bed = Bed::leading(Settings::default(), [worker("a", Status::False), worker("b", Status::True)]);
    assert_eq!(bed.settle(), []);
    bed.set_rules([rule_json("net")]);
    bed.settle();
    assert_eq!((bed.taints("a"), bed.taints("b").len()), (vec![TAINT.to_owned()], 0));
    assert_eq!(bed.said(), ["a TaintAdded"]);
    assert_eq!(bed.metric("node_readiness_rules_total"), "1");
    assert_eq!(bed.metric("node_readiness_taint_operations_total{rule=\"net\",operation=\"add\"}"), "1");

    let mut deleting = rule_json("net");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:00:00Z");
    bed.set_rules([deleting.clone()]);
    assert_eq!(bed.rule_calls(), [], "the finalizer stays while a node has the taint");
    bed.settle();
    assert_eq!((bed.taints("a").len(), bed.said()), (0, vec!["a TaintRemoved".to_owned()]));
    bed.pass(Duration::from_secs(10));
    let calls = bed.rule_calls();
    let patch = json!({"metadata": {"uid": "uid-net", "resourceVersion": "7", "finalizers": []}});
    assert_eq!(calls, [RuleCall { rule: "net".into(), part: RulePart::Object, patch }]);
    bed.finish_rule(&calls[0], true);
    bed.set_rules([]);
    assert!(!bed.metrics.encode().contains("rule=\"net\""));
    assert_eq!(bed.settle(), []);
}

/// GN-8: a rule is missing: no node loses its taint before the API server has confirmed that the rule is gone. One that this process never
/// saw select the node stays until a person removes it, and keeps no rule from being deleted.
#[test]
fn a_taint_goes_with_its_rule_when_that_is_confirmed() {
    let mut bed = Bed::leading(Settings::default(), [worker("a", Status::False)]);
    bed.set_rules([rule_json("net")]);
    bed.settle();
    let forged = r#"{"node":"uid-b","gates":{"readiness.k8s.io/network:NoSchedule":{"rule":"uid-net"}}}"#;
    bed.change(node("b").taint(TAINT).annotated(record::ANNOTATION, forged).build());
    assert_eq!(bed.settle(), []);
    assert_eq!(bed.said(), ["a TaintAdded", "b ReadinessGateIgnored"]);
    bed.set_rules([]);
    assert_eq!(bed.settle(), [], "no patch before it is confirmed");
    let now = bed.now();
    bed.engine.set_rules(Rules { gone: ["uid-net".into()].into(), ..Rules::default() }, now);
    bed.settle();
    assert_eq!((bed.taints("a").len(), bed.taints("b")), (0, vec![TAINT.to_owned()]));
    let mut deleting = rule_json("net");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:00:00Z");
    bed.set_rules([deleting]);
    assert_eq!(bed.rule_calls()[0].part, RulePart::Object, "the finalizer goes");
}

/// GN-8: a follower sees what the leader does, so that a taint goes with its rule although the leader died.
#[test]
fn a_follower_remembers_which_rules_selected_a_node() {
    let mut bed = Bed::leading(Settings::default(), [worker("a", Status::False)]);
    let now = bed.now();
    bed.engine.lead(false, now);
    bed.set_rules([rule_json("net")]);
    let added = r#"{"node":"uid-a","gates":{"readiness.k8s.io/network:NoSchedule":{"rule":"uid-net"}}}"#;
    bed.change(Builder::from(bed.server["a"].clone()).taint(TAINT).annotated(record::ANNOTATION, added).build());
    bed.change(Builder::from(bed.server["a"].clone()).labelled("role", "infra").build());
    bed.engine.lead(true, now);
    bed.settle();
    assert_eq!(bed.taints("a"), Vec::<String>::new());
}

/// PEER-17: of two rules with one taint on a node, the one that stays keeps it, and the other one goes.
#[test]
fn a_deleted_rule_does_not_wait_for_the_taint_of_another() {
    let mut deleting = rule_json("old");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:00:00Z");
    let mut bed = Bed::leading(Settings::default(), [worker("a", Status::False)]);
    bed.set_rules([rule_json("new"), deleting]);
    bed.settle();
    assert_eq!(bed.taints("a"), [TAINT]);
    let calls = bed.rule_calls();
    assert!(calls.iter().any(|call| &*call.rule == "old" && call.part == RulePart::Object), "{calls:?}");
}

/// PEER-17
#[test]
fn a_rule_gets_its_finalizer_first() {
    let mut bed = Bed::leading(Settings::default(), [worker("a", Status::True)]);
    let mut json = rule_json("net");
    json["metadata"]["finalizers"] = json!(["other.io/mine"]);
    bed.set_rules([json]);
    let calls = bed.rule_calls();
    assert_eq!(calls[0].patch["metadata"]["finalizers"], json!(["other.io/mine", FINALIZER]));
    assert_eq!(calls[0].patch["metadata"]["resourceVersion"], "7");
    bed.finish_rule(&calls[0], true);
}

/// PEER-7, PEER-8, PEER-18, SCN-G6, GN-8: counts, and no list of nodes.
#[test]
fn a_dry_run_is_reported_in_the_status_by_counts() {
    let mut bed =
        Bed::leading(Settings::default(), [worker("a", Status::False), worker("b", Status::True), node("c").build()]);
    let mut json = rule_json("net");
    json["spec"]["dryRun"] = json!(true);
    bed.set_rules([json]);
    assert_eq!(bed.settle(), []);
    let calls = bed.rule_calls();
    assert_eq!(calls[0].part, RulePart::Status);
    assert_eq!(
        calls[0].patch["status"],
        json!({
            "observedGeneration": 3, "appliedNodes": null, "failedNodes": null, "nodeEvaluations": null,
            "dryRunResults": {
                "affectedNodes": 2, "taintsToAdd": 1, "taintsToRemove": 0, "riskyOperations": 0,
                "summary": "of 2 nodes: 1 taints to add, 0 to remove; 0 nodes lack a condition",
            },
        })
    );
    bed.finish_rule(&calls[0], true);
    assert_eq!(bed.rule_calls(), []);
    bed.report("b", "CNI", Status::False);
    assert_eq!(bed.rule_calls(), [], "not more often than every ten seconds");
    bed.pass(Duration::from_secs(10));
    assert_eq!(bed.rule_calls()[0].patch["status"]["dryRunResults"]["taintsToAdd"], 2);
}

/// SCN-G13, SCN-G16, METR-9
#[test]
fn a_rule_that_is_enforced_is_counted() {
    let mut bed = Bed::leading(
        Settings::default(),
        [worker("a", Status::False), worker("b", Status::True), worker("c", Status::True)],
    );
    bed.set_rules([rule_json("net")]);
    bed.settle();
    let calls = bed.rule_calls();
    assert_eq!(calls[0].patch["status"]["dryRunResults"], Value::Null);
    assert_eq!(bed.metric("node_readiness_rule_nodes{rule=\"net\",state=\"held\"}"), "1");
    assert_eq!(bed.metric("node_readiness_rule_nodes{rule=\"net\",state=\"released\"}"), "2");
    bed.finish_rule(&calls[0], false);
    assert_eq!(bed.rule_calls(), [], "a failed write waits");
    bed.pass(Duration::from_secs(10));
    assert_eq!(bed.rule_calls().len(), 1, "and is made again");
}

/// SCN-G16: a rule that is switched to a dry run holds no nodes.
#[test]
fn a_rule_that_is_only_tried_is_not_counted() {
    let mut bed = Bed::leading(Settings::default(), [worker("a", Status::False)]);
    bed.set_rules([rule_json("net")]);
    bed.settle();
    bed.rule_calls();
    assert!(bed.metrics.encode().contains("node_readiness_rule_nodes{rule=\"net\""));
    let mut json = rule_json("net");
    json["spec"]["dryRun"] = json!(true);
    bed.set_rules([json]);
    bed.rule_calls();
    assert!(!bed.metrics.encode().contains("node_readiness_rule_nodes{rule=\"net\""));
}

/// PEER-17: a leader that does not know all nodes yet lets no rule go.
#[test]
fn a_deleted_rule_waits_until_all_nodes_are_known() {
    let mut bed = Bed::leading(Settings::default(), [worker("a", Status::True)]);
    let now = bed.now();
    bed.engine.lead(false, now);
    let mut deleting = rule_json("net");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:00:00Z");
    bed.set_rules([deleting]);
    bed.engine.lead(true, now);
    assert!(bed.engine.wants_count());
    assert_eq!(bed.rule_calls(), []);
    bed.engine.count_anew();
    bed.list();
    bed.pass(Duration::from_secs(10));
    assert_eq!(bed.rule_calls()[0].part, RulePart::Object);
}

/// SCN-G13, PEER-20: a rule that cannot be enforced says so in its status.
#[test]
fn a_rule_that_cannot_be_enforced_says_so() {
    let mut bed = Bed::leading(Settings::default(), [worker("a", Status::False)]);
    let mut json = rule_json("net");
    json["spec"]["nodeSelector"] = json!({});
    json["metadata"]["finalizers"] = json!([]);
    bed.set_rules([json]);
    assert_eq!(bed.settle(), []);
    let calls = bed.rule_calls();
    assert_eq!(calls.len(), 1, "no finalizer: it has no taints");
    assert_eq!(calls[0].patch["status"]["dryRunResults"]["summary"], "not enforced: the node selector is empty");
}

/// PEER-10, METR-9: completed nodes are counted, and how long a new node took.
#[test]
fn completed_nodes_are_counted() {
    let mut json = rule_json("net");
    json["spec"]["enforcementMode"] = json!("bootstrap-only");
    json["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut bed = Bed::leading(Settings::default(), [worker("a", Status::False), worker("b", Status::True)]);
    bed.set_rules([json]);
    bed.settle();
    bed.pass(Duration::from_secs(30));
    bed.report("a", "CNI", Status::True);
    bed.settle();
    assert_eq!(bed.metric("node_readiness_bootstrap_completed_total{rule=\"net\"}"), "2");
    assert_eq!(bed.metric("node_readiness_bootstrap_duration_seconds_sum{rule=\"net\"}"), "90.0");
}

/// CTRL-14: a follower leaves rules alone too.
#[test]
fn a_follower_writes_no_status() {
    let mut bed = Bed::leading(Settings::default(), [worker("a", Status::False)]);
    let now = bed.now();
    bed.engine.lead(false, now);
    bed.set_rules([rule_json("net")]);
    assert_eq!((bed.rule_calls(), bed.next()), (vec![], None));
}
