//! What all doors share: the node, the scripts, the faults, the clock, the timeline and the checkers.
//!
//! One lock guards it all, taken for single steps and never across an await. Whatever takes time is a task of the
//! world's own ([`State::later`]), so that it goes on whatever becomes of the agent.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use keelet_cri::v1;
use keelet_host::Space;
use keelet_lifecycle::{BootId, Moment, Rules, Wall};
use keelet_pod::Pod;
use keelet_sim_api::Random;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use crate::{
    check::{Checks, Violation},
    disk::Medium,
    faults::{CallKind, Faults},
    node::Node,
    process::AgentProcess,
    publisher::ApiStatuses,
    script::Scripts,
    timeline::{Happening, Occurrence, Timeline},
};

/// Whether others see the statuses of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A node of its own, without a publisher.
    Standalone,
    /// A node of a cluster: others keep a copy of every status, and may write it.
    Cluster,
}

/// The shared world behind the doors.
pub(crate) struct Sim {
    state: Mutex<State>,
    /// What dead agents owned. It is dropped when nothing is simulated any more.
    remains: Mutex<Remains>,
    /// Counts what tasks did.
    steps: AtomicU64,
}

/// What dead agents owned.
enum Remains {
    Kept(Vec<Box<dyn Any + Send>>),
    /// The world is gone.
    Dropped,
}

/// Everything there is.
pub(crate) struct State {
    me: Weak<Sim>,
    pub(crate) random: Random,
    pub(crate) node: Node,
    pub(crate) scripts: Scripts,
    pub(crate) faults: Faults,
    pub(crate) medium: Medium,
    /// The changes of the medium when the ledger was last seen to explain what was published.
    pub(crate) explained: Option<u64>,
    /// The copy of a pod in the ledger as it was last read, and the pod behind it.
    pub(crate) copy: Option<(serde_json::Value, Arc<Pod>)>,
    pub(crate) api_statuses: ApiStatuses,
    pub(crate) timeline: Timeline,
    pub(crate) checks: Checks,
    pub(crate) violations: Vec<Violation>,
    pub(crate) mode: Mode,
    /// Every pod that was ever wanted, by UID.
    pub(crate) pods: BTreeMap<String, Arc<Pod>>,
    /// Whether the runtime emits events.
    pub(crate) tells_events: bool,
    /// Whether the ends of processes can be watched.
    pub(crate) watches_processes: bool,
    /// The runtime is away until then.
    pub(crate) runtime_away: Option<Instant>,
    pub(crate) subscribers: Vec<Subscriber>,
    /// Counts how often the faults ended.
    pub(crate) calm: watch::Sender<u32>,
    /// Effects of the agent on the host's directories.
    pub(crate) directories: BTreeMap<String, u32>,
    /// UIDs of pods of which nothing is left but directories.
    pub(crate) leftovers: BTreeSet<String>,
    /// The room on the node's disk, if it can be measured.
    pub(crate) space: Option<Space>,
    /// Sizes of logs, by container name; none where there is no file. All others are empty.
    pub(crate) log_sizes: BTreeMap<String, Option<u64>>,
    time: Time,
}

/// A subscriber to the runtime's events.
pub(crate) struct Subscriber {
    pub(crate) process: Arc<AgentProcess>,
    pub(crate) events: mpsc::Sender<Result<v1::ContainerEventResponse, tonic::Status>>,
}

/// The clocks.
#[derive(Debug)]
struct Time {
    /// When the world began.
    beginning: Instant,
    /// When the node booted.
    booted: Instant,
    boot: u32,
    /// The wall clock at the beginning, in milliseconds since 1970; setting the clock changes it.
    wall_ms: i64,
}

/// The wall clock when the world begins.
const BEGINNING_MS: i64 = 1_800_000_000_000;

/// How long the node has been up when the world begins.
const UP_MS: i64 = 1_000_000;

/// How long a boot takes before the agent can run.
const UP_AFTER_BOOT_MS: i64 = 5_000;

// === impl Sim ===

impl Sim {
    /// A world in which nothing has happened. To be called inside of its tokio runtime.
    pub(crate) fn new(seed: u64, mode: Mode, rules: Rules) -> Arc<Self> {
        let now = Instant::now();
        Arc::new_cyclic(|me| Self {
            state: Mutex::new(State {
                me: Weak::clone(me),
                random: Random::new(seed),
                node: Node::default(),
                scripts: Scripts::default(),
                faults: Faults::default(),
                medium: Medium::default(),
                explained: None,
                copy: None,
                api_statuses: ApiStatuses::default(),
                timeline: Timeline::default(),
                checks: Checks::new(rules, mode),
                violations: Vec::new(),
                mode,
                pods: BTreeMap::new(),
                tells_events: true,
                watches_processes: false,
                runtime_away: None,
                subscribers: Vec::new(),
                calm: watch::Sender::new(0),
                directories: BTreeMap::new(),
                leftovers: BTreeSet::new(),
                space: None,
                log_sizes: BTreeMap::new(),
                time: Time { beginning: now, booted: now, boot: 1, wall_ms: BEGINNING_MS },
            }),
            remains: Mutex::new(Remains::Kept(Vec::new())),
            steps: AtomicU64::new(0),
        })
    }

    /// Keeps what a dead agent owned: a process that is killed runs no destructors.
    pub(crate) fn keep(&self, owned: impl Any + Send) {
        let mut remains = self.remains.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *remains {
            Remains::Kept(kept) => kept.push(Box::new(owned)),
            Remains::Dropped => {
                drop(remains);
                drop(owned);
            }
        }
    }

    /// Drops what dead agents owned, now and from now on.
    pub(crate) fn drop_remains(&self) {
        let remains = mem::replace(&mut *self.remains.lock().unwrap_or_else(PoisonError::into_inner), Remains::Dropped);
        drop(remains);
    }

    /// A task did something.
    pub(crate) fn count_step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// How often tasks did something.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Writes down the end of a run of the agent, if it has ended and that is not written down yet.
    pub(crate) fn announce(&self, process: &AgentProcess) {
        if process.announce_end() {
            self.lock().note(Happening::AgentDies { run: process.number, effects: process.effects() });
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A checker that panics leaves nothing half-done that any code would look at again.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").finish_non_exhaustive()
    }
}

// === impl State ===

/// Time and record.
impl State {
    /// Since the world began.
    pub(crate) fn elapsed(&self) -> Duration {
        Instant::now() - self.time.beginning
    }

    /// The present moment, by the agent's clock.
    pub(crate) fn now(&self) -> Moment {
        let up_ms = if self.time.boot == 1 { UP_MS } else { UP_AFTER_BOOT_MS };
        let millis = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Moment {
            boot_ms: up_ms + millis(Instant::now() - self.time.booted),
            wall: Wall::from_millis(self.time.wall_ms + millis(self.elapsed())),
            boot_id: self.boot_id(),
        }
    }

    pub(crate) fn boot_id(&self) -> BootId {
        BootId::from_u128(self.time.boot.into())
    }

    pub(crate) fn wall_ns(&self) -> i64 {
        self.now().wall.as_millis() * 1_000_000
    }

    pub(crate) fn set_wall(&mut self, by_ms: i64) {
        self.time.wall_ms += by_ms;
        self.note(Happening::WallSet { by_ms });
    }

    pub(crate) fn boot_anew(&mut self) {
        self.time.booted = Instant::now();
        self.time.boot += 1;
    }

    /// Writes down what happened and lets the checkers see it.
    pub(crate) fn note(&mut self, what: Happening) {
        let entry = Occurrence { at: self.elapsed(), what };
        let found = self.checks.see(&entry, &self.node, &self.pods, self.faults.is_quiet());
        self.timeline.push(entry);
        self.violations.extend(found);
    }

    /// Writes down that something is wrong.
    pub(crate) fn accuse(&mut self, check: &'static str, message: String) {
        self.violations.push(Violation { at: self.elapsed(), check, message });
    }

    /// Does something later, whichever run of the agent is up by then.
    pub(crate) fn later(&self, after: Duration, act: impl FnOnce(&mut State) + Send + 'static) {
        let Some(sim) = self.me.upgrade() else { return };
        drop(tokio::spawn(async move {
            tokio::time::sleep(after).await;
            sim.count_step();
            act(&mut sim.lock());
        }));
    }

    /// Calls that change the node, and statuses, so far. Probes are no sign of unrest.
    pub(crate) fn effects_so_far(&self) -> usize {
        let counts = |entry: &&Occurrence| match &entry.what {
            Happening::Call { kind, .. } => *kind != CallKind::ExecSync,
            Happening::Published { .. } | Happening::Exited { .. } => true,
            _ => false,
        };
        self.timeline.entries().iter().filter(counts).count()
    }

    /// Lets go of everything that takes room.
    pub(crate) fn clear(&mut self) {
        self.timeline = Timeline::default();
        self.medium.wipe();
        self.node = Node::default();
        self.api_statuses = ApiStatuses::default();
        self.pods.clear();
        self.subscribers.clear();
        self.checks = Checks::new(Rules::default(), self.mode);
    }

    /// Whether the runtime cannot be reached.
    pub(crate) fn runtime_is_away(&self) -> bool {
        self.runtime_away.is_some_and(|until| Instant::now() < until)
    }
}
