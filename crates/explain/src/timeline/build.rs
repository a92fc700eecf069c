//! From a journal and probe results to lanes, spans, ticks and marks.

use std::{collections::BTreeMap, time::Duration};

use keelet_lifecycle::{
    Moment, Wall,
    journal::{Note, RestartAllStep, What},
    status::{ConditionType, Phase, Truth},
};
use keelet_pod::Role;

use super::{Band, BandKind, Lane, LaneKind, Mark, MarkKind, Sentence, Span, State, Tick, Timeline, Tone};
use crate::{
    known::Known,
    sentence::{because_of_note, condition_name, note_sentence, truth},
    words::span,
};

/// The name of the first lane.
const PHASE: &str = "phase";

/// A lane in the making.
struct Track {
    kind: LaneKind,
    spans: Vec<Span>,
    marks: Vec<Mark>,
    container: Progress,
}

/// What is known of a container while its journal is read.
#[derive(Clone, Copy, Default)]
struct Progress {
    runs: bool,
    started: bool,
    ready: bool,
}

// === impl Timeline ===

impl Timeline {
    /// What happened to a pod until now; the newest part of it only, if a span is given.
    pub fn build(known: &Known<'_>, since: Option<Duration>, now: Moment) -> Self {
        let place = |moment: Moment| place(moment, now);
        let mut notes: Vec<&Note> = known.journal.iter().collect();
        notes.sort_by_key(|note| place(note.at));
        let to = now.wall;
        let window = since.map(|since| place(now.minus(since)));
        let first = notes.first().map(|note| place(note.at));
        let first = first.into_iter().chain(known.history.iter().map(|record| place(record.at))).min().unwrap_or(to);
        let from = window.map_or(first, |window| window.max(first)).min(to);
        let mut builder = Builder {
            known,
            now,
            to,
            tracks: BTreeMap::new(),
            bands: Vec::new(),
            marks: Vec::new(),
            notes: Vec::new(),
        };
        for note in notes {
            builder.take(note);
        }
        let told = std::mem::take(&mut builder.notes).into_iter().filter(|told| told.at >= from).collect();
        let (lanes, bands, marks) = builder.finish(from);
        Self {
            format: "keelet.dev/timeline/v1",
            namespace: known.namespace.to_owned(),
            name: known.name.to_owned(),
            from,
            to,
            lanes,
            bands,
            marks,
            notes: told,
        }
    }
}

/// Where a moment stands on the axis. Within the present boot its boot time decides, so that a step of the wall clock
/// tears nothing apart.
fn place(moment: Moment, now: Moment) -> Wall {
    if moment.boot_id != now.boot_id {
        return moment.wall;
    }
    Wall::from_millis(now.wall.as_millis() - (now.boot_ms - moment.boot_ms))
}

struct Builder<'k, 'a> {
    known: &'k Known<'a>,
    now: Moment,
    to: Wall,
    tracks: BTreeMap<String, Track>,
    bands: Vec<Band>,
    marks: Vec<Mark>,
    notes: Vec<Sentence>,
}

// === impl Builder ===

impl Builder<'_, '_> {
    fn take(&mut self, note: &Note) {
        let at = place(note.at, self.now);
        let text = note_sentence(note, self.now);
        let because = because_of_note(note, self.known, self.now);
        let title = match &because {
            Some(because) => format!("{text}, because {because}"),
            None => text.clone(),
        };
        match &note.what {
            What::Phase { phase } => {
                self.span(PHASE, LaneKind::Phase, at, phase_state(*phase), format!("{phase:?}"), &title)
            }
            What::Condition { kind, status, .. } => {
                let state = if *status == Truth::True { State::True } else { State::False };
                self.span(&condition_name(kind), LaneKind::Condition, at, state, truth(*status).to_owned(), &title);
            }
            What::AgentStarted { last_seen, .. } => {
                if let Some(seen) = last_seen {
                    let (from, away) = (place(*seen, self.now), span(note.at.since(seen)));
                    let label = format!("no agent for {away}");
                    self.bands.push(Band { from, to: at, kind: BandKind::NoAgent, label, title: title.clone() });
                }
                self.marks.push(mark(at, MarkKind::Agent, "agent started", &title));
            }
            What::RestartAll { step, .. } => self.restart_all(at, *step, &title),
            What::Ending { .. } => self.marks.push(mark(at, MarkKind::Ending, "ending", &title)),
            _ => {}
        }
        if let Some(container) = note.container() {
            self.container(container, note, at, &title);
        }
        let container = note.container().map(str::to_owned);
        self.notes.push(Sentence { at, container, text, because, tone: tone(&note.what) });
    }

    fn restart_all(&mut self, at: Wall, step: RestartAllStep, title: &str) {
        let open = self.bands.iter_mut().rev().find(|band| band.kind != BandKind::NoAgent && band.to == self.to);
        if let Some(open) = open.filter(|_| !matches!(step, RestartAllStep::Joined | RestartAllStep::Released)) {
            open.to = at;
        }
        let (kind, label) = match step {
            RestartAllStep::Begun => (BandKind::Removing, "RestartAllContainers: removing"),
            RestartAllStep::Removed => (BandKind::Restarting, "RestartAllContainers: starting"),
            RestartAllStep::Joined | RestartAllStep::Released => return,
            RestartAllStep::Finished => {
                return self.marks.push(mark(at, MarkKind::RestartAll, "all restarted", title));
            }
            RestartAllStep::Abandoned => {
                return self.marks.push(mark(at, MarkKind::RestartAll, "restart abandoned", title));
            }
        };
        if step == RestartAllStep::Begun {
            self.marks.push(mark(at, MarkKind::RestartAll, "restart all", title));
        }
        let (label, title) = (label.to_owned(), title.to_owned());
        self.bands.push(Band { from: at, to: self.to, kind, label, title });
    }

    fn container(&mut self, name: &str, note: &Note, at: Wall, title: &str) {
        let kind = self.kind_of(name);
        let track = self.track(name, kind);
        let mut progress = track.container;
        let running = |progress: Progress| match progress {
            // It is done when it ends, so there is nothing it could be ready for.
            _ if kind == LaneKind::Init => (State::Starting, "running"),
            Progress { ready: true, .. } => (State::Ready, "ready"),
            Progress { started: true, .. } => (State::Unready, "not ready"),
            _ => (State::Starting, "starting"),
        };
        let next = match &note.what {
            What::Running { .. } => {
                progress = Progress { runs: true, ..Progress::default() };
                Some(running(progress))
            }
            What::Started { value, .. } => {
                progress.started = *value;
                progress.runs.then(|| running(progress))
            }
            What::Ready { value, .. } => {
                progress.ready = *value;
                progress.runs.then(|| running(progress))
            }
            What::Exited { exit, .. } => {
                progress = Progress::default();
                let label = format!("exit {}", exit.exit_code);
                track.marks.push(mark(at, MarkKind::Exit { code: exit.exit_code }, &label, title));
                None
            }
            What::Killing { .. } => {
                track.marks.push(mark(at, MarkKind::Kill, "stop", title));
                None
            }
            // The runtime had started it already when a status still said that it waits. That status is older than the news.
            What::Waiting { reason, .. } if progress.runs && waiting(reason) == State::Waiting => return,
            What::Waiting { .. } => {
                progress = Progress::default();
                None
            }
            _ => None,
        };
        track.container = progress;
        let (state, label) = match (&note.what, next) {
            (_, Some((state, label))) => (state, label.to_owned()),
            (What::Exited { exit, .. }, None) => (ended(exit.exit_code), format!("exit {}", exit.exit_code)),
            (What::ShownEnded { exit_code, .. }, None) => (ended(*exit_code), format!("exit {exit_code}")),
            (What::Waiting { reason, .. }, None) => (waiting(reason), reason.clone()),
            _ => return,
        };
        // An instance too short to be seen running is drawn all the same.
        if let What::Exited { exit, .. } = &note.what
            && let Some(started) = exit.started_at
            && !track.spans.last().is_some_and(|span| is_alive(span.state))
        {
            let begun = Wall::from_millis(started.as_millis().min(at.as_millis()));
            let title = title.to_owned();
            push(track, Span { from: begun, to: at, state: State::Starting, label: "ran".to_owned(), title });
        }
        self.span(name, kind, at, state, label, title);
    }

    fn kind_of(&self, container: &str) -> LaneKind {
        match self.known.container(container).map(|container| container.role) {
            Some(Role::Init) => LaneKind::Init,
            Some(Role::Sidecar) => LaneKind::Sidecar,
            Some(Role::Ephemeral) => LaneKind::Ephemeral,
            Some(Role::Regular) | None => LaneKind::Container,
        }
    }

    fn track(&mut self, name: &str, kind: LaneKind) -> &mut Track {
        let new = || Track { kind, spans: Vec::new(), marks: Vec::new(), container: Progress::default() };
        // A container may be called like a condition, so each sort has names of its own.
        let sort = if matches!(kind, LaneKind::Phase | LaneKind::Condition) { "pod" } else { "container" };
        self.tracks.entry(format!("{sort}/{name}")).or_insert_with(new)
    }

    fn span(&mut self, name: &str, kind: LaneKind, at: Wall, state: State, label: String, title: &str) {
        let to = self.to;
        let track = self.track(name, kind);
        if track.spans.last().is_some_and(|last| last.state == state && last.label == label) {
            return;
        }
        push(track, Span { from: at, to, state, label, title: title.to_owned() });
    }

    fn finish(self, from: Wall) -> (Vec<Lane>, Vec<Band>, Vec<Mark>) {
        let mut lanes = Vec::new();
        let names = self.order();
        for key in names {
            let Some(track) = self.tracks.get(&key) else { continue };
            let name = key.split_once('/').map_or(key.as_str(), |(_, name)| name).to_owned();
            let mut spans = track.spans.clone();
            spans.retain_mut(|span| clip(&mut span.from, &mut span.to, from));
            let marks = track.marks.iter().filter(|mark| mark.at >= from).cloned().collect();
            let mut lane = Lane { name, kind: track.kind, spans, ticks: Vec::new(), marks };
            if lane.is_container() {
                lane.ticks = self.ticks(&lane.name, from);
            }
            lanes.push(lane);
        }
        let lanes = worth_showing(lanes);
        let mut bands = self.bands;
        bands.retain_mut(|band| clip(&mut band.from, &mut band.to, from));
        let marks = self.marks.into_iter().filter(|mark| mark.at >= from).collect();
        (lanes, bands, marks)
    }

    fn ticks(&self, container: &str, from: Wall) -> Vec<Tick> {
        let records = self.known.history.iter().filter(|record| record.container == container);
        let mut ticks: Vec<Tick> = records
            .map(|record| Tick {
                at: place(record.at, self.now),
                probe: record.probe,
                outcome: record.outcome,
                latency_ms: u64::try_from(record.latency.as_millis()).unwrap_or(u64::MAX),
                output: crate::words::one_line(&record.output),
            })
            .filter(|tick| tick.at >= from)
            .collect();
        ticks.sort_by_key(|tick| tick.at);
        ticks
    }

    /// Phase and Ready first, then the other conditions, then the containers as the spec has them.
    fn order(&self) -> Vec<String> {
        let conditions = [
            ConditionType::Ready,
            ConditionType::ContainersReady,
            ConditionType::Initialized,
            ConditionType::PodReadyToStartContainers,
            ConditionType::AllContainersRestarting,
        ];
        let mut order = vec![format!("pod/{PHASE}")];
        order.extend(conditions.iter().map(|kind| format!("pod/{}", condition_name(kind))));
        let spec = self.known.spec.as_ref().into_iter().flat_map(|spec| spec.all_containers());
        order.extend(spec.map(|container| format!("container/{}", container.name)));
        let rest: Vec<String> = self.tracks.keys().filter(|key| !order.contains(key)).cloned().collect();
        order.extend(rest);
        order
    }
}

/// Conditions that show nothing new are left out: those that held all the time, and those that change as Ready does.
fn worth_showing(lanes: Vec<Lane>) -> Vec<Lane> {
    let outline = |lane: &Lane| lane.spans.iter().map(|span| (span.from, span.state)).collect::<Vec<_>>();
    let ready = lanes.iter().find(|lane| lane.kind == LaneKind::Condition && lane.name == "Ready").map(outline);
    let news = |lane: &Lane| match (lane.kind, lane.name.as_str()) {
        (LaneKind::Condition, "Ready") => true,
        (LaneKind::Condition, "AllContainersRestarting") => lane.spans.iter().any(|span| span.state == State::True),
        (LaneKind::Condition, _) => {
            lane.spans.iter().any(|span| span.state != State::True) && Some(outline(lane)) != ready
        }
        _ => true,
    };
    lanes.into_iter().filter(news).collect()
}

fn push(track: &mut Track, span: Span) {
    if let Some(last) = track.spans.last_mut() {
        last.to = span.from.max(last.from);
    }
    track.spans.push(span);
    // What lasted for no time at all is not drawn.
    let last = track.spans.len().saturating_sub(1);
    let mut index = 0;
    track.spans.retain(|span| {
        index += 1;
        index > last || span.from < span.to
    });
}

/// Cuts off what lies before the window; `false` if nothing is left.
fn clip(from: &mut Wall, to: &mut Wall, window: Wall) -> bool {
    let is_within = *to > window || *from >= window;
    *from = (*from).max(window);
    *to = (*to).max(*from);
    is_within
}

fn mark(at: Wall, kind: MarkKind, label: &str, title: &str) -> Mark {
    Mark { at, kind, label: label.to_owned(), title: title.to_owned() }
}

fn is_alive(state: State) -> bool {
    matches!(state, State::Starting | State::Unready | State::Ready)
}

fn ended(exit_code: i32) -> State {
    if exit_code == 0 { State::Done } else { State::Dead }
}

fn waiting(reason: &str) -> State {
    match reason {
        "" | "ContainerCreating" | "PodInitializing" | "RestartingAllContainers" => State::Waiting,
        _ => State::Trouble,
    }
}

fn phase_state(phase: Phase) -> State {
    match phase {
        Phase::Pending => State::Pending,
        Phase::Running => State::Running,
        Phase::Succeeded => State::Succeeded,
        Phase::Failed => State::Failed,
    }
}

fn tone(what: &What) -> Tone {
    match what {
        What::AgentStarted { .. }
        | What::Seen
        | What::RequestTaken { .. }
        | What::LegacyReset { .. }
        | What::Ending { .. }
        | What::RestartAll { .. } => Tone::Turn,
        What::Ready { value: true, .. }
        | What::Started { value: true, .. }
        | What::Condition { kind: ConditionType::Ready, status: Truth::True, .. }
        | What::Phase { phase: Phase::Running | Phase::Succeeded } => Tone::Good,
        What::Exited { exit, .. } if exit.exit_code == 0 => Tone::Plain,
        What::Waiting { reason, .. } if waiting(reason) == State::Waiting => Tone::Plain,
        What::Exited { .. }
        | What::Waiting { .. }
        | What::Killing { .. }
        | What::Rejected { .. }
        | What::Ready { value: false, .. }
        | What::Sandbox { id: None, .. }
        | What::Condition { kind: ConditionType::Ready, status: Truth::False | Truth::Unknown, .. }
        | What::Phase { phase: Phase::Failed } => Tone::Bad,
        What::Sandbox { .. }
        | What::SandboxRequested { .. }
        | What::Launching { .. }
        | What::Running { .. }
        | What::RestartCount { .. }
        | What::ShownEnded { .. }
        | What::Started { value: false, .. }
        | What::Phase { phase: Phase::Pending }
        | What::Condition { .. } => Tone::Plain,
    }
}
