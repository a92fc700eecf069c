//! A world at rest: what the agent says is what the node has.

use std::{collections::BTreeMap, sync::Arc};

use keelet_lifecycle::status::{ContainerState, PodStatus};
use keelet_pod::{Pod, ProbeKind, Role};

use super::bare;
use crate::{
    node::{self, Node},
    script::{Answer, ContainerScript},
};

/// What is still missing before a pod has come to rest; nothing if it has.
pub(crate) fn missing(
    pod: &Pod,
    status: Option<&Arc<PodStatus>>,
    node: &Node,
    mut script: impl FnMut(&str) -> ContainerScript,
) -> Option<String> {
    let Some(status) = status else { return Some("no status was published".to_owned()) };
    for container in pod.lasting_containers() {
        let name = &container.name;
        let Some(shown) = status.container(name) else { return Some(format!("{name} has no status")) };
        let runs = node.running(&pod.uid, name).map(|instance| instance.id.as_str());
        let shown_running = match &shown.state {
            ContainerState::Running(_) => shown.container_id.as_deref().map(bare),
            ContainerState::Waiting(_) | ContainerState::Terminated(_) => None,
        };
        if runs != shown_running {
            return Some(format!("{runs:?} runs, and the status shows {shown_running:?}"));
        }
        if status.phase.is_terminal() {
            if let Some(id) = runs {
                return Some(format!("{id} runs in a pod that has ended"));
            }
            continue;
        }
        // One that was lost and may not return is never called ended.
        let lost = shown.last_state.terminated.as_ref().is_some_and(|ended| ended.reason == "ContainerStatusUnknown");
        if matches!(shown.state, ContainerState::Waiting(_)) && !lost {
            return Some(format!("{name} waits: {:?}", shown.state));
        }
        if runs.is_some() && container.role != Role::Init {
            let mut passes = |kind: ProbeKind| {
                let answer: Answer = script(name).answer(&[kind], std::time::Duration::MAX).unwrap_or_default();
                container.probe(kind).is_none_or(|probe| answer.reply.passes() && answer.after < probe.timeout)
            };
            let ready = passes(ProbeKind::Startup) && passes(ProbeKind::Readiness);
            if ready != shown.ready {
                return Some(format!("{name} should be {}ready", if ready { "" } else { "un" }));
            }
        }
    }
    stray(pod, node)
}

/// Containers of the pod that its spec does not know, or that live in a sandbox that does not.
fn stray(pod: &Pod, node: &Node) -> Option<String> {
    let mut running: BTreeMap<&str, &node::Container> = BTreeMap::new();
    for container in node.containers.values().filter(|c| c.instance.pod == pod.uid && c.is_running()) {
        if let Some(twin) = running.insert(&container.instance.name, container) {
            return Some(format!("{} and {} run at once", twin.instance.id, container.instance.id));
        }
    }
    None
}
