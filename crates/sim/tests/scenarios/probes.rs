//! Probes of regular containers and of sidecars: what they find, what comes of it, and when.

mod grace;
mod hostile;
mod liveness;
mod load;
mod network;
mod readiness;
mod startup;

use std::time::Duration;

use keelet_lifecycle::status::ContainerState;
use keelet_pod::ProbeKind;
use keelet_sim::{ContainerRun, World, secs};

/// Where the container that is asked stands in its pod. Everything here holds for both (SCN-P26).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Regular,
    Sidecar,
}

const PLACES: [Place; 2] = [Place::Regular, Place::Sidecar];

// === impl Place ===

impl Place {
    /// A world with a pod whose container `main` has these fields, in that place.
    fn world(self, fields: &[&str]) -> World {
        self.world_within(30, fields)
    }

    /// The same, with a grace period of the pod.
    fn world_within(self, grace: u64, fields: &[&str]) -> World {
        let fields: String = fields.iter().map(|field| format!("    {field}\n")).collect();
        let main = format!("  - name: main\n    image: app\n{fields}");
        let containers = match self {
            Self::Regular => format!("  containers:\n{main}"),
            Self::Sidecar => format!(
                "  initContainers:\n{main}    restartPolicy: Always\n  containers:\n  - {{name: other, image: app}}\n"
            ),
        };
        World::new(1).pod(&format!("  terminationGracePeriodSeconds: {grace}\n{containers}")).build()
    }
}

/// The restart count of `main`, as readers see it.
fn restarts(world: &World) -> u32 {
    world.container("main").restart_count
}

/// Whether `main` is shown ready.
fn ready(world: &World) -> bool {
    world.container("main").ready
}

/// Whether `main` was shown ready in any status so far.
fn was_ready(world: &World) -> bool {
    world.statuses().iter().any(|(_, status)| status.container("main").is_some_and(|main| main.ready))
}

/// The first instance of `main`.
fn first_run(world: &World) -> ContainerRun {
    world.container_runs("main").swap_remove(0)
}

/// How old `main` was when its first instance ended, and its exit code.
fn first_end(world: &World) -> (Duration, i32) {
    let run = first_run(world);
    let (at, exit_code, _) = run.ended.unwrap_or_else(|| panic!("it still runs\n{}", world.timeline_text()));
    (at - run.began, exit_code)
}

/// Attempts of that kind that reached the first instance of `main`.
fn first_attempts(world: &World, kind: ProbeKind) -> usize {
    let id = first_run(world).instance.id.clone();
    let of_instance =
        |attempt: &keelet_sim::Attempt| attempt.instance.as_ref().is_some_and(|instance| instance.id == id);
    world.probes("main", kind, Duration::ZERO).iter().filter(|(_, attempt)| of_instance(attempt)).count()
}

/// Asserts that a span is about that long: operations and looks take a little.
#[track_caller]
fn assert_about(span: Duration, expected: Duration) {
    assert!(span >= expected && span < expected + secs(1), "{span:?} instead of {expected:?}");
}

/// Asserts that `main` was killed by a probe of that kind, and runs again.
#[track_caller]
fn assert_restarted(world: &World, kind: ProbeKind, place: Place) {
    let text = world.timeline_text();
    assert!(restarts(world) >= 1, "{place:?}: not restarted\n{text}");
    let noun = if place == Place::Sidecar { "Init container" } else { "Container" };
    let message = format!("{noun} main failed {} probe", kind.as_str());
    assert!(world.saw_event("Killing", &message), "{place:?}: no event says {message:?}\n{text}");
    assert!(world.saw_event("Unhealthy", "probe failed"), "{place:?}: no Unhealthy\n{text}");
    assert!(!world.container("main").last_state.is_none(), "{place:?}: no last state\n{text}");
}

/// Asserts that `main` has run on since its start.
#[track_caller]
fn assert_untouched(world: &World, place: Place) {
    let text = world.timeline_text();
    assert_eq!(restarts(world), 0, "{place:?}\n{text}");
    assert_eq!(world.starts("main"), 1, "{place:?}\n{text}");
    assert!(matches!(world.container("main").state, ContainerState::Running(_)), "{place:?}\n{text}");
    assert!(!world.saw_event("Killing", "main"), "{place:?}\n{text}");
}
