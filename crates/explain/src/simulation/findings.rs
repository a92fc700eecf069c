//! A few sentences on a simulated pod and its probes.

use std::{collections::BTreeMap, time::Duration};

use keelet_lifecycle::status::Phase;
use keelet_pod::{
    ProbeKind,
    duration::{about, words},
};
use serde::Serialize;

use super::{
    Cause,
    outlook::{Budget, Detection, Fit, Outlook, failures_needed},
    summary::{AgentReturn, ContainerSummary, Summary},
};
use crate::{timeline::Tone, words::times};

/// One sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The container it is about; the pod if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// What it is about, in a word.
    pub topic: &'static str,
    /// What it says.
    pub text: String,
    /// Whether it is good or bad news.
    pub tone: Tone,
}

/// The sentences, those on the pod first. Some containers start slowly: by name, how long their probes fail after each start.
pub fn findings(summary: &Summary, outlooks: &[Outlook], slow_starts: &BTreeMap<String, Duration>) -> Vec<Finding> {
    let mut lines = vec![ready(summary), phase(summary), restarts(summary)];
    lines.extend(summary.returns.iter().map(came_back));
    for outlook in outlooks {
        let about = |(topic, text, tone)| Finding { container: Some(outlook.container.clone()), topic, text, tone };
        let slow = slow_starts.get(&outlook.container).copied();
        lines.extend([start(outlook, slow), hang(outlook), traffic(outlook, slow)].map(about));
    }
    lines
}

fn line(topic: &'static str, text: String, tone: Tone) -> Finding {
    Finding { container: None, topic, text, tone }
}

fn ready(summary: &Summary) -> Finding {
    let over = matches!(summary.phase, Phase::Succeeded | Phase::Failed);
    let Some(first) = summary.first_ready else {
        return line("ready", "never".to_owned(), if over { Tone::Plain } else { Tone::Bad });
    };
    let first = format!("after {}", about(first));
    let unready = match about(summary.unready).as_str() {
        "0 s" => "less than 100 ms".to_owned(),
        about => about.to_owned(),
    };
    match summary.ready_at_end {
        // A pod that is done need not be ready.
        _ if over => line("ready", first, Tone::Plain),
        true if summary.unready.is_zero() => line("ready", format!("{first}, and from then on"), Tone::Good),
        true => line("ready", format!("{first}; since then not for {unready} in all; ready at the end"), Tone::Good),
        false => {
            line("ready", format!("{first}; since then not for {unready} in all; not ready at the end"), Tone::Bad)
        }
    }
}

fn phase(summary: &Summary) -> Finding {
    let (phase, since) = (summary.phase, about(summary.phase_since));
    let (text, tone) = match phase {
        Phase::Running => (format!("{phase:?} at the end"), Tone::Good),
        Phase::Pending => (format!("{phase:?} at the end"), Tone::Bad),
        Phase::Succeeded => (format!("{phase:?} after {since}"), Tone::Good),
        Phase::Failed => (format!("{phase:?} after {since}"), Tone::Bad),
    };
    line("phase", text, tone)
}

fn restarts(summary: &Summary) -> Finding {
    let restarted: Vec<String> =
        summary.containers.iter().filter(|container| container.restarts > 0).map(restarts_of).collect();
    match restarted.is_empty() {
        true => line("restarts", "none".to_owned(), Tone::Good),
        false => line("restarts", restarted.join("; "), Tone::Plain),
    }
}

fn restarts_of(container: &ContainerSummary) -> String {
    let mut text = format!("{} {}", container.name, times(container.restarts));
    let kills = |kind| container.killed_by.iter().filter(|probe| **probe == kind).count();
    for kind in [ProbeKind::Startup, ProbeKind::Liveness] {
        match kills(kind) {
            0 => {}
            kills => text.push_str(&format!(", killed by {kind} {}", times(u32::try_from(kills).unwrap_or(u32::MAX)))),
        }
    }
    if !container.backoffs.is_empty() {
        let (first, more) = container.backoffs.split_at(container.backoffs.len().min(6));
        let delays: Vec<String> = first.iter().map(|delay| words(*delay)).collect();
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        let noun = if container.backoffs.len() == 1 { "a backoff" } else { "backoffs" };
        text.push_str(&format!(", after {noun} of {}{more}", delays.join(", ")));
    }
    text
}

fn came_back(back: &AgentReturn) -> Finding {
    let (from, lasts) = (words(back.absence.from), words(back.absence.lasts));
    let (topic, began) = match back.absence.cause {
        Cause::Killed => ("agent", format!("killed at {from}, back after {lasts}")),
        Cause::Reboot => ("reboot", format!("at {from}, back after {lasts}")),
    };
    let Some(changes) = &back.changes else {
        return line(topic, format!("{began}: the simulation ends before that"), Tone::Plain);
    };
    match back.absence.cause {
        Cause::Killed if changes.is_empty() => line(topic, format!("{began}: no status changed"), Tone::Good),
        Cause::Killed => line(topic, format!("{began}, and found changes: {}", changes.join("; ")), Tone::Plain),
        Cause::Reboot => {
            let ready = back.ready.map(|ready| {
                let after = ready.saturating_sub(back.absence.from + back.absence.lasts);
                format!("ready again {} after that", about(after))
            });
            line(topic, format!("{began}: {}", ready.unwrap_or("not ready again".to_owned())), Tone::Plain)
        }
    }
}

type Said = (&'static str, String, Tone);

/// How long a start may take, and whether the given one fits.
fn start(outlook: &Outlook, slow: Option<Duration>) -> Said {
    let topic = "slow start";
    let Some(budget) = &outlook.start else {
        let text = "may take any time: no startup or liveness probe could end it".to_owned();
        return (topic, text, Tone::Plain);
    };
    let Budget { probe, failures, longest, .. } = budget;
    let killer = match failures {
        1 => format!("the first failure of its {probe} probe kills it"),
        _ => format!("the {} failure in a row of its {probe} probe kills it", ordinal(*failures)),
    };
    let limit = match longest.is_zero() {
        true => format!("must be immediate: right at the start {killer}"),
        false => format!("may take up to {}: {killer} then", words(*longest)),
    };
    let Some(takes) = slow else { return (topic, limit, Tone::Plain) };
    match budget.judge(takes) {
        Fit::Fits => (topic, format!("{limit}; {} fits", words(takes)), Tone::Good),
        Fit::Killed { needed } => {
            let advice = match probe {
                ProbeKind::Startup => format!("its failureThreshold would have to be at least {needed}"),
                ProbeKind::Liveness | ProbeKind::Readiness => format!(
                    "a startupProbe with periodSeconds {} and a failureThreshold of at least {} would do",
                    budget.period.as_secs().max(1),
                    failures_needed(Duration::ZERO, budget.period.max(Duration::from_secs(1)), takes)
                ),
            };
            (topic, format!("{limit}; {} does not fit: {advice}", words(takes)), Tone::Bad)
        }
    }
}

/// `1st`, `2nd`, `3rd`, `4th`, `11th`, `21st`.
fn ordinal(number: u32) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

fn hang(outlook: &Outlook) -> Said {
    let topic = "hang";
    let Some(found) = &outlook.liveness else {
        return (topic, "is never noticed: no liveness probe".to_owned(), Tone::Plain);
    };
    let stop = found.stop.unwrap_or_default();
    let mut text = format!(
        "is noticed within {} ({}), and the container is dead within {}, at the end of its grace period",
        words(found.hang),
        arithmetic(found),
        words(found.hang + stop)
    );
    if let Some(from_start) = found.hang_from_start {
        text.push_str(&format!("; one from its very start within {}", words(from_start)));
    }
    (topic, text, Tone::Plain)
}

fn traffic(outlook: &Outlook, slow: Option<Duration>) -> Said {
    let topic = "traffic";
    let has_startup = outlook.start.as_ref().is_some_and(|budget| budget.probe == ProbeKind::Startup);
    let Some(found) = &outlook.readiness else {
        let stays = "and stays as long as it runs: no readiness probe";
        return match slow {
            _ if has_startup => (topic, format!("comes once it has started up, {stays}"), Tone::Plain),
            None => (topic, format!("comes with its start, {stays}"), Tone::Plain),
            Some(slow) => {
                let too_early = format!("comes with its start, {} too early, {stays}", words(slow));
                (topic, too_early, Tone::Bad)
            }
        };
    };
    let bad = words(found.bad_answers);
    let text = format!(
        "is withdrawn within {} of a hang ({}), within {bad} of bad answers",
        words(found.hang),
        arithmetic(found)
    );
    (topic, text, Tone::Plain)
}

/// What the worst case is made of.
fn arithmetic(found: &Detection) -> String {
    let (period, timeout) = (words(found.period), words(found.timeout));
    match found.timeout < found.period {
        true if found.failures == 1 => format!("{period} to the next attempt + {timeout} timeout"),
        true => format!("{} attempts, {period} apart, + {timeout} timeout", found.failures),
        false => format!("{} attempts that wait {timeout} each, at most one every {period}", found.failures),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::outlooks, *};

    fn outlook(probes: &str) -> Outlook {
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  terminationGracePeriodSeconds: 30\n  \
             containers:\n  - {{name: main, image: app, {probes}}}\n"
        );
        outlooks(&keelet_pod::parse_one(&manifest).unwrap_or_else(|report| panic!("{report:#?}"))).remove(0)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// START-5, START-11.
    #[test]
    fn slow_starts_fit_or_the_text_says_what_would_let_them() {
        let startup = "startupProbe: {tcpSocket: {port: 80}, periodSeconds: 10, failureThreshold: 30}";
        let liveness = "livenessProbe: {tcpSocket: {port: 80}, periodSeconds: 10, failureThreshold: 3}";
        let readiness = "readinessProbe: {tcpSocket: {port: 80}}";
        let impatient = "startupProbe: {tcpSocket: {port: 80}, failureThreshold: 1}";
        let cases = [
            (startup, None, "may take up to 4 min 50 s: the 30th failure in a row of its startup probe kills it then"),
            (
                startup,
                Some(45),
                "may take up to 4 min 50 s: the 30th failure in a row of its startup probe kills it then; 45 s fits",
            ),
            (
                startup,
                Some(291),
                "may take up to 4 min 50 s: the 30th failure in a row of its startup probe kills it then; \
                 4 min 51 s does not fit: its failureThreshold would have to be at least 31",
            ),
            (
                liveness,
                Some(45),
                "may take up to 30 s: the 3rd failure in a row of its liveness probe kills it then; 45 s does not fit: \
                 a startupProbe with periodSeconds 10 and a failureThreshold of at least 6 would do",
            ),
            (readiness, Some(45), "may take any time: no startup or liveness probe could end it"),
            (impatient, None, "must be immediate: right at the start the first failure of its startup probe kills it"),
        ];
        for (probes, slow, expected) in cases {
            assert_eq!(start(&outlook(probes), slow.map(secs)).1, expected);
        }
    }

    #[test]
    fn hangs_and_traffic_come_with_their_arithmetic() {
        let found = outlook(
            "livenessProbe: {tcpSocket: {port: 80}, periodSeconds: 10, timeoutSeconds: 2, initialDelaySeconds: 60}, \
             readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 5, timeoutSeconds: 7, failureThreshold: 2}",
        );
        assert_eq!(
            hang(&found).1,
            "is noticed within 32 s (3 attempts, 10 s apart, + 2 s timeout), and the container is dead within 1 min 2 s, \
             at the end of its grace period; one from its very start within 1 min 22 s"
        );
        assert_eq!(
            traffic(&found, None).1,
            "is withdrawn within 22 s of a hang (2 attempts that wait 7 s each, at most one every 5 s), within 10 s of bad answers"
        );
        let none = outlook("startupProbe: {tcpSocket: {port: 80}}");
        assert_eq!(hang(&none).1, "is never noticed: no liveness probe");
        let stays = "and stays as long as it runs: no readiness probe";
        assert_eq!(traffic(&none, Some(secs(5))).1, format!("comes once it has started up, {stays}"));
        let none = outlook("livenessProbe: {tcpSocket: {port: 80}}");
        assert_eq!(traffic(&none, None).1, format!("comes with its start, {stays}"));
        let early = (format!("comes with its start, 5 s too early, {stays}"), Tone::Bad);
        assert_eq!((traffic(&none, Some(secs(5))).1, traffic(&none, Some(secs(5))).2), early);
    }

    #[test]
    fn restarts_show_which_probe_killed_and_what_was_waited_for() {
        let container = |restarts, killed_by: &[ProbeKind], backoffs: &[u64]| ContainerSummary {
            name: "main".to_owned(),
            restarts,
            killed_by: killed_by.to_vec(),
            backoffs: backoffs.iter().copied().map(secs).collect(),
        };
        assert_eq!(restarts_of(&container(1, &[], &[])), "main once");
        assert_eq!(
            restarts_of(&container(2, &[ProbeKind::Liveness, ProbeKind::Startup], &[10])),
            "main twice, killed by startup once, killed by liveness once, after a backoff of 10 s"
        );
        assert_eq!(
            restarts_of(&container(9, &[], &[10, 20, 40, 80, 160, 300, 300, 300])),
            "main 9 times, after backoffs of 10 s, 20 s, 40 s, 1 min 20 s, 2 min 40 s, 5 min and 2 more"
        );
    }

    #[test]
    fn ordinals() {
        let all: Vec<String> = [1, 2, 3, 4, 11, 12, 13, 21, 30, 112].map(ordinal).into();
        assert_eq!(all, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "30th", "112th"]);
    }
}
