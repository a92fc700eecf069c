//! Transitions that the API server rejects (API-20): a terminated container does not run again without a reason in the
//! spec.

use keelet_pod::{Container, Pod, Role};

use super::{ContainerState, PodStatus};
use crate::restart::{Decision, RestartAllRule, on_exit};

/// A change of status that the API server would reject.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("container {container} ended with exit code {exit_code} and may not be transitioned to non-terminated state")]
pub struct Violation {
    /// The container.
    pub container: String,
    /// The exit code it ended with.
    pub exit_code: i32,
}

/// Checks a change of status as the API server does. A pod with a `RestartAllContainers` rule may do anything.
pub fn check_transition(
    pod: &Pod,
    from: &PodStatus,
    to: &PodStatus,
    restart_all: RestartAllRule,
) -> Result<(), Violation> {
    for before in from.all_containers() {
        let ContainerState::Terminated(ended) = &before.state else { continue };
        let Some(after) = to.container(&before.name) else { continue };
        if matches!(after.state, ContainerState::Terminated(_)) {
            continue;
        }
        let Some(container) = pod.container(&before.name) else { continue };
        if !may_return(pod, container, ended.exit_code, restart_all) {
            return Err(Violation { container: before.name.clone(), exit_code: ended.exit_code });
        }
    }
    Ok(())
}

/// Whether the API server lets a container that ended with this code leave its terminated state.
pub(super) fn may_return(pod: &Pod, container: &Container, exit_code: i32, restart_all: RestartAllRule) -> bool {
    let anything_goes = restart_all == RestartAllRule::Honoured && pod.has_restart_all_rule();
    let restarts = on_exit(container, exit_code, restart_all) != Decision::Stay;
    container.role != Role::Ephemeral && (anything_goes || restarts)
}
