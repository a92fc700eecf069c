//! What holds for every node, whatever is written on it.

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;
use crate::{
    node::{Status, Taint},
    rule::Rule,
    settings::{Enforcement, MaxHeld},
    testing::{Builder, ago, node, taint},
};

const NAMES: [&str; 3] = ["A", "B", "network"];

fn status() -> impl Strategy<Value = Status> {
    select(vec![Status::True, Status::False, Status::Unknown])
}

/// Gates, taints with a gate's prefix that are none, and taints of others.
fn some_taint() -> impl Strategy<Value = Taint> {
    const KEYS: [&str; 6] = [
        "readiness.k8s.io/A",
        "readiness.k8s.io/B",
        "readiness.k8s.io/network",
        "readiness.k8s.io/",
        "node.kubernetes.io/not-ready",
        "x.io/A",
    ];
    let parts = (
        select(&KEYS[..]),
        select(&["", "v"][..]),
        select(&["NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"][..]),
    );
    parts.prop_map(|(key, value, effect)| taint(&format!("{key}={value}:{effect}")))
}

/// What may be in our annotation: nothing, rubbish, or a record of this node or another.
fn some_record() -> impl Strategy<Value = Option<String>> {
    let entry = (option::of(select(&["passed", "held", "added"][..])), select(&["", "r-1", "r-gone"][..]));
    let ours = (select(&["uid-n", "other"][..]), select(&NAMES[..]), entry).prop_map(|(uid, name, (state, rule))| {
        let state = state.map_or(String::new(), |state| {
            format!(r#""passed":"2026-01-01T00:00:00Z","{state}":"2026-01-01T00:00:00Z","#)
        });
        let state = state.replacen(r#""passed":"2026-01-01T00:00:00Z","passed""#, r#""passed""#, 1);
        format!(r#"{{"node":"{uid}","gates":{{"readiness.k8s.io/{name}:NoSchedule":{{{state}"rule":"{rule}"}}}}}}"#)
    });
    option::of(prop_oneof![3 => ours, 1 => ".{0,40}"])
}

fn some_node() -> impl Strategy<Value = Node> {
    let annotations = vec(
        (
            select(&["readiness.k8s.io/A", "readiness.k8s.io/B", "readiness.k8s.io/bootstrap-completed-r-1"][..]),
            select(&["passed", "x"][..]),
        ),
        0..3,
    );
    let labels = vec((select(&["role", "readiness.k8s.io/A"][..]), select(&["worker", "true"][..])), 0..3);
    let conditions =
        vec((select(&["A", "B", "example.com/A", "example.org/A", "example.com/CNI"][..]), status(), 0..200_i64), 0..5);
    let age = select(vec![60_i64, 6000]);
    (vec(some_taint(), 0..4), annotations, labels, conditions, some_record(), age).prop_map(
        |(taints, annotations, labels, conditions, record, age)| {
            let mut node = node("n").created(ago(age));
            for (key, value) in annotations {
                node = node.annotated(key, value);
            }
            for (key, value) in labels {
                node = node.labelled(key, value);
            }
            for (kind, status, heartbeat) in conditions {
                node = node.condition(kind, status).heartbeat(Some(ago(heartbeat)));
            }
            if let Some(record) = record {
                node = node.annotated(record::ANNOTATION, &record);
            }
            let mut node = node.build();
            for taint in taints {
                // The API server takes no two taints of one key and effect.
                if node.taint(&taint.key, &taint.effect).is_none() {
                    node.taints.push(taint);
                }
            }
            node
        },
    )
}

fn some_rules() -> impl Strategy<Value = Rules> {
    let rule = (
        select(&["bootstrap-only", "continuous"][..]),
        any::<bool>(),
        any::<bool>(),
        select(&["NoSchedule", "NoExecute"][..]),
    );
    option::of(rule).prop_map(|rule| {
        let Some((mode, dry_run, deleting, effect)) = rule else { return Rules::default() };
        let mut json = serde_json::json!({
            "metadata": {"name": "net", "uid": "r-1"},
            "spec": {
                "conditions": [{"type": "example.com/CNI", "requiredStatus": "True"}], "enforcementMode": mode, "dryRun": dry_run,
                "taint": {"key": "readiness.k8s.io/network", "effect": effect}, "nodeSelector": {"matchLabels": {"role": "worker"}},
            },
        });
        if deleting {
            json["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        Rules::new([Rule::read(json).unwrap()])
    })
}

fn some_settings() -> impl Strategy<Value = Settings> {
    let enforcement = select(vec![Enforcement::Bootstrap, Enforcement::Continuous]);
    (enforcement, option::of(select(vec![30_i64, 100]))).prop_map(|(enforcement, age)| Settings {
        enforcement,
        condition_max_age: age.map(SignedDuration::from_secs),
        ..Settings::default()
    })
}

fn some_room() -> impl Strategy<Value = Room> {
    select(vec![Room::Free, Room::Full { held: 1, allowed: 1 }])
}

fn foreign(node: &Node) -> Vec<&Taint> {
    node.taints.iter().filter(|taint| !taint.key.starts_with(gate::PREFIX)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// CTRL-2, CTRL-7, VEC-73: no taint of others is lost, added or moved, and none of ours changes without a verdict that says so.
    #[test]
    fn no_foreign_taint_is_lost_or_added(node in some_node(), rules in some_rules(), settings in some_settings(), room in some_room()) {
        let decision = decide_with(&node, &settings, &rules, room);
        let after = apply(&node, &decision);
        prop_assert_eq!(foreign(&node), foreign(&after));
        for taint in &node.taints {
            let gone = after.taint(&taint.key, &taint.effect).is_none();
            let says_so = decision.verdicts.iter().any(|verdict| taint.is(&verdict.gate.key, &verdict.gate.effect) && matches!(verdict.state, State::Passes(_)));
            prop_assert_eq!(gone, says_so, "{:?}", taint);
        }
        for taint in &after.taints {
            let new = node.taint(&taint.key, &taint.effect).is_none();
            let says_so = decision.verdicts.iter().any(|verdict| taint.is(&verdict.gate.key, &verdict.gate.effect) && matches!(verdict.state, State::Returns { .. }));
            prop_assert_eq!(new, says_so, "{:?}", taint);
        }
    }

    /// CTRL-5, VEC-79: applying a decision and deciding again yields nothing.
    #[test]
    fn decisions_are_idempotent(node in some_node(), rules in some_rules(), settings in some_settings(), room in some_room()) {
        let decision = decide_with(&node, &settings, &rules, room);
        let after = apply(&node, &decision);
        let again = decide_with(&after, &settings, &rules, Room::Full { held: 1, allowed: 1 });
        prop_assert!(again.edit.is_empty(), "{:?}\nthen {:?}", decision, again);
    }

    /// CTRL-3, GN-2, GN-3: a gate opens by its conditions alone, or with the deletion of a rule that selects the node, whatever annotations
    /// and records claim.
    #[test]
    fn no_claim_opens_a_gate(node in some_node(), rules in some_rules(), gone in any::<bool>(), settings in some_settings()) {
        let gone = gone.then(|| Text::from("r-gone"));
        let rules = Rules { gone: gone.into_iter().collect(), ..rules };
        let decision = decide_with(&node, &settings, &rules, Room::Free);
        for verdict in &decision.verdicts {
            let State::Passes(pass) = &verdict.state else { continue };
            if let Origin::Rules(_) = verdict.gate.origin {
                let (rule, spec) = rules.specs().next().unwrap();
                prop_assert!(spec.selector.matches(&node.labels));
                let met = node.conditions.iter().any(|found| &*found.kind == "example.com/CNI" && found.status == Status::True);
                prop_assert!(met || rule.deleting && pass.how == How::RuleDeleted);
                continue;
            }
            let name = verdict.gate.key.strip_prefix(gate::PREFIX).unwrap();
            let is_true = |kind: &str| node.conditions.iter().any(|condition| &*condition.kind == kind && condition.status == Status::True);
            let qualified = format!("/{name}");
            let by_qualified_name = node.conditions.iter().any(|condition| condition.kind.ends_with(&qualified) && is_true(&condition.kind));
            prop_assert!(is_true(name) || by_qualified_name);
        }
    }

    /// CTRL-6, SCN-G1, VEC-69: in bootstrap mode, without rules, no taint is ever added.
    #[test]
    fn a_passed_gate_never_comes_back_in_bootstrap_mode(node in some_node(), flaps in vec((select(&NAMES[..]), status()), 0..6)) {
        let mut node = node;
        for (name, status) in flaps {
            let after = apply(&node, &decide_alone(&node));
            prop_assert!(after.taints.iter().all(|taint| node.taint(&taint.key, &taint.effect).is_some()));
            node = Builder::from(after).condition(name, status).build();
        }
    }

    /// Safety: whatever conditions do, no more nodes are held than allowed, and all of them are released in the end.
    #[test]
    fn never_more_than_max_held(count in 1..12_usize, limit in 0..4_usize, flaps in vec((0..12_usize, status()), 0..60)) {
        let settings = Settings { enforcement: Enforcement::Continuous, max_held: MaxHeld::Nodes(limit), ..Settings::default() };
        let gated = |index: usize| node(&format!("n{index}")).taint("readiness.k8s.io/A:NoSchedule").condition("A", Status::True).build();
        let mut nodes: Vec<Node> = (0..count).map(gated).collect();
        let step = |nodes: &mut Vec<Node>, index: usize| {
            let held = nodes.iter().filter(|node| is_held(node)).count();
            let decision = decide_with(&nodes[index], &settings, &Rules::default(), settings.max_held.room(held, nodes.len()));
            nodes[index] = apply(&nodes[index], &decision);
            nodes.iter().filter(|node| is_held(node)).count()
        };
        for index in 0..count {
            step(&mut nodes, index);
        }
        for (index, status) in flaps {
            let index = index % count;
            nodes[index] = Builder::from(nodes[index].clone()).condition("A", status).build();
            prop_assert!(step(&mut nodes, index) <= limit);
        }
        for index in 0..count {
            nodes[index] = Builder::from(nodes[index].clone()).condition("A", Status::True).build();
            step(&mut nodes, index);
            prop_assert_eq!(taints(&nodes[index]), Vec::<String>::new());
        }
    }
}
