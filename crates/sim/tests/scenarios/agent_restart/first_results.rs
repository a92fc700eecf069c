//! After an agent start no container stays unprobed for long.

use std::time::Duration;

use keelet_pod::ProbeKind;
use keelet_sim::{Answer, Happening, Random, Reply, World, millis, secs};

use super::Way;

/// The first look at the runtime comes before the first question.
const LOOK: Duration = millis(50);

/// Periods and timeouts in seconds, and how the probe answers.
const ROWS: [(u64, u64, Reply, u64); 7] = [
    (1, 1, Reply::Pass, 2),
    (1, 1, Reply::Hang, 0),
    (2, 5, Reply::Pass, 1_500),
    (10, 1, Reply::Fail, 900),
    (60, 3, Reply::Hang, 0),
    (300, 1, Reply::Pass, 2),
    (300, 30, Reply::Pass, 20_000),
];

fn fleet(way: Way) -> World {
    let mut world = World::new(7);
    if matches!(way, Way::KilledInCluster | Way::LedgerLost) {
        world = world.cluster();
    }
    for (row, (period, timeout, _, _)) in ROWS.iter().enumerate() {
        let timing = format!("periodSeconds: {period}, timeoutSeconds: {timeout}, failureThreshold: 1000");
        world = world.named(
            &format!("pod-{row}"),
            &format!(
                "  initContainers:
  - name: proxy
    image: proxy
    restartPolicy: Always
    readinessProbe: {{exec: {{command: [serving]}}, {timing}}}
  containers:
  - name: main
    image: app
    livenessProbe: {{httpGet: {{path: /alive, port: 8080}}, {timing}}}
    readinessProbe: {{httpGet: {{path: /ready, port: 8080}}, {timing}}}
  - name: slow
    image: app
    startupProbe: {{exec: {{command: [up]}}, {timing}}}
"
            ),
        );
    }
    let world = world.build();
    for (row, (_, _, reply, after)) in ROWS.into_iter().enumerate() {
        let answer = Answer::new(reply).after(millis(after));
        for container in ["proxy", "main"] {
            let script = world.script(&format!("pod-{row}/{container}"));
            script.answers(ProbeKind::Liveness, answer).answers(ProbeKind::Readiness, answer);
        }
        world.script(&format!("pod-{row}/slow")).answers(ProbeKind::Startup, Answer { reply: Reply::Fail, ..answer });
    }
    world
}

/// CON-8, KEEP-22, SCN-K28: after an agent start every kept probe has its first real result within
/// min(period, 1 s) + timeout: whatever its kind, its period and its timeout, whether it passes, fails or hangs, with
/// a ledger or without.
#[test]
fn every_kept_probe_has_its_first_result_soon_after_an_agent_start() {
    for way in Way::ALL {
        let mut world = fleet(way);
        let mut random = Random::new(42);
        // Liveness comes at most ten seconds after the start.
        world.run(secs(13));
        for round in 0..8 {
            way.end(&mut world);
            world.run(random.millis(secs(4)));
            let at = world.elapsed();
            way.begin(&mut world);
            world.run(millis(1_100 + random.within(0..2_000)));
            for (row, (period, timeout, _, after)) in ROWS.into_iter().enumerate() {
                let (period, timeout) = (secs(period), secs(timeout));
                for (container, kind) in [
                    ("proxy", ProbeKind::Readiness),
                    ("main", ProbeKind::Liveness),
                    ("main", ProbeKind::Readiness),
                    ("slow", ProbeKind::Startup),
                ] {
                    let case = format!("{way:?}, round {round}, pod-{row}/{container}, {kind}");
                    let asked = world.probes(&format!("pod-{row}/{container}"), kind, at);
                    let (when, attempt) = asked.first().unwrap_or_else(|| panic!("{case}: not asked"));
                    let takes = if attempt.reply == Reply::Hang { timeout } else { millis(after).min(timeout) };
                    let limit = period.min(secs(1)) + timeout + LOOK;
                    assert!(*when + takes - at <= limit, "{case}: {:?} after {limit:?}", *when + takes - at);
                    // The question is what can be late; the answer may be quick.
                    assert!(*when - at <= period.min(secs(1)) + LOOK, "{case}: {:?}", *when - at);
                }
            }
        }
    }
}

/// CON-8: no storm either: the questions of an agent start are spread by the phase that they had, and never more than
/// the limit are under way.
#[test]
fn the_first_questions_are_spread() {
    let mut world = World::new(3);
    for number in 0..40 {
        let probe = "readinessProbe: {exec: {command: [serving]}, periodSeconds: 10}";
        let spec = format!("  containers:\n  - {{name: main, image: app, {probe}}}\n");
        world = world.named(&format!("pod-{number}"), &spec);
    }
    let mut world = world.without_agent().build();
    // They come up one after the other, as pods do.
    for number in 0..40 {
        world.script(&format!("pod-{number}/main")).starts_slowly(millis(250 * number));
    }
    world.start_agent().run(secs(30)).restart_agent(secs(2));
    let at = world.elapsed();
    world.run(secs(2));
    let mut slots = [0_u32; 10];
    for entry in world.timeline().entries().iter().filter(|entry| entry.at >= at) {
        if matches!(entry.what, Happening::Probed(_)) {
            let slot = usize::try_from((entry.at - at).as_millis() / 101).unwrap_or(usize::MAX);
            slots[slot.min(9)] += 1;
        }
    }
    assert_eq!(slots.iter().sum::<u32>(), 40);
    assert!(slots.iter().all(|asked| *asked <= 20), "{slots:?}");
}
