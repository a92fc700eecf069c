//! What is seen of a restart of all containers, and what stays as it was.

use std::time::Duration;

use keelet_lifecycle::status::{ConditionType, ContainerState, Phase};
use keelet_pod::ProbeKind;
use keelet_sim::{Acknowledging, CallKind, Reply, World, millis, secs};

use super::{
    FOUR, RULE, assert_never_final, assert_one_sandbox, calls, condition_changes, counts, first_restart, four, last,
    modes, starts, up, up_again,
};

/// SCN-A10, RALL-8, CON-12: UID, sandbox and address stay, init runs again. The condition turns True before anything is
/// killed, and False once all are removed; it names the trigger and its exit code throughout.
#[test]
fn the_pod_stays_the_same_and_the_condition_shows_the_progress() {
    for builder in modes(&four()) {
        let mut world = builder.build();
        up(&mut world);
        let (sandbox, ip) = (world.sandbox(), world.status().pod_ip.clone());
        assert!(ip.is_some());
        let since = world.elapsed();
        world.exit("source", 42);
        up_again(&mut world);
        let text = world.timeline_text();
        assert_eq!((world.sandbox(), &world.status().pod_ip), (sandbox, &ip), "{text}");
        assert_eq!(world.starts("setup"), 2, "{text}");
        assert_eq!(world.spec("web").uid, "web");
        let after = || world.statuses().into_iter().filter(|(at, _)| *at >= since);
        assert!(after().all(|(_, status)| status.pod_ip == ip), "{text}");
        assert_eq!(condition_changes(&world), [false, true, false], "{text}");
        let (began, over) = first_restart(&world);
        assert_eq!(began.reason.as_deref(), Some("ContainerExited"));
        assert_eq!(over.reason.as_deref(), Some("ContainersRemoved"));
        for condition in [began, over, world.condition(&ConditionType::AllContainersRestarting)] {
            let message = condition.message.unwrap_or_default();
            assert!(message.contains("source") && message.contains("42"), "{message:?}");
        }
        let told = after().find(|(_, status)| status.is_true(&ConditionType::AllContainersRestarting));
        let (told, _) = told.expect("it was True");
        let kills = calls(&world, CallKind::StopContainer, since);
        assert_eq!(kills.len(), 2, "{text}");
        assert!(kills.iter().all(|(at, _)| *at >= told), "{text}");
        assert_one_sandbox(&world);
        world.settle();
    }
}

/// SCN-A28, CON-11, RALL-20, RALL-21: from the trigger until every regular container has been started again the phase is
/// Pending and the pod is not ready; Initialized, PodReadyToStartContainers and PodScheduled stay True.
#[test]
fn the_phase_is_pending_throughout() {
    for slow_init in [Duration::ZERO, secs(20)] {
        let mut world = World::new(1).pod(&four()).build();
        world.script("setup").exits(0).after(slow_init);
        up(&mut world);
        let since = world.elapsed();
        world.exit("source", 42);
        up_again(&mut world);
        let began = ["source", "other"].map(|name| world.container_runs(name)[1].began);
        let started = began.into_iter().max().unwrap_or_default();
        let text = world.timeline_text();
        let mut pending = 0;
        for (at, status) in world.statuses().into_iter().filter(|(at, _)| *at >= since) {
            for kept in
                [ConditionType::Initialized, ConditionType::PodReadyToStartContainers, ConditionType::PodScheduled]
            {
                assert!(status.is_true(&kept), "{at:?}: {kept:?}\n{text}");
            }
            if at < started {
                assert_eq!(status.phase, Phase::Pending, "{at:?}\n{text}");
                assert!(!status.is_true(&ConditionType::Ready), "{at:?}\n{text}");
                assert!(!status.is_true(&ConditionType::ContainersReady), "{at:?}\n{text}");
                pending += 1;
            }
        }
        assert!(pending >= 3, "{text}");
        assert_eq!(world.status().phase, Phase::Running);
        world.settle();
    }
}

/// RALL-14, RALL-15, RALL-17, SCN-A17: while init runs again every other container waits with
/// `RestartingAllContainers`, one restart more, and its last end, which stays when its new instance has begun.
#[test]
fn containers_wait_to_be_started_with_their_history() {
    let mut world = World::new(1).pod(&four()).build();
    world.script("setup").exits(0).after(secs(20)).on_attempt(1);
    up(&mut world);
    world.exit("source", 42).run(secs(10));
    for name in ["side", "source", "other"] {
        assert_eq!(world.waiting_reason(name).as_deref(), Some("RestartingAllContainers"), "{name}");
        let code = if name == "source" { 42 } else { 137 };
        assert_eq!((world.container(name).restart_count, last(&world, name).exit_code), (1, code), "{name}");
    }
    assert!(matches!(world.container("setup").state, ContainerState::Running(_)));
    let before = FOUR.map(|name| last(&world, name));
    up_again(&mut world);
    assert_eq!(["side", "source", "other"].map(|name| last(&world, name)), before[1..]);
    assert_eq!(counts(&world, FOUR), [1; 4]);
    world.settle();
}

/// DEF-18, RALL-15: what kept a container from starting before the trigger is shown as long as it does, which is until the
/// backoff of its pull is over; then it waits with all others, is not counted twice, and starts in its turn.
#[test]
fn a_failure_to_start_from_before_the_trigger_is_forgotten() {
    let spec = four().replace("- {name: other, image: app}", "- {name: other, image: rare, restartPolicy: Always}");
    let mut world = World::new(1).pod(&spec).build();
    world.script("setup").exits(0).after(secs(20)).on_attempt(1);
    up(&mut world);
    world.image("rare").fails(1);
    world.exit("other", 1).run(secs(3));
    assert_eq!(world.waiting_reason("other").as_deref(), Some("ImagePullBackOff"), "{}", world.timeline_text());
    let since = world.elapsed();
    world.exit("source", 42).run(secs(15));
    assert!(matches!(world.container("setup").state, ContainerState::Running(_)));
    let mut reasons: Vec<String> = Vec::new();
    for (_, status) in world.statuses().into_iter().filter(|(at, _)| *at > since) {
        if let Some(ContainerState::Waiting(waiting)) = status.container("other").map(|other| &other.state)
            && reasons.last() != Some(&waiting.reason)
        {
            reasons.push(waiting.reason.clone());
        }
    }
    assert_eq!(reasons, ["ImagePullBackOff", "RestartingAllContainers"], "{}", world.timeline_text());
    assert_eq!(world.waiting_reason("other").as_deref(), Some("RestartingAllContainers"));
    up_again(&mut world);
    assert_eq!(counts(&world, FOUR), [1; 4], "{}", world.timeline_text());
    world.settle();
}

/// SCN-A22, RALL-13: the volumes stay where they are and are not cleared; the containers are new ones.
#[test]
fn volumes_stay_and_containers_are_new() {
    let spec = format!(
        "  restartPolicy: Never
  volumes:
  - {{name: data, emptyDir: {{}}}}
  containers:
  - {{name: source, image: app, restartPolicy: Never, {RULE}, volumeMounts: [{{name: data, mountPath: /data}}]}}
  - {{name: other, image: app, volumeMounts: [{{name: data, mountPath: /data}}]}}
"
    );
    let mut world = World::new(1).pod(&spec).build();
    up(&mut world);
    let names = ["source", "other"];
    let before = names.map(|name| (world.running(name), world.mounts(name)["/data"].clone()));
    world.exit("source", 42);
    up_again(&mut world);
    for (name, (id, volume)) in names.into_iter().zip(before) {
        assert_ne!(world.running(name), id, "{name} has a file system of its own");
        assert_eq!(world.mounts(name)["/data"], volume, "{name} has its volume");
    }
    assert_eq!(world.host_calls().get("clean up web"), None, "{:?}", world.host_calls());
    assert_eq!(world.host_calls().get("prepare web"), Some(&1), "{:?}", world.host_calls());
    world.settle();
}

/// SCN-A23, DEF-19, RALL-13: an ephemeral container is none of those restarted: it keeps running, and neither its status nor
/// its count changes.
#[test]
fn an_ephemeral_container_runs_on() {
    let spec = format!("{}  ephemeralContainers:\n  - {{name: debug, image: shell}}\n", four());
    let mut world = World::new(1).pod(&spec).build();
    up(&mut world);
    let (id, status) = (world.running("debug"), world.container("debug"));
    assert!(id.is_some());
    let since = world.elapsed();
    world.exit("source", 42);
    up_again(&mut world);
    let text = world.timeline_text();
    assert_eq!((world.running("debug"), world.starts("debug")), (id, 1), "{text}");
    for (at, published) in world.statuses().into_iter().filter(|(at, _)| *at >= since) {
        assert_eq!(published.container("debug"), Some(&status), "{at:?}\n{text}");
    }
    assert_eq!(counts(&world, FOUR), [1; 4], "{text}");
    world.settle();
}

/// DEF-19: an ephemeral container that has ended, and whose instance is gone, keeps its status too.
#[test]
fn an_ephemeral_container_that_has_ended_keeps_its_status() {
    let spec = format!("{}  ephemeralContainers:\n  - {{name: debug, image: shell}}\n", four());
    let mut world = World::new(1).pod(&spec).build();
    world.script("debug").exits(3).after(secs(2));
    up(&mut world);
    let status = world.container("debug");
    assert!(matches!(&status.state, ContainerState::Terminated(ended) if ended.exit_code == 3));
    world.lose("debug").run(secs(40));
    world.exit("source", 42);
    up_again(&mut world);
    assert_eq!(world.container("debug"), status, "{}", world.timeline_text());
    assert_eq!(world.starts("debug"), 1);
    world.settle();
}

/// A pod whose containers have hooks and do not care for SIGTERM, with a soft stop if so many seconds are given.
fn stubborn(soft: Option<u64>) -> World {
    let hook = "lifecycle: {preStop: {exec: {command: [drain]}}}";
    let annotation = soft
        .map(|seconds| format!("annotations: {{keelet.dev/restart-all-grace-period-seconds: '{seconds}'}}, "))
        .unwrap_or_default();
    let manifest = format!(
        "apiVersion: v1
kind: Pod
metadata: {{{annotation}name: web, namespace: shop, uid: web}}
spec:
  restartPolicy: Never
  initContainers:
  - {{name: side, image: proxy, restartPolicy: Always, {hook}}}
  containers:
  - {{name: source, image: app, restartPolicy: Never, {RULE}, {hook}}}
  - {{name: polite, image: app, {hook}}}
  - {{name: deaf, image: app, {hook}}}
"
    );
    let mut world = World::new(1).manifest(&manifest).build();
    world.script("side").ignores_term();
    world.script("deaf").ignores_term();
    up(&mut world);
    world
}

/// SCN-A24 as CON-14 and CON-16 settle it: no preStop hook is run, and SIGKILL comes at once instead of after two
/// seconds, to all at the same time.
#[test]
fn no_hook_is_run_and_the_kill_is_immediate() {
    let mut world = stubborn(None);
    let since = world.elapsed();
    world.exit("source", 42);
    up_again(&mut world);
    let text = world.timeline_text();
    assert_eq!(calls(&world, CallKind::ExecSync, since), [], "{text}");
    let stops = calls(&world, CallKind::StopContainer, since);
    assert_eq!(stops.len(), 3, "{text}");
    assert!(stops.iter().all(|(at, subject)| subject.contains("grace=0") && *at == stops[0].0), "{text}");
    for name in ["side", "polite", "deaf"] {
        assert_eq!(last(&world, name).exit_code, 137, "{name}\n{text}");
        let (at, ..) = world.container_runs(name)[0].ended.expect("it was killed");
        assert!(at < since + secs(1), "{name}\n{text}");
    }
    world.settle();
}

/// CON-15, CON-16: a pod may ask for a soft stop. SIGTERM first, SIGKILL after that time, still no hook; one that exits by
/// itself keeps its own exit code.
#[test]
fn a_soft_stop_gives_time_and_runs_no_hook() {
    let mut world = stubborn(Some(5));
    let since = world.elapsed();
    world.exit("source", 42);
    up_again(&mut world);
    let text = world.timeline_text();
    assert_eq!(calls(&world, CallKind::ExecSync, since), [], "{text}");
    let stops = calls(&world, CallKind::StopContainer, since);
    assert!(stops.len() == 3 && stops.iter().all(|(_, subject)| subject.contains("grace=5")), "{text}");
    for (name, code) in [("side", 137), ("polite", 143), ("deaf", 137)] {
        let exit = last(&world, name);
        assert_eq!((exit.exit_code, exit.reason.as_str()), (code, "RestartingAllContainers"), "{name}\n{text}");
    }
    let began = world.container_runs("side")[1].began - since;
    assert!(began >= secs(5) && began < secs(6), "{began:?}\n{text}");
    world.settle();
}

/// SCN-A27, DEF-7, RALL-25: ten victims that do not care for SIGTERM take as long as one: the first container is back
/// within five seconds of the exit, and so are all of them.
#[test]
fn ten_stubborn_victims_are_restarted_within_the_goal() {
    let victims: Vec<String> = (0..10).map(|number| format!("v{number}")).collect();
    let rest: String = victims.iter().map(|name| format!("  - {{name: {name}, image: app}}\n")).collect();
    let spec = format!(
        "  restartPolicy: Never\n  containers:\n  - {{name: source, image: app, restartPolicy: Never, {RULE}}}\n{rest}"
    );
    for builder in modes(&spec) {
        let mut world = builder.build();
        for name in &victims {
            world.script(name).ignores_term();
        }
        up(&mut world);
        let since = world.elapsed();
        world.exit("source", 42);
        up_again(&mut world);
        for name in victims.iter().map(String::as_str).chain(["source"]) {
            let runs = world.container_runs(name);
            assert_eq!((runs.len(), world.container(name).restart_count), (2, 1), "{name}");
            assert!(runs[1].began < since + secs(5), "{name}\n{}", world.timeline_text());
        }
        assert_never_final(&world);
        world.settle();
    }
}

/// RALL-7, RALL-25: a victim that is being stopped already, with a grace period of its own, does not hold up the rest.
#[test]
fn a_victim_that_is_being_stopped_is_restarted_within_the_goal() {
    let probe = "livenessProbe: {exec: {command: [alive]}, periodSeconds: 1, failureThreshold: 1}";
    let spec = format!(
        "  restartPolicy: Never
  terminationGracePeriodSeconds: 60
  containers:
  - {{name: source, image: app, restartPolicy: Never, {RULE}}}
  - {{name: deaf, image: app, restartPolicy: Always, {probe}}}
"
    );
    let mut world = World::new(1).pod(&spec).build();
    world.script("deaf").ignores_term();
    up(&mut world);
    world.answer("deaf", ProbeKind::Liveness, Reply::Fail).run(secs(5));
    world.answer("deaf", ProbeKind::Liveness, Reply::Pass);
    let since = world.elapsed();
    world.exit("source", 42).run(secs(10));
    let runs = world.container_runs("deaf");
    assert_eq!(runs.len(), 2, "{}", world.timeline_text());
    assert!(runs[1].began < since + secs(5), "{}", world.timeline_text());
    world.settle();
}

/// RALL-22, SCN-A20: probes kill nothing that is being restarted, and begin anew with the new containers, also of a victim
/// that may never restart by itself.
#[test]
fn probes_begin_anew_with_the_new_containers() {
    let probes = "startupProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 10},
      livenessProbe: {tcpSocket: {port: 2}, periodSeconds: 1, failureThreshold: 2},
      readinessProbe: {tcpSocket: {port: 3}, periodSeconds: 1}";
    let spec = format!(
        "  restartPolicy: Never
  containers:
  - {{name: source, image: app, restartPolicy: Never, {RULE}}}
  - {{name: other, image: app,
      {probes}}}
"
    );
    let mut world = World::new(1).pod(&spec).build();
    let other = world.script("other").answers(ProbeKind::Startup, Reply::Refuse);
    other.answers_from(secs(4), ProbeKind::Startup, Reply::Pass);
    up(&mut world);
    world.exit("source", 42).run(secs(2));
    let other = world.container("other");
    assert_eq!((other.restart_count, other.started, other.ready), (1, Some(false), false));
    up_again(&mut world);
    world.run(secs(30));
    assert_eq!(starts(&world, ["source", "other"]), [2, 2], "{}", world.timeline_text());
    assert!(!world.saw_event("Killing", "probe"));
    world.settle();
}

/// CON-12, RALL-9: where the publisher does not acknowledge the condition, the first kill waits for half a second and no
/// longer.
#[test]
fn the_first_kill_waits_half_a_second_for_the_publisher() {
    let mut world = World::new(1).pod(&four()).cluster().build();
    up(&mut world);
    world.faults(|faults| faults.publisher = Acknowledging::Never);
    let since = world.elapsed();
    world.exit("source", 42).run(secs(2));
    let told = world.statuses().into_iter().find(|(_, status)| status.is_true(&ConditionType::AllContainersRestarting));
    let (told, _) = told.expect("it was True");
    let (killed, _) = calls(&world, CallKind::StopContainer, since)[0];
    assert!(killed >= told + millis(490) && killed < told + millis(700), "{}", world.timeline_text());
    up_again(&mut world);
    world.settle();
}
