//! Finished operations.

use std::time::Duration;

use keelet_pod::ProbeKind;

use crate::{
    draft::Draft,
    evidence::{HookProgress, StartFailure},
    operation::{OpFailure, OpResult, OpState, Operation, Outcome, Pending, ProbeReport},
    plan::{ProbeRecord, Severity},
    probe::{self, Eager, Effect},
    restart::Backoff,
    time::Moment,
};

/// Folds in finished operations, and drops pending ones that are no longer running.
pub(crate) fn results(draft: &mut Draft<'_>) {
    let reports = &draft.observed.operations;
    let mut finished = Vec::new();
    draft.evidence.volatile.pending.retain(|pending| {
        match reports.iter().find(|report| report.id == pending.id).map(|report| &report.state) {
            Some(OpState::InFlight) => true,
            Some(OpState::Finished { at, result }) => {
                finished.push((pending.clone(), *at, result));
                false
            }
            None => false,
        }
    });
    for (pending, at, result) in finished {
        take(draft, &pending, at, result);
    }
}

fn take(draft: &mut Draft<'_>, pending: &Pending, at: Moment, result: &OpResult) {
    let key = pending.operation.key();
    match result {
        OpResult::Done => draft.succeeded(&key),
        OpResult::Failed(failure) if !matches!(pending.operation, Operation::Probe { .. }) => {
            draft.failed(key, failure.clone());
        }
        OpResult::Failed(_) | OpResult::Probed(_) | OpResult::Cancelled => {}
    }
    match &pending.operation {
        Operation::PrepareVolumes => match result {
            OpResult::Done => draft.evidence.volatile.volumes_ready = true,
            OpResult::Failed(failure) => warn(draft, None, "FailedMount", failure),
            OpResult::Probed(_) | OpResult::Cancelled => {}
        },
        Operation::CreateSandbox { .. } => {
            if let OpResult::Failed(failure) = result {
                warn(draft, None, "FailedCreatePodSandBox", failure);
            }
        }
        Operation::StopSandbox { .. } | Operation::RemoveSandbox { .. } => {
            if let OpResult::Failed(failure) = result {
                warn(draft, None, "FailedKillPod", failure);
            }
        }
        Operation::EnsureImage { container, image } => image_result(draft, container, image, at, result),
        Operation::Launch { container, .. } | Operation::StartCreated { container, .. } => {
            launch_result(draft, container, at, result);
        }
        Operation::PostStart { container, id } => post_start_result(draft, container, id, at, result),
        Operation::PreStop { container, id, .. } => pre_stop_result(draft, container, id, result),
        Operation::Stop { container, .. } | Operation::Remove { container, .. } => {
            if let OpResult::Failed(failure) = result {
                warn(draft, Some(container), "FailedKillPod", failure);
            }
        }
        Operation::Probe { container, id, probe, eager } => {
            let report = match result {
                // The container has exited meanwhile. The failure may be the exit, so it is no result.
                OpResult::Probed(report) if report.outcome == Outcome::Failure && draft.observed.has_ended(id) => {
                    ProbeReport { outcome: Outcome::Cancelled, ..report.clone() }
                }
                OpResult::Probed(report) => report.clone(),
                OpResult::Failed(failure) => non_result(Outcome::Error, &failure.message),
                OpResult::Done | OpResult::Cancelled => non_result(Outcome::Cancelled, ""),
            };
            let record = ProbeRecord {
                container: container.clone(),
                id: id.clone(),
                probe: *probe,
                eager: *eager,
                at,
                outcome: report.outcome,
                latency: report.latency,
                output: report.output.clone(),
            };
            draft.results.push(record);
            match eager {
                true => eager_result(draft, container, id, *probe, at, &report),
                false => probe_result(draft, container, id, *probe, at, &report),
            }
        }
    }
}

fn non_result(outcome: Outcome, output: &str) -> ProbeReport {
    ProbeReport { outcome, latency: Duration::ZERO, output: output.to_owned() }
}

fn warn(draft: &mut Draft<'_>, container: Option<&str>, reason: &'static str, failure: &OpFailure) {
    // The event has its own reason: that of the failure is said only if it is another one.
    let message = match failure.reason == reason {
        true => failure.message.clone(),
        false => format!("{}: {}", failure.reason, failure.message),
    };
    draft.event(container, reason, Severity::Warning, message);
}

fn image_result(draft: &mut Draft<'_>, container: &str, image: &str, at: Moment, result: &OpResult) {
    let limits = draft.rules.pull_backoff;
    let launch = draft.evidence.volatile.launches.entry(container.to_owned()).or_default();
    match result {
        OpResult::Done => {
            launch.image = Some(image.to_owned());
            // A failure other than that of the image stays until the container has started (STAT-7).
            let of_lookup = launch.failure.as_ref().is_some_and(|failed| failed.failure.is_of_lookup());
            if launch.pull_backoff.take().is_some() || of_lookup {
                launch.failure = None;
            }
        }
        OpResult::Failed(failure) if failure.is_of_lookup() => {
            let news = launch.failure.as_ref().is_none_or(|known| known.failure != *failure);
            if news {
                launch.failure = Some(StartFailure { failure: failure.clone(), at });
                warn(draft, Some(container), "Failed", failure);
            }
            // However often it failed before, the next lookup is a second away.
            let key = crate::operation::OpKey::Image(container.to_owned());
            draft.succeeded(&key);
            draft.failed(key, failure.clone());
        }
        OpResult::Failed(failure) => {
            let next = match &launch.pull_backoff {
                Some(entry) if entry.key == image && !entry.is_idle(at) => (entry.delay * 2).min(limits.cap),
                _ => limits.initial,
            };
            launch.pull_backoff =
                Some(Backoff { delay: next, advanced: at, key: image.to_owned(), served: String::new() });
            launch.failure = Some(StartFailure { failure: failure.clone(), at });
            // The pull backoff alone decides when to retry.
            let key = crate::operation::OpKey::Image(container.to_owned());
            draft.succeeded(&key);
            warn(draft, Some(container), "Failed", failure);
        }
        OpResult::Probed(_) | OpResult::Cancelled => {}
    }
}

fn launch_result(draft: &mut Draft<'_>, container: &str, at: Moment, result: &OpResult) {
    let launch = draft.evidence.volatile.launches.entry(container.to_owned()).or_default();
    match result {
        OpResult::Done => {
            launch.failure = None;
            draft.event(Some(container), "Started", Severity::Normal, format!("Started container {container}"));
        }
        OpResult::Failed(failure) => {
            launch.failure = Some(StartFailure { failure: failure.clone(), at });
            // The image may have been removed meanwhile.
            launch.image = None;
            warn(draft, Some(container), "Failed", failure);
        }
        OpResult::Probed(_) | OpResult::Cancelled => {}
    }
}

fn post_start_result(draft: &mut Draft<'_>, container: &str, id: &str, at: Moment, result: &OpResult) {
    let progress = match result {
        OpResult::Failed(_) => HookProgress::Failed,
        OpResult::Done | OpResult::Probed(_) => HookProgress::Done,
        OpResult::Cancelled => return,
    };
    let Some(instance) = draft.evidence.volatile.instances.get_mut(container).filter(|instance| instance.id == id)
    else {
        return;
    };
    instance.post_start = progress;
    if let OpResult::Failed(failure) = result {
        // The hook's own output may contain secrets; it stays out of the event and out of the status.
        let failure = OpFailure { reason: "PostStartHookError".to_owned(), message: failure.reason.clone() };
        let launch = draft.evidence.volatile.launches.entry(container.to_owned()).or_default();
        launch.failure = Some(StartFailure { failure, at });
        draft.event(Some(container), "FailedPostStartHook", Severity::Warning, "PostStartHook failed".to_owned());
    }
}

fn pre_stop_result(draft: &mut Draft<'_>, container: &str, id: &str, result: &OpResult) {
    if let OpResult::Failed(_) = result {
        draft.event(Some(container), "FailedPreStopHook", Severity::Warning, "PreStopHook failed".to_owned());
    }
    let instance = draft.evidence.volatile.instances.get_mut(container).filter(|instance| instance.id == id);
    if let Some(kill) = instance.and_then(|instance| instance.kill.as_mut()) {
        // The hook failed or was cut short; the stop continues.
        kill.pre_stop = HookProgress::Done;
    }
}

fn probe_result(draft: &mut Draft<'_>, container: &str, id: &str, kind: ProbeKind, at: Moment, report: &ProbeReport) {
    let Some(spec) = draft.pod.container(container).and_then(|c| c.probe(kind)) else { return };
    let Some(instance) = draft.evidence.volatile.instances.get_mut(container).filter(|instance| instance.id == id)
    else {
        return;
    };
    let being_killed = instance.kill.is_some();
    let memory = instance.probe_mut(kind);
    // An attempt that began before a kill was decided does not count towards another kill.
    if memory.on_hold || (being_killed && kind != ProbeKind::Readiness) {
        return;
    }
    let was_overdue = memory.last.as_ref().is_some_and(|last| memory.overdue(spec, last.at).is_some());
    let effect = probe::take(memory, kind, spec, report, at);
    let overdue = memory.overdue(spec, at).filter(|_| !was_overdue);
    let due = memory.due.unwrap_or(at);
    memory.due = Some(match effect {
        Effect::TryAgain => due,
        Effect::None | Effect::Changed => probe::after_attempt(spec, due, at),
    });
    let round_over = effect != Effect::TryAgain;
    match report.outcome {
        Outcome::Success | Outcome::Warning => memory.eager = Eager::Over,
        Outcome::Failure | Outcome::Error if round_over => memory.eager.after_scheduled(kind, spec, at),
        Outcome::Failure | Outcome::Error | Outcome::Late | Outcome::Cancelled => {}
    }
    announce(draft, container, kind, report, round_over);
    if let Some(late) = overdue {
        let (title, late, why) = (kind.title(), late.as_secs(), &report.output);
        let message = format!(
            "{title} probe: this node could not run the probe for {late} s, so its result is not up to date: {why}"
        );
        draft.event(Some(container), "ProbeLate", Severity::Warning, message);
    }
}

/// An attempt between the scheduled ones. A pass counts as any other; the rest counts for nothing and is no event.
fn eager_result(draft: &mut Draft<'_>, container: &str, id: &str, kind: ProbeKind, at: Moment, report: &ProbeReport) {
    let Some(spec) = draft.pod.container(container).and_then(|c| c.probe(kind)) else { return };
    let instance = draft.evidence.volatile.instances.get_mut(container).filter(|instance| instance.id == id);
    let Some(instance) = instance else { return };
    let being_killed = instance.kill.is_some();
    let memory = instance.probe_mut(kind);
    if !matches!(report.outcome, Outcome::Success | Outcome::Warning) {
        return memory.eager.after_eager(spec, at);
    }
    if memory.on_hold || (being_killed && kind != ProbeKind::Readiness) {
        return;
    }
    // The schedule goes on as if there had been no such attempt.
    let unscheduled = memory.unscheduled;
    probe::take(memory, kind, spec, report, at);
    memory.unscheduled = unscheduled;
    memory.eager = Eager::Over;
    announce(draft, container, kind, report, true);
}

fn announce(draft: &mut Draft<'_>, container: &str, kind: ProbeKind, report: &ProbeReport, round_over: bool) {
    let (title, output) = (kind.title(), &report.output);
    let (reason, message) = match report.outcome {
        Outcome::Failure => ("Unhealthy", format!("{title} probe failed: {output}")),
        Outcome::Warning => ("ProbeWarning", format!("{title} probe warning: {output}")),
        Outcome::Error if round_over => {
            ("Unhealthy", format!("{title} probe errored and resulted in unknown state: {output}"))
        }
        Outcome::Error | Outcome::Success | Outcome::Late | Outcome::Cancelled => return,
    };
    draft.event(Some(container), reason, Severity::Warning, message);
}
