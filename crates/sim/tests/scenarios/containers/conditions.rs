//! Conditions of a pod.

use std::time::Duration;

use keelet_lifecycle::status::{ConditionType, Truth};
use keelet_sim::{World, secs};

use super::{began, ended, world};

/// STAT-34: a pod in the node's network has the node's address, also after an agent restart; any other has its own.
#[test]
fn a_pod_in_the_nodes_network_has_the_nodes_address() {
    for (field, expected) in [("hostNetwork: true", "192.168.0.1"), ("hostNetwork: false", "10.0.0.2")] {
        let mut world =
            World::new(1).pod(&format!("  {field}\n  containers:\n  - {{name: main, image: app}}\n")).build();
        for _ in 0..2 {
            world.run(secs(5));
            let status = world.status();
            let all: Vec<&str> = status.pod_ips.iter().map(|address| address.ip.as_str()).collect();
            assert_eq!((status.pod_ip.as_deref(), all), (Some(expected), vec![expected]), "{field}");
            world.kill_agent().run(secs(1)).start_agent();
        }
    }
}

/// SCN-C2.
#[test]
fn a_pod_with_readiness_gates_is_ready_while_both_of_them_say_so() {
    for cluster in [false, true] {
        let builder = World::new(1).pod(
            "  readinessGates: [{conditionType: example.com/one}, {conditionType: example.com/two}]
  containers:
  - {name: main, image: app}
",
        );
        let mut world = if cluster { builder.cluster() } else { builder }.build();
        let assert_pending = |world: &World, gate: &str| {
            let ready = world.condition(&ConditionType::Ready);
            assert_eq!(ready.status, Truth::False);
            assert_eq!(ready.reason.as_deref(), Some("ReadinessGatesNotReady"));
            assert!(ready.message.as_deref().is_some_and(|message| message.contains(gate)), "{ready:?}");
            assert!(world.holds(ConditionType::ContainersReady));
        };
        world.run(secs(5));
        assert_pending(&world, "example.com/one");
        assert_pending(&world, "example.com/two");
        world.set_condition("web", "example.com/one", true).run(secs(5));
        assert_pending(&world, "example.com/two");
        world.set_condition("web", "example.com/two", true).run(secs(5));
        assert!(world.holds(ConditionType::Ready));
        world.set_condition("web", "example.com/one", false).run(secs(5));
        assert_pending(&world, "example.com/one");
        assert_eq!(world.starts("main"), 1);
    }
}

/// When a condition was first published as True.
#[track_caller]
fn first_true(world: &World, kind: &ConditionType) -> Duration {
    let found = world.statuses().into_iter().find(|(_, status)| status.is_true(kind));
    found.unwrap_or_else(|| panic!("{kind:?} never holds\n{}", world.timeline_text())).0
}

/// SCN-C3.
#[test]
fn the_conditions_of_a_fresh_pod_become_true_in_order() {
    use ConditionType::{ContainersReady, Initialized, PodReadyToStartContainers, PodScheduled, Ready};
    for init in [true, false] {
        let list = if init { "  initContainers:\n  - {name: init, image: app}\n" } else { "" };
        let mut world = world(&format!(
            "{list}  containers:
  - {{name: main, image: app, readinessProbe: {{exec: {{command: [ready]}}, initialDelaySeconds: 5}}}}
"
        ));
        world.script("init").exits(0).after(secs(5));
        world.image("app").takes(secs(3));
        world.run(secs(30));
        let times = [PodScheduled, PodReadyToStartContainers, Initialized, ContainersReady, Ready]
            .map(|kind| (kind.clone(), first_true(&world, &kind), world.condition(&kind).last_transition_time));
        let [scheduled, to_start, initialized, containers, ready] = &times;
        assert!(scheduled.1 <= to_start.1);
        assert_eq!(containers.1, ready.1);
        if init {
            assert!(times.is_sorted_by_key(|(_, at, _)| *at), "{times:?}");
            assert!(times.is_sorted_by_key(|(_, _, transition)| *transition), "{times:?}");
            assert!(initialized.1 >= ended(&world, "init"));
            // The sandbox is told of before images are pulled.
            assert!(to_start.1 + secs(3) <= began(&world, "init"), "{times:?}");
        } else {
            assert!(initialized.1 <= to_start.1, "{times:?}");
        }
        assert!(ready.1 >= began(&world, "main") + secs(5), "{times:?}");
    }
}

/// SCN-C3, EVT-6.
#[test]
fn a_pod_whose_volume_cannot_be_mounted_gets_no_further() {
    use ConditionType::{ContainersReady, Initialized, PodReadyToStartContainers, PodScheduled, Ready};
    for init in [true, false] {
        let list = if init { "  initContainers:\n  - {name: init, image: app}\n" } else { "" };
        let mut world = World::new(1)
            .pod(&format!(
                "  volumes: [{{name: data, hostPath: {{path: /data, type: Directory}}}}]\n{list}  containers:\n  - {{name: main, image: app}}\n"
            ))
            .without_agent()
            .build();
        world.faults(|faults| faults.no_volumes = true).start_agent().run(secs(120));
        assert!(world.holds(PodScheduled));
        assert_eq!(world.holds(Initialized), !init);
        let to_start = world.condition(&PodReadyToStartContainers);
        assert_eq!((to_start.status, to_start.reason.as_deref()), (Truth::False, Some("PodSandboxNotReady")));
        assert!(!world.holds(ContainersReady) && !world.holds(Ready));
        assert_eq!((world.sandbox(), world.starts("init"), world.starts("main")), (None, 0, 0));
        assert!(world.saw_event("FailedMount", ""));
        // It is tried again, and goes on once it works.
        world.settle();
        assert!(world.holds(Ready));
    }
}

/// A container whose variables come from a config map waits for it, says so, and starts once it is there. Others of the
/// pod do not wait with it.
#[test]
fn a_container_waits_for_the_config_map_of_its_variables() {
    let mut world = World::new(1)
        .pod(
            "  containers:\n  - {name: main, image: app, env: [{name: URL, valueFrom: {configMapKeyRef: {name: conf, key: url}}}]}\n  \
             - {name: other, image: app}\n",
        )
        .without_agent()
        .build();
    world.faults(|faults| faults.missing_objects = ["conf".to_owned()].into()).start_agent().run(secs(60));
    assert_eq!((world.starts("main"), world.starts("other")), (0, 1));
    assert!(world.saw_event("Failed", "configmap \"conf\" not found"));
    assert!(!world.holds(ConditionType::Ready));
    // It comes.
    world.settle();
    assert_eq!((world.starts("main"), world.starts("other")), (1, 1));
    assert!(world.holds(ConditionType::Ready));
}
