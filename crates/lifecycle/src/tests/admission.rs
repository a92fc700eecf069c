//! Pods that do not fit on the node.

use crate::{Stage, evidence::Admission, observed::Objection, status::Phase};

use super::world::World;

const SPEC: &str = "  containers: [{name: a, image: 'app:1'}]\n";

fn too_large() -> Option<Objection> {
    let message = "Node didn't have enough resource: cpu, requested: 4000, used: 0, capacity: 2000".to_owned();
    Some(Objection { reason: "OutOfcpu", message })
}

/// CLU-20: Failed with the kubelet's reason and message, and nothing is started.
#[test]
fn a_pod_that_does_not_fit_is_rejected() {
    let mut world = World::with_spec(SPEC);
    world.observed.objection = too_large();
    world.settle();
    assert_eq!((world.status().phase, world.stage()), (Phase::Failed, Stage::Ended));
    assert_eq!(world.status().reason.as_deref(), Some("OutOfcpu"));
    let message = world.status().message.as_deref();
    let expected = "Pod was rejected: Node didn't have enough resource: cpu, requested: 4000, used: 0, capacity: 2000";
    assert_eq!(message, Some(expected));
    assert!(world.started.is_empty() && world.saw_event("OutOfcpu", "Pod was rejected"));
    // There is no way back, also if there is room later.
    world.observed.objection = None;
    world.restart_agent();
    world.settle();
    assert_eq!(world.status().phase, Phase::Failed);
}

/// CLU-20: a pod that runs is not turned away for what a new agent thinks of it, also if that has no record of its admission.
#[test]
fn a_pod_that_runs_is_never_turned_away() {
    let mut world = World::with_spec(SPEC);
    world.settle();
    world.observed.objection = too_large();
    world.restart_agent();
    world.settle();
    assert_eq!(world.running(), ["a"].into());
    world.evidence.durable.admission = Admission::Undecided;
    world.settle();
    assert_eq!((world.running(), &world.evidence.durable.admission), (["a"].into(), &Admission::Admitted));
}
