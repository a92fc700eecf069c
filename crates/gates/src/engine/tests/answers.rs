//! What API servers answer, and do not.

use super::*;

fn requests(calls: &[Call]) -> Vec<&'static str> {
    calls.iter().map(|call| if call.request == Request::Get { "get" } else { "patch" }).collect()
}

/// VEC-74, GN-1, CTRL-7, SCN-G12, PEER-13
#[test]
fn after_a_conflict_the_node_is_read_and_decided_again() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    let fresh = Builder::from(bed.server["n"].clone()).taint("other.io/Z:NoSchedule").build();
    bed.write(fresh);
    assert_eq!(requests(&bed.settle()), ["patch", "get", "patch"]);
    assert_eq!(bed.taints("n"), ["other.io/Z:NoSchedule"]);
    assert_eq!(bed.said(), ["n ReadinessGatePassed"]);
    assert_eq!(bed.metric("keelet_gates_patches_total{outcome=\"conflict\"}"), "1");
    assert_eq!(bed.metric("readiness_gate_controller_taints_removed_total"), "1");
}

/// GN-1: what a watch has brought meanwhile needs no read.
#[test]
fn after_a_conflict_a_newer_object_is_used_as_it_is() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    let call = bed.next().unwrap();
    bed.change(Builder::from(bed.server["n"].clone()).taint("other.io/Z:NoSchedule").build());
    let outcome = bed.serve(&call);
    assert_eq!(outcome, Outcome::Conflict);
    bed.finish(&call, outcome);
    assert_eq!(requests(&bed.settle()), ["patch"]);
    assert_eq!(bed.taints("n"), ["other.io/Z:NoSchedule"]);
}

/// GN-1: the same if the watch is a little later.
#[test]
fn what_a_watch_brings_after_a_conflict_is_used_as_it_is() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    let fresh = bed.write(Builder::from(bed.server["n"].clone()).taint("other.io/Z:NoSchedule").build());
    bed.turn(Fate::Answered).unwrap();
    let now = bed.now();
    bed.engine.observe(fresh, now);
    assert_eq!(requests(&bed.settle()), ["patch"]);
    assert_eq!(bed.taints("n"), ["other.io/Z:NoSchedule"]);
}

/// GN-1, SCN-G18: ten writers at full speed; each of their taints is there in the end, and the gate's is not.
#[test]
fn a_storm_of_conflicts_loses_no_taint() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    for writer in 0..10 {
        let call = loop {
            match bed.next() {
                Some(call) => break call,
                None => bed.pass(Duration::from_millis(10)),
            }
        };
        bed.write(Builder::from(bed.server["n"].clone()).taint(&format!("w{writer}.io/T:NoSchedule")).build());
        let outcome = bed.serve(&call);
        bed.finish(&call, outcome);
    }
    bed.settle_in_time(Duration::from_secs(10));
    let taints = bed.taints("n");
    assert_eq!(taints.len(), 10, "{taints:?}");
    assert!(taints.iter().all(|taint| taint.contains(".io/T:")));
    assert_eq!(bed.said(), ["n ReadinessGatePassed"]);
}

/// VEC-79: the patch was applied and the answer was lost: reported and counted once, by what the node says.
#[test]
fn a_lost_answer_is_found_by_reading() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    bed.turn(Fate::AnswerLost).unwrap();
    assert_eq!(bed.said(), Vec::<String>::new());
    let calls = bed.settle_in_time(Duration::from_secs(10));
    assert_eq!(requests(&calls), ["get"]);
    assert_eq!(bed.said(), ["n ReadinessGatePassed"]);
    assert_eq!(bed.metric("readiness_gate_controller_taints_removed_total"), "1");
}

/// VEC-79: the same by a watch, before the deadline of the request is over.
#[test]
fn a_watch_may_be_faster_than_a_lost_answer() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    let call = bed.next().unwrap();
    let Outcome::Node(node) = bed.serve(&call) else { panic!("it is applied") };
    let now = bed.now();
    bed.engine.observe(*node, now);
    bed.finish(&call, Outcome::Unavailable("deadline".to_owned()));
    bed.settle_in_time(Duration::from_secs(10));
    assert_eq!(bed.said(), ["n ReadinessGatePassed"]);
    assert_eq!(bed.metric("readiness_gate_controller_taints_removed_total"), "1");
}

/// VEC-79
#[test]
fn a_lost_request_is_made_again() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    bed.turn(Fate::RequestLost).unwrap();
    assert_eq!(requests(&bed.settle_in_time(Duration::from_secs(10))), ["get", "patch"]);
    assert_eq!(bed.said(), ["n ReadinessGatePassed"]);
    assert_eq!(bed.taints("n"), Vec::<String>::new());
}

/// VEC-79: a controller that is killed after its patch leaves nothing to do for the next one.
#[test]
fn a_new_leader_decides_the_same_once() {
    let mut bed = Bed::leading(Settings::default(), [gated("a", Status::True), gated("b", Status::True)]);
    bed.turn(Fate::AnswerLost).unwrap();
    let killed_before_sending = bed.next();
    assert_eq!(killed_before_sending, None, "one at a time while there is no answer");
    let nodes: Vec<_> = bed.server.values().cloned().collect();
    let mut next = Bed::leading(Settings::default(), nodes);
    assert_eq!(requests(&next.settle()), ["patch"]);
    assert_eq!(next.said(), ["b ReadinessGatePassed"]);
}

/// CTRL-14: during an outage one request at a time, less and less often; afterwards everything at once.
#[test]
fn an_api_server_in_trouble_is_asked_less() {
    let nodes = (0..100).map(|number| gated(&format!("n{number}"), Status::True));
    let mut bed = Bed::leading(Settings::default(), nodes);
    let first: Vec<_> = std::iter::from_fn(|| bed.next()).collect();
    for call in &first {
        bed.finish(call, Outcome::Unavailable("connection refused".to_owned()));
    }
    assert_eq!(bed.next(), None);
    let mut asked = 0;
    for _ in 0..600 {
        bed.pass(Duration::from_millis(100));
        asked += usize::from(bed.turn(Fate::RequestLost).is_some());
    }
    assert!((10..30).contains(&asked), "{asked} requests in a minute of outage");
    bed.pass(Duration::from_secs(5));
    bed.settle_in_time(Duration::from_secs(1));
    assert!(bed.server.keys().all(|name| bed.taints(name).is_empty()));
    assert_eq!(bed.metric("readiness_gate_controller_taints_removed_total"), "100");
}

/// An API server that asks for a pause gets it.
#[test]
fn a_pause_that_the_api_server_asks_for_is_kept() {
    let mut bed = Bed::leading(Settings::default(), [gated("a", Status::True), gated("b", Status::True)]);
    let call = bed.next().unwrap();
    bed.finish(&call, Outcome::Throttled(Some(Duration::from_secs(7))));
    bed.pass(Duration::from_millis(6999));
    assert_eq!(bed.next(), None);
    assert_eq!(bed.engine.wake_at(), Some(bed.at + Duration::from_millis(1)));
    bed.pass(Duration::from_millis(1));
    assert_eq!(requests(&bed.settle()), ["patch", "patch"]);
}

/// The same when answers to requests that were under way come later.
#[test]
fn a_pause_that_the_api_server_asks_for_outlives_other_answers() {
    let nodes = (0..40).map(|number| gated(&format!("n{number:02}"), Status::True));
    let mut bed = Bed::leading(Settings::default(), nodes);
    let calls: Vec<_> = std::iter::from_fn(|| bed.next()).collect();
    assert_eq!(calls.len(), IN_FLIGHT);
    bed.finish(&calls[0], Outcome::Throttled(Some(Duration::from_secs(7))));
    for call in &calls[1..] {
        let outcome = bed.serve(call);
        bed.finish(call, outcome);
    }
    assert_eq!(bed.next(), None, "it asked for seven seconds");
    bed.pass(Duration::from_millis(6999));
    assert_eq!(bed.next(), None);
    bed.pass(Duration::from_millis(1));
    bed.settle();
    assert!(bed.server.keys().all(|name| bed.taints(name).is_empty()));
}

/// An API server that throttles every patch of a node is asked less and less often.
#[test]
fn a_patch_that_is_throttled_counts_as_a_try() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    let mut tries = 0;
    for _ in 0..6000 {
        bed.pass(Duration::from_millis(100));
        while let Some(call) = bed.next() {
            tries += 1;
            bed.finish(&call, Outcome::Throttled(Some(Duration::from_millis(1))));
        }
    }
    assert!((10..40).contains(&tries), "{tries} tries in ten minutes");
}

/// CTRL-15, PEER-19: the API server refuses patches for ten minutes, with an event on each node that says so once. When it takes one again, or
/// a permission was granted, or a node changes, no node waits for the end of its pause.
#[test]
fn what_was_refused_is_tried_when_it_may_be_allowed() {
    let refuse = |bed: &mut Bed, time: u64| {
        for _ in 0..time {
            bed.pass(Duration::from_secs(1));
            while let Some(call) = bed.next() {
                let outcome = match call.request {
                    Request::Get => bed.serve(&call),
                    Request::Patch(_) => Outcome::Refused("denied by a webhook".to_owned()),
                };
                bed.finish(&call, outcome);
            }
        }
    };
    for cause in ["granted", "changed"] {
        let mut bed = Bed::leading(Settings::default(), [gated("a", Status::True), gated("b", Status::True)]);
        refuse(&mut bed, 600);
        let said = bed.engine.said();
        assert_eq!(said.len(), 2, "each once: {said:?}");
        assert_eq!(said[0].report.reason, "ReadinessGatePatchRefused");
        assert_eq!(
            said[0].report.message,
            "Taint readiness.k8s.io/A:NoSchedule not changed: the API server refuses the patch: denied by a webhook"
        );
        let now = bed.now();
        match cause {
            "granted" => bed.engine.try_refused(now),
            _ => bed.report("a", "B", Status::True),
        }
        bed.settle_in_time(Duration::from_secs(5));
        assert_eq!(bed.taints("a"), [""; 0], "{cause}");
        assert_eq!(bed.taints("b"), [""; 0], "the success of one is news for the other");
    }
}

/// CTRL-14: nodes of an API server that was restored from a backup are older than those that were seen. What it lists is believed.
#[test]
fn nodes_of_a_restored_api_server_are_believed() {
    for by in ["list", "read"] {
        let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
        let backup = bed.server.clone();
        bed.pass(Duration::from_secs(5));
        bed.settle();
        assert_eq!(bed.taints("n"), [""; 0]);
        let after = bed.server["n"].clone();
        bed.server = backup;
        bed.pass(Duration::from_secs(31));
        match by {
            "list" => bed.list(),
            // A condition changes, for all that is known, and the patch is a conflict.
            _ => {
                let now = bed.now();
                let seen = Builder::from(after).taint("readiness.k8s.io/B:NoSchedule").build();
                bed.engine.observe(Node { version: Version::new("103"), ..seen }, now);
                bed.pass(Duration::from_secs(31));
            }
        }
        bed.settle_in_time(Duration::from_secs(60));
        assert_eq!(bed.taints("n"), [""; 0], "{by}");
    }
}

/// GN-1: a list that was asked for before a patch was answered does not bring the state before the patch back.
#[test]
fn a_list_that_is_a_little_older_says_nothing() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    let before = bed.server["n"].clone();
    bed.pass(Duration::from_secs(60));
    bed.settle();
    let now = bed.now();
    bed.engine.list_begins(false);
    bed.engine.listed(before, now);
    bed.engine.list_ends(now);
    assert_eq!(bed.settle(), []);
}

/// PEER-19, SCN-G13: one node that cannot be patched delays no other, and is tried less and less often.
#[test]
fn a_node_that_is_refused_delays_no_other() {
    let mut bed = Bed::leading(Settings::default(), [gated("a", Status::True), gated("b", Status::True)]);
    let call = bed.next().unwrap();
    assert_eq!(&*call.node, "a");
    bed.finish(&call, Outcome::Refused("denied by a webhook".to_owned()));
    assert_eq!(bed.settle().len(), 1);
    assert_eq!(bed.taints("b"), Vec::<String>::new());
    let mut tries = 0;
    for _ in 0..3600 {
        bed.pass(Duration::from_secs(1));
        while let Some(call) = bed.next() {
            let outcome = match call.request {
                Request::Get => bed.serve(&call),
                Request::Patch(_) => {
                    tries += 1;
                    Outcome::Refused("denied by a webhook".to_owned())
                }
            };
            bed.finish(&call, outcome);
        }
    }
    assert!((10..30).contains(&tries), "{tries} tries in an hour");
    bed.settle_in_time(Duration::from_secs(300));
    assert_eq!(bed.taints("a"), Vec::<String>::new(), "and it succeeds when it may");
}

/// A webhook that puts the taint back with every patch must not be fought at full speed.
#[test]
fn a_patch_that_is_undone_each_time_is_made_less_and_less_often() {
    let mut bed = Bed::leading(
        Settings { enforcement: crate::settings::Enforcement::Continuous, ..Settings::default() },
        [gated("n", Status::True)],
    );
    let mut patches = 0;
    for _ in 0..600 {
        bed.pass(Duration::from_millis(100));
        while let Some(call) = bed.next() {
            patches += usize::from(call.request != Request::Get);
            let outcome = match bed.serve(&call) {
                Outcome::Node(node) if call.request != Request::Get => {
                    Outcome::Node(Box::new(bed.write(Builder::from(*node).taint(GATE).build())))
                }
                outcome => outcome,
            };
            bed.finish(&call, outcome);
        }
    }
    assert!((6..25).contains(&patches), "{patches} patches in a minute");
}

#[test]
fn a_node_that_is_gone_is_forgotten() {
    let mut bed = Bed::leading(Settings::default(), [gated("n", Status::True)]);
    bed.server.remove("n");
    assert_eq!(requests(&bed.settle()), ["patch"]);
    assert_eq!(bed.engine.nodes.len(), 0);
}

/// CTRL-7: a read may be older than the node. A node is forgotten when the watch says that it was deleted, not because a read did not find
/// it; a patch that does not find it is never older.
#[test]
fn a_read_that_does_not_find_a_node_is_made_again() {
    let mut bed = Bed::leading(Settings::default(), [gated("n1", Status::True)]);
    bed.turn(Fate::RequestLost).expect("a patch");
    bed.pass(Duration::from_secs(1));
    let read = bed.next().expect("a read");
    assert!(matches!(read.request, Request::Get), "{:?}", read.request);
    bed.finish(&read, Outcome::NotFound);
    bed.settle_in_time(Duration::from_secs(10));
    assert_eq!(bed.taints("n1"), [""; 0]);
}

/// CTRL-7: a node was deleted and made again, and a read is so old that it finds the first one, which had passed. It is no news.
#[test]
fn a_read_that_finds_an_earlier_node_of_that_name_is_made_again() {
    let mut bed = Bed::leading(Settings::default(), [gated("n1", Status::True)]);
    bed.settle();
    let earlier = bed.server["n1"].clone();
    assert_eq!(bed.taints("n1"), [""; 0]);
    bed.change(Node { uid: "another".into(), ..gated("n1", Status::True) });
    bed.turn(Fate::RequestLost).expect("a patch");
    bed.pass(Duration::from_secs(1));
    let read = bed.next().expect("a read");
    assert!(matches!(read.request, Request::Get), "{:?}", read.request);
    bed.finish(&read, Outcome::Node(Box::new(earlier)));
    bed.settle_in_time(Duration::from_secs(10));
    assert_eq!(bed.taints("n1"), [""; 0]);
}
