//! The last step of a plan: the whole status, its version, and the stage of the pod.

use keelet_pod::Role;

use super::{
    Condition, ConditionType, ContainerState, ContainerStatus, Phase, PodIp, PodStatus, Terminated, Truth,
    conditions::{Finding, containers_ready, initialized, ready},
    phase::{Context, phase},
    states::{container_status, held, next_change},
    transition::may_return,
};
use crate::{
    absorb::STATUS_UNKNOWN,
    draft::Draft,
    evidence::{Admission, EndingCause, ReadyMark},
    observed::Before,
    operation::OpKey,
    order::{self, SandboxView},
    plan::{Because, Plan, Severity, Stage, Subject, Why},
    restart::{RestartAllRule, RestartAllStage, Trigger, describe},
};

/// How many values of the Ready condition are recorded as ours: enough for every write that can be in progress.
const READY_MARKS: usize = 8;

/// Computes the status and finishes the plan.
pub(crate) fn conclude(mut draft: Draft<'_>) -> Plan {
    let mut why = Vec::with_capacity(24);
    let status = pod_status(&draft, &mut why);
    if let Some(at) = next_change(&draft) {
        draft.wake(at);
    }
    if draft.evidence.volatile.reset_due {
        draft.wake(draft.now);
    }
    announce_pull_backoff(&mut draft, &status);
    remember(&mut draft, &status);
    let stage = stage(&draft);
    Plan {
        operations: draft.steps,
        version: draft.evidence.durable.version,
        status,
        why,
        evidence: draft.evidence,
        results: draft.results,
        events: draft.events,
        wake_at: draft.wake_at,
        stage,
    }
}

fn stage(draft: &Draft<'_>) -> Stage {
    if draft.evidence.durable.ending.is_none() {
        Stage::Live
    } else if order::gone(draft) {
        Stage::Gone
    } else if order::ended(draft) {
        Stage::Ended
    } else {
        Stage::Ending
    }
}

/// A container that begins to wait for the next pull of its image (BACK-9).
fn announce_pull_backoff(draft: &mut Draft<'_>, status: &PodStatus) {
    let backs_off = |container: &ContainerStatus| match &container.state {
        ContainerState::Waiting(waiting) => (waiting.reason == "ImagePullBackOff").then(|| waiting.message.clone()),
        ContainerState::Running(_) | ContainerState::Terminated(_) => None,
    };
    for container in status.all_containers() {
        let before = draft.evidence.durable.published.as_ref().and_then(|status| status.container(&container.name));
        if let (Some(message), None) = (backs_off(container), before.and_then(backs_off)) {
            draft.event(Some(&container.name), "BackOff", Severity::Normal, message);
        }
    }
}

fn remember(draft: &mut Draft<'_>, status: &PodStatus) {
    let durable = &mut draft.evidence.durable;
    if durable.published.as_ref() != Some(status) {
        durable.version += 1;
        durable.published = Some(status.clone());
    }
    if let Some(condition) = status.condition(&ConditionType::Ready) {
        let mark = ReadyMark {
            ready: condition.status == Truth::True,
            since: condition.last_transition_time.unwrap_or_default(),
        };
        if durable.ready_marks.last() != Some(&mark) {
            durable.ready_marks.push(mark);
            let excess = durable.ready_marks.len().saturating_sub(READY_MARKS);
            durable.ready_marks.drain(..excess);
        }
    }
    if let RestartAllStage::Terminating(cleanup) = &mut durable.restart_all.stage {
        cleanup.announced.get_or_insert(durable.version);
    }
}

fn pod_status(draft: &Draft<'_>, why: &mut Vec<Why>) -> PodStatus {
    let pod = draft.pod;
    let ended = order::ended(draft);
    let mut init: Vec<ContainerStatus> =
        pod.init_containers.iter().map(|container| container_status(draft, container, why)).collect();
    let mut regular: Vec<ContainerStatus> =
        pod.containers.iter().map(|container| container_status(draft, container, why)).collect();
    let mut ephemeral: Vec<ContainerStatus> =
        pod.ephemeral_containers.iter().map(|container| container_status(draft, container, why)).collect();
    if ended {
        close(draft, &mut init, &mut regular);
    }
    let all: Vec<ContainerStatus> = init.iter().chain(&regular).cloned().collect();
    let (phase, because) = settle_phase(draft, &all, ended);
    why.push(Why { subject: Subject::Phase, because });
    let conditions = conditions(draft, &all, phase, why);
    for status in init.iter_mut().chain(&mut regular).chain(&mut ephemeral) {
        stay_ended(draft, status);
    }
    regular.sort_by(|a, b| a.name.cmp(&b.name));
    ephemeral.sort_by(|a, b| a.name.cmp(&b.name));
    let previous = draft.evidence.durable.published.as_ref();
    let (reason, message) = match &draft.evidence.durable.admission {
        Admission::Rejected { reason, message } => (Some(reason.clone()), Some(message.clone())),
        Admission::Undecided | Admission::Admitted => previous
            .filter(|previous| previous.phase == phase)
            .map_or((None, None), |previous| (previous.reason.clone(), previous.message.clone())),
    };
    let ips = match order::view(pod, draft.observed) {
        SandboxView::Usable(sandbox) => sandbox.ips.clone(),
        // The address of an ending pod stays in the status until the pod is deleted.
        SandboxView::Unusable { .. } => previous
            .filter(|_| draft.evidence.durable.ending.is_some())
            .map(|previous| previous.pod_ips.iter().map(|ip| ip.ip.clone()).collect())
            .unwrap_or_default(),
    };
    PodStatus {
        phase,
        reason,
        message,
        conditions,
        start_time: draft.evidence.durable.first_seen.map(|moment| moment.wall.whole_seconds()),
        pod_ip: ips.first().cloned(),
        pod_ips: ips.into_iter().map(|ip| PodIp { ip }).collect(),
        init_container_statuses: init,
        container_statuses: regular,
        ephemeral_container_statuses: ephemeral,
        observed_generation: pod.generation,
    }
}

/// Nothing runs and nothing will: a container without a known exit is reported as terminated (STAT-23), except those
/// that were never due to start.
fn close(draft: &Draft<'_>, init: &mut [ContainerStatus], regular: &mut [ContainerStatus]) {
    if matches!(draft.evidence.durable.admission, Admission::Rejected { .. }) {
        return;
    }
    let lived = |name: &str| draft.evidence.durable.container(name).is_some_and(|record| record.has_lived());
    let initialized = draft.evidence.durable.initialized_in.is_some();
    let last_begun = init.iter().rposition(|status| lived(&status.name)).unwrap_or(0);
    let begun_init = init.iter_mut().enumerate().filter(|(index, _)| *index <= last_begun).map(|(_, status)| status);
    let begun_regular = regular.iter_mut().filter(|_| initialized);
    for status in begun_init.chain(begun_regular) {
        if matches!(status.state, ContainerState::Terminated(_)) {
            continue;
        }
        let terminated = Terminated {
            exit_code: 137,
            reason: STATUS_UNKNOWN.to_owned(),
            message: "the container could not be located when the pod was terminated".to_owned(),
            ..Terminated::default()
        };
        status.state = ContainerState::Terminated(terminated);
    }
}

/// The API server rejects a whole status in which a container that exited permanently runs again (API-20). Such a
/// container, an init container that has to run again after a reboot, is shown with its old state until it has exited
/// again. On a standalone node the real state is shown.
fn stay_ended(draft: &Draft<'_>, status: &mut ContainerStatus) {
    let published = draft.evidence.durable.published.as_ref().and_then(|before| before.container(&status.name));
    let (Some(before), Some(container)) = (published, draft.pod.container(&status.name)) else { return };
    let (Before::Cluster(_), ContainerState::Terminated(ended)) = (&draft.observed.agent.before, &before.state) else {
        return;
    };
    let is_back = !matches!(status.state, ContainerState::Terminated(_));
    // The API server goes by the rule in the spec that it has stored, whatever the feature gate is on this node.
    if is_back && !may_return(draft.pod, container, ended.exit_code, RestartAllRule::Honoured) {
        *status = before.clone();
    }
}

/// A terminal phase is final, and is only published once nothing runs any more. While all containers restart, the pod
/// is pending, whatever the states of its containers.
fn settle_phase(draft: &Draft<'_>, all: &[ContainerStatus], ended: bool) -> (Phase, Because) {
    let durable = &draft.evidence.durable;
    let before = durable.published.as_ref().map(|status| status.phase);
    if let Some(terminal) = before.filter(|phase| phase.is_terminal()) {
        let ended = durable.ending.as_ref();
        let because = ended.map(|ending| Because::Ending { cause: ending.cause.clone(), since: ending.since });
        return (terminal, because.unwrap_or(Because::Kept));
    }
    let names = || Because::Containers { names: all.iter().map(|status| status.name.clone()).collect() };
    let stage = &durable.restart_all.stage;
    if stage.is_under_way() {
        let since = stage.triggers().first().map_or(draft.now, Trigger::at);
        return (Phase::Pending, Because::RestartAll { trigger: describe(stage.triggers()), since });
    }
    let initialized = matches!(
        (order::view(draft.pod, draft.observed), &durable.initialized_in),
        (SandboxView::Usable(sandbox), Some(id)) if sandbox.id == *id
    );
    let context = Context { initialized, last_word: ended, restart_all: draft.rules.restart_all };
    let computed = phase(draft.pod, all, context);
    match &durable.ending {
        Some(ending) if ended => {
            let because = Because::Ending { cause: ending.cause.clone(), since: ending.since };
            let failed = !computed.is_terminal()
                || matches!(
                    ending.cause,
                    EndingCause::InitFailed { .. } | EndingCause::NotRebuilt | EndingCause::Rejected
                );
            (if failed { Phase::Failed } else { computed }, because)
        }
        // Not final yet: the pod keeps its phase.
        _ if computed.is_terminal() => (before.unwrap_or(Phase::Pending), names()),
        _ => (computed, names()),
    }
}

fn conditions(draft: &Draft<'_>, all: &[ContainerStatus], phase: Phase, why: &mut Vec<Why>) -> Vec<Condition> {
    let pod = draft.pod;
    let previous = draft.evidence.durable.published.as_ref();
    let was_initialized = previous.is_some_and(|status| status.is_true(&ConditionType::Initialized));
    let sandbox = match order::view(pod, draft.observed) {
        SandboxView::Usable(sandbox) => Finding::holds(Because::Sandbox { id: Some(sandbox.id.clone()), lost: None }),
        SandboxView::Unusable { why, lost } => {
            let message = lost.map_or_else(|| why.to_owned(), |lost| format!("{why}: {lost}"));
            let because = Because::Sandbox { id: None, lost: lost.map(str::to_owned) };
            Finding::fails("PodSandboxNotReady", Some(message), because)
        }
    };
    let containers = containers_ready(pod, all, phase);
    let mut findings = vec![
        (ConditionType::PodReadyToStartContainers, sandbox),
        (ConditionType::Initialized, initialized(pod, all, phase, was_initialized)),
        (ConditionType::Ready, unless_restarting(draft, ready(pod, &containers, &draft.observed.foreign_conditions))),
        (ConditionType::ContainersReady, containers),
        (ConditionType::PodScheduled, scheduled(draft)),
    ];
    if let Some(finding) = all_containers_restarting(draft, phase) {
        findings.push((ConditionType::AllContainersRestarting, finding));
    }
    findings
        .into_iter()
        .map(|(kind, finding)| {
            let status = Truth::from(finding.holds);
            let before = previous.and_then(|status| status.condition(&kind)).filter(|c| c.status == status);
            let since = before.and_then(|c| c.last_transition_time).unwrap_or(draft.now.wall.whole_seconds());
            why.push(Why { subject: Subject::Condition(kind.clone()), because: finding.because });
            Condition {
                kind,
                status,
                reason: finding.reason.map(str::to_owned),
                message: finding.message,
                last_transition_time: Some(since),
                observed_generation: pod.generation,
            }
        })
        .collect()
}

/// On a node of its own there is no scheduler. What a scheduler would say of a pod that the node's gates hold back, the agent says.
fn scheduled(draft: &Draft<'_>) -> Finding {
    match held(draft) {
        None => Finding::holds(Because::Spec),
        Some(because) => {
            let message = order::held_by(&draft.observed.pending_gates);
            Finding::fails("Unschedulable", Some(message), because)
        }
    }
}

/// A pod whose containers are about to be killed takes no traffic, and must not look healthy if the kills fail
/// (CON-16), even if each running container is as ready as before.
fn unless_restarting(draft: &Draft<'_>, ready: Finding) -> Finding {
    let stage = &draft.evidence.durable.restart_all.stage;
    let RestartAllStage::Terminating(cleanup) = stage else { return ready };
    if !ready.holds {
        return ready;
    }
    let trigger = describe(&cleanup.triggers);
    let because = Because::RestartAll { trigger: trigger.clone(), since: cleanup.since };
    Finding::fails("AllContainersRestarting", Some(trigger), because)
}

fn all_containers_restarting(draft: &Draft<'_>, phase: Phase) -> Option<Finding> {
    let stage = &draft.evidence.durable.restart_all.stage;
    let by_rule = draft.pod.has_restart_all_rule() && draft.rules.restart_all == RestartAllRule::Honoured;
    // The condition of a restart that a person requested is set to False, not left standing. With the feature gate off the
    // condition of a rule has no owner any more.
    let published = draft.evidence.durable.published.as_ref();
    let said = published.is_some_and(|status| status.condition(&ConditionType::AllContainersRestarting).is_some());
    let by_request = !draft.pod.has_restart_all_rule() && said;
    if !by_rule && !by_request && stage.triggers().is_empty() {
        return None;
    }
    let since = stage.triggers().first().map_or(draft.now, Trigger::at);
    let because = Because::RestartAll { trigger: describe(stage.triggers()), since };
    Some(match (phase, stage) {
        (Phase::Succeeded, _) => Finding::fails("PodCompleted", None, Because::Kept),
        (Phase::Failed, _) => Finding::fails("PodFailed", None, Because::Kept),
        (_, RestartAllStage::Terminating(cleanup)) => {
            let requested = cleanup.triggers.iter().all(|trigger| matches!(trigger, Trigger::Request { .. }));
            let reason = if requested { "RestartRequested" } else { "ContainerExited" };
            let message = Some(with_troubles(draft, describe(&cleanup.triggers)));
            Finding { holds: true, reason: Some(reason), message, because }
        }
        (_, RestartAllStage::Starting(_) | RestartAllStage::Idle { last: Some(_) }) => {
            Finding::fails("ContainersRemoved", Some(describe(stage.triggers())), because)
        }
        (_, RestartAllStage::Idle { last: None }) => {
            Finding { holds: false, reason: None, message: None, because: Because::Spec }
        }
    })
}

/// A kill or removal that keeps failing is named, so that the pod never looks healthy meanwhile.
fn with_troubles(draft: &Draft<'_>, mut message: String) -> String {
    for retry in &draft.evidence.volatile.retries {
        let (what, id) = match &retry.key {
            OpKey::Stop(id) => ("stopping", id),
            OpKey::Remove(id) => ("removing", id),
            _ => continue,
        };
        let instance = draft.observed.containers.iter().find(|instance| instance.id == *id);
        let Some(instance) =
            instance.filter(|i| draft.pod.container(&i.name).is_some_and(|c| c.role != Role::Ephemeral))
        else {
            continue;
        };
        message.push_str(&format!(
            "; {what} container {} failed {} times: {}",
            instance.name, retry.failures, retry.failure.message
        ));
    }
    message
}
