//! The agent dies before and after every one of its effects, and calls under way are carried out or lost.
//!
//! One effect out of [`STRIDE`] is tried. `KEELET_SIM_DEATHS=all` tries all of them, `KEELET_SIM_DEATHS=4` others.

use std::time::Duration;

use keelet_lifecycle::status::ConditionType;
use keelet_pod::ProbeKind;
use keelet_sim::{Answer, CallKind, Happening, Reply, World, WorldBuilder, for_some_deaths, millis, secs};

use super::{
    FOUR, assert_history, assert_never_final, assert_one_sandbox, assert_victim, calls, condition_changes, counts,
    four, is_up, runs, starts,
};

/// One effect out of so many is tried, unless all are asked for.
const STRIDE: u64 = 8;

/// Kills the agent at the effects after the first `skipped`. There are at least so many deaths to be died, and a fair
/// share of them is tried.
#[expect(clippy::print_stdout, reason = "how many deaths were tried is worth knowing")]
fn kill(
    skipped: u64,
    at_least: u64,
    build: impl Fn() -> WorldBuilder,
    drive: impl Fn(&mut World),
    check: impl Fn(&World),
) {
    let which = std::env::var("KEELET_SIM_DEATHS").unwrap_or_default();
    let stride = if which == "all" { 1 } else { STRIDE };
    let offset: u64 = which.parse().unwrap_or(0);
    let choose = |number: u64| number > skipped && (number + offset).is_multiple_of(stride);
    let tried = for_some_deaths(choose, build, drive, check);
    println!("{tried} deaths");
    assert!(tried >= at_least / stride, "{tried} deaths");
}

/// Lets time pass until something holds, in steps that suit a long run.
#[track_caller]
fn wait(world: &mut World, what: &str, mut holds: impl FnMut(&World) -> bool) {
    let end = world.elapsed() + secs(120);
    while !holds(world) {
        assert!(world.elapsed() < end, "{what}\n{}", world.timeline_text());
        world.run(millis(500));
    }
}

/// How many effects it takes until a run has come so far.
fn effects_of(build: impl Fn() -> WorldBuilder, drive: impl Fn(&mut World)) -> u64 {
    let mut world = build().build();
    drive(&mut world);
    world.effects()
}

/// SCN-A6, SCN-A7, RALL-32..RALL-37: a restart of all containers, wherever the agent dies after the trigger. Every
/// container is restarted exactly once, in the same sandbox, with its history; no final phase is ever seen; the
/// condition is True once and then False.
#[test]
fn a_restart_of_all_containers_survives_every_death() {
    for cluster in [false, true] {
        let build = || {
            let builder = World::new(3).pod(&four());
            if cluster { builder.cluster() } else { builder }
        };
        let start = |world: &mut World| wait(world, "not up", is_up);
        let skipped = effects_of(build, start);
        kill(
            skipped,
            120,
            build,
            |world| {
                start(world);
                world.exit("source", 42).run(millis(500));
                wait(world, "not up again", |world| is_up(world) && world.starts("other") == 2);
            },
            |world| {
                let text = world.timeline_text();
                assert_eq!(starts(world, FOUR), [2; 4], "{text}");
                assert_eq!(counts(world, FOUR), [1; 4], "{text}");
                assert_eq!(condition_changes(world), [false, true, false], "{text}");
                assert_history(world, "source", 42, "Error");
                assert_history(world, "setup", 0, "RestartingAllContainers");
                assert_victim(world, "side");
                assert_victim(world, "other");
                assert_never_final(world);
                assert_one_sandbox(world);
            },
        );
    }
}

/// KEEP-13, SIDE-1, SIDE-3, SIDE-4, SIDE-7: a pod starts, wherever the agent dies on the way. Nothing is started twice or out of turn,
/// and nothing counts as restarted.
#[test]
fn a_start_survives_every_death() {
    kill(
        0,
        180,
        || {
            World::new(3).pod(
                "  restartPolicy: Never
  initContainers:
  - {name: setup, image: tool}
  - name: side
    image: proxy
    restartPolicy: Always
    startupProbe: {exec: {command: [started]}, periodSeconds: 1}
  - {name: migrate, image: tool}
  containers:
  - name: main
    image: app
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 2}
",
            )
        },
        |world| {
            world.script("side").answers(ProbeKind::Startup, Reply::Fail).answers_from(
                secs(2),
                ProbeKind::Startup,
                Reply::Pass,
            );
            wait(world, "not up", is_up);
        },
        |world| {
            let names = ["setup", "side", "migrate", "main"];
            let text = world.timeline_text();
            assert_eq!((starts(world, names), counts(world, names)), ([1; 4], [0; 4]), "{text}");
            assert!(world.holds(ConditionType::Ready), "{text}");
            assert!(runs(world, "side") && runs(world, "main"), "{text}");
            let runs = names.map(|name| world.container_runs(name)[0].began);
            assert!(runs.is_sorted(), "{runs:?}\n{text}");
            assert_never_final(world);
            assert_one_sandbox(world);
        },
    );
}

/// PROBE-28, KEEP-21, CON-8: a container is killed for its liveness probe and restarted, wherever the agent dies. That is
/// one restart, exactly.
#[test]
fn a_liveness_kill_survives_every_death() {
    let build = || {
        World::new(3).pod(
            "  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: app
    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 3}
  - {name: other, image: app}
",
        )
    };
    let start = |world: &mut World| {
        wait(world, "not up", is_up);
        world.run(secs(3));
    };
    let skipped = effects_of(build, start);
    kill(
        skipped,
        80,
        build,
        |world| {
            start(world);
            world.answer("main", ProbeKind::Liveness, Reply::Fail);
            wait(world, "not killed", |world| world.container_runs("main")[0].ended.is_some());
            world.answer("main", ProbeKind::Liveness, Reply::Pass);
            wait(world, "not restarted", |world| world.starts("main") == 2 && is_up(world));
            world.run(secs(5));
        },
        |world| {
            let text = world.timeline_text();
            assert_eq!(starts(world, ["main", "other"]), [2, 1], "{text}");
            assert_eq!(counts(world, ["main", "other"]), [1, 0], "{text}");
            assert_history(world, "main", 143, "Error");
            assert_never_final(world);
            assert_one_sandbox(world);
        },
    );
}

/// TERM-1, TERM-3, TERM-4: a pod is deleted, wherever the agent dies. Its hook is run before the signal, twice at most;
/// nothing is started again, the grace period is kept, and nothing is left.
#[test]
fn a_deletion_survives_every_death() {
    const GRACE: Duration = secs(20);
    for cluster in [false, true] {
        let build = || {
            let builder = World::new(3).pod(
                "  terminationGracePeriodSeconds: 20
  initContainers:
  - {name: side, image: proxy, restartPolicy: Always}
  containers:
  - name: main
    image: app
    lifecycle: {preStop: {exec: {command: [drain]}}}
  - {name: other, image: app}
",
            );
            if cluster { builder.cluster() } else { builder }
        };
        let start = |world: &mut World| {
            world.script("main").command("drain", Answer::new(Reply::Pass).after(secs(3)));
            world.script("other").ignores_term();
            wait(world, "not up", is_up);
        };
        let skipped = effects_of(build, start);
        kill(
            skipped,
            80,
            build,
            |world| {
                start(world);
                match cluster {
                    true => world.delete_within("web", GRACE),
                    false => world.delete("web"),
                };
                wait(world, "not gone", |world| !world.has_remains("web"));
            },
            |world| {
                let text = world.timeline_text();
                let names = ["side", "main", "other"];
                assert_eq!(starts(world, names), [1; 3], "{text}");
                let timeline = world.timeline();
                let deleted = timeline.entries().iter().find(|e| matches!(e.what, Happening::PodDeleted { .. }));
                let deleted = deleted.expect("it was deleted").at;
                let hooks = calls(world, CallKind::ExecSync, deleted);
                assert!((1..=2).contains(&hooks.len()), "{hooks:?}\n{text}");
                let ended = names.map(|name| world.container_runs(name)[0].ended.expect("it has ended").0);
                assert!(ended[1] >= hooks[0].0 + secs(3), "main ends after its hook\n{text}");
                assert!(ended[0] >= ended[1] && ended[0] >= ended[2], "the sidecar ends last\n{text}");
                assert!(ended.iter().all(|at| *at <= deleted + GRACE + secs(5)), "{ended:?}\n{text}");
            },
        );
    }
}
