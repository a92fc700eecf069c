//! `--max-held`.

use super::*;
use crate::settings::{Enforcement, MaxHeld};

fn settings(max_held: MaxHeld) -> Settings {
    Settings { enforcement: Enforcement::Continuous, max_held, ..Settings::default() }
}

/// Twenty nodes that have passed.
fn bed(max_held: MaxHeld) -> Bed {
    let nodes = (0..20).map(|number| gated(&format!("n{number:02}"), Status::True));
    let mut bed = Bed::leading(settings(max_held), nodes);
    bed.settle();
    bed.said();
    bed
}

fn held(bed: &Bed) -> Vec<String> {
    bed.server.keys().filter(|name| !bed.taints(name).is_empty()).map(ToString::to_string).collect()
}

#[test]
fn no_more_nodes_are_held_than_allowed_and_the_next_gets_its_turn() {
    let mut bed = bed(MaxHeld::default());
    let names: Vec<_> = bed.server.keys().cloned().collect();
    for name in &names {
        bed.report(name, "A", Status::False);
    }
    // All of them at once, before any answer: what is under way counts.
    let calls: Vec<_> = std::iter::from_fn(|| bed.next()).collect();
    assert_eq!(calls.len(), 2);
    for call in &calls {
        let outcome = bed.serve(call);
        bed.finish(call, outcome);
    }
    bed.settle();
    assert_eq!(held(&bed), ["n00", "n01"]);
    assert_eq!(bed.metric("keelet_gates_held_nodes"), "2");
    assert_eq!(bed.metric("keelet_gates_held_nodes_allowed"), "2");
    assert_eq!(bed.metric("keelet_gates_waiting{reason=\"max-held\"}"), "18");
    let said = bed.said();
    assert_eq!(said.iter().filter(|said| said.ends_with("ReadinessGateMaxHeld")).count(), 18);
    bed.report("n00", "A", Status::True);
    bed.settle();
    assert_eq!(held(&bed), ["n01", "n02"], "the next one that still fails");
    assert_eq!(bed.metric("keelet_gates_waiting{reason=\"max-held\"}"), "17");
}

/// A new leader knows from the nodes themselves which of them are held.
#[test]
fn a_new_leader_counts_what_is_held() {
    let mut bed = bed(MaxHeld::Nodes(1));
    bed.report("n05", "A", Status::False);
    bed.settle();
    let nodes: Vec<_> = bed.server.values().cloned().collect();
    let mut next = Bed::leading(settings(MaxHeld::Nodes(1)), nodes);
    next.report("n06", "A", Status::False);
    next.settle();
    assert_eq!(held(&next), ["n05"]);
    let now = next.now();
    next.engine.deleted("n05", "uid-n05");
    next.server.remove("n05");
    assert!(next.engine.wake_at().is_none() || next.engine.wake_at() > Some(now.at));
    next.settle();
    assert_eq!(held(&next), ["n06"], "a held node that was deleted makes room");
}

/// A new leader holds no node before it has listed all of them: what it followed may lag behind what the last leader did. Nodes pass at once.
#[test]
fn a_new_leader_holds_none_before_it_has_counted() {
    let mut bed = bed(MaxHeld::Nodes(1));
    let now = bed.now();
    bed.engine.lead(false, now);
    let stale = bed.server["n05"].clone();
    bed.report("n05", "A", Status::False);
    let held = format!(
        r#"{{"node":"uid-n05","gates":{{"{GATE}":{{"passed":"2026-03-01T12:00:00Z","held":"2026-03-01T12:00:00Z"}}}}}}"#
    );
    // The last leader holds n05, and the watch says nothing of it.
    bed.write(
        Builder::from(stale).taint(GATE).condition("A", Status::False).annotated(record::ANNOTATION, &held).build(),
    );
    bed.engine.lead(true, now);
    bed.report("n06", "A", Status::False);
    bed.change(gated("new", Status::True));
    bed.settle();
    assert_eq!(self::held(&bed), ["n05"]);
    assert_eq!(bed.metric("keelet_gates_waiting{reason=\"counting\"}"), "2");
    assert!(bed.engine.wants_count());
    bed.engine.count_anew();
    assert!(!bed.engine.wants_count());
    bed.list();
    bed.settle();
    assert_eq!(self::held(&bed), ["n05"]);
    assert_eq!(bed.metric("keelet_gates_waiting{reason=\"max-held\"}"), "1");
}

#[test]
fn room_that_a_failed_patch_took_is_given_back() {
    let mut bed = bed(MaxHeld::Nodes(1));
    bed.report("n00", "A", Status::False);
    let call = bed.next().unwrap();
    bed.report("n01", "A", Status::False);
    assert_eq!(bed.next(), None, "its room is taken while it is under way");
    bed.finish(&call, Outcome::Refused("denied".to_owned()));
    bed.settle();
    assert_eq!(held(&bed), ["n01"]);
}

#[test]
fn none_is_held_if_none_may_be() {
    let mut bed = bed(MaxHeld::Nodes(0));
    bed.report("n00", "A", Status::False);
    bed.settle();
    assert_eq!(held(&bed), Vec::<String>::new());
}

/// A patch whose answer was lost keeps its room until the node tells. It was not applied, and the node is still as it was: it is tried
/// again in that room.
#[test]
fn a_node_does_not_stand_in_its_own_way() {
    let mut bed = bed(MaxHeld::Nodes(1));
    bed.report("n05", "A", Status::False);
    bed.turn(Fate::RequestLost).expect("a patch");
    bed.settle_in_time(Duration::from_secs(10));
    assert_eq!(held(&bed), ["n05"]);
    bed.report("n06", "A", Status::False);
    bed.settle_in_time(Duration::from_secs(10));
    assert_eq!(held(&bed), ["n05"], "its room is taken once");
}
