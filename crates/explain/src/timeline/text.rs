//! A timeline for the terminal: one character is a slice of time.

use std::fmt::Write;

use keelet_lifecycle::{Wall, operation::Outcome};

use super::{BandKind, Lane, Mark, MarkKind, State, Tick, Timeline, Times, Tone, axis};
use crate::words::{clock, span, wrapped};

/// How a timeline is drawn in a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Columns.
    pub width: usize,
    /// With ANSI colours.
    pub colours: bool,
    /// Without characters beyond ASCII.
    pub ascii: bool,
}

/// The narrowest picture that still shows something.
const NARROWEST: usize = 24;

/// The timeline as text, with a line break at the end.
pub fn text(timeline: &Timeline, style: TextStyle) -> String {
    let arrow = if style.ascii { "to" } else { "→" };
    let times = Times::Utc;
    let length = span(timeline.to.since(timeline.from));
    let mut page = format!("pod {}   {} ({length})\n\n", timeline.pod_name(), times.window(timeline, arrow));
    if timeline.lanes.is_empty() && timeline.notes.is_empty() {
        page.push_str("nothing is known of this pod in this time\n");
        return page;
    }
    page.push_str(&picture(timeline, style, &times));
    notes(timeline, style, &mut page);
    page
}

/// The picture alone: the axis, the lanes, and what the characters mean.
pub fn picture(timeline: &Timeline, style: TextStyle, times: &Times) -> String {
    let names = timeline.lanes.iter().map(|lane| lane.name.chars().count());
    let probes = timeline.lanes.iter().flat_map(Lane::probes).map(|probe| probe.as_str().len() + 2);
    let gutter = names.chain(probes).chain(["agent".len()]).max().unwrap_or(0) + 2;
    let canvas = Canvas { timeline, style, times, gutter, columns: style.width.saturating_sub(gutter).max(NARROWEST) };
    let mut page = String::new();
    canvas.axis(&mut page);
    canvas.agent(&mut page);
    for lane in &timeline.lanes {
        canvas.lane(lane, &mut page);
    }
    canvas.legend(&mut page);
    page
}

struct Canvas<'t> {
    timeline: &'t Timeline,
    style: TextStyle,
    times: &'t Times,
    gutter: usize,
    columns: usize,
}

/// One column: a character and its colour.
#[derive(Clone, Copy)]
struct Cell(char, &'static str);

const GREEN: &str = "32";
const YELLOW: &str = "33";
const BLUE: &str = "34";
const RED: &str = "31";
const PURPLE: &str = "35";
const GREY: &str = "90";
const NONE: &str = "";

// === impl TextStyle ===

impl TextStyle {
    fn paint(self, colour: &str, text: &str) -> String {
        match self.colours && !colour.is_empty() {
            true => format!("\u{1b}[{colour}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }

    /// Our own characters in a sentence; what others said stays as it is.
    fn letters(self, text: &str) -> String {
        if self.ascii { text.replace('…', "...") } else { text.to_owned() }
    }
}

// === impl Canvas ===

impl Canvas<'_> {
    fn column(&self, at: Wall) -> usize {
        let offset = (at.as_millis() - self.timeline.from.as_millis()).max(0);
        let columns = i64::try_from(self.columns).unwrap_or(1);
        let column = offset.saturating_mul(columns) / self.timeline.millis();
        usize::try_from(column).unwrap_or(0).min(self.columns - 1)
    }

    fn row(&self, name: &str, cells: &[Cell], page: &mut String) {
        let _ = write!(page, "{name:width$}", width = self.gutter);
        let end = cells.iter().rposition(|cell| cell.0 != ' ').map_or(0, |last| last + 1);
        let mut index = 0;
        while index < end {
            let colour = cells[index].1;
            let same = cells[index..end].iter().take_while(|cell| cell.1 == colour).count();
            let run: String = cells[index..index + same].iter().map(|cell| cell.0).collect();
            page.push_str(&self.style.paint(colour, &run));
            index += same;
        }
        while page.ends_with(' ') {
            page.pop();
        }
        page.push('\n');
    }

    fn axis(&self, page: &mut String) {
        let mut cells = vec![Cell(' ', GREY); self.columns];
        let mut free = 0;
        for at in axis::times(self.timeline.from, self.timeline.to, self.columns / 12) {
            let (column, label) = (self.column(at), self.times.label(at, self.timeline.from));
            if column >= free && column + label.len() <= self.columns {
                for (offset, letter) in label.chars().enumerate() {
                    cells[column + offset].0 = letter;
                }
                free = column + label.len() + 1;
            }
        }
        self.row("", &cells, page);
    }

    /// The row of the agent: when it was there, and restarts of all containers.
    fn agent(&self, page: &mut String) {
        let timeline = self.timeline;
        if timeline.bands.is_empty() && timeline.marks.is_empty() {
            return;
        }
        let (there, away, begin) = if self.style.ascii { ('-', ' ', '^') } else { ('─', '┄', '▲') };
        let mut cells = vec![Cell(there, GREY); self.columns];
        let shown = [BandKind::Removing, BandKind::Restarting, BandKind::NoAgent];
        for band in shown.iter().flat_map(|kind| timeline.bands.iter().filter(move |band| band.kind == *kind)) {
            let cell = match band.kind {
                BandKind::NoAgent => Cell(away, RED),
                BandKind::Removing => Cell('R', PURPLE),
                BandKind::Restarting => Cell('r', PURPLE),
            };
            cells[self.column(band.from)..=self.column(band.to)].fill(cell);
        }
        for mark in &timeline.marks {
            let cell = match mark.kind {
                MarkKind::Agent => Cell(begin, BLUE),
                MarkKind::Ending => Cell('E', PURPLE),
                MarkKind::RestartAll | MarkKind::Exit { .. } | MarkKind::Kill => continue,
            };
            cells[self.column(mark.at)] = cell;
        }
        self.row("agent", &cells, page);
    }

    fn lane(&self, lane: &Lane, page: &mut String) {
        let mut cells = vec![Cell(' ', NONE); self.columns];
        for span in &lane.spans {
            cells[self.column(span.from)..=self.column(span.to)].fill(self.state(span.state));
        }
        for mark in &lane.marks {
            let bad = if self.style.ascii { 'X' } else { '✖' };
            let stop = if self.style.ascii { 'v' } else { '▼' };
            let cell = match mark.kind {
                MarkKind::Exit { code: 0 } => continue,
                MarkKind::Exit { .. } => Cell(bad, RED),
                MarkKind::Kill => Cell(stop, RED),
                MarkKind::Agent | MarkKind::RestartAll | MarkKind::Ending => continue,
            };
            let column = self.column(mark.at);
            // An exit says more than the stop before it.
            if cells[column].0 != bad {
                cells[column] = cell;
            }
        }
        self.row(&lane.name, &cells, page);
        for probe in lane.probes() {
            let mut worst: Vec<Option<&Tick>> = vec![None; self.columns];
            for tick in lane.ticks.iter().filter(|tick| tick.probe == probe) {
                let slot = &mut worst[self.column(tick.at)];
                if slot.is_none_or(|known| gravity(known.outcome) <= gravity(tick.outcome)) {
                    *slot = Some(tick);
                }
            }
            let cells: Vec<Cell> =
                worst.iter().map(|tick| tick.map_or(Cell(' ', NONE), |tick| self.tick(tick.outcome))).collect();
            self.row(&format!("  {probe}"), &cells, page);
        }
    }

    /// Whether a stop is to be seen: an exit in its place would hide it.
    fn shows_stop(&self, lane: &Lane) -> bool {
        let is_exit = |mark: &Mark| matches!(mark.kind, MarkKind::Exit { code } if code != 0);
        let hidden = |column| lane.marks.iter().any(|mark| is_exit(mark) && self.column(mark.at) == column);
        lane.marks.iter().any(|mark| mark.kind == MarkKind::Kill && !hidden(self.column(mark.at)))
    }

    fn state(&self, state: State) -> Cell {
        let (unicode, ascii, colour) = match state {
            State::True | State::Running | State::Succeeded | State::Ready => ('█', '#', GREEN),
            State::False | State::Pending => ('░', '.', GREY),
            State::Failed => ('▚', '~', RED),
            State::Waiting => ('░', '.', GREY),
            State::Trouble => ('▚', '~', RED),
            State::Starting => ('▒', '-', BLUE),
            State::Unready => ('▓', '=', YELLOW),
            State::Done => ('▁', '_', GREY),
            State::Dead => ('▁', '_', RED),
        };
        Cell(if self.style.ascii { ascii } else { unicode }, colour)
    }

    fn tick(&self, outcome: Outcome) -> Cell {
        let (unicode, ascii, colour) = match outcome {
            Outcome::Success => ('·', '.', GREEN),
            Outcome::Warning => ('!', '!', YELLOW),
            Outcome::Failure => ('×', 'x', RED),
            Outcome::Error => ('?', '?', RED),
            Outcome::Late | Outcome::Cancelled => ('-', '-', GREY),
        };
        Cell(if self.style.ascii { ascii } else { unicode }, colour)
    }

    fn legend(&self, page: &mut String) {
        let state = |state, name: &str| {
            let Cell(letter, colour) = self.state(state);
            format!("{} {name}", self.style.paint(colour, &letter.to_string()))
        };
        let tick = |outcome, name: &str| {
            let Cell(letter, colour) = self.tick(outcome);
            format!("{} {name}", self.style.paint(colour, &letter.to_string()))
        };
        let exit = self.style.paint(RED, if self.style.ascii { "X" } else { "✖" });
        let mut parts = vec![
            state(State::Waiting, "waiting"),
            state(State::Trouble, "in trouble"),
            state(State::Starting, "starting"),
            state(State::Unready, "not ready"),
            state(State::Ready, "ready"),
            state(State::Done, "ended"),
            format!("{exit} exit"),
        ];
        if self.timeline.lanes.iter().any(|lane| !lane.ticks.is_empty()) {
            parts.extend([tick(Outcome::Success, "probe passed"), tick(Outcome::Failure, "failed")]);
        }
        let stop = self.style.paint(RED, if self.style.ascii { "v" } else { "▼" });
        if self.timeline.lanes.iter().any(|lane| self.shows_stop(lane)) {
            parts.push(format!("{stop} stop"));
        }
        let has_mark = |kind| self.timeline.marks.iter().any(|mark| mark.kind == kind);
        if has_mark(MarkKind::Agent) {
            let begin = self.style.paint(BLUE, if self.style.ascii { "^" } else { "▲" });
            parts.push(format!("{begin} an agent starts"));
        }
        if has_mark(MarkKind::Ending) {
            parts.push(format!("{} the pod ends", self.style.paint(PURPLE, "E")));
        }
        if self.timeline.bands.iter().any(|band| band.kind != BandKind::NoAgent) {
            parts.push("R r RestartAllContainers: removing, starting".to_owned());
        }
        // Colours take no room.
        let room = |part: &String| {
            part.split("\u{1b}[")
                .map(|piece| piece.split_once('m').map_or(piece, |(_, rest)| rest).chars().count())
                .sum::<usize>()
        };
        let mut column = 0;
        page.push('\n');
        for part in &parts {
            let width = if self.style.colours { room(part) } else { part.chars().count() };
            if column > 0 && column + 3 + width > self.style.width {
                page.push('\n');
                column = 0;
            } else if column > 0 {
                page.push_str("   ");
                column += 3;
            }
            page.push_str(part);
            column += width;
        }
        page.push('\n');
    }
}

/// `08:00:00` and two blanks.
const CLOCK: usize = 10;

/// Every change, with its evidence.
fn notes(timeline: &Timeline, style: TextStyle, page: &mut String) {
    if timeline.notes.is_empty() {
        return;
    }
    page.push('\n');
    for note in &timeline.notes {
        let colour = match note.tone {
            Tone::Good => GREEN,
            Tone::Plain => NONE,
            Tone::Bad => RED,
            Tone::Turn => PURPLE,
        };
        let mut line = |start: &str, indent: usize, colour: &str, text: &str| {
            let mut lines = String::new();
            wrapped(&mut lines, "", indent, &style.letters(text), style.width.saturating_sub(CLOCK).max(indent + 20));
            let lines = lines.trim_end().replace('\n', &format!("\n{:CLOCK$}", ""));
            let _ = writeln!(page, "{start:CLOCK$}{}", style.paint(colour, &lines));
        };
        line(&clock(note.at), 2, colour, &note.text);
        if let Some(because) = &note.because {
            line("", 2, GREY, &format!("because {because}"));
        }
    }
}

/// Which of two attempts in one column is shown.
fn gravity(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Cancelled => 0,
        Outcome::Late => 1,
        Outcome::Success => 2,
        Outcome::Warning => 3,
        Outcome::Error => 4,
        Outcome::Failure => 5,
    }
}
