//! Reading rules.

use serde_json::{Value, json};

use super::*;
use crate::testing::node;

fn rule() -> Value {
    json!({
        "metadata": {"name": "network", "uid": "r-1", "resourceVersion": "5", "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "conditions": [{"type": "example.com/CNI", "requiredStatus": "True"}],
            "enforcementMode": "continuous",
            "taint": {"key": "readiness.k8s.io/network", "value": "pending", "effect": "NoSchedule"},
            "nodeSelector": {"matchLabels": {"role": "worker"}},
        },
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut rule = rule();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    rule.pointer_mut(parent).unwrap()[field] = value;
    rule
}

fn fault(pointer: &str, value: Value) -> String {
    Rule::read(with(pointer, value)).unwrap().spec.unwrap_err().to_string()
}

/// PEER-2..PEER-6, FIX-5
#[test]
fn a_rule_is_read_with_its_defaults() {
    let rule = Rule::read(rule()).unwrap();
    assert_eq!((&*rule.name, &*rule.uid, rule.generation, rule.deleting), ("network", "r-1", 2, false));
    let spec = rule.spec.unwrap();
    assert_eq!((spec.policy, spec.mode, spec.dry_run), (Policy::AllOf, Mode::Continuous, false));
    assert_eq!((&*spec.key, &spec.effect, &*spec.value), ("readiness.k8s.io/network", &Effect::NoSchedule, "pending"));
    let needed = Requirement { kind: "example.com/CNI".into(), required: Status::True, default: Status::Unknown };
    assert_eq!(spec.conditions, [needed]);
    assert!(spec.selector.matches(&node("n").labelled("role", "worker").build().labels));
}

/// PEER-2..PEER-7
#[test]
fn every_choice_is_read() {
    let read = |pointer: &str, value: Value| Rule::read(with(pointer, value)).unwrap().spec.unwrap();
    assert_eq!(read("/spec/conditionPolicy", json!("anyOf")).policy, Policy::AnyOf);
    assert_eq!(read("/spec/enforcementMode", json!("bootstrap-only")).mode, Mode::BootstrapOnly);
    assert!(read("/spec/dryRun", json!(true)).dry_run);
    let conditions = json!([{"type": "A", "requiredStatus": "False", "defaultStatus": "False"}, {"type": "B", "requiredStatus": "Unknown"}]);
    let statuses: Vec<_> =
        read("/spec/conditions", conditions).conditions.iter().map(|need| (need.required, need.default)).collect();
    assert_eq!(statuses, [(Status::False, Status::False), (Status::Unknown, Status::Unknown)]);
    for effect in ["NoSchedule", "PreferNoSchedule", "NoExecute"] {
        assert_eq!(read("/spec/taint/effect", json!(effect)).effect.as_str(), effect);
    }
    assert!(Rule::read(with("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))).unwrap().deleting);
}

/// SCN-G11, SCN-G14, PEER-2..PEER-6, PEER-20: rules that the other project's webhook refuses have no effect here, webhook or not.
#[test]
fn a_rule_that_cannot_be_enforced_says_why() {
    for (pointer, value, expected) in [
        ("/spec/conditions", json!([]), "expected 1 to 32 conditions, found 0"),
        (
            "/spec/conditions",
            json!(vec![json!({"type": "A", "requiredStatus": "True"}); 33]),
            "expected 1 to 32 conditions, found 33",
        ),
        (
            "/spec/conditions",
            json!(vec![json!({"type": "A", "requiredStatus": "True"}); 2]),
            "invalid condition type \"A\": expected 1 to 316 characters, each type once",
        ),
        ("/spec/conditions/0/requiredStatus", json!("true"), "requiredStatus has the unknown value \"true\""),
        ("/spec/conditions/0/defaultStatus", json!("Maybe"), "defaultStatus has the unknown value \"Maybe\""),
        ("/spec/enforcementMode", json!("sometimes"), "enforcementMode has the unknown value \"sometimes\""),
        ("/spec/conditionPolicy", json!("noneOf"), "conditionPolicy has the unknown value \"noneOf\""),
        ("/spec/nodeSelector", json!({}), "the node selector is empty"),
        ("/spec/taint/effect", json!("NoNothing"), "invalid taint effect \"NoNothing\""),
        ("/spec/taint", json!(null), "cannot be read: invalid type: null, expected struct RawTaint"),
    ] {
        assert_eq!(fault(pointer, value), expected, "{pointer}");
    }
    for key in [
        "example.com/network",
        "readiness.k8s.io/",
        "readiness.k8s.io/a/b",
        "readiness.k8s.io/-a",
        "readiness.k8s.io/a-",
        "readiness.k8s.io/a b",
    ] {
        assert_eq!(
            fault("/spec/taint/key", json!(key)),
            format!("invalid taint key {key:?}: expected readiness.k8s.io/ and a name")
        );
    }
    let mut bootstrap = with("/spec/enforcementMode", json!("bootstrap-only"));
    bootstrap["spec"]["conditionPolicy"] = json!("anyOf");
    let fault = |json: &Value| Rule::read(json.clone()).unwrap().spec.unwrap_err().to_string();
    assert_eq!(fault(&bootstrap), "anyOf cannot be combined with bootstrap-only");
    bootstrap["spec"]["conditionPolicy"] = json!("allOf");
    bootstrap["spec"]["conditions"][0]["defaultStatus"] = json!("True");
    assert_eq!(fault(&bootstrap), "a default status cannot be combined with bootstrap-only");
}

/// PEER-11, SCN-G12: the key has the UID, because a long name would not fit; older annotations with the name count too.
#[test]
fn completion_is_annotated_by_uid_and_read_by_name_too() {
    let rule = Rule::read(rule()).unwrap();
    assert_eq!(rule.completed_key(), "readiness.k8s.io/bootstrap-completed-r-1");
    assert_eq!(rule.completed_value(), r#"{"rule-name":"network"}"#);
    let annotated = |key: &str| rule.is_completed(&node("n").annotated(key, "anything").build().annotations);
    assert!(annotated("readiness.k8s.io/bootstrap-completed-r-1"));
    assert!(annotated("readiness.k8s.io/bootstrap-completed-network"));
    assert!(!annotated("readiness.k8s.io/bootstrap-completed-r-2"));
}

/// SCN-G14, VEC-83
#[test]
fn rules_that_share_a_taint_on_a_node_are_named() {
    let rule = |name: &str, role: &str, key: &str, dry_run: bool| {
        let mut json = with("/spec/nodeSelector/matchLabels/role", json!(role));
        json["metadata"]["name"] = json!(name);
        json["spec"]["taint"]["key"] = json!(key);
        json["spec"]["dryRun"] = json!(dry_run);
        Rule::read(json).unwrap()
    };
    let (key, other) = ("readiness.k8s.io/a", "readiness.k8s.io/b");
    let rules = Rules::new([
        rule("one", "worker", key, false),
        rule("two", "worker", key, false),
        rule("three", "infra", key, false),
        rule("four", "worker", other, false),
        rule("five", "worker", key, true),
    ]);
    assert_eq!(rules.conflicts(), [("one".into(), "two".into())]);
    assert_eq!(rules.labels(), BTreeSet::from(["role".to_owned()]));
}
