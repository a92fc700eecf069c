//! Thresholds: what single results add up to.

use std::time::Duration;

use keelet_pod::{Handler, Probe, ProbeKind};

use crate::{
    Moment, Wall,
    operation::{Outcome, ProbeReport},
    probe::{Basis, Effect, ProbeMemory, Streak, Verdict, take},
    time::BootId,
};

fn probe(success_threshold: u32, failure_threshold: u32) -> Probe {
    Probe {
        handler: Handler::Exec { command: vec!["true".to_owned()] },
        initial_delay: Duration::ZERO,
        timeout: Duration::from_secs(1),
        period: Duration::from_secs(10),
        success_threshold,
        failure_threshold,
        termination_grace: None,
    }
}

fn moment(second: i64) -> Moment {
    let boot_ms = second * 1000;
    Moment { boot_ms, wall: Wall::from_millis(boot_ms), boot_id: BootId::from_u128(1) }
}

fn report(outcome: Outcome, output: &str) -> ProbeReport {
    ProbeReport { outcome, latency: Duration::from_millis(3), output: output.to_owned() }
}

/// S success, W warning, F failure, E an error that stays one when tried again, L late, C cancelled.
fn outcome(letter: char) -> Outcome {
    match letter {
        'S' => Outcome::Success,
        'W' => Outcome::Warning,
        'F' => Outcome::Failure,
        'E' => Outcome::Error,
        'L' => Outcome::Late,
        'C' => Outcome::Cancelled,
        other => panic!("no outcome {other}"),
    }
}

/// Takes outcomes one after the other and says what is known after each: S passed, F failed, `-` nothing yet.
fn after_each(kind: ProbeKind, probe: &Probe, outcomes: &str) -> (String, ProbeMemory) {
    let mut memory = ProbeMemory::default();
    let known = outcomes
        .chars()
        .zip(0..)
        .map(|(letter, second)| {
            let report = report(outcome(letter), "");
            let mut effect = take(&mut memory, kind, probe, &report, moment(second));
            if letter == 'E' {
                assert_eq!(effect, Effect::TryAgain, "{outcomes}: first try");
                assert_eq!(take(&mut memory, kind, probe, &report, moment(second)), Effect::TryAgain, "second try");
                effect = take(&mut memory, kind, probe, &report, moment(second));
            }
            assert_ne!(effect, Effect::TryAgain, "{outcomes}: a round has three tries at most");
            match memory.verdict.passed() {
                None => '-',
                Some(true) => 'S',
                Some(false) => 'F',
            }
        })
        .collect();
    (known, memory)
}

/// VEC-16..VEC-20, PROBE-22, CON-18f, SCN-U7, SCN-U10, SCN-U11: a threshold is reached at N results in a row, and
/// until then the last verdict stands. A readiness probe without a verdict (`-`) is as good as a failed one (PROBE-12).
#[test]
fn readiness_follows_the_vectors() {
    let rows = [
        ("VEC-16", 1, 3, "SFFFFS", "SSSFFS"),
        ("VEC-17", 3, 1, "SSSSFSSS", "--SSFFFS"),
        ("VEC-18", 1, 1, "FSF", "FSF"),
        ("VEC-19", 2, 2, "SFSSFF", "---SSF"),
        ("VEC-20: errors neither count nor reset the run", 1, 3, "SFEFF", "SSSSF"),
        ("SCN-U10: again and again", 1, 3, "SFFFSFFFSFFS", "SSSFSSSFSSSS"),
        ("SCN-U11", 3, 1, "FSSSF", "FFFSF"),
        ("a success in between starts the count anew", 1, 3, "SFFSFFSFFF", "SSSSSSSSSF"),
        ("a failure in between starts the count anew", 3, 2, "SSFSSFSSS", "--------S"),
        ("warnings are successes", 2, 1, "WWFWS", "-SFFS"),
    ];
    for (name, success, failure, outcomes, known) in rows {
        let (seen, memory) = after_each(ProbeKind::Readiness, &probe(success, failure), outcomes);
        assert_eq!(seen, known, "{name}");
        assert!(!memory.on_hold, "{name}: readiness goes on for ever");
    }
}

/// PROBE-19, VEC-20 (superseded for readiness errors), SCN-U30: errors have a streak of their own. For readiness and
/// startup it counts as a failure after failureThreshold rounds in a row; for liveness it never does.
#[test]
fn errors_make_a_container_unready_but_never_kill_by_liveness() {
    let rows = [
        (ProbeKind::Readiness, 1, 3, "SEEE", "SSSF"),
        (ProbeKind::Readiness, 1, 3, "EEE", "--F"),
        (ProbeKind::Readiness, 1, 3, "SEEEEES", "SSSFFFS"),
        (ProbeKind::Readiness, 1, 3, "SEEFEES", "SSSSSSS"),
        (ProbeKind::Readiness, 1, 3, "SEESEEE", "SSSSSSF"),
        (ProbeKind::Readiness, 1, 3, "SFEFEE", "SSSSSS"),
        (ProbeKind::Readiness, 1, 3, "SELECE", "SSSSSF"),
        (ProbeKind::Readiness, 1, 1, "SES", "SFS"),
        // Successes from before the errors do not shorten the way back.
        (ProbeKind::Readiness, 3, 2, "SSSEESSS", "--SSFFFS"),
        // Failures from before do not count twice either.
        (ProbeKind::Readiness, 1, 2, "FEESFS", "--FSSS"),
        (ProbeKind::Startup, 1, 2, "EE", "-F"),
        (ProbeKind::Startup, 1, 2, "EFE", "---"),
        (ProbeKind::Liveness, 1, 1, "EEEE", "----"),
        (ProbeKind::Liveness, 1, 2, "SFEEEEF", "SSSSSSF"),
    ];
    for (kind, success, failure, outcomes, known) in rows {
        let (seen, _) = after_each(kind, &probe(success, failure), outcomes);
        assert_eq!(seen, known, "{kind} S={success} F={failure} {outcomes}");
    }
}

/// PROBE-19: one round is three tries; a real answer on the second or third try ends it, and the round did not fail.
#[test]
fn an_error_is_tried_three_times_at_once() {
    let (spec, kind) = (probe(1, 1), ProbeKind::Readiness);
    for (answer, verdict) in [("S", Some(true)), ("F", Some(false)), ("L", None), ("C", None)] {
        let mut memory = ProbeMemory::default();
        for tries in 1..=2 {
            assert_eq!(take(&mut memory, kind, &spec, &report(Outcome::Error, "no port"), moment(1)), Effect::TryAgain);
            assert_eq!((memory.tries, memory.errors), (tries, 0));
        }
        let last = report(outcome(answer.chars().next().unwrap()), "");
        assert_ne!(take(&mut memory, kind, &spec, &last, moment(1)), Effect::TryAgain);
        assert_eq!((memory.tries, memory.errors), (0, 0), "{answer}: the next round has three tries again");
        assert_eq!(memory.verdict.passed(), verdict, "{answer}");
    }
    let (_, memory) = after_each(kind, &probe(1, 3), "EE");
    assert_eq!((memory.tries, memory.errors), (0, 2));
    let (_, memory) = after_each(kind, &probe(1, 3), "EES");
    assert_eq!((memory.tries, memory.errors), (0, 0));
}

/// PROBE-19: late and cancelled attempts are remembered as the newest attempt, late ones by their first, and change
/// nothing else.
#[test]
fn late_and_cancelled_attempts_never_count() {
    for kind in ProbeKind::ALL {
        for letter in ['L', 'C'] {
            let spec = probe(1, 3);
            let (_, before) = after_each(kind, &spec, "FF");
            let mut memory = before.clone();
            for second in 10..20 {
                let effect = take(&mut memory, kind, &spec, &report(outcome(letter), "held up"), moment(second));
                assert_eq!(effect, Effect::None);
            }
            let last = memory.last.clone().unwrap();
            assert_eq!((last.at, last.outcome, last.output.as_str()), (moment(19), outcome(letter), "held up"));
            memory.last = before.last.clone();
            let late_since = memory.late_since.take();
            assert_eq!(late_since, (letter == 'L').then_some(moment(10)), "{kind} {letter}");
            assert_eq!(memory, before, "{kind} {letter}");
            let effect = take(&mut memory, kind, &spec, &report(Outcome::Failure, ""), moment(20));
            assert_eq!(effect, Effect::Changed, "the third failure still is the third");
        }
    }
}

/// PROBE-24, START-7, SCN-U12, SCN-U13, SCN-U14: below the threshold startup is undecided; once decided, either way,
/// it is on hold with its run forgotten. Liveness goes on hold when it has failed.
#[test]
fn startup_and_failed_liveness_go_on_hold() {
    let rows = [
        (ProbeKind::Startup, "FF", "--", false, Some(2)),
        (ProbeKind::Startup, "FFF", "--F", true, None),
        (ProbeKind::Startup, "FS", "-S", true, None),
        (ProbeKind::Startup, "S", "S", true, None),
        (ProbeKind::Liveness, "FF", "--", false, Some(2)),
        (ProbeKind::Liveness, "FFSFFF", "--SSSF", true, None),
        (ProbeKind::Liveness, "SSSS", "SSSS", false, Some(4)),
        (ProbeKind::Readiness, "FFF", "--F", false, Some(3)),
    ];
    for (kind, outcomes, known, on_hold, run) in rows {
        let (seen, memory) = after_each(kind, &probe(1, 3), outcomes);
        assert_eq!(seen, known, "{kind} {outcomes}");
        assert_eq!(memory.on_hold, on_hold, "{kind} {outcomes}");
        assert_eq!(memory.streak.map(|streak| streak.length), run, "{kind} {outcomes}");
    }
}

/// PROBE-23, SCN-U29: only another value than before is a change; an equal one is none, and neither is a result below
/// the threshold.
#[test]
fn only_a_different_verdict_is_a_change() {
    let spec = probe(2, 2);
    let mut memory = ProbeMemory::default();
    let effects: Vec<Effect> = "SSSSFFFS"
        .chars()
        .zip(0..)
        .map(|(letter, second)| {
            take(&mut memory, ProbeKind::Readiness, &spec, &report(outcome(letter), ""), moment(second))
        })
        .collect();
    let changed: Vec<usize> =
        effects.iter().enumerate().filter(|(_, effect)| **effect == Effect::Changed).map(|(index, _)| index).collect();
    assert_eq!(changed, [1, 5]);
    assert!(effects.iter().all(|effect| *effect != Effect::TryAgain));
}

/// PROBE-22, CON-9: a verdict names the attempt that decided it and how many it took; equal results confirm it
/// without moving its time. In the eyes of the next run of the agent it is carried, with all of that.
#[test]
fn a_verdict_names_its_evidence_and_is_carried_with_it() {
    let spec = probe(2, 3);
    let mut memory = ProbeMemory::default();
    for (second, letter) in [(1, 'S'), (2, 'W'), (3, 'S')] {
        take(
            &mut memory,
            ProbeKind::Readiness,
            &spec,
            &report(outcome(letter), &format!("at {second}")),
            moment(second),
        );
    }
    let decided = Verdict::Probed { passed: true, at: moment(2), streak: 2, output: "at 2".to_owned() };
    assert_eq!(memory.verdict, decided);
    assert_eq!(memory.streak, Some(Streak { passed: true, length: 3, last: moment(3) }));
    let last = memory.last.clone().unwrap();
    assert_eq!((last.at, last.outcome, last.output.as_str()), (moment(3), Outcome::Success, "at 3"));
    assert_eq!(last.latency, Duration::from_millis(3));
    for _ in 0..3 {
        memory.verdict.carry();
        let basis = Basis::Probe { at: moment(2), streak: 2, output: "at 2".to_owned() };
        assert_eq!(memory.verdict, Verdict::Carried { passed: true, basis });
    }
    // The first result after that confirms it: no change, but evidence of this run.
    let effect = take(&mut memory, ProbeKind::Readiness, &spec, &report(Outcome::Success, "now"), moment(9));
    assert_eq!(effect, Effect::None);
    let confirmed = Verdict::Probed { passed: true, at: moment(9), streak: 4, output: "now".to_owned() };
    assert_eq!(memory.verdict, confirmed);
}

/// PROBE-19: a failure that errors add up to names the last of them and the number of rounds.
#[test]
fn an_error_verdict_names_its_rounds() {
    let (_, memory) = after_each(ProbeKind::Readiness, &probe(1, 3), "SEEEE");
    let Verdict::Probed { passed: false, at, streak, .. } = memory.verdict else { panic!("{:?}", memory.verdict) };
    assert_eq!((at, streak), (moment(3), 3));
    assert_eq!(memory.errors, 4);
    assert_eq!(memory.streak, None);
}
