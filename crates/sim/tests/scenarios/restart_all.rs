//! RestartAllContainers: what triggers it, what is seen of them, and what may come in between.

mod between;
mod deaths;
mod gate;
mod loops;
mod seen;
mod triggers;

use std::time::Duration;

use keelet_lifecycle::status::{Condition, ConditionType, ContainerState, Phase, Terminated};
use keelet_sim::{CallKind, Happening, World, WorldBuilder, millis, secs};

/// A rule that restarts all containers on exit code 42, as a field of a container.
const RULE: &str = "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";

/// The containers of [`four`].
const FOUR: [&str; 4] = ["setup", "side", "source", "other"];

/// A pod with one of each kind that never restarts by itself; `source` triggers.
fn four() -> String {
    format!(
        "  restartPolicy: Never
  initContainers:
  - {{name: setup, image: tool}}
  - {{name: side, image: proxy, restartPolicy: Always}}
  containers:
  - {{name: source, image: app, restartPolicy: Never, {RULE}}}
  - {{name: other, image: app}}
"
    )
}

/// The modes an agent runs in: with an API server, and without.
fn modes(spec: &str) -> [WorldBuilder; 2] {
    [World::new(1).pod(spec).cluster(), World::new(1).pod(spec)]
}

/// Lets the pod come up.
#[track_caller]
fn up(world: &mut World) {
    let end = world.elapsed() + secs(60);
    while !is_up(world) {
        assert!(world.elapsed() < end, "the pod does not come up\n{}", world.timeline_text());
        world.run(millis(500));
    }
    world.run(secs(5));
}

/// Whether the pod runs, is ready, and nothing is being restarted.
fn is_up(world: &World) -> bool {
    let running = world.find_status("web").is_some_and(|status| status.phase == Phase::Running);
    running && world.holds(ConditionType::Ready) && !is_restarting(world)
}

/// Whether the condition is True.
fn is_restarting(world: &World) -> bool {
    world.holds(ConditionType::AllContainersRestarting)
}

/// Lets time pass until the pod is up once more after a trigger.
#[track_caller]
fn up_again(world: &mut World) {
    let end = world.elapsed() + secs(180);
    world.run(secs(1));
    while !is_up(world) {
        assert!(world.elapsed() < end, "not up again within three minutes\n{}", world.timeline_text());
        world.run(secs(1));
    }
}

/// Restart counts by name.
fn counts<const N: usize>(world: &World, names: [&str; N]) -> [u32; N] {
    names.map(|name| world.container(name).restart_count)
}

/// Starts by name, as the node counts them.
fn starts<const N: usize>(world: &World, names: [&str; N]) -> [usize; N] {
    names.map(|name| world.starts(name))
}

/// How the previous instance of a container ended, as readers see it.
#[track_caller]
fn last(world: &World, name: &str) -> Terminated {
    let last = world.container(name).last_state.terminated;
    last.unwrap_or_else(|| panic!("{name} has no history\n{}", world.timeline_text()))
}

/// Asserts the history of a container: exit code and reason as given, ID and times those of the instance before the
/// newest.
#[track_caller]
fn assert_history(world: &World, name: &str, exit_code: i32, reason: &str) {
    let exit = last(world, name);
    let text = || format!("{name}\n{}", world.timeline_text());
    assert_eq!((exit.exit_code, exit.reason.as_str()), (exit_code, reason), "{}", text());
    let runs = world.container_runs(name);
    let before = &runs[runs.len() - 2];
    assert_eq!(exit.container_id, Some(format!("sim://{}", before.instance.id)), "{}", text());
    assert!(exit.started_at.is_some() && exit.finished_at.is_some(), "{}", text());
}

/// Asserts that a victim's history says so.
#[track_caller]
fn assert_victim(world: &World, name: &str) {
    assert_history(world, name, 137, "RestartingAllContainers");
}

/// How the condition changed over time.
fn condition_changes(world: &World) -> Vec<bool> {
    let mut seen: Vec<bool> = Vec::new();
    for (_, status) in world.statuses() {
        let now = status.is_true(&ConditionType::AllContainersRestarting);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    seen
}

/// The condition, when it was first published True and when it was first False again.
fn first_restart(world: &World) -> (Condition, Condition) {
    let statuses = world.statuses();
    let conditions =
        statuses.iter().filter_map(|(_, status)| status.condition(&ConditionType::AllContainersRestarting));
    let mut after = conditions.skip_while(|condition| condition.status != true.into()).cloned();
    let began = after.next().expect("it was True");
    let over = after.find(|condition| condition.status == false.into()).expect("it was False again");
    (began, over)
}

/// Whether a container runs, as readers see it.
fn runs(world: &World, name: &str) -> bool {
    matches!(world.container(name).state, ContainerState::Running(_))
}

/// Calls of that kind since then, with the time: what they are about.
fn calls(world: &World, kind: CallKind, since: Duration) -> Vec<(Duration, String)> {
    let timeline = world.timeline();
    let made = timeline.entries().iter().filter(|entry| entry.at >= since);
    made.filter_map(|entry| match &entry.what {
        Happening::Call { kind: found, subject, .. } if *found == kind => Some((entry.at, subject.clone())),
        _ => None,
    })
    .collect()
}

/// Asserts that no status so far called the pod ended.
#[track_caller]
fn assert_never_final(world: &World) {
    let over = world.statuses().iter().any(|(_, status)| status.phase.is_terminal());
    assert!(!over, "the pod was called ended\n{}", world.timeline_text());
}

/// Asserts that there is one sandbox, and never was another.
#[track_caller]
fn assert_one_sandbox(world: &World) {
    assert_eq!(calls(world, CallKind::RunPodSandbox, Duration::ZERO).len(), 1, "{}", world.timeline_text());
    assert_eq!(calls(world, CallKind::StopPodSandbox, Duration::ZERO).len(), 0, "{}", world.timeline_text());
}
