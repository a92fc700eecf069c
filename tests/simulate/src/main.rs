//! `make sim`: random runs of the agent and of the gates controller on all cores, and which of them broke a promise.
//!
//! Three of four seeds are for the agent, the fourth is for the controller, whose runs show less and take as long.
//!
//! Seeds are handed out one after the other, so every seed of the range that is printed at the end has been run. A seed
//! that fails is printed with the command that replays it, and the others go on. Settings come from the environment:
//!
//! | variable | what | default |
//! | --- | --- | --- |
//! | `SIM_RUNS` | ends after so many runs | no limit if `SIM_SECONDS` is set |
//! | `SIM_SECONDS` | ends after so many seconds | 60 if `SIM_RUNS` is not set |
//! | `SIM_FIRST` | the first seed | a new one each time |
//! | `SIM_SUBJECT` | what is run: `agent` or `controller` | both; with `SIM_SEED` the agent |
//! | `SIM_THREADS` | how many threads run seeds | one for each core |
//! | `SIM_SEED` | replays this seed alone and prints what happens | |

mod settings;
mod subject;
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

use self::{
    settings::{Limits, Play, Settings},
    subject::{Outcome, Subject},
    tally::Tally,
};

/// Between two reports of progress: where a line replaces the one before, and where all of them stay.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(500);
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Outcomes that wait for the one thread that prints. It does nothing else, so a few for each thread are enough.
const WAITING: usize = 64;

/// Where both are run, every seed of this number in a row is the controller's.
const CONTROLLER_EVERY: u64 = 4;

/// Hands out seeds until a limit is reached.
struct Seeds {
    first: u64,
    /// What is run; both if there is none.
    subject: Option<Subject>,
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
        Play::One(seed) => replay(settings.subject.unwrap_or(Subject::Agent), seed),
        Play::Many { first, limits } => {
            // Forty bits of chance: two calls do not meet, and the numbers can still be read out.
            let first = first.unwrap_or_else(|| settings::random_bits(40));
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            run_many(settings.subject, first, limits, settings.threads.unwrap_or(cores))
        }
    }
}

/// Runs one seed, and prints what happened.
fn replay(subject: Subject, seed: u64) -> ExitCode {
    let replay = subject.replay(seed);
    say(format_args!("{}", replay.text));
    if replay.kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one seed after the other on so many threads, and prints progress, failures and a summary.
fn run_many(subject: Option<Subject>, first: u64, limits: Limits, threads: usize) -> ExitCode {
    let what = subject.map_or_else(|| "agent and controller".to_owned(), |subject| subject.to_string());
    say(format_args!("random runs of {what} on {threads} threads, {limits}, from seed {first} on"));
    let seeds = Arc::new(Seeds { first, subject, handed_out: AtomicU64::new(0), limits, started: now() });
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
    while let Some((subject, seed)) = seeds.next() {
        let outcome = catch_unwind(|| subject.run(seed)).unwrap_or_else(|_| Outcome::panicked(subject, seed));
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
    fn next(&self) -> Option<(Subject, u64)> {
        let seconds = self.limits.seconds;
        if seconds.is_some_and(|seconds| now() - self.started >= Duration::from_secs(seconds)) {
            return None;
        }
        let number = self.handed_out.fetch_add(1, Ordering::Relaxed);
        let is_left = self.limits.runs.is_none_or(|runs| number < runs);
        let turn = if number % CONTROLLER_EVERY == CONTROLLER_EVERY - 1 { Subject::Controller } else { Subject::Agent };
        is_left.then(|| (self.subject.unwrap_or(turn), self.first.wrapping_add(number)))
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
