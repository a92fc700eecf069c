//! Reports of tests: skipped tests, and results of binaries without the standard harness.
//!
//! A test whose requirements (root, a program, a kernel) are missing must not count as passed. The standard harness has no
//! such result and hides the output of passed tests, so [`skipped`] bypasses its capture, and `scripts/test` counts these
//! lines. [`Tally`] is for test binaries without the standard harness: it prints the closing line that runners parse.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// The separator between the name of a skipped test and the reason.
const BECAUSE: &str = ", because ";

/// Reports that this test is skipped, and why, whether or not its output is captured.
pub fn skipped(reason: impl Display) {
    let thread = thread::current();
    // The line before may not have ended: with one thread the harness prints a test's name first.
    let line = format!("\nskipped: {}{BECAUSE}{reason}\n", thread.name().unwrap_or("a test"));
    // Not by a macro, whose output is captured. A failed write cannot be reported anywhere.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Reports the skips in the output of a copy of this test that ran elsewhere, under this test's name.
pub fn skipped_elsewhere(said: &str) {
    reasons(said).for_each(skipped);
}

fn reasons(said: &str) -> impl Iterator<Item = &str> {
    said.lines().filter_map(|line| {
        let reason = line.strip_prefix("skipped: ")?;
        Some(reason.split_once(BECAUSE).map_or(reason, |(_, reason)| reason))
    })
}

/// How a case ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It has shown what it is for.
    Passed,
    /// Its requirements are missing, for this reason.
    Skipped(String),
    /// It has failed, with this output.
    Failed(String),
}

/// Counts the cases of a test binary without the standard harness, and prints each result.
#[derive(Debug)]
pub struct Tally {
    began: Instant,
    count: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    passed: usize,
    skipped: usize,
    failed: Vec<String>,
}

// === impl Tally ===

impl Tally {
    /// An empty tally.
    #[expect(clippy::new_without_default, reason = "it notes the time, which no default does")]
    #[expect(clippy::disallowed_methods, reason = "how long real tests take is real time")]
    pub fn new() -> Self {
        Self { began: Instant::now(), count: Mutex::default() }
    }

    /// Prints the result of a case.
    #[expect(clippy::print_stdout, reason = "the output of a test")]
    pub fn report(&self, name: &str, ended: Ended) {
        let mut count = self.count.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match ended {
            Ended::Passed => {
                count.passed += 1;
                println!("test {name} ... ok");
            }
            Ended::Skipped(reason) => {
                count.skipped += 1;
                println!("test {name} ... skipped: {reason}");
            }
            Ended::Failed(said) => {
                count.failed.push(name.to_owned());
                println!("test {name} ... FAILED\n{said}");
            }
        }
    }

    /// Prints the closing line in the format of the standard harness, and returns whether no case failed.
    #[expect(clippy::print_stdout, reason = "the output of a test")]
    #[expect(clippy::disallowed_methods, reason = "how long real tests take is real time")]
    pub fn close(self, filtered_out: usize) -> bool {
        let count = self.count.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        println!("{}", count.closing(filtered_out, self.began.elapsed()));
        count.failed.is_empty()
    }
}

// === impl Count ===

impl Count {
    fn closing(&self, filtered_out: usize, took: Duration) -> String {
        let names: String = self.failed.iter().map(|name| format!("    {name}\n")).collect();
        let (failures, verdict) =
            if self.failed.is_empty() { (String::new(), "ok") } else { (format!("\nfailures:\n{names}"), "FAILED") };
        format!(
            "{failures}\ntest result: {verdict}. {} passed; {} failed; {} ignored; 0 measured; {filtered_out} filtered out; \
             finished in {:.2}s\n",
            self.passed,
            self.failed.len(),
            self.skipped,
            took.as_secs_f64(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, Duration, reasons};

    #[test]
    fn reasons_are_found_with_and_without_a_name() {
        let said =
            "running 1 test\ntest a ... \nskipped: a, because there is no tar\nok\nskipped: no root\nwas skipped: no\n";
        assert_eq!(reasons(said).collect::<Vec<_>>(), ["there is no tar", "no root"]);
    }

    #[test]
    fn the_closing_line_is_the_one_that_runners_read() {
        let mut count = Count { passed: 2, skipped: 1, failed: Vec::new() };
        let took = Duration::from_millis(1500);
        let well = "\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 1.50s\n";
        assert_eq!(count.closing(3, took), well);
        count.failed = vec!["first".to_owned(), "second".to_owned()];
        let badly = "\nfailures:\n    first\n    second\n\n\
                     test result: FAILED. 2 passed; 2 failed; 1 ignored; 0 measured; 3 filtered out; finished in 1.50s\n";
        assert_eq!(count.closing(3, took), badly);
    }
}
