//! Rules that the node-readiness-controller publishes, through both meanings: what that project says a rule does, written down here anew
//! from PEER-6..PEER-15, and what keelet decides. On every node they agree about the taint and about the completion annotation.

use jiff::Timestamp;
use keelet_gates::{
    decide::{Circumstances, decide},
    node::{Detail, Interest, Reader},
    rule::{Rule, Rules},
    settings::{Room, Settings},
};
use serde_json::{Value, json};

const NOW: &str = "2026-03-01T12:00:00Z";

/// A node, as far as one rule is concerned.
#[derive(Clone, Debug)]
struct Case {
    rule: Value,
    selected: bool,
    /// The status of each condition of the rule; none if the node does not have it.
    conditions: Vec<Option<&'static str>>,
    taint: bool,
    completed: bool,
}

/// What matters afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Result {
    taint: bool,
    completed: bool,
}

fn published() -> Vec<Value> {
    let rules: Vec<Value> = serde_saphyr::from_multiple(include_str!("published_rules.yaml")).unwrap();
    rules.into_iter().filter(|rule| !rule.is_null()).collect()
}

/// The other project's meaning.
fn peer(case: &Case) -> Result {
    let Case { rule, selected, conditions, taint, completed } = case;
    let spec = &rule["spec"];
    let unchanged = Result { taint: *taint, completed: *completed };
    let once = spec["enforcementMode"] == "bootstrap-only";
    if !selected || spec["dryRun"] == true || (once && *completed) {
        return unchanged;
    }
    let needs = spec["conditions"].as_array().unwrap().iter();
    let mut met = needs.zip(conditions).map(|(need, found)| {
        let absent = need["defaultStatus"].as_str().unwrap_or("Unknown");
        need["requiredStatus"] == found.unwrap_or(absent)
    });
    let met = if spec["conditionPolicy"] == "anyOf" { met.any(|met| met) } else { met.all(|met| met) };
    Result { taint: !met, completed: *completed || (met && once) }
}

/// The labels that a rule selects, or ones that it does not.
fn labels(rule: &Value, selected: bool) -> Value {
    let selector = &rule["spec"]["nodeSelector"];
    match (selector["matchLabels"].as_object(), selected) {
        (Some(labels), true) => json!(labels),
        (Some(_), false) => json!({"another": "label"}),
        // The only expression that the published rules have.
        (None, selected) => {
            assert_eq!(selector["matchExpressions"][0]["operator"], "DoesNotExist");
            let key = selector["matchExpressions"][0]["key"].as_str().unwrap();
            if selected { json!({"role": "worker"}) } else { json!({ key: "" }) }
        }
    }
}

/// keelet's meaning.
fn keelet(case: &Case) -> Result {
    let mut object = case.rule.clone();
    object["metadata"]["uid"] = json!("rule-uid");
    let rule = Rule::read(object).unwrap();
    assert_eq!(rule.spec.as_ref().err(), None, "{}", rule.name);
    let key = rule.completed_key();
    let (taint, effect) = (case.rule["spec"]["taint"].clone(), "NoSchedule");
    let statuses = case.rule["spec"]["conditions"].as_array().unwrap().iter().zip(&case.conditions);
    let conditions: Vec<_> = statuses
        .filter_map(|(need, status)| {
            Some(json!({"type": need["type"], "status": (*status)?, "lastTransitionTime": NOW}))
        })
        .collect();
    let completed = if case.completed { json!({ &key: rule.completed_value() }) } else { json!({}) };
    let node = json!({
        "metadata": {"name": "n", "uid": "node-uid", "resourceVersion": "1", "creationTimestamp": NOW,
                     "labels": labels(&case.rule, case.selected), "annotations": completed},
        "spec": {"taints": if case.taint { json!([taint]) } else { json!([]) }},
        "status": {"conditions": conditions},
    });
    let rules = Rules::new([rule]);
    let interest = Interest { labels: rules.labels(), detail: Detail::Decisions, ..Interest::default() };
    let node = Reader::new(interest).node(node.to_string().as_bytes()).unwrap();
    let settings = Settings::default();
    let now: Timestamp = NOW.parse().unwrap();
    let with = Circumstances { rules: &rules, settings: &settings, seen: &[], room: Room::Free, now };
    let decision = decide(&node, &with);
    let taints = decision.edit.taints.as_ref().unwrap_or(&node.taints);
    Result {
        taint: taints.iter().any(|found| taint["key"] == *found.key && found.effect.as_str() == effect),
        completed: match decision.edit.annotations.get(&key) {
            Some(value) => value.is_some(),
            None => case.completed,
        },
    }
}

fn cases(rule: &Value) -> Vec<Case> {
    let statuses = [None, Some("True"), Some("False"), Some("Unknown")];
    let mut conditions = vec![Vec::new()];
    for _ in rule["spec"]["conditions"].as_array().unwrap() {
        conditions = conditions
            .iter()
            .flat_map(|known: &Vec<_>| statuses.map(|status| known.iter().copied().chain([status]).collect()))
            .collect();
    }
    let flags = [(false, false), (false, true), (true, false), (true, true)];
    let mut cases = Vec::new();
    for selected in [true, false] {
        for (taint, completed) in flags {
            for conditions in &conditions {
                cases.push(Case { rule: rule.clone(), selected, conditions: conditions.clone(), taint, completed });
            }
        }
    }
    cases
}

/// In both modes, where the other project allows it.
fn in_both_modes(rule: &Value) -> Vec<Value> {
    let in_mode = |mode: &str| {
        let mut rule = rule.clone();
        rule["spec"]["enforcementMode"] = json!(mode);
        rule
    };
    let has_default =
        rule["spec"]["conditions"].as_array().unwrap().iter().any(|need| !need["defaultStatus"].is_null());
    let once = (!has_default).then(|| in_mode("bootstrap-only"));
    once.into_iter().chain([in_mode("continuous")]).collect()
}

/// GN-8, PEER-6..PEER-12, PEER-15, SCN-G2..SCN-G6, SCN-G9
#[test]
fn published_rules_have_the_same_meaning() {
    let rules = published();
    assert_eq!(rules.len(), 11);
    let (mut compared, mut repaired) = (0, 0);
    for case in rules.iter().flat_map(in_both_modes).flat_map(|rule| cases(&rule)) {
        let once = case.rule["spec"]["enforcementMode"] == "bootstrap-only";
        let enforced = case.selected && case.rule["spec"]["dryRun"] != true;
        if once && enforced && case.taint && case.completed {
            // The other project never leaves annotation and taint together, and does nothing about it if something else did. keelet removes
            // the taint when the conditions hold (GN-2).
            let open = Case { completed: false, ..case.clone() };
            assert_eq!(keelet(&case), Result { taint: peer(&open).taint, completed: true }, "{case:?}");
            repaired += 1;
            continue;
        }
        assert_eq!(keelet(&case), peer(&case), "{case:?}");
        compared += 1;
    }
    assert!(compared > 700 && repaired > 30, "{compared} nodes were compared, {repaired} would be repaired");
}

/// GN-8: a rule that sets its taint, and the taint of a registration with the same key: the rule decides.
#[test]
fn a_rule_takes_the_place_of_the_gate_of_its_key() {
    let rule = published().into_iter().find(|rule| rule["metadata"]["name"] == "nodereadinessrule-sample").unwrap();
    let case = Case { rule, selected: true, conditions: vec![Some("True")], taint: true, completed: false };
    // The node has no condition NetworkReady, which the gate of that name would wait for.
    assert_eq!(keelet(&case), Result { taint: false, completed: true });
}
