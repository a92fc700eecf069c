//! Sandboxes that break down or lose a part.

use keelet_lifecycle::status::{ConditionType, ContainerState};
use keelet_pod::ProbeKind;
use keelet_sim::{Loss, World, millis, secs};

const SPEC: &str = "  containers:
  - name: main
    image: app
    livenessProbe: {tcpSocket: {port: 8081}, periodSeconds: 10, failureThreshold: 3}
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 5, failureThreshold: 1}
  - {name: helper, image: app}
";

fn running() -> World {
    let mut world = World::new(1).pod(SPEC).build();
    world.run(secs(20));
    assert!(world.holds(ConditionType::Ready), "{}", world.timeline_text());
    world
}

/// The pod is whole again in another sandbox than this one, and each container was started once more.
fn is_replaced(world: &World, before: &str) {
    assert_ne!(world.sandbox().as_deref(), Some(before), "{}", world.timeline_text());
    assert!(world.holds(ConditionType::Ready), "{}", world.timeline_text());
    for name in ["main", "helper"] {
        assert_eq!((world.starts(name), world.container(name).restart_count), (2, 1), "{}", world.timeline_text());
    }
}

/// DIR-6: the runtime notices that the files or the network of a sandbox are gone. The agent repeats what is missing, ends
/// the containers that still run, and replaces the sandbox.
#[test]
fn a_sandbox_that_lost_a_part_is_replaced() {
    for (loss, missing) in [(Loss::Network, "its network is gone"), (Loss::Files, "its files are gone")] {
        let mut world = running();
        let before = world.sandbox().expect("a ready sandbox");
        world.script("main").ignores_term();
        world.damage_sandbox("web", loss, millis(0));
        let told = |world: &World| {
            let condition = world.condition(&ConditionType::PodReadyToStartContainers);
            condition.message.is_some_and(|message| message.ends_with(missing))
        };
        assert!(world.run_until(secs(5), told), "{}", world.timeline_text());
        assert!(matches!(world.container("main").state, ContainerState::Running(_)), "{}", world.timeline_text());
        world.settle();
        is_replaced(&world, &before);
    }
}

/// DIR-6: until the runtime notices that a network is gone, the probes over it fail, and nothing else changes.
#[test]
fn probes_fail_over_a_network_that_is_gone_until_it_is_noticed() {
    let mut world = running();
    let (before, lost) = (world.sandbox().expect("a ready sandbox"), world.elapsed());
    world.damage_sandbox("web", Loss::Network, secs(15)).run(secs(12));
    assert_eq!((world.sandbox().as_ref(), world.starts("main")), (Some(&before), 1), "{}", world.timeline_text());
    assert!(!world.holds(ConditionType::Ready), "{}", world.timeline_text());
    let probes = world.probes("main", ProbeKind::Readiness, lost);
    assert!(probes.iter().all(|(_, attempt)| !attempt.reply.passes()), "{}", world.timeline_text());
    world.settle();
    is_replaced(&world, &before);
}

/// PROC-3: a sandbox that breaks down takes its containers along, and is replaced.
#[test]
fn a_sandbox_that_breaks_down_is_replaced() {
    let mut world = running();
    let before = world.sandbox().expect("a ready sandbox");
    world.break_sandbox("web").settle();
    is_replaced(&world, &before);
}
