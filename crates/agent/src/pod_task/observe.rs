//! Observing one pod in the runtime.

use std::sync::Arc;

use keelet_cri::{ErrorKind, v1};
use keelet_host::Ended;
use keelet_launch::labels;
use keelet_lifecycle::{
    Wall,
    observed::{Instance, InstanceState, Sandbox},
};
use keelet_pod::Pod;

use crate::{
    board::Running,
    metrics::ContainerCounts,
    shared::{Shared, bare},
};

/// What the runtime had of a pod, seen between two points in the pod's own time.
#[derive(Debug, Default)]
pub(crate) struct Observation {
    /// How many operations of the pod had ended when it began.
    pub(crate) began: u64,
    pub(crate) sandboxes: Vec<Sandbox>,
    pub(crate) containers: Vec<Instance>,
    /// Processes of containers that were not running in the observation before, with the container's ID.
    pub(crate) new_processes: Vec<u32>,
}

// === impl Observation ===

impl Observation {
    /// What of the pod runs.
    pub(crate) fn running(&self) -> Running {
        let mut containers = ContainerCounts::default();
        for instance in &self.containers {
            *match instance.state {
                InstanceState::Created => &mut containers.created,
                InstanceState::Running { .. } => &mut containers.running,
                InstanceState::Exited { .. } => &mut containers.exited,
                InstanceState::Unknown => &mut containers.unknown,
            } += 1;
        }
        Running { sandbox: self.sandboxes.iter().any(|sandbox| sandbox.ready), containers }
    }
}

/// Asks the runtime what it has of the pod. What cannot have changed since the observation before is not asked again: how a
/// container ended, when it started, which address a ready sandbox has.
pub(crate) async fn observe(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    before: Option<Arc<Observation>>,
    began: u64,
) -> Result<Observation, keelet_cri::Error> {
    let scheme = shared.scheme().await?;
    let labels = [(labels::POD_UID.to_owned(), pod.uid.clone())];
    let filter = v1::PodSandboxFilter { label_selector: labels.clone().into(), ..Default::default() };
    let sandboxes = shared.runtime.list_pod_sandbox(Some(filter)).await?;
    let filter = v1::ContainerFilter { label_selector: labels.into(), ..Default::default() };
    let containers = shared.runtime.list_containers(Some(filter)).await?;

    let mut observation = Observation { began, ..Observation::default() };
    let before = before.unwrap_or_default();
    for listed in sandboxes {
        if let Some(sandbox) = see_sandbox(&shared, &listed, &before).await? {
            observation.sandboxes.push(sandbox);
        }
    }
    for listed in containers {
        if let Some(instance) =
            see_container(&shared, &pod, scheme, &listed, &before, &mut observation.new_processes).await?
        {
            observation.containers.push(instance);
        }
    }
    Ok(observation)
}

async fn see_sandbox(
    shared: &Shared,
    listed: &v1::PodSandbox,
    before: &Observation,
) -> Result<Option<Sandbox>, keelet_cri::Error> {
    let ready = listed.state == v1::PodSandboxState::SandboxReady as i32;
    let known = before.sandboxes.iter().find(|known| known.id == listed.id && known.ready == ready);
    // An address may be given to a sandbox only after it was first seen.
    if let Some(known) = known.filter(|known| !known.ips.is_empty() || known.host_network || !ready) {
        return Ok(Some(known.clone()));
    }
    let Some(status) = unless_gone(shared.runtime.pod_sandbox_status(&listed.id).await)? else { return Ok(None) };
    let options = status.linux.as_ref().and_then(|linux| linux.namespaces.as_ref()?.options.as_ref());
    let host_network = options.is_some_and(|options| options.network == v1::NamespaceMode::Node as i32);
    // Runtimes know no address of a sandbox in the node's network: it has the node's.
    let own = status.network.as_ref().filter(|_| !host_network).into_iter().flat_map(|network| {
        let more = network.additional_ips.iter().map(|ip| ip.ip.clone());
        std::iter::once(network.ip.clone()).chain(more).filter(|ip| !ip.is_empty())
    });
    let nodes = shared.facts().address.iter().filter(|_| host_network).cloned();
    let ready = status.state == v1::PodSandboxState::SandboxReady as i32;
    Ok(Some(Sandbox {
        id: status.id,
        ready,
        attempt: status.metadata.map_or(0, |metadata| metadata.attempt),
        created_at: wall(status.created_at),
        ips: own.chain(nodes).collect(),
        host_network,
        lost: status.annotations.get(keelet_cri::LOST).filter(|_| !ready).cloned(),
    }))
}

async fn see_container(
    shared: &Shared,
    pod: &Pod,
    scheme: &str,
    listed: &v1::Container,
    before: &Observation,
    new_processes: &mut Vec<u32>,
) -> Result<Option<Instance>, keelet_cri::Error> {
    let listed_state = v1::ContainerState::try_from(listed.state).unwrap_or(v1::ContainerState::ContainerUnknown);
    if let Some(known) = before.containers.iter().find(|known| bare(&known.id) == listed.id)
        && is_settled(&known.state, listed_state)
    {
        return Ok(Some(known.clone()));
    }
    // Only a running process has a number worth asking for, and asking is dear.
    let verbose = listed_state == v1::ContainerState::ContainerRunning;
    let Some((status, info)) = unless_gone(shared.runtime.container_status(&listed.id, verbose).await)? else {
        return Ok(None);
    };
    new_processes.extend(info.get("info").and_then(|json| process(json)));
    let metadata = status.metadata.unwrap_or_default();
    let name = status.labels.get(labels::CONTAINER_NAME).cloned().unwrap_or(metadata.name);
    let attempt = status.annotations.get(labels::CONTAINER_RESTART_COUNT).and_then(|count| count.parse().ok());
    let attempt = attempt.unwrap_or(metadata.attempt);
    let state = match v1::ContainerState::try_from(status.state) {
        Ok(v1::ContainerState::ContainerCreated) => InstanceState::Created,
        Ok(v1::ContainerState::ContainerRunning) => InstanceState::Running { started_at: wall(status.started_at) },
        Ok(v1::ContainerState::ContainerExited) => {
            let ended = Ended { container: &name, attempt, exit_code: status.exit_code };
            let said = shared.host.termination_message(pod, ended).await;
            let message = [status.message, said].into_iter().filter(|text| !text.is_empty());
            InstanceState::Exited {
                started_at: wall(status.started_at),
                finished_at: wall(status.finished_at),
                exit_code: status.exit_code,
                reason: status.reason,
                message: message.collect::<Vec<_>>().join(": "),
            }
        }
        Ok(v1::ContainerState::ContainerUnknown) | Err(_) => InstanceState::Unknown,
    };
    Ok(Some(Instance {
        id: format!("{scheme}://{}", status.id),
        name,
        sandbox: listed.pod_sandbox_id.clone(),
        attempt,
        hash: status.annotations.get(labels::CONTAINER_HASH).and_then(|hash| u32::from_str_radix(hash, 16).ok()),
        image: status.image.map(|image| image.image).unwrap_or_default(),
        image_id: status.image_ref,
        created_at: wall(status.created_at),
        state,
    }))
}

/// Whether what is known of a container still holds if the list shows this state.
fn is_settled(known: &InstanceState, listed: v1::ContainerState) -> bool {
    match known {
        InstanceState::Exited { .. } => listed == v1::ContainerState::ContainerExited,
        InstanceState::Running { .. } => listed == v1::ContainerState::ContainerRunning,
        InstanceState::Created => listed == v1::ContainerState::ContainerCreated,
        InstanceState::Unknown => false,
    }
}

/// What is gone between a list and the question about it is simply not there.
fn unless_gone<T>(result: Result<T, keelet_cri::Error>) -> Result<Option<T>, keelet_cri::Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The PID in a runtime's verbose answer.
fn process(json: &str) -> Option<u32> {
    let info: serde_json::Value = serde_json::from_str(json).ok()?;
    info.get("pid")?.as_u64()?.try_into().ok().filter(|pid| *pid > 0)
}

fn wall(nanoseconds: i64) -> Wall {
    Wall::from_millis(nanoseconds.div_euclid(1_000_000))
}

#[cfg(test)]
mod tests;
