//! Answers for the terminal: one headline per part of the status, its chain indented below.

use std::fmt::Write;

use keelet_lifecycle::{Moment, ProbeRecord, Subject};

use super::{Answer, Explained, Link};
use crate::{
    sentence::outcome,
    words::{clock, date, one_line, pod_name, span, time_ago},
};

/// The answers as text, with a line break at the end. What was explained once is not explained again.
pub fn text(explained: &Explained) -> String {
    let mut page = Page { text: String::new(), now: explained.as_of, of: String::new(), told: Vec::new() };
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
        page.text.push_str("nothing has been said about it yet\n");
    }
    for answer in &explained.answers {
        page.answer(answer);
    }
    page.text
}

struct Page {
    text: String,
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
        for attempt in attempts {
            let (at, latency) = (clock(attempt.at.wall), span(attempt.latency));
            let line =
                format!("{indent}{at}  {:9}  {latency:>7}  {}", outcome(attempt.outcome), one_line(&attempt.output));
            let _ = writeln!(self.text, "{}", line.trim_end());
        }
    }
}
