//! Random lives of random pods, with random faults; then the faults stop, and everything must come to rest.

mod course;
mod files;
mod spec;

use std::{collections::BTreeMap, fmt};

use self::course::Course;
use crate::{check::Violation, random::Random, world::World};

/// What a random run went through.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed that replays it.
    pub seed: u64,
    /// Runs of the agent.
    pub runs: u32,
    /// Starts of containers.
    pub starts: usize,
    /// Statuses published.
    pub statuses: usize,
    /// How often each kind of thing happened that chance may bring about.
    pub acts: BTreeMap<&'static str, u32>,
    /// What happened, one line for each thing.
    pub timeline: String,
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
    /// What happened, one line for each thing.
    pub timeline: String,
}

/// Plays the random life of this seed.
pub fn random_run(seed: u64) -> Result<Report, Failure> {
    let mut random = Random::new(seed);
    let manifest = spec::manifest(&mut random.fork());
    let mut world = World::new(random.draw()).quietly();
    let mut course = Course::draw(random.fork(), &manifest);
    if !course.has_files() {
        world = world.manifest(&manifest);
    }
    if course.cluster {
        world = world.cluster();
    }
    if !course.events {
        world = world.without_events();
    }
    let mut world = world.build();
    course.play(&mut world);
    let unsettled = world.try_settle().err();
    if let Some(missing) = unsettled {
        world.accuse("convergence", missing);
    }
    let violations = world.violations();
    let timeline = world.timeline_text();
    if violations.is_empty() {
        let starts = world.all_starts();
        let statuses = world.statuses().len();
        Ok(Report { seed, runs: world.runs(), starts, statuses, acts: course.acts, timeline })
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
        writeln!(f, "replay: KEELET_SIM_SEED={} cargo test -p keelet-sim replay -- --nocapture", self.seed)
    }
}
