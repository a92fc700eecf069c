//! Following a chain from a part of the status to its evidence.

use keelet_lifecycle::{
    Because, Moment, Subject,
    evidence::Exit,
    journal::{Note, What},
    status::{ConditionType, ContainerState, Phase, Terminated},
};
use keelet_pod::Role;

use super::Link;
use crate::{
    known::Known,
    sentence::{self, condition_name, truth},
    words::{quoted, time_ago, time_ago_id, times},
};

/// Follows chains.
pub(super) struct Chain<'k, 'a> {
    pub(super) known: &'k Known<'a>,
    pub(super) now: Moment,
}

/// The subjects from the answer down to here; none is followed twice on one way.
pub(super) type Way<'w> = &'w [Subject];

// === impl Chain ===

impl<'k, 'a> Chain<'k, 'a> {
    pub(super) fn new(known: &'k Known<'a>, now: Moment) -> Self {
        Self { known, now }
    }

    /// What a part of the status rests on.
    pub(super) fn of(&self, subject: &Subject) -> Vec<Link> {
        self.follow(subject, &[])
    }

    fn follow(&self, subject: &Subject, way: Way<'_>) -> Vec<Link> {
        let way = [way, std::slice::from_ref(subject)].concat();
        if let Some(links) = self.shown_otherwise(subject, &way) {
            return links;
        }
        if let Subject::RestartCount(name) = subject
            && let Some(links) = self.restarts(name, &way)
        {
            return links;
        }
        match self.known.because(subject).cloned().or_else(|| self.told_by_evidence(subject)) {
            Some(because) => self.links(subject, &because, &way),
            None => vec![Link::missing("no reason is recorded")],
        }
    }

    /// Another part of the status, and what it rests on in turn.
    pub(super) fn part(&self, subject: Subject, way: Way<'_>) -> Link {
        let again = way.contains(&subject);
        let because = if again { Vec::new() } else { self.follow(&subject, way) };
        let mut link = Link::conclusion(self.says(&subject), because);
        link.subject = Some(subject);
        link
    }

    /// A part of the status in a sentence.
    fn says(&self, subject: &Subject) -> String {
        let status = self.known.status();
        let of = |name: &str| status.and_then(|status| status.container(name));
        match subject {
            Subject::Ready(name) if of(name).is_some_and(|c| c.ready) => format!("container {name:?} is ready"),
            Subject::Ready(name) => format!("container {name:?} is not ready"),
            Subject::Started(name) if of(name).is_some_and(|c| c.started == Some(true)) => {
                format!("container {name:?} has started up")
            }
            Subject::Started(name) => format!("container {name:?} has not started up"),
            Subject::RestartCount(name) => {
                format!("container {name:?} was restarted {}", times(of(name).map_or(0, |c| c.restart_count)))
            }
            Subject::State(name) => match of(name).map(|c| &c.state) {
                Some(ContainerState::Running(_)) => format!("container {name:?} runs"),
                Some(ContainerState::Terminated(end)) => {
                    format!("container {name:?} has ended with exit code {}", end.exit_code)
                }
                Some(ContainerState::Waiting(waiting)) if !waiting.reason.is_empty() => {
                    format!("container {name:?} waits: {}", waiting.reason)
                }
                Some(ContainerState::Waiting(_)) | None => format!("container {name:?} waits"),
            },
            Subject::Condition(kind) => {
                let status = status.and_then(|status| status.condition(kind)).map_or("unknown", |c| truth(c.status));
                format!("{} is {status}", condition_name(kind))
            }
            Subject::Phase => format!("the phase is {:?}", status.map_or(Phase::Pending, |status| status.phase)),
        }
    }

    /// Two kinds of statuses do not say what the rules found: an ordinary init container that runs again stays shown as
    /// ended where an API server listens, and what a pod that is over never got to see the end of is called ended.
    fn shown_otherwise(&self, subject: &Subject, way: Way<'_>) -> Option<Vec<Link>> {
        let name = sentence::container_of(subject)?;
        let ContainerState::Terminated(end) = &self.known.container_status(name)?.state else { return None };
        let is_init = self.known.container(name).is_some_and(|container| container.role == Role::Init);
        if is_init && let Some(text) = self.ran_again(name, end) {
            return Some(vec![
                Link::evidence("an API server lets no container return that has ended, so it is shown as it was")
                    .with(vec![Link::evidence(text)]),
            ]);
        }
        if matches!(subject, Subject::State(_))
            && end.container_id.is_none()
            && end.reason == "ContainerStatusUnknown"
            && self.known.evidence.durable.ending.is_some()
        {
            let text = "the pod has terminated, and the exit status of the container is unknown";
            return Some(vec![Link::conclusion(text, vec![self.ending(way)])]);
        }
        None
    }

    /// What became of a container after the end that its status shows, if it has run again.
    fn ran_again(&self, name: &str, shown: &Terminated) -> Option<String> {
        let record = self.known.record(name)?;
        if let Some(runs) = &record.running {
            return Some(format!("it runs again since {}", time_ago(self.now.dated(runs.started_at), self.now)));
        }
        let exit = record.last_exit.as_ref().filter(|exit| is_later(exit, shown))?;
        let (code, when) = (exit.exit_code, time_ago_id(exit.finished, &exit.id, self.now));
        Some(format!("it ran again and ended with code {code} at {when}{}", sentence::exit_cause(exit.cause)))
    }

    /// What the evidence alone says, where no reason was kept.
    fn told_by_evidence(&self, subject: &Subject) -> Option<Because> {
        let name = sentence::container_of(subject)?;
        let record = self.known.record(name);
        let exit = || {
            let exit = record?.last_exit.as_ref()?;
            let (id, at) = (exit.id.clone(), exit.finished);
            Some(Because::Exited { id, exit_code: exit.exit_code, at, cause: exit.cause, rule: None })
        };
        match subject {
            Subject::State(_) => match record.and_then(|record| record.running.as_ref()) {
                Some(runs) => Some(Because::Running { since: self.now.dated(runs.started_at), id: runs.id.clone() }),
                None => exit().or(Some(Because::Pending)),
            },
            Subject::RestartCount(_) => exit(),
            Subject::Started(_) | Subject::Ready(_) => {
                let runs = record.is_some_and(|record| record.running.is_some());
                (!runs).then_some(Because::NotRunning)
            }
            Subject::Condition(_) | Subject::Phase => None,
        }
    }

    pub(super) fn links(&self, subject: &Subject, because: &Because, way: Way<'_>) -> Vec<Link> {
        let now = self.now;
        let container = sentence::container_of(subject).unwrap_or_default();
        let brief = || sentence::brief(because, container, self.known, now);
        match because {
            Because::Probe { probe, passed, at, streak, output } => {
                let id = self.known.instance(container).map(|instance| instance.id.as_str());
                vec![self.verdict(container, id, *probe, *passed, *at, *streak, output).proof(because)]
            }
            Because::Carried { probe, passed, basis } => {
                vec![self.carried(container, *probe, *passed, basis).proof(because)]
            }
            Because::NotYetProbed { probe, .. } => vec![self.undecided(container, *probe, &brief()).proof(because)],
            Because::NoProbe => {
                let text = "it has no readiness probe, so running is enough";
                vec![Link::conclusion(text, vec![self.part(Subject::State(container.to_owned()), way)]).proof(because)]
            }
            Because::NotRunning => vec![self.part(Subject::State(container.to_owned()), way)],
            Because::NotStarted => vec![self.part(Subject::Started(container.to_owned()), way)],
            Because::Running { since, id } => {
                let no_probe = matches!(subject, Subject::Started(_));
                let probe = if no_probe { "it has no startup probe, and " } else { "" };
                let text = format!("{probe}it runs since {}", time_ago_id(*since, id, now));
                vec![Link::evidence(text).at(*since).proof(because)]
            }
            Because::Exited { id, exit_code, at, cause, rule } => {
                vec![self.exit(container, id, (*exit_code, *cause), *at, *rule, way).proof(because)]
            }
            Because::Backoff { until, delay } => vec![self.backoff(container, *until, *delay, way).proof(because)],
            Because::StartFailed { reason, message, at } => {
                let text = format!("its start failed at {}: {reason}{}", time_ago(*at, now), quoted(message));
                vec![Link::evidence(text).at(*at).proof(because)]
            }
            Because::Pending => self.pending(container, way),
            Because::Stopping { reason, since } => {
                let id = self.known.instance(container).map(|instance| instance.id.clone()).unwrap_or_default();
                let text = format!("it is being stopped since {}", time_ago(*since, now));
                let mut links = vec![self.kill(container, &id, *reason, way)];
                links.extend(self.trouble(&id));
                vec![Link::conclusion(text, links).at(*since).proof(because)]
            }
            Because::RestartAll { trigger, since } => {
                let text = match subject {
                    Subject::Condition(ConditionType::AllContainersRestarting)
                        if !self.known.evidence.durable.restart_all.stage.is_under_way() =>
                    {
                        "the last RestartAllContainers is over".to_owned()
                    }
                    _ => format!("all containers restart since {}", time_ago(*since, now)),
                };
                vec![Link::conclusion(text, self.triggers(trigger, way)).at(*since).proof(because)]
            }
            Because::Containers { names } => self.containers(subject, names, way),
            Because::ReadinessGates { pending } => pending
                .iter()
                .map(|gate| {
                    Link::evidence(format!("readiness gate {gate:?}, which another controller sets, is not True"))
                })
                .collect(),
            Because::NodeGates { pending, since } => pending
                .iter()
                .map(|gate| {
                    let (ago, waits_for) = (time_ago(*since, now), &gate.waits_for);
                    let text = format!("gate {} of the node holds it back since {ago}: {waits_for}", gate.taint);
                    Link::evidence(text).at(*since).proof(because)
                })
                .collect(),
            Because::Sandbox { id, .. } => vec![self.sandbox(id.as_deref()).proof(because)],
            Because::Ending { .. } => vec![self.ending(way)],
            Because::Spec => vec![Link::evidence(self.spec(subject)).proof(because)],
            Because::Kept => self.kept(subject, way),
        }
    }

    fn containers(&self, subject: &Subject, names: &[String], way: Way<'_>) -> Vec<Link> {
        if names.is_empty() {
            return vec![Link::evidence(match subject {
                Subject::Condition(ConditionType::Initialized) => "the pod has no init containers",
                _ => "the pod has no containers that count",
            })];
        }
        let part = |name: &String| match subject {
            Subject::Phase => Subject::State(name.clone()),
            Subject::Condition(ConditionType::Initialized)
                if self.known.container(name).is_some_and(|container| container.role == Role::Sidecar) =>
            {
                Subject::Started(name.clone())
            }
            _ => Subject::Ready(name.clone()),
        };
        if let Some(link) = self.initialized_anyway(subject, names, way) {
            return vec![link];
        }
        let mut links: Vec<Link> = names.iter().map(|name| self.part(part(name), way)).collect();
        let over = self.known.status().is_some_and(|status| status.phase.is_terminal());
        if over && matches!(subject, Subject::Condition(_)) {
            links.push(self.part(Subject::Phase, way));
        }
        links
    }

    /// Initialized holds once a regular container has been started, though an init container may run again by now.
    fn initialized_anyway(&self, subject: &Subject, names: &[String], way: Way<'_>) -> Option<Link> {
        let status = self.known.status()?;
        let is_sidecar = |name: &str| self.known.container(name).is_some_and(|c| c.role == Role::Sidecar);
        let is_done = |name: &String| {
            let container = status.container(name);
            container.is_some_and(|c| c.ready || (is_sidecar(name) && c.started == Some(true)))
        };
        let holds = status.is_true(&ConditionType::Initialized);
        if *subject != Subject::Condition(ConditionType::Initialized) || !holds || names.iter().all(is_done) {
            return None;
        }
        let begun = |state: &ContainerState| !matches!(state, ContainerState::Waiting(_));
        let regular = status.container_statuses.iter().find(|container| begun(&container.state))?;
        let text = "a regular container has been started, and none is before the init containers are done";
        Some(Link::conclusion(text, vec![self.part(Subject::State(regular.name.clone()), way)]))
    }

    fn spec(&self, subject: &Subject) -> &'static str {
        match subject {
            Subject::Condition(kind) => sentence::spec(Some(kind)),
            Subject::Ready(_) => "an ephemeral container is never ready",
            _ => sentence::spec(None),
        }
    }

    /// Once so, always so: what made it so, as the journal remembers it, else what keeps it.
    fn kept(&self, subject: &Subject, way: Way<'_>) -> Vec<Link> {
        let over = self.known.status().is_some_and(|status| status.phase.is_terminal());
        match subject {
            Subject::Condition(_) if over => {
                let text = "the pod has terminated, so this no longer changes";
                return vec![Link::conclusion(text, vec![self.part(Subject::Phase, way)])];
            }
            Subject::State(name) | Subject::Ready(name) => {
                let text = format!(
                    "there is no instance of container {name:?} any more, but a regular container exists, and none is \
                     made before the init containers have succeeded"
                );
                return vec![Link::evidence(text)];
            }
            _ => {}
        }
        let text = match subject {
            Subject::Phase => "the phase is terminal and does not change",
            Subject::RestartCount(_) => {
                "its log files show earlier instances; their exit statuses are unknown, because they are in no ledger"
            }
            _ => "it was true before, and this condition does not change back",
        };
        let mut link = Link::evidence(text);
        if let Some(note) = self.known.last_change(subject) {
            link.at = Some(note.at);
            if let Some(because) = note.because.as_ref().filter(|because| !matches!(because, Because::Kept)) {
                let brief = sentence::brief(because, "", self.known, self.now);
                let became = format!("it became so at {}, because {brief}", time_ago(note.at, self.now));
                link.because.push(Link::evidence(became).at(note.at).with(self.back_then(because, note.at)));
            }
        }
        vec![link]
    }

    /// What the containers that decided were like at that time; by now they may be otherwise.
    fn back_then(&self, because: &Because, at: Moment) -> Vec<Link> {
        let Because::Containers { names } = because else { return Vec::new() };
        let made_it = |note: &&Note, name: &String| match &note.what {
            What::Ready { container, value: true } | What::Started { container, value: true } => container == name,
            _ => false,
        };
        let notes = names.iter().filter_map(|name| {
            let until = self.known.journal.iter().rev().filter(|note| at.has_reached(&note.at));
            until.into_iter().find(|note| made_it(note, name))
        });
        notes
            .map(|note| {
                let because = sentence::because_of_note(note, self.known, self.now);
                let because = because.map(|because| format!(", because {because}")).unwrap_or_default();
                Link::evidence(format!("{}{because}", sentence::note_sentence(note, self.now))).at(note.at)
            })
            .collect()
    }
}

/// Whether an exit is that of another instance than the one whose end a status shows.
pub(super) fn is_later(exit: &Exit, shown: &Terminated) -> bool {
    shown.container_id.as_ref().is_some_and(|id| *id != exit.id)
}
