//! From the first container to the end of the last one.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IsTerminal},
    sync::Arc,
    time::Duration,
};

use keelet_agent::{
    board::{PodEvent, Published},
    doors::Clock,
};
use keelet_assembly::Run;
use keelet_lifecycle::status::{ContainerState, Phase, PodStatus};
use keelet_pod::{Pod, duration};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{
    ending::{Ending, Signals},
    frame::{self, Instances, Model},
    logs,
    notes::Notes,
    plain, probes,
    screen::Screen,
};
use crate::{
    output::{self, Reader},
    progress,
    style::Style,
    view::table::Tint,
};

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// All have ended; what is left of them is removed.
    Clearing,
    /// A signal or a closed output asked for the end: with grace periods.
    Stopping(Ending),
    /// At once.
    Killing(Ending),
}

/// The eye does not see more frames than this in a second.
const FRAME: Duration = Duration::from_millis(50);

/// How old results of probes may be. Those that pass are a second old before they can be read.
const PROBES_EVERY: Duration = Duration::from_millis(500);

/// How long the last lines of logs may take, once their containers have ended.
const LAST_LINES: Duration = Duration::from_secs(2);

/// How long a pod that never had a status may take to go.
const UNSEEN: Duration = Duration::from_secs(5);

/// Log lines that are written in one go, so that the rest has its turn too.
const LINES_AT_ONCE: usize = 512;

struct Session<'a> {
    node: &'a Run,
    stage: Stage,
    since: Instant,
    style: Style,
    /// None where lines are written.
    screen: Option<Screen>,
    /// The newest status of each pod, by UID, also of those that are gone.
    known: BTreeMap<String, Arc<Published>>,
    gone: BTreeSet<String>,
    /// Those of an earlier run that were reported, by UID.
    earlier: BTreeSet<String>,
    /// Those that ended before the run was asked to end.
    ended: BTreeSet<String>,
    /// The newest event that was printed.
    told: Option<Arc<PodEvent>>,
    /// Lines that stay, not yet written.
    above: String,
    reader: Reader,
    /// How the run ends if the reader of standard output is gone.
    unread: Ending,
    notes: Notes,
    /// What the probes of each pod have shown, by UID, and when that was read.
    instances: BTreeMap<String, Instances>,
    instances_read: Option<Instant>,
    /// When the progress of image pulls was last printed.
    pulls_told: Instant,
}

/// Shows what happens until nothing is left of the pods. There is no way out before that: whatever cannot be shown, the pods
/// have to be stopped.
pub async fn follow(node: &Run, signals: Signals, with_logs: bool, plain: bool, notes: Notes) -> Ending {
    let style = Style::of_stdout();
    let terminal = io::stdout().is_terminal();
    let live = terminal && !plain && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    let Signals { mut interrupt, mut terminate, mut hang_up, mut resize } = signals;
    let (mut lines, mut readers) = match with_logs {
        true => logs::follow(node, style),
        false => (mpsc::channel(1).1, JoinSet::new()),
    };
    let mut session = Session {
        node,
        stage: Stage::Running,
        since: Instant::now(),
        style,
        screen: live.then(Screen::new),
        known: BTreeMap::new(),
        gone: BTreeSet::new(),
        earlier: BTreeSet::new(),
        ended: BTreeSet::new(),
        told: None,
        above: String::new(),
        reader: Reader::There,
        unread: if terminal { Ending::HungUp } else { Ending::Interrupted },
        notes,
        instances: BTreeMap::new(),
        instances_read: None,
        pulls_told: Instant::now(),
    };
    session.begin();
    let mut changes = node.board().changes();
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut drawn = Instant::now();
    loop {
        session.update();
        session.update_pulls();
        session.advance(&mut readers, &mut lines).await;
        if session.screen.is_some() {
            sleep_until(drawn + FRAME).await;
            drawn = Instant::now();
        }
        if session.is_over() {
            break;
        }
        session.show();
        tokio::select! {
            biased;
            _ = interrupt.recv() => session.interrupted(Ending::Interrupted),
            _ = terminate.recv() => session.interrupted(Ending::Terminated),
            () = hang_up.recv() => session.interrupted(Ending::HungUp),
            _ = resize.recv(), if live => {}
            Ok(()) = changes.changed() => {}
            line = lines.recv(), if with_logs && !lines.is_closed() || !lines.is_empty() => session.log(line, &mut lines),
            _ = ticks.tick() => {}
        }
    }
    session.last_lines(&mut readers, &mut lines).await;
    session.sum_up();
    session.show();
    session.ending()
}

// === impl Session ===

impl Session<'_> {
    /// Says how these pods can be reached. On a terminal the frame does, for as long as they run.
    fn begin(&mut self) {
        match (self.node.socket(), command(self.node)) {
            (Err(error), _) => output::warning(&format!("other commands cannot reach these pods: {error}")),
            (Ok(_), Some(command)) => self.say("keelet", (Tint::Neutral, format!("from another terminal: {command}"))),
            (Ok(_), None) => {}
        }
    }

    /// Reads what is new: notes, statuses and events.
    fn update(&mut self) {
        self.above.push_str(&self.notes.take());
        let statuses = self.node.board().statuses();
        let now = self.node.clock().now().wall;
        let events = self.node.board().events();
        let new = match &self.told {
            Some(told) => events.iter().rposition(|event| Arc::ptr_eq(event, told)).map_or(0, |index| index + 1),
            None => 0,
        };
        if self.screen.is_none() {
            for told in &events[new..] {
                if let Some(line) = plain::event(&told.event) {
                    self.above.push_str(&plain::line(told.event.at.wall, &told.pod.name, &line, self.style));
                }
            }
        }
        self.told = events.last().cloned();
        for (uid, published) in &statuses {
            if self.node.is_of_earlier_run(published) {
                if self.earlier.insert(uid.clone()) {
                    let what = if published.leaving.is_some() { "are stopped first" } else { "keep running" };
                    let line = (Tint::Unsure, format!("containers of an earlier run {what}"));
                    self.above.push_str(&plain::line(now, &published.pod.name, &line, self.style));
                }
                continue;
            }
            if published.leaving.is_none() && published.status.phase.is_terminal() {
                self.ended.insert(uid.clone());
            }
            let old = self.known.insert(uid.clone(), Arc::clone(published));
            if self.screen.is_none() {
                let old: Option<&PodStatus> = old.as_ref().map(|old| &old.status);
                for line in plain::changes(&published.pod, old, &published.status) {
                    self.above.push_str(&plain::line(now, &published.pod.name, &line, self.style));
                }
            }
        }
        for pod in self.node.pods() {
            if self.known.contains_key(&pod.uid)
                && !statuses.contains_key(&pod.uid)
                && self.gone.insert(pod.uid.clone())
            {
                self.say(&pod.name, (Tint::Neutral, "is gone".to_owned()));
            }
        }
    }

    /// Says now and then how far images have come. On a terminal the frame does.
    fn update_pulls(&mut self) {
        if self.screen.is_some() || self.pulls_told.elapsed() < progress::EVERY {
            return;
        }
        self.pulls_told = Instant::now();
        for pulling in self.node.pulling() {
            let words = format!("fetching {}: {}", pulling.image, progress::of_pull(&pulling).0);
            self.say("keelet", (Tint::Neutral, words));
        }
    }

    fn say(&mut self, who: &str, line: plain::Line) {
        if self.screen.is_none() {
            self.above.push_str(&plain::line(self.node.clock().now().wall, who, &line, self.style));
        }
    }

    /// Goes on to what comes next, if it is time.
    async fn advance(&mut self, readers: &mut JoinSet<()>, lines: &mut mpsc::Receiver<Vec<u8>>) {
        let ended = |uid: &String| {
            self.gone.contains(uid) || self.known.get(uid).is_some_and(|published| published.status.phase.is_terminal())
        };
        if self.stage == Stage::Running && self.node.pods().iter().all(|pod| ended(&pod.uid)) {
            self.last_lines(readers, lines).await;
            self.enter(Stage::Clearing);
            self.node.dismiss();
        }
        if self.screen.is_none() && output::reader_is_gone() {
            self.reader = Reader::Gone;
        }
        if self.reader == Reader::Gone && self.stage == Stage::Running {
            // The output has no reader any more.
            self.interrupted(self.unread);
        }
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.since = Instant::now();
    }

    /// A signal or a closed output asks for the end.
    fn interrupted(&mut self, by: Ending) {
        match self.stage {
            // The kernel, the shell and a failed write all report the same closed terminal: none asks for more haste.
            Stage::Stopping(_) if by == Ending::HungUp => return,
            Stage::Running | Stage::Clearing => {
                self.enter(Stage::Stopping(by));
                self.node.dismiss();
            }
            Stage::Stopping(by) => {
                self.enter(Stage::Killing(by));
                self.node.kill();
            }
            Stage::Killing(_) => return,
        }
        let words = words(self.stage, self.node);
        self.say("keelet", (Tint::Unsure, words));
    }

    fn is_over(&self) -> bool {
        let unseen = self.node.pods().iter().filter(|pod| !self.known.contains_key(&pod.uid)).count();
        self.stage != Stage::Running
            && self.gone.len() + unseen == self.node.pods().len()
            && (unseen == 0 || self.since.elapsed() > UNSEEN)
            && self.node.is_clear()
    }

    /// Takes a log line, and those that wait behind it.
    fn log(&mut self, line: Option<Vec<u8>>, more: &mut mpsc::Receiver<Vec<u8>>) {
        let waiting = std::iter::from_fn(|| more.try_recv().ok());
        for line in line.into_iter().chain(waiting).take(LINES_AT_ONCE) {
            self.above.push_str(&String::from_utf8_lossy(&line).replace('\r', ""));
        }
    }

    /// Waits for what the containers wrote last.
    async fn last_lines(&mut self, readers: &mut JoinSet<()>, lines: &mut mpsc::Receiver<Vec<u8>>) {
        let deadline = Instant::now() + LAST_LINES;
        while !readers.is_empty() && Instant::now() < deadline {
            tokio::select! {
                line = lines.recv() => match line {
                    Some(line) => self.log(Some(line), lines),
                    // The last sender of lines is done.
                    None => break,
                },
                _ = readers.join_next() => {}
                () = sleep_until(deadline) => {}
            }
        }
        self.log(None, lines);
    }

    /// One line for each pod about how it ended.
    fn sum_up(&mut self) {
        let now = self.node.clock().now().wall;
        for pod in self.node.pods() {
            let (tint, words) = match self.known.get(&pod.uid) {
                None => (Tint::Unsure, "never began".to_owned()),
                Some(published) => sum_up(&published.status, self.ended.contains(&pod.uid)),
            };
            let name = format!("{}/{}", pod.namespace, pod.name);
            let line = match self.screen {
                Some(_) => format!("{}  {}\n", self.style.bold(&name), tint.paint(self.style, &words)),
                None => plain::line(now, &pod.name, &(tint, words), self.style),
            };
            self.above.push_str(&line);
        }
    }

    /// Shows how things are, unless the reader is gone.
    fn show(&mut self) {
        let above = std::mem::take(&mut self.above);
        if self.reader == Reader::Gone {
            return;
        }
        let written = self.write(&above);
        self.reader = written.unwrap_or_else(|error| {
            output::error(&format!("cannot write: {error}"));
            Reader::Gone
        });
    }

    /// Reads the results of probes, now and then. No status contains them.
    fn update_probes(&mut self) {
        if self.instances_read.is_some_and(|read| read.elapsed() < PROBES_EVERY) {
            return;
        }
        self.instances_read = Some(Instant::now());
        let instances = |pod: &Pod| match pod.all_containers().any(probes::are_there) {
            true => self.node.instances(pod),
            false => Instances::new(),
        };
        self.instances = self.node.pods().iter().map(|pod| (pod.uid.clone(), instances(pod))).collect();
    }

    fn write(&mut self, above: &str) -> io::Result<Reader> {
        if self.screen.is_some() {
            self.update_probes();
        }
        let over = self.is_over();
        let Some(screen) = &mut self.screen else {
            return if above.is_empty() { Ok(Reader::There) } else { output::live(above.as_bytes()) };
        };
        let (width, height) = screen.size();
        if over {
            // What is left on the screen is what was summed up.
            return screen.draw(above.trim_end(), &[]).map(|()| Reader::There);
        }
        let here = |pod: &Pod| self.known.get(&pod.uid).filter(|_| !self.gone.contains(&pod.uid)).cloned();
        let model = Model {
            now: self.node.clock().now().wall,
            pods: self.node.pods().iter().map(|pod| (&**pod, here(pod))).collect(),
            instances: &self.instances,
            events: folded(self.node.board().events()),
            pulls: self.node.pulling(),
            command: command(self.node),
            footer: words(self.stage, self.node),
        };
        let frame = frame::lines(&model, width, height, self.style);
        screen.draw(above, &frame).map(|()| Reader::There)
    }

    fn ending(&self) -> Ending {
        match self.stage {
            Stage::Stopping(by) | Stage::Killing(by) => by,
            Stage::Running | Stage::Clearing => {
                // A pod that was deleted meanwhile has done its work only if its status says so.
                let succeeded =
                    |uid| self.known.get(uid).is_some_and(|published| published.status.phase == Phase::Succeeded);
                if self.node.pods().iter().all(|pod| succeeded(&pod.uid)) { Ending::Succeeded } else { Ending::Failed }
            }
        }
    }
}

/// The command that shows these pods from elsewhere, if they can be reached.
fn command(node: &Run) -> Option<String> {
    let socket = node.socket().ok()?;
    let elsewhere = node.pods().iter().any(|pod| pod.namespace != "default");
    Some(format!("keelet get pods {}--socket {}", if elsewhere { "-A " } else { "" }, socket.display()))
}

/// What goes on, and what Ctrl-C does about it.
fn words(stage: Stage, node: &Run) -> String {
    let grace = node.pods().iter().map(|pod| pod.termination_grace).max().unwrap_or_default();
    match stage {
        Stage::Running => "Ctrl-C stops the pods".to_owned(),
        Stage::Clearing => "all have ended; cleaning up".to_owned(),
        Stage::Stopping(_) => {
            format!("stopping, for up to {}; Ctrl-C again kills at once", duration::words(grace))
        }
        Stage::Killing(_) => "killing".to_owned(),
    }
}

/// Of repeats the newest only.
fn folded(events: Vec<Arc<PodEvent>>) -> Vec<Arc<PodEvent>> {
    let mut seen = BTreeSet::new();
    let key = |told: &PodEvent| {
        let event = &told.event;
        (told.pod.uid.clone(), event.container.clone(), event.reason.clone(), event.message.clone())
    };
    let mut newest: Vec<_> = events.into_iter().rev().filter(|told| seen.insert(key(told))).collect();
    newest.reverse();
    newest
}

/// How a pod ended.
fn sum_up(status: &PodStatus, by_itself: bool) -> (Tint, String) {
    let ends = status.container_statuses.iter().filter_map(|container| match &container.state {
        ContainerState::Terminated(ended) if ended.exit_code != 0 => {
            Some(format!("{} ended with code {}", container.name, ended.exit_code))
        }
        _ => None,
    });
    let ends: Vec<String> = ends.collect();
    let why = match (&status.message, ends.is_empty()) {
        (_, false) => format!(": {}", ends.join(", ")),
        (Some(message), true) => format!(": {message}"),
        (None, true) => String::new(),
    };
    match status.phase {
        Phase::Succeeded => (Tint::Good, "succeeded".to_owned()),
        Phase::Failed if by_itself => (Tint::Bad, format!("failed{why}")),
        Phase::Failed | Phase::Pending | Phase::Running => (Tint::Unsure, format!("was stopped{why}")),
    }
}
