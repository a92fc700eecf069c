//! What happened, in order: for people, for tests, and for the checkers, which see every entry as it is made.

use std::{fmt, sync::Arc, time::Duration};

use keelet_agent::events::EventRecord;
use keelet_lifecycle::{
    Severity,
    status::{ConditionType, ContainerState, ContainerStatus, PodStatus, Truth},
};
use keelet_pod::ProbeKind;

use crate::{
    faults::{CallKind, Fate},
    node::Loss,
    script::Reply,
};

/// Everything that happened so far.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    entries: Vec<Occurrence>,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Occurrence {
    /// When, since the world began.
    pub at: Duration,
    /// What.
    pub what: Happening,
}

/// One instance of a container, started or only requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceRef {
    /// The UID of its pod.
    pub pod: String,
    /// Its name in the spec.
    pub name: String,
    /// Its ID in the runtime, without a scheme.
    pub id: String,
    /// Its number among the instances of that name, as the agent labelled it.
    pub attempt: u32,
    /// The sandbox it belongs to.
    pub sandbox: String,
}

/// What can happen.
#[derive(Clone, Debug)]
pub enum Happening {
    /// A run of the agent begins.
    AgentStarts {
        /// Its number, from one.
        run: u32,
        /// What is left of the ledger.
        memory: Memory,
    },
    /// A run of the agent is killed.
    AgentDies {
        /// Its number.
        run: u32,
        /// How many effects it had on the world.
        effects: u64,
    },
    /// A run of the agent was asked to stop, and did.
    AgentStops {
        /// Its number.
        run: u32,
    },
    /// A source of pods wants a pod to run here.
    PodWanted {
        /// Its UID.
        pod: String,
    },
    /// The source does not want the pod any more.
    PodDeleted {
        /// Its UID.
        pod: String,
    },
    /// The source wants another image for a container.
    ImageWanted {
        /// The pod's UID.
        pod: String,
        /// The container.
        container: String,
        /// The image.
        image: String,
    },
    /// A client of the agent asks for all containers of a pod to be restarted.
    RestartAsked {
        /// Its UID.
        pod: String,
    },
    /// The agent called the runtime. Reading calls are listed only if something is wrong with them.
    Call {
        /// Which call.
        kind: CallKind,
        /// What it is about.
        subject: String,
        /// What becomes of it.
        fate: Fate,
    },
    /// A sandbox changed.
    Sandbox {
        /// The UID of its pod.
        pod: String,
        /// Its ID.
        id: String,
        /// How.
        change: SandboxChange,
    },
    /// A container was made.
    Created(Arc<InstanceRef>),
    /// A container began to run.
    Started(Arc<InstanceRef>),
    /// A container was given up while it was being started: it has ended without ever having run.
    GivenUp(Arc<InstanceRef>),
    /// A container ended.
    Exited {
        /// Which.
        instance: Arc<InstanceRef>,
        /// Its exit code.
        exit_code: i32,
        /// What ended it.
        cause: ExitCause,
    },
    /// A container is gone from the runtime.
    Removed {
        /// Which.
        instance: Arc<InstanceRef>,
        /// Whether the agent asked for it.
        asked: bool,
    },
    /// A probe reached a container, or where one should be.
    Probed(Arc<Attempt>),
    /// The agent published a status.
    Published {
        /// The pod's UID.
        pod: String,
        /// The run of the agent.
        run: u32,
        /// The status's number.
        version: u64,
        /// The status.
        status: Arc<PodStatus>,
    },
    /// The agent handed a status to a publisher that cannot reach the API server: only the agent knows it.
    Undelivered {
        /// The pod's UID.
        pod: String,
        /// The status.
        status: Arc<PodStatus>,
    },
    /// Another writer wrote a pod's status.
    Overwritten {
        /// The pod's UID.
        pod: String,
        /// What they wrote.
        status: Arc<PodStatus>,
    },
    /// The agent emitted an event.
    Event {
        /// The pod's UID.
        pod: String,
        /// The event.
        record: EventRecord,
    },
    /// The agent says that nothing of the pod is left.
    PodGone {
        /// The pod's UID.
        pod: String,
    },
    /// The wall clock was set.
    WallSet {
        /// By how much, in milliseconds.
        by_ms: i64,
    },
    /// The node booted anew.
    Reboot,
    /// The ledger could not be read or written.
    DiskFailed {
        /// What was tried.
        what: String,
    },
    /// The test changed a pod's spec, or tried to start a second agent, for people.
    Changed(String),
    /// Faults began or ended, for people.
    Note(String),
}

/// What is left of the ledger when a run of the agent begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// All that was written.
    #[default]
    Kept,
    /// Nothing.
    Wiped,
}

/// What happens to sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxChange {
    /// Made, and ready.
    Ready,
    /// Another program removed a part of it.
    Damaged(Loss),
    /// Not ready any more, because the runtime has noticed that a part is gone. What runs in it runs on.
    Lost,
    /// Not ready any more.
    Stopped,
    /// Gone.
    Removed,
}

/// What ends a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCause {
    /// Itself.
    Own,
    /// It was asked to stop, and did.
    Stopped,
    /// It was killed by the runtime, on the agent's behalf.
    Killed,
    /// The node went down.
    Reboot,
}

/// A probe attempt as the target saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The pod's UID.
    pub pod: String,
    /// The container that was asked.
    pub container: String,
    /// Its running instance; `None` if no instance was running.
    pub instance: Option<Arc<InstanceRef>>,
    /// The probes it may belong to. Two that ask the same thing cannot be distinguished.
    pub kinds: Vec<ProbeKind>,
    /// What was asked.
    pub question: String,
    /// When the agent sent it, since the world began. A call that the faults delay arrives later.
    pub sent: Duration,
    /// The answer.
    pub reply: Reply,
    /// When the answer comes, counted from the question.
    pub latency: Duration,
}

// === impl Timeline ===

impl Timeline {
    /// What happened, in order.
    pub fn entries(&self) -> &[Occurrence] {
        &self.entries
    }

    pub(crate) fn push(&mut self, entry: Occurrence) {
        self.entries.push(entry);
    }

    /// Every status that was published for that pod, with the time.
    pub fn statuses<'a>(&'a self, pod: &'a str) -> impl DoubleEndedIterator<Item = (Duration, &'a Arc<PodStatus>)> {
        self.entries.iter().filter_map(move |entry| match &entry.what {
            Happening::Published { pod: of, status, .. } if of == pod => Some((entry.at, status)),
            _ => None,
        })
    }

    /// How many runs of the agent were killed.
    pub fn agent_deaths(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.what, Happening::AgentDies { .. })).count()
    }

    /// How many things went wrong that the agent cannot help, its own deaths aside.
    pub fn faults(&self) -> usize {
        self.entries.iter().filter(|entry| entry.what.is_fault()).count()
    }

    /// Every probe attempt, with the time.
    pub fn probes(&self) -> impl DoubleEndedIterator<Item = (Duration, &Attempt)> {
        self.entries.iter().filter_map(|entry| match &entry.what {
            Happening::Probed(attempt) => Some((entry.at, attempt.as_ref())),
            _ => None,
        })
    }

    /// Every event the agent emitted, with the time.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = (Duration, &EventRecord)> {
        self.entries.iter().filter_map(|entry| match &entry.what {
            Happening::Event { record, .. } => Some((entry.at, record)),
            _ => None,
        })
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

// === impl Occurrence ===

impl fmt::Display for Occurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.at.as_millis();
        write!(f, "{:>6}.{:03}s  {:<7} {}", millis / 1000, millis % 1000, self.what.area(), self.what)
    }
}

// === impl Happening ===

impl Happening {
    fn is_fault(&self) -> bool {
        match self {
            Self::Call { fate, .. } => *fate != Fate::Applied,
            Self::Removed { asked, .. } => !asked,
            Self::Reboot
            | Self::WallSet { .. }
            | Self::DiskFailed { .. }
            | Self::Overwritten { .. }
            | Self::GivenUp(_)
            | Self::Note(_) => true,
            Self::AgentStarts { .. }
            | Self::AgentDies { .. }
            | Self::AgentStops { .. }
            | Self::PodWanted { .. }
            | Self::PodDeleted { .. }
            | Self::ImageWanted { .. }
            | Self::RestartAsked { .. }
            | Self::Sandbox { .. }
            | Self::Created(_)
            | Self::Started(_)
            | Self::Exited { .. }
            | Self::Probed(_)
            | Self::Published { .. }
            | Self::Undelivered { .. }
            | Self::Event { .. }
            | Self::PodGone { .. }
            | Self::Changed(_) => false,
        }
    }

    /// What it happens to, in a word.
    pub fn area(&self) -> &'static str {
        match self {
            Self::AgentStarts { .. } | Self::AgentDies { .. } | Self::AgentStops { .. } => "agent",
            Self::PodWanted { .. }
            | Self::PodDeleted { .. }
            | Self::ImageWanted { .. }
            | Self::RestartAsked { .. }
            | Self::Changed(_) => "source",
            Self::Call { .. } => "cri",
            Self::Sandbox { .. }
            | Self::Created(_)
            | Self::Started(_)
            | Self::GivenUp(_)
            | Self::Exited { .. }
            | Self::Removed { .. }
            | Self::Reboot => "node",
            Self::Probed(_) => "probe",
            Self::Published { .. } | Self::Undelivered { .. } | Self::Overwritten { .. } => "status",
            Self::Event { .. } | Self::PodGone { .. } => "event",
            Self::DiskFailed { .. } => "disk",
            Self::WallSet { .. } | Self::Note(_) => "world",
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AgentStarts { run, memory: Memory::Kept } => write!(f, "run {run} starts"),
            Self::AgentStarts { run, memory: Memory::Wiped } => write!(f, "run {run} starts without a ledger"),
            Self::AgentDies { run, effects } => write!(f, "run {run} dies after {effects} effects"),
            Self::AgentStops { run } => write!(f, "run {run} stops"),
            Self::PodWanted { pod } => write!(f, "{pod} is wanted"),
            Self::PodDeleted { pod } => write!(f, "{pod} is deleted"),
            Self::ImageWanted { container, image, .. } => write!(f, "{container} gets the image {image}"),
            Self::RestartAsked { pod } => write!(f, "all containers of {pod} are to be restarted"),
            Self::Call { kind, subject, fate } => write!(f, "{kind:?} {subject} -> {fate}"),
            Self::Sandbox { id, change, .. } => write!(f, "{id} is {}", change.word()),
            Self::Created(instance) => write!(f, "{} is created", instance.id),
            Self::Started(instance) => write!(f, "{} runs", instance.id),
            Self::GivenUp(instance) => write!(f, "{} is given up before it runs", instance.id),
            Self::Exited { instance, exit_code, cause } => {
                let how = match cause {
                    ExitCause::Own => "",
                    ExitCause::Stopped => ", as asked",
                    ExitCause::Killed => ", killed",
                    ExitCause::Reboot => ", the node went down",
                };
                write!(f, "{} ends with {exit_code}{how}", instance.id)
            }
            Self::Removed { instance, asked: true } => write!(f, "{} is removed", instance.id),
            Self::Removed { instance, asked: false } => write!(f, "{} is lost", instance.id),
            Self::Probed(attempt) => attempt.fmt(f),
            Self::Published { pod, version, status, .. } => write!(f, "{pod} v{version} {}", Brief(status)),
            Self::Undelivered { pod, status } => write!(f, "{pod} undelivered: {}", Brief(status)),
            Self::Overwritten { pod, status } => write!(f, "{pod} overwritten by others: {}", Brief(status)),
            Self::Event { pod, record } => {
                let severity = match record.severity {
                    Severity::Normal => "",
                    Severity::Warning => "Warning ",
                };
                let about = record.container.as_deref().unwrap_or(pod);
                write!(f, "{severity}{} {about}: {} (x{})", record.reason, record.message, record.count)
            }
            Self::PodGone { pod } => write!(f, "{pod} is gone"),
            Self::WallSet { by_ms } => write!(f, "the wall clock is set by {by_ms} ms"),
            Self::Reboot => f.write_str("the node reboots"),
            Self::DiskFailed { what } => write!(f, "{what} fails"),
            Self::Changed(text) | Self::Note(text) => f.write_str(text),
        }
    }
}

// === impl SandboxChange ===

impl SandboxChange {
    fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Damaged(Loss::Network) => "damaged: its network is gone",
            Self::Damaged(Loss::Files) => "damaged: its files are gone",
            Self::Lost => "lost",
            Self::Stopped => "stopped",
            Self::Removed => "removed",
        }
    }
}

// === impl Attempt ===

impl Attempt {
    /// Whether it may belong to a probe of this kind.
    pub fn may_be(&self, kind: ProbeKind) -> bool {
        self.kinds.contains(&kind)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.as_str()).collect();
        let target = self.instance.as_ref().map_or(self.container.as_str(), |instance| &instance.id);
        let millis = self.latency.as_millis();
        write!(f, "{} {target} {} -> {} after {millis} ms", kinds.join("|"), self.question, self.reply)
    }
}

/// A status in one line.
pub(crate) struct Brief<'a>(pub(crate) &'a PodStatus);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.phase)?;
        if let Some(reason) = &self.0.reason {
            write!(f, " ({reason})")?;
        }
        for condition in &self.0.conditions {
            let short = match &condition.kind {
                ConditionType::Ready => "Ready",
                ConditionType::Initialized => "Init",
                ConditionType::AllContainersRestarting => "RestartingAll",
                ConditionType::Foreign(kind) => kind,
                ConditionType::PodReadyToStartContainers
                | ConditionType::ContainersReady
                | ConditionType::PodScheduled => continue,
            };
            let sign = match condition.status {
                Truth::True => '+',
                Truth::False => '-',
                Truth::Unknown => '?',
            };
            write!(f, " {sign}{short}")?;
        }
        self.0.all_containers().try_for_each(|status| write!(f, " | {}", BriefContainer(status)))
    }
}

struct BriefContainer<'a>(&'a ContainerStatus);

impl fmt::Display for BriefContainer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.0;
        write!(f, "{} ", status.name)?;
        match &status.state {
            ContainerState::Waiting(waiting) if waiting.reason.is_empty() => f.write_str("waiting")?,
            ContainerState::Waiting(waiting) => f.write_str(&waiting.reason)?,
            ContainerState::Running(_) => f.write_str("running")?,
            ContainerState::Terminated(ended) => write!(f, "{}({})", ended.reason, ended.exit_code)?,
        }
        write!(f, " #{}", status.restart_count)?;
        if status.started == Some(true) {
            f.write_str(" started")?;
        }
        if status.ready {
            f.write_str(" ready")?;
        }
        Ok(())
    }
}
