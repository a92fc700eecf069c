//! Sandboxes and volumes: what can be used, what is cleared away, what is made (STAT-25, PROC-3).

use std::time::Duration;

use super::world::{BEGINNING, World};
use crate::{
    Stage, Wall,
    observed::{InstanceState, Sandbox},
    operation::{KillReason, Operation},
    status::{ConditionType, Phase, PodIp},
};

const ONE: &str = "  containers: [{name: c, image: \"app:1\"}]\n";

fn kinds(operations: &[&Operation]) -> Vec<String> {
    operations
        .iter()
        .map(|operation| format!("{operation:?}").split(' ').next().unwrap_or_default().to_owned())
        .collect()
}

fn times(world: &World, kind: &str) -> Vec<i64> {
    let of_kind = |operation: &Operation| format!("{operation:?}").starts_with(kind);
    let all = world.started.iter().filter(|(_, operation)| of_kind(operation));
    all.map(|(at, _)| (at.wall.as_millis() - BEGINNING) / 1000).collect()
}

fn sandbox(id: &str, attempt: u32) -> Sandbox {
    Sandbox {
        id: id.to_owned(),
        ready: true,
        attempt,
        created_at: Wall::from_millis(BEGINNING),
        ips: vec!["10.1.1.1".to_owned()],
        host_network: false,
        lost: None,
    }
}

/// EVT-6: the reason of a failure is part of the message only if it is not that of the event.
#[test]
fn the_reason_of_a_failed_mount_is_said_once() {
    let mut world = World::with_spec(ONE);
    world.fail("PrepareVolumes", "FailedMount").seconds(1);
    assert!(world.saw_event("FailedMount", "PrepareVolumes does not work"));
    assert!(!world.saw_event("FailedMount", "FailedMount: "));
}

/// SCN-C3, STAT-25, EVT-6: volumes that cannot be prepared are tried again after 1, 2, 4, 8 and then every 10 s;
/// meanwhile there is no sandbox, and the condition says so.
#[test]
fn volumes_that_cannot_be_prepared_hold_up_the_sandbox() {
    let mut world = World::with_spec(ONE);
    world.fail("PrepareVolumes", "MountError").seconds(40);
    assert_eq!(times(&world, "PrepareVolumes"), [0, 1, 3, 7, 15, 25, 35]);
    assert!(times(&world, "CreateSandbox").is_empty());
    let condition = world.condition(ConditionType::PodReadyToStartContainers).clone();
    assert!(!world.holds(ConditionType::PodReadyToStartContainers));
    assert_eq!(condition.reason.as_deref(), Some("PodSandboxNotReady"));
    assert_eq!(condition.last_transition_time, Some(Wall::from_millis(BEGINNING)));
    assert!(world.holds(ConditionType::PodScheduled));
    assert!(world.saw_event("FailedMount", "MountError: PrepareVolumes does not work"));
    assert_eq!(world.waiting_reason("c"), Some("ContainerCreating"));
    world.failing.clear();
    world.seconds(5);
    assert_eq!(world.running(), ["c"].into());
    assert!(world.holds(ConditionType::PodReadyToStartContainers));
}

/// PROC-3, EVT-6: a sandbox that cannot be made is tried again, and no attempt number is used twice.
#[test]
fn a_sandbox_that_cannot_be_made_is_tried_again() {
    let mut world = World::with_spec(ONE);
    world.fail("CreateSandbox", "NoNetwork").seconds(8);
    assert_eq!(times(&world, "CreateSandbox"), [0, 1, 3, 7]);
    assert_eq!(times(&world, "PrepareVolumes"), [0], "what is in place stays");
    assert!(world.saw_event("FailedCreatePodSandBox", "NoNetwork"));
    assert!(!world.saw_event("SandboxChanged", ""));
    world.failing.clear();
    world.seconds(7);
    let attempts: Vec<u32> = world
        .started
        .iter()
        .filter_map(|(_, operation)| match operation {
            Operation::CreateSandbox { attempt } => Some(*attempt),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [0, 1, 2, 3, 4]);
    assert_eq!(world.running(), ["c"].into());
}

/// STAT-25, SCN-C4: exactly one ready sandbox, the newest, in the right network and with an address, can be used; what
/// else there is, is said in so many words.
#[test]
fn a_sandbox_is_usable_or_the_condition_says_why_not() {
    let dead = |id: &str, attempt| Sandbox { ready: false, ..sandbox(id, attempt) };
    let no_address = Sandbox { ips: Vec::new(), ..sandbox("a", 0) };
    let on_host = Sandbox { host_network: true, ips: Vec::new(), ..sandbox("a", 0) };
    for (name, host_network, sandboxes, expected) in [
        ("none", false, vec![], Some("no sandbox has been created")),
        ("one", false, vec![sandbox("a", 0)], None),
        ("an older one is dead", false, vec![dead("a", 0), sandbox("b", 1)], None),
        ("listed the other way round", false, vec![sandbox("b", 1), dead("a", 0)], None),
        ("two ready", false, vec![sandbox("a", 0), sandbox("b", 1)], Some("several sandboxes are ready")),
        ("dead", false, vec![dead("a", 0)], Some("the newest sandbox is not ready")),
        ("the newest is dead", false, vec![sandbox("a", 0), dead("b", 1)], Some("the newest sandbox is not ready")),
        ("no address", false, vec![no_address.clone()], Some("the sandbox has no address")),
        (
            "host network not asked for",
            false,
            vec![on_host.clone()],
            Some("the sandbox is not in the network that the spec asks for"),
        ),
        ("host network", true, vec![on_host], None),
        (
            "own network not asked for",
            true,
            vec![sandbox("a", 0)],
            Some("the sandbox is not in the network that the spec asks for"),
        ),
        (
            "host network, no address",
            true,
            vec![no_address],
            Some("the sandbox is not in the network that the spec asks for"),
        ),
    ] {
        let mut world = World::with_spec(&format!("  hostNetwork: {host_network}\n{ONE}"));
        world.observed.sandboxes = sandboxes;
        world.hold(|_| true).plan_once();
        let condition = world.condition(ConditionType::PodReadyToStartContainers);
        assert_eq!(condition.message.as_deref(), expected, "{name}");
        assert_eq!(world.holds(ConditionType::PodReadyToStartContainers), expected.is_none(), "{name}");
        let asks_for_image = matches!(world.since(0).as_slice(), [Operation::EnsureImage { .. }]);
        assert_eq!(asks_for_image, expected.is_none(), "{name}: {:?}", world.since(0));
    }
}

/// PROC-3, STAT-25, SIDE-12: of two ready sandboxes neither is trusted: containers are stopped, both are stopped, then
/// removed, and a new one is made.
#[test]
fn duplicate_sandboxes_are_replaced() {
    let mut world = World::with_spec(ONE);
    world.settle().seconds(5);
    world.observed.sandboxes.push(sandbox("stray", 7));
    let mark = world.mark();
    world.settle();
    let done = world.since(mark);
    assert_eq!(
        kinds(&done),
        ["Stop", "StopSandbox", "StopSandbox", "RemoveSandbox", "RemoveSandbox", "CreateSandbox", "Launch"]
    );
    assert!(
        matches!(done[0], Operation::Stop { reason: KillReason::SandboxGone, timeout, .. } if *timeout == Duration::from_secs(30))
    );
    assert!(world.saw_event("SandboxChanged", ""));
    assert_eq!(world.observed.sandboxes.len(), 1);
    assert_eq!(world.running(), ["c"].into());
    assert_eq!(world.container("c").restart_count, 1);
}

/// PROC-3, EVT-6, STAT-17: a sandbox that dies takes its containers with it; the next one has the next attempt number,
/// and the pod is pending until it has started again.
#[test]
fn a_dead_sandbox_is_replaced_by_the_next_attempt() {
    let mut world = World::with_spec(&format!("  initContainers: [{{name: i, image: \"tool:1\"}}]\n{ONE}"));
    world.observed.sandboxes.push(sandbox("inherited", 3));
    world.settle().exit("i", 0);
    assert!(world.holds(ConditionType::Initialized));
    assert_eq!(world.status().pod_ip.as_deref(), Some("10.1.1.1"));
    world.observed.sandboxes[0].ready = false;
    world.hold(|operation| matches!(operation, Operation::Stop { .. } | Operation::CreateSandbox { .. })).settle();
    assert_eq!(world.status().pod_ip, None, "the address is gone with the sandbox");
    assert_eq!(world.stage(), Stage::Live);
    assert!(kinds(&world.since(0)).iter().all(|kind| kind != "RemoveSandbox"), "not before its containers are stopped");
    let stop = world.in_flight().remove(0);
    world.finish(stop.0);
    world.settle();
    assert!(world.saw_event("SandboxChanged", ""));
    assert_eq!(world.in_flight().remove(0).1, Operation::CreateSandbox { attempt: 4 });
    world.release();
    assert_eq!(world.running(), ["i"].into());
    assert_eq!(world.status().phase, Phase::Pending, "a regular container of the old sandbox does not count");
    world.exit("i", 0);
    assert_eq!(world.running(), ["c"].into());
    assert_eq!(world.status().phase, Phase::Running);
    assert_eq!(times(&world, "PrepareVolumes").len(), 1, "volumes are in place until the node reboots");
    assert_eq!(world.events.iter().filter(|(reason, _)| reason == "SandboxChanged").count(), 1);
}

/// PROC-3: an attempt number that was used, if only in vain, is not used again.
#[test]
fn attempt_numbers_never_go_back() {
    let mut world = World::with_spec(ONE);
    world.observed.sandboxes.push(sandbox("inherited", 3));
    world.evidence.durable.sandbox_attempts = 6;
    world.settle();
    world.observed.sandboxes[0].ready = false;
    world.settle();
    assert_eq!(world.observed.sandboxes[0].attempt, 6);
}

/// PROC-3: a launch in flight is waited for before its sandbox is cleared away.
#[test]
fn a_sandbox_is_not_removed_under_a_launch() {
    let mut world = World::with_spec(ONE);
    world.hold(|operation| matches!(operation, Operation::Launch { .. })).settle();
    world.observed.sandboxes[0].ready = false;
    let mark = world.mark();
    world.settle();
    assert!(world.since(mark).is_empty());
    world.release();
    assert_eq!(kinds(&world.since(mark)), ["Stop", "RemoveSandbox", "CreateSandbox", "Launch"]);
}

/// STAT-25, API-22: with the host's network a sandbox has no address of its own; with its own network the pod shows
/// all of its addresses.
#[test]
fn addresses_are_those_of_the_sandbox() {
    let mut world = World::with_spec(&format!("  hostNetwork: true\n{ONE}"));
    world.settle();
    assert_eq!(world.running(), ["c"].into());
    assert_eq!((&world.status().pod_ip, world.status().pod_ips.len()), (&None, 0));
    let mut world = World::with_spec(ONE);
    world
        .observed
        .sandboxes
        .push(Sandbox { ips: vec!["10.0.0.9".to_owned(), "fd00::9".to_owned()], ..sandbox("a", 0) });
    world.settle();
    assert_eq!(world.status().pod_ip.as_deref(), Some("10.0.0.9"));
    let ips = ["10.0.0.9", "fd00::9"].map(|ip| PodIp { ip: ip.to_owned() });
    assert_eq!(world.status().pod_ips, ips);
    world.delete(30);
    assert_eq!(world.status().pod_ips, ips, "still known at the end");
}

/// PROC-3, RULE-11, DEF-25: a pod in which nothing may run again is not rebuilt, and does not look alive either.
#[test]
fn a_pod_with_nothing_left_to_run_is_not_rebuilt() {
    let mut world = World::with_spec(&format!("  restartPolicy: Never\n{ONE}"));
    world.settle();
    world.observed.sandboxes[0].ready = false;
    world.exit_only("c", 0);
    let mark = world.mark();
    world.settle();
    assert_eq!((world.stage(), world.status().phase), (Stage::Ended, Phase::Succeeded));
    assert!(world.since(mark).is_empty(), "{:?}", world.since(mark));
    let mut world = World::with_spec(
        "  restartPolicy: Never\n  initContainers: [{name: i, image: x}]\n  containers: [{name: c, image: x}]\n",
    );
    world.settle();
    world.observed.sandboxes[0].ready = false;
    world.running_instance("i").state = InstanceState::Unknown;
    world.settle();
    assert_eq!((world.stage(), world.status().phase), (Stage::Ended, Phase::Failed));
    assert!(world.launches("c").is_empty());
}

/// PROC-3, TERM-1: a sandbox that cannot be stopped or removed is tried again, and the pod is not gone before.
#[test]
fn a_sandbox_that_cannot_be_cleared_away_is_tried_again() {
    let mut world = World::with_spec(ONE);
    world.settle().fail("StopSandbox", "Busy").delete(30);
    assert_eq!(world.stage(), Stage::Ending);
    assert!(world.saw_event("FailedKillPod", "Busy"));
    world.seconds(3);
    assert_eq!(times(&world, "StopSandbox"), [0, 1, 3]);
    world.failing.clear();
    world.fail("RemoveSandbox", "Busy").seconds(4);
    assert_eq!((world.stage(), world.status().phase), (Stage::Ended, Phase::Failed));
    world.failing.clear();
    world.seconds(10);
    assert_eq!(world.stage(), Stage::Gone);
}

/// DIR-6: the runtime says what is missing of a sandbox. The condition repeats it, volumes are prepared again,
/// and the sandbox is replaced.
#[test]
fn a_lost_sandbox_is_replaced_and_the_reason_is_kept() {
    let mut world = World::with_spec(ONE);
    world.settle().seconds(5);
    let mark = world.mark();
    world.observed.sandboxes[0].ready = false;
    world.observed.sandboxes[0].lost = Some("its interface kl0 is gone".to_owned());
    world.hold(|operation| matches!(operation, Operation::Stop { .. })).settle();
    let message = world.condition(ConditionType::PodReadyToStartContainers).message.clone();
    assert_eq!(message.as_deref(), Some("the newest sandbox is not ready: its interface kl0 is gone"));
    world.release();
    world.settle();
    assert_eq!(
        kinds(&world.since(mark)),
        ["Stop", "RemoveSandbox", "PrepareVolumes", "CreateSandbox", "Launch"],
        "volumes may be gone with the rest"
    );
    assert_eq!(world.running(), ["c"].into());
}
