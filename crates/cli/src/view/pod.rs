//! A pod as the API returns it, and the few words that a list has for it: the rules of kubectl's own printer.

use anyhow::{Context, Result};
use keelet_lifecycle::{
    Wall,
    status::{Condition, ConditionType, ContainerState, ContainerStatus, PodStatus},
};
use keelet_pod::{Pod, Role};
use serde::Deserialize;
use serde_json::Value;

use super::{age, table::Tint};

/// A pod and those of its fields that are shown.
#[derive(Clone, Debug)]
pub(crate) struct PodView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) created: Option<Wall>,
    /// Whether it is on its way out.
    pub(crate) leaving: bool,
    pub(crate) node: String,
    pub(crate) status: PodStatus,
    /// All of it.
    pub(crate) value: Value,
}

/// What a list says of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) ready: usize,
    pub(crate) total: usize,
    pub(crate) status: String,
    pub(crate) restarts: u32,
    pub(crate) last_restart: Option<Wall>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    creation_timestamp: Option<Wall>,
    deletion_timestamp: Option<Wall>,
}

// === impl PodView ===

impl PodView {
    pub(crate) fn read(value: Value) -> Result<Self> {
        let metadata: Metadata = serde_json::from_value(value["metadata"].clone()).context("a pod without metadata")?;
        let status = match &value["status"] {
            Value::Null => PodStatus::default(),
            status => serde_json::from_value(status.clone())
                .with_context(|| format!("the status of pod {}/{}", metadata.namespace, metadata.name))?,
        };
        Ok(Self {
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            created: metadata.creation_timestamp,
            leaving: metadata.deletion_timestamp.is_some(),
            node: value["spec"]["nodeName"].as_str().unwrap_or_default().to_owned(),
            status,
            value,
        })
    }

    /// `containers`, `initContainers` or `ephemeralContainers` of the spec.
    pub(crate) fn specs(&self, list: &str) -> &[Value] {
        self.value["spec"][list].as_array().map_or(&[], Vec::as_slice)
    }

    /// The names of all containers: init containers, regular ones, ephemeral ones.
    pub(crate) fn container_names(&self) -> impl Iterator<Item = &str> {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(|list| self.specs(list)).filter_map(|container| container["name"].as_str())
    }

    /// What a list says of it.
    pub(crate) fn summary(&self) -> Summary {
        let inits = self.specs("initContainers");
        let is_sidecar = |name: &str| {
            let spec = inits.iter().find(|container| container["name"] == name);
            spec.is_some_and(|container| container["restartPolicy"] == "Always")
        };
        let sidecars = inits.iter().filter(|container| container["restartPolicy"] == "Always").count();
        summary(&self.status, self.leaving, inits.len(), self.specs("containers").len() + sidecars, is_sidecar)
    }
}

/// What a list says of a pod that runs in this process.
pub(crate) fn summary_of(pod: &Pod, status: &PodStatus, leaving: bool) -> Summary {
    let is_sidecar = |name: &str| pod.container(name).is_some_and(|container| container.role == Role::Sidecar);
    let sidecars = pod.init_containers.iter().filter(|container| container.role == Role::Sidecar).count();
    summary(status, leaving, pod.init_containers.len(), pod.containers.len() + sidecars, is_sidecar)
}

/// The words for a pod with that status, so many init containers, and so many that can be ready.
fn summary(
    status: &PodStatus,
    leaving: bool,
    inits: usize,
    total: usize,
    is_sidecar: impl Fn(&str) -> bool,
) -> Summary {
    let mut word =
        status.reason.clone().filter(|reason| !reason.is_empty()).unwrap_or_else(|| format!("{:?}", status.phase));
    let mut tally = Tally::default();
    let mut of_sidecars = Tally::default();
    let mut ready = 0;
    let mut initializing = false;
    for (index, container) in status.init_container_statuses.iter().enumerate() {
        let sidecar = is_sidecar(&container.name);
        tally.add(container);
        if sidecar {
            of_sidecars.add(container);
        }
        word = match &container.state {
            ContainerState::Terminated(ended) if ended.exit_code == 0 => continue,
            _ if sidecar && container.started == Some(true) => {
                ready += usize::from(container.ready);
                continue;
            }
            ContainerState::Terminated(ended) if ended.reason.is_empty() => {
                format!("Init:ExitCode:{}", ended.exit_code)
            }
            ContainerState::Terminated(ended) => format!("Init:{}", ended.reason),
            ContainerState::Waiting(waiting) if !matches!(waiting.reason.as_str(), "" | "PodInitializing") => {
                format!("Init:{}", waiting.reason)
            }
            ContainerState::Waiting(_) | ContainerState::Running(_) => format!("Init:{index}/{inits}"),
        };
        initializing = true;
        break;
    }
    if !initializing || status.is_true(&ConditionType::Initialized) {
        // Ordinary init containers are history now; what restarts them counted is not shown.
        tally = of_sidecars;
        let mut running = false;
        for container in status.container_statuses.iter().rev() {
            tally.add(container);
            match &container.state {
                ContainerState::Waiting(waiting) if !waiting.reason.is_empty() => word.clone_from(&waiting.reason),
                ContainerState::Terminated(ended) if ended.reason.is_empty() => {
                    word = format!("ExitCode:{}", ended.exit_code)
                }
                ContainerState::Terminated(ended) => word.clone_from(&ended.reason),
                ContainerState::Running(_) if container.ready => {
                    running = true;
                    ready += 1;
                }
                ContainerState::Waiting(_) | ContainerState::Running(_) => {}
            }
        }
        if word == "Completed" && running {
            let is_ready = status.is_true(&ConditionType::Ready);
            word = if is_ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
    if leaving && !status.phase.is_terminal() {
        word = "Terminating".to_owned();
    }
    Summary { ready, total, status: word, restarts: tally.restarts, last_restart: tally.last }
}

/// Restarts, and when the last one was.
#[derive(Clone, Copy, Default)]
struct Tally {
    restarts: u32,
    last: Option<Wall>,
}

// === impl Tally ===

impl Tally {
    fn add(&mut self, container: &ContainerStatus) {
        self.restarts += container.restart_count;
        let ended = container.last_state.terminated.as_ref().and_then(|ended| ended.finished_at);
        self.last = self.last.max(ended);
    }
}

// === impl Summary ===

impl Summary {
    /// `3 (20s ago)`.
    pub(crate) fn restarts(&self, now: Wall) -> String {
        match self.last_restart {
            Some(last) if self.restarts > 0 => format!("{} ({} ago)", self.restarts, age::short(now.since(last))),
            _ => self.restarts.to_string(),
        }
    }

    pub(crate) fn tint(&self) -> Tint {
        match self.status.as_str() {
            "Running" if self.ready == self.total => Tint::Good,
            "Completed" | "Succeeded" => Tint::Good,
            "Running" | "NotReady" | "Pending" | "PodInitializing" | "ContainerCreating" | "Terminating" => {
                Tint::Unsure
            }
            word if word.starts_with("Init:") && word.contains('/') => Tint::Unsure,
            _ => Tint::Bad,
        }
    }
}

/// Conditions in the order in which a pod goes through them, others behind.
pub(crate) fn conditions(status: &PodStatus) -> Vec<&Condition> {
    let mut conditions: Vec<_> = status.conditions.iter().collect();
    conditions.sort_by_key(|condition| match condition.kind {
        ConditionType::PodScheduled => 0,
        ConditionType::PodReadyToStartContainers => 1,
        ConditionType::Initialized => 2,
        ConditionType::ContainersReady => 3,
        ConditionType::Ready => 4,
        ConditionType::AllContainersRestarting => 5,
        ConditionType::Foreign(_) => 6,
    });
    conditions
}

/// The name of a condition's type.
pub(crate) fn condition_name(kind: &ConditionType) -> String {
    match kind {
        ConditionType::Foreign(name) => name.clone(),
        own => format!("{own:?}"),
    }
}

#[cfg(test)]
mod tests;
