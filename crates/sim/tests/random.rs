//! Runs of random pods, with random faults and agents that die. `make sim` has many more of them.

use std::{collections::BTreeMap, num::NonZero, thread};

use keelet_sim::{Failure, Report, Violation, random_run, replay_command, secs};

/// The test runs the seeds from 1 to this one: always the same, so that a rare fault never blocks an unrelated change.
const SEEDS: u64 = 300;

/// What has to happen at least once in so many runs.
const ACTS: [&str; 38] = [
    "Ready is overwritten",
    "a call goes wrong",
    "a container exits",
    "a container is lost",
    "a copied manifest is removed",
    "a manifest is copied",
    "a manifest is renamed",
    "a restart is asked for at the end",
    "a restart is asked for before there is a status",
    "a restart is asked for in a start",
    "a restart is asked for in another",
    "a restart is asked for of a ready pod",
    "a restart is asked for of an unready pod",
    "a restart is refused",
    "a second agent starts",
    "an ephemeral container is added",
    "an image changes",
    "answers change",
    "calls go wrong",
    "events are lost",
    "probes are not eager",
    "the agent dies",
    "the agent dies in the middle of something",
    "the agent stops",
    "the clock is set",
    "the disk is full",
    "the disk is full when an agent starts",
    "the disk is read-only",
    "the disk is well",
    "the gate is off",
    "the gate is on",
    "the ledger is lost",
    "the node reboots",
    "the publisher is slow or away",
    "the runtime restarts",
    "the sandbox breaks down",
    "the sandbox loses its files",
    "the sandbox loses its network",
];

/// Runs all seeds, on all cores.
fn run_all(seeds: u64) -> Vec<Result<Report, Failure>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let share =
            |thread: usize| scope.spawn(move || (1..=seeds).skip(thread).step_by(threads).map(random_run).collect());
        let running: Vec<thread::ScopedJoinHandle<'_, Vec<_>>> = (0..threads).map(share).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("no panic in the simulation")).collect()
    })
}

/// Every random run keeps all promises and comes to rest, and together they go everywhere.
#[test]
fn random_runs_keep_every_promise() {
    let mut failures: Vec<Failure> = Vec::new();
    let mut acts: BTreeMap<&str, u32> = BTreeMap::new();
    for run in run_all(SEEDS) {
        match run {
            Ok(report) => report.acts.into_iter().for_each(|(act, times)| *acts.entry(act).or_default() += times),
            Err(failure) => failures.push(failure),
        }
    }
    if let Some(failure) = failures.iter().min_by_key(|failure| failure.timeline.entries().len()) {
        let list: Vec<String> = failures.iter().map(|f| format!("{}: {}", f.seed, f.violations[0])).collect();
        panic!("{failure}\n{} seeds fail:\n{}", failures.len(), list.join("\n"));
    }
    let missing: Vec<&str> = ACTS.into_iter().filter(|act| !acts.contains_key(act)).collect();
    assert!(missing.is_empty(), "in the runs of seeds 1 to {SEEDS} this never happened: {missing:?}\n{acts:#?}");
}

/// A broken promise is printed with the pod, the timeline and a command that runs the same seed again.
#[test]
fn a_failure_says_how_to_replay_it() {
    let run = random_run(7).unwrap_or_else(|failure| panic!("{failure}"));
    let timeline = run.timeline.to_string();
    let violation = Violation { at: secs(3), check: "counts", message: "main was counted twice".to_owned() };
    let (manifest, violations) = ("kind: Pod".to_owned(), vec![violation]);
    let told = Failure { seed: run.seed, manifest, violations, timeline: run.timeline }.to_string();
    let command = format!("replay: {}", replay_command(7));
    assert_eq!(command, "replay: make sim SIM_SEED=7");
    for part in ["kind: Pod", "3.000s [counts] main was counted twice", &timeline, &command] {
        assert!(told.contains(part), "{part:?} is missing in\n{told}");
    }
}

/// The same seed gives the same timeline, byte for byte, also beside others on other threads.
#[test]
fn the_same_seed_gives_the_same_timeline_byte_for_byte() {
    let text = |run: Result<Report, Failure>| match run {
        Ok(report) => (report.seed, report.timeline.to_string()),
        Err(failure) => (failure.seed, failure.timeline.to_string()),
    };
    for (seed, one) in run_all(20).into_iter().map(text) {
        let (_, other) = text(random_run(seed));
        let difference = one.lines().zip(other.lines()).find(|(one, other)| one != other);
        assert_eq!((difference, one.len()), (None, other.len()), "seed {seed}");
    }
}
