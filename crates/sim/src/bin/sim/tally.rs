//! What all runs went through together, in words.

use std::{fmt::Write, time::Duration};

use keelet_sim::{Failure, Report};

/// How one run came out.
#[derive(Debug)]
pub(crate) struct Outcome {
    seed: u64,
    agent_deaths: usize,
    faults: usize,
    /// The first promise that was broken.
    broken: Option<String>,
}

/// How many runs there were, and what they went through.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    runs: u64,
    agent_deaths: usize,
    faults: usize,
    /// Seeds that failed, with the first promise that each broke.
    pub(crate) failures: Vec<(u64, String)>,
}

// === impl Outcome ===

impl Outcome {
    pub(crate) fn of(run: Result<Report, Failure>) -> Self {
        let (seed, timeline, broken) = match run {
            Ok(report) => (report.seed, report.timeline, None),
            Err(failure) => {
                let first = failure.violations.first().map(ToString::to_string);
                (failure.seed, failure.timeline, Some(first.unwrap_or_default()))
            }
        };
        Self { seed, agent_deaths: timeline.agent_deaths(), faults: timeline.faults(), broken }
    }

    /// The simulation itself panicked.
    pub(crate) fn panicked(seed: u64) -> Self {
        Self { seed, agent_deaths: 0, faults: 0, broken: Some("[panic] the simulation panicked, see above".to_owned()) }
    }
}

// === impl Tally ===

impl Tally {
    /// Counts a run; if it failed, what to print.
    pub(crate) fn add(&mut self, outcome: Outcome) -> Option<String> {
        let Outcome { seed, agent_deaths, faults, broken } = outcome;
        self.runs += 1;
        self.agent_deaths += agent_deaths;
        self.faults += faults;
        let broken = broken?;
        let text = format!("seed {seed}: {broken}\n  replay: {}", keelet_sim::replay_command(seed));
        self.failures.push((seed, broken));
        Some(text)
    }

    /// What has happened after so long.
    pub(crate) fn progress(&self, elapsed: Duration) -> String {
        format!("{:>5} s  {}", elapsed.as_secs(), self.figures(elapsed))
    }

    /// What has happened in the end.
    pub(crate) fn summary(&self, first: u64, elapsed: Duration) -> String {
        let last = first.wrapping_add(self.runs.saturating_sub(1));
        let figures = self.figures(elapsed);
        let mut text = format!("seeds {first} to {last} in {} s: {figures}", elapsed.as_secs());
        let mut failures: Vec<_> = self.failures.iter().collect();
        failures.sort_unstable();
        for (seed, broken) in failures {
            let _ = write!(text, "\n  seed {seed}: {broken}");
        }
        text
    }

    fn figures(&self, elapsed: Duration) -> String {
        // Figures for people: what is lost in a float does not show.
        let rate = |count: f64| count / elapsed.as_secs_f64().max(0.001);
        let failed = self.failures.len();
        format!(
            "{} runs ({:.1}/s), {} agent deaths ({:.1}/s), {} faults ({:.1}/s), {failed} failed",
            self.runs,
            rate(self.runs as f64),
            self.agent_deaths,
            rate(self.agent_deaths as f64),
            self.faults,
            rate(self.faults as f64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_printed_with_its_replay_and_listed_at_the_end() {
        let mut tally = Tally::default();
        let passed = |seed| Outcome { seed, agent_deaths: 2, faults: 3, broken: None };
        let failed = |seed, broken: &str| Outcome { broken: Some(broken.to_owned()), ..passed(seed) };
        assert_eq!(tally.add(passed(10)), None);
        let printed = tally.add(failed(12, "3.000s [counts] main was counted twice")).expect("something to print");
        assert_eq!(printed, "seed 12: 3.000s [counts] main was counted twice\n  replay: make sim SIM_SEED=12");
        tally.add(failed(11, "9.000s [order] side is started before setup"));
        assert_eq!(
            tally.progress(Duration::from_secs(2)),
            "    2 s  3 runs (1.5/s), 6 agent deaths (3.0/s), 9 faults (4.5/s), 2 failed"
        );
        assert_eq!(
            tally.summary(10, Duration::from_secs(2)),
            "seeds 10 to 12 in 2 s: 3 runs (1.5/s), 6 agent deaths (3.0/s), 9 faults (4.5/s), 2 failed
  seed 11: 9.000s [order] side is started before setup
  seed 12: 3.000s [counts] main was counted twice"
        );
    }
}
