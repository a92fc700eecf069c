//! What all runs went through together, in words.

use std::{fmt::Write, time::Duration};

use crate::subject::{Outcome, Subject};

/// How many runs there were, and what they went through.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Runs of each subject, in the order of [`Subject::ALL`].
    runs: [u64; Subject::ALL.len()],
    deaths: usize,
    faults: usize,
    /// Runs that failed, with the first promise that each broke.
    pub(crate) failures: Vec<(u64, Subject, String)>,
}

// === impl Tally ===

impl Tally {
    /// Counts a run; if it failed, what to print.
    pub(crate) fn add(&mut self, outcome: Outcome) -> Option<String> {
        let Outcome { subject, seed, deaths, faults, broken } = outcome;
        self.runs[subject as usize] += 1;
        self.deaths += deaths;
        self.faults += faults;
        let broken = broken?;
        let text = format!("{subject} seed {seed}: {broken}\n  replay: {}", subject.replay_command(seed));
        self.failures.push((seed, subject, broken));
        Some(text)
    }

    /// What has happened after so long.
    pub(crate) fn progress(&self, elapsed: Duration) -> String {
        format!("{:>5} s  {}", elapsed.as_secs(), self.figures(elapsed))
    }

    /// What has happened in the end.
    pub(crate) fn summary(&self, first: u64, elapsed: Duration) -> String {
        let last = first.wrapping_add(self.all_runs().saturating_sub(1));
        let figures = self.figures(elapsed);
        let mut text = format!("seeds {first} to {last} in {} s: {figures}", elapsed.as_secs());
        let mut failures: Vec<_> = self.failures.iter().collect();
        failures.sort_unstable();
        for (seed, subject, broken) in failures {
            let _ = write!(text, "\n  {subject} seed {seed}: {broken}");
        }
        text
    }

    fn all_runs(&self) -> u64 {
        self.runs.iter().sum()
    }

    fn figures(&self, elapsed: Duration) -> String {
        // Figures for people: what is lost in a float does not show.
        let rate = |count: f64| count / elapsed.as_secs_f64().max(0.001);
        let failed = self.failures.len();
        let [of_agent, of_controller] = self.runs;
        format!(
            "{of_agent} runs of the agent and {of_controller} of the controller ({:.1}/s), {} deaths ({:.1}/s), {} faults ({:.1}/s), \
             {failed} failed",
            rate(self.all_runs() as f64),
            self.deaths,
            rate(self.deaths as f64),
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
        let passed = |seed| Outcome { subject: Subject::Agent, seed, deaths: 2, faults: 3, broken: None };
        let failed = |subject, seed, broken: &str| Outcome { subject, broken: Some(broken.to_owned()), ..passed(seed) };
        assert_eq!(tally.add(passed(10)), None);
        let printed = |outcome| tally.add(outcome).expect("something to print");
        let [of_agent, of_controller] = [
            failed(Subject::Agent, 12, "3.000s [counts] main was counted twice"),
            failed(Subject::Controller, 11, "r1 n3: the taint came back"),
        ]
        .map(printed);
        assert_eq!(of_agent, "agent seed 12: 3.000s [counts] main was counted twice\n  replay: make sim SIM_SEED=12");
        assert_eq!(
            of_controller,
            "controller seed 11: r1 n3: the taint came back\n  replay: make sim SIM_SUBJECT=controller SIM_SEED=11"
        );
        let figures =
            "2 runs of the agent and 1 of the controller (1.5/s), 6 deaths (3.0/s), 9 faults (4.5/s), 2 failed";
        assert_eq!(tally.progress(Duration::from_secs(2)), format!("    2 s  {figures}"));
        assert_eq!(
            tally.summary(10, Duration::from_secs(2)),
            format!(
                "seeds 10 to 12 in 2 s: {figures}
  controller seed 11: r1 n3: the taint came back
  agent seed 12: 3.000s [counts] main was counted twice"
            )
        );
    }
}
