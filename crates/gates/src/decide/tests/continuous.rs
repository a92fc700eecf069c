//! `--enforcement=continuous`: the taint follows the condition, as far as `--max-held` allows.

use jiff::SignedDuration;

use super::*;
use crate::{
    node::Status,
    record,
    settings::Enforcement,
    testing::{Builder, ago, node},
    words,
};

const GATE: &str = "readiness.k8s.io/CNIReady:NoSchedule";

fn settings() -> Settings {
    Settings { enforcement: Enforcement::Continuous, ..Settings::default() }
}

fn decide(node: &Node, room: Room) -> Decision {
    decide_with(node, &settings(), &Rules::default(), room)
}

/// A node that has passed the gate, with the condition as it is now.
fn passed(status: Status) -> Node {
    let pending =
        node("n").taint("readiness.k8s.io/CNIReady=pending:NoSchedule").condition("CNIReady", Status::True).build();
    let after = apply(&pending, &decide(&pending, Room::Free));
    Builder::from(after).condition("CNIReady", status).build()
}

/// SCN-G3, CTRL-17: with the value that it had.
#[test]
fn the_taint_returns_and_goes_with_the_condition() {
    let failed = passed(Status::False);
    let decision = decide(&failed, Room::Free);
    assert!(matches!(only(&decision), State::Returns { budget: Budget::Counted, .. }));
    let held = apply(&failed, &decision);
    assert_eq!(
        serde_json::to_value(&held.taints).unwrap(),
        serde_json::json!([{"key": CNI, "value": "pending", "effect": "NoSchedule"}])
    );
    assert_eq!(held.annotations.get(CNI), None, "it does not say passed while it is held");
    assert!(is_held(&held));
    assert_eq!(decide(&held, Room::Free).edit, Edit::default());
    assert_eq!(words::change(&decision.verdicts[0]).unwrap().reason, "ReadinessGateReturned");

    let recovered = Builder::from(held).condition("CNIReady", Status::True).build();
    let decision = decide(&recovered, Room::Full { held: 1, allowed: 1 });
    assert!(matches!(only(&decision), State::Passes(Pass { how: How::Released, .. })));
    let open = apply(&recovered, &decision);
    assert_eq!((taints(&open).len(), is_held(&open)), (0, false));
    assert_eq!(open.annotations.get(CNI).map(|value| &**value), Some("passed"));
    assert_eq!(decide(&open, Room::Free).edit, Edit::default());
}

/// CTRL-17
#[test]
fn every_way_of_leaving_true_closes_the_gate() {
    let mut absent = passed(Status::True);
    absent.conditions.clear();
    for node in [passed(Status::False), passed(Status::Unknown), absent] {
        assert!(matches!(only(&decide(&node, Room::Free)), State::Returns { .. }));
    }
    assert_eq!(only(&decide(&passed(Status::True), Room::Free)), &State::Open);
    let mut ambiguous = passed(Status::True);
    ambiguous.conditions[0].kind = "a.io/CNIReady".into();
    let ambiguous = Builder::from(ambiguous).condition("b.io/CNIReady", Status::False).build();
    assert_eq!(only(&decide(&ambiguous, Room::Free)), &State::Open, "which one is meant is not known");
}

/// GN-4: in continuous mode a silent reporter closes the gate too, at the moment that its report becomes too old.
#[test]
fn a_condition_that_becomes_too_old_closes_the_gate() {
    let settings = Settings { condition_max_age: Some(SignedDuration::from_secs(60)), ..settings() };
    let fresh = Builder::from(passed(Status::True)).heartbeat(Some(ago(20))).build();
    let decide_at = |at| {
        let rules = Rules::default();
        super::decide(
            &fresh,
            &Circumstances { rules: &rules, settings: &settings, seen: &[], room: Room::Free, now: at },
        )
    };
    let decision = decide_at(now());
    assert_eq!(only(&decision), &State::Open);
    let wake_at = decision.wake_at.unwrap();
    assert!(wake_at.duration_since(ago(20)) > SignedDuration::from_secs(60));
    assert!(matches!(only(&decide_at(wake_at)), State::Returns { .. }));
    assert_eq!(decide(&fresh, Room::Free).wake_at, None, "without a limit nothing gets too old");
}

#[test]
fn no_more_nodes_are_held_than_allowed() {
    let failed = passed(Status::False);
    let decision = decide(&failed, Room::Full { held: 3, allowed: 3 });
    assert_eq!(decision.edit, Edit::default());
    let report = words::notice(&decision.verdicts[0]).unwrap();
    assert_eq!((report.tone, report.reason), (words::Tone::Warning, "ReadinessGateMaxHeld"));
    assert!(report.message.ends_with("but 3 of at most 3 nodes are held already (--max-held)"), "{}", report.message);
}

/// A node that is held already takes no more room by a second taint.
#[test]
fn a_second_gate_of_a_held_node_takes_no_more_room() {
    let gpu = "readiness.k8s.io/GPU:NoSchedule";
    let pending =
        node("n").taint(GATE).taint(gpu).condition("CNIReady", Status::True).condition("GPU", Status::True).build();
    let open = apply(&pending, &decide(&pending, Room::Free));
    let one_failed = Builder::from(open).condition("CNIReady", Status::False).build();
    let held = apply(&one_failed, &decide(&one_failed, Room::Free));
    let both_failed = Builder::from(held).condition("GPU", Status::False).build();
    let decision = decide(&both_failed, Room::Full { held: 1, allowed: 1 });
    assert!(matches!(of(&decision, "readiness.k8s.io/GPU"), State::Returns { .. }));
}

/// GN-3: only what our own record says has passed can return.
#[test]
fn an_annotation_without_a_record_brings_no_taint() {
    let claimed = node("n").annotated(CNI, "passed").condition("CNIReady", Status::False).build();
    assert_eq!(decide(&claimed, Room::Free).verdicts, []);
    let copied = Builder::from(passed(Status::False)).uid("another").build();
    assert_eq!(decide(&copied, Room::Free).verdicts, []);
}

/// A person removes the taint of a held gate by hand: it returns while the condition is not True, and afterwards the gate is open.
#[test]
fn a_held_taint_that_was_removed_by_hand() {
    let failed = passed(Status::False);
    let mut removed = apply(&failed, &decide(&failed, Room::Free));
    removed.taints.clear();
    assert!(matches!(only(&decide(&removed, Room::Free)), State::Returns { .. }));
    let recovered = Builder::from(removed).condition("CNIReady", Status::True).build();
    let decision = decide(&recovered, Room::Free);
    assert_eq!(only(&decision), &State::Completes);
    let open = apply(&recovered, &decision);
    assert!(open.annotations.has(CNI));
    assert_eq!(decide(&open, Room::Free).edit, Edit::default());
}

/// CON-19: back to bootstrap mode, a held node is released when its condition holds, and never held again.
#[test]
fn a_held_node_is_released_in_bootstrap_mode_too() {
    let failed = passed(Status::False);
    let held = apply(&failed, &decide(&failed, Room::Free));
    assert!(matches!(only(&decide_alone(&held)), State::Waits { added: Some(Budget::Counted), .. }));
    let recovered = Builder::from(held).condition("CNIReady", Status::True).build();
    let open = apply(&recovered, &decide_alone(&recovered));
    assert_eq!(taints(&open), Vec::<String>::new());
    let failed = Builder::from(open).condition("CNIReady", Status::False).build();
    assert_eq!(decide_alone(&failed).edit, Edit::default());
}

/// In continuous mode the taint follows the condition, whoever added it.
#[test]
fn a_taint_set_by_hand_goes_with_the_condition() {
    let by_hand = Builder::from(passed(Status::True)).taint(GATE).build();
    assert!(matches!(only(&decide(&by_hand, Room::Free)), State::Passes(Pass { how: How::Met, .. })));
}

/// CTRL-17: never a taint of Kubernetes, and no other annotation than the gate's and our record.
#[test]
fn nothing_but_the_gates_own_taint_returns() {
    let failed = passed(Status::False);
    let decision = decide(&failed, Room::Free);
    let keys: Vec<_> = decision.edit.annotations.keys().map(String::as_str).collect();
    assert_eq!(keys, [record::ANNOTATION, CNI]);
    assert_eq!(taints(&apply(&failed, &decision)), [GATE]);
}
