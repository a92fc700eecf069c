//! Grace periods.

use std::time::Duration;

use keelet_lifecycle::status::ContainerState;
use keelet_sim::{Answer, CallKind, ExitCause, Reply, World, secs};

use super::{assert_about, calls, run, terminated, world};

/// A container that does not care for SIGTERM, with this hook, in a pod with this grace period.
fn stubborn(grace: u64, lifecycle: &str) -> World {
    let world = world(&format!(
        "  restartPolicy: Never
  terminationGracePeriodSeconds: {grace}
  containers:
  - {{name: main, image: app, lifecycle: {{{lifecycle}}}}}
"
    ));
    world.script("main").ignores_term();
    world
}

/// How long it took from the deletion to the signal, and to the end.
fn deletion(world: &mut World) -> (Duration, Duration) {
    world.run(secs(10));
    let deleted = world.elapsed();
    world.delete("web").run(secs(60));
    let stops = calls(world, CallKind::StopContainer, "main");
    let (ended, exit_code, cause) = run(world, "main").ended.expect("an end");
    assert_eq!((exit_code, cause), (137, ExitCause::Killed));
    (stops[0] - deleted, ended - deleted)
}

/// SCN-T1.
#[test]
fn a_container_has_its_grace_period_and_no_more() {
    let (signal, end) = deletion(&mut stubborn(15, ""));
    assert_about(signal, secs(0));
    assert_about(end, secs(15));
}

/// SCN-T1.
#[test]
fn a_hook_takes_its_time_from_the_grace_period() {
    let mut world = stubborn(15, "preStop: {exec: {command: [goodbye]}}");
    world.script("main").command("goodbye", Answer::new(Reply::Pass).after(secs(6)));
    let (signal, end) = deletion(&mut world);
    assert_about(signal, secs(6));
    assert_about(end, secs(15));
}

/// SCN-T1.
#[test]
fn a_hook_that_takes_longer_than_the_grace_period_leaves_two_seconds() {
    let mut world = stubborn(15, "preStop: {exec: {command: [goodbye]}}");
    world.script("main").command("goodbye", Answer::new(Reply::Pass).after(secs(50)));
    let (signal, end) = deletion(&mut world);
    assert_about(signal, secs(15));
    assert_about(end, secs(17));
}

/// SCN-T4, TERM-10, DEF-22: a second deletion with a smaller grace period does not wait for the first one.
#[test]
fn a_smaller_grace_period_takes_effect_on_the_stop_in_flight() {
    let mut world = stubborn(60, "");
    world.run(secs(10));
    let deleted = world.elapsed();
    world.delete_within("web", secs(60)).run(secs(10));
    assert!(run(&world, "main").ended.is_none(), "{}", world.timeline_text());
    world.delete_within("web", secs(5)).run(secs(20));
    let (ended, exit_code, cause) = run(&world, "main").ended.expect("an end");
    assert_eq!((exit_code, cause), (137, ExitCause::Killed));
    assert_about(ended - deleted, secs(15));
    assert_eq!(calls(&world, CallKind::StopContainer, "main").len(), 2, "{}", world.timeline_text());
}

/// SCN-T5.
#[test]
fn a_killed_container_shows_137_and_error() {
    let mut world = stubborn(5, "");
    world.run(secs(10));
    world.delete_within("web", secs(5)).run(secs(30));
    let ended = world.statuses().into_iter().find_map(|(_, status)| match status.container("main").map(|c| &c.state) {
        Some(ContainerState::Terminated(ended)) => Some(ended.clone()),
        _ => None,
    });
    let ended = ended.expect("a status that shows the end");
    assert_eq!((ended.exit_code, ended.reason.as_str()), (137, "Error"));

    // Without a deletion too: killed by a probe, in a pod that never restarts.
    let mut world = super::world(
        "  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  containers:
  - {name: main, image: app, livenessProbe: {exec: {command: [alive]}, periodSeconds: 1, failureThreshold: 1}}
",
    );
    world.script("main").ignores_term().answers(keelet_pod::ProbeKind::Liveness, Reply::Fail);
    world.run(secs(20));
    let ended = terminated(&world, "main");
    assert_eq!((ended.exit_code, ended.reason.as_str()), (137, "Error"));
}
