//! `make sim`: runs random pods on all cores, and says which of them broke a promise.
//!
//! Seeds are handed out one after the other, so every seed of the range that is printed at the end has been run. A seed
//! that fails is printed with the command that replays it, and the others go on. Settings come from the environment:
//!
//! | variable | what | default |
//! | --- | --- | --- |
//! | `SIM_RUNS` | ends after so many runs | no limit if `SIM_SECONDS` is set |
//! | `SIM_SECONDS` | ends after so many seconds | 60 if `SIM_RUNS` is not set |
//! | `SIM_FIRST` | the first seed | a new one each time |
//! | `SIM_THREADS` | how many threads run pods | one for each core |
//! | `SIM_SEED` | replays this seed alone and prints its timeline | |

mod settings;
mod tally;

use std::{
    io::{self, IsTerminal, Write},
    num::NonZero,
    panic::catch_unwind,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use keelet_sim::random_run;

use self::{
    settings::{Limits, Play, Settings},
    tally::{Outcome, Tally},
};

/// Between two reports of progress: where a line replaces the one before, and where all of them stay.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(500);
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Outcomes that wait for the one thread that prints. It does nothing else, so a few for each thread are enough.
const WAITING: usize = 64;

/// Hands out seeds until a limit is reached.
struct Seeds {
    first: u64,
    handed_out: AtomicU64,
    limits: Limits,
    started: Instant,
}

/// Where progress is shown.
struct Screen {
    terminal: bool,
    shown: Instant,
}

fn main() -> ExitCode {
    let settings = match Settings::from_env(|name| std::env::var(name).ok()) {
        Ok(settings) => settings,
        Err(error) => {
            let _ = writeln!(io::stderr(), "make sim: {error}");
            return ExitCode::from(2);
        }
    };
    match settings.play {
        Play::One(seed) => replay(seed),
        Play::Many { first, limits } => {
            // Forty bits of chance: two calls do not meet, and the numbers can still be read out.
            let first = first.unwrap_or_else(|| settings::random_bits(40));
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            run_many(first, limits, settings.threads.unwrap_or(cores))
        }
    }
}

/// Runs one seed, and prints what happened.
fn replay(seed: u64) -> ExitCode {
    match random_run(seed) {
        Ok(report) => {
            say(format_args!("{}seed {seed} keeps every promise", report.timeline));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            say(format_args!("{failure}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs one seed after the other on so many threads, and prints progress, failures and a summary.
fn run_many(first: u64, limits: Limits, threads: usize) -> ExitCode {
    say(format_args!("running random pods on {threads} threads, {limits}, from seed {first} on"));
    let seeds = Arc::new(Seeds { first, handed_out: AtomicU64::new(0), limits, started: now() });
    let (outcomes, received) = sync_channel(WAITING);
    for _ in 0..threads {
        let (seeds, outcomes) = (Arc::clone(&seeds), outcomes.clone());
        thread::spawn(move || run_seeds(&seeds, &outcomes));
    }
    drop(outcomes);
    let tally = collect(&received, seeds.started);
    say(format_args!("{}", tally.summary(first, now() - seeds.started)));
    if tally.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_seeds(seeds: &Seeds, outcomes: &SyncSender<Outcome>) {
    while let Some(seed) = seeds.next() {
        let outcome = catch_unwind(|| random_run(seed)).map_or_else(|_| Outcome::panicked(seed), Outcome::of);
        if outcomes.send(outcome).is_err() {
            return;
        }
    }
}

/// Adds up outcomes until all threads have ended.
fn collect(received: &Receiver<Outcome>, started: Instant) -> Tally {
    let mut tally = Tally::default();
    let mut screen = Screen { terminal: io::stdout().is_terminal(), shown: started };
    loop {
        match received.recv_timeout(screen.interval()) {
            Ok(outcome) => {
                if let Some(failure) = tally.add(outcome) {
                    screen.clear();
                    say(format_args!("{failure}"));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        screen.show(|elapsed| tally.progress(elapsed), started);
    }
    screen.clear();
    tally
}

/// The one place that reads the machine's clock: it says how fast runs are, and when to stop.
#[expect(clippy::disallowed_methods, reason = "simulated time cannot say how long a run takes")]
fn now() -> Instant {
    Instant::now()
}

fn say(text: std::fmt::Arguments<'_>) {
    // A reader that has gone away does not need the rest.
    let _ = writeln!(io::stdout(), "{text}");
}

// === impl Seeds ===

impl Seeds {
    fn next(&self) -> Option<u64> {
        let seconds = self.limits.seconds;
        if seconds.is_some_and(|seconds| now() - self.started >= Duration::from_secs(seconds)) {
            return None;
        }
        let number = self.handed_out.fetch_add(1, Ordering::Relaxed);
        let is_left = self.limits.runs.is_none_or(|runs| number < runs);
        is_left.then(|| self.first.wrapping_add(number))
    }
}

// === impl Screen ===

impl Screen {
    fn interval(&self) -> Duration {
        if self.terminal { TERMINAL_INTERVAL } else { PLAIN_INTERVAL }
    }

    fn show(&mut self, progress: impl FnOnce(Duration) -> String, started: Instant) {
        let now = now();
        if now - self.shown < self.interval() {
            return;
        }
        self.shown = now;
        let text = progress(now - started);
        if self.terminal {
            let mut out = io::stdout();
            let _ = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
        } else {
            say(format_args!("{text}"));
        }
    }

    /// Removes a line of progress, so that something else can be printed.
    fn clear(&self) {
        if self.terminal {
            let _ = write!(io::stdout(), "\r\x1b[K");
        }
    }
}
