//! A restart of all containers that meets a new run of the agent which does not know all of it.

use super::world::World;
use crate::{
    observed::InstanceState,
    operation::Operation,
    status::{ConditionType, ContainerState, Phase, Terminated, Waiting},
};

const RESTART_ALL: &str = "
  restartPolicy: Never
  containers:
  - name: main
    image: app
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
  - {name: more, image: app}
";

/// CON-4: a restart of all containers that the ledger knows as unfinished was finished by another agent: it is not
/// done again.
#[test]
fn a_restart_of_all_containers_that_another_agent_finished_is_over() {
    let mut world = World::with_spec(RESTART_ALL);
    world.seconds(5).hold(|operation| matches!(operation, Operation::Stop { .. } | Operation::Launch { .. }));
    let before = world.status().clone();
    world.exit("main", 42);
    assert!(world.holds(ConditionType::AllContainersRestarting));
    assert!(world.running().contains("more"));
    let mut copy = before;
    world.observed.containers.retain(|instance| instance.name == "more");
    let mut main = world.observed.containers[0].clone();
    main.name = "main".to_owned();
    main.hash = world.pod.container("main").map(|container| container.hash);
    world.observed.containers.push(main);
    for (name, index) in [("main", 0), ("more", 1)] {
        world.running_instance(name).id = format!("test://{name}-theirs");
        world.running_instance(name).attempt = 1;
        copy.container_statuses[index].container_id = Some(format!("test://{name}-theirs"));
        copy.container_statuses[index].restart_count = 1;
    }
    let mark = world.mark();
    world.away(60_000).restart_in_cluster(Some(copy)).seconds(5);
    assert!(world.since(mark).is_empty(), "{:?}", world.since(mark));
    assert!(!world.holds(ConditionType::AllContainersRestarting));
    assert_eq!(world.status().phase, Phase::Running);
    assert_eq!((world.container("main").restart_count, world.container("more").restart_count), (1, 1));
}

/// CON-4, CON-37: the ledger is lost while all containers restart. The API server's copy says how far it was: still
/// removing, or starting again, which no policy may refuse. Nothing is counted twice.
#[test]
fn a_restart_of_all_containers_goes_on_from_the_api_copy() {
    for stage in ["removing", "starting", "failing to start a victim", "failing to start the trigger"] {
        let mut world = World::with_spec(RESTART_ALL);
        let held = stage == "removing";
        world.seconds(5).hold(move |operation| match operation {
            Operation::Stop { .. } => held,
            Operation::Launch { .. } => true,
            _ => false,
        });
        world.exit("main", 42);
        let mut copy = world.status().clone();
        let failing = match stage {
            "failing to start the trigger" => copy.container_statuses.first_mut(),
            "failing to start a victim" => copy.container_statuses.last_mut(),
            _ => None,
        };
        if let Some(ContainerState::Waiting(waiting)) = failing.map(|container| &mut container.state) {
            waiting.reason = "ErrImagePull".to_owned();
        }
        assert_eq!(copy.is_true(&ConditionType::AllContainersRestarting), held);
        assert_eq!(copy.phase, Phase::Pending);
        world.hold(|_| false).away(1_000).lose_ledger().restart_in_cluster(Some(copy)).seconds(60);
        assert_eq!(world.running(), ["main", "more"].into(), "{stage}: {:#?}", world.status());
        assert_eq!(world.status().phase, Phase::Running, "{stage}");
        for name in ["main", "more"] {
            assert_eq!(world.container(name).restart_count, 1, "{stage} {name}");
        }
        assert_eq!(world.container("more").last_state.terminated.as_ref().unwrap().exit_code, 137, "{stage}");
        assert!(!world.holds(ConditionType::AllContainersRestarting));
    }
}

/// CON-4: another agent has restarted all containers and removed them all, and then it was our turn again: we start
/// with the init containers, although the ledger remembers the pod as initialized in this sandbox.
#[test]
fn a_restart_of_all_containers_that_another_agent_began_starts_with_the_init_containers() {
    let spec = "
  restartPolicy: Never
  initContainers:
  - {name: setup, image: tool}
  containers:
  - name: main
    image: app
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
";
    let mut world = World::with_spec(spec);
    world.settle().exit("setup", 0).seconds(5);
    let mut copy = world.status().clone();
    for status in copy.init_container_statuses.iter_mut().chain(&mut copy.container_statuses) {
        let ended =
            Terminated { exit_code: 137, reason: "RestartingAllContainers".to_owned(), ..Terminated::default() };
        status.state =
            ContainerState::Waiting(Waiting { reason: "RestartingAllContainers".to_owned(), ..Waiting::default() });
        status.last_state = Some(ended).into();
        status.restart_count = 1;
        (status.started, status.ready) = (Some(false), false);
    }
    world.observed.containers.clear();
    let sandboxes = world.observed.sandboxes.clone();
    world.away(1_000).restart_in_cluster(Some(copy)).seconds(5);
    assert_eq!(world.running(), ["setup"].into());
    world.exit("setup", 0);
    assert_eq!(world.running(), ["main"].into());
    assert_eq!((world.container("setup").restart_count, world.container("main").restart_count), (1, 1));
    assert_eq!(world.observed.sandboxes, sandboxes);
}

/// CON-4, DEF-13: the trigger's exit is known from the API server's copy alone: the ledger is lost, the condition was
/// never written, and the trigger's instance is removed or still there. The restart happens all the same, unless a
/// newer instance shows that another agent decided otherwise.
#[test]
fn an_exit_that_only_the_api_copy_knows_triggers_unless_a_newer_instance_runs() {
    for (instance, restarts) in [("gone", true), ("dead", true), ("newer", false)] {
        let mut world = World::with_spec(RESTART_ALL);
        world.seconds(5);
        let mut copy = world.status().clone();
        let (id, more) = (world.id("main"), world.id("more"));
        let ended = Terminated { exit_code: 42, container_id: Some(id), ..Terminated::default() };
        copy.container_statuses[0].state = ContainerState::Terminated(ended);
        match instance {
            "gone" => world.lose("main"),
            "dead" => world.exit_only("main", 42),
            _ => {
                let started_at = world.now.wall;
                let main = world.running_instance("main");
                main.id.push_str("-theirs");
                main.attempt = 1;
                main.state = InstanceState::Running { started_at };
                &mut world
            }
        };
        world.away(1_000).lose_ledger().restart_in_cluster(Some(copy)).seconds(5);
        assert_eq!(world.id("more") != more, restarts, "{instance}");
        assert_eq!(world.container("more").restart_count, u32::from(restarts), "{instance}");
        assert_eq!(world.container("main").restart_count, 1, "{instance}");
        assert_eq!(world.running(), ["main", "more"].into(), "{instance}");
    }
}

/// CON-4: both the ledger and the API server's copy say that containers are being removed, after another agent was in
/// charge: the ledger still knows the trigger.
#[test]
fn where_both_say_removing_the_ledger_names_the_trigger() {
    let mut world = World::with_spec(RESTART_ALL);
    world.seconds(5).hold(|operation| matches!(operation, Operation::Stop { .. }));
    world.exit("main", 42);
    let ours = world.condition(ConditionType::AllContainersRestarting).message.clone();
    let mut copy = world.status().clone();
    copy.container_statuses[1].restart_count = 3;
    for condition in &mut copy.conditions {
        condition.message = condition.message.take().map(|_| "theirs".to_owned());
    }
    world.away(1_000).restart_in_cluster(Some(copy));
    assert_eq!(world.condition(ConditionType::AllContainersRestarting).message, ours);
    assert!(ours.unwrap().starts_with("container main exited with code 42"));
    assert_eq!(world.container("more").restart_count, 3);
}

/// CON-4, RALL-16, RALL-31: a request interrupts a restart whose trigger has yet to be started again, and then the ledger is lost. The
/// message of the condition still names the trigger: it is counted already. The request waits for no backoff.
#[test]
fn a_trigger_that_waits_for_its_start_is_named_by_the_next_restart() {
    for earlier_restarts in [0, 1] {
        let mut world = World::with_spec(RESTART_ALL);
        world.seconds(5);
        for _ in 0..earlier_restarts {
            world.exit("main", 42).seconds(5);
        }
        world.hold(|operation| matches!(operation, Operation::Launch { .. })).exit("main", 42);
        world.request_restart("one");
        let copy = world.status().clone();
        let condition = copy.condition(&ConditionType::AllContainersRestarting).unwrap();
        assert_eq!(
            condition.message.as_deref(),
            Some("container main exited with code 42 (restart rule 0); restart requested by tester"),
        );
        assert_eq!(world.waiting_reason("main"), Some("RestartingAllContainers"), "no backoff for people");
        world.hold(|_| false).lose_ledger().restart_in_cluster(Some(copy)).seconds(5);
        assert_eq!(world.running(), ["main", "more"].into());
        for name in ["main", "more"] {
            assert_eq!(world.container(name).restart_count, earlier_restarts + 1, "{name}");
        }
    }
}
