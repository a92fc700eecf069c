//! Containers of all kinds from their start to their end: order, restarts, hooks, grace, and what the status says of it.

mod backoff;
mod conditions;
mod grace;
mod hooks;
mod images;
mod init;
mod reboot;
mod rules;
mod sandbox;
mod sidecar_probes;
mod sidecars;
mod termination;

use std::time::Duration;

use keelet_lifecycle::status::{Phase, Terminated};
use keelet_sim::{CallKind, ContainerRun, Happening, World, secs};

/// A world with a pod of this spec.
fn world(spec: &str) -> World {
    World::new(1).pod(spec).build()
}

/// The only instance of a container.
#[track_caller]
fn run(world: &World, name: &str) -> ContainerRun {
    let mut runs = world.container_runs(name);
    assert_eq!(runs.len(), 1, "runs of {name}\n{}", world.timeline_text());
    runs.swap_remove(0)
}

/// When the only instance of a container began.
#[track_caller]
fn began(world: &World, name: &str) -> Duration {
    run(world, name).began
}

/// When the only instance of a container ended.
#[track_caller]
fn ended(world: &World, name: &str) -> Duration {
    end_of(&run(world, name))
}

/// When an instance ended.
#[track_caller]
fn end_of(run: &ContainerRun) -> Duration {
    run.ended.unwrap_or_else(|| panic!("{} runs", run.instance.id)).0
}

/// When the agent made calls of that kind whose subject contains the text.
fn calls(world: &World, kind: CallKind, text: &str) -> Vec<Duration> {
    let is_it = |what: &Happening| matches!(what, Happening::Call { kind: of, subject, .. } if *of == kind && subject.contains(text));
    world.timeline().entries().iter().filter(|entry| is_it(&entry.what)).map(|entry| entry.at).collect()
}

/// How a container's newest instance ended, as its status shows it.
#[track_caller]
fn terminated(world: &World, name: &str) -> Terminated {
    let status = world.container(name);
    match status.state {
        keelet_lifecycle::status::ContainerState::Terminated(ended) => ended,
        state => panic!("{name} is {state:?}\n{}", world.timeline_text()),
    }
}

/// The phases that were published, each once in a row.
fn phases(world: &World) -> Vec<Phase> {
    let mut phases: Vec<Phase> = world.statuses().iter().map(|(_, status)| status.phase).collect();
    phases.dedup();
    phases
}

/// The phase that was published last, also if the pod is gone by now.
#[track_caller]
fn last_phase(world: &World) -> Phase {
    world.statuses().last().expect("a status").1.phase
}

/// Asserts that a span is about that long: operations and looks take a little.
#[track_caller]
fn assert_about(span: Duration, expected: Duration) {
    assert!(span >= expected && span < expected + secs(1), "{span:?} instead of {expected:?}");
}

/// Asserts that the first of two times is not after the second.
#[track_caller]
fn assert_before(first: Duration, second: Duration) {
    assert!(first <= second, "{first:?} is after {second:?}");
}
