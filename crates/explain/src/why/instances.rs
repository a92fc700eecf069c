//! Links about the instances of a container: what its probes said, how it ended, what stopped it, when it restarts.

use std::time::Duration;

use keelet_lifecycle::{
    Because, Moment, Subject,
    evidence::ExitCause,
    journal::{Note, RestartAllStep, What},
    operation::{KillReason, OpKey, Outcome},
    probe::{Basis, Verdict},
    restart::Trigger,
};
use keelet_pod::{ProbeKind, Role};

use super::{
    Link,
    chain::{Chain, Way},
};
use crate::{
    sentence,
    words::{quoted, quoted_briefly, relative, short_id, span, time, time_ago, time_ago_id, times},
};

/// How many attempts are shown for a verdict.
const ATTEMPTS_SHOWN: usize = 5;

/// How many restarts are explained one by one.
const RESTARTS_SHOWN: usize = 3;

// === impl Chain ===

impl Chain<'_, '_> {
    /// A verdict with the attempts that led to it.
    #[expect(clippy::too_many_arguments, reason = "the parts of one piece of evidence")]
    pub(super) fn verdict(
        &self,
        container: &str,
        id: Option<&str>,
        probe: ProbeKind,
        passed: bool,
        at: Moment,
        streak: u32,
        output: &str,
    ) -> Link {
        // An eager attempt that did not pass has decided nothing.
        let mut attempts = self.known.attempts(container, id, probe);
        attempts.retain(|record| !record.eager || matches!(record.outcome, Outcome::Success | Outcome::Warning));
        let deciding = attempts.iter().position(|record| record.at == at);
        let latency = deciding.map(|index| format!(" after {}", span(attempts[index].latency))).unwrap_or_default();
        let errored = deciding.is_some_and(|index| attempts[index].outcome == Outcome::Error);
        let threshold = match errored {
            false => sentence::threshold(self.known, container, probe, passed, streak),
            true => format!("could not be attempted {} in a row, which counts as a failure", times(streak)),
        };
        let last = if streak > 1 { ", last at" } else { " at" };
        let when = time_ago(at, self.now);
        let said = if passed { quoted_briefly(output) } else { quoted(output) };
        let text = format!("its {probe} probe {threshold}{last} {when}{latency}{said}");
        let mut link = Link::evidence(text).at(at);
        if let Some(index) = deciding {
            let first = (index + 1).saturating_sub(usize::try_from(streak).unwrap_or(1).clamp(1, ATTEMPTS_SHOWN));
            link.attempts = attempts[first..=index].iter().map(|record| (*record).clone()).collect();
        }
        if let Some(newest) = attempts.last().filter(|newest| newest.at != at && newest.at.has_reached(&at)) {
            link.attempts.push((*newest).clone());
        }
        link
    }

    /// A verdict of an instance that is over or on its way out, as its kill was noted.
    pub(super) fn verdict_behind_kill(&self, container: &str, id: &str, reason: KillReason) -> Option<Link> {
        let KillReason::Probe(probe) = reason else { return None };
        if let Some(Because::Probe { probe, passed, at, streak, output }) =
            self.known.kill(id, reason).and_then(|note| note.because.as_ref())
        {
            return Some(self.verdict(container, Some(id), *probe, *passed, *at, *streak, output));
        }
        let instance = self.known.instance(container).filter(|instance| instance.id == id)?;
        match &instance.probe(probe).verdict {
            Verdict::Probed { passed, at, streak, output } => {
                Some(self.verdict(container, Some(id), probe, *passed, *at, *streak, output))
            }
            Verdict::Carried { passed, basis } => Some(self.carried(container, probe, *passed, basis)),
            Verdict::NeverProbed => None,
        }
    }

    pub(super) fn carried(&self, container: &str, probe: ProbeKind, passed: bool, basis: &Basis) -> Link {
        let mut link = Link::evidence(sentence::carried(probe, passed, basis, self.now));
        if let Basis::Probe { at, streak, output } = basis {
            let id = self.known.instance(container).map(|instance| instance.id.as_str());
            link.because.push(self.verdict(container, id, probe, passed, *at, *streak, output));
        }
        if let Some((started, seen)) = self.known.agent_start() {
            let away = seen.map(|seen| format!(", {} after one was last seen", span(started.since(&seen))));
            let text = format!("an agent started at {}{}", time_ago(started, self.now), away.unwrap_or_default());
            link.because.push(Link::evidence(text).at(started));
        }
        link
    }

    pub(super) fn undecided(&self, container: &str, probe: ProbeKind, brief: &str) -> Link {
        let instance = self.known.instance(container);
        let needed = self.known.container(container).and_then(|container| container.probe(probe));
        let needed = needed.map(|probe| {
            format!(" (successThreshold {}, failureThreshold {})", probe.success_threshold, probe.failure_threshold)
        });
        let mut link = Link::evidence(format!("{brief}{}", needed.unwrap_or_default()));
        let attempts = self.known.attempts(container, instance.map(|instance| instance.id.as_str()), probe);
        let first = attempts.len().saturating_sub(ATTEMPTS_SHOWN);
        link.attempts = attempts[first..].iter().map(|record| (*record).clone()).collect();
        if let Some(instance) = instance {
            let text = format!("it runs since {}", time_ago_id(instance.started, &instance.id, self.now));
            link.because.push(Link::evidence(text).at(instance.started));
            if let Some(due) = instance.probe(probe).due {
                let text =
                    format!("its next attempt is due at {} ({})", time(due.wall, self.now), relative(due, self.now));
                link.because.push(Link::evidence(text).at(due));
            }
        }
        link
    }

    pub(super) fn exit(
        &self,
        container: &str,
        id: &str,
        (exit_code, cause): (i32, ExitCause),
        at: Moment,
        rule: Option<usize>,
        way: Way<'_>,
    ) -> Link {
        let exit = self.known.exit(id);
        let (oom, said) = exit.map(|exit| (sentence::oom(exit), quoted(&exit.message))).unwrap_or_default();
        let lost = if cause == ExitCause::Lost { sentence::exit_cause(cause) } else { String::new() };
        let when = time_ago_id(at, id, self.now);
        let mut link = Link::evidence(format!("it exited with code {exit_code}{oom} at {when}{lost}{said}")).at(at);
        if let ExitCause::Killed(reason) = cause {
            link.because.push(self.kill(container, id, reason, way));
        }
        let is_init = self.known.container(container).is_some_and(|container| container.role == Role::Init);
        match cause {
            _ if is_init && exit_code == 0 => {
                link.because.push(match way.last() {
                    Some(Subject::RestartCount(_)) => self.run_again(),
                    _ => Link::evidence("an init container is done with its first success"),
                });
            }
            // Whatever rule and policy say, these come back or do not.
            ExitCause::Killed(KillReason::PodEnding | KillReason::RestartAll | KillReason::DefinitionChanged) => {}
            ExitCause::Own | ExitCause::Killed(_) | ExitCause::Lost => {
                link.because.push(Link::evidence(self.asked_by(container, rule)));
            }
        }
        link
    }

    /// Why an init container that was done ran again: its sandbox was replaced, or all containers restarted.
    pub(super) fn run_again(&self) -> Link {
        let note = self.known.journal.iter().rev().find(|note| match &note.what {
            What::SandboxRequested { attempt } => *attempt > 0,
            What::RestartAll { step, .. } => *step == RestartAllStep::Begun,
            _ => false,
        });
        let again = "it was done, and had to run again";
        match note {
            Some(note) => {
                let text = format!("{again}: {}", sentence::note_sentence(note, self.now));
                Link::evidence(text).at(note.at)
            }
            None => Link::evidence(format!("{again} in another sandbox or with all others")),
        }
    }

    /// What an exit asks for: the rule that matched, else the policy.
    pub(super) fn asked_by(&self, container: &str, rule: Option<usize>) -> String {
        let spec = self.known.container(container);
        match (rule, spec) {
            (Some(index), Some(spec)) => match spec.rules.get(index) {
                Some(rule) => format!("its restart rule {index} matched: {}", sentence::rule(rule)),
                None => format!("its restart rule {index} matched"),
            },
            (Some(index), None) => format!("its restart rule {index} matched"),
            (None, Some(spec)) if spec.rules.is_empty() => sentence::policy(spec.restart_policy),
            (None, Some(spec)) => {
                format!("none of its restart rules matched, and {}", sentence::policy(spec.restart_policy))
            }
            (None, None) => "its restart policy decides".to_owned(),
        }
    }

    /// Why an instance was stopped.
    pub(super) fn kill(&self, container: &str, id: &str, reason: KillReason, way: Way<'_>) -> Link {
        let text = format!("it had to stop: {reason}");
        let mut link = match reason {
            KillReason::Probe(_) => Link::conclusion(text, Vec::new()),
            // Where no journal names the requester, the message of the victim's end does.
            KillReason::RestartAll => Link::conclusion(text, self.triggers(self.known.restart_behind(id), way)),
            KillReason::PodEnding => Link::conclusion(text, vec![self.ending(way)]),
            KillReason::PostStartFailed
            | KillReason::DefinitionChanged
            | KillReason::SandboxGone
            | KillReason::StateUnknown
            | KillReason::Superseded => Link::evidence(text),
        };
        if let KillReason::Probe(probe) = reason {
            let lost = || match self.known.is_older_than_journal(id) {
                true => Link::evidence(format!("the results of its {probe} probe are older than the journal")),
                false => Link::missing(format!("the results of its {probe} probe are no longer recorded")),
            };
            link.because.push(self.verdict_behind_kill(container, id, reason).unwrap_or_else(lost));
        }
        if let Some(note) = self.known.kill(id, reason) {
            link.at = Some(note.at);
            link.because.extend(self.loss_behind(reason, note));
        }
        link
    }

    /// What was missing of the sandbox whose containers were stopped, where the runtime said so. The loss is noted with the first
    /// container that is stopped for it, just after it.
    fn loss_behind(&self, reason: KillReason, kill: &Note) -> Option<Link> {
        if reason != KillReason::SandboxGone {
            return None;
        }
        let journal = &self.known.journal;
        let (before, after) = journal.split_at(journal.iter().position(|note| note == kill)?);
        let of_sandbox = |note: &&Note| matches!(note.what, What::Sandbox { .. });
        let is_loss = |note: &&Note| matches!(note.what, What::Sandbox { lost: Some(_), .. });
        let note = after.iter().find(of_sandbox).filter(is_loss);
        let note = note.or_else(|| before.iter().rev().find(of_sandbox).filter(is_loss))?;
        Some(Link::evidence(sentence::note_sentence(note, self.now)).at(note.at))
    }

    /// Stops and removals that keep failing.
    pub(super) fn trouble(&self, id: &str) -> Vec<Link> {
        let retries = self.known.evidence.volatile.retries.iter();
        let about = retries.filter_map(|retry| match &retry.key {
            OpKey::Stop(failing) if failing == id || id.is_empty() => Some(("stopping", failing, retry)),
            OpKey::Remove(failing) if failing == id || id.is_empty() => Some(("removing", failing, retry)),
            _ => None,
        });
        let text = about.map(|(what, id, retry)| {
            let failed = times(retry.failures);
            format!("{what} {} failed {failed}{}", short_id(id), quoted(&retry.failure.message))
        });
        text.map(Link::evidence).collect()
    }

    pub(super) fn triggers(&self, described: &str, way: Way<'_>) -> Vec<Link> {
        let triggers = self.known.triggers();
        if triggers.is_empty() {
            return match described {
                "" => vec![Link::missing("the trigger is no longer recorded")],
                _ => vec![Link::evidence(described)],
            };
        }
        let mut links: Vec<Link> = triggers.iter().map(|trigger| self.trigger(trigger, way)).collect();
        links.extend(self.trouble(""));
        links
    }

    pub(super) fn trigger(&self, trigger: &Trigger, way: Way<'_>) -> Link {
        let mut link = Link::evidence(sentence::trigger(trigger, self.now)).at(trigger.at());
        if let Trigger::Exit { container, id, rule, .. } = trigger {
            link.because.push(Link::evidence(self.asked_by(container, Some(*rule))));
            if let Some(ExitCause::Killed(reason)) = self.known.exit(id).map(|exit| exit.cause)
                && reason != KillReason::RestartAll
            {
                link.because.push(self.kill(container, id, reason, way));
            }
        }
        link
    }

    pub(super) fn backoff(&self, container: &str, until: Moment, delay: Duration, way: Way<'_>) -> Link {
        let end = format!("{} ({})", time(until.wall, self.now), relative(until, self.now));
        let text = format!("it waits {} from its last exit to its next start, until {end}", span(delay));
        let because = match self.known.record(container).and_then(|record| record.last_exit.as_ref()) {
            Some(exit) => {
                let rule = self.rule_of(container, &exit.id);
                let kind = (exit.exit_code, exit.cause);
                vec![self.exit(container, &exit.id, kind, exit.finished, rule, way)]
            }
            None => self.triggers("", way),
        };
        Link::conclusion(text, because).at(until)
    }

    pub(super) fn rule_of(&self, container: &str, exited: &str) -> Option<usize> {
        match self.known.because(&Subject::RestartCount(container.to_owned())) {
            Some(Because::Exited { id, rule, .. }) if id == exited => *rule,
            _ => self.known.triggers().iter().find_map(|trigger| match trigger {
                Trigger::Exit { id, rule, .. } if id == exited => Some(*rule),
                Trigger::Exit { .. } | Trigger::Request { .. } | Trigger::Inherited { .. } => None,
            }),
        }
    }

    /// The restarts that the journal has, newest first; the reason of the newest status knows the last exit only.
    pub(super) fn restarts(&self, container: &str, way: Way<'_>) -> Option<Vec<Link>> {
        let subject = Subject::RestartCount(container.to_owned());
        let notes = self.known.journal.iter().rev().filter_map(|note| match &note.what {
            What::RestartCount { container: name, count } if name == container => {
                Some((note.at, *count, note.because.as_ref()?))
            }
            _ => None,
        });
        let notes: Vec<_> = notes.take(RESTARTS_SHOWN).collect();
        let earlier = notes.last()?.1.saturating_sub(1);
        let mut links: Vec<Link> = notes
            .into_iter()
            .map(|(at, count, because)| {
                let text = format!("of restart {count} at {}", time_ago(at, self.now));
                Link::conclusion(text, self.links(&subject, because, way)).at(at)
            })
            .collect();
        if earlier > 0 {
            let text = format!("of {earlier} earlier restart{}", if earlier == 1 { "" } else { "s" });
            links.push(Link::evidence(text));
        }
        Some(links)
    }
}
