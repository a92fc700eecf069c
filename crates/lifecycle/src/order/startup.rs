//! Starting up: sandbox, init containers and sidecars in order, then the regular ones (SIDE-*, PROC-3).

use keelet_pod::{Container, Role};

use super::{
    SandboxView, end,
    maintain::{self, Launching, launch, maintain, wants_start},
    sandbox, view,
};
use crate::{
    absorb::is_stillborn,
    draft::Draft,
    evidence::{EndingCause, HookProgress},
    observed::{Instance, InstanceState, Sandbox},
    operation::{KillReason, OpKey, Operation},
    restart::{self, RestartAllStage, is_restartable},
};

/// The highest exit code that a program chooses by itself. Above it are signals, and what runtimes say of containers that
/// went down with the node.
const LAST_OWN_EXIT_CODE: i32 = 128;

/// Does what a pod that is not ending needs next.
pub(crate) fn proceed(draft: &mut Draft<'_>) {
    let sandbox = match view(draft.pod, draft.observed) {
        SandboxView::Usable(sandbox) => sandbox,
        SandboxView::Unusable { .. } => {
            without_sandbox(draft);
            return;
        }
    };
    let attempts = sandbox.attempt.saturating_add(1);
    let made = &mut draft.evidence.durable.sandbox_attempts;
    *made = attempts.max(*made);
    let pod = draft.pod;
    ephemeral_containers(draft);
    prune(draft);
    if init_containers(draft, sandbox) == Progress::Complete {
        regular_containers(draft, sandbox);
        if pod.containers.iter().all(|container| is_done(draft, container)) {
            end(draft, EndingCause::Finished);
        }
    }
}

/// Starts ephemeral containers, which wait for nothing but a sandbox.
pub(super) fn ephemeral_containers(draft: &mut Draft<'_>) {
    let SandboxView::Usable(sandbox) = view(draft.pod, draft.observed) else { return };
    let pod = draft.pod;
    for container in &pod.ephemeral_containers {
        // Started once, and never again.
        if draft.evidence.durable.container(&container.name).is_none_or(|record| !record.has_lived()) {
            maintain(draft, container, sandbox, Launching::Allowed);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Complete,
    Busy,
}

/// The sandbox is missing or unusable. A pod with nothing left to run ends; any other gets a new sandbox.
fn without_sandbox(draft: &mut Draft<'_>) {
    let pod = draft.pod;
    let durable = &draft.evidence.durable;
    let has_lived = durable.containers.values().any(|record| record.has_lived());
    let restarting = durable.restart_all.stage.is_under_way();
    if has_lived && !restarting && pod.containers.iter().all(|container| is_done(draft, container)) {
        end(draft, EndingCause::Finished);
        return;
    }
    if let Some(failed) = pod.init_containers.iter().find(|container| has_failed_for_good(draft, container)) {
        end(draft, EndingCause::InitFailed { container: failed.name.clone() });
        return;
    }
    if has_lived && !restarting && !pod.lasting_containers().any(is_restartable) {
        end(draft, EndingCause::NotRebuilt);
        return;
    }
    restart::start_over(draft);
    sandbox::rebuild(draft);
}

/// Whether an ordinary init container has failed by itself and may not run again: its pod has failed with it, and a lost
/// sandbox does not change that (SIDE-10). What went down with the sandbox has not failed (RULE-11), and a restart of all
/// containers that has yet to start it again takes the failure back.
fn has_failed_for_good(draft: &Draft<'_>, container: &Container) -> bool {
    let is_restarted = match &draft.evidence.durable.restart_all.stage {
        RestartAllStage::Idle { .. } => false,
        RestartAllStage::Terminating(_) => true,
        RestartAllStage::Starting(startup) => startup.outstanding.contains(&container.name),
    };
    let record = draft.evidence.durable.container(&container.name).filter(|record| record.running.is_none());
    let exit = record.and_then(|record| record.last_exit.as_ref());
    container.role == Role::Init
        && !is_restarted
        && exit.is_some_and(|exit| {
            exit.is_judged_by_rules()
                && !exit.is_success()
                && exit.exit_code <= LAST_OWN_EXIT_CODE
                && !restart::restarts_after(container, exit, draft.rules.restart_all)
        })
}

/// Of the exited instances of a container only the newest is kept (SIDE-11, SYNC-5).
fn prune(draft: &mut Draft<'_>) {
    let (pod, observed) = (draft.pod, draft.observed);
    for container in pod.lasting_containers() {
        let is_dead = |instance: &&Instance| {
            instance.name == container.name
                && matches!(instance.state, InstanceState::Exited { .. })
                && !is_stillborn(draft, instance)
        };
        let mut dead: Vec<&Instance> = observed.containers.iter().filter(is_dead).collect();
        dead.sort_by_key(|instance| instance.age_key());
        dead.pop();
        for dead in dead {
            draft.start(Operation::Remove { container: dead.name.clone(), id: dead.id.clone() });
        }
    }
}

/// Init containers and sidecars, in order. Once a regular container has run in this sandbox, ordinary init containers
/// are never run again.
fn init_containers(draft: &mut Draft<'_>, sandbox: &Sandbox) -> Progress {
    let pod = draft.pod;
    let initialized = draft.evidence.durable.initialized_in.as_ref() == Some(&sandbox.id);
    // Every container before the last one that has begun is complete, even if its instance was removed.
    let front = pod.init_containers.iter().rposition(|container| has_begun(draft, container, sandbox)).unwrap_or(0);
    for (index, container) in pod.init_containers.iter().enumerate() {
        if initialized || index < front {
            if container.role == Role::Sidecar {
                maintain(draft, container, sandbox, Launching::Allowed);
            }
        } else if advance(draft, container, sandbox) == Progress::Busy {
            return Progress::Busy;
        }
    }
    Progress::Complete
}

fn has_begun(draft: &Draft<'_>, container: &Container, sandbox: &Sandbox) -> bool {
    let record = draft.evidence.durable.container(&container.name);
    maintain::instance(draft, container, sandbox).is_some()
        || record.is_some_and(|record| record.completed_in.as_ref() == Some(&sandbox.id))
}

/// The container that may start next.
fn advance(draft: &mut Draft<'_>, container: &Container, sandbox: &Sandbox) -> Progress {
    if container.role == Role::Sidecar {
        maintain(draft, container, sandbox, Launching::Allowed);
        return if sidecar_has_started(draft, container) { Progress::Complete } else { Progress::Busy };
    }
    let record = draft.evidence.durable.container(&container.name);
    if record.is_some_and(|record| record.completed_in.as_ref() == Some(&sandbox.id)) {
        return Progress::Complete;
    }
    match maintain::instance(draft, container, sandbox).map(|found| (found, &found.state)) {
        Some((_, InstanceState::Running { .. })) => {}
        Some((found, InstanceState::Created)) => {
            draft.start(Operation::StartCreated { container: container.name.clone(), id: found.id.clone() });
        }
        Some((found, InstanceState::Unknown)) => {
            let grace = draft.pod.termination_grace;
            super::kill::kill(draft, found, KillReason::StateUnknown, grace);
        }
        Some((found, InstanceState::Exited { .. })) if is_stillborn(draft, found) => {
            maintain::remove_stillborn(draft, found);
        }
        Some((_, InstanceState::Exited { .. })) => after_failure(draft, container, sandbox),
        None => {
            let in_here = |id: &String| *id == sandbox.id;
            let failed_here =
                record.is_some_and(|record| record.last_exit.as_ref().is_some_and(|e| in_here(&e.sandbox)));
            if failed_here {
                after_failure(draft, container, sandbox);
            } else {
                launch(draft, container, sandbox);
            }
        }
    }
    Progress::Busy
}

/// An ordinary init container exited without success: it is run again, or the pod has failed.
fn after_failure(draft: &mut Draft<'_>, container: &Container, sandbox: &Sandbox) {
    let exit = draft.evidence.durable.container(&container.name).and_then(|record| record.last_exit.as_ref());
    let again = exit.is_none_or(|exit| restart::restarts_after(container, exit, draft.rules.restart_all));
    if again || draft.evidence.durable.restart_all.stage.owes_start(&container.name) {
        launch(draft, container, sandbox);
    } else {
        end(draft, EndingCause::InitFailed { container: container.name.clone() });
    }
}

fn sidecar_has_started(draft: &Draft<'_>, container: &Container) -> bool {
    draft.evidence.volatile.instances.get(&container.name).is_some_and(|instance| {
        let started = container.startup.is_none() || instance.startup.verdict.passed() == Some(true);
        // A container that is being replaced meanwhile has started all the same (SIDE-4).
        started && instance.post_start == HookProgress::Done
    })
}

/// Regular containers start side by side, but a container with a post-start hook delays those after it until the hook
/// is done.
fn regular_containers(draft: &mut Draft<'_>, sandbox: &Sandbox) {
    let pod = draft.pod;
    let mut launching = Launching::Allowed;
    for container in &pod.containers {
        maintain(draft, container, sandbox, launching);
        if container.post_start.is_some() && is_starting(draft, container) {
            launching = Launching::NotYet;
        }
    }
}

fn is_starting(draft: &Draft<'_>, container: &Container) -> bool {
    let name = container.name.clone();
    draft.in_flight(&OpKey::Image(name.clone()))
        || draft.in_flight(&OpKey::Launch(name))
        || draft
            .evidence
            .volatile
            .instances
            .get(&container.name)
            .is_some_and(|instance| instance.kill.is_none() && instance.post_start == HookProgress::Due)
}

/// Whether a regular container has exited and is not restarted.
fn is_done(draft: &Draft<'_>, container: &Container) -> bool {
    let alive = draft.newest(&container.name).is_some_and(|instance| {
        instance.may_run() || instance.state == InstanceState::Created && wants_start(draft, container)
    });
    !alive && !draft.in_flight(&OpKey::Launch(container.name.clone())) && !wants_start(draft, container)
}
