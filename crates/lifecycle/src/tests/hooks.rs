//! Post-start hooks, and the events of a container (SIDE-13, PROC-5, EVT-*).

use std::{cell::RefCell, rc::Rc};

use keelet_pod::ProbeKind;

use super::world::World;
use crate::{
    Event, Severity, Stage,
    operation::{KillReason, Operation, Outcome},
    status::Phase,
};

const HOOKED: &str = "
  containers:
  - {name: a, image: \"x:1\", lifecycle: {postStart: {exec: {command: [hi]}}}}
  - {name: b, image: \"x:1\"}
";

fn hooks(world: &World) -> usize {
    world.started.iter().filter(|(_, operation)| matches!(operation, Operation::PostStart { .. })).count()
}

/// SIDE-13, SCN-S17, PROC-5: the container after one with a post-start hook is not started before the hook is done,
/// from the first pull on.
#[test]
fn a_post_start_hook_holds_up_the_next_container() {
    for held in ["EnsureImage { container: \"a\"", "Launch { container: \"a\"", "PostStart"] {
        let mut world = World::with_spec(HOOKED);
        world.hold(move |operation| format!("{operation:?}").contains(held)).seconds(30);
        assert_eq!(world.launches("b").len(), 0, "held: {held}");
        world.release();
        assert_eq!(world.running(), ["a", "b"].into());
        assert_eq!((world.launches("b"), hooks(&world)), (vec![30], 1), "held: {held}");
        world.seconds(60);
        assert_eq!(hooks(&world), 1, "it runs once for an instance");
    }
}

/// SIDE-13: a container that waits for its image, or is being stopped, does not hold up the next one; nor does the hook of a
/// later container hold up an earlier one.
#[test]
fn a_container_that_waits_does_not_hold_up_the_next() {
    let mut world = World::with_spec(HOOKED);
    world.fail("EnsureImage { container: \"a\"", "ErrImagePull").settle();
    assert_eq!(world.running(), ["b"].into());
    let mut world = World::with_spec(
        "
  containers:
  - {name: a, image: \"x:1\"}
  - {name: b, image: \"x:1\", lifecycle: {postStart: {exec: {command: [hi]}}}}
",
    );
    world.hold(|operation| matches!(operation, Operation::PostStart { .. })).settle();
    world.exit("a", 1);
    assert_eq!(world.running(), ["a", "b"].into());
    let mut world = World::with_spec(HOOKED);
    world.hold(|operation| matches!(operation, Operation::PostStart { .. } | Operation::Stop { .. })).settle();
    assert_eq!(world.running(), ["a"].into());
    world.pod.containers[0].hash += 1;
    world.settle();
    assert_eq!(world.running(), ["a", "b"].into(), "one that is being stopped has had its turn");
}

/// SIDE-13, PROC-5, EVT-5, STAT-7: a hook that fails kills its container; event and status keep to themselves what it
/// said.
#[test]
fn a_failing_post_start_hook_kills_the_container() {
    let mut world = World::with_spec(HOOKED);
    world.hold(|operation| matches!(operation, Operation::Launch { attempt: 1, .. }));
    world.fail("PostStart {", "exit status 3").settle();
    let stop = world.started.iter().find_map(|(_, operation)| match operation {
        Operation::Stop { container, timeout, reason, .. } => Some((container.as_str(), timeout.as_secs(), *reason)),
        _ => None,
    });
    assert_eq!(stop, Some(("a", 30, KillReason::PostStartFailed)));
    assert!(world.saw_event("FailedPostStartHook", "PostStartHook failed"));
    assert!(world.saw_event("Killing", "Container a failed its post-start hook, will be restarted"));
    assert!(world.events.iter().all(|(_, message)| !message.contains("does not work")), "{:?}", world.events);
    assert_eq!(world.waiting_reason("a"), Some("PostStartHookError"));
    assert!(!format!("{:?}", world.container("a").state).contains("does not work"));
    world.failing.clear();
    world.release();
    assert_eq!(world.running(), ["a", "b"].into());
    assert_eq!((world.container("a").restart_count, hooks(&world)), (1, 2));
    assert_eq!(world.waiting_reason("a"), None);
    let mut world = World::with_spec(&format!("  restartPolicy: Never{HOOKED}"));
    world.fail("PostStart {", "exit status 3").settle().exit("b", 0);
    assert_eq!((world.stage(), world.status().phase), (Stage::Ended, Phase::Failed));
    assert!(world.saw_event("Killing", "Container a failed its post-start hook"));
    assert!(!world.saw_event("Killing", "will be restarted"));
}

/// SIDE-13, SIDE-3, SCN-S17: init containers are done before any post-start hook of a regular one, and a sidecar's hook
/// holds up what comes after it.
#[test]
fn a_sidecars_post_start_hook_holds_up_the_rest() {
    let mut world = World::with_spec(
        "
  initContainers:
  - {name: s, image: \"x:1\", restartPolicy: Always, lifecycle: {postStart: {exec: {command: [hi]}}}}
  - {name: i, image: \"x:1\"}
  containers: [{name: c, image: \"x:1\", lifecycle: {postStart: {exec: {command: [hi]}}}}]
",
    );
    world.hold(|operation| matches!(operation, Operation::PostStart { .. })).settle();
    assert_eq!((world.running(), hooks(&world)), (["s"].into(), 1));
    world.release();
    assert_eq!((world.running(), hooks(&world)), (["i", "s"].into(), 1));
    world.exit("i", 0);
    assert_eq!((world.running(), hooks(&world)), (["c", "s"].into(), 2));
}

/// SIDE-13, TERM-1: a deletion does not wait for a post-start hook.
#[test]
fn a_deletion_cancels_a_post_start_hook() {
    let mut world = World::with_spec(HOOKED);
    world.hold(|operation| matches!(operation, Operation::PostStart { .. })).settle().delete(30);
    assert!(matches!(world.cancelled.as_slice(), [Operation::PostStart { .. }]));
    assert_eq!(world.stage(), Stage::Gone);
    assert!(!world.saw_event("FailedPostStartHook", ""));
    assert!(world.launches("b").is_empty());
}

fn listen(world: &mut World) -> Rc<RefCell<Vec<Event>>> {
    let events = Rc::new(RefCell::new(Vec::new()));
    let sink = Rc::clone(&events);
    world.inspector = Some(Box::new(move |_, plan| sink.borrow_mut().extend(plan.events.clone())));
    events
}

/// EVT-1, EVT-2, EVT-3, EVT-4, BACK-2, PROBE-29: what happens to a container is reported once, about that container, with
/// the right weight.
#[test]
fn events_name_the_container_and_their_weight() {
    let mut world = World::with_spec(
        "
  containers:
  - name: c
    image: \"x:1\"
    livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 2}
    readinessProbe: {tcpSocket: {port: 1}, periodSeconds: 100}
",
    );
    let events = listen(&mut world);
    let events = || -> Vec<(String, &'static str, Severity, String)> {
        let about = |event: Event| (event.container.unwrap_or_default(), event.reason, event.severity, event.message);
        events.borrow_mut().drain(..).map(about).collect()
    };
    let c = |reason, severity, message: &str| ("c".to_owned(), reason, severity, message.to_owned());
    use Severity::{Normal, Warning};
    world.answer("c", ProbeKind::Readiness, Outcome::Warning).settle();
    let warning = c("ProbeWarning", Warning, "Readiness probe warning: Warning");
    assert_eq!(events(), [c("Started", Normal, "Started container c"), warning.clone()]);
    world.answer("c", ProbeKind::Liveness, Outcome::Failure).seconds(1);
    let unhealthy = c("Unhealthy", Warning, "Liveness probe failed: Failure");
    assert_eq!(events(), std::slice::from_ref(&unhealthy), "every failing attempt");
    world.seconds(1);
    let killing = c("Killing", Normal, "Container c failed liveness probe, will be restarted");
    let started = c("Started", Normal, "Started container c");
    assert_eq!(events(), [unhealthy, killing, started, warning]);
    world.exit("c", 1).seconds(9);
    assert_eq!(events(), [c("BackOff", Warning, "Back-off 10 s restarting failed container c")]);
    world.answer("c", ProbeKind::Liveness, Outcome::Success).seconds(2);
    events();
    world.delete(30);
    assert_eq!(events(), [c("Killing", Normal, "Stopping container c")]);
    world.seconds(60);
    assert!(events().is_empty());
}

/// EVT-4, EVT-6, BACK-9: troubles of the pod and of images have their weight, too.
#[test]
fn troubles_are_warnings_and_back_offs_of_images_are_not() {
    let mut world = World::with_spec("  containers: [{name: c, image: \"x:1\"}]\n");
    let events = listen(&mut world);
    world.fail("PrepareVolumes", "MountError").settle();
    world.failing.clear();
    world.fail("EnsureImage", "ErrImagePull").seconds(2);
    let events: Vec<(Option<String>, &'static str, Severity)> =
        events.borrow().iter().map(|event| (event.container.clone(), event.reason, event.severity)).collect();
    let c = Some("c".to_owned());
    assert_eq!(
        events,
        [
            (None, "FailedMount", Severity::Warning),
            (c.clone(), "Failed", Severity::Warning),
            (c, "BackOff", Severity::Normal)
        ]
    );
}
