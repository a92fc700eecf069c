//! The loop around the rules: how a pod hears of things, what it consists of, and what it leaves when it goes.

use std::{sync::Arc, time::Duration};

use keelet_lifecycle::status::{ConditionType, Phase};
use keelet_pod::{Pod, ProbeKind, parse_one};
use keelet_sim::{CallKind, EventOdds, Fate, Happening, Occurrence, Reply, World, millis, secs};

const PLAIN: &str = "  containers:\n  - {name: main, image: app}\n";

/// A world in which no event of the runtime arrives.
fn deaf() -> World {
    let mut world = World::new(1).pod(PLAIN).without_agent().build();
    world.faults(|faults| faults.events = EventOdds { lost: 1000, ..EventOdds::default() });
    world.start_agent();
    world
}

/// How long it takes from an exit of `main` to its next start.
fn noticed_after(world: &mut World, limit: Duration) -> Duration {
    let (starts, exited) = (world.starts("main"), world.elapsed());
    world.exit("main", 1);
    assert!(world.run_until(limit, |world| world.starts("main") > starts), "{}", world.timeline_text());
    world.elapsed() - exited
}

/// SYNC-1: an exit is noticed at once from the event that tells of it; one that no event told is found by the audit,
/// within half a minute and a fifth of it.
#[test]
fn an_exit_is_noticed_from_its_event_or_found_by_the_audit() {
    let mut told = World::new(1).pod(PLAIN).build();
    told.run(secs(60));
    let after = noticed_after(&mut told, secs(40));
    assert!(after < millis(400), "{after:?}\n{}", told.timeline_text());
    let mut untold = deaf();
    untold.run(secs(60));
    let after = noticed_after(&mut untold, secs(40));
    assert!(after > secs(1) && after < secs(37), "{after:?}\n{}", untold.timeline_text());
}

/// SYNC-7: soon after an operation the pod is looked at often, so a lost event costs about a second.
#[test]
fn what_no_event_reported_is_found_soon_after_an_operation() {
    let mut world = deaf();
    assert!(world.run_until(secs(10), |world| world.holds(ConditionType::Ready)));
    let after = noticed_after(&mut world, secs(40));
    assert!(after < millis(1400), "{after:?}\n{}", world.timeline_text());
}

/// SYNC-3: a runtime that is away is asked again after 100 ms, then after twice that, and so on to 5 s; when it is back
/// the pod is as it was.
#[test]
fn a_runtime_that_is_away_is_asked_less_and_less() {
    let mut world = World::new(1).pod(PLAIN).build();
    // Right after the node's own search for remains, which asks the runtime too.
    world.run(secs(61));
    let (before, away) = (world.status(), world.elapsed());
    world.restart_runtime(secs(58)).run(secs(58));
    let asked: Vec<Duration> = world
        .timeline()
        .entries()
        .iter()
        .filter(|entry| entry.at > away)
        .filter(|entry| matches!(entry.what, Happening::Call { kind: CallKind::ListPodSandbox, fate: Fate::Lost, .. }))
        .map(|entry| entry.at)
        .collect();
    let pauses: Vec<u128> = asked.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    for (pause, expected) in pauses.iter().zip([100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]) {
        assert!((expected..expected + 50).contains(pause), "{pauses:?}\n{}", world.timeline_text());
    }
    assert!(pauses.len() >= 9, "{pauses:?}\n{}", world.timeline_text());
    world.settle();
    assert_eq!((world.status(), world.starts("main")), (before, 1));
}

/// SYNC-2: each pod has a task of its own: calls for one that never return hold up no other.
#[test]
fn a_pod_that_is_stuck_holds_up_no_other() {
    let mut world = World::new(1).named("stuck", PLAIN).named("free", PLAIN).without_agent().build();
    world.faults(|faults| faults.seal(CallKind::RunPodSandbox, "stuck", Fate::Hangs, 1)).start_agent().run(secs(5));
    assert_eq!(world.starts("stuck/main"), 0);
    assert_eq!(world.status_of("free").phase, Phase::Running, "{}", world.timeline_text());
    world.exit("free/main", 1).run(secs(1));
    assert_eq!(world.starts("free/main"), 2, "{}", world.timeline_text());
    world.settle();
    assert_eq!(world.starts("stuck/main"), 1);
}

/// What happened to the pod since then, in a word each: calls that change something, and events.
fn happenings(world: &World, since: Duration) -> Vec<String> {
    let word = |what: &Happening| match what {
        Happening::Call { kind: CallKind::ExecSync, .. } => Some("hook".to_owned()),
        Happening::Call { kind: CallKind::StopContainer, .. } => Some("stop".to_owned()),
        Happening::Call { kind: CallKind::PullImage, .. } => Some("pull".to_owned()),
        Happening::Call { kind: CallKind::CreateContainer, subject, .. } => {
            let attempt = subject.split_whitespace().find(|word| word.starts_with("attempt="));
            Some(format!("create {}", attempt.unwrap_or_default()))
        }
        Happening::Call { kind: CallKind::StartContainer, .. } => Some("start".to_owned()),
        Happening::Event { record, .. } => Some(record.reason.clone()),
        _ => None,
    };
    world.timeline().entries().iter().filter(|entry| entry.at >= since).filter_map(|entry| word(&entry.what)).collect()
}

/// Those of them that begin so: calls in lower case, events in upper case.
fn words(world: &World, since: Duration, begins: fn(char) -> bool) -> Vec<String> {
    happenings(world, since).into_iter().filter(|word| word.starts_with(begins)).collect()
}

/// PROC-5, EVT-4: a start is the image, then the container with its count, then the start, then the hook, and events
/// tell of it. Before another one comes the backoff.
#[test]
fn a_container_is_started_step_by_step() {
    let spec = "  containers:
  - {name: main, image: app, imagePullPolicy: Always, lifecycle: {postStart: {exec: {command: [hello]}}}}
";
    let mut world = World::new(1).pod(spec).build();
    world.run(secs(5));
    let calls = |world: &World, since| words(world, since, char::is_lowercase);
    let events = |world: &World, since| words(world, since, char::is_uppercase);
    let told = ["Pulling", "Pulled", "Created", "Started"];
    assert_eq!(calls(&world, secs(0)), ["pull", "create attempt=0", "start", "hook"], "{}", world.timeline_text());
    assert_eq!(events(&world, secs(0)), told, "{}", world.timeline_text());
    world.exit("main", 1).run(secs(5));
    let second = world.elapsed();
    world.exit("main", 1).run(secs(5));
    assert_eq!(happenings(&world, second), ["BackOff"], "{}", world.timeline_text());
    world.run(secs(6));
    assert_eq!(calls(&world, second), ["pull", "create attempt=2", "start", "hook"], "{}", world.timeline_text());
    assert_eq!(events(&world, second)[1..], told, "{}", world.timeline_text());
}

/// PROC-4, EVT-3, TERM-1: a stop is the event, the hook, the sidecar's turn, and the signal with what is left of the
/// grace. What is gone already counts as stopped.
#[test]
fn a_container_is_stopped_step_by_step() {
    let spec = "  terminationGracePeriodSeconds: 20
  initContainers:
  - {name: side, image: proxy, restartPolicy: Always}
  containers:
  - {name: main, image: app, lifecycle: {preStop: {exec: {command: [goodbye]}}}}
";
    for vanishes in [false, true] {
        let mut world = World::new(1).pod(spec).build();
        world.script("main").command("goodbye", keelet_sim::Answer::new(Reply::Pass).after(secs(5)));
        world.run(secs(20));
        let since = world.elapsed();
        world.delete("web").run(secs(1));
        if vanishes {
            world.lose("main");
        }
        assert!(world.run_until(secs(30), |world| !world.has_remains("web")), "{}", world.timeline_text());
        let rest: &[&str] = if vanishes { &["FailedPreStopHook", "stop"] } else { &["stop", "stop"] };
        let expected = [&["Killing", "Killing", "hook"], rest].concat();
        assert_eq!(happenings(&world, since), expected, "{}", world.timeline_text());
        let calls: Vec<(Duration, String)> = world
            .timeline()
            .entries()
            .iter()
            .filter_map(|entry| match &entry.what {
                Happening::Call { kind: CallKind::StopContainer, subject, .. } => Some((entry.at, subject.clone())),
                _ => None,
            })
            .collect();
        assert!(calls.iter().all(|(_, subject)| subject.contains("grace=1")), "10 to 19 s are left: {calls:?}");
        assert!(vanishes || calls[0].0 - since >= secs(5), "{calls:?}");
        assert!(calls.last().is_some_and(|(_, subject)| subject.contains("side")), "{calls:?}");
    }
}

/// PROBE-45, SCN-U24: once a pod is gone nothing of it is asked, whatever was under way.
#[test]
fn a_pod_that_is_gone_is_not_asked() {
    let spec = "  containers:
  - name: main
    image: app
    readinessProbe: {exec: {command: [serving]}, periodSeconds: 1, timeoutSeconds: 30}
    livenessProbe: {exec: {command: [alive]}, periodSeconds: 1, timeoutSeconds: 30}
";
    let asked = |world: &World, since: Duration| {
        let is_exec = |what: &Happening| matches!(what, Happening::Call { kind: CallKind::ExecSync, .. });
        world.timeline().entries().iter().filter(|entry| entry.at > since && is_exec(&entry.what)).count()
    };
    for reply in [Reply::Pass, Reply::Hang] {
        let mut world = World::new(1).pod(spec).build();
        world.script("main").answers(ProbeKind::Readiness, reply);
        world.run(secs(10));
        assert!(asked(&world, secs(0)) > 5, "{}", world.timeline_text());
        world.delete("web");
        assert!(world.run_until(secs(30), |world| !world.has_remains("web")), "{}", world.timeline_text());
        let gone = world.elapsed();
        world.run(secs(60));
        assert_eq!(asked(&world, gone), 0, "{reply}\n{}", world.timeline_text());
    }
}

/// API-10, API-19: what comes under the UID of a pod that is on its way out waits until that one is gone, also over a
/// restart of the agent. The dying one is asked as often as its own spec says.
#[test]
fn another_content_under_the_same_uid_waits_until_the_pod_is_gone() {
    let version = |period: u16| -> Pod {
        let probe = format!("readinessProbe: {{tcpSocket: {{port: 1}}, periodSeconds: {period}}}");
        let head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, uid: same}\n";
        parse_one(&format!("{head}spec:\n  containers: [{{name: main, image: app, {probe}}}]\n")).expect("valid")
    };
    for restart in [false, true] {
        let mut world = World::new(1).with(version(1)).build();
        world.script("main").ignores_term();
        world.run(secs(10));
        world.delete("web").run(secs(5));
        if restart {
            world.kill_agent();
        }
        world.add_pod(version(10));
        if restart {
            world.start_agent();
        }
        let changed = world.elapsed();
        world.run(secs(85));
        let is_gone = |what: &Happening| matches!(what, Happening::PodGone { .. });
        let gone = world.timeline().entries().iter().find(|entry| is_gone(&entry.what)).map(|entry| entry.at);
        let gone = gone.unwrap_or_else(|| panic!("it never went\n{}", world.timeline_text()));
        let attempts = |from: Duration, to: Duration| {
            let within =
                |entry: &&Occurrence| (from..to).contains(&entry.at) && matches!(entry.what, Happening::Probed(_));
            world.timeline().entries().iter().filter(within).count()
        };
        let (dying, next) = (attempts(changed, gone), attempts(gone, world.elapsed()));
        assert!((20..30).contains(&dying) && (4..9).contains(&next), "{dying} {next}\n{}", world.timeline_text());
        assert_eq!(world.status().phase, Phase::Running);
    }
}

/// API-10, API-19: a manifest that changes probes or rules is another pod. The living one keeps its own until it is
/// gone, and only then the other one starts.
#[test]
fn another_pod_of_the_same_name_waits_until_the_first_is_gone() {
    let version = |uid: &str, port: u16| -> Pod {
        let rules =
            "restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]";
        let rules = if uid == "old" { "" } else { rules };
        let probe = format!("readinessProbe: {{tcpSocket: {{port: {port}}}, periodSeconds: 1}}");
        let head = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, uid: {uid}}}\n");
        parse_one(&format!("{head}spec:\n  containers: [{{name: main, image: app, {probe}, {rules}}}]\n"))
            .expect("valid")
    };
    let mut world = World::new(1).with(version("old", 1)).build();
    world.script("main").ignores_term();
    world.run(secs(10));
    let (old, changed) = (world.spec("web"), world.elapsed());
    world.delete("web").add_pod(version("new", 2));
    world.run(secs(90));
    let asked: Vec<(Duration, Arc<str>)> = world
        .timeline()
        .entries()
        .iter()
        .filter(|entry| entry.at >= changed)
        .filter_map(|entry| match &entry.what {
            Happening::Probed(attempt) => Some((entry.at, Arc::from(format!("{} {}", attempt.pod, attempt.question)))),
            _ => None,
        })
        .collect();
    let first_new = asked.iter().position(|(_, asked)| asked.starts_with("new")).expect("the new one is asked");
    let (of_old, of_new) = asked.split_at(first_new);
    assert!(of_old.len() > 20 && of_old.iter().all(|(_, asked)| asked.starts_with("old") && asked.ends_with(":1")));
    assert!(of_new.iter().all(|(_, asked)| asked.starts_with("new") && asked.ends_with(":2")), "{of_new:?}");
    let is_gone = |what: &Happening| matches!(what, Happening::PodGone { pod } if *pod == old.uid);
    let gone = world.timeline().entries().iter().find(|entry| is_gone(&entry.what)).map(|entry| entry.at);
    assert!(gone.is_some_and(|gone| gone <= world.container_runs("main")[0].began), "{}", world.timeline_text());
    assert_eq!(world.status().phase, Phase::Running);
}
