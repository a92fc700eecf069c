//! Init containers and sidecars over the lifetime of a pod (SIDE-4, SIDE-5, SIDE-11, SIDE-12).

use std::time::Duration;

use keelet_pod::ProbeKind;

use super::world::World;
use crate::{
    operation::{KillReason, Operation, Outcome},
    status::{ConditionType, Phase},
};

const ORDINARY: &str = "[{name: i1, image: x}, {name: i2, image: x}, {name: i3, image: x}]";
const PLAIN_SIDECARS: &str =
    "[{name: s1, image: x, restartPolicy: Always}, {name: s2, image: x, restartPolicy: Always}]";
const MIXED: &str = "[{name: i1, image: x}, {name: s1, image: x, restartPolicy: Always}, {name: i2, image: x}]";

/// SIDE-5, SCN-S7: a sidecar that cannot be started holds up what comes after it, and nothing of a pod that is
/// initialized already; an ordinary init container that cannot be started holds up everything.
#[test]
fn a_failed_start_holds_up_only_what_waits_for_it() {
    let mut world =
        World::with_spec(&format!("\n  initContainers: {PLAIN_SIDECARS}\n  containers: [{{name: c1, image: x}}]\n"));
    world.fail("Launch { container: \"s2\"", "RunContainerError").settle();
    assert_eq!(world.running(), ["s1"].into());
    assert_eq!(world.waiting_reason("s2"), Some("RunContainerError"));
    world.failing.clear();
    world.seconds(2);
    assert_eq!(world.running(), ["c1", "s1", "s2"].into());
    world.fail("Launch { container: \"s2\"", "RunContainerError");
    world.exit_only("s2", 1).exit("c1", 1);
    assert_eq!(world.running(), ["c1", "s1"].into(), "the regular container does not wait for the sidecar");
    let mut world =
        World::with_spec(&format!("\n  initContainers: {ORDINARY}\n  containers: [{{name: c1, image: x}}]\n"));
    world.fail("Launch { container: \"i1\"", "CreateContainerError").seconds(120);
    assert_eq!(world.running(), [].into());
    assert!(world.launches("i1").len() > 5);
}

/// SIDE-12, SCN-S16, SIDE-2: a regular container that restarts does not rerun init containers; a new sandbox does,
/// all of them and in order.
#[test]
fn only_a_new_sandbox_reruns_init_containers() {
    let mut world = World::with_spec(&format!("\n  initContainers: {MIXED}\n  containers: [{{name: c1, image: x}}]\n"));
    world.settle().exit("i1", 0).exit("i2", 0);
    let before = world.mark();
    world.seconds(5).exit("c1", 1);
    let launched: Vec<_> = world.since(before).into_iter().filter_map(Operation::container).collect();
    assert_eq!(launched, ["c1", "c1"], "an image check and a launch");
    let before = world.mark();
    world.seconds(5).reboot().settle();
    assert_eq!(world.running(), ["i1"].into());
    world.exit("i1", 0);
    assert_eq!(world.running(), ["i2", "s1"].into());
    world.exit("i2", 0);
    assert_eq!(world.running(), ["c1", "s1"].into());
    let launches = world.since(before).into_iter().filter_map(|operation| match operation {
        Operation::Launch { container, attempt, .. } => Some((container.as_str(), *attempt)),
        _ => None,
    });
    assert_eq!(launches.collect::<Vec<_>>(), [("i1", 1), ("s1", 1), ("i2", 1), ("c1", 2)]);
}

/// SIDE-11, SYNC-5: of the dead instances of a container only the newest is kept.
#[test]
fn older_dead_instances_are_removed() {
    let mut world = World::with_spec(&format!("\n  initContainers: {MIXED}\n  containers: [{{name: c1, image: x}}]\n"));
    world.settle().exit("i1", 1).exit("i1", 1).seconds(60);
    let dead = |world: &World, name: &str| -> Vec<u32> {
        let all = world.observed.containers.iter().filter(|instance| instance.name == name && !instance.may_run());
        all.map(|instance| instance.attempt).collect()
    };
    assert_eq!(dead(&world, "i1"), [1], "and attempt 2 runs");
    world.exit("i1", 0).exit("i2", 0);
    for _ in 0..3 {
        world.exit("s1", 1).exit("c1", 1).seconds(300);
    }
    assert_eq!((dead(&world, "s1"), dead(&world, "c1")), (vec![2], vec![2]));
    assert_eq!(dead(&world, "i1"), [2], "the successful one is kept");
    assert_eq!(world.container("s1").restart_count, 3);
}

/// SIDE-4, SIDE-5, SCN-S10, SCN-S12, PROBE-30: a sidecar whose startup probe fails is stopped within the probe's grace
/// period and started again, and the next one starts once it recovers.
#[test]
fn a_sidecar_that_fails_its_startup_is_restarted_until_it_passes() {
    let mut world = World::with_spec(
        "
  terminationGracePeriodSeconds: 60
  initContainers:
  - name: s1
    image: x
    restartPolicy: Always
    lifecycle: {preStop: {exec: {command: [bye]}}}
    startupProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 7}
  containers: [{name: c1, image: x}]
",
    );
    world.answer("s1", ProbeKind::Startup, Outcome::Failure).settle();
    let id = world.id("s1");
    let before = world.mark();
    world.seconds(1);
    let grace = Duration::from_secs(7);
    let reason = KillReason::Probe(ProbeKind::Startup);
    assert_eq!(
        world.since(before)[..2],
        [
            &Operation::PreStop { container: "s1".to_owned(), id: id.clone(), timeout: grace },
            &Operation::Stop { container: "s1".to_owned(), id, timeout: grace, reason }
        ]
    );
    assert!(world.saw_event("Killing", "Init container s1 failed startup probe"));
    assert_eq!(world.running(), ["s1"].into(), "the first restart is immediate");
    assert!(world.launches("c1").is_empty());
    world.answer("s1", ProbeKind::Startup, Outcome::Success).seconds(1);
    assert_eq!(world.running(), ["c1", "s1"].into());
    assert_eq!(world.container("s1").restart_count, 1);
}

/// PROC-1, PROC-2: one plan takes the result, judges the phase by it, says so, and starts what it allows; nothing lags
/// a plan behind, and what is started goes by the status of this very plan.
#[test]
fn one_plan_takes_a_result_and_draws_every_conclusion() {
    let mut world = World::with_spec(
        "
  initContainers:
  - {name: s1, image: x, restartPolicy: Always, startupProbe: {tcpSocket: {port: 1}, periodSeconds: 1}}
  containers: [{name: c1, image: \"x:1\"}]
",
    );
    world.hold(|operation| !matches!(operation, Operation::PrepareVolumes | Operation::CreateSandbox { .. })).settle();
    for kind in ["EnsureImage", "Launch", "Probe"] {
        let mut flying = world.in_flight();
        assert!(
            matches!(flying.as_slice(), [(_, operation)] if format!("{operation:?}").starts_with(kind)),
            "{flying:?}"
        );
        assert_eq!(world.container("s1").started, Some(false));
        assert!(!world.holds(ConditionType::Initialized));
        world.finish(flying.remove(0).0);
        if kind != "Probe" {
            world.settle();
        }
    }
    let (mark, version) = (world.mark(), world.plan.as_ref().unwrap().version);
    let plan = world.plan_once();
    assert_eq!(world.container("s1").started, Some(true));
    assert!(world.holds(ConditionType::Initialized));
    assert_eq!((plan.version, plan.status.phase), (version + 1, Phase::Pending));
    assert!(matches!(world.since(mark).as_slice(), [Operation::EnsureImage { container, .. }] if container == "c1"));
    assert_eq!(plan.evidence.durable.published, Some(plan.status), "what is said is remembered with what is done");
}
