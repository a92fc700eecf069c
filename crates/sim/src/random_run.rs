//! Runs of random pods with random faults; then the faults stop, and everything must come to rest.

mod events;
mod files;
mod spec;

use std::{collections::BTreeMap, fmt, mem};

use keelet_sim_api::Random;

use self::events::Events;
use crate::{check::Violation, timeline::Timeline, world::World};

/// What a random run went through.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed that replays it.
    pub seed: u64,
    /// Runs of the agent.
    pub runs: u32,
    /// How often each kind of thing happened that chance may bring about.
    pub acts: BTreeMap<&'static str, u32>,
    /// What happened.
    pub timeline: Timeline,
}

/// A random run that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed that replays it.
    pub seed: u64,
    /// The pod.
    pub manifest: String,
    /// What is wrong.
    pub violations: Vec<Violation>,
    /// What happened.
    pub timeline: Timeline,
}

/// The command that runs a seed again and prints what happens.
pub fn replay_command(seed: u64) -> String {
    format!("make sim SIM_SEED={seed}")
}

/// Runs the random pod of this seed.
pub fn random_run(seed: u64) -> Result<Report, Failure> {
    let mut random = Random::new(seed);
    let manifest = spec::manifest(&mut random.fork());
    let mut world = World::new(random.draw()).quietly();
    let mut events = Events::draw(random.fork(), &manifest);
    if !events.has_files() {
        world = world.manifest(&manifest);
    }
    if events.cluster {
        world = world.cluster();
    }
    if !events.events {
        world = world.without_events();
    }
    let mut world = world.rules(|rules| rules.eager_probes = events.eager).build();
    events.play(&mut world);
    let unsettled = world.try_settle().err();
    if let Some(missing) = unsettled {
        world.accuse("convergence", missing);
    }
    let violations = world.violations();
    let timeline = world.inside(|state| mem::take(&mut state.timeline));
    if violations.is_empty() {
        Ok(Report { seed, runs: world.runs(), acts: events.acts, timeline })
    } else {
        Err(Failure { seed, manifest, violations, timeline })
    }
}

// === impl Failure ===

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}", self.manifest, self.timeline)?;
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        writeln!(f, "replay: {}", replay_command(self.seed))
    }
}
