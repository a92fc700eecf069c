//! The agent dies, or the node does, between any two calls to the disk.

use std::{collections::BTreeMap, sync::Arc};

use keelet_ledger::{Fate, Ledger, PodCommit};
use keelet_lifecycle::Evidence;
use serde_json::json;

use crate::{
    disk::{PowerCut, SimDisk},
    sample::{DURABLE, OTHER_BOOT, VOLATILE, at, evidence, open, pass, pod, settings},
};

/// The states in which a pod may be found: removed, or with evidence as committed at some time.
type States = BTreeMap<&'static str, Vec<Option<Evidence>>>;

/// A sequence of commits and removals of two pods. Before each step, `before` gets the states that the step leads to.
fn day(ledger: &mut Ledger<SimDisk>, mut before: impl FnMut(&[(&'static str, Option<Evidence>)])) {
    let mut a = evidence(0);
    let mut b = evidence(0);
    before(&[("a", Some(a.clone()))]);
    let _ = ledger.commit(&entry("a", &a), at(0));
    let _ = ledger.keep_pod(&pod("a"), &json!({"metadata": {"name": "web"}}), at(0));
    a = evidence(1);
    before(&[("a", Some(a.clone())), ("b", Some(b.clone()))]);
    let (pod_a, pod_b) = (pod("a"), pod("b"));
    let both = [
        PodCommit { pod: &pod_a, evidence: &Arc::new(a.clone()), results: &[], why: None },
        PodCommit { pod: &pod_b, evidence: &Arc::new(b.clone()), results: &[], why: None },
    ];
    let _ = ledger.commit_many(&both, at(10));
    pass(&mut a, 12_000);
    before(&[("a", Some(a.clone()))]);
    let _ = ledger.commit(&entry("a", &a), at(12_000));
    b.durable.containers.get_mut("db").unwrap().restart_count = 5;
    b.volatile.instances.remove("db");
    before(&[("b", Some(b.clone()))]);
    let _ = ledger.commit(&entry("b", &b), at(12_100));
    before(&[("a", None)]);
    let _ = ledger.remove("a", at(9));
    before(&[]);
}

fn entry(uid: &str, evidence: &Evidence) -> PodCommit<'static> {
    let evidence = Box::leak(Box::new(Arc::new(evidence.clone())));
    PodCommit { pod: Box::leak(Box::new(pod(uid))), evidence, results: &[], why: None }
}

/// Runs the sequence until the call of that number, and returns the states in which each pod may be found. `None` if
/// the sequence was over.
fn live_until(call: usize) -> Option<(SimDisk, States)> {
    let disk = SimDisk::default();
    let mut ledger = open(&disk).ledger;
    disk.forget_calls();
    disk.crash_at(call);
    let mut states: States = BTreeMap::from([("a", vec![None]), ("b", vec![None])]);
    let mut dead = false;
    day(&mut ledger, |next| {
        if !dead && disk.is_dead() {
            dead = true;
        }
        if !dead {
            // Everything before is done, so only its last state counts.
            for possible in states.values_mut() {
                possible.drain(..possible.len() - 1);
            }
            for (uid, evidence) in next {
                states.get_mut(uid).unwrap().push(evidence.clone());
            }
        }
    });
    disk.is_dead().then_some((disk, states))
}

/// KEEP-20, BACK-5, RALL-37: all evidence of a pod is the old or the new, both tiers together, and nothing is lost.
#[test]
fn an_agent_that_dies_at_any_call_leaves_the_old_or_the_new_state() {
    let mut crashes = 0;
    while let Some((disk, states)) = live_until(crashes) {
        let opened = open(&disk.after_crash());
        assert!(opened.losses.is_empty(), "call {crashes}: {:?}", opened.losses);
        for (uid, possible) in &states {
            let found = opened.pods.iter().find(|pod| pod.uid == *uid);
            let known = found.map(|pod| pod.evidence.clone());
            // Between the removals of its two directories a pod has its durable evidence only.
            let being_removed = possible.last() == Some(&None)
                && found.is_some_and(|pod| {
                    pod.volatile == Fate::Absent
                        && possible.iter().flatten().any(|old| old.durable == pod.evidence.durable)
                });
            // Its copy may exist already, or still, without any evidence.
            let copy_only = found.is_some_and(|pod| pod.durable == Fate::Absent && pod.volatile == Fate::Absent);
            let expected = possible.contains(&known) || being_removed || (copy_only && possible.contains(&None));
            assert!(expected, "call {crashes}: pod {uid} is neither old nor new: {known:#?}");
        }
        let leftovers: Vec<_> =
            opened.ledger.uids().filter(|uid| !states.contains_key(uid)).map(str::to_owned).collect();
        assert!(leftovers.is_empty(), "{leftovers:?}");
        crashes += 1;
    }
    assert!(crashes > 50, "only {crashes} calls in the sequence");
}

/// BACK-5, DEF-12: what was acknowledged survives the node, and nothing half-written does.
#[test]
fn a_node_that_dies_at_any_call_keeps_old_or_new_durable_evidence() {
    for cut in [PowerCut::LosesUnsynced, PowerCut::KeepsNames] {
        let mut crashes = 0;
        while let Some((disk, states)) = live_until(crashes) {
            let disk = disk.after_power_cut(cut, VOLATILE);
            let mut settings = settings();
            settings.boot_id = OTHER_BOOT;
            let opened = Ledger::open_on(disk, settings).unwrap();
            assert!(opened.losses.is_empty(), "{cut:?} at call {crashes}: {:?}", opened.losses);
            for (uid, possible) in &states {
                let found = opened.pods.iter().find(|pod| pod.uid == *uid && pod.durable != Fate::Absent);
                let found = found.map(|pod| &pod.evidence.durable);
                let expected = possible.iter().any(|state| state.as_ref().map(|state| &state.durable) == found);
                assert!(expected, "{cut:?} at call {crashes}: pod {uid} is neither old nor new: {found:#?}");
            }
            crashes += 1;
        }
    }
}

#[test]
fn after_a_crash_leftovers_are_removed_and_the_next_commit_succeeds() {
    let mut crashes = 0;
    while let Some((disk, _)) = live_until(crashes) {
        let disk = disk.after_crash();
        let mut ledger = open(&disk).ledger;
        let leftovers = disk.files().into_iter().filter(|path| path.to_string_lossy().contains("/."));
        assert_eq!(leftovers.collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new(), "call {crashes}");
        let committed = ledger.commit(&entry("a", &evidence(3)), at(9000)).unwrap();
        assert!(committed.durable.is_written() && committed.volatile.is_written(), "call {crashes}: {committed:?}");
        drop(ledger);
        let found = open(&disk);
        assert_eq!(found.pods.iter().find(|pod| pod.uid == "a").unwrap().evidence, evidence(3), "call {crashes}");
        crashes += 1;
    }
}

#[test]
fn both_syncs_happen_and_in_order_and_the_journal_needs_none() {
    let disk = SimDisk::default();
    let mut ledger = open(&disk).ledger;
    disk.forget_calls();
    let _ = ledger.commit(&entry("a", &evidence(0)), at(0));
    let steps: Vec<String> = disk
        .calls()
        .into_iter()
        .filter(|call| call.path.starts_with(DURABLE))
        .map(|call| format!("{:?} {}", call.op, call.path.strip_prefix(DURABLE).unwrap().display()))
        .collect();
    let mut steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    steps.dedup();
    assert_eq!(
        steps,
        [
            "MakeDir pods/a",
            "Create pods/a/.new-evidence.json",
            "Write pods/a/.new-evidence.json",
            "SyncFile pods/a/.new-evidence.json",
            "Rename pods/a/evidence.json",
            "SyncDir pods",
            "SyncDir pods/a",
            "Create pods/a/.new-journal.json",
            "Write pods/a/.new-journal.json",
            "Rename pods/a/journal.json",
        ]
    );
}
