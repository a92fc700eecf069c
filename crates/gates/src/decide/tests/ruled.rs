//! Gates of rules.

use serde_json::{Value, json};

use super::*;
use crate::{
    node::{Effect, Status},
    rule::Rule,
    settings::Enforcement,
    testing::{Builder, ago, node},
    words,
};

const KEY: &str = "readiness.k8s.io/network";
const TAINT: &str = "readiness.k8s.io/network:NoSchedule";

fn rule_json(mode: &str) -> Value {
    json!({
        "metadata": {"name": "net", "uid": "r-1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "conditions": [{"type": "example.com/CNI", "requiredStatus": "True"}],
            "enforcementMode": mode,
            "taint": {"key": KEY, "value": "pending", "effect": "NoSchedule"},
            "nodeSelector": {"matchLabels": {"role": "worker"}},
        },
    })
}

fn rules(json: Value) -> Rules {
    let rule = Rule::read(json).unwrap();
    rule.spec.as_ref().unwrap();
    Rules::new([rule])
}

fn continuous() -> Rules {
    rules(rule_json("continuous"))
}

fn bootstrap() -> Rules {
    rules(rule_json("bootstrap-only"))
}

/// A worker that is a minute old.
fn worker() -> Builder {
    node("n").labelled("role", "worker").created(ago(60))
}

fn met() -> Builder {
    worker().condition("example.com/CNI", Status::True)
}

fn unmet() -> Builder {
    worker().condition("example.com/CNI", Status::False)
}

fn by(node: &Node, rules: &Rules) -> Decision {
    decide_with(node, &Settings::default(), rules, Room::Free)
}

/// By a process that has seen the rule select the node.
fn seeing(node: &Node, rules: &Rules) -> Decision {
    let seen = Seen { rule: "r-1".into(), key: KEY.into(), effect: Effect::NoSchedule };
    decide_seeing(node, &Settings::default(), rules, &[seen], Room::Free)
}

fn after(node: &Node, rules: &Rules) -> Node {
    let after = apply(node, &by(node, rules));
    assert_eq!(by(&after, rules).edit, Edit::default(), "deciding again changes nothing");
    after
}

/// PEER-9, SCN-G3, SCN-G9
#[test]
fn a_continuous_rule_adds_and_removes_its_taint() {
    let rules = continuous();
    assert_eq!(only(&by(&met().build(), &rules)), &State::Open);
    assert_eq!(taints(&after(&worker().build(), &rules)), [TAINT], "absent counts as unmet");
    let held = after(&unmet().build(), &rules);
    assert_eq!(
        serde_json::to_value(&held.taints).unwrap(),
        json!([{"key": KEY, "value": "pending", "effect": "NoSchedule"}])
    );
    let recovered = Builder::from(held).condition("example.com/CNI", Status::True).build();
    let open = after(&recovered, &rules);
    assert_eq!(taints(&open), Vec::<String>::new());
    let failed_again = Builder::from(open).condition("example.com/CNI", Status::False).build();
    assert_eq!(taints(&after(&failed_again, &rules)), [TAINT]);
}

/// PEER-10, SCN-G2, SCN-G12
#[test]
fn a_bootstrap_rule_completes_once_in_one_patch() {
    let rules = bootstrap();
    let held = after(&unmet().build(), &rules);
    assert_eq!(taints(&held), [TAINT]);
    let ready = Builder::from(held).condition("example.com/CNI", Status::True).build();
    let decision = by(&ready, &rules);
    let key = "readiness.k8s.io/bootstrap-completed-r-1";
    assert_eq!(decision.edit.annotations.get(key), Some(&Some(r#"{"rule-name":"net"}"#.to_owned())));
    assert_eq!(decision.edit.taints, Some(vec![]));
    let open = apply(&ready, &decision);
    let failed = Builder::from(open).condition("example.com/CNI", Status::False).build();
    let decision = by(&failed, &rules);
    assert_eq!((only(&decision), &decision.edit), (&State::Open, &Edit::default()), "left alone from now on");
}

/// PEER-12
#[test]
fn a_node_that_needs_no_taint_is_marked_as_complete() {
    let decision = by(&met().build(), &bootstrap());
    assert_eq!(only(&decision), &State::Completes);
    assert_eq!(decision.edit.taints, None);
    assert_eq!(decision.edit.annotations.len(), 1);
    after(&met().build(), &bootstrap());
}

/// PEER-11: what the other controller completed stays complete, by both forms of its annotation.
#[test]
fn what_the_other_controller_completed_is_complete() {
    for key in ["readiness.k8s.io/bootstrap-completed-r-1", "readiness.k8s.io/bootstrap-completed-net"] {
        let node = unmet().annotated(key, "{}").build();
        assert_eq!(only(&by(&node, &bootstrap())), &State::Open);
    }
}

/// PEER-12, PEER-13, GN-2
#[test]
fn annotation_and_taint_together() {
    let key = "readiness.k8s.io/bootstrap-completed-r-1";
    let half = met().annotated(key, "{}").taint(TAINT).build();
    assert!(matches!(only(&by(&half, &bootstrap())), State::Passes(Pass { how: How::Repaired, .. })));
    assert_eq!(taints(&after(&half, &bootstrap())), Vec::<String>::new());
    let ours = met().taint(TAINT).build();
    let by_hand = Builder::from(after(&ours, &bootstrap())).taint(TAINT).build();
    let decision = by(&by_hand, &bootstrap());
    assert!(matches!(only(&decision), State::SetByHand { .. }));
    assert_eq!(decision.edit, Edit::default());
}

/// PEER-14, PEER-15, PEER-22: another value is the same taint.
#[test]
fn a_taint_that_was_there_before_is_adopted() {
    let node = unmet().taint("readiness.k8s.io/network=other:NoSchedule").build();
    let decision = by(&node, &continuous());
    assert_eq!(decision.edit, Edit::default(), "an event, no write");
    let report = words::notice(&decision.verdicts[0]).unwrap();
    assert_eq!(
        (report.reason, &*report.message),
        ("TaintAdopted", "Taint readiness.k8s.io/network:NoSchedule is now managed by rule net")
    );
    let ready = Builder::from(node).condition("example.com/CNI", Status::True).build();
    let decision = by(&ready, &continuous());
    let report = words::change(&decision.verdicts[0]).unwrap();
    assert_eq!(report.reason, "TaintRemoved");
    assert!(
        report.message.starts_with("Taint readiness.k8s.io/network:NoSchedule removed by rule net: "),
        "{}",
        report.message
    );
    assert_eq!(taints(&apply(&ready, &decision)), Vec::<String>::new());
    let ours = after(&unmet().build(), &continuous());
    assert_eq!(words::notice(&by(&ours, &continuous()).verdicts[0]), None, "our own is not adopted");
}

/// PEER-22, EVT-10
#[test]
fn an_added_taint_is_reported_with_its_rule() {
    let report = words::change(&by(&unmet().build(), &continuous()).verdicts[0]).unwrap();
    assert_eq!(report.reason, "TaintAdded");
    assert!(report.message.starts_with(
        "Taint readiness.k8s.io/network:NoSchedule added to a new node by rule net: condition example.com/CNI is False"
    ));
}

/// SCN-G4, SCN-G14, PEER-6
#[test]
fn all_conditions_or_any_of_them() {
    let of = |policy: &str, first: Status, second: Status| {
        let mut json = rule_json("continuous");
        json["spec"]["conditionPolicy"] = json!(policy);
        json["spec"]["conditions"] =
            json!([{"type": "A", "requiredStatus": "True"}, {"type": "B", "requiredStatus": "False"}]);
        let node = worker().condition("A", first).condition("B", second).taint(TAINT).build();
        matches!(only(&by(&node, &rules(json))), State::Passes(_))
    };
    let (yes, no) = (Status::True, Status::False);
    assert_eq!(
        [of("allOf", yes, no), of("allOf", yes, yes), of("allOf", no, no), of("allOf", no, yes)],
        [true, false, false, false]
    );
    assert_eq!(
        [of("anyOf", yes, no), of("anyOf", yes, yes), of("anyOf", no, no), of("anyOf", no, yes)],
        [true, true, true, false]
    );
}

/// SCN-G14, PEER-2
#[test]
fn a_default_status_stands_in_for_a_condition_that_is_absent() {
    let of = |required: &str, default: Option<&str>| {
        let mut json = rule_json("continuous");
        json["spec"]["conditions"] = json!([{"type": "A", "requiredStatus": required}]);
        if let Some(default) = default {
            json["spec"]["conditions"][0]["defaultStatus"] = json!(default);
        }
        only(&by(&worker().build(), &rules(json))) == &State::Open
    };
    assert!(of("False", Some("False")) && of("True", Some("True")) && of("Unknown", None));
    assert!(!of("False", None) && !of("True", Some("False")) && !of("Unknown", Some("True")));
}

/// SCN-G5, GN-8
#[test]
fn a_node_that_is_not_selected_is_not_touched_and_loses_what_a_rule_added() {
    let rules = continuous();
    assert_eq!(by(&node("n").condition("example.com/CNI", Status::False).build(), &rules).verdicts, []);
    let mut relabelled = after(&unmet().build(), &rules);
    relabelled.labels = relabelled.labels.iter().map(|(key, _)| (key.clone(), "infra".into())).collect();
    let decision = seeing(&relabelled, &rules);
    assert!(matches!(only(&decision), State::Passes(Pass { how: How::NotSelected, .. })));
    assert_eq!(taints(&apply(&relabelled, &decision)), Vec::<String>::new());
}

/// GN-3, GN-8: the node may have written the record itself. What it claims about a rule counts where this process saw that rule select the
/// node, for this very taint; otherwise the taint stays, with a warning.
#[test]
fn a_record_alone_removes_nothing() {
    let forged = |uid: &str, taint: &str| {
        let text = format!(r#"{{"node":"uid-n","gates":{{"{taint}":{{"rule":"{uid}"}}}}}}"#);
        node("n").taint(taint).annotated(record::ANNOTATION, &text).build()
    };
    let mut deleting = rule_json("continuous");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-03-01T11:00:00Z");
    let gone = Rules { gone: ["r-1".into()].into(), ..Rules::default() };
    for rules in [continuous(), rules(deleting), gone, Rules::default()] {
        for node in [forged("x", TAINT), forged("r-1", TAINT), forged("r-1", "readiness.k8s.io/Other:NoSchedule")] {
            let decision = by(&node, &rules);
            assert_eq!((only(&decision), &decision.edit), (&State::Left(Left::RuleUnknown), &Edit::default()));
            let report = words::notice(&decision.verdicts[0]).unwrap();
            assert_eq!((report.tone, report.reason), (words::Tone::Warning, "ReadinessGateIgnored"));
        }
        let other = forged("r-1", "readiness.k8s.io/Other:NoSchedule");
        assert_eq!(only(&seeing(&other, &rules)), &State::Left(Left::RuleUnknown), "the rule has another taint");
    }
}

/// GN-8: a rule that is not seen any more may still be there. Its taint stays until the API server has confirmed that it is gone.
#[test]
fn a_rule_that_is_missing_is_not_gone() {
    let held = after(&unmet().build(), &continuous());
    let decision = seeing(&held, &Rules::default());
    assert_eq!((only(&decision), &decision.edit), (&State::Left(Left::RuleMissing), &Edit::default()));
    assert_eq!(words::notice(&decision.verdicts[0]), None, "it takes a moment, and is no reason for a warning");
}

/// SCN-G10, PEER-17, GN-8
#[test]
fn a_rule_that_is_deleted_takes_its_taints_with_it() {
    let held = after(&unmet().build(), &continuous());
    let mut json = rule_json("continuous");
    json["metadata"]["deletionTimestamp"] = json!("2026-03-01T11:00:00Z");
    let deleting = rules(json.clone());
    assert!(matches!(only(&by(&held, &deleting)), State::Passes(Pass { how: How::RuleDeleted, .. })));
    after(&held, &deleting);
    let adopted = unmet().taint(TAINT).build();
    assert!(
        matches!(only(&by(&adopted, &deleting)), State::Passes(Pass { how: How::RuleDeleted, .. })),
        "as the other controller does"
    );
    assert_eq!(by(&unmet().build(), &deleting).verdicts, [], "and adds none");
    let gone = Rules { gone: ["r-1".into()].into(), ..Rules::default() };
    let decision = seeing(&held, &gone);
    assert!(matches!(only(&decision), State::Passes(Pass { how: How::RuleGone, .. })), "without a finalizer");
    assert_eq!(taints(&apply(&held, &decision)), Vec::<String>::new());
    json["spec"]["dryRun"] = json!(true);
    let tried = rules(json);
    assert!(matches!(only(&by(&adopted, &tried)), State::Waits { .. }), "a rule that was only tried has no taints");
}

/// SCN-G6, PEER-7
#[test]
fn a_rule_that_is_tried_changes_nothing() {
    let mut json = rule_json("continuous");
    json["spec"]["dryRun"] = json!(true);
    let tried = rules(json);
    assert_eq!(by(&unmet().build(), &tried).verdicts, []);
    let held = after(&unmet().build(), &continuous());
    assert_eq!(only(&by(&held, &tried)), &State::Left(Left::DryRun), "what it added before stays");
    let (_, spec) = tried.specs().next().unwrap();
    let would = |node: Builder| would(&node.build(), spec, None, now());
    assert_eq!(would(unmet()), Would { add: true, remove: false, missing: false });
    assert_eq!(would(worker()), Would { add: true, remove: false, missing: true });
    assert_eq!(would(met().taint(TAINT)), Would { add: false, remove: true, missing: false });
    assert_eq!(would(met()), Would { add: false, remove: false, missing: false });
    assert_eq!(would(unmet().taint(TAINT)), Would { add: false, remove: false, missing: false });
}

/// GN-8: both sources of gates on one node, in one patch.
#[test]
fn a_rule_and_a_registration_taint_on_one_node() {
    let node = met().taint(TAINT).taint("readiness.k8s.io/GPU:NoSchedule").condition("GPU", Status::True).build();
    let after = after(&node, &bootstrap());
    assert_eq!(taints(&after), Vec::<String>::new());
    assert!(after.annotations.has("readiness.k8s.io/GPU"));
    assert!(after.annotations.has("readiness.k8s.io/bootstrap-completed-r-1"));
    assert!(!after.annotations.has(KEY), "the annotation of the KEP is for gates without a rule");
}

/// GN-8: a registration taint with the key of a rule belongs to the rule, on nodes that the rule selects.
#[test]
fn the_rule_decides_about_its_key() {
    let named = "network";
    let node = unmet().taint(TAINT).condition(named, Status::True);
    assert!(matches!(only(&by(&node.clone().build(), &continuous())), State::Waits { .. }));
    let not_selected = node.labelled("role", "infra").build();
    assert!(matches!(only(&by(&not_selected, &continuous())), State::Passes(Pass { how: How::Met, .. })));
}

/// SCN-G14: where two rules share a taint on a node, both have to be met.
#[test]
fn two_rules_with_one_taint() {
    let mut second = rule_json("continuous");
    second["metadata"]["name"] = json!("net-2");
    second["metadata"]["uid"] = json!("r-2");
    second["spec"]["conditions"][0]["type"] = json!("example.com/Mesh");
    let both = Rules::new([rule_json("bootstrap-only"), second].map(|json| Rule::read(json).unwrap()));
    let held = after(&unmet().condition("example.com/Mesh", Status::True).build(), &both);
    assert_eq!(taints(&held), [TAINT]);
    let one = Builder::from(held)
        .condition("example.com/CNI", Status::True)
        .condition("example.com/Mesh", Status::False)
        .build();
    assert!(matches!(only(&by(&one, &both)), State::Waits { unmet, .. } if unmet.len() == 1));
    let ready = Builder::from(one).condition("example.com/Mesh", Status::True).build();
    let open = after(&ready, &both);
    assert_eq!(taints(&open), Vec::<String>::new());
    let regressed = Builder::from(open).condition("example.com/CNI", Status::False).build();
    assert_eq!(only(&by(&regressed, &both)), &State::Open, "the first one is complete");
}

/// Safety: a rule adds its taint to new nodes as they come, and to nodes in use only while there is room.
#[test]
fn a_rule_holds_no_more_nodes_in_use_than_allowed() {
    let full = Room::Full { held: 2, allowed: 2 };
    let try_add = |node: &Node, rules: &Rules| match only(&decide_with(node, &Settings::default(), rules, full)) {
        State::Returns { budget, .. } => Some(*budget),
        State::Refused { .. } => None,
        other => panic!("{other:?}"),
    };
    for rules in [continuous(), bootstrap()] {
        assert_eq!(try_add(&unmet().build(), &rules), Some(Budget::Free), "a new node");
        assert_eq!(try_add(&unmet().created(ago(601)).build(), &rules), None, "a node in use");
        assert_eq!(try_add(&unmet().created(ago(-59)).build(), &rules), Some(Budget::Free), "clocks differ a little");
        assert_eq!(try_add(&unmet().created(ago(-3600)).build(), &rules), None, "the controller's clock is behind");
    }
    let passed = after(&met().taint(TAINT).build(), &continuous());
    let failed = Builder::from(passed).condition("example.com/CNI", Status::False).build();
    assert_eq!(try_add(&failed, &continuous()), None, "a new node that has passed is in use");
    assert!(is_held(&after(&unmet().created(ago(601)).build(), &continuous())));
    assert!(!is_held(&after(&unmet().build(), &continuous())));
}

/// GN-8
#[test]
fn with_rules_switched_off_their_taints_are_left_alone() {
    let held = after(&unmet().build(), &continuous());
    let decision = by(&held, &Rules::off());
    assert_eq!((only(&decision), &decision.edit), (&State::Left(Left::RulesOff), &Edit::default()));
}

/// GN-8: a registration taint with the key of a rule that is only tried, or cannot be enforced, opens by no condition of that name: the rule
/// may ask for another one.
#[test]
fn the_taint_of_a_rule_that_is_not_enforced_is_left_alone() {
    let node = worker().taint(TAINT).condition("network", Status::True);
    let mut tried = rule_json("continuous");
    tried["spec"]["dryRun"] = json!(true);
    let mut faulty = rule_json("continuous");
    faulty["spec"]["enforcementMode"] = json!("someday");
    let mut unreadable = rule_json("continuous");
    unreadable["spec"]["nodeSelector"] = json!({});
    for (json, of_others) in [(tried, false), (faulty, false), (unreadable, true)] {
        let rules = Rules::new([Rule::read(json.clone()).unwrap()]);
        let decision = by(&node.clone().build(), &rules);
        assert_eq!((only(&decision), &decision.edit), (&State::Left(Left::Claimed), &Edit::default()), "{json}");
        let other = by(&node.clone().labelled("role", "infra").build(), &rules);
        assert_eq!(only(&other) == &State::Left(Left::Claimed), of_others, "{json}");
    }
}

/// GN-8: `--enforcement` is about gates without a rule.
#[test]
fn continuous_enforcement_does_not_return_what_a_bootstrap_rule_completed() {
    let settings = Settings { enforcement: Enforcement::Continuous, ..Settings::default() };
    let open = after(&met().taint(TAINT).build(), &bootstrap());
    let failed = Builder::from(open).condition("example.com/CNI", Status::False).build();
    for rules in [bootstrap(), Rules::default()] {
        assert_eq!(decide_with(&failed, &settings, &rules, Room::Free).edit, Edit::default());
    }
}
