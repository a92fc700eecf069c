//! The conditions the agent owns (STAT-24..30): functions of container statuses, phase and sandbox.

use std::collections::BTreeMap;

use keelet_pod::{Pod, Role};

use super::{ContainerStatus, Phase};
use crate::plan::Because;

/// A condition before it is dated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) holds: bool,
    pub(crate) reason: Option<&'static str>,
    pub(crate) message: Option<String>,
    pub(crate) because: Because,
}

const COMPLETED: &str = "PodCompleted";
const FAILED: &str = "PodFailed";
const UNKNOWN_STATUSES: &str = "UnknownContainerStatuses";

/// `Initialized`: every init container is done and every sidecar has started.
pub(crate) fn initialized(pod: &Pod, statuses: &[ContainerStatus], phase: Phase, was_true: bool) -> Finding {
    if statuses.is_empty() && !pod.init_containers.is_empty() {
        return Finding::fails(UNKNOWN_STATUSES, None, Because::Spec);
    }
    let mut unknown = Vec::new();
    let mut incomplete = Vec::new();
    for container in &pod.init_containers {
        match find(statuses, &container.name) {
            None => unknown.push(container.name.clone()),
            Some(status) => {
                let complete = match container.role {
                    Role::Sidecar => status.started == Some(true),
                    Role::Init | Role::Regular | Role::Ephemeral => status.ready,
                };
                if !complete {
                    incomplete.push(container.name.clone());
                }
            }
        }
    }
    if phase == Phase::Succeeded && unknown.is_empty() {
        return Finding { reason: Some(COMPLETED), ..Finding::holds(Because::Kept) };
    }
    let regular_has_run = pod
        .containers
        .iter()
        .filter_map(|container| find(statuses, &container.name))
        .any(|status| !matches!(status.state, super::ContainerState::Waiting(_)));
    if regular_has_run {
        return Finding::holds(Because::Containers { names: names(&pod.init_containers) });
    }
    if unknown.is_empty() && incomplete.is_empty() {
        return Finding::holds(Because::Containers { names: names(&pod.init_containers) });
    }
    if was_true {
        return Finding::holds(Because::Kept);
    }
    let message = lists(&[("unknown", &unknown), ("incomplete", &incomplete)]);
    Finding::fails("ContainersNotInitialized", message, Because::Containers { names: [unknown, incomplete].concat() })
}

/// `ContainersReady`: every sidecar and every regular container is ready.
pub(crate) fn containers_ready(pod: &Pod, statuses: &[ContainerStatus], phase: Phase) -> Finding {
    if statuses.is_empty() {
        return Finding::fails(UNKNOWN_STATUSES, None, Because::Spec);
    }
    let mut unknown = Vec::new();
    let mut unready = Vec::new();
    for container in pod.lasting_containers().filter(|container| container.role.is_probed()) {
        match find(statuses, &container.name) {
            None => unknown.push(container.name.clone()),
            Some(status) if !status.ready => unready.push(container.name.clone()),
            Some(_) => {}
        }
    }
    if phase == Phase::Succeeded && unknown.is_empty() {
        return Finding::fails(COMPLETED, None, Because::Containers { names: names(&pod.containers) });
    }
    if phase == Phase::Failed {
        return Finding::fails(FAILED, None, Because::Containers { names: names(&pod.containers) });
    }
    if unknown.is_empty() && unready.is_empty() {
        return Finding::holds(Because::Containers { names: names(&pod.containers) });
    }
    let message = lists(&[("unknown", &unknown), ("unready", &unready)]);
    Finding::fails("ContainersNotReady", message, Because::Containers { names: [unknown, unready].concat() })
}

/// `Ready`: the containers are ready, and all readiness gates are True.
pub(crate) fn ready(pod: &Pod, containers: &Finding, foreign: &BTreeMap<String, bool>) -> Finding {
    if !containers.holds {
        return containers.clone();
    }
    let pending: Vec<String> =
        pod.readiness_gates.iter().filter(|gate| foreign.get(*gate) != Some(&true)).cloned().collect();
    if pending.is_empty() {
        return containers.clone();
    }
    let message = pending
        .iter()
        .map(|gate| match foreign.get(gate) {
            Some(_) => format!("the status of pod readiness gate {gate:?} is not \"True\""),
            None => format!("corresponding condition of pod readiness gate {gate:?} does not exist"),
        })
        .collect::<Vec<_>>()
        .join(", ");
    Finding::fails("ReadinessGatesNotReady", Some(message), Because::ReadinessGates { pending })
}

fn find<'a>(statuses: &'a [ContainerStatus], name: &str) -> Option<&'a ContainerStatus> {
    statuses.iter().find(|status| status.name == name)
}

fn names(containers: &[keelet_pod::Container]) -> Vec<String> {
    containers.iter().map(|container| container.name.clone()).collect()
}

fn lists(groups: &[(&str, &Vec<String>)]) -> Option<String> {
    let parts: Vec<String> = groups
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("containers with {what} status: [{}]", names.join(" ")))
        .collect();
    Some(parts.join(", "))
}

// === impl Finding ===

impl Finding {
    pub(crate) fn holds(because: Because) -> Self {
        Self { holds: true, reason: None, message: None, because }
    }

    pub(crate) fn fails(reason: &'static str, message: Option<String>, because: Because) -> Self {
        Self { holds: false, reason: Some(reason), message, because }
    }
}
