//! The phase (STAT-16): a function of the container statuses alone.

use keelet_pod::{Container, Pod, Role};

use super::{ContainerState, ContainerStatus, Phase};
use crate::restart::{Decision, RESTARTING_ALL, RestartAllRule, on_exit};

/// What influences the phase besides the container statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    /// Whether a regular container has been started in the current sandbox.
    pub(crate) initialized: bool,
    /// Whether the phase is final: nothing runs any more, and nothing will.
    pub(crate) last_word: bool,
    /// Whether rules with the action `RestartAllContainers` count.
    pub(crate) restart_all: RestartAllRule,
}

#[derive(Default)]
struct Tally {
    pending_init: usize,
    failed_for_good: usize,
    pending_sidecar: usize,
    waiting: usize,
    running: usize,
    stopped: usize,
    stopped_for_good: usize,
    succeeded: usize,
    unknown: usize,
}

/// The phase that follows from the container statuses.
pub(crate) fn phase(pod: &Pod, statuses: &[ContainerStatus], context: Context) -> Phase {
    let mut tally = Tally::default();
    for container in pod.lasting_containers() {
        let status = statuses.iter().find(|status| status.name == container.name);
        match container.role {
            Role::Init => tally.init(container, status, context.restart_all),
            Role::Sidecar => tally.sidecar(status),
            Role::Regular | Role::Ephemeral => tally.regular(container, status, context.restart_all),
        }
    }
    if tally.failed_for_good > 0 {
        Phase::Failed
    } else if tally.pending_init > 0
        || (tally.pending_sidecar > 0 && !context.initialized)
        || tally.waiting > 0
        || tally.unknown > 0
    {
        Phase::Pending
    } else if tally.running > 0 {
        Phase::Running
    } else if tally.stopped == 0 {
        Phase::Pending
    } else if context.last_word {
        if tally.stopped == tally.succeeded { Phase::Succeeded } else { Phase::Failed }
    } else if tally.stopped > tally.stopped_for_good {
        Phase::Running
    } else if tally.stopped == tally.succeeded {
        Phase::Succeeded
    } else {
        Phase::Failed
    }
}

/// The exit code of the newest instance that exited, and whether the container may be restarted after it.
fn last_end(container: &Container, status: &ContainerStatus, rule: RestartAllRule) -> Option<(i32, bool)> {
    let terminated = match &status.state {
        ContainerState::Terminated(terminated) => terminated,
        ContainerState::Waiting(_) => status.last_state.terminated.as_ref()?,
        ContainerState::Running(_) => return None,
    };
    let comes_back =
        terminated.reason == RESTARTING_ALL || on_exit(container, terminated.exit_code, rule) != Decision::Stay;
    Some((terminated.exit_code, comes_back))
}

// === impl Tally ===

impl Tally {
    fn init(&mut self, container: &Container, status: Option<&ContainerStatus>, rule: RestartAllRule) {
        let Some(status) = status else {
            self.pending_init += 1;
            return;
        };
        match last_end(container, status, rule) {
            Some((0, _)) if matches!(status.state, ContainerState::Terminated(_)) => {}
            Some((0, _)) | None => self.pending_init += 1,
            Some((_, true)) => self.pending_init += 1,
            Some((_, false)) => self.failed_for_good += 1,
        }
    }

    fn sidecar(&mut self, status: Option<&ContainerStatus>) {
        match status.map(|status| (&status.state, status)) {
            None => self.unknown += 1,
            Some((ContainerState::Running(_), status)) => {
                self.running += 1;
                if status.started != Some(true) {
                    self.pending_sidecar += 1;
                }
            }
            Some((ContainerState::Terminated(_), _)) => {}
            Some((ContainerState::Waiting(_), status)) if status.last_state.terminated.is_some() => {}
            Some((ContainerState::Waiting(_), _)) => {
                self.pending_sidecar += 1;
                self.waiting += 1;
            }
        }
    }

    fn regular(&mut self, container: &Container, status: Option<&ContainerStatus>, rule: RestartAllRule) {
        let Some(status) = status else {
            self.unknown += 1;
            return;
        };
        match (&status.state, last_end(container, status, rule)) {
            (ContainerState::Running(_), _) => self.running += 1,
            (_, None) => self.waiting += 1,
            (state, Some((exit_code, comes_back))) => {
                self.stopped += 1;
                if !comes_back {
                    self.stopped_for_good += 1;
                }
                if exit_code == 0 && matches!(state, ContainerState::Terminated(_)) {
                    self.succeeded += 1;
                }
            }
        }
    }
}
