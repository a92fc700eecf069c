//! The agent is killed before and after each of its effects.

use keelet_lifecycle::status::{ConditionType, Phase};
use keelet_sim::{World, for_each_death, secs};

/// A pod starts, crashes once, and is ready in the end, wherever the agent dies.
#[test]
fn a_pod_starts_and_restarts_wherever_the_agent_dies() {
    let deaths = for_each_death(
        || {
            World::new(7).pod(
                "  initContainers:
  - {name: setup, image: tool, imagePullPolicy: IfNotPresent}
  containers:
  - name: main
    image: app
    imagePullPolicy: IfNotPresent
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 5}
    startupProbe: {exec: {command: [started]}, periodSeconds: 1}
",
            )
        },
        |world| {
            world.script("main").exits(1).after(secs(4)).on_attempt(0);
            world.run(secs(7));
        },
        |world| {
            assert_eq!(world.status().phase, Phase::Running);
            assert!(world.holds(ConditionType::Ready));
            assert_eq!(world.starts("setup"), 1);
            assert_eq!(world.starts("main"), 2);
            assert_eq!(world.container("main").restart_count, 1);
        },
    );
    assert!(deaths > 100, "{deaths}");
}
