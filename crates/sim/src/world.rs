//! The world: pods, a node, an agent that may die, and time that passes when the test advances it.

mod agent;
mod build;
mod explained;
mod happenings;
mod ledger;
mod observe;
mod pods;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use keelet_agent::{Agent, Settings, WantedPods};
use keelet_pod::Pod;
use tokio::{runtime::Runtime, task::yield_now, time::Instant};

pub use self::{build::WorldBuilder, pods::SimSource};
use crate::{
    check::convergence,
    disk::{DURABLE, VOLATILE},
    process::{AgentProcess, Death, InFlight},
    sim::{Sim, State},
};

/// Whatever is due at an instant has happened after so many rounds of all tasks, or after so many in which no task did
/// anything. Tasks of connections are not counted, and have to be through with what they do by then.
const ROUNDS: usize = 256;
const IDLE_ROUNDS: usize = 32;

/// A world at rest stays as it is for this long: longer than the agent's slowest observation.
const REST: Duration = Duration::from_secs(40);

/// The longest it takes to come to rest: the longest backoff, and some.
const PATIENCE: Duration = Duration::from_secs(1200);

/// So many seconds.
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// So many milliseconds.
pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A node with its pods and the agent that runs them, in simulated time.
///
/// Time passes in [`World::run`] and its relatives only. Whenever it has, broken promises come up as a panic that
/// shows the whole timeline, unless [`WorldBuilder::quietly`] was asked for.
pub struct World {
    sim: Arc<Sim>,
    settings: Settings,
    wanted: Arc<Mutex<WantedPods>>,
    run: Option<Run>,
    runs: u32,
    /// Names of the pods, in the order in which they came.
    names: Vec<(String, String)>,
    /// A dead agent is started again after this long.
    revive: Option<Duration>,
    /// The death of the first run.
    death: Option<(Death, InFlight)>,
    first_process: Option<Arc<AgentProcess>>,
    quietly: bool,
    seed: u64,
    // Dropped last: everything else may hold tasks.
    runtime: Runtime,
}

/// A run of the agent.
struct Run {
    process: Arc<AgentProcess>,
    agent: Arc<Mutex<Option<Agent>>>,
}

// === impl World ===

/// Time.
impl World {
    /// A world to be built. The seed decides whatever scripts leave open.
    #[expect(clippy::new_ret_no_self, reason = "a world is told what is in it before it begins")]
    pub fn new(seed: u64) -> WorldBuilder {
        WorldBuilder::new(seed)
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Duration) -> &mut Self {
        let deadline = self.inside(|_| Instant::now()) + span;
        loop {
            let ended = self.run.as_ref().map(|run| run.process.word_of_end());
            let died = self.runtime.block_on(async {
                let death = async {
                    match ended {
                        Some(mut ended) => drop(ended.wait_for(|over| *over).await),
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(deadline) => {
                        finish_instant(&self.sim).await;
                        false
                    }
                    () = death => true,
                }
            });
            if !died {
                break;
            }
            self.bury_and_revive();
        }
        // Death may have come in the last rounds.
        if self.run.as_ref().is_some_and(|run| run.process.is_over()) {
            self.bury_and_revive();
        }
        self.panic_on_violation();
        self
    }

    /// Buries a dead agent, and starts the next one if that is how things are.
    fn bury_and_revive(&mut self) {
        self.bury();
        if let Some(after) = self.revive {
            self.runtime.block_on(async { tokio::time::sleep(after).await });
            self.start_agent();
        }
    }

    /// Lets time pass until something holds, in steps of ten milliseconds; `false` if it does not within the limit.
    pub fn run_until(&mut self, limit: Duration, mut holds: impl FnMut(&Self) -> bool) -> bool {
        let end = self.elapsed() + limit;
        while !holds(self) {
            if self.elapsed() >= end {
                return false;
            }
            self.run(millis(10));
        }
        true
    }

    /// Ends all faults, starts the agent if there is none, spares it any death still to come, and lets time pass until nothing changes any more.
    ///
    /// # Panics
    ///
    /// If the world does not come to rest, or comes to rest in disorder.
    pub fn settle(&mut self) -> &mut Self {
        if let Err(missing) = self.try_settle() {
            self.accuse("convergence", missing);
        }
        self.panic_on_violation();
        self
    }

    /// Like [`World::settle`], but says what is missing.
    pub(crate) fn try_settle(&mut self) -> Result<(), String> {
        self.calm();
        if !self.is_alive() {
            self.start_agent();
        }
        if let Some(run) = &self.run {
            run.process.spare();
        }
        let end = self.elapsed() + PATIENCE;
        let mut missing = Some("nothing has happened".to_owned());
        while self.elapsed() < end {
            let before = self.inside(|state| state.effects_so_far());
            self.run(REST);
            missing = self.missing();
            let after = self.inside(|state| state.effects_so_far());
            if missing.is_none() && before == after {
                let found = self.inside(|state| {
                    let at = state.elapsed();
                    let State { checks, node, pods, .. } = state;
                    checks.at_rest(at, node, pods)
                });
                self.inside(|state| state.violations.extend(found));
                self.check_written();
                return Ok(());
            }
        }
        Err(missing.unwrap_or_else(|| "the node does not come to rest".to_owned()))
    }

    /// Writes down that something is wrong.
    pub(crate) fn accuse(&self, check: &'static str, message: String) {
        self.inside(|state| state.accuse(check, message));
    }

    fn missing(&self) -> Option<String> {
        let wanted: Vec<Arc<Pod>> = self.wanted().values().map(|wanted| Arc::clone(&wanted.pod)).collect();
        let deleted = |uid: &str| self.wanted().get(uid).is_none_or(|wanted| wanted.deletion.is_some());
        self.inside(|state| {
            for pod in wanted.iter().filter(|pod| !deleted(&pod.uid)) {
                let status = state.api_statuses.statuses.get(&pod.uid).map(|(_, status)| Arc::clone(status));
                let State { node, scripts, .. } = state;
                let script = |name: &str| scripts.of(&pod.name, name).clone();
                if let Some(missing) = convergence::missing(pod, status.as_ref(), node, script) {
                    return Some(format!("{}: {missing}", pod.name));
                }
            }
            state
                .pods
                .keys()
                .find(|uid| deleted(uid) && state.node.has_pod(uid))
                .map(|uid| format!("{uid} is not gone"))
        })
    }

    /// The time since the world began.
    pub fn elapsed(&self) -> Duration {
        self.inside(|state| state.elapsed())
    }

    pub(crate) fn inside<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let _guard = self.runtime.enter();
        act(&mut self.sim.lock())
    }

    fn wanted(&self) -> MutexGuard<'_, WantedPods> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Panics if a promise was broken.
    fn panic_on_violation(&self) {
        let violations = self.violations();
        if violations.is_empty() || self.quietly {
            return;
        }
        let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
        panic!("seed {}\n{}\n{}", self.seed, self.timeline_text(), list.join("\n"));
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).field("runs", &self.runs).finish_non_exhaustive()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // What agents owned refers to the world and the world to it, so this breaks the cycle. Nothing comes of
        // destructors any more: all agents are dead at their doors.
        let _guard = self.runtime.enter();
        if let Some(run) = self.run.take() {
            run.process.end();
            self.sim.keep(run.agent.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
        self.sim.drop_remains();
        self.sim.lock().clear();
    }
}

/// Runs all tasks until nothing is left to be done at this instant.
async fn finish_instant(sim: &Sim) {
    let mut idle = 0;
    for _ in 0..ROUNDS {
        let before = sim.steps();
        yield_now().await;
        idle = if sim.steps() == before { idle + 1 } else { 0 };
        if idle == IDLE_ROUNDS {
            return;
        }
    }
}

/// Where the ledger of every simulated node is.
fn ledger() -> keelet_ledger::Settings {
    keelet_ledger::Settings::new(DURABLE, VOLATILE, keelet_lifecycle::BootId::default())
}

/// How the agent is set up where the test does not say otherwise.
fn settings() -> Settings {
    let facts = keelet_launch::NodeFacts {
        name: "node".to_owned(),
        address: Some("192.168.0.1".to_owned()),
        ..keelet_launch::NodeFacts::default()
    };
    Settings { facts: facts.into(), ..Settings::new(keelet_pod::Features::default(), ledger()) }
}
