//! Maintaining one container: start it, restart it, replace it, kill it.

use std::time::Duration;

use keelet_pod::{Container, ProbeKind, PullPolicy, Role};

use super::kill;
use crate::{
    absorb::is_stillborn,
    draft::Draft,
    evidence::HookProgress,
    observed::{Instance, InstanceState, Sandbox},
    operation::{KillReason, OpKey, Operation},
    plan::Severity,
    restart::{self, BackoffState},
};

/// Whether a container may be started now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launching {
    /// It may.
    Allowed,
    /// Another container starts first.
    NotYet,
}

/// The newest instance of a container in this sandbox.
pub(crate) fn instance<'a>(draft: &Draft<'a>, container: &Container, sandbox: &Sandbox) -> Option<&'a Instance> {
    draft.newest(&container.name).filter(|instance| instance.sandbox == sandbox.id)
}

/// Does what a regular container or a sidecar needs next.
pub(crate) fn maintain(draft: &mut Draft<'_>, container: &Container, sandbox: &Sandbox, launching: Launching) {
    stop_superseded(draft, container);
    match instance(draft, container, sandbox) {
        Some(found) => match &found.state {
            InstanceState::Running { .. } => keep_or_kill(draft, container, found),
            InstanceState::Unknown => {
                let grace = draft.pod.termination_grace;
                kill::kill(draft, found, KillReason::StateUnknown, grace);
            }
            InstanceState::Created if launching == Launching::Allowed => {
                draft.start(Operation::StartCreated { container: container.name.clone(), id: found.id.clone() });
            }
            InstanceState::Created => {}
            InstanceState::Exited { .. } if is_stillborn(draft, found) => remove_stillborn(draft, found),
            InstanceState::Exited { .. } => start_if_due(draft, container, sandbox, launching),
        },
        None => start_if_due(draft, container, sandbox, launching),
    }
}

/// Whether a container has to be started: never started, part of a restart of all containers, or restarted by policy or
/// rule.
pub(crate) fn wants_start(draft: &Draft<'_>, container: &Container) -> bool {
    let durable = &draft.evidence.durable;
    let record = durable.container(&container.name);
    durable.restart_all.stage.owes_start(&container.name)
        || record.is_none_or(|record| !record.has_lived())
        || record
            .and_then(|record| record.last_exit.as_ref())
            .is_some_and(|exit| restart::restarts_after(container, exit, draft.rules.restart_all))
}

fn start_if_due(draft: &mut Draft<'_>, container: &Container, sandbox: &Sandbox, launching: Launching) {
    if launching == Launching::Allowed && wants_start(draft, container) {
        launch(draft, container, sandbox);
    }
}

/// Starts a container, once its backoff is over and its image is on the node.
pub(crate) fn launch(draft: &mut Draft<'_>, container: &Container, sandbox: &Sandbox) {
    let in_flight = draft.in_flight(&OpKey::Launch(container.name.clone()));
    match crash_backoff(draft, container) {
        // A container that exits at once is seen exited before its launch is seen finished: its backoff is reported all
        // the same.
        None | Some(BackoffState::Elapsed(_)) if in_flight => return,
        None => {}
        Some(BackoffState::Elapsed(backoff)) => {
            draft.evidence.durable.containers.entry(container.name.clone()).or_default().backoff = Some(backoff);
        }
        Some(BackoffState::Waiting { until, delay }) => {
            if draft.fresh_exits.contains(&container.name) {
                let message = format!("Back-off {} s restarting failed container {}", delay.as_secs(), container.name);
                draft.event(Some(&container.name), "BackOff", Severity::Warning, message);
            }
            draft.wake(until);
            return;
        }
    }
    if !image_is_here(draft, container) {
        return;
    }
    let attempt = next_attempt(draft, container);
    let operation = Operation::Launch { container: container.name.clone(), attempt, sandbox: sandbox.id.clone() };
    if draft.start(operation) {
        let launch = draft.evidence.volatile.launches.entry(container.name.clone()).or_default();
        // From here on a failure to start is the container's own.
        launch.cut_short = false;
        if container.pull_policy == PullPolicy::Always {
            launch.image = None;
        }
    }
}

/// It has to be removed before another one can take its name.
pub(super) fn remove_stillborn(draft: &mut Draft<'_>, found: &Instance) {
    draft.start(Operation::Remove { container: found.name.clone(), id: found.id.clone() });
}

/// The crash backoff before the next start; `None` where there is nothing to wait for: a first start, a start of a
/// restart of all containers, a container whose exit status is unknown.
pub(crate) fn crash_backoff(draft: &Draft<'_>, container: &Container) -> Option<BackoffState> {
    let durable = &draft.evidence.durable;
    let record = durable.container(&container.name)?;
    let exit = record.last_exit.as_ref()?;
    if durable.restart_all.stage.owes_start(&container.name) || record.counted_ahead {
        return None;
    }
    let key = format!("{}/{:08x}", container.image, container.resources_digest);
    Some(restart::backoff_state(
        record.backoff.as_ref(),
        draft.rules.crash_backoff,
        &key,
        &exit.id,
        exit.finished,
        draft.now,
    ))
}

fn image_is_here(draft: &mut Draft<'_>, container: &Container) -> bool {
    let launch = draft.evidence.volatile.launches.entry(container.name.clone()).or_default();
    if launch.image.as_ref() == Some(&container.image) {
        return true;
    }
    let of_this_image = launch.pull_backoff.as_ref().is_some_and(|backoff| backoff.key == container.image);
    match launch.pulls_again_at().filter(|_| of_this_image) {
        Some(until) if !draft.now.has_reached(&until) => draft.wake(until),
        _ => {
            let (container, image) = (container.name.clone(), container.image.clone());
            draft.start(Operation::EnsureImage { container, image });
        }
    }
    false
}

fn next_attempt(draft: &Draft<'_>, container: &Container) -> u32 {
    let remembered = draft.evidence.durable.container(&container.name).map_or(0, |record| record.next_attempt());
    let after_dead = draft.observed.newest(&container.name).map_or(0, |dead| dead.attempt.saturating_add(1));
    let logged = draft.observed.log_counts.get(&container.name).copied().unwrap_or(0);
    remembered.max(after_dead).max(logged)
}

/// A running container is kept, unless there is a reason to stop it.
fn keep_or_kill(draft: &mut Draft<'_>, container: &Container, found: &Instance) {
    let Some(instance) =
        draft.evidence.volatile.instances.get(&container.name).filter(|instance| instance.id == found.id)
    else {
        // It was abandoned while the runtime had lost track of it.
        let grace = draft.pod.termination_grace;
        kill::kill(draft, found, KillReason::StateUnknown, grace);
        return;
    };
    if let Some(kill) = instance.kill.clone() {
        kill::advance(draft, found, kill.reason, kill.grace, kill::Turn::Now);
        return;
    }
    let failed = |kind: ProbeKind| instance.probe(kind).verdict.passed() == Some(false) && instance.probe(kind).on_hold;
    let reason = if found.hash.is_some_and(|hash| hash != container.hash) {
        Some(KillReason::DefinitionChanged)
    } else if failed(ProbeKind::Liveness) {
        Some(KillReason::Probe(ProbeKind::Liveness))
    } else if failed(ProbeKind::Startup) {
        Some(KillReason::Probe(ProbeKind::Startup))
    } else if instance.post_start == HookProgress::Failed {
        Some(KillReason::PostStartFailed)
    } else {
        None
    };
    if let Some(reason) = reason {
        let grace = grace_for(draft, container, reason);
        announce(draft, container, reason);
        kill::kill(draft, found, reason, grace);
        return;
    }
    if instance.post_start == HookProgress::Due {
        draft.start(Operation::PostStart { container: container.name.clone(), id: found.id.clone() });
    }
}

/// The probe's own grace period for a kill that it causes, else the pod's (PROBE-30).
fn grace_for(draft: &Draft<'_>, container: &Container, reason: KillReason) -> Duration {
    let by_probe = match reason {
        KillReason::Probe(kind) => container.probe(kind).and_then(|probe| probe.termination_grace),
        _ => None,
    };
    by_probe.unwrap_or(draft.pod.termination_grace)
}

fn announce(draft: &mut Draft<'_>, container: &Container, reason: KillReason) {
    let noun = if container.role == Role::Sidecar { "Init container" } else { "Container" };
    let returns = container.restart_policy != keelet_pod::RestartPolicy::Never;
    let suffix = if returns { ", will be restarted" } else { "" };
    let name = &container.name;
    let message = match reason {
        KillReason::Probe(kind) => format!("{noun} {name} failed {kind} probe{suffix}"),
        KillReason::DefinitionChanged => format!("{noun} {name} definition changed, will be restarted"),
        KillReason::PostStartFailed => format!("{noun} {name} failed its post-start hook{suffix}"),
        KillReason::RestartAll
        | KillReason::PodEnding
        | KillReason::SandboxGone
        | KillReason::StateUnknown
        | KillReason::Superseded => format!("Stopping container {name}"),
    };
    draft.event(Some(name), "Killing", Severity::Normal, message);
}

/// If two instances of one name run, the older one is stopped.
fn stop_superseded(draft: &mut Draft<'_>, container: &Container) {
    let observed = draft.observed;
    let newest = draft.newest(&container.name).map(|instance| &instance.id);
    for instance in observed.containers.iter().filter(|instance| instance.name == container.name) {
        if instance.may_run() && Some(&instance.id) != newest {
            let grace = draft.pod.termination_grace;
            kill::advance(draft, instance, KillReason::Superseded, grace, kill::Turn::Now);
        }
    }
}
