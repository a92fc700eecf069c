//! Pre-stop hooks.

use keelet_pod::ProbeKind::{self, Liveness, Readiness, Startup};
use keelet_sim::{Answer, CallKind, Reply, World, secs};

use super::{assert_about, assert_before, calls, end_of, run, world};

fn hooked(fields: &str, hook: &str) -> World {
    world(&format!(
        "  terminationGracePeriodSeconds: 30
  containers:
  - name: main
    image: app
    lifecycle: {{preStop: {hook}}}
{fields}"
    ))
}

const GOODBYE: &str = "{exec: {command: [goodbye]}}";

fn probe(kind: ProbeKind) -> String {
    format!("    {0}Probe: {{exec: {{command: [{0}]}}, periodSeconds: 1, failureThreshold: 1}}\n", kind.as_str())
}

/// SCN-T2.
#[test]
fn a_hook_is_called_when_a_probe_kills() {
    for kind in [Startup, Liveness] {
        let mut world = hooked(&probe(kind), GOODBYE);
        world.script("main").answers(kind, Reply::Fail).command("goodbye", Answer::new(Reply::Pass).after(secs(3)));
        world.run(secs(10));
        let hooks = calls(&world, CallKind::ExecSync, "goodbye");
        let stops = calls(&world, CallKind::StopContainer, "main");
        assert!(!hooks.is_empty() && !stops.is_empty(), "{kind:?}\n{}", world.timeline_text());
        assert_about(stops[0] - hooks[0], secs(3));
        assert_before(stops[0], end_of(&world.container_runs("main")[0]));
        assert!(world.container("main").restart_count >= 1, "{kind:?}");
    }
}

/// SCN-T3.
#[test]
fn readiness_is_asked_for_during_a_hook_and_liveness_is_not() {
    for deleted in [false, true] {
        let mut world = hooked(&(probe(Readiness) + &probe(Liveness)), GOODBYE);
        world.script("main").command("goodbye", Answer::new(Reply::Pass).after(secs(10)));
        world.run(secs(10));
        assert!(world.container("main").ready);
        if deleted {
            world.delete("web");
        } else {
            world.answer("main", Liveness, Reply::Fail);
        }
        assert!(world.run_until(secs(3), |world| !calls(world, CallKind::ExecSync, "goodbye").is_empty()));
        let hook = world.elapsed();
        world.run(secs(4));
        assert!(world.container("main").ready);
        world.answer("main", Readiness, Reply::Fail).run(secs(3));
        assert!(!world.container("main").ready);
        assert!(world.probes("main", Readiness, hook).len() >= 6);
        assert_eq!(world.probes("main", Liveness, hook), []);
        assert_eq!(world.starts("main"), 1);
        assert_eq!(calls(&world, CallKind::StopContainer, "main"), []);
    }
}

/// SCN-T4, TERM-11.
#[test]
fn hooks_of_every_kind_run_before_the_signal() {
    let cases = [
        (GOODBYE, 4),
        ("{httpGet: {path: /goodbye, port: 8080}}", 4),
        // The server speaks plain HTTP, so it is asked once more in plain HTTP.
        ("{httpGet: {path: /goodbye, port: 8080, scheme: HTTPS}}", 4),
        ("{sleep: {seconds: 7}}", 7),
        ("{sleep: {seconds: 0}}", 0),
    ];
    for (hook, takes) in cases {
        let mut world = hooked("", hook);
        let answer = Answer::new(Reply::Pass).after(secs(4));
        world.script("main").command("goodbye", answer).page("/goodbye", answer);
        world.run(secs(10));
        let deleted = world.elapsed();
        world.delete("web").run(secs(40));
        let stops = calls(&world, CallKind::StopContainer, "main");
        assert_eq!(stops.len(), 1, "{hook}");
        assert_about(stops[0] - deleted, secs(takes));
        assert!(!world.saw_event("FailedPreStopHook", ""), "{hook}");
        assert_eq!(world.saw_event("LifecycleHTTPFallback", ""), hook.contains("HTTPS"), "{hook}");
        assert!(!world.has_remains("web"), "{hook}");
    }
}

/// SCN-T4, EVT-5.
#[test]
fn a_hook_that_fails_is_reported_and_the_container_is_stopped_all_the_same() {
    for hook in [GOODBYE, "{httpGet: {path: /goodbye, port: 9999, host: 10.9.9.9}}"] {
        let mut world = hooked("", hook);
        world.script("main").command("goodbye", Reply::Fail);
        world.run(secs(10));
        let deleted = world.elapsed();
        world.delete("web").run(secs(20));
        assert!(world.saw_event("FailedPreStopHook", ""), "{hook}");
        assert!(end_of(&run(&world, "main")) - deleted < secs(2), "{hook}");
    }
}

/// SCN-T4. A grace period that is made shorter counts at once, for a sleep under way too.
#[test]
fn a_shorter_grace_cuts_a_sleep_short() {
    let mut world = hooked("", "{sleep: {seconds: 25}}");
    world.script("main").ignores_term();
    world.run(secs(10));
    world.delete_within("web", secs(30)).run(secs(5));
    assert!(world.running("main").is_some());
    let shortened = world.elapsed();
    world.delete_within("web", secs(3)).run(secs(20));
    assert_about(calls(&world, CallKind::StopContainer, "main")[0] - shortened, secs(3));
    assert_about(end_of(&run(&world, "main")) - shortened, secs(5));
    assert!(!world.has_remains("web"));
}

/// SCN-T4.
#[test]
fn a_container_that_has_ended_runs_no_hook_and_delays_no_other() {
    let mut world = world(
        "  restartPolicy: Never
  containers:
  - {name: main, image: app, lifecycle: {preStop: {sleep: {seconds: 20}}}}
  - {name: done, image: app, lifecycle: {preStop: {exec: {command: [goodbye]}}}}
",
    );
    world.script("done").exits(0).after(secs(2));
    world.run(secs(10));
    world.exit("main", 0).run(secs(5));
    let deleted = world.elapsed();
    world.delete("web");
    assert!(world.run_until(secs(10), |world| !world.has_remains("web")));
    assert!(world.elapsed() - deleted < secs(2));
    assert_eq!(calls(&world, CallKind::ExecSync, "goodbye"), []);
    assert!(!world.saw_event("FailedPreStopHook", ""));
}

/// SCN-T4. While its neighbours still have to be stopped, too.
#[test]
fn only_containers_that_run_have_their_hooks_run() {
    let mut world = world(
        "  restartPolicy: Never
  containers:
  - {name: main, image: app, lifecycle: {preStop: {exec: {command: [goodbye, main]}}}}
  - {name: done, image: app, lifecycle: {preStop: {exec: {command: [goodbye, done]}}}}
",
    );
    world.script("done").exits(0).after(secs(2));
    world.run(secs(10));
    world.delete("web").run(secs(20));
    assert_eq!(calls(&world, CallKind::ExecSync, "goodbye main").len(), 1);
    assert_eq!(calls(&world, CallKind::ExecSync, "goodbye done"), []);
}
