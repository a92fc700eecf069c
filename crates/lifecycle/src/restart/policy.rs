//! The effect of an exit: rules first, then the policy (RULE-*).

use keelet_pod::{Action, Container, RestartPolicy, Role};

use crate::{
    evidence::{Exit, ExitCause},
    operation::KillReason,
};

/// The effect of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The container is not restarted.
    Stay,
    /// The container is restarted.
    Restart {
        /// The rule that matched; the policy if there is none.
        rule: Option<usize>,
    },
    /// Every container of the pod is restarted.
    RestartAll {
        /// The rule that matched.
        rule: usize,
    },
}

/// Whether rules with the action `RestartAllContainers` count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartAllRule {
    /// They do.
    #[default]
    Honoured,
    /// The feature gate is off: a match is ignored.
    Ignored,
}

/// The exit code of a process that the OOM killer killed.
const OUT_OF_MEMORY: i32 = 137;

/// The effect of an exit with that code. The first rule that matches decides, even if a later one would do more.
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

/// Whether the container is restarted after this exit.
///
/// Rules apply to exits of the program and to those that a probe's kill caused (RULE-3). If the agent ended the
/// container for another reason, the policy decides, or the reason itself: a container that was stopped to be replaced
/// is started again, and so is one that was lost, alone or with its sandbox, if anything may restart it.
pub(crate) fn restarts_after(container: &Container, exit: &Exit, restart_all: RestartAllRule) -> bool {
    // An init container that the OOM killer killed has failed, whatever its exit code.
    let failed_anyway = container.role == Role::Init && exit.exit_code == 0 && !exit.is_success();
    let exit_code = if failed_anyway { OUT_OF_MEMORY } else { exit.exit_code };
    let by_rules = || on_exit(container, exit_code, restart_all) != Decision::Stay;
    if container.role == Role::Ephemeral {
        return false;
    }
    match exit.cause {
        ExitCause::Killed(KillReason::DefinitionChanged | KillReason::RestartAll) => true,
        ExitCause::Killed(KillReason::Probe(_)) => container.restart_policy != RestartPolicy::Never || by_rules(),
        // Without an exit code no rule can match (RULE-9).
        ExitCause::Lost | ExitCause::Killed(KillReason::StateUnknown) if container.role == Role::Init => {
            container.restart_policy != RestartPolicy::Never
        }
        ExitCause::Lost | ExitCause::Killed(KillReason::StateUnknown | KillReason::SandboxGone) => {
            is_restartable(container)
        }
        ExitCause::Own => by_rules(),
        ExitCause::Killed(KillReason::PostStartFailed | KillReason::PodEnding | KillReason::Superseded) => {
            by_policy(container, exit_code) != Decision::Stay
        }
    }
}

/// Whether some exit could restart the container: its policy is not Never, or it has a `Restart` rule.
pub(crate) fn is_restartable(container: &Container) -> bool {
    container.role != Role::Ephemeral
        && (container.restart_policy != RestartPolicy::Never
            || container.rules.iter().any(|rule| rule.action == Action::Restart))
}

// === impl Exit ===

impl Exit {
    /// Whether restart rules apply to it: the program exited by itself, or a probe had it killed.
    pub fn is_judged_by_rules(&self) -> bool {
        matches!(self.cause, ExitCause::Own | ExitCause::Killed(KillReason::Probe(_)))
    }
}
