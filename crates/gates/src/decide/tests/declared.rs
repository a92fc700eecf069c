//! Gates that a node was registered with, in bootstrap mode.

use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::{
    node::Status,
    record,
    testing::{ago, node},
    words,
};

const GATE: &str = "readiness.k8s.io/CNIReady:NoSchedule";

/// A node that has passed the gate under our eyes.
fn passed() -> Node {
    let pending = node("n").taint(GATE).condition("CNIReady", Status::True).build();
    apply(&pending, &decide_alone(&pending))
}

/// VEC-66, CTRL-3..CTRL-5, API-25, API-26, FIX-4, SCN-G1: one patch has it all, for exactly this object.
#[test]
fn a_condition_that_is_true_opens_its_gate_in_one_patch() {
    let node = node("n").taint("other.io/T:NoExecute").taint(GATE).condition("CNIReady", Status::True).build();
    let decision = decide_alone(&node);
    let State::Passes(pass) = only(&decision) else { panic!("{decision:?}") };
    assert_eq!((pass.how, pass.since), (How::Met, Some(ago(60))));
    assert_eq!(
        decision.edit.patch(&node),
        json!({
            "metadata": {
                "uid": "uid-n", "resourceVersion": "1",
                "labels": {"readiness.k8s.io/CNIReady": "true"},
                "annotations": {
                    "readiness.k8s.io/CNIReady": "passed",
                    "keelet.dev/gates": "{\"node\":\"uid-n\",\"gates\":{\"readiness.k8s.io/CNIReady:NoSchedule\":\
                                         {\"passed\":\"2026-03-01T12:00:00Z\",\"boot\":\"boot-1\"}}}",
                },
            },
            "spec": {"taints": [{"key": "other.io/T", "effect": "NoExecute"}]},
        })
    );
    assert_eq!(decide_alone(&apply(&node, &decision)).edit, Edit::default());
}

/// VEC-67, CTRL-3, SCN-G9
#[test]
fn a_condition_that_is_not_true_keeps_the_gate_closed() {
    let gated = || node("n").taint(GATE).labelled(CNI, "true");
    for (node, why) in [
        (gated().build(), "the node has no condition CNIReady"),
        (
            gated().condition("CNIReady", Status::False).build(),
            "condition CNIReady is False (Because) since 2026-03-01T11:59:00Z",
        ),
        (
            gated().condition("CNIReady", Status::Unknown).build(),
            "condition CNIReady is Unknown (Because) since 2026-03-01T11:59:00Z",
        ),
        (gated().condition("cniready", Status::True).build(), "the node has no condition CNIReady"),
        (gated().condition("Ready", Status::True).build(), "the node has no condition CNIReady"),
        (gated().condition("XCNIReady", Status::True).build(), "the node has no condition CNIReady"),
    ] {
        let decision = decide_alone(&node);
        assert_eq!(decision.edit, Edit::default(), "{node:?}");
        let sentence = words::sentence(&decision.verdicts[0]);
        assert_eq!(sentence, format!("Taint {GATE} stays: {why}"));
    }
}

/// VEC-68, CTRL-11, CON-21
#[test]
fn gates_open_one_by_one() {
    let gated = node("n").taint(GATE).taint("readiness.k8s.io/GPU:NoSchedule");
    let node = gated.condition("CNIReady", Status::True).condition("GPU", Status::False).build();
    let decision = decide_alone(&node);
    assert!(matches!(of(&decision, CNI), State::Passes(_)));
    assert!(matches!(of(&decision, "readiness.k8s.io/GPU"), State::Waits { .. }));
    let after = apply(&node, &decision);
    assert_eq!(taints(&after), ["readiness.k8s.io/GPU:NoSchedule"]);
    assert_eq!(after.annotations.get("readiness.k8s.io/GPU"), None);
}

/// CTRL-11: two at once are still one patch.
#[test]
fn several_gates_open_in_one_patch() {
    let gated = node("n").taint(GATE).taint("readiness.k8s.io/GPU:NoSchedule");
    let node = gated.condition("CNIReady", Status::True).condition("GPU", Status::True).build();
    let after = apply(&node, &decide_alone(&node));
    assert_eq!(taints(&after), Vec::<String>::new());
    assert!(after.annotations.has(CNI) && after.annotations.has("readiness.k8s.io/GPU"));
}

/// VEC-69, SCN-G1, SCN-G2, CTRL-6, CON-19
#[test]
fn a_gate_that_has_passed_stays_open() {
    for status in [Status::False, Status::Unknown] {
        let node = crate::testing::Builder::from(passed()).condition("CNIReady", status).build();
        let decision = decide_alone(&node);
        assert_eq!((decision.edit, decision.verdicts), (Edit::default(), vec![]));
    }
}

/// VEC-70, DEF-14, CTRL-6, GN-2
#[test]
fn a_taint_that_was_set_by_hand_after_the_gate_passed_is_left_alone() {
    for status in [Status::True, Status::False] {
        let node = crate::testing::Builder::from(passed()).taint(GATE).condition("CNIReady", status).build();
        let decision = decide_alone(&node);
        assert_eq!(decision.edit, Edit::default());
        let report = words::notice(&decision.verdicts[0]).unwrap();
        assert_eq!((report.tone, report.reason), (words::Tone::Warning, "ReadinessGateSetByHand"));
        assert_eq!(
            report.message,
            format!(
                "Taint {GATE} left alone: the gate passed at 2026-03-01T12:00:00Z, so the taint was added by someone else since"
            )
        );
    }
}

/// GN-2: a person who removes the annotation gates the node again.
#[test]
fn a_gate_whose_annotation_was_removed_is_a_gate_again() {
    let mut node = crate::testing::Builder::from(passed()).taint(GATE).condition("CNIReady", Status::False).build();
    node.annotations =
        node.annotations.iter().filter(|(key, _)| &***key != CNI).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert!(matches!(only(&decide_alone(&node)), State::Waits { .. }));
    let node = crate::testing::Builder::from(node).condition("CNIReady", Status::True).build();
    assert!(matches!(only(&decide_alone(&node)), State::Passes(Pass { how: How::Met, .. })));
}

/// GN-2: annotation first, taint second, and a crash in between: the taint would stay for ever.
#[test]
fn what_another_controller_left_half_done_is_repaired() {
    let half = node("n").taint(GATE).annotated(CNI, "passed");
    let waiting = half.clone().condition("CNIReady", Status::False).build();
    assert!(matches!(only(&decide_alone(&waiting)), State::Waits { .. }), "an annotation alone opens nothing");
    let node = half.condition("CNIReady", Status::True).build();
    let decision = decide_alone(&node);
    assert!(matches!(only(&decision), State::Passes(Pass { how: How::Repaired, .. })));
    let report = words::change(&decision.verdicts[0]).unwrap();
    assert_eq!(report.reason, "ReadinessGateRepaired");
    let after = apply(&node, &decision);
    assert_eq!(taints(&after), Vec::<String>::new());
    assert!(after.annotations.has(record::ANNOTATION), "and it is written down");
}

/// GN-3: a node may write its own annotations, and a template may copy them.
#[test]
fn a_record_of_another_object_opens_nothing_and_closes_nothing() {
    let copied = passed();
    let node =
        crate::testing::Builder::from(copied).uid("another").taint(GATE).condition("CNIReady", Status::False).build();
    assert!(matches!(only(&decide_alone(&node)), State::Waits { .. }), "not set by hand: it never passed");
    let node = crate::testing::Builder::from(node).condition("CNIReady", Status::True).build();
    let after = apply(&node, &decide_alone(&node));
    assert_eq!(taints(&after), Vec::<String>::new());
    assert!(after.annotations.get(record::ANNOTATION).unwrap().contains(r#""node":"another""#));
}

/// VEC-78, CTRL-12, GN-6
#[test]
fn a_node_that_was_created_again_is_gated_again() {
    let again = node("n").uid("second").taint(GATE).condition("CNIReady", Status::False).build();
    assert!(matches!(only(&decide_alone(&again)), State::Waits { .. }));
}

/// VEC-71, VEC-72, CTRL-8, CTRL-9
#[test]
fn taints_that_are_no_gates_are_left_alone_with_a_warning() {
    for (text, reason) in [
        ("readiness.k8s.io/:NoSchedule", "its key has no valid name after the prefix"),
        ("readiness.k8s.io/-x:NoSchedule", "its key has no valid name after the prefix"),
        ("readiness.k8s.io/CNIReady:NoExecute", "a gate has the effect NoSchedule"),
        ("readiness.k8s.io/CNIReady:PreferNoSchedule", "a gate has the effect NoSchedule"),
        ("readiness.k8s.io/CNIReady:Whatever", "a gate has the effect NoSchedule"),
    ] {
        let node = node("n").taint(text).condition("CNIReady", Status::True).condition("", Status::True).build();
        let decision = decide_alone(&node);
        assert_eq!(decision.edit, Edit::default(), "{text}");
        let report = words::notice(&decision.verdicts[0]).unwrap();
        assert_eq!(report.reason, "ReadinessGateIgnored");
        assert_eq!(report.message, format!("Taint {text} left alone: {reason}"));
    }
}

/// VEC-73, CTRL-2
#[test]
fn taints_of_others_are_never_touched() {
    let foreign = ["other.io/CNIReady:NoSchedule", "node.kubernetes.io/not-ready:NoExecute", "CNIReady:NoSchedule"];
    let node =
        foreign.iter().fold(node("n"), |node, text| node.taint(text)).condition("CNIReady", Status::True).build();
    let decision = decide_alone(&node);
    assert_eq!((decision.verdicts, decision.edit), (vec![], Edit::default()));
}

/// VEC-74, CTRL-7, GN-1: what another writer added meanwhile is in the fresh object, and stays.
#[test]
fn a_decision_on_the_fresh_object_keeps_what_another_writer_added() {
    let stale = node("n").taint(GATE).condition("CNIReady", Status::True).build();
    let mut fresh = crate::testing::Builder::from(stale.clone()).taint("other.io/Z:NoSchedule").build();
    fresh.version = Version::new("2");
    let patch = decide_alone(&stale).edit.patch(&stale);
    assert_eq!(patch["metadata"]["resourceVersion"], "1", "so the API server refuses it");
    assert_eq!(taints(&apply(&fresh, &decide_alone(&fresh))), ["other.io/Z:NoSchedule"]);
}

/// VEC-75, VEC-76, CTRL-10: since when is the condition's own time, whatever our clock says.
#[test]
fn latency_is_measured_from_the_transition() {
    for since in [ago(8), ago(-30)] {
        let node = node("n").taint(GATE).condition_since("CNIReady", Status::True, since).build();
        assert!(
            matches!(only(&decide_alone(&node)), State::Passes(Pass { since: found, .. }) if *found == Some(since))
        );
    }
}

/// GATE-22, CON-22
#[test]
fn a_gate_finds_its_condition_by_name_or_by_the_only_qualified_name() {
    let gated = || node("n").taint(GATE).labelled(CNI, "true");
    let opens = |node: Node| matches!(only(&decide_alone(&node)), State::Passes(_));
    assert!(opens(gated().condition("vendor.example.com/CNIReady", Status::True).build()));
    let exact_wins =
        gated().condition("vendor.example.com/CNIReady", Status::False).condition("CNIReady", Status::True);
    assert!(opens(exact_wins.build()));
    let exact_wins =
        gated().condition("vendor.example.com/CNIReady", Status::True).condition("CNIReady", Status::False);
    assert!(!opens(exact_wins.build()));
    let two = gated().condition("b.io/CNIReady", Status::True).condition("a.io/CNIReady", Status::True).build();
    let decision = decide_alone(&two);
    assert_eq!(decision.edit, Edit::default());
    let report = words::notice(&decision.verdicts[0]).unwrap();
    assert_eq!((report.tone, report.reason), (words::Tone::Warning, "ReadinessGateAmbiguous"));
    assert!(report.message.ends_with("condition CNIReady is ambiguous, the node has a.io/CNIReady and b.io/CNIReady"));
}

/// GATE-4..GATE-6, CON-29
#[test]
fn a_gate_without_its_label_gets_it_before_it_passes() {
    let node = node("n").taint(GATE).condition("CNIReady", Status::False).build();
    let decision = decide_alone(&node);
    assert_eq!(
        decision.edit.patch(&node),
        json!({"metadata": {"uid": "uid-n", "resourceVersion": "1", "labels": {"readiness.k8s.io/CNIReady": "true"}}})
    );
    let after = apply(&node, &decision);
    assert_eq!(decide_alone(&after).edit, Edit::default());
    let other_value = crate::testing::Builder::from(node).labelled(CNI, "mine").build();
    assert_eq!(decide_alone(&other_value).edit, Edit::default(), "a label of someone else stays");
}

/// GN-6: neither labels nor other annotations nor other taints matter.
#[test]
fn relabelled_and_cordoned_nodes_keep_their_gates() {
    let plain = node("n").taint(GATE).labelled(CNI, "true").condition("CNIReady", Status::False).build();
    let other = crate::testing::Builder::from(plain.clone())
        .labelled("zone", "b")
        .taint("node.kubernetes.io/unschedulable:NoSchedule")
        .build();
    assert_eq!(decide_alone(&plain).verdicts, decide_alone(&other).verdicts);
}

/// GN-4
#[test]
fn a_condition_that_nobody_refreshes_is_unknown() {
    let settings = Settings { condition_max_age: Some(SignedDuration::from_secs(60)), ..Settings::default() };
    let gated = || node("n").taint(GATE).labelled(CNI, "true").condition("CNIReady", Status::True);
    let opens = |node: &Node, settings: &Settings| {
        matches!(only(&decide_with(node, settings, &Rules::default(), Room::Free)), State::Passes(_))
    };
    for (heartbeat, fresh) in [(Some(ago(60)), true), (Some(ago(61)), false), (Some(ago(-600)), true), (None, false)] {
        let node = gated().heartbeat(heartbeat).build();
        assert_eq!(opens(&node, &settings), fresh, "{heartbeat:?}");
        assert!(opens(&node, &Settings::default()), "off by default");
    }
    let node = gated().heartbeat(Some(ago(61))).build();
    let decision = decide_with(&node, &settings, &Rules::default(), Room::Free);
    let sentence = words::sentence(&decision.verdicts[0]);
    assert!(
        sentence.ends_with("condition CNIReady was last reported at 2026-03-01T11:58:59Z, as True: too long ago"),
        "{sentence}"
    );
}

/// GN-7
#[test]
fn gates_below_other_prefixes() {
    let prefix = "startup-taint.cluster-autoscaler.kubernetes.io/";
    let key = format!("{prefix}CNIReady");
    let node = node("n").taint(&format!("{key}:NoSchedule")).condition("CNIReady", Status::True).build();
    assert_eq!(decide_alone(&node).verdicts, [], "unless a person asks for it");
    let settings = Settings { prefixes: gate::Prefixes::new([prefix]).unwrap(), ..Settings::default() };
    let decision = decide_with(&node, &settings, &Rules::default(), Room::Free);
    assert!(matches!(only(&decision), State::Passes(_)));
    assert_eq!(decision.edit.annotations.get(&key), Some(&Some("passed".to_owned())));
    assert_eq!(decision.edit.labels.get(&key), Some(&"true".to_owned()));
}

/// CON-24, METR-7
#[test]
fn which_nodes_are_managed_and_unready() {
    let settings = Settings::default();
    let of = |node: &Node| (is_managed(node, &settings), is_unready(node, &settings));
    assert_eq!(of(&node("n").taint("other.io/T:NoSchedule").build()), (false, false));
    assert_eq!(of(&node("n").taint(GATE).build()), (true, true));
    assert_eq!(of(&passed()), (true, false));
    assert_eq!(of(&node("n").labelled(CNI, "true").build()), (true, false));
    assert_eq!(of(&node("n").annotated("readiness.k8s.io/bootstrap-completed-x", "{}").build()), (true, false));
}
