//! Readiness gates of the node, on a node of its own.

use crate::{
    evidence::GateHold,
    observed::PendingGate,
    plan::Because,
    status::{ConditionType, Phase},
};

use super::world::World;

const SPEC: &str = "  containers: [{name: a, image: 'app:1'}]\n";

fn gate() -> Vec<PendingGate> {
    vec![PendingGate {
        taint: "readiness.k8s.io/CNIReady:NoSchedule".to_owned(),
        waits_for: "condition CNIReady is Unknown (ProbePending)".to_owned(),
    }]
}

/// GATE-24: nothing of the pod is started, its status says which gate holds it and what that waits for; it starts when the gate opens.
#[test]
fn a_pod_that_does_not_tolerate_a_pending_gate_waits_and_says_so() {
    let mut world = World::with_spec(SPEC);
    world.observed.pending_gates = gate();
    world.seconds(60);
    assert!(world.started.is_empty(), "{:?}", world.started);
    assert_eq!((world.status().phase, world.waiting_reason("a")), (Phase::Pending, Some("NodeGatePending")));
    let scheduled = world.condition(ConditionType::PodScheduled).clone();
    assert_eq!(scheduled.reason.as_deref(), Some("Unschedulable"));
    let message = scheduled.message.expect("a message");
    assert!(message.contains("readiness.k8s.io/CNIReady:NoSchedule") && message.contains("ProbePending"), "{message}");
    let why = &world.plan.as_ref().expect("planned").why;
    assert!(
        why.iter().any(|why| matches!(&why.because, Because::NodeGates { pending, .. } if *pending == gate())),
        "{why:?}"
    );
    assert_eq!(world.events.iter().filter(|(reason, _)| reason == "NodeGatePending").count(), 1, "{:?}", world.events);

    world.observed.pending_gates.clear();
    world.settle();
    assert_eq!(world.running(), ["a"].into());
    assert!(world.holds(ConditionType::PodScheduled) && world.saw_event("NodeGatePassed", "have passed"));
}

/// GATE-24, GATE-19: a pod that has begun to start is not held back again, whatever the gates do: not while it runs, not between two of its runs, not
/// by an agent that learns of a gate later.
#[test]
fn a_pod_that_runs_is_never_stopped_by_a_gate() {
    let mut world = World::with_spec(SPEC);
    world.settle();
    assert_eq!(world.running(), ["a"].into());
    world.observed.pending_gates = gate();
    world.restart_agent();
    world.settle();
    assert_eq!(world.running(), ["a"].into());
    world.exit("a", 1);
    world.seconds(1);
    assert_eq!(world.running(), ["a"].into(), "it is restarted although the gate is pending");
    // One that an agent without gates has started.
    world.evidence.volatile.gate_hold = GateHold::Undecided;
    world.settle();
    assert_eq!((world.running(), world.evidence.volatile.gate_hold), (["a"].into(), GateHold::Released));
}

/// GATE-24: gates hold for one boot, so a pod that ran before a reboot waits for them again.
#[test]
fn after_a_reboot_a_pod_waits_for_the_gates_again() {
    let mut world = World::with_spec(SPEC);
    world.settle();
    world.observed.pending_gates = gate();
    world.reboot();
    world.seconds(30);
    assert!(world.running().is_empty(), "{:?}", world.running());
    world.observed.pending_gates.clear();
    world.seconds(30);
    assert_eq!(world.running(), ["a"].into());
}

/// GATE-24: a pod that is held back can be deleted.
#[test]
fn a_pod_that_is_held_back_can_be_deleted() {
    let mut world = World::with_spec(SPEC);
    world.observed.pending_gates = gate();
    world.seconds(5);
    world.delete(1);
    world.seconds(5);
    assert_eq!(world.stage(), crate::Stage::Gone);
    assert!(world.launches("a").is_empty());
}
