//! A hundred restarts over fifty pods.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use keelet_lifecycle::status::{Condition, ConditionType, ContainerStatus, Phase, PodStatus};
use keelet_pod::ProbeKind;
use keelet_sim::{Death, InFlight, Random, Reply, World, WorldBuilder, millis, secs};

const PODS: u64 = 50;
const RESTARTS: u64 = 100;

/// One pod of each kind.
const FEW: u64 = KINDS.len() as u64;

/// The pods' kinds, in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    NoProbe,
    Startup,
    Readiness,
    Both,
    Sidecar,
    Several,
    Unready,
    UnreadySidecar,
    Initialized,
    Starting,
    Done,
}

const KINDS: [Kind; 11] = [
    Kind::NoProbe,
    Kind::Startup,
    Kind::Readiness,
    Kind::Both,
    Kind::Sidecar,
    Kind::Several,
    Kind::Unready,
    Kind::UnreadySidecar,
    Kind::Initialized,
    Kind::Starting,
    Kind::Done,
];

// === impl Kind ===

impl Kind {
    /// The spec, with a period of its own.
    fn spec(self, period: u64) -> String {
        let startup =
            format!("startupProbe: {{exec: {{command: [up]}}, periodSeconds: {period}, failureThreshold: 9999}}");
        let handler = match period % 3 {
            0 => "httpGet: {path: /ready, port: 8080}",
            1 => "tcpSocket: {port: 8080}",
            _ => "exec: {command: [serving-8080]}",
        };
        let readiness = format!("readinessProbe: {{{handler}, periodSeconds: {period}}}");
        let liveness = format!("livenessProbe: {{tcpSocket: {{port: 8081}}, periodSeconds: {period}}}");
        let main = |probes: &str| format!("  containers:\n  - {{name: main, image: app, {probes}}}\n");
        let beside = |name: &str, more: &str| format!("  initContainers:\n  - {{name: {name}, image: tool, {more}}}\n");
        match self {
            Self::NoProbe => main(""),
            Self::Startup => main(&format!("{startup}, {liveness}")),
            Self::Readiness | Self::Unready => main(&readiness),
            Self::Both | Self::Starting => main(&format!("{startup}, {readiness}, {liveness}")),
            Self::Sidecar | Self::UnreadySidecar => {
                let sidecar = beside("proxy", &format!("restartPolicy: Always, {startup}, {readiness}"));
                format!("{sidecar}{}", main(&liveness))
            }
            Self::Several => {
                let more = readiness.replace("8080", "8090");
                format!("{}  - {{name: more, image: app, {more}}}\n  - {{name: plain, image: app}}\n", main(&readiness))
            }
            Self::Initialized => format!("{}{}", beside("setup", ""), main(&readiness)),
            Self::Done => format!("  restartPolicy: Never\n{}", main("")),
        }
    }

    fn script(self, world: &World, pod: &str) {
        let script = |container: &str| world.script(&format!("{pod}/{container}"));
        match self {
            Self::Unready => drop(script("main").answers(ProbeKind::Readiness, Reply::Fail)),
            Self::UnreadySidecar => drop(script("proxy").answers(ProbeKind::Readiness, Reply::Fail)),
            Self::Starting => drop(script("main").answers(ProbeKind::Startup, Reply::Fail)),
            Self::Initialized => drop(script("setup").exits(0)),
            Self::Done => drop(script("main").exits(0).after(secs(1))),
            _ => {}
        }
    }

    /// Whether the pod is Ready when it has come to rest.
    fn is_ready(self) -> bool {
        !matches!(self, Self::Unready | Self::UnreadySidecar | Self::Starting | Self::Done)
    }
}

fn kind(number: u64) -> Kind {
    KINDS[usize::try_from(number).unwrap_or(0) % KINDS.len()]
}

fn name(number: u64) -> String {
    format!("pod-{number}")
}

/// A world of so many pods of all kinds, all of them as they will stay.
fn fleet(mut world: WorldBuilder, pods: u64) -> World {
    for number in 0..pods {
        world = world.named(&name(number), &kind(number).spec(3 + number % 17));
    }
    let mut world = world.without_agent().build();
    for number in 0..pods {
        kind(number).script(&world, &name(number));
    }
    world.start_agent().run(secs(15));
    for number in 0..pods {
        let status = world.status_of(&name(number));
        assert_eq!(status.is_true(&ConditionType::Ready), kind(number).is_ready(), "{:?}", kind(number));
        assert_eq!(status.phase == Phase::Succeeded, kind(number) == Kind::Done);
    }
    world
}

/// What an agent restart must not touch.
fn essence(status: &PodStatus) -> (Phase, Vec<ContainerStatus>, Vec<Condition>) {
    let kinds = [ConditionType::Ready, ConditionType::ContainersReady, ConditionType::Initialized];
    let conditions = kinds.iter().filter_map(|kind| status.condition(kind).cloned()).collect();
    (status.phase, status.all_containers().cloned().collect(), conditions)
}

/// Kills the agent at a random moment: after some time, or at one of its effects on the world. Mostly it is
/// back soon.
fn kill(world: &mut World, random: &mut Random) {
    if random.chance(500) {
        let number = world.effects() + random.within(1..60);
        let death = if random.chance(500) { Death::Before(number) } else { Death::After(number) };
        world.die_at(death, InFlight::ByChance);
    }
    let gap = if random.chance(500) { millis(300) } else { millis(1_800) };
    world.run(random.millis(gap) + millis(1)).kill_agent();
    let absence = if random.chance(100) { secs(20) } else { millis(1_500) };
    world.run(random.millis(absence));
}

/// Every status of every pod since then is the one it had.
fn nothing_differs(world: &World, at: Duration, before: &BTreeMap<String, Arc<PodStatus>>) -> usize {
    let timeline = world.timeline();
    let mut compared = 0;
    for (pod, before) in before {
        for (when, status) in timeline.statuses(pod).filter(|(when, _)| *when >= at) {
            assert_eq!(essence(status), essence(before), "{pod} at {when:?}");
            assert_eq!(status, before, "{pod} at {when:?}");
            compared += 1;
        }
        for container in before.all_containers() {
            assert_eq!(world.starts(&format!("{pod}/{}", container.name)), 1, "{pod}");
        }
    }
    compared
}

fn statuses(world: &World, pods: u64) -> BTreeMap<String, Arc<PodStatus>> {
    (0..pods).map(|number| (name(number), world.status_of(&name(number)))).collect()
}

/// SCN-K1..SCN-K18, SCN-K25, KEEP-23, KEEP-25: a hundred restarts over fifty pods of all kinds, ready or not, at moments
/// drawn at random, with probes that answer steadily: no version of any status differs from the one before, in
/// started, ready, counts, IDs, states, conditions or the times of their transitions.
#[test]
fn a_hundred_restarts_over_fifty_pods_change_nothing() {
    let mut world = fleet(World::new(2_024), PODS);
    let mut random = Random::new(4_781);
    let (before, at) = (statuses(&world, PODS), world.elapsed());
    for _ in 0..RESTARTS {
        kill(&mut world, &mut random);
        world.start_agent();
    }
    world.run(secs(10));
    assert_eq!(u64::from(world.runs()), RESTARTS + 1);
    let compared = nothing_differs(&world, at, &before);
    assert!(compared > 2_000, "{compared} statuses were published");
}

/// SCN-K1..SCN-K14, KEEP-2, KEEP-3, KEEP-23: the same in a cluster, with the ledger lost at each restart. The API
/// server's copy of the status is the only memory, and it is enough.
#[test]
fn a_status_survives_restarts_without_a_ledger() {
    let mut world = fleet(World::new(2_025).cluster(), FEW);
    let mut random = Random::new(4_782);
    let (before, at) = (statuses(&world, FEW), world.elapsed());
    for _ in 0..30 {
        kill(&mut world, &mut random);
        world.start_agent_without_ledger();
    }
    world.run(secs(10));
    let compared = nothing_differs(&world, at, &before);
    assert!(compared > 200, "{compared} statuses were published");
}
