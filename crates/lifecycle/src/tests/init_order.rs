//! Init containers and sidecars: what is done next in a given situation (SIDE-*, SCN-S18).

use super::world::{BEGINNING, World};
use crate::{
    Wall,
    evidence::EndingCause,
    observed::{Instance, InstanceState, Sandbox},
    operation::{KillReason, Operation},
    probe::{Streak, Verdict},
};

/// What is known of a container besides its state.
#[derive(Clone, Copy, Debug)]
enum Mark {
    StartupRunning,
    StartupPassed,
    StartupFailed,
    LivenessPassed,
    LivenessFailing,
    LivenessFailed,
    DefinitionChanged,
}
use Mark::{
    DefinitionChanged, LivenessFailed, LivenessFailing, LivenessPassed, StartupFailed, StartupPassed, StartupRunning,
};

/// A name, the restart policy, the init containers, what the runtime shows, what is known besides, what is done.
type Case<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, Mark)], &'a [&'a str]);

const ORDINARY: &str = "[{name: i1, image: x}, {name: i2, image: x}, {name: i3, image: x}]";
const SIDECARS: &str = "
  - {name: s1, image: x, restartPolicy: Always, startupProbe: {tcpSocket: {port: 1}}, livenessProbe: {tcpSocket: {port: 1}}}
  - {name: s2, image: x, restartPolicy: Always, startupProbe: {tcpSocket: {port: 1}}, livenessProbe: {tcpSocket: {port: 1}}}
  - {name: s3, image: x, restartPolicy: Always, startupProbe: {tcpSocket: {port: 1}}, livenessProbe: {tcpSocket: {port: 1}}}";
const PLAIN_SIDECARS: &str =
    "[{name: s1, image: x, restartPolicy: Always}, {name: s2, image: x, restartPolicy: Always}]";
const MIXED: &str = "[{name: i1, image: x}, {name: s1, image: x, restartPolicy: Always}, {name: i2, image: x}]";

fn instance(name: &str, number: usize, what: &str) -> Instance {
    let (state, sandbox) = what.split_once('@').unwrap_or((what, "here"));
    let wall = Wall::from_millis(BEGINNING - 60_000);
    let exited = |exit_code: i32, reason: &str| InstanceState::Exited {
        started_at: wall,
        finished_at: wall,
        exit_code,
        reason: reason.to_owned(),
        message: String::new(),
    };
    Instance {
        id: format!("test://{name}-{number}"),
        name: name.to_owned(),
        sandbox: sandbox.to_owned(),
        attempt: 0,
        hash: None,
        image: "x".to_owned(),
        image_id: "sha256:x".to_owned(),
        created_at: wall,
        state: match state {
            "running" | "unknown" | "lost" => InstanceState::Running { started_at: wall },
            "created" => InstanceState::Created,
            "exit0" => exited(0, "Completed"),
            "oom0" => exited(0, "OOMKilled"),
            "exit1" => exited(1, "Error"),
            other => panic!("{other}"),
        },
    }
}

fn mark(world: &mut World, name: &str, mark: Mark) {
    let at = world.now;
    let decided = |passed| Verdict::Probed { passed, at, streak: 3, output: String::new() };
    let running = Some(Streak { passed: false, length: 2, last: at });
    if let DefinitionChanged = mark {
        for container in world.pod.init_containers.iter_mut().chain(&mut world.pod.containers) {
            container.hash += u32::from(container.name == name);
        }
        return;
    }
    let instance = world.evidence.volatile.instances.get_mut(name).unwrap_or_else(|| panic!("{name} does not run"));
    match mark {
        StartupRunning => instance.startup.streak = running,
        StartupPassed => (instance.startup.verdict, instance.startup.on_hold) = (decided(true), true),
        StartupFailed => (instance.startup.verdict, instance.startup.on_hold) = (decided(false), true),
        LivenessPassed => instance.liveness.verdict = decided(true),
        LivenessFailing => instance.liveness.streak = running,
        LivenessFailed => (instance.liveness.verdict, instance.liveness.on_hold) = (decided(false), true),
        DefinitionChanged => unreachable!(),
    }
}

/// A node agent that finds this situation.
fn situation(policy: &str, init: &str, seen: &[(&str, &str)], marks: &[(&str, Mark)]) -> World {
    let mut world = World::with_spec(&format!(
        "\n  restartPolicy: {policy}\n  initContainers: {init}\n  containers: [{{name: c1, image: x}}]\n"
    ));
    // This agent was there before all that follows, so nothing has its age to speak for it (CON-3).
    world.observed.agent.started.wall = Wall::from_millis(BEGINNING - 3_600_000);
    world.observed.sandboxes.push(Sandbox {
        id: "here".to_owned(),
        ready: true,
        attempt: 1,
        created_at: Wall::from_millis(BEGINNING - 60_000),
        ips: vec!["10.0.0.1".to_owned()],
        host_network: false,
        lost: None,
    });
    for (number, (name, what)) in seen.iter().enumerate() {
        let mut found = instance(name, number, what);
        found.hash = world.pod.container(name).map(|container| container.hash);
        world.observed.containers.push(found);
    }
    // The first look teaches what runs; nothing of what it plans is carried out.
    world.evidence = world.rules.plan(&world.pod, &world.observed, &world.evidence, world.now).evidence;
    world.evidence.volatile.pending.clear();
    for (name, what) in seen {
        match *what {
            "unknown" => world.running_instance(name).state = InstanceState::Unknown,
            "lost" => world.observed.containers.retain(|instance| instance.name != *name),
            _ => {}
        }
    }
    for (name, what) in marks {
        mark(&mut world, name, *what);
    }
    world
}

/// What is done in this situation, apart from pulls and probes.
fn done(world: &mut World) -> Vec<String> {
    world.hold(|operation| !matches!(operation, Operation::EnsureImage { .. }));
    world.settle();
    let mut done: Vec<String> = Vec::new();
    if let Some(ending) = &world.evidence.durable.ending {
        done.push(match &ending.cause {
            EndingCause::InitFailed { container } => format!("{container} failed the pod"),
            EndingCause::Finished => "finished".to_owned(),
            other => format!("{other:?}"),
        });
    }
    done.extend(world.since(0).into_iter().filter_map(|operation| match operation {
        Operation::EnsureImage { .. } => None,
        Operation::Launch { container, sandbox, .. } => {
            assert_eq!(sandbox, "here");
            Some(format!("launch {container}"))
        }
        Operation::StartCreated { container, .. } => Some(format!("start {container}")),
        Operation::Stop { container, reason, .. } => Some(format!("stop {container}: {}", word(*reason))),
        Operation::StopSandbox { .. } => Some("stop the sandbox".to_owned()),
        other => Some(format!("{other:?}")),
    }));
    done
}

fn word(reason: KillReason) -> String {
    match reason {
        KillReason::Probe(kind) => kind.to_string(),
        other => format!("{other:?}"),
    }
}

fn check(cases: &[Case<'_>]) {
    for (name, policy, init, seen, marks, expected) in cases {
        let mut world = situation(policy, init, seen, marks);
        assert_eq!(done(&mut world), *expected, "{name} (restart policy {policy})");
    }
}

const ALL: [&str; 3] = ["Always", "OnFailure", "Never"];

/// SCN-S18, SIDE-1, SIDE-2, SIDE-7, SIDE-10, SIDE-12, SIDE-15, RULE-5: ordinary init containers run one after the
/// other, each to its success, in this sandbox, and never again once a regular one has been started in it.
#[test]
fn ordinary_init_containers_run_one_after_the_other() {
    for policy in ALL {
        check(&[
            ("nothing started", policy, ORDINARY, &[], &[], &["launch i1"]),
            ("first in progress", policy, ORDINARY, &[("i1", "running")], &[], &[]),
            ("first created", policy, ORDINARY, &[("i1", "created")], &[], &["start i1"]),
            ("first done", policy, ORDINARY, &[("i1", "exit0")], &[], &["launch i2"]),
            ("second in progress", policy, ORDINARY, &[("i1", "exit0"), ("i2", "running")], &[], &[]),
            ("second created", policy, ORDINARY, &[("i1", "exit0"), ("i2", "created")], &[], &["start i2"]),
            ("all done", policy, ORDINARY, &[("i1", "exit0"), ("i2", "exit0"), ("i3", "exit0")], &[], &["launch c1"]),
            ("first cleaned away, second runs", policy, ORDINARY, &[("i2", "running")], &[], &[]),
            ("first cleaned away, second done", policy, ORDINARY, &[("i2", "exit0")], &[], &["launch i3"]),
            ("all but the last cleaned away", policy, ORDINARY, &[("i3", "exit0")], &[], &["launch c1"]),
            ("all cleaned away, regular runs", policy, ORDINARY, &[("c1", "running")], &[], &[]),
            ("regular runs, init failed once", policy, ORDINARY, &[("i3", "exit1"), ("c1", "running")], &[], &[]),
            ("first done in an older sandbox", policy, ORDINARY, &[("i1", "exit0@old")], &[], &["launch i1"]),
            (
                "changed after its end",
                policy,
                ORDINARY,
                &[("i1", "exit0")],
                &[("i1", DefinitionChanged)],
                &["launch i2"],
            ),
            ("changed while it runs", policy, ORDINARY, &[("i1", "running")], &[("i1", DefinitionChanged)], &[]),
            (
                "changed, regular runs",
                policy,
                ORDINARY,
                &[("i1", "exit0"), ("c1", "running")],
                &[("i1", DefinitionChanged)],
                &[],
            ),
        ]);
    }
    for policy in ["Always", "OnFailure"] {
        check(&[
            ("first failed", policy, ORDINARY, &[("i1", "exit1")], &[], &["launch i1"]),
            ("second failed", policy, ORDINARY, &[("i1", "exit0"), ("i2", "exit1")], &[], &["launch i2"]),
            ("second failed, first cleaned away", policy, ORDINARY, &[("i2", "exit1")], &[], &["launch i2"]),
            ("out of memory, exit code 0", policy, ORDINARY, &[("i1", "oom0")], &[], &["launch i1"]),
            ("unknown", policy, ORDINARY, &[("i1", "unknown")], &[], &["stop i1: StateUnknown"]),
            ("lost", policy, ORDINARY, &[("i1", "lost")], &[], &["launch i1"]),
            ("stale regular one", policy, ORDINARY, &[("c1", "exit1@old")], &[], &["launch i1"]),
            ("regular one failed", policy, ORDINARY, &[("i3", "exit0"), ("c1", "exit1")], &[], &["launch c1"]),
            ("regular one failed, init cleaned away", policy, ORDINARY, &[("c1", "exit1")], &[], &["launch c1"]),
        ]);
    }
    let own = "[{name: i1, image: x, restartPolicy: OnFailure}]";
    let never = "[{name: i1, image: x, restartPolicy: Never}]";
    check(&[
        ("first failed", "Never", ORDINARY, &[("i1", "exit1")], &[], &["i1 failed the pod", "stop the sandbox"]),
        (
            "second failed",
            "Never",
            ORDINARY,
            &[("i1", "exit0"), ("i2", "exit1")],
            &[],
            &["i2 failed the pod", "stop the sandbox"],
        ),
        (
            "out of memory, exit code 0",
            "Never",
            ORDINARY,
            &[("i1", "oom0")],
            &[],
            &["i1 failed the pod", "stop the sandbox"],
        ),
        ("unknown", "Never", ORDINARY, &[("i1", "unknown")], &[], &["stop i1: StateUnknown"]),
        ("lost", "Never", ORDINARY, &[("i1", "lost")], &[], &["i1 failed the pod", "stop the sandbox"]),
        (
            "regular one failed",
            "Never",
            ORDINARY,
            &[("i3", "exit0"), ("c1", "exit1")],
            &[],
            &["finished", "stop the sandbox"],
        ),
        ("own policy repeats it", "Never", own, &[("i1", "exit1")], &[], &["launch i1"]),
        ("own policy does not", "Always", never, &[("i1", "exit1")], &[], &["i1 failed the pod", "stop the sandbox"]),
    ]);
}

/// SCN-S18, SIDE-3, SIDE-4, SIDE-5, SIDE-6, SIDE-7, SIDE-8, START-8: a sidecar holds up the next container until its
/// startup probe has passed, and nothing else about it does; whatever the policy, it is started again.
#[test]
fn sidecars_start_in_order_and_stay() {
    let first: &[(&str, &str)] = &[("s1", "running")];
    let two: &[(&str, &str)] = &[("s1", "running"), ("s2", "running")];
    let three: &[(&str, &str)] = &[("s1", "running"), ("s2", "running"), ("s3", "running")];
    let (s1, s2, s3) = (("s1", StartupPassed), ("s2", StartupPassed), ("s3", StartupPassed));
    for policy in ALL {
        check(&[
            ("nothing started", policy, SIDECARS, &[], &[], &["launch s1"]),
            ("startup not run", policy, SIDECARS, first, &[], &[]),
            ("startup in progress", policy, SIDECARS, first, &[("s1", StartupRunning)], &[]),
            ("startup complete", policy, SIDECARS, first, &[s1], &["launch s2"]),
            ("startup failed", policy, SIDECARS, first, &[("s1", StartupFailed)], &["stop s1: startup"]),
            ("second not run", policy, SIDECARS, two, &[s1], &[]),
            ("second in progress", policy, SIDECARS, two, &[s1, ("s2", StartupRunning)], &[]),
            ("second complete", policy, SIDECARS, two, &[s1, s2], &["launch s3"]),
            ("second failed", policy, SIDECARS, two, &[s1, ("s2", StartupFailed)], &["stop s2: startup"]),
            ("all complete", policy, SIDECARS, three, &[s1, s2, s3], &["launch c1"]),
            ("first not started, second has been", policy, SIDECARS, two, &[s2], &["launch s3"]),
            ("liveness in progress", policy, SIDECARS, first, &[s1, ("s1", LivenessFailing)], &["launch s2"]),
            ("liveness complete", policy, SIDECARS, first, &[s1, ("s1", LivenessPassed)], &["launch s2"]),
            (
                "liveness failed",
                policy,
                SIDECARS,
                first,
                &[s1, ("s1", LivenessFailed)],
                &["stop s1: liveness", "launch s2"],
            ),
            (
                "changed",
                policy,
                SIDECARS,
                first,
                &[s1, ("s1", DefinitionChanged)],
                &["stop s1: DefinitionChanged", "launch s2"],
            ),
            (
                "changed in startup",
                policy,
                SIDECARS,
                first,
                &[("s1", DefinitionChanged)],
                &["stop s1: DefinitionChanged"],
            ),
            ("created", policy, SIDECARS, &[("s1", "created")], &[], &["start s1"]),
            ("second created", policy, SIDECARS, &[("s1", "running"), ("s2", "created")], &[s1], &["start s2"]),
            ("exited well", policy, SIDECARS, &[("s1", "exit0")], &[], &["launch s1"]),
            ("exited badly", policy, SIDECARS, &[("s1", "exit1")], &[], &["launch s1"]),
            ("unknown", policy, SIDECARS, &[("s1", "unknown")], &[], &["stop s1: StateUnknown"]),
            ("lost", policy, SIDECARS, &[("s1", "lost")], &[], &["launch s1"]),
            ("second exited", policy, SIDECARS, &[("s1", "running"), ("s2", "exit1")], &[s1], &["launch s2"]),
            (
                "first exited, second complete",
                policy,
                SIDECARS,
                &[("s1", "exit0"), ("s2", "running")],
                &[s2],
                &["launch s1", "launch s3"],
            ),
            (
                "first missing, second complete",
                policy,
                SIDECARS,
                &[("s2", "running")],
                &[s2],
                &["launch s1", "launch s3"],
            ),
            (
                "first unknown, second complete",
                policy,
                SIDECARS,
                &[("s1", "unknown"), ("s2", "running")],
                &[s2],
                &["stop s1: StateUnknown", "launch s3"],
            ),
            (
                "exited in an older sandbox",
                policy,
                SIDECARS,
                &[("s1", "exit1@old"), ("s2", "exit1@old")],
                &[],
                &["launch s1"],
            ),
            ("no probes: running is started", policy, PLAIN_SIDECARS, first, &[], &["launch s2"]),
            ("no probes: all run", policy, PLAIN_SIDECARS, two, &[], &["launch c1"]),
        ]);
    }
}

/// SCN-S18, SIDE-2, SIDE-5, SIDE-6, SIDE-9, STAT-17: once a regular container has been started in this sandbox,
/// sidecars are maintained without holding anything up, until the pod has nothing left to do.
#[test]
fn sidecars_of_an_initialized_pod_are_maintained() {
    let c1 = ("c1", "running");
    let old = &[("s1", "running"), ("c1", "exit1@old")];
    for policy in ALL {
        check(&[
            ("all missing", policy, SIDECARS, &[c1], &[], &["launch s1", "launch s2", "launch s3"]),
            ("one exited", policy, PLAIN_SIDECARS, &[("s1", "running"), ("s2", "exit1"), c1], &[], &["launch s2"]),
            (
                "one exited, other in startup",
                policy,
                SIDECARS,
                &[("s1", "running"), ("s2", "exit0"), ("s3", "running"), c1],
                &[],
                &["launch s2"],
            ),
            ("one lost", policy, PLAIN_SIDECARS, &[("s1", "lost"), ("s2", "running"), c1], &[], &["launch s1"]),
            ("one created", policy, PLAIN_SIDECARS, &[("s1", "created"), ("s2", "running"), c1], &[], &["start s1"]),
            (
                "one unknown",
                policy,
                PLAIN_SIDECARS,
                &[("s1", "unknown"), ("s2", "running"), c1],
                &[],
                &["stop s1: StateUnknown"],
            ),
            (
                "one changed",
                policy,
                PLAIN_SIDECARS,
                &[("s1", "running"), ("s2", "running"), c1],
                &[("s2", DefinitionChanged)],
                &["stop s2: DefinitionChanged"],
            ),
            ("stale regular one does not count", policy, SIDECARS, old, &[], &[]),
        ]);
    }
    let all = &[("s1", "running"), ("s2", "running"), ("c1", "exit1")];
    let well = &[("s1", "running"), ("s2", "running"), ("c1", "exit0")];
    let down = &[("s1", "exit0"), ("s2", "running"), ("c1", "exit0")];
    check(&[
        ("regular one restarts", "Always", PLAIN_SIDECARS, all, &[], &["launch c1"]),
        ("also during a sidecar's startup", "Always", SIDECARS, all, &[], &["launch s3", "launch c1"]),
        ("regular one failed", "OnFailure", PLAIN_SIDECARS, all, &[], &["launch c1"]),
        ("regular one done", "OnFailure", PLAIN_SIDECARS, well, &[], &["finished", "stop s2: PodEnding"]),
        ("regular one failed for good", "Never", PLAIN_SIDECARS, all, &[], &["finished", "stop s2: PodEnding"]),
    ]);
    // A sidecar that is down when the pod has finished stays down.
    let mut world = situation("Never", PLAIN_SIDECARS, down, &[]);
    world.evidence.durable.ending = None;
    assert_eq!(done(&mut world).first().map(String::as_str), Some("finished"));
    world.release();
    assert_eq!(world.running(), [].into());
}

/// SCN-S18, SIDE-8, SIDE-10: sidecars run beside later init containers, and are stopped when one of these fails the
/// pod.
#[test]
fn ordinary_init_containers_and_sidecars_mix() {
    for policy in ALL {
        check(&[
            ("nothing started", policy, MIXED, &[], &[], &["launch i1"]),
            ("init done", policy, MIXED, &[("i1", "exit0")], &[], &["launch s1"]),
            ("sidecar runs", policy, MIXED, &[("i1", "exit0"), ("s1", "running")], &[], &["launch i2"]),
            ("second init runs", policy, MIXED, &[("i1", "exit0"), ("s1", "running"), ("i2", "running")], &[], &[]),
            (
                "sidecar exits meanwhile",
                policy,
                MIXED,
                &[("i1", "exit0"), ("s1", "exit1"), ("i2", "running")],
                &[],
                &["launch s1"],
            ),
            ("all done", policy, MIXED, &[("i1", "exit0"), ("s1", "running"), ("i2", "exit0")], &[], &["launch c1"]),
        ]);
    }
    let failed = &[("i1", "exit0"), ("s1", "running"), ("i2", "exit1")];
    let both = &[("i1", "exit0"), ("s1", "exit0"), ("i2", "exit1")];
    check(&[
        ("second failed", "Always", MIXED, failed, &[], &["launch i2"]),
        ("both exited", "OnFailure", MIXED, both, &[], &["launch s1", "launch i2"]),
        ("second failed for good", "Never", MIXED, failed, &[], &["i2 failed the pod", "stop s1: PodEnding"]),
    ]);
}
