//! What is simulated: the agent on its node, or the controllers of a cluster.

use std::fmt;

/// A part of keelet with a simulated world of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// The agent, with a pod on a node.
    Agent,
    /// The node readiness gates controller, with replicas and nodes in a cluster.
    Controller,
}

/// How a run came out.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) subject: Subject,
    pub(crate) seed: u64,
    /// How often an agent, or a replica of the controller, was killed or stopped.
    pub(crate) deaths: usize,
    pub(crate) faults: usize,
    /// The first promise that was broken.
    pub(crate) broken: Option<String>,
}

/// A run that is replayed: all that happened, and whether every promise was kept.
pub(crate) struct Replay {
    pub(crate) text: String,
    pub(crate) kept: bool,
}

// === impl Subject ===

impl Subject {
    pub(crate) const ALL: [Self; 2] = [Self::Agent, Self::Controller];

    /// The word for it in the environment.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Controller => "controller",
        }
    }

    /// The command that runs a seed again and prints what happens.
    pub(crate) fn replay_command(self, seed: u64) -> String {
        match self {
            Self::Agent => keelet_sim::replay_command(seed),
            Self::Controller => format!("make sim SIM_SUBJECT={self} SIM_SEED={seed}"),
        }
    }

    /// Runs a seed.
    pub(crate) fn run(self, seed: u64) -> Outcome {
        match self {
            Self::Agent => {
                let (timeline, broken) = match keelet_sim::random_run(seed) {
                    Ok(report) => (report.timeline, None),
                    Err(failure) => {
                        let first = failure.violations.first().map(ToString::to_string);
                        (failure.timeline, Some(first.unwrap_or_default()))
                    }
                };
                let (deaths, faults) = (timeline.agent_deaths(), timeline.faults());
                Outcome { subject: self, seed, deaths, faults, broken }
            }
            Self::Controller => {
                let (report, broken) = match keelet_sim_gates::random_run(seed) {
                    Ok(report) => (report, None),
                    Err(failure) => {
                        let first = failure.faults.first().cloned();
                        (failure.report, Some(first.unwrap_or_default()))
                    }
                };
                Outcome { subject: self, seed, deaths: report.deaths, faults: report.faults(), broken }
            }
        }
    }

    /// Runs a seed, and keeps what happens.
    pub(crate) fn replay(self, seed: u64) -> Replay {
        let kept = |happened: String| Replay { text: format!("{happened}seed {seed} keeps every promise"), kept: true };
        let broken = |failure: String| Replay { text: failure, kept: false };
        match self {
            Self::Agent => match keelet_sim::random_run(seed) {
                Ok(report) => kept(report.timeline.to_string()),
                Err(failure) => broken(failure.to_string()),
            },
            Self::Controller => match keelet_sim_gates::random_run(seed) {
                Ok(report) => kept(report.log.to_string()),
                Err(failure) => broken(format!("{failure}replay: {}", self.replay_command(seed))),
            },
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl Outcome ===

impl Outcome {
    /// The simulation itself panicked.
    pub(crate) fn panicked(subject: Subject, seed: u64) -> Self {
        let broken = Some("[panic] the simulation panicked, see above".to_owned());
        Self { subject, seed, deaths: 0, faults: 0, broken }
    }
}
