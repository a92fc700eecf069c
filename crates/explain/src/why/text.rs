//! Answers for the terminal: one headline per part of the status, its chain indented below.

use std::fmt::Write;

use keelet_lifecycle::{Moment, ProbeRecord, Subject, operation::Outcome};

use super::{Answer, Explained, Link};
use crate::{
    sentence::outcome,
    words::{clipped, clock, date, one_line, pod_name, span, time_ago},
};

/// How much of what probes got as answers is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Equal attempts in one line, and of what a passed probe got only as much as fits on the line.
    Brief,
    /// Every attempt with all of its output.
    Full,
}

/// The longest line of a passed attempt.
const WIDTH: usize = 100;

/// The answers as text, with a line break at the end. What was explained once is not explained again.
pub fn text(explained: &Explained, detail: Detail) -> String {
    let mut page = Page { text: String::new(), detail, now: explained.as_of, of: String::new(), told: Vec::new() };
    let asked = explained.as_of.wall;
    let _ = writeln!(
        page.text,
        "pod {} as of {} {} UTC",
        pod_name(&explained.namespace, &explained.name),
        date(asked),
        clock(asked)
    );
    for remark in &explained.remarks {
        let _ = writeln!(page.text, "{remark}");
    }
    if explained.answers.is_empty() {
        page.text.push_str("no status yet\n");
    }
    for answer in &explained.answers {
        page.answer(answer);
    }
    page.text
}

struct Page {
    text: String,
    detail: Detail,
    now: Moment,
    /// Whose part the last answer was about.
    of: String,
    /// Subjects whose chain stands above.
    told: Vec<Subject>,
}

// === impl Page ===

impl Page {
    fn answer(&mut self, answer: &Answer) {
        let word = if answer.value.starts_with("ended") { "at" } else { "since" };
        let since = answer.since.map(|since| format!(" {word} {}", time_ago(since, self.now))).unwrap_or_default();
        let reason = if answer.reason.is_empty() { String::new() } else { format!(": {}", answer.reason) };
        let told = self.told.contains(&answer.subject);
        let above = if told { " (see above)" } else { "" };
        // What belongs together stands together.
        if self.of != answer.of || answer.of.starts_with("pod ") {
            self.text.push('\n');
            self.of.clone_from(&answer.of);
        }
        let _ = writeln!(self.text, "{}   {}{since}{reason}{above}", answer.of, answer.value);
        if told {
            return;
        }
        self.told.push(answer.subject.clone());
        self.links(&answer.because, 1);
    }

    fn links(&mut self, links: &[Link], depth: usize) {
        for link in links {
            let indent = "  ".repeat(depth);
            let told = link.subject.as_ref().is_some_and(|subject| self.told.contains(subject));
            let above = if told { " (see above)" } else { "" };
            let _ = writeln!(self.text, "{indent}because {}{above}", link.text);
            if told {
                continue;
            }
            self.told.extend(link.subject.clone());
            self.attempts(&link.attempts, depth + 1);
            self.links(&link.because, depth + 1);
        }
    }

    fn attempts(&mut self, attempts: &[ProbeRecord], depth: usize) {
        let indent = "  ".repeat(depth);
        let alike = |one: &ProbeRecord, other: &ProbeRecord| {
            let same = one.outcome == other.outcome && one.output == other.output && one.eager == other.eager;
            self.detail == Detail::Brief && same
        };
        for same in attempts.chunk_by(alike) {
            let Some((attempt, others)) = same.split_last() else { continue };
            let (at, latency) = (clock(attempt.at.wall), span(attempt.latency));
            let mut line = format!("{indent}{at}  {:9}  {latency:>7}  ", outcome(attempt.outcome));
            let times: Vec<String> = others.iter().map(|other| clock(other.at.wall)).collect();
            let eager = if attempt.eager { "  (eager)" } else { "" };
            let also = if times.is_empty() { String::new() } else { format!("  (also at {})", times.join(", ")) };
            let output = one_line(&attempt.output);
            let room = WIDTH.saturating_sub(line.chars().count() + eager.len() + also.chars().count());
            match self.detail == Detail::Brief && attempt.outcome == Outcome::Success {
                true => line.push_str(&clipped(&output, room)),
                false => line.push_str(&output),
            }
            let _ = writeln!(self.text, "{}{eager}{also}", line.trim_end());
        }
    }
}
