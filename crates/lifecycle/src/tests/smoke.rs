//! A pod from its creation to its end.

use keelet_pod::ProbeKind;

use super::world::World;
use crate::{
    Stage,
    operation::Outcome,
    status::{ConditionType, ContainerState, Phase},
};

const FULL: &str = "
  terminationGracePeriodSeconds: 30
  initContainers:
  - {name: setup, image: tool}
  - name: proxy
    image: proxy
    restartPolicy: Always
    startupProbe: {tcpSocket: {port: 80}, periodSeconds: 1, failureThreshold: 30}
  containers:
  - name: main
    image: app
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
    livenessProbe: {httpGet: {port: 80}, periodSeconds: 1}
  - {name: helper, image: app}
";

#[test]
fn a_pod_starts_in_order_becomes_ready_and_goes_away() {
    let mut world = World::with_spec(FULL);
    world.settle();
    assert_eq!(world.running(), ["setup"].into());
    assert_eq!(world.status().phase, Phase::Pending);
    world.answer("proxy", ProbeKind::Startup, Outcome::Failure);
    world.exit("setup", 0);
    assert_eq!(world.running(), ["proxy"].into());
    world.seconds(5);
    assert_eq!(world.running(), ["proxy"].into());
    world.answer("proxy", ProbeKind::Startup, Outcome::Success);
    world.seconds(2);
    assert_eq!(world.running(), ["helper", "main", "proxy"].into());
    assert_eq!(world.status().phase, Phase::Running);
    assert!(world.holds(ConditionType::Ready), "{:#?}", world.status());
    world.delete(30);
    assert_eq!(world.stage(), Stage::Gone);
    assert!(world.observed.containers.is_empty());
    assert_eq!(world.status().phase, Phase::Failed);
    assert!(matches!(world.container("main").state, ContainerState::Terminated(_)));
}

const RESTART_ALL: &str = "
  restartPolicy: Never
  initContainers:
  - {name: setup, image: tool}
  - name: watcher
    image: proxy
    restartPolicy: Always
    restartPolicyRules:
    - {action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}
  containers:
  - {name: main, image: app}
";

#[test]
fn a_watcher_restarts_everything_in_place() {
    let mut world = World::with_spec(RESTART_ALL);
    world.settle().exit("setup", 0);
    assert_eq!(world.running(), ["main", "watcher"].into());
    let sandbox = world.observed.sandboxes.clone();
    world.seconds(5).exit("watcher", 88);
    assert_eq!(world.running(), ["setup"].into(), "{:#?}", world.status());
    assert_eq!(world.status().phase, Phase::Pending);
    world.exit("setup", 0);
    assert_eq!(world.running(), ["main", "watcher"].into());
    assert_eq!(world.status().phase, Phase::Running);
    assert_eq!(world.observed.sandboxes, sandbox);
    for name in ["setup", "watcher", "main"] {
        assert_eq!(world.container(name).restart_count, 1, "{name}");
    }
    assert_eq!(world.container("watcher").last_state.terminated.as_ref().unwrap().exit_code, 88);
    assert_eq!(world.container("main").last_state.terminated.as_ref().unwrap().exit_code, 137);
}
