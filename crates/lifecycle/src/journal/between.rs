//! The comparison of two evidences.

use std::time::Duration;

use super::{Note, RestartAllStep, What};
use crate::{
    Because, Evidence, Subject, Why,
    evidence::{Admission, Exit, RunningInstance},
    operation::{KillReason, OpKey, Operation, Pending},
    probe::{Basis, Verdict},
    restart::{RestartAllStage, Trigger},
    status::{Condition, ConditionType, ContainerState, ContainerStatus},
    time::Moment,
};

/// Foreign texts are cut to this many bytes: the evidence and the probe history have more.
const LONGEST_TEXT: usize = 256;

/// The changes from `before` to `after`, causes before their effects.
///
/// `why` are the reasons of the newer status. `last_seen` is when the previous agent run was last alive; it is used
/// only where another run has begun.
pub fn between(before: &Evidence, after: &Evidence, why: &[Why], last_seen: Option<Moment>, now: Moment) -> Vec<Note> {
    let mut scribe = Scribe { before, after, why, now, notes: Vec::new() };
    scribe.agent(last_seen);
    if before.durable != after.durable {
        scribe.exits();
        scribe.ending();
    }
    scribe.request();
    if before.durable.restart_all.stage != after.durable.restart_all.stage {
        scribe.restart_all();
    }
    scribe.kills();
    scribe.launches();
    if before.durable != after.durable {
        scribe.instances();
        scribe.status();
    }
    scribe.notes
}

/// Collects the changes.
struct Scribe<'a> {
    before: &'a Evidence,
    after: &'a Evidence,
    why: &'a [Why],
    now: Moment,
    notes: Vec<Note>,
}

// === impl Scribe ===

impl Scribe<'_> {
    fn note(&mut self, at: Moment, what: What, because: Option<Because>) {
        self.notes.push(Note { at, what, because: because.map(shortened) });
    }

    fn because(&self, subject: &Subject) -> Option<Because> {
        self.why.iter().find(|why| why.subject == *subject).map(|why| why.because.clone())
    }

    fn agent(&mut self, last_seen: Option<Moment>) {
        let (before, after) = (&self.before.volatile, &self.after.volatile);
        if self.before.durable.first_seen.is_none() && self.after.durable.first_seen.is_some() {
            self.note(self.now, What::Seen, None);
        } else if let Some(run) = after.agent_started.filter(|run| before.agent_started != Some(*run)) {
            let other_boot = |boot| boot != run.boot_id;
            let known = (before.boot_id != Default::default()).then_some(before.boot_id);
            let rebooted = known.or(last_seen.map(|seen| seen.boot_id)).is_some_and(other_boot);
            let last_seen = last_seen.or_else(|| self.long_absence().map(|away| run.minus(away)));
            self.note(run, What::AgentStarted { last_seen, rebooted }, None);
        }
        if let Admission::Rejected { reason, message } = &self.after.durable.admission
            && self.before.durable.admission != self.after.durable.admission
        {
            let what = What::Rejected { reason: reason.clone(), message: text(message) };
            self.note(self.now, what, None);
        }
        if before.reset_due != after.reset_due {
            self.note(self.now, What::LegacyReset { done: before.reset_due }, None);
        }
    }

    /// The absence that made readiness doubtful, if one did.
    fn long_absence(&self) -> Option<Duration> {
        self.after.volatile.instances.values().find_map(|instance| match &instance.readiness.verdict {
            Verdict::Carried { basis: Basis::Absence { away }, .. } => Some(*away),
            Verdict::Carried { .. } | Verdict::NeverProbed | Verdict::Probed { .. } => None,
        })
    }

    fn exits(&mut self) {
        let (before, after) = (self.before, self.after);
        for (name, record) in &after.durable.containers {
            let old = before.durable.container(name);
            let old = old.map(|old| [&old.previous_exit, &old.last_exit]).unwrap_or([&None, &None]);
            let same = |a: &Exit, b: &Exit| (&a.id, a.exit_code, a.cause) == (&b.id, b.exit_code, b.cause);
            for exit in [&record.previous_exit, &record.last_exit].into_iter().flatten() {
                if !old.into_iter().flatten().any(|old| same(old, exit)) {
                    let rule = self.rule(exit);
                    let exit = Exit { message: text(&exit.message), ..exit.clone() };
                    self.note(exit.finished, What::Exited { container: name.clone(), exit, rule }, None);
                }
            }
        }
    }

    /// The index of the restart rule that an exit matched.
    fn rule(&self, exit: &Exit) -> Option<usize> {
        let by_trigger = self.after.durable.restart_all.stage.triggers().iter().find_map(|trigger| match trigger {
            Trigger::Exit { id, rule, .. } if *id == exit.id => Some(*rule),
            Trigger::Exit { .. } | Trigger::Request { .. } | Trigger::Inherited { .. } => None,
        });
        by_trigger.or_else(|| {
            self.why.iter().find_map(|why| match &why.because {
                Because::Exited { id, rule, .. } if *id == exit.id => *rule,
                _ => None,
            })
        })
    }

    fn ending(&mut self) {
        let Some(ending) = &self.after.durable.ending else { return };
        let what = What::Ending { cause: ending.cause.clone(), grace: ending.grace, deleted: ending.deleted };
        match &self.before.durable.ending {
            None => self.note(ending.since, what, None),
            Some(old) if (old.grace, old.deleted) != (ending.grace, ending.deleted) => self.note(self.now, what, None),
            Some(_) => {}
        }
    }

    fn request(&mut self) {
        let Some(request) = &self.after.volatile.restart_request else { return };
        if self.before.volatile.restart_request.as_ref() != Some(request) {
            let by = self.after.durable.restart_all.stage.triggers().iter().find_map(|trigger| match trigger {
                Trigger::Request { id, by, .. } if id == request => Some(by.clone()),
                Trigger::Exit { .. } | Trigger::Request { .. } | Trigger::Inherited { .. } => None,
            });
            self.note(self.now, What::RequestTaken { id: request.clone(), by }, None);
        }
    }

    fn restart_all(&mut self) {
        use RestartAllStage::{Idle, Starting, Terminating};
        let (old, new) = (&self.before.durable.restart_all.stage, &self.after.durable.restart_all.stage);
        let (at, step) = match (old, new) {
            (Terminating(old), Terminating(new)) if old.triggers.len() < new.triggers.len() => {
                (self.now, RestartAllStep::Joined)
            }
            (Starting(old), Starting(new)) if !old.released && new.released => (self.now, RestartAllStep::Released),
            (Terminating(_), Terminating(_)) | (Starting(_), Starting(_)) | (Idle { .. }, Idle { .. }) => return,
            (_, Terminating(cleanup)) => (cleanup.since, RestartAllStep::Begun),
            (_, Starting(startup)) => (startup.since, RestartAllStep::Removed),
            (_, Idle { last: Some(_) }) => (self.now, RestartAllStep::Finished),
            (_, Idle { last: None }) => (self.now, RestartAllStep::Abandoned),
        };
        let triggers = if step == RestartAllStep::Abandoned { old.triggers() } else { new.triggers() };
        self.note(at, What::RestartAll { step, triggers: triggers.to_vec() }, None);
    }

    fn kills(&mut self) {
        let (before, after) = (&self.before.volatile, &self.after.volatile);
        for (name, instance) in &after.instances {
            let Some(kill) = &instance.kill else { continue };
            let old = before.instances.get(name).filter(|old| old.id == instance.id).and_then(|old| old.kill.as_ref());
            if old.is_none_or(|old| old.reason != kill.reason) {
                let (container, id) = (name.clone(), instance.id.clone());
                let what = What::Killing { container, id, reason: kill.reason, grace: kill.grace };
                self.note(kill.since, what, verdict_behind(instance, kill.reason));
            }
        }
        for pending in self.begun() {
            let Operation::Stop { container, id, timeout, reason } = &pending.operation else { continue };
            // An exit that a restart answered is marked, and recorded above.
            if after.instances.get(container).is_none_or(|instance| instance.id != *id) {
                let (container, id) = (container.clone(), id.clone());
                let what = What::Killing { container, id, reason: *reason, grace: *timeout };
                self.note(pending.since, what, None);
            }
        }
    }

    /// Operations that were not running before, without retries.
    fn begun(&self) -> Vec<Pending> {
        let (before, after) = (&self.before.volatile, &self.after.volatile);
        let failed = |key: &OpKey| before.retries.iter().any(|retry| retry.key == *key);
        let is_new = |pending: &&Pending| {
            !before.pending.iter().any(|old| old.id == pending.id) && !failed(&pending.operation.key())
        };
        after.pending.iter().filter(is_new).cloned().collect()
    }

    fn launches(&mut self) {
        for pending in self.begun() {
            let attempt_of = |name: &str| self.after.durable.container(name).map_or(0, |record| record.next_attempt());
            let what = match &pending.operation {
                Operation::CreateSandbox { attempt } => What::SandboxRequested { attempt: *attempt },
                Operation::Launch { container, attempt, .. } => {
                    What::Launching { container: container.clone(), attempt: *attempt }
                }
                Operation::StartCreated { container, .. } => {
                    What::Launching { container: container.clone(), attempt: attempt_of(container) }
                }
                _ => continue,
            };
            self.note(pending.since, what, None);
        }
    }

    fn instances(&mut self) {
        let (before, after) = (self.before, self.after);
        for (name, record) in &after.durable.containers {
            let old = before.durable.container(name);
            let was = old.and_then(|old| old.running.as_ref()).map(|running| &running.id);
            if let Some(running) = record.running.as_ref().filter(|running| was != Some(&running.id)) {
                let instance = after.volatile.instances.get(name).filter(|instance| instance.id == running.id);
                let at = instance.map_or_else(|| self.now.dated(running.started_at), |instance| instance.started);
                let (container, id) = (name.clone(), running.id.clone());
                self.note(at, What::Running { container, id, attempt: record.restart_count }, None);
            }
            if old.map_or(0, |old| old.restart_count) != record.restart_count {
                let because = self.because(&Subject::RestartCount(name.clone()));
                let what = What::RestartCount { container: name.clone(), count: record.restart_count };
                self.note(self.now, what, because);
            }
        }
    }

    fn status(&mut self) {
        let (old, Some(new)) = (&self.before.durable.published, &self.after.durable.published) else { return };
        if old.as_ref() == Some(new) {
            return;
        }
        let old = old.as_ref();
        for status in new.all_containers() {
            self.container(old.and_then(|old| old.container(&status.name)), status);
        }
        if old.map(|old| old.phase) != Some(new.phase) {
            let because = self.because(&Subject::Phase);
            self.note(self.now, What::Phase { phase: new.phase }, because);
        }
        for condition in &new.conditions {
            self.condition(old.and_then(|old| old.condition(&condition.kind)), condition);
        }
    }

    fn container(&mut self, old: Option<&ContainerStatus>, new: &ContainerStatus) {
        let container = || new.name.clone();
        match &new.state {
            ContainerState::Waiting(waiting) => {
                let because = self.because(&Subject::State(container()));
                let again = old.is_some_and(|old| match &old.state {
                    // Another backoff has another end; any other reason is identified by its name.
                    ContainerState::Waiting(old) if matches!(because, Some(Because::Backoff { .. })) => old == waiting,
                    ContainerState::Waiting(old) => old.reason == waiting.reason,
                    ContainerState::Running(_) | ContainerState::Terminated(_) => false,
                });
                if !again {
                    let (reason, message) = (waiting.reason.clone(), text(&waiting.message));
                    self.note(self.now, What::Waiting { container: container(), reason, message }, because);
                }
            }
            ContainerState::Terminated(end) => {
                let was = old.is_some_and(|old| matches!(old.state, ContainerState::Terminated(_)));
                let seen = self
                    .notes
                    .iter()
                    .any(|note| matches!(&note.what, What::Exited { container, .. } if *container == new.name));
                if !was && !seen {
                    let because = self.because(&Subject::State(container()));
                    let (exit_code, reason) = (end.exit_code, end.reason.clone());
                    self.note(self.now, What::ShownEnded { container: container(), exit_code, reason }, because);
                }
            }
            ContainerState::Running(_) => {}
        }
        let started = |status: Option<&ContainerStatus>| status.is_some_and(|status| status.started == Some(true));
        if started(old) != started(Some(new)) {
            let because = self.because(&Subject::Started(container()));
            self.note(self.now, What::Started { container: container(), value: started(Some(new)) }, because);
        }
        if old.is_some_and(|old| old.ready) != new.ready {
            let because = self.because(&Subject::Ready(container()));
            self.note(self.now, What::Ready { container: container(), value: new.ready }, because);
        }
    }

    fn condition(&mut self, old: Option<&Condition>, new: &Condition) {
        if old.is_some_and(|old| (old.status, &old.reason) == (new.status, &new.reason)) {
            return;
        }
        let because = self.because(&Subject::Condition(new.kind.clone()));
        if let (ConditionType::PodReadyToStartContainers, Some(Because::Sandbox { id, lost })) = (&new.kind, &because)
            && (old.is_some() || id.is_some())
        {
            self.note(self.now, What::Sandbox { id: id.clone(), lost: lost.clone() }, None);
        }
        let (kind, reason) = (new.kind.clone(), new.reason.clone());
        self.note(self.now, What::Condition { kind, status: new.status, reason }, because);
    }
}

/// The probe result that has a container killed. It is dropped with the instance when the container exits.
fn verdict_behind(instance: &RunningInstance, reason: KillReason) -> Option<Because> {
    let KillReason::Probe(probe) = reason else { return None };
    match &instance.probe(probe).verdict {
        Verdict::Probed { passed, at, streak, output } => {
            Some(Because::Probe { probe, passed: *passed, at: *at, streak: *streak, output: output.clone() })
        }
        Verdict::Carried { passed, basis } => Some(Because::Carried { probe, passed: *passed, basis: basis.clone() }),
        Verdict::NeverProbed => None,
    }
}

fn shortened(mut because: Because) -> Because {
    match &mut because {
        Because::Probe { output, .. } | Because::Carried { basis: Basis::Probe { output, .. }, .. } => {
            *output = text(output);
        }
        Because::StartFailed { message, .. } => *message = text(message),
        Because::RestartAll { trigger, .. } => *trigger = text(trigger),
        _ => {}
    }
    because
}

fn text(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST_TEXT)].to_owned()
}
