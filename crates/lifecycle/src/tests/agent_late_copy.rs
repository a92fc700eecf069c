//! An API server that is reached minutes after the agent has begun to act: what its copy may still change.

use keelet_pod::ProbeKind;

use super::world::World;
use crate::{
    Because, Wall,
    observed::{Before, Known},
    operation::{Operation, Outcome},
    probe::Basis,
    status::{ConditionType, PodStatus, Truth},
};

/// A readiness probe that is seldom due: five minutes after a start it has not been asked again.
const SELDOM: &str = "readinessProbe: {exec: {command: [up]}, periodSeconds: 900}";
const OFTEN: &str = "readinessProbe: {exec: {command: [up]}, periodSeconds: 5, failureThreshold: 1}";

fn ready(probe: &str) -> World {
    let mut world = World::with_spec(&format!("\n  containers:\n  - {{name: main, image: app, {probe}}}\n"));
    world.seconds(20);
    assert_eq!(world.bits("main"), (true, true));
    world
}

fn is_probe(operation: &Operation) -> bool {
    matches!(operation, Operation::Probe { .. })
}

/// The status as another writer left it: Ready is False, since a second ago.
fn overwritten(world: &World) -> PodStatus {
    let mut copy = world.status().clone();
    let condition = copy.conditions.iter_mut().find(|condition| condition.kind == ConditionType::Ready).unwrap();
    condition.status = Truth::False;
    condition.last_transition_time = Some(Wall::from_millis(world.now.wall.as_millis() - 1_000).whole_seconds());
    copy
}

// === impl World ===

impl World {
    /// The agent is killed and started again, and does not reach the API server.
    fn restart_cut_off(&mut self) -> &mut Self {
        self.observed.agent.before = Before::Cluster(Known::NotAskedYet);
        self.restart_agent()
    }

    /// The API server is reached.
    fn reach(&mut self, known: Known) -> &mut Self {
        self.observed.agent.before = Before::Cluster(known);
        self.settle()
    }
}

/// KEEP-26, KEEP-14: another writer set Ready to False while the agent was away, and the agent reaches the API server five
/// minutes after its start. Until then the ledger's word counts; then what no probe has shown since is doubted, once.
#[test]
fn a_foreign_write_is_noticed_when_the_api_server_is_reached() {
    let mut world = ready(SELDOM);
    world.away(100_000);
    let (copy, seen) = (overwritten(&world), world.statuses.len());
    world.hold(is_probe).restart_cut_off().seconds(300);
    assert_eq!(world.statuses.len(), seen, "not reached is not overwritten");
    assert_eq!(world.bits("main"), (true, true));
    world.reach(Known::Copy(Box::new(copy.clone())));
    assert_eq!(world.bits("main"), (true, false));
    let written = copy.condition(&ConditionType::Ready).unwrap().last_transition_time.unwrap();
    let basis = Basis::LateForeignWrite { written, seen: world.now };
    assert_eq!(*world.why_ready("main"), Because::Carried { probe: ProbeKind::Readiness, passed: false, basis });
    assert_eq!(world.condition(ConditionType::Ready).last_transition_time, Some(written), "it has not changed since");
    world.release();
    assert_eq!(world.bits("main"), (true, true), "one success is enough");
    // Heeded once, by the next run as well.
    let seen = world.statuses.len();
    world.hold(is_probe).seconds(1).restart_in_cluster(Some(copy)).seconds(5);
    assert_eq!(world.statuses.len(), seen);
}

/// KEEP-26: a probe that has passed under this run says more than what another writer said before. The pod stays ready, and
/// others get to see that.
#[test]
fn a_foreign_write_does_not_outweigh_a_probe_of_this_run() {
    let mut world = ready(OFTEN);
    world.away(100_000);
    let copy = overwritten(&world);
    world.restart_cut_off().seconds(300);
    let version = world.plan.as_ref().unwrap().version;
    world.reach(Known::Copy(Box::new(copy)));
    assert_eq!(world.bits("main"), (true, true));
    assert!(world.holds(ConditionType::Ready));
    assert_eq!(world.condition(ConditionType::Ready).last_transition_time, Some(world.now.wall.whole_seconds()));
    assert_eq!(world.plan.as_ref().unwrap().version, version + 1, "others see Ready=False until they get ours");
}

/// KEEP-26: "has none" is an answer, and changes nothing; nor does an older status of ours, however often Ready has changed
/// while the API server could not be reached.
#[test]
fn no_copy_and_an_old_copy_of_ours_are_no_foreign_writes() {
    let mut world = ready(OFTEN);
    let ours = world.status().clone();
    world.seconds(1).restart_cut_off();
    for round in 0..12 {
        let outcome = if round % 2 == 0 { Outcome::Failure } else { Outcome::Success };
        world.answer("main", ProbeKind::Readiness, outcome).seconds(5);
    }
    assert_eq!(world.bits("main"), (true, true));
    // Two runs later it is still the copy from before that has to be compared.
    world.hold(is_probe).seconds(1).restart_cut_off();
    for known in [Known::NoCopy, Known::Copy(Box::new(ours))] {
        let seen = world.statuses.len();
        world.reach(known);
        assert_eq!(world.statuses.len(), seen);
        assert_eq!(world.bits("main"), (true, true));
        world.restart_cut_off();
    }
}

/// KEEP-26, KEEP-23: the ledger is lost and the API server is away. What a probe has not shown by the time that the copy comes is
/// taken from the copy; restart counts do not fall, and the pod's start is the one that others know.
#[test]
fn a_lost_ledger_is_made_up_for_by_a_late_copy() {
    let mut world = ready(SELDOM);
    world.exit("main", 1).seconds(60);
    assert_eq!((world.bits("main"), world.container("main").restart_count), ((true, true), 1));
    let (copy, id) = (world.status().clone(), world.id("main"));
    world.hold(is_probe).away(20_000).lose_ledger().restart_cut_off().seconds(300);
    assert_eq!(world.bits("main"), (true, false), "nothing is known of its readiness");
    let mark = world.mark();
    world.reach(Known::Copy(Box::new(copy.clone())));
    assert_eq!(world.bits("main"), (true, true));
    assert_eq!((world.id("main"), world.container("main").restart_count), (id, 1));
    assert_eq!(world.status().start_time, copy.start_time);
    let ready = |status: &PodStatus| status.condition(&ConditionType::Ready).cloned();
    assert_eq!(ready(world.status()), ready(&copy), "others see no change of Ready");
    assert!(world.since(mark).into_iter().all(is_probe), "{:?}", world.since(mark));
}

/// RALL-9: without a publisher nothing waits for an acknowledgement: the plan that begins a restart of all containers stops
/// them, and no plan is needed in between.
#[test]
fn a_status_that_nothing_has_to_acknowledge_is_acted_upon_at_once() {
    use crate::observed::{Acknowledged, RestartRequest};
    for (acknowledged, at_once) in [(Acknowledged::NotNeeded, true), (Acknowledged::UpTo(0), false)] {
        let mut world = World::with_spec("\n  containers:\n  - {name: main, image: app}\n");
        world.seconds(20).hold(|operation| matches!(operation, Operation::Stop { .. }));
        world.observed.acknowledged = acknowledged;
        world.observed.restart_request = Some(RestartRequest { id: "r".to_owned(), by: "root".to_owned() });
        let plan = world.plan_once();
        assert!(plan.status.is_true(&ConditionType::AllContainersRestarting));
        assert_eq!(world.in_flight().iter().any(|(_, operation)| matches!(operation, Operation::Stop { .. })), at_once);
    }
}
