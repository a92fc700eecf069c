//! Tables over looks at a node: what is said, and since when.

use std::sync::Arc;

use keelet_cri::v1::RuntimeCondition;
use keelet_lifecycle::{BootId, Moment};
use keelet_pod::ProbeKind;

use super::*;
use crate::{bed::pod_of, board::OverdueProbe, node::DiskPressure};

fn at(seconds: i64) -> Moment {
    Moment { boot_ms: seconds * 1000, wall: Wall::from_millis(seconds * 1000), boot_id: BootId::default() }
}

fn second(seconds: i64) -> Wall {
    at(seconds).wall
}

fn runtime_of(conditions: &[(&str, bool)]) -> RuntimeHealth {
    let one = |(kind, status): &(&str, bool)| RuntimeCondition {
        r#type: (*kind).to_owned(),
        status: *status,
        reason: format!("{kind}Reason"),
        message: format!("{kind} message"),
    };
    RuntimeHealth::Answers { conditions: conditions.iter().map(one).collect(), version: None }
}

fn healthy() -> Health {
    Health {
        runtime: runtime_of(&[("RuntimeReady", true), ("NetworkReady", true)]),
        disk: DiskPressure { holds: false, since: Some(at(1)), message: "room".to_owned() },
        overdue: Vec::new(),
    }
}

fn find<'a>(conditions: &'a [Condition], kind: &str) -> &'a Condition {
    conditions.iter().find(|condition| condition.kind == kind).unwrap_or_else(|| panic!("no {kind}: {conditions:?}"))
}

#[test]
fn a_node_is_ready_if_all_that_the_runtime_tells_is_true() {
    for (runtime, status, reason) in [
        (runtime_of(&[("RuntimeReady", true), ("NetworkReady", true)]), ConditionStatus::True, "KeeletReady"),
        (runtime_of(&[("RuntimeReady", true), ("NetworkReady", false)]), ConditionStatus::False, "NetworkReadyReason"),
        (RuntimeHealth::Silent("no socket".to_owned()), ConditionStatus::False, "RuntimeNotAnswering"),
        (RuntimeHealth::NotAskedYet, ConditionStatus::Unknown, "RuntimeNotAskedYet"),
    ] {
        let said = conditions(&[], &Health { runtime, ..healthy() }, second(5));
        let ready = said.last().expect("some");
        assert_eq!((ready.kind.as_str(), ready.status, ready.reason.as_str()), (READY, status, reason));
    }
    let said = conditions(&[], &healthy(), second(5));
    let kinds: Vec<&str> = said.iter().map(|condition| condition.kind.as_str()).collect();
    assert_eq!(kinds, ["DiskPressure", "ProbePressure", "RuntimeReady", "NetworkReady", "Ready"]);
}

/// PROBE-50.
#[test]
fn a_node_that_cannot_keep_up_with_its_probes_says_so() {
    let pod = pod_of("metadata: {name: web, namespace: shop}\nspec: {containers: [{name: main, image: app}]}");
    let probe = OverdueProbe { container: "main".to_owned(), kind: ProbeKind::Liveness, since: at(0) };
    let said = |count: usize| {
        let overdue = vec![(Arc::clone(&pod), probe.clone()); count];
        find(&conditions(&[], &Health { overdue, ..healthy() }, second(5)), "ProbePressure").clone()
    };
    for (count, status, message) in [
        (0, ConditionStatus::False, "all probes are made in time"),
        (1, ConditionStatus::True, "late for too long: 1 probes: shop/web main liveness"),
    ] {
        assert_eq!((said(count).status, said(count).message.as_str()), (status, message));
    }
    let message = said(50).message;
    assert!(message.contains("50 probes") && message.ends_with(", ..."), "{message}");
}

/// NODE-8: what a cluster's node says too, and `Unknown` before the first look.
#[test]
fn a_full_disk_is_a_condition_of_the_node() {
    let said = |disk: &DiskPressure| {
        find(&conditions(&[], &Health { disk: disk.clone(), ..healthy() }, second(5)), "DiskPressure").clone()
    };
    let full =
        DiskPressure { holds: true, since: Some(at(2)), message: "nodefs.available is 3 %, less than 10 %".to_owned() };
    let fine = DiskPressure { holds: false, ..full.clone() };
    for (disk, status, reason) in [
        (&full, ConditionStatus::True, "KeeletHasDiskPressure"),
        (&fine, ConditionStatus::False, "KeeletHasNoDiskPressure"),
        (&DiskPressure::default(), ConditionStatus::Unknown, "KeeletHasNoDiskPressure"),
    ] {
        assert_eq!((said(disk).status, said(disk).reason.as_str()), (status, reason), "{disk:?}");
    }
    assert_eq!(said(&full).since, second(2), "when the disks were looked at, not when the node was asked");
}

/// NODE-9: a transition time changes with the status and with nothing else.
#[test]
fn a_condition_keeps_its_transition_time_while_its_status_stays() {
    let down = Health { runtime: runtime_of(&[("RuntimeReady", true), ("NetworkReady", false)]), ..healthy() };
    let silent = Health { runtime: RuntimeHealth::Silent("no socket".to_owned()), ..healthy() };
    let mut said = Vec::new();
    for (now, health, since) in [
        (10, &healthy(), 10),
        (20, &healthy(), 10),
        (30, &down, 30),
        // Another reason for the same status is no transition.
        (40, &silent, 30),
        (50, &healthy(), 50),
    ] {
        said = conditions(&said, health, second(now));
        let ready = find(&said, READY);
        assert_eq!((ready.since, ready.seen), (second(since), second(now)), "at {now}");
    }
    assert_eq!(find(&said, "ProbePressure").since, second(10));
    assert_eq!(find(&said, "NetworkReady").since, second(50), "it was not heard of in between");
}

/// NODE-9: what another agent said before this one is what the first look is compared with.
#[test]
fn what_was_said_before_this_agent_counts() {
    let before = Condition {
        kind: READY.to_owned(),
        status: ConditionStatus::True,
        reason: "KubeletReady".to_owned(),
        message: String::new(),
        since: second(3),
        seen: second(4),
    };
    let foreign = Condition { kind: "example.com/Gpu".to_owned(), ..before.clone() };
    let said = conditions(&[foreign, before], &healthy(), second(100));
    assert_eq!(find(&said, READY).since, second(3));
    assert!(said.iter().all(|condition| condition.kind != "example.com/Gpu"), "the conditions of others are theirs");
}
