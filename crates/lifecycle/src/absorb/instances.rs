//! Instances that started and exited (STAT-2, STAT-3, STAT-5, STAT-8).

use keelet_pod::{AgentRestart, Container, Role};

use super::agent_start::{Inherits, assume_well};
use crate::{
    draft::Draft,
    evidence::{ContainerRecord, Evidence, Exit, ExitCause, HookProgress, RunningInstance, RunningRecord},
    observed::{Instance, InstanceState},
    operation::KillReason,
    probe::{Basis, ProbeMemory, Verdict},
    restart::{self, RESTARTING_ALL},
    status::{ConditionType, ContainerState},
    time::{Now, Wall},
};

/// Containers that neither ledger nor API server knows count as running before the agent only if they are this much
/// older than it, so that a skew between two clocks cannot pass a new one off as an old one.
const SKEW_MS: i64 = 10_000;

/// The exit code that runtimes report for containers that went down with the node.
const UNKNOWN_AFTER_BOOT: i32 = 255;

/// The placeholder for an unknown exit code.
const UNKNOWN_EXIT_CODE: i32 = 137;

/// The reason of an exit whose status is unknown.
pub(crate) const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";

/// Records instances that started and exited.
pub(crate) fn instances(draft: &mut Draft<'_>) {
    for container in draft.pod.all_containers() {
        let instances = draft.observed.containers.iter().filter(|instance| instance.name == container.name);
        let record = draft.evidence.durable.container(&container.name);
        let outlived = |instance: &Instance| record.is_some_and(|record| record.has_outlived(instance));
        let mut found: Vec<&Instance> =
            instances.filter(|instance| !is_stillborn(draft, instance) && !outlived(instance)).collect();
        found.sort_by_key(|instance| instance.age_key());
        let Some((newest, older)) = found.split_last() else {
            absent(draft, container);
            continue;
        };
        for instance in older {
            missed(draft, container, instance);
        }
        seen(draft, container, newest);
    }
    forget_exited(draft);
}

/// Drops what is remembered of instances that do not run by the record. The two parts of the evidence are written to two disks: one
/// that was full may still have an instance whose exit the other has recorded.
fn forget_exited(draft: &mut Draft<'_>) {
    let Evidence { durable, volatile } = &mut draft.evidence;
    let running = |name: &str| durable.container(name).and_then(|record| record.running.as_ref());
    volatile.instances.retain(|name, remembered| running(name).is_some_and(|running| running.id == remembered.id));
}

/// Whether an instance ended without ever having run because the agent died during its start. That says nothing about
/// the container: it does not count as an instance, and is removed and created again.
pub(crate) fn is_stillborn(draft: &Draft<'_>, instance: &Instance) -> bool {
    let InstanceState::Exited { started_at, .. } = &instance.state else { return false };
    let volatile = &draft.evidence.volatile;
    let counted = draft.evidence.durable.container(&instance.name).and_then(|record| record.newest.as_ref());
    let cut_short = volatile.launches.get(&instance.name).is_some_and(|launch| launch.cut_short);
    cut_short && never_ran(*started_at) && counted != Some(&instance.id)
}

/// An instance that is not the newest: it matters only if its exit is not recorded yet.
fn missed(draft: &mut Draft<'_>, container: &Container, instance: &Instance) {
    let record = draft.evidence.durable.containers.entry(container.name.clone()).or_default();
    let was_running = record.running.as_ref().is_some_and(|running| running.id == instance.id);
    let takeover = record.newest.is_none();
    if !(was_running || takeover) {
        return;
    }
    if let InstanceState::Exited { .. } = instance.state {
        if takeover {
            record.restart_count = record.restart_count.max(instance.attempt);
        }
        let exit = exit_of(draft, container, instance);
        let record = draft.evidence.durable.containers.entry(container.name.clone()).or_default();
        record.ended(exit);
        draft.evidence.volatile.instances.remove(&container.name);
    }
}

fn seen(draft: &mut Draft<'_>, container: &Container, instance: &Instance) {
    match &instance.state {
        // It has not started, and perhaps never will.
        InstanceState::Created => {
            if draft.evidence.durable.container(&container.name).is_some_and(|record| record.running.is_some()) {
                absent(draft, container);
            }
        }
        InstanceState::Running { started_at } => running(draft, container, instance, *started_at),
        InstanceState::Exited { .. } => exited(draft, container, instance),
        InstanceState::Unknown => unknown(draft, container, instance),
    }
}

fn running(draft: &mut Draft<'_>, container: &Container, instance: &Instance, started_at: Wall) {
    begin(draft, container, instance);
    let record = draft.evidence.durable.containers.entry(container.name.clone()).or_default();
    if record.last_exit.as_ref().is_some_and(|exit| exit.id == instance.id) {
        // The runtime lost track of it, the agent abandoned it, and now it is back: it stays abandoned.
        return;
    }
    if record.running.as_ref().is_none_or(|running| running.id != instance.id || running.sandbox != instance.sandbox) {
        record.running = Some(RunningRecord { id: instance.id.clone(), started_at, sandbox: instance.sandbox.clone() });
    }
    if draft.evidence.volatile.instances.get(&container.name).is_none_or(|remembered| remembered.id != instance.id) {
        let remembered = new_instance(draft, container, instance, started_at);
        draft.evidence.volatile.instances.insert(container.name.clone(), Box::new(remembered));
    }
}

fn exited(draft: &mut Draft<'_>, container: &Container, instance: &Instance) {
    begin(draft, container, instance);
    let known = draft.evidence.durable.container(&container.name).and_then(|record| record.last_exit.as_ref());
    match known.filter(|exit| exit.id == instance.id) {
        Some(exit) if exit.cause != ExitCause::Lost => {
            note_completion(draft, container, instance);
            return;
        }
        Some(lost) => {
            let exit = exit_of(draft, container, instance);
            let said = |exit: &Exit| (exit.exit_code, exit.reason.clone(), exit.message.clone());
            if exit.cause == ExitCause::Lost && said(&exit) == said(lost) {
                return;
            }
            // It was abandoned without an exit code; now there may be one.
            let known = exit.cause != ExitCause::Lost;
            let cause = if known { ExitCause::Killed(KillReason::StateUnknown) } else { ExitCause::Lost };
            let exit = Exit { cause, ..exit };
            let record = draft.evidence.durable.containers.entry(container.name.clone()).or_default();
            record.last_exit = Some(exit);
        }
        None => {
            let exit = exit_of(draft, container, instance);
            let record = draft.evidence.durable.containers.entry(container.name.clone()).or_default();
            record.ended(exit);
            draft.fresh_exits.push(container.name.clone());
        }
    }
    draft.evidence.volatile.instances.remove(&container.name);
    note_completion(draft, container, instance);
}

fn note_completion(draft: &mut Draft<'_>, container: &Container, instance: &Instance) {
    let record = draft.evidence.durable.containers.entry(container.name.clone()).or_default();
    let succeeded = record.last_exit.as_ref().is_some_and(|exit| exit.id == instance.id && exit.is_success());
    if container.role == Role::Init && succeeded && record.completed_in.as_ref() != Some(&instance.sandbox) {
        record.completed_in = Some(instance.sandbox.clone());
    }
}

/// The runtime does not know its state. It is abandoned: stopped, and replaced if the policy allows it.
fn unknown(draft: &mut Draft<'_>, container: &Container, instance: &Instance) {
    let record = draft.evidence.durable.containers.entry(container.name.clone()).or_default();
    if record.running.as_ref().is_some_and(|running| running.id == instance.id) {
        give_up(draft, container);
    }
}

/// The runtime has no instance of the container.
fn absent(draft: &mut Draft<'_>, container: &Container) {
    count_logged(draft, container);
    if draft.evidence.durable.container(&container.name).is_some_and(|record| record.running.is_some()) {
        give_up(draft, container);
    }
    draft.evidence.volatile.instances.remove(&container.name);
}

/// Nothing but log files may be left of earlier instances (STAT-8). Their number is recorded with the first plan: log files are
/// read only where there is no evidence, and the agent may die before it starts the container.
fn count_logged(draft: &mut Draft<'_>, container: &Container) {
    let logged = draft.observed.log_counts.get(&container.name).copied().unwrap_or(0);
    let record = draft.evidence.durable.container(&container.name);
    if logged > record.map_or(0, |record| record.restart_count) && !record.is_some_and(ContainerRecord::has_lived) {
        let record = draft.evidence.durable.containers.entry(container.name.clone()).or_default();
        (record.restart_count, record.counted_ahead) = (logged, true);
    }
}

/// A container was running when last observed, and its exit status is unknown.
fn give_up(draft: &mut Draft<'_>, container: &Container) {
    let terminating = matches!(draft.evidence.durable.restart_all.stage, restart::RestartAllStage::Terminating(_));
    let remembered = draft.evidence.volatile.instances.remove(&container.name);
    let ending = draft.evidence.durable.ending.is_some() || draft.observed.deletion.is_some();
    let record = draft.evidence.durable.containers.entry(container.name.clone()).or_default();
    let Some(running) = record.running.take() else { return };
    let removed_by_us =
        remembered.and_then(|remembered| remembered.kill).filter(|kill| kill.reason == KillReason::RestartAll);
    let (reason, message, cause) = match removed_by_us {
        Some(kill) => (RESTARTING_ALL, "removed to restart all containers", ExitCause::Killed(kill.reason)),
        None if terminating => (RESTARTING_ALL, "lost while all containers were being removed", ExitCause::Lost),
        None => (
            STATUS_UNKNOWN,
            "the container was running when last seen and is not in the runtime any more",
            ExitCause::Lost,
        ),
    };
    record.ended(Exit {
        id: running.id,
        sandbox: running.sandbox,
        exit_code: UNKNOWN_EXIT_CODE,
        reason: reason.to_owned(),
        message: message.to_owned(),
        started_at: Some(running.started_at),
        finished: draft.now,
        cause,
        answered: false,
    });
    if !terminating && !ending && container.role != Role::Ephemeral {
        record.restart_count = record.restart_count.saturating_add(1);
        record.counted_ahead = true;
    }
}

/// Counts an instance that was not known before.
fn begin(draft: &mut Draft<'_>, container: &Container, instance: &Instance) {
    let record = draft.evidence.durable.containers.entry(container.name.clone()).or_default();
    if record.image_id.as_deref() != Some(&instance.image_id) {
        record.image_id = Some(instance.image_id.clone());
    }
    if record.newest.as_ref() == Some(&instance.id) {
        record.restart_count = record.restart_count.max(instance.attempt);
    } else {
        if record.running.is_some() {
            give_up(draft, container);
        }
        let record = draft.evidence.durable.containers.entry(container.name.clone()).or_default();
        record.restart_count = record.next_attempt().max(instance.attempt);
        record.counted_ahead = false;
        record.newest = Some(instance.id.clone());
        let launch = draft.evidence.volatile.launches.entry(container.name.clone()).or_default();
        (launch.failure, launch.cut_short) = (None, false);
        restart::instance_began(&mut draft.evidence.durable.restart_all.stage, &container.name);
    }
    if container.role == Role::Regular
        && draft.evidence.durable.initialized_in.as_ref() != Some(&instance.sandbox)
        && draft.observed.sandboxes.iter().any(|sandbox| sandbox.id == instance.sandbox && sandbox.ready)
    {
        draft.evidence.durable.initialized_in = Some(instance.sandbox.clone());
    }
}

fn exit_of(draft: &Draft<'_>, container: &Container, instance: &Instance) -> Exit {
    let InstanceState::Exited { started_at, finished_at, exit_code, reason, message } = &instance.state else {
        unreachable!("only exited instances have an exit")
    };
    let kill = draft
        .evidence
        .volatile
        .instances
        .get(&container.name)
        .filter(|remembered| remembered.id == instance.id)
        .and_then(|remembered| remembered.kill.as_ref());
    let lost = is_stand_in(*exit_code, reason)
        || never_ran(*started_at)
        || *exit_code == UNKNOWN_AFTER_BOOT && outlived_its_boot(draft.now, *started_at, *finished_at);
    let cause = match kill.map(|kill| kill.reason) {
        // After a kill by a probe the exit code alone describes the result.
        None | Some(KillReason::Probe(_)) if lost => ExitCause::Lost,
        None => ExitCause::Own,
        Some(reason) => ExitCause::Killed(reason),
    };
    Exit {
        id: instance.id.clone(),
        sandbox: instance.sandbox.clone(),
        exit_code: *exit_code,
        reason: reason.clone(),
        message: message.clone(),
        started_at: Some(*started_at),
        finished: draft.now.dated(*finished_at),
        cause,
        answered: false,
    }
}

/// Whether an exit code is a placeholder, by the reasons of the runtimes: containerd reports `Unknown` for a task that
/// it lost and `StartError` where a program was never executed, dockerd `ContainerCannotRun`, keelet's own runtime
/// `ContainerStatusUnknown`; CRI-O reports -1.
pub(super) fn is_stand_in(exit_code: i32, reason: &str) -> bool {
    exit_code < 0 || matches!(reason, "Unknown" | "StartError" | "ContainerCannotRun" | STATUS_UNKNOWN)
}

/// Whether a container was created and never started.
fn never_ran(started_at: Wall) -> bool {
    started_at.as_millis() <= 0
}

/// Whether a container supposedly started before this boot and exited in it, which is impossible: CRI-O dates the exit
/// of containers that went down with the node so.
fn outlived_its_boot(now: Now, started_at: Wall, finished_at: Wall) -> bool {
    let boot = now.wall.as_millis().saturating_sub(now.boot_ms);
    started_at.as_millis() < boot && finished_at.as_millis() >= boot
}

/// What is remembered of an instance that the volatile evidence does not have. Of one that starts under this run: nothing. Of one that the first
/// plan of a run found: started and ready of the last status, our own or the API server's.
fn new_instance(
    draft: &mut Draft<'_>,
    container: &Container,
    instance: &Instance,
    started_at: Wall,
) -> RunningInstance {
    let mut remembered = RunningInstance::new(instance.id.clone(), draft.now.dated(started_at));
    // The previous agent launched it and died before it observed it, so its hook has not run.
    let found = draft.resuming && !draft.interrupted.contains(&container.name);
    if container.post_start.is_none() || found {
        remembered.post_start = HookProgress::Done;
    }
    if !found {
        return remembered;
    }
    if draft.rules.agent_restart == AgentRestart::ResetStatus {
        assume_well(&mut remembered.startup);
        assume_well(&mut remembered.readiness);
        draft.evidence.volatile.reset_due = true;
        return remembered;
    }
    let older = started_at.as_millis() < draft.observed.agent.started.wall.as_millis() - SKEW_MS;
    let published = draft.evidence.durable.published.as_ref();
    let Some((published, status)) = published.and_then(|all| Some((all, all.container(&container.name)?))) else {
        if older {
            // Running its startup probe again might kill a container that has run well for a year.
            remembered.startup = ProbeMemory { on_hold: true, ..carried(true, Basis::Age) };
        }
        return remembered;
    };
    let same = status.container_id.as_ref() == Some(&instance.id);
    // A known ID that differs means another instance: there is no evidence about it, however old it is.
    let no_known_id = status.container_id.is_none() && matches!(status.state, ContainerState::Running(_));
    if !(same || no_known_id && older) {
        return remembered;
    }
    if status.started == Some(true) {
        remembered.startup.verdict = Verdict::Carried { passed: true, basis: Basis::Status };
        remembered.startup.on_hold = true;
    }
    if status.started != Some(false) {
        let passed = match draft.inherits {
            Inherits::ApiStatus => published.is_true(&ConditionType::Ready),
            Inherits::OwnStatus | Inherits::Nothing => status.ready,
        };
        remembered.readiness = match &draft.doubt {
            Some(basis) => carried(false, basis.clone()),
            None => carried(passed, Basis::Status),
        };
    }
    remembered
}

fn carried(passed: bool, basis: Basis) -> ProbeMemory {
    ProbeMemory { verdict: Verdict::Carried { passed, basis }, ..ProbeMemory::default() }
}

// === impl Exit ===

impl Exit {
    /// Exit code 0, and not because of the OOM killer.
    pub fn is_success(&self) -> bool {
        self.exit_code == 0 && self.reason != "OOMKilled"
    }
}
