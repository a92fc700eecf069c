//! Random lives of random pods, with random faults and agents that die.

use std::collections::BTreeMap;

use keelet_sim::{Failure, Violation, random_run, secs};

/// Seeds that the test plays where nobody says otherwise.
const SEEDS: u64 = 200;

/// Names the seed that [`replay`] plays.
const SEED: &str = "KEELET_SIM_SEED";

/// What has to happen at least once in so many lives as the test plays.
const ACTS: [&str; 29] = [
    "Ready is overwritten",
    "a call goes wrong",
    "a container exits",
    "a container is lost",
    "a copied manifest is removed",
    "a manifest is copied",
    "a manifest is renamed",
    "a restart is asked for at the end",
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
    "readers are slow",
    "the agent dies",
    "the agent dies in the middle of something",
    "the clock is set",
    "the disk is full",
    "the disk is full when an agent starts",
    "the gate is off",
    "the gate is on",
    "the ledger is lost",
    "the node reboots",
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Every random life keeps all promises and comes to rest, and together they go everywhere. `KEELET_SIM_SEEDS` says how
/// many are played, `KEELET_SIM_FIRST` which is the first.
#[test]
fn random_lives_keep_every_promise() {
    let first = number("KEELET_SIM_FIRST").unwrap_or(1);
    let seeds = number("KEELET_SIM_SEEDS").unwrap_or(SEEDS);
    let mut failures: Vec<Failure> = Vec::new();
    let mut acts: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in first..first + seeds {
        match random_run(seed) {
            Ok(report) => report.acts.into_iter().for_each(|(act, times)| *acts.entry(act).or_default() += times),
            Err(failure) => failures.push(failure),
        }
    }
    if let Some(failure) = failures.iter().min_by_key(|failure| failure.timeline.len()) {
        let list: Vec<String> = failures.iter().map(|f| format!("{}: {}", f.seed, f.violations[0])).collect();
        panic!("{failure}\n{} seeds fail:\n{}", failures.len(), list.join("\n"));
    }
    let missing: Vec<&str> = ACTS.into_iter().filter(|act| seeds >= SEEDS && !acts.contains_key(act)).collect();
    assert!(missing.is_empty(), "in {seeds} lives from seed {first} on this never happened: {missing:?}\n{acts:#?}");
}

/// A broken promise is told with the pod, the timeline and a command that plays the same life again, which is this test:
/// `KEELET_SIM_SEED=1234 cargo test -p keelet-sim replay -- --nocapture` shows the life of that seed.
#[test]
#[expect(clippy::print_stdout, reason = "it is there to be read")]
fn replay() {
    if let Some(seed) = number(SEED) {
        match random_run(seed) {
            Ok(report) => println!("{}", report.timeline),
            Err(failure) => panic!("{failure}"),
        }
        return;
    }
    let life = random_run(7).unwrap_or_else(|failure| panic!("{failure}"));
    let violation = Violation { at: secs(3), check: "counts", message: "main was counted twice".to_owned() };
    let (manifest, violations) = ("kind: Pod".to_owned(), vec![violation]);
    let told = Failure { seed: life.seed, manifest, violations, timeline: life.timeline.clone() }.to_string();
    for part in ["kind: Pod", "3.000s [counts] main was counted twice", life.timeline.as_str()] {
        assert!(told.contains(part), "{part:?} is missing in\n{told}");
    }
    let command = told.lines().find_map(|line| line.strip_prefix("replay: ")).expect("a command that plays it again");
    let (variable, rest) = command.split_once('=').expect("a variable that names the seed");
    let (seed, call) = rest.split_once(' ').expect("a command after the seed");
    assert_eq!((variable, call), (SEED, "cargo test -p keelet-sim replay -- --nocapture"), "{command}");
    let again = random_run(seed.parse().expect("a number")).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(again.timeline == life.timeline, "{command:?} plays another life than that of seed {}", life.seed);
}

/// The same seed gives the same timeline, byte for byte.
#[test]
fn the_same_seed_gives_the_same_life_byte_for_byte() {
    let text = |seed| random_run(seed).map_or_else(|failure| failure.timeline, |report| report.timeline);
    for seed in 1..=20 {
        let (one, other) = (text(seed), text(seed));
        let difference = one.lines().zip(other.lines()).find(|(one, other)| one != other);
        assert_eq!((difference, one.len()), (None, other.len()), "seed {seed}");
    }
}
