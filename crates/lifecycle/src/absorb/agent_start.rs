//! A new run of the agent (KEEP-*): an agent restart is not evidence of anything but itself.
//!
//! The ledger's evidence about a container ID stays true. What the ledger does not know comes from the API server's
//! copy. Readiness becomes doubtful only if another client withdrew it meanwhile, or if no agent watched for too long.

use std::{collections::BTreeSet, time::Duration};

use keelet_pod::{AgentRestart, Pod, ProbeKind, Role};

use super::instances::{STATUS_UNKNOWN, is_stand_in};
use crate::{
    draft::Draft,
    evidence::{ContainerRecord, Durable, Evidence, Exit, ExitCause, ReadyMark, RunningRecord, Volatile},
    observed::{Before, Known},
    operation::KillReason,
    probe::{self, Basis, ProbeMemory, Verdict},
    restart::{self, Cleanup, RESTARTING_ALL, RestartAllStage, Startup, Trigger},
    status::{ConditionType, ContainerState, ContainerStatus, Phase, PodStatus, Terminated},
    time::{Moment, Wall},
};

/// Which source a new run of the agent may trust for containers that its ledger does not know.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Inherits {
    /// None: this run has watched all along, or no status was ever planned.
    Nothing,
    /// Each container's own started and ready, as this node last published them.
    OwnStatus,
    /// The API server's copy: started by container, ready by the pod's Ready condition.
    ApiStatus,
}

/// Notices that another run of the agent, or another boot, has begun.
pub(crate) fn agent_start(draft: &mut Draft<'_>) {
    let run = draft.observed.agent.started;
    let volatile = &mut draft.evidence.volatile;
    if volatile.agent_started == Some(run) && volatile.boot_id == draft.now.boot_id {
        if std::mem::take(&mut volatile.reset_due) {
            reset(volatile, draft.now);
        }
        late_copy(draft);
        return;
    }
    let missed = draft.observed.agent.missed;
    let missed = missed.filter(|absence| volatile.agent_started.is_none_or(|seen| !seen.has_reached(&absence.until)));
    draft.resuming = true;
    draft.inherits = if draft.evidence.durable.published.is_some() { Inherits::OwnStatus } else { Inherits::Nothing };
    begin_run(draft, run);
    match &draft.observed.agent.before {
        Before::Cluster(Known::NotAskedYet) => {
            let Evidence { durable, volatile } = &mut draft.evidence;
            volatile.copy_unchecked.get_or_insert_with(|| durable.ready_marks.clone());
        }
        Before::Cluster(_) if draft.evidence.volatile.copy_unchecked.is_some() => late_copy(draft),
        Before::Cluster(Known::Copy(stored)) => compare(draft, stored),
        Before::Standalone(away) => {
            let away = (*away).max(missed.map(|absence| absence.away));
            let is_long = |away: &Duration| *away > draft.rules.node_monitor_grace;
            draft.doubt = away.filter(is_long).map(|away| Basis::Absence { away });
        }
        Before::Cluster(Known::NoCopy) => {}
    }
    if let Some(basis) = draft.doubt.clone() {
        doubt_readiness(draft, &basis);
    }
    if draft.rules.agent_restart == AgentRestart::ResetStatus {
        assume_all_well(draft);
    }
    if draft.evidence.durable.first_seen.is_none() {
        draft.evidence.durable.first_seen = Some(draft.now);
    }
}

/// Operations died with the process that ran them; probe state is carried over. After a reboot no container is left.
fn begin_run(draft: &mut Draft<'_>, run: Moment) {
    let now = draft.now;
    let volatile = &mut draft.evidence.volatile;
    if volatile.boot_id != now.boot_id {
        *volatile = Volatile {
            boot_id: now.boot_id,
            next_operation: volatile.next_operation,
            copy_unchecked: volatile.copy_unchecked.take(),
            ..Volatile::default()
        };
        each_moment(&mut draft.evidence.durable, |moment| *moment = moment.in_boot_of(&now));
    }
    let volatile = &mut draft.evidence.volatile;
    volatile.agent_started = Some(run);
    let launches = volatile.pending.drain(..).filter(|pending| pending.operation.starts_container());
    draft.interrupted = launches.filter_map(|pending| pending.operation.container().map(str::to_owned)).collect();
    for name in &draft.interrupted {
        volatile.launches.entry(name.clone()).or_default().cut_short = true;
    }
    for (name, instance) in &mut volatile.instances {
        let Some(container) = draft.pod.container(name) else { continue };
        for kind in ProbeKind::ALL {
            if let Some(spec) = container.probe(kind) {
                probe::after_restart(instance.probe_mut(kind), spec, now);
            }
        }
    }
}

/// The times from which waits are counted.
fn each_moment(durable: &mut Durable, mut visit: impl FnMut(&mut Moment)) {
    for record in durable.containers.values_mut() {
        for exit in [&mut record.last_exit, &mut record.previous_exit].into_iter().flatten() {
            visit(&mut exit.finished);
        }
        if let Some(backoff) = &mut record.backoff {
            visit(&mut backoff.advanced);
        }
    }
    for backoff in durable.restart_all.backoff.values_mut() {
        visit(&mut backoff.advanced);
    }
    durable.restart_all.stage.each_moment(&mut visit);
    if let Some(ending) = &mut durable.ending {
        visit(&mut ending.since);
    }
}

/// Compares the API server's copy of the status with the status that this node last published.
fn compare(draft: &mut Draft<'_>, stored: &PodStatus) {
    if draft.evidence.durable.published.is_none() || another_agent_was_in_charge(&draft.evidence.durable, stored) {
        inherit(draft, stored);
        return;
    }
    if foreign_ready(draft, stored, &[]).is_some() {
        draft.doubt = Some(Basis::ForeignWrite);
    }
}

/// Takes over what the API server's copy says of the pod as a whole. Returns when the Ready condition was written, if another
/// writer set it: it is neither among the newest that were ours nor among those `older` ones.
fn foreign_ready(draft: &mut Draft<'_>, stored: &PodStatus, older: &[ReadyMark]) -> Option<Wall> {
    // A terminal phase is final, whichever client wrote it.
    if let Some(published) = draft.evidence.durable.published.as_mut().filter(|_| stored.phase.is_terminal()) {
        published.phase = stored.phase;
        (published.reason, published.message) = (stored.reason.clone(), stored.message.clone());
    }
    let ready = stored.condition(&ConditionType::Ready)?;
    let since = ready.last_transition_time.unwrap_or_default();
    let mark = ReadyMark { ready: stored.is_true(&ConditionType::Ready), since };
    let marks = &mut draft.evidence.durable.ready_marks;
    if marks.is_empty() || marks.contains(&mark) || older.contains(&mark) {
        return None;
    }
    // Applied once: the next run of the agent may find the same copy if our own status is not published before.
    marks.push(mark);
    // Others see the foreign value, so the next transition counts from it.
    if let Some(published) = &mut draft.evidence.durable.published {
        published.conditions.retain(|condition| condition.kind != ConditionType::Ready);
        published.conditions.push(ready.clone());
    }
    Some(since)
}

/// The API server is reached for the first time after an agent has begun to act without its copy (KEEP-26). What this run has
/// probed itself stands; of what it only carried over, the copy may take something back.
fn late_copy(draft: &mut Draft<'_>) {
    let Before::Cluster(known) = &draft.observed.agent.before else { return };
    if *known == Known::NotAskedYet {
        return;
    }
    let (Some(then), Known::Copy(stored)) = (draft.evidence.volatile.copy_unchecked.take(), known) else { return };
    // A ledger that was empty when the API server could not be reached has nothing that a copy could contradict.
    if then.is_empty() || another_agent_was_in_charge(&draft.evidence.durable, stored) {
        inherit_late(draft, stored);
    } else if let Some(written) = foreign_ready(draft, stored, &then) {
        let basis = Basis::LateForeignWrite { written, seen: draft.now };
        doubt_readiness(draft, &basis);
    }
}

/// Takes over from a late copy what the agent cannot have seen: restart counts, times, and what no probe has shown since.
fn inherit_late(draft: &mut Draft<'_>, stored: &PodStatus) {
    let (now, pod) = (draft.now, draft.pod);
    let Evidence { durable, volatile } = &mut draft.evidence;
    durable.first_seen = stored.start_time.map(|start| now.dated(start)).or(durable.first_seen);
    let mut published = stored.clone();
    published.conditions.retain(|condition| !matches!(condition.kind, ConditionType::Foreign(_)));
    durable.published = Some(published);
    for status in stored.all_containers() {
        let record = durable.containers.entry(status.name.clone()).or_default();
        record.restart_count = record.restart_count.max(status.restart_count);
        let instance = volatile
            .instances
            .get_mut(&status.name)
            .filter(|instance| Some(&instance.id) == status.container_id.as_ref());
        let (Some(instance), Some(container)) = (instance, pod.container(&status.name)) else { continue };
        let unproven = |memory: &ProbeMemory| {
            let carried_result = matches!(memory.verdict, Verdict::Carried { basis: Basis::Probe { .. }, .. });
            !carried_result && !matches!(memory.verdict, Verdict::Probed { .. })
        };
        if status.started == Some(true) && unproven(&instance.startup) {
            instance.startup.verdict = Verdict::Carried { passed: true, basis: Basis::Status };
            instance.startup.on_hold = true;
        }
        if status.started != Some(false) && container.readiness.is_some() && unproven(&instance.readiness) {
            let passed = stored.is_true(&ConditionType::Ready);
            instance.readiness.verdict = Verdict::Carried { passed, basis: Basis::Status };
        }
    }
}

/// A copy that is merely older than the ledger names instances that the ledger has seen. Instances that it has not seen
/// were started by another agent.
fn another_agent_was_in_charge(durable: &Durable, stored: &PodStatus) -> bool {
    stored.all_containers().any(|status| {
        let record = durable.container(&status.name).cloned().unwrap_or_default();
        let knows = |id: &String| {
            let exits = [&record.last_exit, &record.previous_exit];
            record.newest.as_ref() == Some(id) || exits.into_iter().flatten().any(|exit| exit.id == *id)
        };
        let same_count_other_instance = || {
            status.restart_count == record.restart_count && status.container_id.as_ref().is_some_and(|id| !knows(id))
        };
        status.restart_count > record.restart_count || same_count_other_instance()
    })
}

/// Takes over the values of the API server's copy.
fn inherit(draft: &mut Draft<'_>, stored: &PodStatus) {
    draft.inherits = Inherits::ApiStatus;
    draft.evidence.volatile.instances.clear();
    let now = draft.now;
    let durable = &mut draft.evidence.durable;
    durable.first_seen = stored.start_time.map(|start| now.dated(start)).or(durable.first_seen);
    let mut published = stored.clone();
    published.conditions.retain(|condition| !matches!(condition.kind, ConditionType::Foreign(_)));
    durable.published = Some(published);
    for status in stored.all_containers() {
        let exit = |terminated: &Terminated| exit_from(terminated, now);
        let mut record = ContainerRecord {
            restart_count: status.restart_count,
            newest: status.container_id.clone(),
            backoff: durable.containers.get(&status.name).and_then(|record| record.backoff.clone()),
            last_exit: status.last_state.terminated.as_ref().map(exit),
            image_id: Some(status.image_id.clone()).filter(|id| !id.is_empty()),
            // The copy does not name the sandbox in which the init container succeeded, only that it did.
            completed_in: is_complete(draft.pod, status).then(String::new),
            counted_ahead: is_counted_ahead(status),
            ..ContainerRecord::default()
        };
        match (&status.state, &status.container_id) {
            (ContainerState::Running(running), Some(id)) => {
                record.running =
                    Some(RunningRecord { id: id.clone(), started_at: running.started_at, sandbox: String::new() });
            }
            (ContainerState::Terminated(terminated), _) => {
                record.ended(exit(terminated));
                if nothing_newer(draft.observed, status) {
                    draft.fresh_exits.push(status.name.clone());
                }
            }
            (ContainerState::Running(_) | ContainerState::Waiting(_), _) => {}
        }
        durable.containers.insert(status.name.clone(), Box::new(record));
    }
    inherit_restart_all(draft, stored);
}

/// The progress of a restart of all containers by the API server's copy. Another agent may have begun one or finished
/// ours, so the ledger counts only where both say that containers are being removed.
fn inherit_restart_all(draft: &mut Draft<'_>, stored: &PodStatus) {
    let now = draft.now;
    let durable = &mut draft.evidence.durable;
    let condition = stored.condition(&ConditionType::AllContainersRestarting);
    let message = condition.and_then(|condition| condition.message.clone());
    let message = message.unwrap_or_else(|| "all containers were restarting".to_owned());
    if stored.is_true(&ConditionType::AllContainersRestarting) {
        if matches!(durable.restart_all.stage, RestartAllStage::Terminating(_)) {
            return;
        }
        let triggers = vec![Trigger::Inherited { message, at: now }];
        let lived = |name: &String| durable.container(name).is_some_and(ContainerRecord::has_lived);
        let restarted = draft.pod.lasting_containers().map(|c| c.name.clone()).filter(lived).collect();
        durable.restart_all.stage =
            RestartAllStage::Terminating(Cleanup { since: now, triggers, announced: None, restarted });
        return;
    }
    // Until every regular container has been started again the phase is Pending (CON-11). A trigger whose image cannot be pulled
    // waits for another reason by then.
    let is_waiting_trigger = |status: &ContainerStatus| {
        let ended = status.last_state.terminated.as_ref();
        stored.phase == Phase::Pending
            && matches!(status.state, ContainerState::Waiting(_))
            && ended.is_some_and(|ended| restart::names_exit(&message, &status.name, ended.exit_code))
    };
    let outstanding: BTreeSet<String> = stored
        .all_containers()
        .filter(|status| was_removed_to_restart(status) || is_waiting_trigger(status))
        .map(|status| status.name.clone())
        .collect();
    // Victims and triggers are counted already (RALL-14); containers that waited for their backoff are not (RALL-15).
    for (name, record) in durable.containers.iter_mut().filter(|(name, _)| outstanding.contains(*name)) {
        let is_victim = record.last_exit.as_ref().is_some_and(|exit| exit.reason == RESTARTING_ALL);
        record.counted_ahead = is_victim || restart::names_trigger(&message, name);
        if let Some(exit) = &mut record.last_exit {
            exit.answered = true;
        }
    }
    if !outstanding.is_empty() {
        let triggers = vec![Trigger::Inherited { message, at: now }];
        durable.initialized_in = None;
        durable.restart_all.stage =
            RestartAllStage::Starting(Startup { since: now, triggers, released: true, outstanding });
    } else if durable.restart_all.stage.is_under_way() {
        durable.restart_all.stage = RestartAllStage::default();
    }
}

/// Whether a container waits for its start in a restart of all containers.
fn was_removed_to_restart(status: &ContainerStatus) -> bool {
    let ContainerState::Waiting(waiting) = &status.state else { return false };
    let ended = status.last_state.terminated.as_ref();
    waiting.reason == RESTARTING_ALL
        || waiting.message.contains(restart::BACKOFF_OF_ALL)
        || ended.is_some_and(|ended| ended.reason == RESTARTING_ALL)
}

/// Whether the restart count includes an instance that has not started. An agent that misses a running container counts
/// its restart together with the loss (STAT-5).
fn is_counted_ahead(status: &ContainerStatus) -> bool {
    let lost = status.last_state.terminated.as_ref().is_some_and(|ended| ended.reason == STATUS_UNKNOWN);
    lost && matches!(status.state, ContainerState::Waiting(_))
}

/// Whether a status is that of an ordinary init container that succeeded.
fn is_complete(pod: &Pod, status: &ContainerStatus) -> bool {
    let is_init = pod.container(&status.name).is_some_and(|container| container.role == Role::Init);
    is_init && status.ready && matches!(status.state, ContainerState::Terminated(_))
}

/// Whether the runtime has no instance after the one in this status.
fn nothing_newer(observed: &crate::observed::Observed, status: &ContainerStatus) -> bool {
    observed.newest(&status.name).is_none_or(|newest| Some(&newest.id) == status.container_id.as_ref())
}

fn exit_from(terminated: &Terminated, now: Moment) -> Exit {
    Exit {
        id: terminated.container_id.clone().unwrap_or_default(),
        sandbox: String::new(),
        exit_code: terminated.exit_code,
        reason: terminated.reason.clone(),
        message: terminated.message.clone(),
        started_at: terminated.started_at,
        finished: terminated.finished_at.map_or(now, |at| now.dated(at)),
        cause: cause_from(terminated),
        answered: false,
    }
}

/// What ended an instance, by the reason in its status.
fn cause_from(terminated: &Terminated) -> ExitCause {
    match terminated.reason.as_str() {
        RESTARTING_ALL => ExitCause::Killed(KillReason::RestartAll),
        reason if is_stand_in(terminated.exit_code, reason) => ExitCause::Lost,
        _ => ExitCause::Own,
    }
}

/// Readiness has to be probed again where there is a probe; started stays. So does what a probe has shown under this run.
fn doubt_readiness(draft: &mut Draft<'_>, basis: &Basis) {
    let pod = draft.pod;
    for (name, instance) in &mut draft.evidence.volatile.instances {
        let proven = matches!(instance.readiness.verdict, Verdict::Probed { .. });
        if !proven && pod.container(name).is_some_and(|container| container.readiness.is_some()) {
            instance.readiness.verdict = Verdict::Carried { passed: false, basis: basis.clone() };
            instance.readiness.streak = None;
        }
    }
}

/// The first half of the legacy reset: for one status, every running container is started and ready.
fn assume_all_well(draft: &mut Draft<'_>) {
    let volatile = &mut draft.evidence.volatile;
    for instance in volatile.instances.values_mut() {
        assume_well(&mut instance.startup);
        assume_well(&mut instance.readiness);
        volatile.reset_due = true;
    }
}

pub(crate) fn assume_well(memory: &mut ProbeMemory) {
    memory.verdict = Verdict::Carried { passed: true, basis: Basis::LegacyReset };
}

/// The second half: every probe starts from its initial value.
fn reset(volatile: &mut Volatile, now: Moment) {
    for instance in volatile.instances.values_mut() {
        for kind in ProbeKind::ALL {
            *instance.probe_mut(kind) = ProbeMemory::default();
        }
        instance.startup.due = Some(now);
    }
}
