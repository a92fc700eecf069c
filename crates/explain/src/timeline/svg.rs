//! A timeline as SVG: one file without references, for light and dark surroundings, with a tooltip on everything.

use std::fmt::Write;

use keelet_lifecycle::{Wall, operation::Outcome};
use keelet_pod::ProbeKind;

use super::{Band, BandKind, Lane, LaneKind, Mark, MarkKind, Span, State, Tick, Timeline, Times, axis};
use crate::{
    sentence::outcome,
    words::{clock, span},
};

/// Whether the picture names itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heading {
    /// It stands alone.
    Shown,
    /// Something around it does.
    Hidden,
}

/// Pixels.
const WIDTH: f64 = 1160.0;
const GUTTER: f64 = 190.0;
const MARGIN: f64 = 28.0;
const HEADING: f64 = 58.0;
const STRIP_ROW: f64 = 18.0;
const AXIS: f64 = 26.0;
const POD_LANE: f64 = 26.0;
const POD_BAR: f64 = 14.0;
const LANE: f64 = 40.0;
const BAR: f64 = 22.0;
const LINE: f64 = 4.0;
const PROBE_ROW: f64 = 14.0;
const GAP: f64 = 12.0;
const LEGEND: f64 = 64.0;
/// Of a letter, on average.
const LETTER: f64 = 6.4;
const LEGEND_LETTER: f64 = 5.6;
/// Attempts of one outcome that are closer than this are drawn as one.
const CLOSEST_TICKS: f64 = 2.5;

/// The timeline as a file of its own, with a line break at the end.
pub fn svg(timeline: &Timeline, times: &Times) -> String {
    picture(timeline, Heading::Shown, times)
}

pub(super) fn picture(timeline: &Timeline, heading: Heading, times: &Times) -> String {
    let mut drawing = Drawing { timeline, times, body: String::new(), y: 0.0 };
    if heading == Heading::Shown {
        drawing.heading();
    }
    drawing.strip();
    let top = drawing.y;
    drawing.y += AXIS;
    let mut lanes = String::new();
    std::mem::swap(&mut lanes, &mut drawing.body);
    drawing.lanes();
    let bottom = drawing.y + 4.0;
    std::mem::swap(&mut lanes, &mut drawing.body);
    // What lies behind the lanes comes first.
    drawing.bands(top + AXIS - 4.0, bottom);
    drawing.axis(top, bottom);
    drawing.body.push_str(&lanes);
    drawing.lines(top + AXIS - 4.0, bottom);
    drawing.y = bottom;
    drawing.legend();
    let height = drawing.y;
    let title = format!("Timeline of pod {}", timeline.pod_name());
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"kt\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-labelledby=\"kt-title kt-desc\">\n\
         <title id=\"kt-title\">{}</title>\n<desc id=\"kt-desc\">{}</desc>\n<style>{STYLE}</style>\n\
         <defs><pattern id=\"kt-hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect class=\"kt-hatch-back\" width=\"7\" height=\"7\"/>\
         <rect class=\"kt-hatch-line\" width=\"2\" height=\"7\"/></pattern></defs>\n\
         <rect class=\"kt-back\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n{}</svg>\n",
        escape(&title),
        escape(&describe(timeline, times)),
        drawing.body
    )
}

/// The picture in words, for screen readers.
fn describe(timeline: &Timeline, times: &Times) -> String {
    let window = match times {
        Times::Utc => format!("From {}", times.window(timeline, "to")),
        Times::FromZero { .. } => times.window(timeline, "to"),
    };
    let mut text = format!("{window}, {}.", span(timeline.to.since(timeline.from)));
    for lane in &timeline.lanes {
        let spans: Vec<String> =
            lane.spans.iter().map(|span| format!("{} from {}", span.label, clock(span.from))).collect();
        let newest = spans.len().saturating_sub(6);
        let _ = write!(text, " {}: {}.", lane.name, spans[newest..].join(", "));
    }
    text
}

/// For text and attribute values.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML knows no other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

struct Drawing<'t> {
    timeline: &'t Timeline,
    times: &'t Times,
    body: String,
    y: f64,
}

// === impl Drawing ===

impl Drawing<'_> {
    fn x(&self, at: Wall) -> f64 {
        let offset = (at.as_millis() - self.timeline.from.as_millis()) as f64;
        let share = (offset / self.timeline.millis() as f64).clamp(0.0, 1.0);
        ((GUTTER + share * (WIDTH - GUTTER - MARGIN)) * 10.0).round() / 10.0
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let _ = writeln!(self.body, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>", escape(text));
    }

    fn heading(&mut self) {
        let timeline = self.timeline;
        self.text(20.0, 32.0, "kt-h1", &timeline.pod_name());
        let line = format!("{} · {}", self.times.window(timeline, "–"), span(timeline.to.since(timeline.from)));
        self.text(20.0, 50.0, "kt-muted", &line);
        self.y = HEADING;
    }

    /// What happened to the pod as a whole, named above the axis, without overlaps.
    fn strip(&mut self) {
        let all = &self.timeline.bands;
        let ends_with = |at: Wall, kind| all.iter().any(|band| band.kind == kind && band.to == at);
        // One name for each turn: the second half of a restart goes by the first, an agent by the absence it ended.
        let second = |band: &&Band| band.kind == BandKind::Restarting && ends_with(band.from, BandKind::Removing);
        let bands = all.iter().filter(|band| !second(band));
        let bands = bands.map(|band| (band.from, &band.label, &band.title, band_class(band)));
        let named = |mark: &&Mark| match mark.kind {
            MarkKind::RestartAll => mark.label == "restart abandoned",
            MarkKind::Agent => !ends_with(mark.at, BandKind::NoAgent),
            _ => true,
        };
        let marks = self.timeline.marks.iter().filter(named);
        let marks = marks.map(|mark| (mark.at, &mark.label, &mark.title, mark_class(mark)));
        let mut labels: Vec<_> = bands.chain(marks).collect();
        labels.sort_by_key(|(at, ..)| *at);
        let mut ends: Vec<f64> = Vec::new();
        let top = self.y + 6.0;
        for (at, label, title, class) in labels {
            let width = label.chars().count() as f64 * LETTER + 10.0;
            let x = self.x(at).min(WIDTH - 8.0 - width);
            let row = ends.iter().position(|end| *end <= x).unwrap_or(ends.len());
            if row == ends.len() {
                ends.push(0.0);
            }
            ends[row] = x + width + 6.0;
            let y = top + STRIP_ROW * row as f64;
            let _ = writeln!(
                self.body,
                "<g><rect x=\"{x}\" y=\"{y}\" width=\"{width:.1}\" height=\"15\" rx=\"3\" class=\"kt-tag {class}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" class=\"kt-tag-text {class}\">{}</text><title>{}</title></g>",
                x + 5.0,
                y + 11.0,
                escape(label),
                escape(title)
            );
        }
        self.y = top + STRIP_ROW * ends.len() as f64;
    }

    fn axis(&mut self, top: f64, bottom: f64) {
        for at in axis::times(self.timeline.from, self.timeline.to, 10) {
            let (x, label) = (self.x(at), self.times.label(at, self.timeline.from));
            let _ = writeln!(
                self.body,
                "<line x1=\"{x}\" x2=\"{x}\" y1=\"{:.1}\" y2=\"{bottom:.1}\" class=\"kt-grid\"/>",
                top + AXIS - 6.0
            );
            let room = label.len() as f64 * LETTER / 2.0;
            if x - room > GUTTER - 40.0 && x + room < WIDTH {
                self.text(x, top + 14.0, "kt-axis", &label);
            }
        }
    }

    fn bands(&mut self, top: f64, bottom: f64) {
        for band in &self.timeline.bands {
            let (x, width) = (self.x(band.from), (self.x(band.to) - self.x(band.from)).max(1.5));
            let _ = writeln!(
                self.body,
                "<rect x=\"{x}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" class=\"kt-band {}\"><title>{}</title></rect>",
                bottom - top,
                band_class(band),
                escape(&band.title)
            );
        }
    }

    /// Starts of the agent go through all lanes.
    fn lines(&mut self, top: f64, bottom: f64) {
        for mark in self.timeline.marks.iter().filter(|mark| matches!(mark.kind, MarkKind::Agent | MarkKind::Ending)) {
            let x = self.x(mark.at);
            let _ = writeln!(
                self.body,
                "<line x1=\"{x}\" x2=\"{x}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\" class=\"kt-turn {}\"><title>{}</title></line>",
                mark_class(mark),
                escape(&mark.title)
            );
        }
    }

    fn lanes(&mut self) {
        let mut section = "";
        for lane in &self.timeline.lanes {
            let next = if lane.is_container() { "containers" } else { "pod" };
            if section != next && !section.is_empty() {
                let y = self.y + GAP / 2.0;
                let x2 = WIDTH - MARGIN;
                let _ =
                    writeln!(self.body, "<line x1=\"20\" x2=\"{x2}\" y1=\"{y:.1}\" y2=\"{y:.1}\" class=\"kt-rule\"/>");
                self.y += GAP;
            }
            section = next;
            if lane.is_container() { self.container(lane) } else { self.condition(lane) }
        }
    }

    fn condition(&mut self, lane: &Lane) {
        let middle = self.y + POD_LANE / 2.0;
        self.text(20.0, middle + 4.0, "kt-name-pod", &lane.name);
        for span in &lane.spans {
            let class = match (lane.name.as_str(), span.state) {
                ("Ready", State::False) => "kt-lacking",
                ("AllContainersRestarting", State::True) => "kt-turning",
                _ => state_class(span.state),
            };
            self.bar(span, class, middle, POD_BAR, 0.0);
        }
        self.y += POD_LANE;
    }

    fn container(&mut self, lane: &Lane) {
        let middle = self.y + LANE / 2.0;
        self.text(20.0, middle + 4.5, "kt-name", &lane.name);
        if let Some(role) = role(lane.kind) {
            let x = 20.0 + lane.name.chars().count() as f64 * 7.6 + 10.0;
            self.text(x.min(GUTTER - 60.0), middle + 4.0, "kt-role", role);
        }
        for span in &lane.spans {
            let behind =
                lane.marks.iter().any(|mark| mark.at == span.from && matches!(mark.kind, MarkKind::Exit { .. }));
            self.bar(span, state_class(span.state), middle, BAR, if behind { 6.0 } else { 0.0 });
        }
        for mark in &lane.marks {
            self.mark(mark, middle);
        }
        self.y += LANE;
        for probe in lane.probes() {
            self.probe(lane, probe);
        }
        self.y += 4.0;
    }

    fn bar(&mut self, span: &Span, state: &str, middle: f64, height: f64, indent: f64) {
        let height = if matches!(span.state, State::Done | State::Dead) { LINE } else { height };
        let (x, width) = (self.x(span.from), (self.x(span.to) - self.x(span.from)).max(1.5));
        let until = if span.to == self.timeline.to { "now".to_owned() } else { clock(span.to) };
        let title = format!(
            "{}: {} – {until} ({})\n{}",
            span.label,
            clock(span.from),
            crate::words::span(span.to.since(span.from)),
            span.title
        );
        let _ = writeln!(
            self.body,
            "<rect x=\"{x}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height}\" rx=\"{}\" class=\"kt-bar {state}\"><title>{}</title></rect>",
            middle - height / 2.0,
            if height > LINE { 3 } else { 1 },
            escape(&title)
        );
        let label = span.label.chars().count() as f64 * LETTER + 10.0 + indent;
        if height > LINE && width > label {
            let class = format!("kt-label {state}{}", if height < BAR { " kt-small" } else { "" });
            self.text(
                ((x + 6.0 + indent) * 10.0).round() / 10.0,
                middle + if height < BAR { 3.5 } else { 4.0 },
                &class,
                &span.label,
            );
        }
    }

    fn mark(&mut self, mark: &Mark, middle: f64) {
        let x = self.x(mark.at);
        let title = format!("{}\n{}", clock(mark.at), mark.title);
        let _ = match mark.kind {
            MarkKind::Exit { code } => {
                let class = if code == 0 { "kt-exit kt-fine" } else { "kt-exit" };
                let number = if code == 0 { String::new() } else { code.to_string() };
                writeln!(
                    self.body,
                    "<g class=\"{class}\"><circle cx=\"{x}\" cy=\"{middle:.1}\" r=\"5\"/>\
                     <path d=\"M{:.1} {:.1}l4.4 4.4m0 -4.4l-4.4 4.4\"/>\
                     <text x=\"{:.1}\" y=\"{:.1}\">{number}</text><title>{}</title></g>",
                    x - 2.2,
                    middle - 2.2,
                    x + 5.5,
                    middle - BAR / 2.0 - 1.0,
                    escape(&title)
                )
            }
            MarkKind::Kill => writeln!(
                self.body,
                "<path d=\"M{x} {:.1}l-4.5 -7h9z\" class=\"kt-kill\"><title>{}</title></path>",
                middle - BAR / 2.0 + 3.0,
                escape(&title)
            ),
            MarkKind::Agent | MarkKind::RestartAll | MarkKind::Ending => Ok(()),
        };
    }

    fn probe(&mut self, lane: &Lane, probe: ProbeKind) {
        let base = self.y + PROBE_ROW - 3.0;
        self.text(34.0, base, "kt-probe-name", probe.as_str());
        let mut last: Option<(f64, Outcome)> = None;
        for tick in lane.ticks.iter().filter(|tick| tick.probe == probe) {
            let x = self.x(tick.at);
            if last.is_some_and(|(before, outcome)| outcome == tick.outcome && x - before < CLOSEST_TICKS) {
                continue;
            }
            last = Some((x, tick.outcome));
            self.tick(tick, x, base);
        }
        self.y += PROBE_ROW;
    }

    fn tick(&mut self, tick: &Tick, x: f64, base: f64) {
        // Height says as much as colour does.
        let (class, width, height) = match tick.outcome {
            Outcome::Success => ("kt-pass", 2.0, 5.0),
            Outcome::Warning => ("kt-warn", 2.0, 7.0),
            Outcome::Failure => ("kt-fail", 3.0, 10.0),
            Outcome::Error => ("kt-error", 3.0, 10.0),
            Outcome::Late | Outcome::Cancelled => ("kt-late", 2.0, 3.0),
        };
        let title = format!(
            "{} {} probe {} after {} ms{}",
            clock(tick.at),
            tick.probe,
            outcome(tick.outcome),
            tick.latency_ms,
            crate::words::quoted(&tick.output)
        );
        let _ = writeln!(
            self.body,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width}\" height=\"{height}\" class=\"{class}\"><title>{}</title></rect>",
            x - width / 2.0,
            base - height + 1.0,
            escape(&title)
        );
    }

    fn legend(&mut self) {
        let top = self.y + 18.0;
        let states = [
            (State::Waiting, "waiting"),
            (State::Trouble, "waiting, in trouble"),
            (State::Starting, "running, not started"),
            (State::Unready, "started, not ready"),
            (State::Ready, "ready"),
            (State::Done, "ended well"),
            (State::Dead, "ended"),
        ];
        let mut x = 20.0;
        for (state, name) in states {
            let (y, height) =
                if matches!(state, State::Done | State::Dead) { (top - 6.0, LINE) } else { (top - 9.0, 10.0) };
            let _ = writeln!(
                self.body,
                "<rect x=\"{x}\" y=\"{y}\" width=\"16\" height=\"{height}\" rx=\"2\" class=\"kt-bar {}\"/>",
                state_class(state)
            );
            self.text(x + 22.0, top, "kt-legend", name);
            x += 22.0 + name.len() as f64 * LEGEND_LETTER + 20.0;
        }
        let second = top + 20.0;
        let mut x = 20.0;
        let shapes: [(&str, &str); 5] = [
            ("<rect x=\"2\" y=\"-5\" width=\"2\" height=\"5\" class=\"kt-pass\"/>", "probe passed"),
            ("<rect x=\"2\" y=\"-10\" width=\"3\" height=\"10\" class=\"kt-fail\"/>", "probe failed"),
            (
                "<g class=\"kt-exit\"><circle cx=\"4\" cy=\"-4\" r=\"5\"/><path d=\"M1.8 -6.2l4.4 4.4m0 -4.4l-4.4 4.4\"/></g>",
                "exit, with its code",
            ),
            ("<path d=\"M4 0l-4.5 -7h9z\" class=\"kt-kill\"/>", "stop asked for"),
            ("<rect x=\"-2\" y=\"-9\" width=\"14\" height=\"10\" class=\"kt-band kt-no-agent\"/>", "no agent"),
        ];
        for (shape, name) in shapes {
            let _ = writeln!(self.body, "<g transform=\"translate({x:.1} {second:.1})\">{shape}</g>");
            self.text(x + 18.0, second, "kt-legend", name);
            x += 18.0 + name.len() as f64 * LEGEND_LETTER + 20.0;
        }
        self.y += LEGEND;
    }
}

fn role(kind: LaneKind) -> Option<&'static str> {
    match kind {
        LaneKind::Init => Some("init"),
        LaneKind::Sidecar => Some("sidecar"),
        LaneKind::Ephemeral => Some("ephemeral"),
        LaneKind::Phase | LaneKind::Condition | LaneKind::Container => None,
    }
}

fn band_class(band: &Band) -> &'static str {
    match band.kind {
        BandKind::NoAgent => "kt-no-agent",
        BandKind::Removing => "kt-removing",
        BandKind::Restarting => "kt-restarting",
    }
}

fn mark_class(mark: &Mark) -> &'static str {
    match mark.kind {
        MarkKind::Agent => "kt-agent",
        MarkKind::Ending => "kt-ending",
        MarkKind::RestartAll => "kt-restarting",
        MarkKind::Exit { .. } | MarkKind::Kill => "",
    }
}

fn state_class(state: State) -> &'static str {
    match state {
        State::True => "kt-true",
        State::False => "kt-false",
        State::Pending => "kt-pending",
        State::Running => "kt-running",
        State::Succeeded => "kt-succeeded",
        State::Failed => "kt-failed",
        State::Waiting => "kt-waiting",
        State::Trouble => "kt-trouble",
        State::Starting => "kt-starting",
        State::Unready => "kt-unready",
        State::Ready => "kt-ready",
        State::Done => "kt-done",
        State::Dead => "kt-dead",
    }
}

const STYLE: &str = include_str!("svg.css");
