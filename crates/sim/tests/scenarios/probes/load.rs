//! Many probes at once.

use std::time::Duration;

use keelet_pod::ProbeKind::{Liveness, Readiness};
use keelet_sim::{Answer, Reply, World, WorldBuilder, millis, secs};

/// How many pods there are.
const PODS: usize = 30;

/// Pods that are asked every second, in turn over HTTP, TCP and gRPC.
fn crowd(mut builder: WorldBuilder) -> WorldBuilder {
    let handlers = ["httpGet: {path: /healthz, port: 8080}", "tcpSocket: {port: 8080}", "grpc: {port: 5000}"];
    for (number, handler) in (0..PODS).zip(handlers.into_iter().cycle()) {
        let probe = format!("{{{handler}, periodSeconds: 1, failureThreshold: 1}}");
        let spec = format!("  containers:\n  - name: main\n    image: app\n    livenessProbe: {probe}\n");
        builder = builder.named(&format!("pod-{number}"), &spec);
    }
    builder
}

fn assert_no_container_was_killed(world: &World) {
    assert!(!world.saw_event("Killing", ""), "{}", world.timeline_text());
    for number in 0..PODS {
        assert_eq!(world.starts(&format!("pod-{number}/main")), 1, "pod-{number}");
        assert_eq!(world.container(&format!("pod-{number}/main")).restart_count, 0, "pod-{number}");
    }
}

fn asked(world: &World, number: usize) -> usize {
    world.probes(&format!("pod-{number}/main"), Liveness, Duration::ZERO).len()
}

/// SCN-P27.
#[test]
fn many_pods_asked_every_second_are_all_asked_and_none_is_restarted() {
    let mut world = crowd(World::new(27)).build();
    world.script("main").answers(Liveness, Answer::new(Reply::Pass).after(millis(300)));
    world.run(secs(20));
    assert_no_container_was_killed(&world);
    for number in 0..PODS {
        assert!(asked(&world, number) >= 17, "pod-{number} was asked {} times", asked(&world, number));
    }
}

/// SCN-P27. The node can make five attempts a second, and thirty are due: those that wait too long are not held against
/// another one, and none is forgotten.
#[test]
fn an_agent_that_cannot_keep_up_blames_no_container() {
    let mut world = crowd(World::new(27)).settings(|settings| settings.probe_limit = 2).build();
    world.script("main").answers(Liveness, Answer::new(Reply::Pass).after(millis(400)));
    world.run(secs(30));
    assert_no_container_was_killed(&world);
    let total: usize = (0..PODS).map(|number| asked(&world, number)).sum();
    assert!(total > 100, "only {total} attempts were made");
    for number in 0..PODS {
        assert!(asked(&world, number) > 0, "pod-{number} was never asked");
    }
}

/// PROBE-6, DEF-9. Deleting a pod calls off the attempt under way: the next one has its turn at once, although the
/// container that does not answer keeps running to the end of its grace period.
#[test]
fn the_attempt_of_a_deleted_pod_gives_up_its_place() {
    let probed = |probe: &str, timeout: u32| {
        let probe = format!("{probe}: {{exec: {{command: [up]}}, periodSeconds: 1, timeoutSeconds: {timeout}}}");
        format!("  containers:\n  - name: main\n    image: app\n    {probe}\n")
    };
    let mut world = World::new(6)
        .named("stuck", &probed("livenessProbe", 60))
        .named("other", &probed("readinessProbe", 1))
        .settings(|settings| settings.probe_limit = 1)
        .build();
    world.script("stuck/main").answers(Liveness, Answer::new(Reply::Hang)).ignores_term();
    world.run(secs(10));
    let stuck_since = world.elapsed() - secs(5);
    assert!(world.probes("other/main", Readiness, stuck_since).is_empty(), "{}", world.timeline_text());
    world.delete("stuck");
    let deleted = world.elapsed();
    world.run(secs(5));
    assert!(world.running("stuck/main").is_some(), "{}", world.timeline_text());
    assert!(world.probes("other/main", Readiness, deleted).len() >= 3, "{}", world.timeline_text());
}
