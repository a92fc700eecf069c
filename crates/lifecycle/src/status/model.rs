//! `v1.PodStatus` as far as a node agent owns it, in the API's JSON form.

use serde::{Deserialize, Serialize};

use crate::time::Wall;

/// The status of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// The pod's phase.
    pub phase: Phase,
    /// Why the pod is in it, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the pod is in it, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The conditions the agent owns.
    pub conditions: Vec<Condition>,
    /// When the agent first saw the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Wall>,
    /// The pod's primary address.
    #[serde(rename = "podIP", skip_serializing_if = "Option::is_none")]
    pub pod_ip: Option<String>,
    /// All addresses of the pod.
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pub pod_ips: Vec<PodIp>,
    /// Init containers and sidecars, in spec order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Regular containers, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Ephemeral containers, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
    /// The pod generation this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// `status.podIPs[]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodIp {
    /// The address.
    pub ip: String,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Not all containers have been started yet.
    #[default]
    Pending,
    /// At least one container runs or is being restarted.
    Running,
    /// All regular containers ended well and will not restart.
    Succeeded,
    /// All regular containers ended, at least one not well, and none will restart.
    Failed,
}

/// `status.conditions[]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// Its status.
    pub status: Truth,
    /// Why, in a word.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_transition_time: Option<Wall>,
    /// The pod generation it speaks of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub observed_generation: Option<i64>,
}

/// The condition types the agent owns, and those of others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConditionType {
    /// The sandbox is up.
    PodReadyToStartContainers,
    /// The init containers are done.
    Initialized,
    /// The pod takes traffic.
    Ready,
    /// Every container is ready.
    ContainersReady,
    /// The pod is bound to this node.
    PodScheduled,
    /// All containers are being stopped and removed to be started again.
    AllContainersRestarting,
    /// A condition of another component.
    #[serde(untagged)]
    Foreign(String),
}

/// `True` or `False`; `Unknown` is only ever read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Another component could not determine it.
    Unknown,
}

/// The status of one container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    /// The container's name.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub state: ContainerState,
    /// The exit of its previous instance.
    #[serde(default, skip_serializing_if = "LastState::is_none")]
    pub last_state: LastState,
    /// Whether it takes traffic.
    #[serde(default)]
    pub ready: bool,
    /// Whether its startup probe, if any, has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<bool>,
    /// How often it was restarted.
    #[serde(default)]
    pub restart_count: u32,
    /// Its image.
    #[serde(default)]
    pub image: String,
    /// Its image's ID.
    #[serde(rename = "imageID", default)]
    pub image_id: String,
    /// The ID of its newest instance.
    #[serde(rename = "containerID", default, skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContainerState {
    /// Not running, and not ended for good.
    Waiting(Waiting),
    /// Running.
    Running(Running),
    /// Ended.
    Terminated(Terminated),
}

/// `lastState`: the exit of the previous instance, if there was one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LastState {
    /// The exit of the previous instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminated: Option<Terminated>,
}

/// A container that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// For what, in a word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For what, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A container that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    /// Since when.
    #[serde(default)]
    pub started_at: Wall,
}

/// A container that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Its exit code.
    pub exit_code: i32,
    /// Why it ended, in a word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why it ended, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Wall>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Wall>,
    /// Its ID.
    #[serde(rename = "containerID", skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
}

// === impl PodStatus ===

impl PodStatus {
    /// The condition of that type.
    pub fn condition(&self, kind: &ConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == *kind)
    }

    /// Whether the condition of that type is True.
    pub fn is_true(&self, kind: &ConditionType) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == Truth::True)
    }

    /// The status of that container, of whatever kind.
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.all_containers().find(|status| status.name == name)
    }

    /// The statuses of all containers.
    pub fn all_containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.init_container_statuses.iter().chain(&self.container_statuses).chain(&self.ephemeral_container_statuses)
    }
}

// === impl Phase ===

impl Phase {
    /// Whether the pod never leaves this phase.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

// === impl Truth ===

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

// === impl ContainerState ===

impl Default for ContainerState {
    fn default() -> Self {
        Self::Waiting(Waiting::default())
    }
}

// === impl LastState ===

impl LastState {
    /// Whether there was no previous instance.
    pub fn is_none(&self) -> bool {
        self.terminated.is_none()
    }
}

impl From<Option<Terminated>> for LastState {
    fn from(terminated: Option<Terminated>) -> Self {
        Self { terminated }
    }
}
