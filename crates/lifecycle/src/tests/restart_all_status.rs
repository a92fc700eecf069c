//! What a restart of all containers looks like from outside (RALL-8, RALL-14..21, CON-11, CON-12, CON-18).

use std::{cell::RefCell, rc::Rc, time::Duration};

use super::{
    restart_all::{ALL_FOUR, FOUR, Halt, RULE_42, bring_up, condition, counts, ended, last, restarting, up},
    world::{BEGINNING, World},
};
use crate::{
    Because, Subject, Wall,
    observed::InstanceState,
    operation::Operation,
    status::{ConditionType, ContainerState, Phase, PodStatus, Terminated},
};

const TRIGGER: &str = "container source exited with code 42 (restart rule 0)";

fn at(seconds: i64) -> Option<Wall> {
    Some(Wall::from_millis(BEGINNING + seconds * 1000))
}

fn waiting(world: &World, name: &str) -> (String, String) {
    match &world.container(name).state {
        ContainerState::Waiting(waiting) => (waiting.reason.clone(), waiting.message.clone()),
        other => panic!("{name} does not wait: {other:?}"),
    }
}

fn waits_for_restart() -> (String, String) {
    ("RestartingAllContainers".to_owned(), TRIGGER.to_owned())
}

/// RALL-8, RALL-14, RALL-16, RALL-17, RALL-20, RALL-21, DEF-6, CON-11, CON-12, CON-18, SCN-A17, SCN-A28: the timeline of
/// a restart, snapshot by snapshot.
#[test]
fn the_timeline_of_a_restart() {
    let mut world = up(FOUR);
    world.seconds(10);
    let (source, other) = (world.id("source"), world.id("other"));
    assert_eq!((world.status().phase, counts(&world, ALL_FOUR)), (Phase::Running, [0; 4]));
    assert_eq!(restarting(&world), (false, "", ""));
    // 1: the trigger has exited; everything else still runs.
    world.acknowledges = false;
    world.exit("source", 42);
    assert_eq!(restarting(&world), (true, "ContainerExited", TRIGGER));
    let trigger = Terminated {
        exit_code: 42,
        reason: "Error".to_owned(),
        message: String::new(),
        started_at: at(0),
        finished_at: at(10),
        container_id: Some(source.clone()),
    };
    assert_eq!(ended(&world, "source"), trigger);
    assert!(matches!(world.container("other").state, ContainerState::Running(_)));
    assert_eq!(ended(&world, "setup").exit_code, 0);
    assert_eq!((world.status().phase, counts(&world, ALL_FOUR)), (Phase::Pending, [0; 4]));
    // 2: the pass. Victims are dead and not yet removed.
    world.acknowledges = true;
    world.hold(|operation| matches!(operation, Operation::Remove { .. }));
    world.pass(Duration::from_millis(500));
    assert_eq!(ended(&world, "other").exit_code, 137);
    assert_eq!((world.status().phase, counts(&world, ALL_FOUR)), (Phase::Pending, [0; 4]));
    assert!(restarting(&world).0);
    // 3: all removed; nothing is launched yet.
    world.release().hold(|operation| matches!(operation, Operation::Launch { .. }));
    let removed = world.statuses.iter().rfind(|status| all_wait(status)).expect("a moment without containers");
    assert_eq!(removed.phase, Phase::Pending);
    assert_eq!(restarting(&world), (false, "ContainersRemoved", TRIGGER));
    assert_eq!((waiting(&world, "source"), waiting(&world, "other")), (waits_for_restart(), waits_for_restart()));
    assert_eq!(last(&world, "source"), trigger, "the trigger keeps its own code, times, reason and ID");
    let victim = Terminated {
        exit_code: 137,
        reason: "RestartingAllContainers".to_owned(),
        message: TRIGGER.to_owned(),
        started_at: at(0),
        finished_at: at(10),
        container_id: Some(other),
    };
    assert_eq!(last(&world, "other"), victim);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
    // 4: the init container runs again.
    assert_eq!(world.running(), ["setup"].into());
    assert_eq!((world.status().phase, counts(&world, ALL_FOUR)), (Phase::Pending, [1; 4]));
    assert_eq!(last(&world, "setup").exit_code, 0);
    // 5 and 6: it is done, the sidecar and the regular containers start.
    world.release().seconds(1).exit("setup", 0);
    assert_eq!((world.status().phase, counts(&world, ALL_FOUR)), (Phase::Running, [1; 4]));
    assert_eq!((last(&world, "source"), last(&world, "other")), (trigger.clone(), victim));
    assert_eq!(restarting(&world), (false, "ContainersRemoved", TRIGGER));
    world.seconds(3600);
    assert_eq!(last(&world, "source"), trigger, "until the next end");
    assert!(world.holds(ConditionType::Ready));
}

/// Whether every container waits.
fn all_wait(status: &PodStatus) -> bool {
    status.all_containers().all(|status| matches!(status.state, ContainerState::Waiting(_)))
}

/// RALL-21, SCN-A28: Initialized, PodScheduled and PodReadyToStartContainers stay True; Ready goes with the trigger.
#[test]
fn the_other_conditions_during_a_restart() {
    for halt in Halt::ALL {
        let mut world = up(FOUR);
        world.seconds(10);
        let before = world.status().clone();
        halt.reach(&mut world);
        use ConditionType::{ContainersReady, Initialized, PodReadyToStartContainers, PodScheduled, Ready};
        for kept in [Initialized, PodReadyToStartContainers, PodScheduled] {
            assert_eq!(world.condition(kept.clone()), before.condition(&kept).unwrap(), "{halt:?}");
        }
        for withdrawn in [ContainersReady, Ready] {
            assert!(!world.holds(withdrawn.clone()), "{halt:?}");
            assert_eq!(world.condition(withdrawn).last_transition_time, at(10), "{halt:?}");
        }
        assert_eq!(world.status().pod_ip, before.pod_ip);
        halt.go_on(&mut world);
        bring_up(&mut world);
        assert!(world.holds(Ready), "{halt:?}");
        assert_eq!(world.condition(Initialized), before.condition(&Initialized).unwrap(), "{halt:?}");
    }
}

/// SCN-A14, STAT-30, RALL-8: the condition is there with a rule or a restart only, and a final phase has the last word.
#[test]
fn the_condition_says_what_is_going_on() {
    let mut world = World::with_spec(FOUR);
    world.settle();
    assert_eq!(restarting(&world), (false, "", ""), "pending");
    assert_eq!(condition(&world).unwrap().last_transition_time, at(0));
    for (exit_code, reason, phase) in [(0, "PodCompleted", Phase::Succeeded), (1, "PodFailed", Phase::Failed)] {
        let mut world = up(FOUR);
        world.exit("other", 0).exit("source", exit_code);
        assert_eq!(world.status().phase, phase);
        assert_eq!(restarting(&world), (false, reason, ""));
    }
    let mut world = up(FOUR);
    world.seconds(7).exit("source", 42);
    assert_eq!(condition(&world).unwrap().last_transition_time, at(7));
    let generation = world.status().conditions.iter().map(|condition| condition.observed_generation);
    assert!(generation.into_iter().all(|generation| generation == world.pod.generation));
    bring_up(&mut world);
    world.exit("source", 7).exit("other", 0);
    assert_eq!(restarting(&world), (false, "PodFailed", ""), "also after a restart");
    let mut world = up("  containers: [{name: a, image: 'app:1'}]\n");
    world.seconds(1);
    assert_eq!(condition(&world), None, "no rule, no condition");
}

/// CON-12, STAT-30: the pod's generation is in this condition too.
#[test]
fn the_condition_carries_the_generation() {
    let text = super::world::manifest(FOUR).replace("uid: uid-1", "uid: uid-1, generation: 3");
    let mut world = World::new(&text);
    bring_up(&mut world);
    world.exit("source", 42);
    assert_eq!(condition(&world).unwrap().observed_generation, Some(3));
}

/// CON-11, RALL-20, SCN-A18 (superseded: upstream's phases), SCN-A28: whatever the trigger, the phase is Pending from then on
/// until the last regular container has started again, and never final.
#[test]
fn the_phase_is_pending_throughout() {
    let hook = "lifecycle: {postStart: {exec: {command: [hello]}}}";
    let spec = FOUR
        .replace("{name: other, image: 'app:1'}", "{name: other, image: 'app:1'}\n  - {name: third, image: 'app:1'}")
        .replace("    image: app:1\n", &format!("    image: app:1\n    {hook}\n"));
    for trigger in ["source", "side"] {
        let spec = if trigger == "side" {
            spec.replace("restartPolicy: Always}", &format!("restartPolicy: Always, {RULE_42}}}"))
        } else {
            spec.clone()
        };
        let mut world = up(&spec);
        assert_eq!(world.status().phase, Phase::Running);
        world.hold(|operation| matches!(operation, Operation::PostStart { .. }));
        let phases = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&phases);
        world.inspector = Some(Box::new(move |_, plan| seen.borrow_mut().push(plan.status.phase)));
        world.exit(trigger, 42);
        bring_up(&mut world);
        assert_eq!(world.running(), ["side", "source"].into(), "the hook of source holds up the others");
        assert!(phases.borrow().iter().all(|phase| *phase == Phase::Pending), "{trigger}: {phases:?}");
        world.inspector = None;
        world.release();
        assert_eq!(world.status().phase, Phase::Running, "{trigger}");
        assert_eq!(world.running(), ["other", "side", "source", "third"].into());
    }
}

/// CON-11: the phase and the condition name what they rest on.
#[test]
fn the_phase_says_why() {
    let mut world = up(FOUR);
    world.acknowledges = false;
    world.seconds(4).exit("source", 42);
    let why = world.plan.clone().unwrap().why;
    for subject in [Subject::Phase, Subject::Condition(ConditionType::AllContainersRestarting)] {
        let because = &why.iter().find(|why| why.subject == subject).unwrap().because;
        let Because::RestartAll { trigger, since } = because else { panic!("{because:?}") };
        assert_eq!((trigger.as_str(), Some(since.wall)), (TRIGGER, at(4)));
    }
    let because = &why.iter().find(|why| why.subject == Subject::State("source".to_owned())).unwrap().because;
    assert!(matches!(because, Because::Exited { exit_code: 42, rule: Some(0), .. }), "{because:?}");
}

/// RALL-15, DEF-18: a container that waits for its backoff at the trigger is counted when it starts, once, and does not
/// show its former reason meanwhile.
#[test]
fn a_container_in_backoff_is_counted_once() {
    let spec = FOUR.replace("{name: other, image: 'app:1'}", "{name: other, image: 'app:1', restartPolicy: OnFailure}");
    let mut world = up(&spec);
    world.exit("other", 1);
    world.exit("other", 2);
    assert_eq!((world.waiting_reason("other"), counts(&world, ["other"])), (Some("CrashLoopBackOff"), [1]));
    world.acknowledges = false;
    world.exit("source", 42);
    assert_eq!(counts(&world, ["other"]), [1]);
    world.acknowledges = true;
    world.pass(Duration::from_millis(500));
    assert_eq!(world.running(), ["setup"].into());
    assert_eq!(waiting(&world, "other"), waits_for_restart());
    let history = last(&world, "other");
    assert_eq!((counts(&world, ["other"]), history.exit_code, history.reason.as_str()), ([1], 2, "Error"));
    bring_up(&mut world);
    assert_eq!(counts(&world, ["setup", "side", "source", "other"]), [1, 1, 1, 2]);
    assert_eq!(world.running(), ["other", "side", "source"].into(), "it does not wait for its own backoff");
}

/// RALL-15: a container that never ran is not counted, and has no history.
#[test]
fn a_container_that_never_ran_is_not_counted() {
    let spec = FOUR.replace(
        "{name: setup, image: 'tool:1'}",
        &format!("{{name: setup, image: 'tool:1', restartPolicy: Never, {RULE_42}}}"),
    );
    let mut world = World::with_spec(&spec);
    world.settle().exit("setup", 42);
    assert_eq!(counts(&world, ALL_FOUR), [1, 0, 0, 0]);
    assert_eq!(waiting(&world, "side").0, "RestartingAllContainers");
    assert!(world.container("side").last_state.is_none());
    bring_up(&mut world);
    assert_eq!(counts(&world, ALL_FOUR), [1, 0, 0, 0]);
    assert_eq!(world.status().phase, Phase::Running);
}

const WATCHED: &str = "
  restartPolicy: Never
  initContainers:
  - {name: setup-envs, image: 'setup:1'}
  - name: watcher-sidecar
    image: watcher:1
    restartPolicy: Always
    restartPolicyRules: [{action: RestartAllContainers, onExit: {exitCodes: {operator: In, values: [88]}}}]
  containers:
  - {name: main-container, image: 'training-app:1'}
";

/// DEF-16, RALL-19, CON-11, CON-13, FIX-1: the example of KEP-5532 survives its main container being dead but not removed
/// while a status is computed, in every way that can happen.
#[test]
fn a_dead_main_container_does_not_fail_the_pod_that_restarts() {
    let no_end = |world: &World| {
        assert!(world.statuses.iter().all(|status| !status.phase.is_terminal()), "no final phase, ever");
    };
    let names = ["setup-envs", "watcher-sidecar", "main-container"];
    for way in ["crash between kill and removal", "main dies with the sidecar", "main dies during the kills"] {
        let mut world = up(WATCHED);
        match way {
            "main dies with the sidecar" => drop(world.exit_only("main-container", 1).exit("watcher-sidecar", 88)),
            "crash between kill and removal" => {
                world.hold(|operation| matches!(operation, Operation::Remove { .. }));
                world.exit("watcher-sidecar", 88).restart_agent();
            }
            _ => {
                world.hold(|operation| matches!(operation, Operation::Stop { .. }));
                world.exit("watcher-sidecar", 88).exit("main-container", 1);
                world.restart_agent();
            }
        }
        world.hold(|_| false).release();
        bring_up(&mut world);
        assert_eq!(world.running(), ["main-container", "watcher-sidecar"].into(), "{way}");
        assert_eq!(counts(&world, names), [1; 3], "{way}");
        assert_eq!(last(&world, "watcher-sidecar").exit_code, 88, "{way}");
        no_end(&world);
    }
}

/// DEF-17, RALL-16: no restart count rises twice, nor falls, whatever is gone and whatever is still there.
#[test]
fn no_count_rises_twice() {
    for gone in [vec!["setup"], vec!["setup", "side"], vec!["other"], vec!["setup", "source"], ALL_FOUR.to_vec()] {
        let mut world = up(FOUR);
        world.inspector = Some(Box::new(|world, plan| {
            for status in plan.status.all_containers() {
                let before = world.plan.as_ref().and_then(|plan| plan.status.container(&status.name));
                let least = before.map_or(0, |before| before.restart_count);
                assert!((least..=1).contains(&status.restart_count), "{}: {}", status.name, status.restart_count);
            }
        }));
        world.hold(|operation| matches!(operation, Operation::Stop { .. } | Operation::Remove { .. }));
        world.exit("source", 42);
        // Another process removes some of them first, and the agent observes in between.
        for name in &gone {
            world.lose(name).settle();
        }
        world.restart_agent();
        world.hold(|_| false).release();
        bring_up(&mut world);
        assert_eq!(counts(&world, ALL_FOUR), [1; 4], "{gone:?}");
    }
}

/// RALL-16, STAT-8: the count survives a runtime that reports a lower one for the new instance.
#[test]
fn the_count_does_not_fall_with_the_runtimes() {
    let mut world = up(FOUR);
    world.exit("source", 42);
    bring_up(&mut world);
    for instance in &mut world.observed.containers {
        instance.attempt = 0;
    }
    world.settle();
    assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
}

/// RALL-13, RALL-1, DEF-19, SCN-A22, SCN-A23: sandbox, address, volumes and ephemeral containers are left alone, and the
/// status of an ephemeral container is not rewritten, not even if its instance vanishes.
#[test]
fn what_a_restart_leaves_alone() {
    let spec =
        format!("{FOUR}  ephemeralContainers: [{{name: debug, image: 'tool:1'}}, {{name: done, image: 'tool:1'}}]\n");
    for vanishes in [false, true] {
        let mut world = up(&spec);
        world.exit("done", 3);
        let (sandbox, ip, debug) = (world.observed.sandboxes.clone(), world.status().pod_ip.clone(), world.id("debug"));
        let mark = world.mark();
        world.acknowledges = false;
        world.exit("source", 42);
        let done = ended(&world, "done");
        if vanishes {
            world.lose("done");
        }
        world.acknowledges = true;
        world.pass(Duration::from_millis(500));
        bring_up(&mut world);
        assert_eq!((&world.observed.sandboxes, &world.status().pod_ip), (&sandbox, &ip));
        assert_eq!(world.id("debug"), debug);
        assert_eq!(ended(&world, "done"), done, "vanishes: {vanishes}");
        assert_eq!(counts(&world, ["debug", "done"]), [0, 0]);
        assert!(world.since(mark).iter().all(|operation| !matches!(operation.container(), Some("debug" | "done"))));
        assert!(world.since(mark).iter().all(|operation| operation.container().is_some()), "no sandbox, no volumes");
        assert!(matches!(&world.observed.newest("debug").unwrap().state, InstanceState::Running { .. }));
    }
}
