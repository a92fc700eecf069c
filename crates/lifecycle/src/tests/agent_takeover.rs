//! Which evidence counts at an agent start: the ledger, the API server's copy, or none.

use keelet_pod::ProbeKind;

use super::world::World;
use crate::{
    Because, Wall,
    observed::InstanceState,
    operation::{Operation, Outcome},
    plan::Subject,
    probe::Basis,
    status::{ConditionType, ContainerState, Phase, PodStatus, Truth},
};

const NONE: &str = "";
const READINESS: &str = "readinessProbe: {exec: {command: [up]}, periodSeconds: 5}";
const BOTH: &str = "startupProbe: {exec: {command: [up]}, periodSeconds: 5, failureThreshold: 30}, \
                    readinessProbe: {exec: {command: [up]}, periodSeconds: 5}, \
                    livenessProbe: {exec: {command: [up]}, periodSeconds: 5, failureThreshold: 1}";

fn pod(probes: &str) -> World {
    let mut world = World::with_spec(&format!(
        "\n  containers:\n  - {{name: main, image: app, {probes}}}\n  - {{name: more, image: app, {READINESS}}}\n"
    ));
    world.seconds(20);
    assert_eq!((world.bits("main"), world.bits("more")), ((true, true), (true, true)));
    world
}

fn is_probe(operation: &Operation) -> bool {
    matches!(operation, Operation::Probe { .. })
}

/// The status as another client left it: Ready with this value, since a second ago.
fn with_ready(world: &World, ready: Truth) -> PodStatus {
    let mut copy = world.status().clone();
    let condition = copy.conditions.iter_mut().find(|condition| condition.kind == ConditionType::Ready).unwrap();
    condition.status = ready;
    condition.last_transition_time = Some(Wall::from_millis(world.now.wall.as_millis() - 1_000).whole_seconds());
    copy
}

/// Another agent has replaced the container, so many seconds ago.
fn replace(world: &mut World, name: &str, seconds: i64) {
    let started_at = Wall::from_millis(world.now.wall.as_millis() - 1_000 * seconds);
    let instance = world.running_instance(name);
    instance.id.push_str("-theirs");
    instance.attempt += 1;
    instance.created_at = started_at;
    instance.state = InstanceState::Running { started_at };
}

/// KEEP-9, KEEP-10, KEEP-11, KEEP-17, KEEP-23, CON-4, CON-6: the ledger is lost. Started comes from each container's
/// own status, ready from the pod's Ready condition where there is a readiness probe. Counts and times are kept, and
/// nothing is started again.
#[test]
fn without_a_ledger_the_api_copy_decides() {
    for (probes, ready, main) in [
        (NONE, true, (true, true)),
        (NONE, false, (true, true)),
        (READINESS, true, (true, true)),
        (READINESS, false, (true, false)),
        (BOTH, true, (true, true)),
        (BOTH, false, (true, false)),
    ] {
        let mut world = pod(probes);
        world.exit("main", 7).seconds(20);
        if !ready {
            world.answer("more", ProbeKind::Readiness, Outcome::Failure).seconds(20);
        }
        assert_eq!(world.bits("main"), (true, true));
        let (copy, mark) = (world.status().clone(), world.mark());
        world.hold(is_probe).away(1_000).lose_ledger().restart_in_cluster(Some(copy.clone())).seconds(5);
        assert_eq!(world.bits("main"), main, "{probes}, Ready {ready}");
        assert_eq!(world.bits("more"), (true, ready));
        if main == (true, true) {
            assert_eq!(*world.status(), copy, "{probes}");
        }
        assert_eq!(world.status().start_time, copy.start_time);
        let (now, before) = (world.container("main"), copy.container("main").unwrap());
        assert_eq!((now.restart_count, &now.last_state), (1, &before.last_state));
        assert_eq!((&now.state, &now.container_id), (&before.state, &before.container_id));
        for condition in &copy.conditions {
            let same = world.condition(condition.kind.clone());
            if same.status == condition.status {
                assert_eq!(same.last_transition_time, condition.last_transition_time, "{:?}", condition.kind);
            }
        }
        assert!(world.since(mark).is_empty(), "{:?}", world.since(mark));
        world.answer("more", ProbeKind::Readiness, Outcome::Success).release();
        assert_eq!(world.bits("main"), (true, true), "one success is enough");
    }
}

/// KEEP-8, DEF-1, CON-10: started=false in the API server's copy stays false, and startup goes on.
#[test]
fn without_a_ledger_a_container_in_startup_stays_in_startup() {
    let mut world = pod(BOTH);
    world.answer("main", ProbeKind::Startup, Outcome::Failure).exit("main", 1).seconds(20);
    let copy = world.status().clone();
    let asked = world.probed_at("main", ProbeKind::Liveness).len();
    world.lose_ledger().restart_in_cluster(Some(copy)).seconds(20);
    assert_eq!(world.bits("main"), (false, false));
    assert_eq!(world.probed_at("main", ProbeKind::Liveness).len(), asked);
    world.answer("main", ProbeKind::Startup, Outcome::Success).seconds(5);
    assert_eq!(world.bits("main"), (true, true));
}

/// KEEP-20, CON-3: neither ledger nor API copy: running containers keep running, and readiness has to be probed. A
/// container that ran for more than 10 s before the agent started is not new and has started; a younger one has to pass
/// its startup probe, too. A container without probes is ready because it runs.
#[test]
fn with_nothing_known_readiness_has_to_be_shown() {
    for (cluster, age) in [(false, 10_000), (false, 10_001), (false, 100_000), (true, 10_000), (true, 100_000)] {
        let started = age > 10_000;
        for (probes, bits) in [(NONE, (true, true)), (READINESS, (true, false)), (BOTH, (started, false))] {
            let mut world = pod(probes);
            let (mark, id) = (world.mark(), world.id("main"));
            let asked = world.probed_at("main", ProbeKind::Liveness).len();
            world.hold(is_probe).lose_ledger();
            let started_at = Wall::from_millis(world.now.wall.as_millis() - age);
            world.running_instance("main").state = InstanceState::Running { started_at };
            if cluster {
                world.restart_in_cluster(None);
            } else {
                world.restart_agent();
            }
            world.seconds(5);
            assert_eq!(world.bits("main"), bits, "{age} ms old, {probes}");
            if !bits.0 {
                assert_eq!(world.probed_at("main", ProbeKind::Liveness).len(), asked);
            }
            let others: Vec<&Operation> = world.since(mark);
            assert!(others.iter().all(|operation| !operation.starts_container()), "{others:?}");
            world.release().seconds(10);
            assert_eq!(world.bits("main"), (true, true), "{probes}");
            assert_eq!(world.id("main"), id);
        }
    }
}

/// CON-3, PROBE-28: the ledger of a node of its own is lost. A container that ran for long is not killed because its startup
/// probe would fail now, and `why` says what is known of it: its age.
#[test]
fn a_lost_ledger_does_not_rerun_the_startup_of_a_long_running_container() {
    let mut world = pod(BOTH);
    world.seconds(3600);
    let (id, mark) = (world.id("main"), world.mark());
    world.answer("main", ProbeKind::Startup, Outcome::Failure).lose_ledger().restart_agent();
    let because = Because::Carried { probe: ProbeKind::Startup, passed: true, basis: Basis::Age };
    let why = &world.plan.as_ref().expect("a plan").why;
    let found = why.iter().find(|why| why.subject == Subject::Started("main".to_owned())).expect("a reason");
    assert_eq!(found.because, because);
    world.seconds(3600);
    assert_eq!((world.id("main"), world.container("main").restart_count), (id, 0), "killed by a rerun of its startup");
    assert_eq!(world.probes_since(mark, "main", ProbeKind::Startup), 0);
    assert_eq!(world.bits("main"), (true, true));
}

/// CON-3, KEEP-3, DEF-2: where an ID is known and the container has another one, it is another container: nothing is
/// carried over to it, however old it is.
#[test]
fn nothing_is_carried_over_to_another_container() {
    for ledger in [true, false] {
        let mut world = pod(BOTH);
        world.away(100_000);
        let copy = world.status().clone();
        replace(&mut world, "main", 60);
        let asked = world.probed_at("main", ProbeKind::Liveness).len();
        if !ledger {
            world.lose_ledger();
        }
        world.answer("main", ProbeKind::Startup, Outcome::Failure);
        world.restart_in_cluster(Some(copy)).seconds(20);
        assert_eq!(world.bits("main"), (false, false), "ledger {ledger}");
        assert_eq!(world.probed_at("main", ProbeKind::Liveness).len(), asked);
        assert_eq!(world.container("main").restart_count, 1);
        assert_eq!(world.bits("more"), (true, true));
    }
}

/// CON-3, KEEP-2, KEEP-12: only where no ID is known the clock decides: older than the agent start by more than
/// 10 s, or not.
#[test]
fn where_no_id_is_known_ten_seconds_decide() {
    for (age, known) in [(9_999, false), (10_000, false), (10_001, true), (100_000, true)] {
        let mut world = pod(BOTH);
        let mut copy = world.status().clone();
        copy.container_statuses[0].container_id = None;
        let started_at = Wall::from_millis(world.now.wall.as_millis() - age);
        world.running_instance("main").state = InstanceState::Running { started_at };
        world.hold(is_probe).lose_ledger().restart_in_cluster(Some(copy));
        assert_eq!(world.bits("main"), (known, known), "{age} ms old");
        assert_eq!(world.container("main").restart_count, 0);
    }
}

/// KEEP-14, SCN-K27, CON-4, CON-5: during a long outage the node controller has set Ready to False. What has a
/// readiness probe is unready until asked, and says why; started stays. A deletion of the condition does not count.
#[test]
fn a_ready_condition_of_another_client_makes_readiness_doubtful() {
    for (ready, lost) in [(Truth::False, false), (Truth::Unknown, false), (Truth::False, true)] {
        let mut world = pod(BOTH);
        world.hold(is_probe).away(100_000);
        let copy = with_ready(&world, ready);
        if lost {
            world.lose_volatile();
        }
        world.restart_in_cluster(Some(copy.clone()));
        for name in ["main", "more"] {
            assert_eq!(world.bits(name), (true, false), "{name}");
            let because = Because::Carried { probe: ProbeKind::Readiness, passed: false, basis: Basis::ForeignWrite };
            assert_eq!(*world.why_ready(name), because);
        }
        let theirs = copy.condition(&ConditionType::Ready).unwrap().last_transition_time;
        if ready == Truth::False {
            assert_eq!(world.condition(ConditionType::Ready).last_transition_time, theirs, "it has not changed since");
        }
        world.seconds(5).release();
        assert_eq!(world.bits("main"), (true, true));
        // Heeded once. The next restart finds the same copy if ours has not got through.
        let seen = world.statuses.len();
        world.hold(is_probe).millis(100).restart_in_cluster(Some(copy)).seconds(5);
        assert_eq!(world.statuses.len(), seen);
    }
    let mut world = pod(BOTH);
    let (mut copy, seen) = (world.status().clone(), world.statuses.len());
    copy.conditions.retain(|condition| condition.kind != ConditionType::Ready);
    world.hold(is_probe).millis(100).restart_in_cluster(Some(copy)).seconds(5);
    assert_eq!(world.statuses.len(), seen);
}

/// KEEP-11: a pod without readiness probes takes Ready back at once, and once.
#[test]
fn a_pod_without_readiness_probes_is_ready_again_at_once() {
    let mut world = World::with_spec("\n  containers:\n  - {name: main, image: app}\n");
    world.seconds(20).away(100_000);
    let (copy, version) = (with_ready(&world, Truth::False), world.plan.as_ref().unwrap().version);
    world.restart_in_cluster(Some(copy.clone()));
    assert_eq!(world.bits("main"), (true, true));
    let ready = world.condition(ConditionType::Ready).clone();
    assert_eq!((ready.status, ready.last_transition_time), (Truth::True, Some(world.now.wall.whole_seconds())));
    assert_eq!(world.plan.as_ref().unwrap().version, version + 1, "readers have to hear of it");
    world.seconds(10).restart_in_cluster(Some(copy));
    assert_eq!(*world.condition(ConditionType::Ready), ready, "already answered");
}

/// CON-4: an older status of ours is not a foreign write, whichever it is: the ledger's newer evidence stands.
#[test]
fn a_stale_copy_of_our_own_status_is_not_a_foreign_write() {
    let make = |unready: bool| {
        let mut world = pod(READINESS);
        world.answer("main", ProbeKind::Readiness, Outcome::Failure).seconds(20);
        world.answer("main", ProbeKind::Readiness, Outcome::Success).seconds(20);
        world.exit("main", 1).seconds(20);
        if unready {
            world.answer("main", ProbeKind::Readiness, Outcome::Failure).seconds(20);
        }
        world
    };
    for unready in [true, false] {
        let statuses = make(unready).statuses;
        assert!(statuses.len() > 8);
        for (index, copy) in statuses.iter().enumerate() {
            let mut world = make(unready);
            world.hold(is_probe).away(1_000).restart_in_cluster(Some(copy.clone())).seconds(5);
            assert_eq!(world.statuses.len(), statuses.len(), "status {index} of {}", statuses.len());
            assert_eq!(world.bits("main"), (true, !unready), "status {index}");
            assert_eq!(world.container("main").restart_count, 1);
        }
    }
}

/// CON-4: the same over many instances: the copy names one that the ledger has long dropped, or the one before, with
/// the count of the present one. Neither was started by another agent.
#[test]
fn a_stale_copy_of_a_former_instance_is_not_a_foreign_write() {
    let make = || {
        let mut world = World::with_spec("\n  containers:\n  - {name: main, image: app}\n");
        world.seconds(1);
        let long_ago = world.status().clone();
        world.exit("main", 1).seconds(20);
        world.exit("main", 1).seconds(30);
        world.lose("main").hold(|operation| matches!(operation, Operation::Launch { .. })).settle();
        let counted_ahead = world.status().clone();
        world.release().seconds(1);
        (world, long_ago, counted_ahead)
    };
    let (world, long_ago, counted_ahead) = make();
    let (main, before) = (world.container("main"), counted_ahead.container("main").unwrap());
    assert_eq!((main.restart_count, before.restart_count), (3, 3));
    assert_ne!(main.container_id, before.container_id);
    for copy in [long_ago, counted_ahead] {
        let (mut world, ..) = make();
        let seen = world.statuses.len();
        world.restart_in_cluster(Some(copy)).seconds(5);
        assert_eq!(world.statuses.len(), seen, "{:#?}", world.status());
    }
}

/// KEEP-14, KEEP-10: once readiness is in doubt, it takes successThreshold results from then on; those from before do
/// not help.
#[test]
fn doubtful_readiness_has_to_be_shown_in_full() {
    let spec = "
  containers:
  - {name: main, image: app, readinessProbe: {exec: {command: [up]}, periodSeconds: 5, successThreshold: 2}}
";
    let mut world = World::with_spec(spec);
    world.seconds(20);
    assert_eq!(world.bits("main"), (true, true));
    let copy = with_ready(&world, Truth::False);
    world.restart_in_cluster(Some(copy)).millis(4_999);
    assert_eq!(world.probed_at("main", ProbeKind::Readiness).last(), Some(&20_000));
    assert_eq!(world.bits("main"), (true, false), "one success");
    world.millis(1);
    assert_eq!(world.bits("main"), (true, true), "two");
}

/// CON-4: the newest eight values of the Ready condition are known as ours.
#[test]
fn eight_values_of_the_ready_condition_are_remembered() {
    let make = || {
        let mut world = World::with_spec(
            "
  containers:
  - {name: main, image: app, readinessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 1}}
",
        );
        for round in 0..12 {
            world.answer(
                "main",
                ProbeKind::Readiness,
                if round % 2 == 0 { Outcome::Failure } else { Outcome::Success },
            );
            world.seconds(1);
        }
        assert_eq!(world.bits("main"), (true, true));
        world
    };
    let world = make();
    assert_eq!(world.evidence.durable.ready_marks.len(), 8);
    let statuses = world.statuses;
    let newest = statuses.len() - 1;
    for back in 0..=8 {
        let mut world = make();
        world.hold(is_probe).restart_in_cluster(Some(statuses[newest - back].clone()));
        let doubtful = matches!(world.why_ready("main"), Because::Carried { basis: Basis::ForeignWrite, .. });
        assert_eq!(doubtful, back == 8, "{back} back");
    }
}

/// CON-4: another agent was in charge in between (keelet -> kubelet -> keelet): restart counts or container IDs are
/// not ours, so the API server's values win over the ledger.
#[test]
fn another_agents_values_win_over_the_ledger() {
    for counted in [true, false] {
        for (started, ready) in [(true, true), (true, false), (false, false)] {
            let mut world = pod(BOTH);
            // The ledger knows of a streak and of an unready neighbour; neither is worth anything now.
            world.answer("more", ProbeKind::Readiness, Outcome::Failure).seconds(15);
            world.away(600_000);
            replace(&mut world, "main", 300);
            let mut copy = with_ready(&world, Truth::from(ready));
            let (id, count) = (world.id("main"), u32::from(counted));
            let InstanceState::Running { started_at } = world.running_instance("main").state else { panic!("runs") };
            world.running_instance("main").attempt = count;
            let theirs = &mut copy.container_statuses[0];
            theirs.container_id = Some(id.clone());
            theirs.restart_count = count;
            theirs.started = Some(started);
            let ContainerState::Running(running) = &mut theirs.state else { panic!("runs") };
            running.started_at = started_at.whole_seconds();
            let mark = world.mark();
            world.hold(is_probe).restart_in_cluster(Some(copy)).seconds(5);
            assert_eq!(world.bits("main"), (started, ready), "counted {counted}");
            assert_eq!(world.bits("more"), (true, ready), "started is its own, ready is the pod's");
            assert_eq!(world.container("main").restart_count, count);
            assert_eq!(world.container("main").container_id, Some(id));
            assert!(world.since(mark).is_empty());
            assert_eq!(world.status().phase, Phase::Running);
            if started {
                let because = Because::Carried { probe: ProbeKind::Readiness, passed: ready, basis: Basis::Status };
                assert_eq!(*world.why_ready("main"), because);
            }
            world.answer("more", ProbeKind::Readiness, Outcome::Success).release();
            assert_eq!((world.bits("main"), world.bits("more")), ((true, true), (true, true)));
        }
    }
}

/// CON-4: a container that another agent restarted and that has ended since is restarted and counted from there.
#[test]
fn another_agents_exits_are_counted_from_there() {
    let mut world = pod(NONE);
    let mut copy = world.status().clone();
    copy.container_statuses[0].restart_count = 5;
    world.running_instance("main").attempt = 5;
    world.exit_only("main", 9).away(1_000).restart_in_cluster(Some(copy));
    assert_eq!(world.container("main").restart_count, 6);
    assert_eq!(world.container("main").last_state.terminated.as_ref().unwrap().exit_code, 9);
    assert_eq!(world.running(), ["main", "more"].into());
}

/// CON-4, RULE-8: an ephemeral container that ended is known from the API server's copy as the others are: it is not started
/// again, and its status stays, whether or not the runtime still has it.
#[test]
fn an_ephemeral_container_that_the_api_copy_knows_is_not_started_again() {
    for removed in [false, true] {
        let mut world = World::with_spec(
            "  containers: [{name: main, image: app}]\n  ephemeralContainers: [{name: debug, image: tool}]\n",
        );
        world.seconds(5).exit("debug", 3).seconds(5);
        let copy = world.status().clone();
        let mark = world.mark();
        if removed {
            world.lose("debug");
        }
        world.lose_ledger().restart_in_cluster(Some(copy.clone())).seconds(60);
        assert!(world.since(mark).is_empty(), "removed {removed}: {:?}", world.since(mark));
        assert_eq!(world.container("debug"), copy.container("debug").unwrap(), "removed {removed}");
    }
}

/// CON-4, BACK-5: another agent was in charge in between. How long a container that crashes has to wait is in no status, so the
/// ledger's word counts.
#[test]
fn crash_backoff_survives_another_agent() {
    let mut world = World::with_spec("  containers: [{name: main, image: app}]\n");
    for wait in [0, 10, 20, 40] {
        world.seconds(1).exit("main", 1).seconds(wait);
    }
    let mut copy = world.status().clone();
    replace(&mut world, "main", 1);
    let (id, attempt) = (world.id("main"), world.running_instance("main").attempt);
    copy.container_statuses[0].container_id = Some(id);
    copy.container_statuses[0].restart_count = attempt;
    world.away(1_000).restart_in_cluster(Some(copy));
    assert_eq!(world.container("main").restart_count, attempt, "the other agent's count");
    let launches = world.launches("main").len();
    world.exit("main", 1).seconds(79);
    assert_eq!(world.launches("main").len(), launches, "it was started before its backoff of 80 s was over");
    world.seconds(2);
    assert_eq!(world.launches("main").len(), launches + 1);
}

/// CON-4, STAT-5, RULE-9: a running container was lost, which is counted as a restart at once, and then the ledger was
/// lost as well. The next start is the one that was counted, and no rule takes the stand-in 137 for an exit code.
#[test]
fn a_lost_container_is_counted_once_over_a_lost_ledger() {
    let rule = "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [137]}}]";
    let mut world = World::with_spec(&format!(
        "\n  containers:\n  - {{name: main, image: app, restartPolicy: Always, {rule}}}\n  - {{name: more, image: app}}\n"
    ));
    world.seconds(20).hold(Operation::starts_container).lose("main").seconds(5);
    let (copy, more) = (world.status().clone(), world.id("more"));
    assert_eq!(copy.container("main").unwrap().restart_count, 1, "the loss is counted");
    world.away(1_000).lose_ledger().restart_in_cluster(Some(copy)).release().seconds(20);
    assert_eq!(world.container("main").restart_count, 1, "the loss is counted a second time");
    assert_eq!(world.id("more"), more, "the exit status is unknown, but a rule matched the placeholder 137");
}
