//! Which containers a restart of all containers counts, and when (RALL-14..16), and what it does not touch.

use super::{
    restart_all::{ALL_FOUR, FOUR, RULE_42, actions, bring_up, counts, up},
    world::World,
};
use crate::{
    observed::{Instance, InstanceState},
    operation::{Operation, Step},
    restart::{RestartAllRule, RestartAllStage},
    status::ConditionType,
};

const OTHER: &str = "{name: other, image: 'app:1'}";

/// RALL-16, STAT-5: a container that vanishes in the moment of the trigger is counted once, not for both.
#[test]
fn a_container_that_vanishes_with_the_trigger_is_counted_once() {
    let mut world = up(FOUR);
    world.lose("other").exit("source", 42);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
    bring_up(&mut world);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
}

/// RALL-14, RALL-16: a container that was not yet seen running counts as one that has run.
#[test]
fn a_container_that_was_just_started_is_counted() {
    let mut world = World::with_spec(FOUR);
    world.hold(|operation| matches!(operation, Operation::Launch { container, .. } if container == "other"));
    bring_up(&mut world);
    assert_eq!(world.running(), ["side", "source"].into());
    let (id, _) = world.in_flight()[0];
    world.finish(id);
    world.hold(|_| false).exit("source", 42);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4], "from the moment in which all are removed");
    bring_up(&mut world);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
}

/// RALL-14, RALL-16, RALL-24: containers that exit before they are observed running are counted when they are removed.
#[test]
fn instances_too_short_to_be_seen_are_counted_when_they_are_removed() {
    let mut world = up(&format!(
        "  restartPolicy: Never\n  containers:\n  - {{name: source, image: 'app:1', restartPolicy: Never, {RULE_42}}}\n  - {OTHER}\n"
    ));
    world.exits_at_once.extend([("source".to_owned(), 42), ("other".to_owned(), 0)]);
    world.exit("source", 42);
    assert_eq!(world.launches("other"), [0, 0], "the third start waits");
    assert_eq!(world.waiting_reason("other"), Some("RestartingAllContainers"));
    assert_eq!(counts(&world, ["source", "other"]), [2, 2]);
}

/// RALL-15, RALL-31: with a request, too, a container that waits for its backoff is counted when it starts.
#[test]
fn a_request_counts_a_container_in_backoff_when_it_starts() {
    let mut world = up(&FOUR.replace(OTHER, "{name: other, image: 'app:1', restartPolicy: OnFailure}"));
    world.exit("other", 1).exit("other", 2);
    assert_eq!(world.waiting_reason("other"), Some("CrashLoopBackOff"));
    world.request_restart("one");
    assert_eq!(counts(&world, ALL_FOUR), [1, 1, 1, 1], "other was at 1 before");
    bring_up(&mut world);
    assert_eq!(counts(&world, ALL_FOUR), [1, 1, 1, 2]);
}

/// RALL-11, RALL-10: the plan that sees no container any more starts the first one itself.
#[test]
fn the_plan_that_says_removed_starts_the_pod() {
    let mut world = up(FOUR);
    world.exit_only("source", 42);
    for _ in 0..10 {
        let plan = world.plan_once();
        if plan.status.is_true(&ConditionType::AllContainersRestarting) {
            continue;
        }
        let [Step::Start { operation, .. }] = &plan.operations[..] else { panic!("{:?}", plan.operations) };
        assert!(matches!(operation, Operation::Launch { container, .. } if container == "setup"), "{operation:?}");
        return;
    }
    panic!("the containers are never removed");
}

/// RALL-4, RALL-13: containers that the spec does not name are not touched.
#[test]
fn strangers_are_left_alone() {
    let mut world = up(FOUR);
    let sandbox = world.observed.sandboxes[0].id.clone();
    let stranger = Instance {
        id: "test://stranger".to_owned(),
        name: "stranger".to_owned(),
        sandbox,
        attempt: 0,
        hash: None,
        image: String::new(),
        image_id: String::new(),
        created_at: world.now.wall,
        state: InstanceState::Running { started_at: world.now.wall },
    };
    world.observed.containers.push(stranger.clone());
    let mark = world.mark();
    world.exit("source", 42);
    assert_eq!(world.running(), ["setup", "stranger"].into(), "nor is it waited for");
    assert!(actions(&world, mark).iter().all(|action| !action.contains("stranger")));
    assert!(world.observed.containers.contains(&stranger));
}

/// RALL-5, RALL-31: running operations for the pod as a whole are not cancelled.
#[test]
fn a_sandbox_under_way_is_not_called_off() {
    let mut world = World::with_spec(FOUR);
    world.hold(|operation| matches!(operation, Operation::CreateSandbox { .. }));
    world.settle().request_restart("one");
    assert!(world.cancelled.is_empty());
    world.release();
    bring_up(&mut world);
    assert_eq!(world.running(), ["other", "side", "source"].into());
    assert_eq!((counts(&world, ALL_FOUR), world.observed.sandboxes.len()), ([0; 4], 1));
}

/// RALL-29, RALL-31: with the feature gate off a person may still ask, and what a person has a part in goes on.
#[test]
fn with_the_gate_off_a_person_may_still_ask() {
    let mut world = up(FOUR);
    world.rules.restart_all = RestartAllRule::Ignored;
    world.request_restart("one");
    bring_up(&mut world);
    assert_eq!(counts(&world, ALL_FOUR), [1; 4]);
    let mut world = up(FOUR);
    world.acknowledges = false;
    world.exit("source", 42).request_restart("one");
    assert_eq!(world.evidence.durable.restart_all.stage.triggers().len(), 2);
    world.rules.restart_all = RestartAllRule::Ignored;
    world.settle();
    assert!(matches!(world.evidence.durable.restart_all.stage, RestartAllStage::Terminating(_)));
}
