//! The feature gate of the rule for all goes off and on again (RALL-29): an exit that matched while it was off counts once it is
//! on, as long as its instance is the newest of its container.

use super::{
    restart_all::{ALL_FOUR, FOUR, Halt, bring_up, counts, last, up},
    world::World,
};
use crate::{
    Evidence,
    observed::{Before, Known},
    restart::{RestartAllRule, Trigger},
    status::{ContainerState, Phase},
};

use RestartAllRule::{Honoured, Ignored};

/// [`FOUR`] with this policy for `source`, which has the rule.
fn pod(policy: &str) -> String {
    FOUR.replace("    restartPolicy: Never\n", &format!("    restartPolicy: {policy}\n"))
}

/// Starts the agent anew with the feature gate on or off.
fn switch(world: &mut World, rule: RestartAllRule) {
    world.rules.restart_all = rule;
    world.restart_agent();
}

/// RALL-29: the manual test of the seed. The trigger exits with the feature gate off and stays down; with the feature gate on again all
/// containers restart, never the trigger alone, however often the feature gate went on and off meanwhile.
#[test]
fn an_exit_counts_once_the_gate_is_on_again() {
    for flips in 0..3 {
        let mut world = up(&pod("Never"));
        switch(&mut world, Ignored);
        let other = world.id("other");
        world.exit("source", 42).seconds(30);
        for _ in 0..flips {
            world.restart_agent().seconds(30);
        }
        assert!(matches!(world.container("source").state, ContainerState::Terminated(_)), "{flips} agent restarts");
        assert_eq!((world.running(), world.id("other")), (["other", "side"].into(), other), "{flips} agent restarts");
        switch(&mut world, Honoured);
        bring_up(&mut world);
        assert_eq!(counts(&world, ALL_FOUR), [1; 4], "{flips} agent restarts: every container restarts");
        assert_eq!(world.running(), ["other", "side", "source"].into(), "{flips} agent restarts");
        assert_eq!(last(&world, "source").exit_code, 42, "{flips} agent restarts");
        assert_eq!(last(&world, "other").reason, "RestartingAllContainers", "{flips} agent restarts");
        let triggers = world.evidence.durable.restart_all.stage.triggers();
        assert!(matches!(triggers, [Trigger::Exit { container, .. }] if container == "source"), "{triggers:?}");
        // It has counted: neither another flip nor another agent makes it count again.
        for rule in [Ignored, Honoured, Honoured] {
            switch(&mut world, rule);
            world.seconds(30);
            assert_eq!(counts(&world, ALL_FOUR), [1; 4], "{flips} agent restarts, then {rule:?}");
        }
        // And the next exit counts as ever.
        world.seconds(700).exit("source", 42);
        bring_up(&mut world);
        assert_eq!(counts(&world, ALL_FOUR), [2; 4]);
    }
}

/// RALL-29: where the policy started the container again with the feature gate off, a newer instance is there and the exit is
/// past; where it still waits for its backoff, the exit counts.
#[test]
fn an_exit_whose_container_has_begun_again_is_past() {
    for policy in ["Always", "OnFailure"] {
        let mut world = up(&pod(policy));
        switch(&mut world, Ignored);
        world.exit("source", 42);
        assert_eq!(counts(&world, ALL_FOUR), [0, 0, 1, 0], "{policy}: restarted alone");
        switch(&mut world, Honoured);
        world.seconds(60);
        assert_eq!(counts(&world, ALL_FOUR), [0, 0, 1, 0], "{policy}: what is past is past");
        switch(&mut world, Ignored);
        world.exit("source", 42);
        assert_eq!(world.waiting_reason("source"), Some("CrashLoopBackOff"), "{policy}");
        switch(&mut world, Honoured);
        bring_up(&mut world);
        assert_eq!(counts(&world, ALL_FOUR), [1, 1, 2, 1], "{policy}: its instance was still the newest");
        assert_eq!(world.running(), ["other", "side", "source"].into(), "{policy}");
    }
}

/// RALL-29: a restart that was given up because the feature gate went off is due once the feature gate is on again, unless its trigger
/// was started again meanwhile.
#[test]
fn a_restart_that_the_gate_gave_up_is_due_again() {
    for policy in ["Never", "OnFailure", "Always"] {
        for halt in Halt::ALL.into_iter().filter(|halt| halt.is_terminating()) {
            let mut world = up(&pod(policy));
            halt.reach(&mut world);
            world.rules.restart_all = Ignored;
            // An API server allows what is in use, also with the feature gate off (API-14): this one change is not checked.
            world.plan = None;
            world.restart_agent();
            halt.go_on(&mut world);
            bring_up(&mut world);
            world.seconds(5);
            let (label, before) = (format!("{policy} {halt:?}"), counts(&world, ALL_FOUR));
            let begun_again = policy != "Never";
            assert_eq!(world.running().contains("source"), begun_again, "{label}");
            switch(&mut world, Honoured);
            world.seconds(30);
            bring_up(&mut world);
            let expected = if begun_again { before } else { before.map(|count| count + 1) };
            assert_eq!(counts(&world, ALL_FOUR), expected, "{label}");
            assert_eq!(world.status().phase, Phase::Running, "{label}");
        }
    }
}

/// RALL-29, RALL-31: a restart that a person asked for with the feature gate off has started the trigger again, or is about to:
/// its earlier exit is spent, also if the feature gate goes on before it is back.
#[test]
fn a_requested_restart_spends_the_exit() {
    let mut world = up(&pod("Never"));
    switch(&mut world, Ignored);
    world.exit("source", 42);
    world.request_restart("one");
    assert_eq!(world.running(), ["setup", "side"].into_iter().filter(|name| *name == "setup").collect());
    world.observed.restart_request = None;
    switch(&mut world, Honoured);
    bring_up(&mut world);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4], "one restart, not two");
    assert_eq!(world.running(), ["other", "side", "source"].into());
}

/// RALL-29, KEEP-20: the exit counts as well where the ledger is lost meanwhile, and where only the API server's copy
/// knows of it.
#[test]
fn an_exit_counts_from_any_evidence() {
    for in_cluster in [false, true] {
        let mut world = up(&pod("Never"));
        switch(&mut world, Ignored);
        world.exit("source", 42).seconds(30);
        if in_cluster {
            let copy = world.status().clone();
            world.observed.agent.before = Before::Cluster(Known::Copy(Box::new(copy)));
        }
        world.evidence = Evidence::default();
        switch(&mut world, Honoured);
        bring_up(&mut world);
        assert_eq!(counts(&world, ["source", "other"]), [1; 2], "in a cluster: {in_cluster}");
        assert_eq!(world.running(), ["other", "side", "source"].into(), "in a cluster: {in_cluster}");
    }
}
