//! A start that the agent's death cut short: runtimes give it up and show a container that never ran as ended.

use super::world::World;
use crate::{
    observed::{Instance, InstanceState},
    operation::Operation,
    status::Phase,
    time::Wall,
};

/// What containerd shows of a container whose start failed: it has an end and no beginning.
fn never_ran(world: &World, name: &str) -> Instance {
    let spec = world.pod.container(name).expect("in the spec");
    Instance {
        id: format!("test://{name}-stillborn"),
        name: name.to_owned(),
        sandbox: world.observed.sandboxes[0].id.clone(),
        attempt: 0,
        hash: Some(spec.hash),
        image: spec.image.clone(),
        image_id: spec.image.clone(),
        created_at: world.now.wall,
        state: InstanceState::Exited {
            started_at: Wall::from_millis(0),
            finished_at: world.now.wall,
            exit_code: 128,
            reason: "StartError".to_owned(),
            message: "context canceled".to_owned(),
        },
    }
}

fn world_with_start_under_way(name: &'static str) -> World {
    let mut world = World::with_spec(
        "
  restartPolicy: Never
  initContainers:
  - {name: setup, image: \"x:1\"}
  containers:
  - {name: main, image: \"x:1\"}
",
    );
    world.hold(move |operation| matches!(operation, Operation::Launch { container, .. } if container == name)).settle();
    if name == "main" {
        world.exit("setup", 0);
    }
    world.seconds(1);
    world
}

/// KEEP-1, STAT-5: it is removed and made again under the same number, counts for nothing, and fails no pod.
#[test]
fn a_start_that_died_with_the_agent_is_no_instance() {
    for name in ["setup", "main"] {
        let mut world = world_with_start_under_way(name);
        let instance = never_ran(&world, name);
        world.observed.containers.push(instance.clone());
        world.restart_agent_only();
        world.hold(|_| false);
        let mark = world.mark();
        world.settle();
        assert!(
            matches!(world.since(mark)[0], Operation::Remove { id, .. } if *id == instance.id),
            "its name has to be free before it is made again: {:?}",
            world.since(mark)
        );
        assert_eq!(world.running(), [name].into());
        assert_eq!((world.container(name).restart_count, world.container(name).last_state.is_none()), (0, true));
        assert_eq!(world.launches(name).len(), 2);
        world.exit(name, 0);
        if name == "setup" {
            world.exit("main", 0);
        }
        assert_eq!(world.status().phase, Phase::Succeeded);
    }
}

/// STAT-5: the same after the runtime took a moment to give the start up, so that the new agent has tried it too.
#[test]
fn a_start_that_is_given_up_only_later_is_no_instance_either() {
    let mut world = world_with_start_under_way("main");
    let mut instance = never_ran(&world, "main");
    let ended = std::mem::replace(&mut instance.state, InstanceState::Created);
    world.observed.containers.push(instance);
    world.restart_agent_only();
    world.hold(|operation| matches!(operation, Operation::StartCreated { .. })).settle();
    world
        .observed
        .containers
        .iter_mut()
        .filter(|found| found.name == "main")
        .for_each(|found| found.state = ended.clone());
    let id = world.in_flight()[0].0;
    world.conclude(
        id,
        crate::operation::OpResult::Failed(crate::operation::OpFailure {
            reason: "RunContainerError".to_owned(),
            message: "it has ended".to_owned(),
        }),
    );
    world.hold(|_| false);
    world.seconds(30);
    assert_eq!((world.running(), world.container("main").restart_count), (["main"].into(), 0));
}

/// STAT-5: a container that cannot be started while its agent runs has failed, and so has its pod.
#[test]
fn a_start_that_fails_by_itself_is_a_failure() {
    let mut world = world_with_start_under_way("main");
    let instance = never_ran(&world, "main");
    world.observed.containers.push(instance);
    let id = world.in_flight()[0].0;
    world.conclude(
        id,
        crate::operation::OpResult::Failed(crate::operation::OpFailure {
            reason: "RunContainerError".to_owned(),
            message: "no such file".to_owned(),
        }),
    );
    world.seconds(30);
    assert_eq!(world.status().phase, Phase::Failed);
    // Also if the agent dies afterwards.
    world.restart_agent();
    assert_eq!(world.status().phase, Phase::Failed);
}

/// SIDE-11, STAT-5: an instance that never ran is no evidence, so the one before it is kept.
#[test]
fn the_instance_before_a_start_that_died_with_the_agent_is_kept() {
    let mut world = World::with_spec("\n  containers:\n  - {name: main, image: \"x:1\"}\n");
    world.settle().hold(|operation| matches!(operation, Operation::Launch { .. })).exit("main", 3);
    world.seconds(1);
    assert_eq!(world.in_flight().len(), 1, "the next start");
    let before = world.observed.containers[0].id.clone();
    let instance = Instance { attempt: 1, ..never_ran(&world, "main") };
    world.observed.containers.push(instance.clone());
    world.restart_agent_only();
    let mark = world.mark();
    world.hold(|_| false).settle();
    let removed: Vec<&String> = world
        .since(mark)
        .into_iter()
        .filter_map(|operation| match operation {
            Operation::Remove { id, .. } => Some(id),
            _ => None,
        })
        .collect();
    assert_eq!(removed, [&instance.id], "and not {before}");
    assert_eq!((world.running(), world.container("main").restart_count), (["main"].into(), 1));
}
