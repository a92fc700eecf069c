//! What an exit asks for: rules first, then the policy (RULE-*).

use keelet_pod::{Action, Container, RestartPolicy, Role};

use crate::{
    evidence::{Exit, ExitCause},
    operation::KillReason,
};

/// What an exit asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The container stays down.
    Stay,
    /// The container is started again.
    Restart {
        /// The rule that says so; the policy if there is none.
        rule: Option<usize>,
    },
    /// Every container of the pod is started again.
    RestartAll {
        /// The rule that says so.
        rule: usize,
    },
}

/// Whether rules with the action `RestartAllContainers` count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartAllRule {
    /// They do.
    #[default]
    Honoured,
    /// The gate is off: a match is as good as none.
    Ignored,
}

/// The exit code of a process that the OOM killer took.
const OUT_OF_MEMORY: i32 = 137;

/// What an exit with that code asks for. The first rule that matches decides, even if a later one would ask for more.
pub fn on_exit(container: &Container, exit_code: i32, restart_all: RestartAllRule) -> Decision {
    if container.role == Role::Ephemeral {
        return Decision::Stay;
    }
    let matched = container.rules.iter().enumerate().find(|(_, rule)| rule.exit_codes.matches(exit_code));
    match matched {
        Some((rule, found)) if found.action == Action::Restart => Decision::Restart { rule: Some(rule) },
        Some((rule, _)) if restart_all == RestartAllRule::Honoured => Decision::RestartAll { rule },
        _ => by_policy(container, exit_code),
    }
}

fn by_policy(container: &Container, exit_code: i32) -> Decision {
    let restarts = match container.restart_policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    };
    if restarts { Decision::Restart { rule: None } } else { Decision::Stay }
}

/// Whether the container is started again after this exit.
///
/// That is what [`on_exit`] says, except where the exit code is not the container's own word: it was stopped to be
/// replaced, it was stopped by a probe under a policy that restarts, its sandbox went away, or nobody knows the code.
pub(crate) fn restarts_after(container: &Container, exit: &Exit, restart_all: RestartAllRule) -> bool {
    // Killed for its memory, an init container has failed, whatever code it managed to return.
    let failed_anyway = container.role == Role::Init && exit.exit_code == 0 && !exit.is_success();
    let exit_code = if failed_anyway { OUT_OF_MEMORY } else { exit.exit_code };
    let by_code = || on_exit(container, exit_code, restart_all) != Decision::Stay;
    if container.role == Role::Ephemeral {
        return false;
    }
    match exit.cause {
        ExitCause::Killed(KillReason::DefinitionChanged | KillReason::RestartAll) => true,
        ExitCause::Killed(KillReason::Probe(_)) => container.restart_policy != RestartPolicy::Never || by_code(),
        // Without an exit code no rule can match (RULE-9).
        ExitCause::Lost | ExitCause::Killed(KillReason::StateUnknown) if container.role == Role::Init => {
            container.restart_policy != RestartPolicy::Never
        }
        ExitCause::Lost | ExitCause::Killed(KillReason::StateUnknown | KillReason::SandboxGone) => {
            is_restartable(container)
        }
        ExitCause::Own | ExitCause::Killed(_) => by_code(),
    }
}

/// Whether some exit could restart the container: its policy is not Never, or it has a `Restart` rule.
pub(crate) fn is_restartable(container: &Container) -> bool {
    container.role != Role::Ephemeral
        && (container.restart_policy != RestartPolicy::Never
            || container.rules.iter().any(|rule| rule.action == Action::Restart))
}
