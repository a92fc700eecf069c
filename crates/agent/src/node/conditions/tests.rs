//! Tables over looks at a node: what is said, and since when.

use std::sync::Arc;

use keelet_cri::v1::RuntimeCondition;
use keelet_lifecycle::{
    BootId, Moment,
    probe::{ProbeMemory, Verdict},
};
use keelet_pod::ProbeKind;

use super::*;
use crate::{
    bed::pod_of,
    board::OverdueProbe,
    node::{Condition, DiskPressure},
};

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

fn said_of(before: &[Condition], health: &Health, now: Wall) -> Vec<Condition> {
    let built_in = BUILT_IN_CONDITIONS.map(str::to_owned);
    conditions(before, Some(health), &BTreeMap::new(), &built_in, now)
}

fn find<'a>(conditions: &'a [Condition], kind: &str) -> &'a Condition {
    conditions.iter().find(|condition| condition.kind == kind).unwrap_or_else(|| panic!("no {kind}: {conditions:?}"))
}

/// GN-12
#[test]
fn a_node_is_ready_if_all_conditions_of_the_runtime_are_true() {
    for (runtime, status, reason) in [
        (runtime_of(&[("RuntimeReady", true), ("NetworkReady", true)]), ConditionStatus::True, "KeeletReady"),
        (runtime_of(&[("RuntimeReady", true), ("NetworkReady", false)]), ConditionStatus::False, "NetworkReadyReason"),
        (RuntimeHealth::Silent("no socket".to_owned()), ConditionStatus::False, "RuntimeNotAnswering"),
        (RuntimeHealth::NotAskedYet, ConditionStatus::Unknown, "RuntimeNotAskedYet"),
    ] {
        let said = said_of(&[], &Health { runtime, ..healthy() }, second(5));
        let ready = said.last().expect("some");
        assert_eq!((ready.kind.as_str(), ready.status, ready.reason.as_str()), (READY, status, reason));
    }
    let said = said_of(&[], &healthy(), second(5));
    let kinds: Vec<&str> = said.iter().map(|condition| condition.kind.as_str()).collect();
    assert_eq!(kinds, ["DiskPressure", "ProbePressure", "RuntimeReady", "NetworkReady", "Ready"]);
    let unnamed = conditions(&said, Some(&healthy()), &BTreeMap::new(), &["RuntimeReady".to_owned()], second(6));
    let kinds: Vec<&str> = unnamed.iter().map(|condition| condition.kind.as_str()).collect();
    assert_eq!(kinds, ["DiskPressure", "ProbePressure", "RuntimeReady", "Ready"], "only what a gate names");
}

/// PROBE-50.
#[test]
fn a_node_that_cannot_keep_up_with_its_probes_says_so() {
    let pod = pod_of("metadata: {name: web, namespace: shop}\nspec: {containers: [{name: main, image: app}]}");
    let probe = OverdueProbe { container: "main".to_owned(), kind: ProbeKind::Liveness, since: at(0) };
    let said = |count: usize| {
        let overdue = vec![(Arc::clone(&pod), probe.clone()); count];
        find(&said_of(&[], &Health { overdue, ..healthy() }, second(5)), "ProbePressure").clone()
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
        find(&said_of(&[], &Health { disk: disk.clone(), ..healthy() }, second(5)), "DiskPressure").clone()
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
        said = said_of(&said, health, second(now));
        let ready = find(&said, READY);
        assert_eq!((ready.since, ready.seen), (second(since), second(now)), "at {now}");
    }
    assert_eq!(find(&said, "ProbePressure").since, second(10));
    assert_eq!(find(&said, "NetworkReady").since, second(50), "it was Unknown in between");
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
    let said = said_of(&[foreign, before], &healthy(), second(100));
    assert_eq!(find(&said, READY).since, second(3));
    assert!(said.iter().all(|condition| condition.kind != "example.com/Gpu"), "the conditions of others are theirs");
}

/// GN-12: a runtime that does not answer leaves no True behind that a gate could go by.
#[test]
fn conditions_of_a_runtime_that_does_not_answer_are_unknown() {
    let silent = Health { runtime: RuntimeHealth::Silent("no socket".to_owned()), ..healthy() };
    let said = said_of(&said_of(&[], &healthy(), second(5)), &silent, second(9));
    for kind in ["RuntimeReady", "NetworkReady"] {
        let condition = find(&said, kind);
        assert_eq!((condition.status, condition.since), (ConditionStatus::Unknown, second(9)), "{kind}");
    }
}

/// CLU-26, GATE-16: what an agent has not looked at yet stays as the one before it said.
#[test]
fn what_was_not_looked_at_yet_stays_as_it_was() {
    let before = said_of(&[], &healthy(), second(5));
    let unseen = Health { disk: DiskPressure::default(), ..healthy() };
    let said = said_of(&before, &unseen, second(9));
    assert_eq!(find(&said, "DiskPressure"), find(&before, "DiskPressure"));
    let only_started = conditions(&before, None, &BTreeMap::new(), &[], second(9));
    assert_eq!(only_started, before);
}

/// GATE-11, GATE-13: the message of a probe's condition tells of the transition. Another answer of a component that fails anyway, or the same verdict
/// of the next agent, is nothing to write to the API server.
#[test]
fn the_message_of_a_probe_changes_with_its_status() {
    let probed = |passed: bool, output: &str| {
        let verdict = Verdict::Probed { passed, at: at(1), streak: 3, output: output.to_owned() };
        let probe = ComponentProbe {
            condition: "Net".to_owned(),
            target: "http://127.0.0.1:1/".to_owned(),
            failure_threshold: 3,
            memory: ProbeMemory { verdict, ..ProbeMemory::default() },
            ..ComponentProbe::default()
        };
        BTreeMap::from([("net".to_owned(), probe)])
    };
    let refused = conditions(&[], None, &probed(false, "connection refused"), &[], second(2));
    assert_eq!(refused[0].message, "probe net (http://127.0.0.1:1/) failed 3 times in a row: connection refused");
    let other = conditions(&refused, None, &probed(false, "503"), &[], second(3));
    assert_eq!((&other[0].message, other[0].since), (&refused[0].message, second(2)));
    let passed = conditions(&other, None, &probed(true, "ok"), &[], second(4));
    assert_eq!((passed[0].message.as_str(), passed[0].since), ("probe net (http://127.0.0.1:1/) passed", second(4)));
}
