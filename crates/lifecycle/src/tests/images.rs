//! Images: when they are asked for, and how long after a failure (BACK-9, BACK-10, BACK-12).

use std::time::Duration;

use super::{
    restart_all::{FOUR, RULE_42, bring_up, up},
    world::{BEGINNING, World},
};
use crate::{
    operation::{OpResult, Operation},
    status::{ContainerState, Phase},
};

/// When the image of a container was asked for, in milliseconds since the beginning.
fn pulls(world: &World, name: &str) -> Vec<i64> {
    let of_it =
        |operation: &Operation| matches!(operation, Operation::EnsureImage { container, .. } if container == name);
    let all = world.started.iter().filter(|(_, operation)| of_it(operation));
    all.map(|(at, _)| at.wall.as_millis() - BEGINNING).collect()
}

fn waiting(world: &World, name: &str) -> (String, String) {
    match &world.container(name).state {
        ContainerState::Waiting(waiting) => (waiting.reason.clone(), waiting.message.clone()),
        other => panic!("{name} does not wait: {other:?}"),
    }
}

const ONE: &str = "  containers: [{name: c, image: \"app:1\"}]\n";

/// BACK-9, SCN-B3: pulls that fail are repeated after 10, 20, 40, 80, 160 and then every 300 s.
#[test]
fn failing_pulls_are_repeated_with_growing_delays() {
    let mut world = World::with_spec(ONE);
    world.fail("EnsureImage", "ErrImagePull").seconds(1210);
    let seconds: Vec<i64> = pulls(&world, "c").into_iter().map(|at| at / 1000).collect();
    assert_eq!(seconds, [0, 10, 30, 70, 150, 310, 610, 910, 1210]);
    assert!(world.launches("c").is_empty());
    assert_eq!(world.status().phase, Phase::Pending);
    assert_eq!(world.container("c").restart_count, 0);
    world.failing.clear();
    world.seconds(299);
    assert!(world.running().is_empty());
    world.seconds(1);
    assert_eq!(world.running(), ["c"].into());
}

/// BACK-9, STAT-7, EVT-4: a failure is first called `ErrImagePull`, a second later `ImagePullBackOff` with the error
/// appended, also during the next pull.
#[test]
fn a_failed_pull_is_called_a_back_off_after_a_second() {
    let mut world = World::with_spec(ONE);
    world.fail("EnsureImage", "ErrImagePull").settle();
    let error = "EnsureImage does not work".to_owned();
    assert_eq!(waiting(&world, "c"), ("ErrImagePull".to_owned(), error.clone()));
    let failed = |world: &World| world.events.iter().filter(|(reason, _)| reason == "Failed").count();
    let backed_off = |world: &World| world.events.iter().filter(|(reason, _)| reason == "BackOff").count();
    assert!(world.saw_event("Failed", "ErrImagePull"));
    assert_eq!((failed(&world), backed_off(&world)), (1, 0));
    world.pass(Duration::from_millis(999));
    assert_eq!(waiting(&world, "c").0, "ErrImagePull");
    world.pass(Duration::from_millis(1));
    let (reason, message) = waiting(&world, "c");
    assert_eq!(reason, "ImagePullBackOff");
    assert!(message.contains("\"app:1\"") && message.ends_with(&error), "{message}");
    assert_eq!((failed(&world), backed_off(&world)), (1, 1));
    world.seconds(5).restart_agent();
    assert_eq!(waiting(&world, "c").0, "ImagePullBackOff", "an agent restart changes nothing");
    world.hold(|operation| matches!(operation, Operation::EnsureImage { .. })).seconds(5);
    assert_eq!(pulls(&world, "c"), [0, 10_000]);
    assert_eq!(waiting(&world, "c").0, "ImagePullBackOff");
    assert_eq!((failed(&world), backed_off(&world)), (1, 1), "said once per failure");
    world.release();
    assert_eq!(waiting(&world, "c").0, "ErrImagePull");
    world.seconds(1);
    assert_eq!(waiting(&world, "c").0, "ImagePullBackOff");
    assert_eq!((failed(&world), backed_off(&world)), (2, 2));
    world.failing.clear();
    world.hold(|operation| matches!(operation, Operation::Launch { .. })).seconds(19);
    assert_eq!(waiting(&world, "c"), ("ContainerCreating".to_owned(), String::new()), "the image is here");
    world.release();
    assert_eq!(world.running(), ["c"].into());
    assert!(world.container("c").last_state.is_none());
}

/// BACK-9: a back-off starts anew when the last failure is more than 600 s ago.
#[test]
fn the_pull_back_off_is_forgotten_after_ten_minutes() {
    for (took, next) in [(590_000, 20_000), (590_001, 10_000)] {
        let mut world = World::with_spec(ONE);
        world.fail("EnsureImage", "ErrImagePull").settle();
        world.hold(|operation| matches!(operation, Operation::EnsureImage { .. })).seconds(10);
        world.pass(Duration::from_millis(took)).release();
        let failed_again = 10_000 + i64::try_from(took).unwrap();
        world.seconds(30);
        assert_eq!(pulls(&world, "c")[..3], [0, 10_000, failed_again + next]);
    }
}

/// BACK-10, PROC-5, VEC-65: the image is asked for before every start under Always, which is the default without a tag
/// or with `latest`, and once otherwise.
#[test]
fn the_pull_policy_decides_how_often_an_image_is_asked_for() {
    for (image, policy, expected) in [
        ("app", "", 3),
        ("app:latest", "", 3),
        ("app:1", "", 1),
        ("app:1", ", imagePullPolicy: Always", 3),
        ("app", ", imagePullPolicy: IfNotPresent", 1),
        ("app", ", imagePullPolicy: Never", 1),
    ] {
        let mut world = World::with_spec(&format!("  containers: [{{name: c, image: \"{image}\"{policy}}}]\n"));
        world.settle().exit("c", 1).exit("c", 1).seconds(10);
        assert_eq!(world.launches("c"), [0, 0, 10]);
        assert_eq!(pulls(&world, "c").len(), expected, "{image}{policy}");
    }
}

/// BACK-10, EVT-4: an image that must not be pulled and is missing has its own reason, for as long as it takes, and so
/// has one that the runtime cannot look up. There is no backoff of a pull: an image imported by hand is used within a
/// second.
#[test]
fn an_image_that_is_only_looked_up_is_used_within_a_second() {
    for reason in ["ErrImageNeverPull", "ImageInspectError"] {
        let mut world = World::with_spec("  containers: [{name: c, image: 'app:1', imagePullPolicy: Never}]\n");
        world.fail("EnsureImage", reason).settle();
        for _ in 0..5 {
            assert_eq!(waiting(&world, "c").0, reason);
            world.seconds(60);
        }
        assert!(!world.saw_event("BackOff", ""), "{reason}");
        let failed = world.events.iter().filter(|(event, _)| event == "Failed").count();
        assert_eq!(failed, 1, "{reason} is reported once, not with every lookup");
        let looks = pulls(&world, "c");
        let longest = looks.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert_eq!(longest, Some(1000), "{reason}: time between two looks");
        world.restart_agent().failing.clear();
        world.seconds(1);
        assert_eq!(world.running(), ["c"].into(), "{reason}");
    }
}

/// BACK-9, BACK-10: looks between two pulls neither lengthen nor shorten the back-off of the pulls.
#[test]
fn a_failed_look_does_not_touch_the_back_off_of_pulls() {
    let mut world = World::with_spec(ONE);
    world.fail("EnsureImage", "ErrImagePull").seconds(29);
    world.failing.clear();
    world.fail("EnsureImage", "ImageInspectError").seconds(3);
    assert_eq!(pulls(&world, "c"), [0, 10_000, 30_000, 31_000, 32_000]);
    world.failing.clear();
    world.fail("EnsureImage", "ErrImagePull").seconds(60);
    assert_eq!(pulls(&world, "c")[5..], [33_000, 73_000], "40 s after the third failure");
}

/// BACK-9: a registry that cannot be reached is a failed pull as well.
#[test]
fn a_registry_that_does_not_answer_is_backed_off_from() {
    let mut world = World::with_spec(ONE);
    world.fail("EnsureImage", "RegistryUnavailable").settle();
    assert_eq!(waiting(&world, "c").0, "RegistryUnavailable");
    world.seconds(1);
    assert_eq!(waiting(&world, "c").0, "ImagePullBackOff");
    assert!(world.saw_event("BackOff", "Back-off pulling image"));
}

/// DEF-18, RALL-15: once the backoff of the pull is over, a container whose turn has not come waits with all others.
#[test]
fn a_container_that_starts_later_does_not_wait_for_its_image() {
    let mut world =
        up(&FOUR.replace("{name: other, image: 'app:1'}", "{name: other, image: 'rare:1', imagePullPolicy: Always}"));
    world.fail("image: \"rare:1\"", "ErrImagePull");
    world.exit("source", 42);
    bring_up(&mut world);
    assert_eq!(waiting(&world, "other").0, "ErrImagePull");
    let before = pulls(&world, "other").len();
    world.seconds(2).request_restart("one");
    assert_eq!(waiting(&world, "other").0, "ImagePullBackOff");
    world.seconds(8);
    assert_eq!(world.running(), ["setup"].into(), "the others have to wait for it");
    assert_eq!(waiting(&world, "other").0, "RestartingAllContainers");
    assert_eq!(pulls(&world, "other").len(), before);
    world.failing.clear();
    bring_up(&mut world);
    assert_eq!(world.running(), ["other", "side", "source"].into());
}

/// STAT-7, RALL-14: a restart of all containers does not hide that an image cannot be pulled: the container continues to wait
/// for its image, and says so.
#[test]
fn a_restart_of_all_does_not_hide_a_failing_pull() {
    for agent_restarts in [false, true] {
        let mut world = World::with_spec(&format!(
            "
  restartPolicy: Never
  containers:
  - {{name: source, image: 'app:1', restartPolicy: Never, {RULE_42}}}
  - {{name: c, image: 'missing:1'}}
"
        ));
        world.fail("image: \"missing:1\"", "ErrImagePull").seconds(75);
        assert_eq!(waiting(&world, "c").0, "ImagePullBackOff");
        let before = pulls(&world, "c");
        world.exit("source", 42);
        if agent_restarts {
            world.restart_agent();
        }
        assert_eq!(waiting(&world, "c").0, "ImagePullBackOff", "agent restarts: {agent_restarts}");
        world.seconds(5);
        assert_eq!(world.running(), ["source"].into());
        assert_eq!((waiting(&world, "c").0.as_str(), pulls(&world, "c")), ("ImagePullBackOff", before));
        world.failing.clear();
        world.seconds(80);
        assert_eq!(world.running(), ["c", "source"].into());
    }
}

/// BACK-12: crash back-off and pull back-off do not add up, and neither lengthens the other.
#[test]
fn crashes_and_failing_pulls_back_off_separately() {
    let mut world = World::with_spec("  containers: [{name: c, image: app}]\n");
    world.fail("EnsureImage", "ErrImagePull").seconds(9);
    world.failing.clear();
    world.seconds(1);
    assert_eq!(world.launches("c"), [10]);
    world.exit("c", 1);
    assert_eq!(world.launches("c"), [10, 10], "the failed pull is not a crash");
    world.exit("c", 1).fail("EnsureImage", "ErrImagePull").seconds(10);
    assert_eq!(pulls(&world, "c").last(), Some(&20_000), "asked for when the crash back-off is over");
    assert_eq!(waiting(&world, "c").0, "ErrImagePull");
    world.failing.clear();
    world.seconds(10);
    assert_eq!(world.launches("c"), [10, 10, 30], "ten seconds after that, as after a first failure");
    world.exit("c", 1).seconds(19);
    assert_eq!(world.launches("c").len(), 3);
    world.seconds(1);
    assert_eq!(world.launches("c"), [10, 10, 30, 50], "the second crash delay is 20 s");
}

/// BACK-9: another image does not wait for the back-off of the one before.
#[test]
fn another_image_is_pulled_at_once() {
    let mut world = World::with_spec(ONE);
    world.fail("app:1", "ErrImagePull").seconds(3);
    world.pod.containers[0].image = "app:2".to_owned();
    world.settle();
    assert_eq!(pulls(&world, "c"), [0, 3000]);
    assert_eq!(world.running(), ["c"].into());
}

/// STAT-7, BACK-10: a launch that fails is tried again after 1, 2, 4, 8 and then every 10 s, with the image made sure
/// of again, and shows its reason until it has worked.
#[test]
fn a_failed_launch_is_tried_again_with_the_image_made_sure_of() {
    let mut world = World::with_spec(ONE);
    world.fail("Launch", "RunContainerError").seconds(1);
    let wake_at = world.plan.as_ref().and_then(|plan| plan.wake_at).unwrap();
    assert_eq!(wake_at.wall.as_millis() - BEGINNING, 3000, "and there is nothing to be said before");
    world.seconds(29);
    assert_eq!(world.launches("c"), [0, 1, 3, 7, 15, 25]);
    assert_eq!(pulls(&world, "c").len(), 7, "before each launch, and once more for the next");
    assert_eq!(waiting(&world, "c"), ("RunContainerError".to_owned(), "Launch does not work".to_owned()));
    assert!(world.saw_event("Failed", "RunContainerError"));
    world.failing.clear();
    world.seconds(5);
    assert_eq!(world.running(), ["c"].into());
    assert_eq!(world.container("c").restart_count, 0);
}

/// BACK-9, PROC-5: containers wait for their own images only.
#[test]
fn one_bad_image_does_not_hold_up_the_others() {
    let mut world = World::with_spec("  containers: [{name: bad, image: \"no:1\"}, {name: good, image: \"app:1\"}]\n");
    world.fail("no:1", "ErrImagePull").settle();
    assert_eq!(world.running(), ["good"].into());
    assert_eq!(waiting(&world, "bad").0, "ErrImagePull");
    assert_eq!(world.status().phase, Phase::Pending);
}

/// BACK-9: a pull without a result is not a failure: it is started again at once.
#[test]
fn a_pull_that_was_called_off_is_no_failure() {
    let mut world = World::with_spec(ONE);
    world.hold(|operation| matches!(operation, Operation::EnsureImage { .. })).settle().seconds(4);
    let (id, _) = world.in_flight().remove(0);
    world.conclude(id, OpResult::Cancelled);
    world.settle();
    assert_eq!(pulls(&world, "c"), [0, 4000]);
    assert_eq!(waiting(&world, "c").0, "ContainerCreating");
    world.seconds(1).restart_agent();
    assert_eq!(pulls(&world, "c"), [0, 4000, 5000], "the one in flight died with the agent");
}
