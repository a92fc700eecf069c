//! What can go wrong, and how often.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use keelet_sim_api::Random;

/// The calls of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallKind {
    /// `Version`, `Status` and `RuntimeConfig`.
    Version,
    /// `RunPodSandbox`.
    RunPodSandbox,
    /// `StopPodSandbox`.
    StopPodSandbox,
    /// `RemovePodSandbox`.
    RemovePodSandbox,
    /// `PodSandboxStatus`.
    PodSandboxStatus,
    /// `ListPodSandbox`.
    ListPodSandbox,
    /// `CreateContainer`.
    CreateContainer,
    /// `StartContainer`.
    StartContainer,
    /// `StopContainer`.
    StopContainer,
    /// `RemoveContainer`.
    RemoveContainer,
    /// `ListContainers`.
    ListContainers,
    /// `ContainerStatus`.
    ContainerStatus,
    /// `ReopenContainerLog`.
    ReopenContainerLog,
    /// `ExecSync`.
    ExecSync,
    /// `ImageStatus` and `ListImages`.
    ImageStatus,
    /// `PullImage`.
    PullImage,
    /// `GetContainerEvents`.
    GetContainerEvents,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Carried out and answered.
    #[default]
    Applied,
    /// Carried out; the caller sees that the connection broke.
    AnswerLost,
    /// Not carried out; the caller sees that the connection broke.
    Lost,
    /// Refused with an error of the runtime's own.
    Failed,
    /// Neither carried out nor answered, until the faults end and the connection breaks.
    Hangs,
    /// Carried out, and not answered until the faults end and the connection breaks.
    HangsApplied,
    /// Carried out and answered, but the answer holds what was true some time ago, and is late.
    Stale,
}

/// Odds of trouble with one kind of call, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOdds {
    /// The answer is lost.
    pub answer_lost: u32,
    /// The call is lost.
    pub lost: u32,
    /// The runtime refuses.
    pub failed: u32,
    /// No answer ever comes.
    pub hangs: u32,
    /// The answer is an old one, and late. Only lists and states can be.
    pub stale: u32,
    /// The call takes up to this much longer.
    pub slow: Duration,
}

/// Odds of trouble with container events, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventOdds {
    /// It never arrives.
    pub lost: u32,
    /// It arrives twice.
    pub doubled: u32,
    /// It arrives up to this much later.
    pub late: Duration,
}

/// How the disk behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskMood {
    /// As it should.
    #[default]
    Well,
    /// The durable tier takes no more bytes.
    DurableFull,
    /// Neither tier takes any more bytes.
    Full,
    /// Nothing can be written.
    ReadOnly,
}

/// When a publisher says that others can see a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledging {
    /// At once.
    AtOnce,
    /// So much later.
    After(Duration),
    /// Never.
    Never,
}

/// All odds and moods of the world.
#[derive(Clone, Debug)]
pub struct Faults {
    /// By kind of call; what is not listed goes well.
    pub calls: BTreeMap<CallKind, CallOdds>,
    /// Of container events.
    pub events: EventOdds,
    /// The disk.
    pub disk: DiskMood,
    /// The publisher of statuses, in a cluster.
    pub publisher: Acknowledging,
    /// Whether the publisher cannot reach its API server.
    pub api_server_away: bool,
    /// Whether volumes cannot be mounted.
    pub no_volumes: bool,
    /// Names of config maps and secrets that are not there. All others are.
    pub missing_objects: BTreeSet<String>,
    /// Calls whose fate is sealed: the next so many calls of that kind whose subject contains the text.
    scripted: Vec<Scripted>,
}

#[derive(Clone, Debug)]
struct Scripted {
    kind: CallKind,
    subject: String,
    fate: Fate,
    left: u32,
}

// === impl CallKind ===

impl CallKind {
    /// Every kind of call that a test can make fail.
    pub const ALL: [Self; 17] = [
        Self::Version,
        Self::RunPodSandbox,
        Self::StopPodSandbox,
        Self::RemovePodSandbox,
        Self::PodSandboxStatus,
        Self::ListPodSandbox,
        Self::CreateContainer,
        Self::StartContainer,
        Self::StopContainer,
        Self::RemoveContainer,
        Self::ListContainers,
        Self::ContainerStatus,
        Self::ReopenContainerLog,
        Self::ExecSync,
        Self::ImageStatus,
        Self::PullImage,
        Self::GetContainerEvents,
    ];

    /// Whether it changes something on the node.
    pub fn is_effect(self) -> bool {
        matches!(
            self,
            Self::RunPodSandbox
                | Self::StopPodSandbox
                | Self::RemovePodSandbox
                | Self::CreateContainer
                | Self::StartContainer
                | Self::StopContainer
                | Self::RemoveContainer
                | Self::ReopenContainerLog
                | Self::ExecSync
                | Self::PullImage
        )
    }

    /// Whether its answer can be out of date.
    pub fn is_view(self) -> bool {
        matches!(self, Self::ListPodSandbox | Self::ListContainers | Self::ContainerStatus | Self::PodSandboxStatus)
    }
}

// === impl Fate ===

impl Fate {
    /// Whether the runtime does what the call asks for.
    pub fn is_applied(self) -> bool {
        matches!(self, Self::Applied | Self::AnswerLost | Self::HangsApplied | Self::Stale)
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Applied => "applied",
            Self::AnswerLost => "applied, answer lost",
            Self::Lost => "lost",
            Self::Failed => "failed",
            Self::Hangs => "hangs",
            Self::HangsApplied => "applied, hangs",
            Self::Stale => "answered with an old view",
        })
    }
}

// === impl Faults ===

impl Default for Faults {
    fn default() -> Self {
        Self {
            calls: BTreeMap::new(),
            events: EventOdds::default(),
            disk: DiskMood::default(),
            publisher: Acknowledging::AtOnce,
            api_server_away: false,
            no_volumes: false,
            missing_objects: BTreeSet::new(),
            scripted: Vec::new(),
        }
    }
}

impl Faults {
    /// The same odds for every kind of call but the event stream.
    pub fn everywhere(&mut self, odds: CallOdds) {
        for kind in CallKind::ALL {
            if kind != CallKind::GetContainerEvents {
                self.calls.insert(kind, odds);
            }
        }
    }

    /// Seals the fate of the next so many calls of that kind whose subject contains the text.
    pub fn seal(&mut self, kind: CallKind, subject: &str, fate: Fate, times: u32) {
        self.scripted.push(Scripted { kind, subject: subject.to_owned(), fate, left: times });
    }

    /// Whether everything goes well.
    pub fn is_quiet(&self) -> bool {
        self.calls.is_empty()
            && self.events == EventOdds::default()
            && self.disk == DiskMood::Well
            && self.publisher == Acknowledging::AtOnce
            && !self.api_server_away
            && !self.no_volumes
            && self.missing_objects.is_empty()
            && self.scripted.iter().all(|scripted| scripted.left == 0)
    }

    /// What becomes of a call, and how much longer it takes than usual.
    pub(crate) fn fate(&mut self, kind: CallKind, subject: &str, random: &mut Random) -> (Fate, Duration) {
        let sealed = |scripted: &&mut Scripted| {
            scripted.kind == kind && scripted.left > 0 && subject.contains(&scripted.subject)
        };
        if let Some(scripted) = self.scripted.iter_mut().find(sealed) {
            scripted.left -= 1;
            return (scripted.fate, Duration::ZERO);
        }
        let Some(odds) = self.calls.get(&kind).copied() else { return (Fate::Applied, Duration::ZERO) };
        let slow = random.millis(odds.slow);
        let drawn = random.within(0..1000);
        let mut below = 0;
        let choices = [
            (odds.answer_lost, Fate::AnswerLost),
            (odds.lost, Fate::Lost),
            (odds.failed, Fate::Failed),
            (odds.hangs, if random.chance(500) { Fate::Hangs } else { Fate::HangsApplied }),
            (if kind.is_view() { odds.stale } else { 0 }, Fate::Stale),
        ];
        for (odds, fate) in choices {
            below += u64::from(odds);
            if drawn < below {
                return (fate, slow);
            }
        }
        (Fate::Applied, slow)
    }
}
