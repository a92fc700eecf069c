//! Random lives of random pods, with random faults and agents that die.

use keelet_sim::random_run;

/// Seeds that the test plays where nobody says otherwise.
const SEEDS: u64 = 200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Every random life keeps all promises and comes to rest. `KEELET_SIM_SEEDS` says how many are played,
/// `KEELET_SIM_FIRST` which is the first.
#[test]
fn random_lives_keep_every_promise() {
    let first = number("KEELET_SIM_FIRST").unwrap_or(1);
    let seeds = first..first + number("KEELET_SIM_SEEDS").unwrap_or(SEEDS);
    let failures: Vec<_> = seeds.filter_map(|seed| random_run(seed).err()).collect();
    if let Some(failure) = failures.iter().min_by_key(|failure| failure.timeline.len()) {
        let list: Vec<String> = failures.iter().map(|f| format!("{}: {}", f.seed, f.violations[0])).collect();
        panic!("{failure}\n{} seeds fail:\n{}", failures.len(), list.join("\n"));
    }
}

/// One random life with its timeline: `KEELET_SIM_SEED=1234 cargo test -p keelet-sim replay -- --nocapture`.
#[test]
#[expect(clippy::print_stdout, reason = "it is there to be read")]
fn replay() {
    match random_run(number("KEELET_SIM_SEED").unwrap_or(1)) {
        Ok(report) => println!("{}", report.timeline),
        Err(failure) => panic!("{failure}"),
    }
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
