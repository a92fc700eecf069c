//! From a change to a patch.

use super::*;
use crate::testing::ago;

/// GN-5, CTRL-14
#[test]
fn nothing_is_decided_before_everything_is_known_and_this_one_leads() {
    let mut bed = Bed::new(Settings::default());
    bed.write(gated("n", Status::True));
    let now = bed.now();
    bed.engine.lead(true, now);
    assert_eq!(bed.next(), None, "no node is known");
    bed.engine.list_begins(false);
    let node = bed.server["n"].clone();
    bed.engine.observe(node, now);
    assert_eq!(bed.next(), None, "the list is not complete");
    bed.engine.list_ends(now);
    assert_eq!(bed.next(), None, "the rules are not known: one of them may be about this taint");
    assert!(!bed.engine.is_synced());
    bed.engine.lead(false, now);
    bed.engine.set_rules(Rules::default(), now);
    assert!(bed.engine.is_synced());
    assert_eq!((bed.next(), bed.engine.wake_at()), (None, None), "a follower does nothing");
    bed.engine.lead(true, now);
    assert_eq!(bed.settle().len(), 1);
    assert_eq!(bed.taints("n"), Vec::<String>::new());
}

/// VEC-66, CTRL-4, CTRL-12, EVT-9, METR-7, SCN-G7
#[test]
fn a_gate_that_passes_is_patched_reported_and_counted_once() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::False)]);
    assert_eq!(bed.settle(), []);
    assert_eq!(bed.metric("readiness_gate_controller_nodes_unready_total"), "1");
    assert_eq!(bed.metric("keelet_gates_waiting{reason=\"condition-false\"}"), "1");
    bed.pass(Duration::from_secs(60));
    bed.report("n", "A", Status::True);
    bed.pass(Duration::from_millis(20));
    assert_eq!(bed.settle().len(), 1);
    let said = bed.engine.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((&*said[0].node, &*said[0].uid, said[0].report.reason), ("n", "uid-n", "ReadinessGatePassed"));
    assert_eq!(
        said[0].report.message,
        "Taint readiness.k8s.io/A:NoSchedule removed: condition A holds since 2026-03-01T12:01:00Z"
    );
    assert_eq!(bed.metric("readiness_gate_controller_taints_removed_total"), "1");
    assert_eq!(bed.metric("readiness_gate_controller_nodes_unready_total"), "0");
    assert_eq!(bed.metric("readiness_gate_controller_nodes_managed_total"), "1");
    assert_eq!(bed.metric("keelet_gates_waiting{reason=\"condition-false\"}"), "0");
    assert_eq!(bed.metric("keelet_gates_reaction_seconds_sum"), "0.02");
}

/// VEC-75, VEC-76, CTRL-10
#[test]
fn latency_is_from_the_transition_and_never_negative() {
    for (since, sum) in [(ago(8), "8.0"), (ago(-30), "0.0")] {
        let node = node("n").taint(GATE).condition_since("A", Status::True, since).build();
        let mut bed = Bed::leading(Settings::default(), [node]);
        bed.settle();
        assert_eq!(bed.metric("readiness_gate_controller_taint_removal_latency_seconds_sum"), sum);
    }
}

/// CTRL-13, GN-10
#[test]
fn a_heartbeat_causes_no_work() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::False)]);
    bed.settle();
    bed.pass(Duration::from_secs(10));
    let heartbeat = Some(bed.now().wall);
    bed.change(Builder::from(bed.server["n"].clone()).heartbeat(heartbeat).build());
    assert!(bed.engine.queue.is_empty());
    assert_eq!(bed.next(), None);
    bed.report("n", "A", Status::True);
    let call = bed.next().unwrap();
    assert!(matches!(bed.serve(&call), Outcome::Node(_)), "and the version that it brought is used");
}

/// GN-10: 5,000 nodes at once are a bounded burst.
#[test]
fn requests_under_way_are_bounded() {
    let nodes = (0..200).map(|number| gated(&format!("n{number}"), Status::True));
    let mut bed = Bed::leading(Settings::default(), nodes);
    let calls: Vec<_> = std::iter::from_fn(|| bed.next()).collect();
    assert_eq!(calls.len(), IN_FLIGHT);
    let names: BTreeSet<_> = calls.iter().map(|call| Text::clone(&call.node)).collect();
    assert_eq!(names.len(), IN_FLIGHT, "one for each node");
    let outcome = bed.serve(&calls[0]);
    bed.finish(&calls[0], outcome);
    assert!(bed.next().is_some(), "one more when one has ended");
}

/// VEC-78, CTRL-12, GN-6
#[test]
fn a_node_that_is_deleted_and_created_again_begins_anew() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    let call = bed.next().unwrap();
    bed.engine.deleted("n", "another");
    assert_eq!(bed.engine.nodes.len(), 1, "another object of the name");
    bed.engine.deleted("n", "uid-n");
    assert_eq!(bed.metric("keelet_gates_nodes"), "0");
    bed.change(Node { uid: "second".into(), ..gated("n", Status::False) });
    let late = bed.serve(&call);
    assert_eq!(late, Outcome::Conflict, "the UID is another");
    bed.finish(&call, late);
    assert_eq!(bed.settle(), []);
    assert_eq!(bed.taints("n"), [GATE]);
    assert_eq!(bed.engine.in_flight(), 0);
}

#[test]
fn a_node_that_a_list_does_not_have_is_gone() {
    let mut bed = Bed::leading(Settings::default(), [gated("a", Status::False), gated("b", Status::False)]);
    bed.settle();
    assert_eq!(bed.metric("readiness_gate_controller_nodes_unready_total"), "2");
    bed.server.remove("a");
    bed.list();
    assert_eq!(bed.metric("readiness_gate_controller_nodes_unready_total"), "1");
    assert_eq!(bed.engine.nodes.keys().map(|name| &**name).collect::<Vec<_>>(), ["b"]);
}

/// An old state from a watch that lags behind, after the answer of a patch.
#[test]
fn what_is_older_than_known_says_nothing() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    let before = bed.server["n"].clone();
    bed.settle();
    let now = bed.now();
    bed.engine.observe(before, now);
    assert_eq!(bed.settle(), []);
    assert_eq!(bed.metric("readiness_gate_controller_nodes_unready_total"), "0");
}

/// CTRL-14, GN-5
#[test]
fn a_leader_that_steps_down_stops_at_once() {
    let mut bed = Bed::leading(Settings::default(), [gated("a", Status::True), gated("b", Status::False)]);
    let call = bed.next().unwrap();
    let now = bed.now();
    bed.engine.lead(false, now);
    assert_eq!(bed.metric("readiness_gate_controller_nodes_unready_total"), "0", "the next leader counts");
    let outcome = bed.serve(&call);
    bed.finish(&call, outcome);
    bed.report("b", "A", Status::True);
    assert_eq!((bed.next(), bed.engine.in_flight()), (None, 0));
    bed.engine.lead(true, now);
    assert_eq!(bed.settle().len(), 1);
}

/// VEC-70, CTRL-6, CTRL-15: once, and again when it was over and comes back.
#[test]
fn warnings_are_given_once() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    bed.settle();
    bed.said();
    for _ in 0..2 {
        let open = bed.server["n"].clone();
        bed.change(Builder::from(open.clone()).taint(GATE).build());
        bed.settle();
        bed.report("n", "A", Status::False);
        bed.report("n", "B", Status::False);
        bed.settle();
        assert_eq!(bed.said(), ["n ReadinessGateSetByHand"]);
        let taints = Vec::new();
        bed.change(Node { taints, ..bed.server["n"].clone() });
        bed.settle();
    }
}

/// GN-4: time alone closes a gate.
#[test]
fn a_condition_that_becomes_too_old_wakes_the_engine() {
    let settings = Settings {
        enforcement: crate::settings::Enforcement::Continuous,
        condition_max_age: Some(SignedDuration::from_secs(60)),
        ..Settings::default()
    };
    let mut bed = Bed::leading(settings, [gated("n", Status::True)]);
    bed.settle();
    bed.said();
    assert_eq!(bed.taints("n"), Vec::<String>::new());
    assert_eq!(bed.settle_in_time(Duration::from_secs(50)), []);
    bed.settle_in_time(Duration::from_secs(10));
    assert_eq!((bed.said(), bed.taints("n")), (vec!["n ReadinessGateReturned".to_owned()], vec![GATE.to_owned()]));
    let heartbeat = Some(bed.now().wall);
    bed.change(Builder::from(bed.server["n"].clone()).heartbeat(heartbeat).build());
    bed.settle();
    assert_eq!(bed.taints("n"), Vec::<String>::new(), "and a heartbeat opens it");
}

/// SCN-G6
#[test]
fn a_dry_run_says_and_counts_and_changes_nothing() {
    let mut bed = Bed::in_mode(Settings::default(), Mode::DryRun);
    bed.write(gated("n", Status::True));
    bed.list();
    let now = bed.now();
    bed.engine.set_rules(Rules::default(), now);
    bed.engine.lead(true, now);
    assert_eq!(bed.settle(), []);
    let said = bed.engine.said();
    assert_eq!((said.len(), said[0].mode, said[0].report.reason), (1, Mode::DryRun, "ReadinessGatePassed"));
    assert_eq!(bed.metric("keelet_gates_would_total{change=\"remove\"}"), "1");
    bed.report("n", "B", Status::True);
    bed.settle();
    assert_eq!(bed.said(), Vec::<String>::new(), "once");
    assert_eq!(bed.taints("n"), [GATE]);
}

/// GN-10: a node whose conditions change all the time is looked at a few times a second, and delays no other.
#[test]
fn a_node_that_changes_all_the_time_delays_no_other() {
    let mut bed = Bed::leading(Settings::default(), [gated("noisy", Status::False), gated("quiet", Status::False)]);
    bed.settle();
    let decisions = |bed: &Bed| bed.metric("keelet_gates_decisions_total").parse::<u64>().unwrap();
    let before = decisions(&bed);
    for number in 0..10_000 {
        bed.pass(Duration::from_millis(1));
        let mut node = bed.server["noisy"].clone();
        node.conditions[0].reason = format!("{number}").into();
        bed.change(node);
        bed.settle();
        if number == 5000 {
            bed.report("quiet", "A", Status::True);
            bed.settle();
            assert_eq!(bed.taints("quiet"), [""; 0], "at once");
        }
    }
    let looks = decisions(&bed) - before;
    assert!((10..120).contains(&looks), "{looks} looks in ten seconds");
    bed.report("noisy", "A", Status::True);
    bed.settle_in_time(Duration::from_secs(2));
    assert_eq!(bed.taints("noisy"), [""; 0], "nor is it forgotten");
}

/// CTRL-15: since when the node waits that has waited longest, whichever replica leads.
#[test]
fn the_oldest_wait_is_shown() {
    let created = |name: &str, age: i64| Builder::from(gated(name, Status::False)).created(ago(age)).build();
    let mut bed = Bed::leading(Settings::default(), [created("a", 900), created("b", 300)]);
    bed.settle();
    let oldest = |bed: &Bed| bed.metric("keelet_gates_oldest_wait_timestamp_seconds").parse::<i64>().unwrap();
    assert_eq!(oldest(&bed), ago(900).as_second());
    bed.report("a", "A", Status::True);
    bed.settle();
    assert_eq!(oldest(&bed), ago(300).as_second(), "the next one");
    bed.pass(Duration::from_secs(60));
    bed.change(Builder::from(bed.server["b"].clone()).condition("A", Status::True).build());
    bed.settle();
    assert_eq!(oldest(&bed), 0);
    bed.change(gated("c", Status::False));
    bed.change(Builder::from(node("d").build()).build());
    bed.change(Builder::from(bed.server["d"].clone()).taint(GATE).labelled("readiness.k8s.io/A", "true").build());
    bed.engine.deleted("c", "uid-c");
    bed.settle();
    assert_eq!(oldest(&bed), bed.now().wall.as_second(), "one that was free before waits since it is not");
}
