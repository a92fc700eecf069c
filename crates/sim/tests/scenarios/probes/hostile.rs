//! One pod whose probes never end, beside a node full of honest ones.

use std::time::Duration;

use keelet_pod::ProbeKind::{Liveness, Readiness};
use keelet_sim::{Answer, Reply, World, secs};

/// Pods beside the hostile one: a node is said to hold 110.
const HONEST: usize = 109;
/// How often an honest pod is asked.
const PERIOD: u64 = 2;

/// A pod with 66 exec probes that may take 68 years each.
fn hostile() -> String {
    let probe =
        |word: &str| format!("{{exec: {{command: [hang, {word}]}}, periodSeconds: 1, timeoutSeconds: 2147483647}}");
    let (live, ready) = (probe("live"), probe("ready"));
    let containers: String = (0..33)
        .map(|number| {
            format!("  - name: c{number}\n    image: app\n    livenessProbe: {live}\n    readinessProbe: {ready}\n")
        })
        .collect();
    format!("  containers:\n{containers}")
}

fn honest(number: usize) -> String {
    let handlers = [
        "exec: {command: [up]}",
        "httpGet: {path: /healthz, port: 8080}",
        "exec: {command: [check]}",
        "tcpSocket: {port: 8080}",
        "grpc: {port: 5000}",
    ];
    let handler = handlers[number % handlers.len()];
    format!(
        "  containers:\n  - name: main\n    image: app\n    readinessProbe: {{{handler}, periodSeconds: {PERIOD}, failureThreshold: 1}}\n"
    )
}

fn not_yet(world: &World, ready: bool) -> Vec<String> {
    let names = (0..HONEST).map(|number| format!("honest-{number}"));
    names.filter(|name| world.container(&format!("{name}/main")).ready != ready).collect()
}

/// PROBE-46, PROBE-50, EVT-11: whatever one pod's probes do, the verdicts of all others come within a period and a second.
#[test]
fn a_pod_whose_probes_never_end_delays_no_verdict_of_another_pod() {
    let mut builder = World::new(9).named("hostile", &hostile());
    for number in 0..HONEST {
        builder = builder.named(&format!("honest-{number}"), &honest(number));
    }
    let mut world = builder.build();
    for number in 0..33 {
        let script = world.script(&format!("hostile/c{number}"));
        script.answers(Liveness, Answer::new(Reply::Hang)).answers(Readiness, Answer::new(Reply::Hang));
    }
    // Long enough for the hostile pod to take whatever it can get.
    world.run(secs(20));
    assert_eq!(not_yet(&world, true), [""; 0], "not ready though they pass");
    for (reply, ready) in [(Reply::Fail, false), (Reply::Pass, true), (Reply::Fail, false)] {
        for number in 0..HONEST {
            world.script(&format!("honest-{number}/main")).answers(Readiness, Answer::new(reply));
        }
        world.run(Duration::from_secs(PERIOD + 1));
        assert_eq!(not_yet(&world, ready), [""; 0], "a period and a second after they began to {reply:?}");
        world.run(secs(7));
    }
    // The hostile pod is at its cap with a quarter of 64 permits; what it does not get of its own is said.
    let overdue = world.overdue_probes();
    assert_eq!(overdue.len(), 66 - 16, "{overdue:?}");
    assert!(overdue.iter().all(|name| name.starts_with("hostile/")), "{overdue:?}");
    assert!(world.saw_event("ProbeLate", "probe: this node could not run the probe for "), "no event tells of it");
}
