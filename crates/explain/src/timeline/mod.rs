//! A pod's history, drawn: conditions, one lane per container, probe attempts, and what happened to all of them.
//!
//! [`Timeline::build`] makes the model from a journal and probe results, however many there are. Renderers draw it: as
//! text for a terminal, as SVG, as a page of HTML, as JSON. None of them reads a clock, so the same input gives the
//! same picture, byte for byte.

mod axis;
mod build;
mod caption;
mod html;
mod svg;
mod text;

use keelet_lifecycle::{Wall, operation::Outcome};
use keelet_pod::ProbeKind;
use serde::Serialize;

pub use self::{
    caption::{Caption, Row, Section, Times},
    html::html,
    svg::svg,
    text::{TextStyle, picture, text},
};

/// A pod's history within a window of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// The shape of this document. While it stays the same, fields may be added and none is renamed or dropped.
    pub format: &'static str,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// Where the window begins.
    pub from: Wall,
    /// Where it ends: now.
    pub to: Wall,
    /// What is drawn, from top to bottom.
    pub lanes: Vec<Lane>,
    /// Times at which something held for the pod as a whole.
    pub bands: Vec<Band>,
    /// What happened to the pod as a whole.
    pub marks: Vec<Mark>,
    /// What changed, oldest first.
    pub notes: Vec<Sentence>,
}

/// A row of the picture.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lane {
    /// The condition's type or the container's name.
    pub name: String,
    /// What the lane is about.
    pub kind: LaneKind,
    /// What it was when, without gaps from the first one on.
    pub spans: Vec<Span>,
    /// Probe attempts, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ticks: Vec<Tick>,
    /// What happened to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

/// What a lane is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LaneKind {
    /// The phase of the pod.
    Phase,
    /// A condition of the pod.
    Condition,
    /// An ordinary init container.
    Init,
    /// A sidecar.
    Sidecar,
    /// A regular container.
    Container,
    /// An ephemeral container.
    Ephemeral,
}

/// Something that held for a while.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    /// Since when.
    pub from: Wall,
    /// Until when.
    pub to: Wall,
    /// What.
    pub state: State,
    /// In a word or two.
    pub label: String,
    /// In a sentence, with its evidence.
    pub title: String,
}

/// What a lane says at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// A condition that holds.
    True,
    /// A condition that does not.
    False,
    /// The phase Pending.
    Pending,
    /// The phase Running.
    Running,
    /// The phase Succeeded.
    Succeeded,
    /// The phase Failed.
    Failed,
    /// A container that waits.
    Waiting,
    /// A container that waits because it, its image or its start failed.
    Trouble,
    /// A container that runs and has not started up.
    Starting,
    /// A container that has started up and is not ready.
    Unready,
    /// A container that is ready.
    Ready,
    /// A container that ended well.
    Done,
    /// A container that ended otherwise.
    Dead,
}

/// A probe attempt.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tick {
    /// When.
    pub at: Wall,
    /// Which probe.
    pub probe: ProbeKind,
    /// What it showed.
    pub outcome: Outcome,
    /// How long the target took.
    pub latency_ms: u64,
    /// What it said.
    pub output: String,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// When.
    pub at: Wall,
    /// What.
    pub kind: MarkKind,
    /// In a word or two.
    pub label: String,
    /// In a sentence.
    pub title: String,
}

/// What a mark stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MarkKind {
    /// A container ended.
    Exit {
        /// With this code.
        code: i32,
    },
    /// A container has to stop.
    Kill,
    /// An agent started.
    Agent,
    /// A restart of all containers went one step on.
    RestartAll,
    /// The pod is on its way out.
    Ending,
}

/// A time at which something held for the pod as a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Band {
    /// Since when.
    pub from: Wall,
    /// Until when.
    pub to: Wall,
    /// What.
    pub kind: BandKind,
    /// In a word or two.
    pub label: String,
    /// In a sentence.
    pub title: String,
}

/// What a band stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum BandKind {
    /// No agent was there.
    NoAgent,
    /// All containers were being killed and removed.
    Removing,
    /// All containers were being started again.
    Restarting,
}

/// A note of the journal, as a sentence.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sentence {
    /// When.
    pub at: Wall,
    /// The container it is about; the pod if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// What changed.
    pub text: String,
    /// The evidence it rests on, where it is not evidence itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Whether it is good or bad news.
    pub tone: Tone,
}

/// Whether something is good or bad news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Tone {
    /// It is.
    Good,
    /// Neither.
    Plain,
    /// It is bad.
    Bad,
    /// It is about the agent or the pod as a whole.
    Turn,
}

/// The model as JSON, with a line break at the end.
pub fn json(timeline: &Timeline) -> String {
    // Strings and numbers only: there is nothing in it that could fail.
    let mut text = serde_json::to_string_pretty(timeline).unwrap_or_default();
    text.push('\n');
    text
}

// === impl Timeline ===

impl Timeline {
    /// What the pod is called.
    pub(crate) fn pod_name(&self) -> String {
        crate::words::pod_name(&self.namespace, &self.name)
    }

    /// How much time the window spans, in milliseconds; never nothing.
    pub(crate) fn millis(&self) -> i64 {
        (self.to.as_millis() - self.from.as_millis()).max(1)
    }
}

// === impl Lane ===

impl Lane {
    /// The probes that were tried, startup first.
    pub(crate) fn probes(&self) -> Vec<ProbeKind> {
        ProbeKind::ALL.into_iter().filter(|kind| self.ticks.iter().any(|tick| tick.probe == *kind)).collect()
    }

    /// Whether it is about a container.
    pub(crate) fn is_container(&self) -> bool {
        !matches!(self.kind, LaneKind::Phase | LaneKind::Condition)
    }
}
