//! The status of one container (STAT-1..15).

use keelet_pod::{Container, ProbeKind, Role};

use super::{ContainerState, ContainerStatus, LastState, Running, Terminated, Waiting};
use crate::{
    draft::Draft,
    evidence::{ContainerRecord, Exit, ExitCause, GateHold, Launch, RunningInstance},
    observed::InstanceState,
    operation::OpKey,
    order::{self, has_started},
    plan::{Because, Subject, Why},
    probe::Verdict,
    restart::{self, BackoffState, Decision, RESTARTING_ALL, RestartAllStage, Trigger, on_exit},
    time::Moment,
};

/// A failed pull is called `ErrImagePull` or `RegistryUnavailable` for this long, then `ImagePullBackOff` until it is tried again.
const PULL_ERROR_SHOWN_MS: u64 = 1000;

/// The status of one container, with its reasons.
pub(crate) fn container_status(draft: &Draft<'_>, container: &Container, why: &mut Vec<Why>) -> ContainerStatus {
    let default = ContainerRecord::default();
    let record = draft.evidence.durable.container(&container.name).unwrap_or(&default);
    let instance = draft.evidence.volatile.instances.get(&container.name).map(Box::as_ref);
    let (state, because) = state(draft, container, record, instance);
    let last_exit = match state {
        ContainerState::Terminated(_) => record.previous_exit.as_ref(),
        ContainerState::Running(_) | ContainerState::Waiting(_) => record.last_exit.as_ref(),
    };
    let (started, started_because) = started(container, instance);
    let (ready, ready_because) = ready(draft, container, record, instance);
    let name = || container.name.clone();
    why.push(Why { subject: Subject::State(name()), because });
    if container.role != Role::Ephemeral {
        why.push(Why { subject: Subject::Started(name()), because: started_because });
        why.push(Why { subject: Subject::Ready(name()), because: ready_because });
    }
    if record.restart_count > 0 {
        // Log files alone may show that there were earlier instances, and not how they exited (STAT-8).
        let because = record.last_exit.as_ref().map_or(Because::Kept, |exit| exited(draft, container, exit));
        why.push(Why { subject: Subject::RestartCount(name()), because });
    }
    ContainerStatus {
        name: name(),
        state,
        last_state: LastState::from(last_exit.map(Exit::to_status)),
        ready,
        started: (container.role != Role::Ephemeral).then_some(started),
        restart_count: record.restart_count,
        image: container.image.clone(),
        image_id: record.image_id.clone().unwrap_or_default(),
        container_id: record.newest.clone(),
    }
}

fn state(
    draft: &Draft<'_>,
    container: &Container,
    record: &ContainerRecord,
    instance: Option<&RunningInstance>,
) -> (ContainerState, Because) {
    if let (Some(instance), Some(running)) = (instance, &record.running) {
        let started_at = running.started_at.whole_seconds();
        let because = match &instance.kill {
            Some(kill) => Because::Stopping { reason: kill.reason, since: kill.since },
            None => Because::Running { since: instance.started, id: instance.id.clone() },
        };
        return (ContainerState::Running(Running { started_at }), because);
    }
    let stage = &draft.evidence.durable.restart_all.stage;
    if stage.owes_start(&container.name) {
        return to_be_restarted(draft, container);
    }
    let Some(exit) = &record.last_exit else { return never_lived(draft, container) };
    let terminated = || (ContainerState::Terminated(exit.to_status()), exited(draft, container, exit));
    if draft.evidence.durable.ending.is_some() || is_complete(container, exit) {
        // A lost container is reported as terminated only once nothing can restart it.
        let open = is_missing(draft, container, exit) && !order::ended(draft);
        return if open { (default_waiting(draft), exited(draft, container, exit)) } else { terminated() };
    }
    if let RestartAllStage::Terminating(cleanup) = stage
        && cleanup.restarted.contains(&container.name)
    {
        return terminated();
    }
    if !restart::restarts_after(container, exit, draft.rules.restart_all) {
        let missing = is_missing(draft, container, exit);
        return if missing { (default_waiting(draft), exited(draft, container, exit)) } else { terminated() };
    }
    if let Some(failed) = start_failure(draft, container) {
        return failed;
    }
    if let Some(BackoffState::Waiting { until, delay }) = order::maintain::crash_backoff(draft, container) {
        let message = format!(
            "back-off {} s restarting failed container {}, next attempt at {}",
            delay.as_secs(),
            container.name,
            until.wall.whole_seconds()
        );
        return (waiting("CrashLoopBackOff", message), Because::Backoff { until, delay });
    }
    let gone = draft.newest(&container.name).is_none_or(|newest| newest.state == InstanceState::Created);
    // The API server allows a terminated container to run again only if its exit code permits it. Where the agent has
    // another reason, the container is shown waiting, never terminated.
    let may_come_back = on_exit(container, exit.exit_code, draft.rules.restart_all) != Decision::Stay;
    if (exit.cause == ExitCause::Lost && gone) || !may_come_back {
        return (default_waiting(draft), exited(draft, container, exit));
    }
    if is_created(draft, container) {
        return (waiting("", String::new()), exited(draft, container, exit));
    }
    terminated()
}

/// Its exit status is unknown, no instance of it is left, and it has not been reported as terminated before.
fn is_missing(draft: &Draft<'_>, container: &Container, exit: &Exit) -> bool {
    let called_ended = draft
        .evidence
        .durable
        .published
        .as_ref()
        .and_then(|status| status.container(&container.name))
        .is_some_and(|status| matches!(status.state, ContainerState::Terminated(_)));
    exit.cause == ExitCause::Lost && draft.newest(&container.name).is_none() && !called_ended
}

/// A container that a restart of all containers has to start.
fn to_be_restarted(draft: &Draft<'_>, container: &Container) -> (ContainerState, Because) {
    let stage = &draft.evidence.durable.restart_all.stage;
    let RestartAllStage::Starting(startup) = stage else { return (default_waiting(draft), Because::Pending) };
    if let Some(failed) = start_failure(draft, container).filter(|_| !pull_backoff_has_expired(draft, container)) {
        return failed;
    }
    let own = startup.triggers.iter().find(|trigger| trigger.container() == Some(&container.name));
    if !startup.released
        && let Some(Trigger::Exit { id, at, .. }) = own
        && let BackoffState::Waiting { until, delay } = restart::backoff_of(draft, &container.name, id, *at)
    {
        let message = format!(
            "back-off {} s {}, next attempt at {}",
            delay.as_secs(),
            restart::BACKOFF_OF_ALL,
            until.wall.whole_seconds()
        );
        return (waiting("CrashLoopBackOff", message), Because::Backoff { until, delay });
    }
    let trigger = restart::describe(&startup.triggers);
    let because = Because::RestartAll { trigger: trigger.clone(), since: startup.since };
    (waiting(RESTARTING_ALL, trigger), because)
}

fn never_lived(draft: &Draft<'_>, container: &Container) -> (ContainerState, Because) {
    if let Some(failed) = start_failure(draft, container) {
        return failed;
    }
    let regular_exists = || draft.pod.containers.iter().any(|c| draft.newest(&c.name).is_some());
    if container.role == Role::Init && regular_exists() {
        // Its instance was removed, but the pod could not have come this far without its success.
        let inferred = Terminated { reason: "Completed".to_owned(), ..Terminated::default() };
        return (ContainerState::Terminated(inferred), Because::Kept);
    }
    if is_created(draft, container) {
        return (waiting("", String::new()), Because::Pending);
    }
    (default_waiting(draft), held(draft).unwrap_or(Because::Pending))
}

/// The readiness gates of the node that hold the pod back, if some do.
pub(super) fn held(draft: &Draft<'_>) -> Option<Because> {
    let GateHold::Held { since } = draft.evidence.volatile.gate_hold else { return None };
    let pending = draft.observed.pending_gates.clone();
    order::is_held(draft).then_some(Because::NodeGates { pending, since })
}

/// Created but not started, and nothing delays its start (STAT-3).
fn is_created(draft: &Draft<'_>, container: &Container) -> bool {
    draft.newest(&container.name).is_some_and(|newest| newest.state == InstanceState::Created)
}

/// Why the last attempt to start it failed, until the next attempt succeeds.
fn start_failure(draft: &Draft<'_>, container: &Container) -> Option<(ContainerState, Because)> {
    let launch = draft.evidence.volatile.launches.get(&container.name)?;
    let failed = launch.failure.as_ref()?;
    let failure = &failed.failure;
    let because =
        Because::StartFailed { reason: failure.reason.clone(), message: failure.message.clone(), at: failed.at };
    // It stays the reason during the next pull.
    let backing_off = launch.pull_backoff.as_ref().filter(|_| failure.is_of_pull());
    if let Some(backoff) = backing_off
        && crate::time::millis(draft.now.since(&failed.at)) >= PULL_ERROR_SHOWN_MS
    {
        let message = format!("Back-off pulling image {:?}: {}", backoff.key, failure.message);
        return Some((waiting("ImagePullBackOff", message), because));
    }
    Some((waiting(&failure.reason, failure.message.clone()), because))
}

/// Whether the backoff of a failed pull has expired and no pull runs: another condition blocks the container, so the image
/// is not what it waits for.
fn pull_backoff_has_expired(draft: &Draft<'_>, container: &Container) -> bool {
    let launch = draft.evidence.volatile.launches.get(&container.name);
    let until = launch.and_then(|launch| launch.pulls_again_at());
    until.is_some_and(|until| draft.now.has_reached(&until)) && !draft.in_flight(&OpKey::Image(container.name.clone()))
}

/// When the waiting reason of a failed pull changes or ends, if it still has to.
pub(crate) fn next_change(draft: &Draft<'_>) -> Option<Moment> {
    let shown = std::time::Duration::from_millis(PULL_ERROR_SHOWN_MS);
    let named_until = |launch: &Launch| {
        let failed = launch.failure.as_ref().filter(|failed| failed.failure.is_of_pull());
        failed.map(|failed| failed.at.plus(shown))
    };
    draft
        .evidence
        .volatile
        .launches
        .values()
        .flat_map(|launch| [named_until(launch), launch.pulls_again_at()])
        .flatten()
        .filter(|at| !draft.now.has_reached(at))
        .reduce(Moment::earlier)
}

fn started(container: &Container, instance: Option<&RunningInstance>) -> (bool, Because) {
    match instance {
        None => (false, Because::NotRunning),
        Some(instance) if container.startup.is_none() => {
            (true, Because::Running { since: instance.started, id: instance.id.clone() })
        }
        Some(instance) => (has_started(container, instance), verdict(instance, ProbeKind::Startup)),
    }
}

fn ready(
    draft: &Draft<'_>,
    container: &Container,
    record: &ContainerRecord,
    instance: Option<&RunningInstance>,
) -> (bool, Because) {
    if container.role == Role::Init {
        return match &record.last_exit {
            Some(exit) if is_complete(container, exit) && record.running.is_none() && record.completed_in.is_some() => {
                (true, exited(draft, container, exit))
            }
            None if matches!(never_lived(draft, container).0, ContainerState::Terminated(_)) => (true, Because::Kept),
            _ => (false, Because::NotRunning),
        };
    }
    if container.role == Role::Ephemeral {
        return (false, Because::Spec);
    }
    match instance {
        None => (false, Because::NotRunning),
        Some(instance) if !has_started(container, instance) => (false, Because::NotStarted),
        Some(_) if container.readiness.is_none() => (true, Because::NoProbe),
        Some(instance) => (instance.readiness.verdict.passed() == Some(true), verdict(instance, ProbeKind::Readiness)),
    }
}

fn verdict(instance: &RunningInstance, probe: ProbeKind) -> Because {
    let memory = instance.probe(probe);
    match &memory.verdict {
        Verdict::NeverProbed => Because::NotYetProbed {
            probe,
            streak: memory.streak.map_or(0, |streak| streak.length),
            passing: memory.streak.is_some_and(|streak| streak.passed),
        },
        Verdict::Carried { passed, basis } => Because::Carried { probe, passed: *passed, basis: basis.clone() },
        Verdict::Probed { passed, at, streak, output } => {
            Because::Probe { probe, passed: *passed, at: *at, streak: *streak, output: output.clone() }
        }
    }
}

fn exited(draft: &Draft<'_>, container: &Container, exit: &Exit) -> Because {
    let rule = match on_exit(container, exit.exit_code, draft.rules.restart_all) {
        Decision::RestartAll { rule } | Decision::Restart { rule: Some(rule) } if exit.is_judged_by_rules() => {
            Some(rule)
        }
        Decision::RestartAll { .. } | Decision::Restart { .. } | Decision::Stay => None,
    };
    Because::Exited { id: exit.id.clone(), exit_code: exit.exit_code, at: exit.finished, cause: exit.cause, rule }
}

/// An ordinary init container is done with its first success.
fn is_complete(container: &Container, exit: &Exit) -> bool {
    container.role == Role::Init && exit.is_success()
}

fn waiting(reason: &str, message: String) -> ContainerState {
    ContainerState::Waiting(Waiting { reason: reason.to_owned(), message })
}

fn default_waiting(draft: &Draft<'_>) -> ContainerState {
    if order::is_held(draft) {
        return waiting(order::GATE_PENDING, order::held_by(&draft.observed.pending_gates));
    }
    let reason = if draft.pod.init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
    waiting(reason, String::new())
}

// === impl Exit ===

impl Exit {
    /// The exit in the API's form.
    pub fn to_status(&self) -> Terminated {
        Terminated {
            exit_code: self.exit_code,
            reason: self.reason.clone(),
            message: self.message.clone(),
            started_at: self.started_at.map(crate::time::Wall::whole_seconds),
            finished_at: Some(self.finished.wall.whole_seconds()),
            container_id: (!self.id.is_empty()).then(|| self.id.clone()),
        }
    }
}
