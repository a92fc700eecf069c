//! The simulated world itself: it does what it is told, and nothing else.

use keelet_lifecycle::status::{ConditionType, Phase};
use keelet_pod::ProbeKind;
use keelet_sim::{CallKind, Death, Fate, Happening, InFlight, Remains, Reply, World, millis, secs};

const SPEC: &str = "  containers:
  - name: main
    image: app
    imagePullPolicy: IfNotPresent
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 5}
    livenessProbe: {tcpSocket: {port: 8081}, periodSeconds: 5}
    startupProbe: {grpc: {port: 8082}, periodSeconds: 1}
";

fn running() -> World {
    let mut world = World::new(1).pod(SPEC).build();
    world.run(secs(8));
    assert!(world.holds(ConditionType::Ready), "{}", world.timeline_text());
    world
}

#[test]
fn a_healthy_pod_runs_and_every_kind_of_probe_reaches_it() {
    let world = running();
    assert_eq!(world.status().phase, Phase::Running);
    for kind in ProbeKind::ALL {
        assert!(!world.probes("main", kind, secs(0)).is_empty(), "{kind}");
    }
}

#[test]
fn probes_answer_as_scripted_from_now_on() {
    let mut world = running();
    world.answer("main", ProbeKind::Readiness, Reply::Fail).run(secs(20));
    assert!(!world.holds(ConditionType::Ready));
    world.answer("main", ProbeKind::Readiness, Reply::Hang).run(secs(20));
    assert!(!world.holds(ConditionType::Ready));
    world.answer("main", ProbeKind::Readiness, Reply::Status(204)).run(secs(20));
    assert!(world.holds(ConditionType::Ready));
    assert_eq!(world.starts("main"), 1);
    world.answer("main", ProbeKind::Liveness, Reply::Refuse).run(secs(20));
    assert_eq!(world.starts("main"), 2);
}

#[test]
fn a_dead_agent_does_nothing_more() {
    let mut world = running();
    let (before, calls) = (world.timeline().entries().len(), world.disk_calls());
    world.kill_agent().run(secs(60));
    let after = world.timeline();
    let deeds: Vec<_> = after.entries()[before..].iter().map(ToString::to_string).collect();
    assert!(deeds.len() == 1 && deeds[0].contains("dies"), "{deeds:#?}");
    assert_eq!(world.disk_calls(), calls);
    assert!(world.running("main").is_some(), "containers outlive the agent");
}

#[test]
fn calls_under_way_at_a_kill_are_carried_out_or_lost_as_requested() {
    for (in_flight, starts) in [(InFlight::Applied, 1), (InFlight::Lost, 0), (InFlight::GivenUp, 0)] {
        let mut world = World::new(1).pod(SPEC).build();
        world.faults(|faults| faults.everywhere(keelet_sim::CallOdds { slow: millis(1), ..Default::default() }));
        let created =
            |world: &World| world.timeline().entries().iter().any(|entry| matches!(entry.what, Happening::Created(_)));
        assert!(world.run_until(secs(5), created));
        // The start is the next effect; the agent dies over the one after it.
        let next = world.effects() + 2;
        world.die_at(Death::Before(next), in_flight).run(secs(30));
        assert!(!world.is_alive());
        assert!(world.starts("main") >= starts, "{}", world.timeline_text());
        world.settle();
        assert_eq!(world.starts("main"), 1);
    }
}

#[test]
fn a_call_whose_answer_is_lost_took_effect_and_a_lost_call_did_not() {
    for (fate, made) in [(Fate::AnswerLost, 1), (Fate::Lost, 0), (Fate::Failed, 0)] {
        let mut world = World::new(1).pod(SPEC).build();
        world.faults(|faults| faults.seal(CallKind::CreateContainer, "main", fate, 1));
        let called = |world: &World| {
            let is_it = |what: &Happening| matches!(what, Happening::Call { kind: CallKind::CreateContainer, .. });
            world.timeline().entries().iter().any(|entry| is_it(&entry.what))
        };
        assert!(world.run_until(secs(5), called));
        let entries = world.timeline();
        let created = entries.entries().iter().filter(|entry| matches!(entry.what, Happening::Created(_))).count();
        assert_eq!(created, made, "{fate}");
        world.settle();
        assert_eq!(world.starts("main"), 1, "{fate}");
        assert!(world.holds(ConditionType::Ready));
    }
}

#[test]
fn a_runtime_that_is_away_for_a_while_changes_no_status() {
    let mut world = running();
    let before = world.status();
    world.restart_runtime(secs(40)).run(secs(30));
    assert_eq!(world.status(), before);
    world.settle();
    assert_eq!(world.starts("main"), 1);
}

/// SYNC-1.
#[test]
fn a_runtime_without_events_is_looked_at() {
    let mut world = World::new(1).pod(SPEC).without_events().build();
    world.run(secs(60)).exit("main", 1).run(secs(45));
    assert_eq!(world.starts("main"), 2);
}

/// SYNC-1.
#[test]
fn the_end_of_a_process_can_be_watched_where_there_are_no_events() {
    let mut world = World::new(1).pod(SPEC).without_events().watching_processes().build();
    world.run(secs(60)).exit("main", 1).run(secs(1));
    assert_eq!(world.starts("main"), 2);
}

#[test]
fn a_reboot_leaves_dead_containers_or_none_and_the_pod_is_rebuilt() {
    for remains in [Remains::Dead, Remains::Nothing] {
        let mut world = running();
        let sandbox = world.sandbox();
        world.reboot(remains).run(secs(20));
        assert_eq!((world.running("main"), world.sandbox()), (None, None));
        world.settle();
        assert_ne!(world.sandbox(), sandbox);
        assert_eq!(world.starts("main"), 2, "{remains:?}");
        assert_eq!(world.container("main").restart_count, 1, "{remains:?}");
    }
}

#[test]
fn setting_the_wall_clock_changes_no_status() {
    for by_ms in [-3_600_000, 3_600_000] {
        let mut world = running();
        let before = world.status();
        world.set_wall(by_ms).run(secs(60)).restart_agent(secs(2)).run(secs(10));
        assert_eq!(world.status(), before);
    }
}

#[test]
fn a_deleted_pod_leaves_nothing_behind() {
    let mut world = running();
    world.delete("web").settle();
    assert!(!world.has_remains("web"));
    assert!(world.ledger().is_empty());
}

#[test]
fn an_agent_that_stops_leaves_its_pods_running() {
    let mut world = running();
    world.stop_agent().run(secs(10));
    assert!(world.running("main").is_some());
    world.start_agent().settle();
    assert_eq!(world.starts("main"), 1);
}

/// A client that writes a wrong count where only the API server's copy is left makes the agent go on from there.
#[test]
#[should_panic(expected = "[counts] main has a restart count of 7 after 1 starts")]
fn a_broken_promise_comes_up_as_a_panic_with_the_timeline() {
    let mut world = World::new(1).cluster().pod(SPEC).build();
    world.run(secs(8)).kill_agent();
    world.overwrite("web", |status| status.container_statuses[0].restart_count = 7);
    world.start_agent_without_ledger().run(secs(5));
}
