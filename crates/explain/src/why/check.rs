//! Whether every part of a status has a chain that ends in evidence, and whether the two agree.

use keelet_lifecycle::{
    Because, Moment, Subject,
    evidence::ExitCause,
    status::{ConditionType, ContainerState, PodStatus, Truth},
};
use keelet_pod::Role;

use super::{Ground, Link, chain::Chain, container_subjects, pod_subjects};
use crate::known::Known;

/// What is wrong with the chains of a pod; nothing if every Ready, Started, state, restart count, condition and the
/// phase rests on evidence that says the same.
pub fn check_chains(known: &Known<'_>, now: Moment) -> Vec<String> {
    let Some(status) = known.status() else { return Vec::new() };
    let chain = Chain::new(known, now);
    let mut subjects = pod_subjects(known);
    subjects.extend(status.all_containers().flat_map(container_subjects));
    let mut faults = Vec::new();
    for subject in &subjects {
        let links = chain.of(subject);
        if links.is_empty() {
            faults.push(format!("{subject:?} rests on nothing"));
        }
        for link in &links {
            ends(subject, link, &mut faults);
        }
        if let Some(because) = known.because(subject)
            && !agrees(known, status, subject, because)
        {
            faults.push(format!("{subject:?} does not say what its evidence says: {because:?}"));
        }
    }
    faults
}

/// Every way down ends in evidence.
fn ends(subject: &Subject, link: &Link, faults: &mut Vec<String>) {
    match link.ground {
        Ground::Missing => faults.push(format!("{subject:?}: {}", link.text)),
        Ground::Conclusion if link.because.is_empty() => {
            faults.push(format!("{subject:?}: nothing follows on {:?}", link.text));
        }
        Ground::Conclusion | Ground::Evidence => {}
    }
    for next in &link.because {
        ends(subject, next, faults);
    }
}

fn agrees(known: &Known<'_>, status: &PodStatus, subject: &Subject, because: &Because) -> bool {
    match subject {
        Subject::Ready(name) | Subject::Started(name) => {
            let Some(container) = status.container(name) else { return false };
            let value = match subject {
                Subject::Ready(_) => container.ready,
                _ => container.started == Some(true),
            };
            let shown_as_it_was = is_ended_init(known, status, name);
            says(because).is_none_or(|said| said == value) || shown_as_it_was
        }
        Subject::State(name) => status.container(name).is_some_and(|container| match &container.state {
            ContainerState::Running(_) => matches!(because, Because::Running { .. } | Because::Stopping { .. }),
            ContainerState::Waiting(waiting) => match because {
                Because::Backoff { .. } => waiting.reason == "CrashLoopBackOff",
                Because::Running { .. } | Because::Stopping { .. } => false,
                _ => true,
            },
            ContainerState::Terminated(end) => match because {
                Because::Exited { id, exit_code, .. } => {
                    let of_another = end.container_id.as_ref() != Some(id);
                    *exit_code == end.exit_code
                        || end.container_id.is_none()
                        || of_another && is_ended_init(known, status, name)
                }
                Because::Kept => true,
                _ => end.container_id.is_none() || is_ended_init(known, status, name),
            },
        }),
        Subject::Condition(ConditionType::Ready | ConditionType::ContainersReady) => {
            let Subject::Condition(kind) = subject else { return true };
            let holds = status.condition(kind).is_some_and(|condition| condition.status == Truth::True);
            let ready = |name: &String| status.container(name).is_some_and(|container| container.ready);
            match because {
                Because::Containers { names } if holds => names.iter().all(ready),
                Because::Containers { names } => status.phase.is_terminal() || !names.iter().all(ready),
                Because::RestartAll { .. } | Because::ReadinessGates { .. } => !holds,
                _ => true,
            }
        }
        Subject::RestartCount(_) | Subject::Condition(_) | Subject::Phase => true,
    }
}

/// The value that a piece of evidence stands for, if it stands for one.
fn says(because: &Because) -> Option<bool> {
    match because {
        Because::Probe { passed, .. } | Because::Carried { passed, .. } => Some(*passed),
        Because::NoProbe | Because::Running { .. } => Some(true),
        Because::NotYetProbed { .. } | Because::NotRunning | Because::NotStarted | Because::Spec => Some(false),
        Because::Exited { exit_code, cause, .. } => Some(*exit_code == 0 && *cause != ExitCause::Lost),
        _ => None,
    }
}

/// An ordinary init container that has to run again stays shown as ended where an API server listens.
fn is_ended_init(known: &Known<'_>, status: &PodStatus, name: &str) -> bool {
    known.container(name).is_some_and(|container| container.role == Role::Init)
        && status.container(name).is_some_and(|c| matches!(c.state, ContainerState::Terminated(_)))
}
