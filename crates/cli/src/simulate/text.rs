//! A simulation for the terminal: what was asked for, the picture, the moments that matter, the summary.

use std::fmt::Write;

use keelet_explain::{
    simulation::{Finding, Moment},
    timeline::{self, LaneKind, TextStyle, Timeline, Times, Tone},
    wrapped,
};
use keelet_pod::duration::words;

use crate::style::Style;

use super::Simulation;

/// Of very many moments the first and the last are printed.
const FIRST_MOMENTS: usize = 40;
const LAST_MOMENTS: usize = 20;

/// `00:00:00` and two blanks.
const CLOCK: usize = 10;

/// The whole page.
pub(super) fn text(simulation: &Simulation, text_style: TextStyle) -> String {
    let style = if text_style.colours { Style::Coloured } else { Style::Plain };
    let mut page = String::new();
    let pod = &simulation.record.pod;
    let span = words(simulation.scenario.span);
    let _ = writeln!(page, "pod {}/{}, {span} of simulated time (seed {})", pod.namespace, pod.name, simulation.seed);
    let asked = simulation.asked();
    if asked.is_empty() {
        page.push_str("  everything goes well; keelet simulate --help lists what may happen\n");
    }
    for sentence in asked {
        wrapped(&mut page, "  ", 4, &sentence, text_style.width);
    }
    page.push('\n');
    page.push_str(&picture(&simulation.timeline, text_style, &simulation.times()));
    page.push_str("\nWhat happened\n");
    moments(&mut page, &simulation.moments, style, text_style.width);
    page.push_str("\nSummary\n");
    summary(&mut page, &simulation.findings, style, text_style.width);
    page
}

/// The picture of what matters most.
fn picture(timeline: &Timeline, text_style: TextStyle, times: &Times) -> String {
    let mut shown = timeline.clone();
    // There is little room, and what other conditions say shows in the lanes of the containers.
    shown.lanes.retain(|lane| lane.kind != LaneKind::Condition || lane.name == "Ready");
    timeline::picture(&shown, text_style, times)
}

fn moments(page: &mut String, moments: &[Moment], style: Style, width: usize) {
    let left_out = moments.len().saturating_sub(FIRST_MOMENTS + LAST_MOMENTS);
    for (index, moment) in moments.iter().enumerate() {
        if left_out > 0 && index == FIRST_MOMENTS {
            let _ = writeln!(page, "{:CLOCK$}... {left_out} more; -o html and -o json have them all", "");
        }
        if left_out > 0 && (FIRST_MOMENTS..FIRST_MOMENTS + left_out).contains(&index) {
            continue;
        }
        let mut told = String::new();
        wrapped(&mut told, &format!("{}  ", clock(moment.at_ms)), CLOCK, &moment.text, width);
        page.push_str(&paint(style, moment.tone, &told, CLOCK));
        if let Some(because) = &moment.because {
            wrapped(page, &" ".repeat(CLOCK), CLOCK + 2, &format!("because {because}"), width);
        }
    }
}

fn summary(page: &mut String, findings: &[Finding], style: Style, width: usize) {
    let topics = findings.iter().map(|line| line.topic.len()).max().unwrap_or(0);
    let mut container = None;
    for line in findings {
        if line.container.is_some() && line.container != container {
            container.clone_from(&line.container);
            let _ = writeln!(page, "  {}", container.as_deref().unwrap_or_default());
        }
        let indent = if line.container.is_some() { 4 } else { 2 };
        let start = format!("{:indent$}{:topics$}  ", "", line.topic);
        let mut told = String::new();
        wrapped(&mut told, &start, start.len(), &line.text, width);
        page.push_str(&paint(style, line.tone, &told, start.len()));
    }
}

/// Colours what follows after so many letters.
fn paint(style: Style, tone: Tone, text: &str, after: usize) -> String {
    let (start, rest) = text.split_at(text.floor_char_boundary(after));
    let rest = rest.trim_end_matches('\n');
    match tone {
        Tone::Good => format!("{start}{}\n", style.green(rest)),
        Tone::Plain | Tone::Turn => format!("{start}{rest}\n"),
        Tone::Bad => format!("{start}{}\n", style.red(rest)),
    }
}

/// `00:01:30`.
fn clock(at_ms: u64) -> String {
    let seconds = at_ms / 1000;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_count_from_the_beginning() {
        assert_eq!(clock(0), "00:00:00");
        assert_eq!(clock(3_725_900), "01:02:05");
    }
}
