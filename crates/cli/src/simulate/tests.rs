//! What the outlook says of probes, against what the real agent does in simulated time.

use std::time::Duration;

use keelet_explain::simulation::{Outlook, Record, Summary, outlooks};
use keelet_lifecycle::{
    Rules,
    journal::{Note, What},
    operation::Outcome,
};
use keelet_pod::{Features, Pod, ProbeKind};

use super::{
    plain::plain,
    play::{Played, play},
    scenario::{Requested, Scenario},
};

/// What a probe's attempt, its result and a plan take in the simulation.
const LEEWAY: Duration = Duration::from_millis(200);

fn pod(probes: &str) -> Pod {
    pod_of("app", probes)
}

fn pod_of(image: &str, probes: &str) -> Pod {
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  containers:\n  - {{name: main, image: '{image}', {probes}}}\n"
    );
    keelet_pod::parse_one(&manifest).unwrap_or_else(|report| panic!("{report:#?}"))
}

fn of(pod: &Pod) -> Outlook {
    outlooks(pod).remove(0)
}

fn simulate(pod: &Pod, requested: &Requested) -> (Record, Summary) {
    let scenario = Scenario::new(pod, requested).unwrap();
    let rules = Rules::of(&Features::default());
    let Played { record, violations } = play(pod, &scenario, &Features::default(), rules, 1);
    assert_eq!(violations, []);
    let summary = Summary::of(&record, &scenario.absences, scenario.span);
    (record, summary)
}

fn at(record: &Record, is_it: impl Fn(&Note) -> bool) -> Option<Duration> {
    record.journal.iter().find(|note| is_it(note)).map(|note| record.since_beginning(note.at))
}

/// START-5, START-11, PROBE-4.
#[test]
fn a_start_is_kept_within_its_budget_and_killed_beyond_it() {
    for probes in [
        "startupProbe: {tcpSocket: {port: 80}, periodSeconds: 10, failureThreshold: 4}",
        "startupProbe: {exec: {command: [up]}, initialDelaySeconds: 5, periodSeconds: 2, failureThreshold: 3}",
        "startupProbe: {grpc: {port: 80}, periodSeconds: 3}, livenessProbe: {grpc: {port: 80}, periodSeconds: 1, failureThreshold: 1}",
        "livenessProbe: {httpGet: {port: 80}, periodSeconds: 7, failureThreshold: 2}",
        "livenessProbe: {httpGet: {port: 80}, periodSeconds: 60, failureThreshold: 1}",
        "livenessProbe: {exec: {command: [up]}, initialDelaySeconds: 20, periodSeconds: 4}",
    ] {
        let pod = pod(probes);
        let longest = of(&pod).start.unwrap().longest;
        for (takes, kept) in [(longest, true), (longest + Duration::from_secs(1), false)] {
            let slow_starts = vec![super::options::SlowStart { container: None, takes }];
            let span = Some(longest + Duration::from_secs(30));
            let (record, summary) = simulate(&pod, &Requested { slow_starts, span, ..Requested::default() });
            let killed = at(&record, |note| matches!(note.what, What::Killing { .. }));
            assert_eq!(killed.is_none(), kept, "{probes} {takes:?}");
            assert_eq!(summary.containers[0].restarts == 0, kept, "{probes} {takes:?}");
            if let Some(killed) = killed {
                assert!((longest..longest + LEEWAY).contains(&killed), "{probes}: killed at {killed:?}");
            }
        }
    }
}

/// PROBE-4: whenever a container begins to hang, it takes no longer than foretold, and the worst case is met.
#[test]
fn hangs_are_noticed_as_foretold() {
    for numbers in [
        "periodSeconds: 5, failureThreshold: 3, timeoutSeconds: 1",
        "periodSeconds: 4, failureThreshold: 1, timeoutSeconds: 2",
        "periodSeconds: 5, failureThreshold: 3, timeoutSeconds: 7",
        "periodSeconds: 5, failureThreshold: 2, timeoutSeconds: 5",
    ] {
        for (kind, name) in [(ProbeKind::Liveness, "liveness"), (ProbeKind::Readiness, "readiness")] {
            let pod = pod(&format!("{name}Probe: {{httpGet: {{port: 80}}, {numbers}}}"));
            let foretold = match (of(&pod), kind) {
                (outlook, ProbeKind::Liveness) => outlook.liveness.unwrap().hang,
                (outlook, _) => outlook.readiness.unwrap().hang,
            };
            for second in [20, 23] {
                let hanging = vec![format!("{name}@{second}s").parse().unwrap()];
                let span = Some(Duration::from_secs(second) + foretold + LEEWAY);
                let (record, _) = simulate(&pod, &Requested { hanging, span, ..Requested::default() });
                let began = Duration::from_secs(second);
                let noticed = at(&record, |note| match note.what {
                    What::Killing { .. } => kind == ProbeKind::Liveness,
                    What::Ready { value: false, .. } => record.since_beginning(note.at) > began,
                    _ => false,
                });
                let noticed = noticed.unwrap_or_else(|| panic!("{name} {numbers}: not noticed"));
                assert!(noticed - began <= foretold, "{name} {numbers} @{second}: {noticed:?}");
                let passed = record.history.iter().rev().find(|tried| tried.outcome == Outcome::Success).unwrap();
                let since_pass = noticed - record.since_beginning(passed.at);
                if kind == ProbeKind::Readiness {
                    assert!((foretold - LEEWAY..=foretold + LEEWAY).contains(&since_pass), "{numbers}: {since_pass:?}");
                }
            }
        }
    }
}

#[test]
fn no_attempt_and_no_change_is_lost_however_many_there_are() {
    let pod = pod("livenessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}, \
                   readinessProbe: {tcpSocket: {port: 81}, periodSeconds: 2, failureThreshold: 1}");
    let requested = Requested {
        failing: (1..40).map(|tens| format!("readiness@{tens}0s+5s").parse().unwrap()).collect(),
        agent_restarts: vec!["@123s".parse().unwrap()],
        reboots: vec!["@207s+2s".parse().unwrap()],
        span: Some(Duration::from_secs(400)),
        ..Requested::default()
    };
    let (record, summary) = simulate(&pod, &requested);
    assert_eq!(summary.containers[0].restarts, 1);
    let changes = record.journal.iter().filter(|note| matches!(note.what, What::Ready { .. })).count();
    assert!(record.journal.len() > 200 && changes >= 2 * 39, "{} {changes}", record.journal.len());
    let mut once = record.journal.clone();
    once.dedup();
    assert_eq!(once.len(), record.journal.len());
    // One a second, before the agent is killed.
    let before = |tried: &&keelet_lifecycle::ProbeRecord| {
        tried.probe == ProbeKind::Liveness && record.since_beginning(tried.at) < Duration::from_secs(123)
    };
    assert_eq!(record.history.iter().filter(before).count(), 122);
}

#[test]
fn what_cannot_be_simulated_is_left_out_and_said() {
    // An image that only manifests of a node may name, as those of the examples do.
    let pod = pod_of(
        "rootfs:/",
        "livenessProbe: {httpGet: {port: 80, scheme: HTTPS, host: example.org}}, readinessProbe: {tcpSocket: {port: 81, host: a}}",
    );
    let uid = pod.uid.clone();
    let (plain, remarks) = plain(pod, &Features::default());
    assert_eq!(
        remarks,
        ["main: readiness is simulated without its host", "main: liveness is simulated without its TLS and its host"]
    );
    assert_eq!(plain.uid, uid);
    let (_, summary) = simulate(&plain, &Requested::default());
    assert!(summary.ready_at_end);
    assert_eq!(summary.containers[0].restarts, 0);
}

#[test]
fn a_broken_promise_is_a_bug_and_said_to_be_one() {
    let at = Duration::from_secs(5);
    let violation = keelet_sim::Violation { at, check: "order", message: "main before setup".to_owned() };
    let told = super::broken(std::slice::from_ref(&violation), 7);
    assert!(told.starts_with("internal error: the simulated agent broke a promise. This is a bug in keelet"), "{told}");
    assert!(told.ends_with(&format!("the seed 7:\n  {violation}")), "{told}");
    let told = super::broken(&[violation.clone(), violation], 7);
    assert!(told.contains("broke 2 promises") && told.lines().count() == 3, "{told}");
}
