//! A probe's own grace period.

use std::time::Duration;

use keelet_pod::ProbeKind;
use keelet_sim::{ExitCause, Reply, World, secs};

use super::{PLACES, Place, assert_about, assert_restarted, first_run};

/// When the agent said that it kills `main`.
fn killing(world: &World) -> Duration {
    let timeline = world.timeline();
    let found = timeline.events().find(|(_, event)| event.reason == "Killing").map(|(at, _)| at);
    found.unwrap_or_else(|| panic!("nothing is killed\n{timeline}"))
}

/// A container that does not care for SIGTERM, in a pod with a long grace period, and a probe with a short one.
fn kills_within_the_short_grace(place: Place, kind: ProbeKind) {
    let probe = format!(
        "{}Probe: {{exec: {{command: [\"false\"]}}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 5}}",
        kind.as_str()
    );
    let mut world = place.world_within(500, &[&probe]);
    world.script("main").answers(kind, Reply::Fail).ignores_term();
    world.run(secs(10));
    assert_restarted(&world, kind, place);
    let (ended, exit_code, cause) = first_run(&world).ended.expect("an end");
    assert_about(ended - killing(&world), secs(5));
    assert_eq!((exit_code, cause), (137, ExitCause::Killed), "{place:?}");
}

/// SCN-P18, SCN-P26.
#[test]
fn a_liveness_probe_with_a_short_grace_kills_within_it() {
    PLACES.into_iter().for_each(|place| kills_within_the_short_grace(place, ProbeKind::Liveness));
}

/// SCN-P19, SCN-P26.
#[test]
fn a_startup_probe_with_a_short_grace_kills_within_it() {
    PLACES.into_iter().for_each(|place| kills_within_the_short_grace(place, ProbeKind::Startup));
}
