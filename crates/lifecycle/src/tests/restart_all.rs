//! What the tests of restarts of all containers share: pods, and ways to stop half-way.

use super::world::World;
use crate::{
    operation::Operation,
    restart::RestartAllStage,
    status::{Condition, ConditionType, ContainerState, Terminated},
};

/// A rule that restarts all containers on exit code 42, as a field of a container.
pub(crate) const RULE_42: &str =
    "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";

/// A pod with everything: init, sidecar, two regular containers, `source` triggers.
pub(crate) const FOUR: &str = "
  restartPolicy: Never
  initContainers:
  - {name: setup, image: 'tool:1'}
  - {name: side, image: 'proxy:1', restartPolicy: Always}
  containers:
  - name: source
    image: app:1
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
  - {name: other, image: 'app:1'}
";

/// The names of all containers of [`FOUR`].
pub(crate) const ALL_FOUR: [&str; 4] = ["setup", "side", "source", "other"];

/// A pod of this spec with its init containers done.
pub(crate) fn up(spec: &str) -> World {
    let mut world = World::with_spec(spec);
    bring_up(&mut world);
    world
}

/// Lets every ordinary init container succeed until none runs.
pub(crate) fn bring_up(world: &mut World) {
    world.settle();
    for name in init_names(world) {
        if world.running().contains(name.as_str()) {
            world.exit(&name, 0);
        }
    }
}

/// The names of the ordinary init containers.
pub(crate) fn init_names(world: &World) -> Vec<String> {
    let ordinary = |container: &&keelet_pod::Container| container.role == keelet_pod::Role::Init;
    world.pod.init_containers.iter().filter(ordinary).map(|container| container.name.clone()).collect()
}

/// The condition AllContainersRestarting: whether it is True, its reason and its message.
pub(crate) fn restarting(world: &World) -> (bool, &str, &str) {
    let condition = world.condition(ConditionType::AllContainersRestarting);
    (world.holds(ConditionType::AllContainersRestarting), text(&condition.reason), text(&condition.message))
}

/// The condition itself, if there is one.
pub(crate) fn condition(world: &World) -> Option<&Condition> {
    world.status().condition(&ConditionType::AllContainersRestarting)
}

fn text(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}

/// The exit of the previous instance of a container.
pub(crate) fn last(world: &World, name: &str) -> Terminated {
    world.container(name).last_state.terminated.clone().unwrap_or_else(|| panic!("{name} has no history"))
}

/// How a container ended that is shown as ended.
pub(crate) fn ended(world: &World, name: &str) -> Terminated {
    match &world.container(name).state {
        ContainerState::Terminated(terminated) => terminated.clone(),
        other => panic!("{name} has not ended: {other:?}"),
    }
}

/// Restart counts by name.
pub(crate) fn counts<const N: usize>(world: &World, names: [&str; N]) -> [u32; N] {
    names.map(|name| world.container(name).restart_count)
}

/// The operations since the mark in few words: `stop source`, `remove side`, `launch setup`, ...
pub(crate) fn actions(world: &World, mark: usize) -> Vec<String> {
    world.since(mark).into_iter().map(action).collect()
}

/// An operation in few words.
pub(crate) fn action(operation: &Operation) -> String {
    let verb = match operation {
        Operation::PrepareVolumes => "volumes",
        Operation::CreateSandbox { .. } => "create sandbox",
        Operation::StopSandbox { .. } => "stop sandbox",
        Operation::RemoveSandbox { .. } => "remove sandbox",
        Operation::EnsureImage { .. } => "image",
        Operation::Launch { .. } => "launch",
        Operation::StartCreated { .. } => "start",
        Operation::PostStart { .. } => "post-start",
        Operation::PreStop { .. } => "pre-stop",
        Operation::Stop { .. } => "stop",
        Operation::Remove { .. } => "remove",
        Operation::Probe { .. } => "probe",
    };
    operation.container().map_or_else(|| verb.to_owned(), |name| format!("{verb} {name}"))
}

/// Where a restart of all containers can be stopped half-way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The condition is True and not published, nothing is killed.
    Announced,
    /// Kills are in progress.
    Killing,
    /// All have exited, removals are in progress.
    Removing,
    /// All are removed, the first one is about to be launched.
    Removed,
    /// The init container runs again.
    Initializing,
}

impl Halt {
    /// Every one, in the order in which they come.
    pub(crate) const ALL: [Self; 5] =
        [Self::Announced, Self::Killing, Self::Removing, Self::Removed, Self::Initializing];

    /// Whether the first phase is not over.
    pub(crate) fn is_terminating(self) -> bool {
        matches!(self, Self::Announced | Self::Killing | Self::Removing)
    }

    /// Has `source` exit with 42 and stops half-way through what follows.
    pub(crate) fn reach(self, world: &mut World) {
        match self {
            Self::Announced => world.acknowledges = false,
            Self::Killing => drop(world.hold(|operation| matches!(operation, Operation::Stop { .. }))),
            Self::Removing => drop(world.hold(|operation| matches!(operation, Operation::Remove { .. }))),
            Self::Removed => drop(world.hold(|operation| matches!(operation, Operation::Launch { .. }))),
            Self::Initializing => {}
        }
        world.exit("source", 42);
        let terminating = matches!(world.evidence.durable.restart_all.stage, RestartAllStage::Terminating(_));
        assert_eq!(terminating, self.is_terminating(), "{self:?}");
    }

    /// Lets things run their course again.
    pub(crate) fn go_on(self, world: &mut World) {
        world.acknowledges = true;
        world.hold(|_| false).release();
    }
}
