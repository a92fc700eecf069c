//! Sentences: what a piece of evidence says, and what a note of the journal says.

use keelet_lifecycle::{
    Because, Moment, Subject,
    evidence::{EndingCause, Exit, ExitCause},
    journal::{Note, RestartAllStep, What},
    operation::Outcome,
    probe::Basis,
    restart::Trigger,
    status::{ConditionType, Truth},
};
use keelet_pod::{Operator, ProbeKind, RestartPolicy, Rule};

use crate::{
    known::Known,
    words::{list, quoted, quoted_briefly, relative, short_id, span, time, time_ago, times},
};

/// A condition's type as the API spells it.
pub(crate) fn condition_name(kind: &ConditionType) -> String {
    match kind {
        ConditionType::Foreign(name) => name.clone(),
        known => format!("{known:?}"),
    }
}

/// A condition's status as the API spells it.
pub(crate) fn truth(status: Truth) -> &'static str {
    match status {
        Truth::True => "True",
        Truth::False => "False",
        Truth::Unknown => "Unknown",
    }
}

/// One word for a probe attempt.
pub(crate) fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "passed",
        Outcome::Warning => "warned",
        Outcome::Failure => "failed",
        Outcome::Error => "errored",
        Outcome::Late => "late",
        Outcome::Cancelled => "cancelled",
    }
}

/// Why a pod is terminating.
pub(crate) fn ending_cause(cause: &EndingCause) -> String {
    match cause {
        EndingCause::Deleted => "it was deleted".to_owned(),
        EndingCause::Finished => "all of its containers have terminated, and none will be restarted".to_owned(),
        EndingCause::InitFailed { container } => format!("init container {container:?} failed for good"),
        EndingCause::NotRebuilt => "its sandbox is gone and nothing in it may run again".to_owned(),
        EndingCause::Rejected => "it was rejected by this node".to_owned(),
    }
}

/// What a restart rule says.
pub(crate) fn rule(rule: &Rule) -> String {
    let codes: Vec<String> = rule.exit_codes.values.iter().map(ToString::to_string).collect();
    let operator = match rule.exit_codes.operator {
        Operator::In => "in",
        Operator::NotIn => "not in",
    };
    format!("{} on exit codes {operator} [{}]", rule.action, codes.join(", "))
}

/// What a restart policy says.
pub(crate) fn policy(policy: RestartPolicy) -> String {
    format!("its restart policy is {policy}")
}

/// What ended an instance.
pub(crate) fn exit_cause(cause: ExitCause) -> String {
    match cause {
        ExitCause::Own => String::new(),
        ExitCause::Killed(reason) => format!(", stopped because {reason}"),
        ExitCause::Lost => ", as a stand-in: its exit status is unknown".to_owned(),
    }
}

/// How an instance ended, without its time: `exited with code 42`.
fn exit(exit: &Exit) -> String {
    format!("exited with code {}{}{}", exit.exit_code, oom(exit), exit_cause(exit.cause))
}

/// What the exit code does not say.
pub(crate) fn oom(exit: &Exit) -> &'static str {
    if exit.reason == "OOMKilled" { " (OOMKilled)" } else { "" }
}

/// What triggered the restart of all containers.
pub(crate) fn trigger(trigger: &Trigger, now: Moment) -> String {
    match trigger {
        Trigger::Exit { container, exit_code, rule, at, .. } => format!(
            "container {container:?} exited with code {exit_code} at {}, and its restart rule {rule} asks for it",
            time_ago(*at, now)
        ),
        Trigger::Request { id, by, at } => format!("{by} asked for it at {} (request {id})", time_ago(*at, now)),
        Trigger::Inherited { message, at } => format!(
            "the API server's copy of the status said so when the agent took over at {}{}",
            time_ago(*at, now),
            quoted(message)
        ),
    }
}

/// A threshold that a probe reached: `failed 3 times in a row (failureThreshold 3)`.
pub(crate) fn threshold(known: &Known<'_>, container: &str, probe: ProbeKind, passed: bool, streak: u32) -> String {
    let verb = if passed { "passed" } else { "failed" };
    let spec = known.container(container).and_then(|container| container.probe(probe));
    let needed = spec.map(|spec| match passed {
        true => format!(" (successThreshold {})", spec.success_threshold),
        false => format!(" (failureThreshold {})", spec.failure_threshold),
    });
    let needed = needed.unwrap_or_default();
    match streak {
        0 | 1 => format!("{verb}{needed}"),
        _ => format!("{verb} {} in a row{needed}", times(streak)),
    }
}

/// The container that a subject is about.
pub(crate) fn container_of(subject: &Subject) -> Option<&str> {
    match subject {
        Subject::Started(name) | Subject::Ready(name) | Subject::State(name) | Subject::RestartCount(name) => {
            Some(name)
        }
        Subject::Condition(_) | Subject::Phase => None,
    }
}

/// What a note says, in one sentence without its time.
pub fn note_sentence(note: &Note, now: Moment) -> String {
    match &note.what {
        What::Seen => "the agent saw the pod for the first time".to_owned(),
        What::AgentStarted { last_seen, rebooted } => {
            let boot = if *rebooted { " after a reboot" } else { "" };
            let away = last_seen.map(|seen| {
                format!(", {} after one was last seen at {}", span(note.at.since(&seen)), time(seen.wall, now))
            });
            format!("an agent started{boot}{}", away.unwrap_or_default())
        }
        What::Rejected { reason, message } => format!("the pod was rejected: {reason}{}", quoted(message)),
        What::RequestTaken { id, by } => {
            format!(
                "{} asked for all containers to be restarted (request {id})",
                by.as_deref().unwrap_or("an unknown user")
            )
        }
        What::LegacyReset { done: false } => {
            "legacy reset: for one status everything that runs counts as started and ready".to_owned()
        }
        What::LegacyReset { done: true } => "legacy reset: every probe starts from nothing".to_owned(),
        What::Exited { container, exit: ended, rule } => {
            let matched = rule.map(|rule| format!(", restart rule {rule} matched")).unwrap_or_default();
            format!("container {container:?} {}{matched}{}", exit(ended), quoted(&ended.message))
        }
        What::Ending { cause, grace, .. } => {
            format!("the pod is terminating, with {} of grace: {}", span(*grace), ending_cause(cause))
        }
        What::RestartAll { step, triggers } => restart_all(*step, triggers, now),
        What::Killing { container, reason, grace, .. } => {
            let grace = if grace.is_zero() { "at once".to_owned() } else { format!("with {} of grace", span(*grace)) };
            format!("container {container:?} is stopped {grace}, because {reason}")
        }
        What::SandboxRequested { attempt: 0 } => "a sandbox was asked for".to_owned(),
        What::SandboxRequested { attempt } => format!("another sandbox was asked for, number {}", attempt + 1),
        What::Sandbox { id: Some(id), .. } => format!("sandbox {} is ready", short_id(id)),
        What::Sandbox { id: None, lost } => no_sandbox(lost.as_deref()),
        What::Launching { container, attempt: 0 } => format!("container {container:?} is being started"),
        What::Launching { container, attempt } => {
            format!("container {container:?} is being started again (restart {attempt})")
        }
        What::Running { container, id, .. } => format!("container {container:?} runs (id {})", short_id(id)),
        What::RestartCount { container, count } => {
            format!("restartCount of container {container:?} is {count}")
        }
        What::Waiting { container, reason, .. } if reason.is_empty() => format!("container {container:?} waits"),
        What::Waiting { container, reason, .. } => format!("container {container:?} waits: {reason}"),
        What::ShownEnded { container, exit_code, reason } => {
            format!("container {container:?} is shown as ended ({reason}, exit code {exit_code})")
        }
        What::Started { container, value: true } => format!("container {container:?} has started up"),
        What::Started { container, value: false } => format!("container {container:?} is not started"),
        What::Ready { container, value: true } => format!("container {container:?} is ready"),
        What::Ready { container, value: false } => format!("container {container:?} is not ready"),
        What::Phase { phase } => format!("the phase is {phase:?}"),
        What::Condition { kind, status, reason } => {
            let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("{} is {}{reason}", condition_name(kind), truth(*status))
        }
    }
}

fn no_sandbox(lost: Option<&str>) -> String {
    lost.map_or_else(|| "no sandbox is usable".to_owned(), |lost| format!("no sandbox is usable: {lost}"))
}

fn restart_all(step: RestartAllStep, triggers: &[Trigger], now: Moment) -> String {
    let newest = triggers.last().map(|newest| format!(": {}", trigger(newest, now))).unwrap_or_default();
    match step {
        RestartAllStep::Begun => format!("RestartAllContainers begins{newest}"),
        RestartAllStep::Joined => format!("RestartAllContainers has another trigger{newest}"),
        RestartAllStep::Removed => "RestartAllContainers: every container is removed, the pod starts again".to_owned(),
        RestartAllStep::Released => "RestartAllContainers: the backoff is over".to_owned(),
        RestartAllStep::Finished => "RestartAllContainers: every container has been started again".to_owned(),
        RestartAllStep::Abandoned => "RestartAllContainers was abandoned".to_owned(),
    }
}

/// The evidence behind a note, in a few words; nothing where the note is evidence itself.
pub fn because_of_note(note: &Note, known: &Known<'_>, now: Moment) -> Option<String> {
    let container = note.container().unwrap_or_default();
    if let (What::Condition { kind, .. }, Some(Because::Spec)) = (&note.what, &note.because) {
        return Some(spec(Some(kind)).to_owned());
    }
    Some(brief(note.because.as_ref()?, container, known, now))
}

/// What the spec alone says, of a condition or of anything else.
pub(crate) fn spec(kind: Option<&ConditionType>) -> &'static str {
    match kind {
        Some(ConditionType::PodScheduled) => "the pod is assigned to this node",
        Some(ConditionType::AllContainersRestarting) => "a restart rule of the spec could ask for it, and none has",
        _ => "the spec of the pod says so",
    }
}

/// A piece of evidence in a few words.
pub(crate) fn brief(because: &Because, container: &str, known: &Known<'_>, now: Moment) -> String {
    match because {
        Because::Probe { probe, passed, at, streak, output } => format!(
            "{probe} probe {} at {}{}",
            threshold(known, container, *probe, *passed, *streak),
            time(at.wall, now),
            if *passed { quoted_briefly(output) } else { quoted(output) }
        ),
        Because::Carried { probe, passed, basis } => carried(*probe, *passed, basis, now),
        Because::NotYetProbed { probe, streak: 0, .. } => format!("no result of its {probe} probe yet"),
        Because::NotYetProbed { probe, streak, passing } => {
            let verb = if *passing { "passed" } else { "failed" };
            format!("its {probe} probe {verb} {} so far, which decides nothing yet", times(*streak))
        }
        Because::NoProbe => "it has no readiness probe, so running is enough".to_owned(),
        Because::NotRunning => "it is not running".to_owned(),
        Because::NotStarted => "it has not started up".to_owned(),
        Because::Running { since, id } => format!("it runs since {} (id {})", time(since.wall, now), short_id(id)),
        Because::Exited { exit_code: code, at, cause, rule, .. } => {
            let matched = rule.map(|rule| format!(", restart rule {rule} matched")).unwrap_or_default();
            format!("it exited with code {code} at {}{}{matched}", time(at.wall, now), exit_cause(*cause))
        }
        Because::Backoff { until, delay } => {
            format!("back-off of {}, until {} ({})", span(*delay), time(until.wall, now), relative(*until, now))
        }
        Because::StartFailed { reason, message, at } => {
            format!("its start failed at {}: {reason}{}", time(at.wall, now), quoted(message))
        }
        Because::Pending => "it has not been started yet, or its start is in progress".to_owned(),
        Because::Stopping { reason, since } => {
            format!("it is being stopped since {}, because {reason}", time(since.wall, now))
        }
        Because::RestartAll { trigger, .. } if trigger.is_empty() => "all containers restart".to_owned(),
        Because::RestartAll { trigger, since } => {
            format!("all containers restart since {}: {trigger}", time(since.wall, now))
        }
        Because::Containers { names } if names.is_empty() => "there are no containers it depends on".to_owned(),
        Because::Containers { names } if names.len() == 1 => format!("of container {}", list(names)),
        Because::Containers { names } => format!("of containers {}", list(names)),
        Because::ReadinessGates { pending } => format!("readiness gates that are not True: {}", list(pending)),
        Because::NodeGates { pending, since } => {
            let taints: Vec<String> = pending.iter().map(|gate| gate.taint.clone()).collect();
            format!("held back since {} by gates of the node: {}", time(since.wall, now), list(&taints))
        }
        Because::Sandbox { id: Some(id), .. } => format!("sandbox {} is ready", short_id(id)),
        Because::Sandbox { id: None, lost } => no_sandbox(lost.as_deref()),
        Because::Ending { cause, since } => {
            format!("the pod is terminating since {}: {}", time(since.wall, now), ending_cause(cause))
        }
        Because::Spec => spec(None).to_owned(),
        Because::Kept => "it was true before, and this condition does not change back".to_owned(),
    }
}

/// What a value rests on that an agent found when it started.
pub(crate) fn carried(probe: ProbeKind, passed: bool, basis: &Basis, now: Moment) -> String {
    let verdict = if passed { "passed" } else { "failed" };
    match basis {
        Basis::Probe { at, .. } => {
            format!(
                "its {probe} probe {verdict} at {}, and restarts of the agent since then do not change it",
                time_ago(*at, now)
            )
        }
        Basis::Status => {
            "the status published before the agent started says so, and nothing seen since says otherwise".to_owned()
        }
        Basis::Age => {
            "it ran for more than 10 s before the agent started and nothing else is known of it, so it is taken to have \
             started"
                .to_owned()
        }
        Basis::ForeignWrite => format!(
            "another client set the pod's Ready condition while the agent was down: {probe} must be probed again"
        ),
        Basis::LateForeignWrite { written, seen } => format!(
            "another writer set the pod's Ready condition at {written}, which the agent saw at {} when it first reached the \
             API server, so its {probe} probe has to show it again",
            time_ago(*seen, now)
        ),
        Basis::Absence { away } => format!(
            "the agent was down for {}, longer than the grace period: {probe} must be probed again",
            span(*away)
        ),
        Basis::LegacyReset => format!(
            "the feature gate ChangeContainerStatusOnKubeletRestart has its {probe} probe {verdict} at every start of the agent"
        ),
    }
}
