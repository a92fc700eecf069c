//! Whether a person may request a restart of all containers (RALL-31).

use keelet_pod::{Pod, RestartPolicy};

use super::RestartAllRule;

/// Why a request to restart all containers is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the API server would not accept that container {container:?} runs again after it has ended: its restart policy \
     is {policy}, and no container of the pod has a restart rule with the action RestartAllContainers"
)]
pub struct RestartRefused {
    /// The first container that must not be restarted.
    pub container: String,
    /// Its policy.
    pub policy: RestartPolicy,
}

/// Checks a request for a pod that an API server knows. On a standalone node a request is always allowed.
pub fn check_request(pod: &Pod, restart_all: RestartAllRule) -> Result<(), RestartRefused> {
    if restart_all == RestartAllRule::Honoured && pod.has_restart_all_rule() {
        return Ok(());
    }
    match pod.lasting_containers().find(|container| container.restart_policy != RestartPolicy::Always) {
        Some(container) => Err(RestartRefused { container: container.name.clone(), policy: container.restart_policy }),
        None => Ok(()),
    }
}
