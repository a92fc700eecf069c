//! Reboots of the node.

use keelet_lifecycle::status::{ConditionType, Phase};
use keelet_sim::{Remains, World, secs};

use super::{assert_before, end_of, world};

const PLAIN: &str = "  initContainers:
  - {name: init-1, image: app}
  - {name: init-2, image: app}
  containers:
  - {name: main, image: app}
";

const WITH_SIDECARS: &str = "  initContainers:
  - {name: init-1, image: app}
  - {name: side-1, image: app, restartPolicy: Always}
  - {name: init-2, image: app}
  - {name: side-2, image: app, restartPolicy: Always}
  containers:
  - {name: main, image: app}
";

/// Asserts that every container has one more instance since the reboot, begun in the order of the spec, each ordinary
/// init container's end before the next one's beginning.
#[track_caller]
fn assert_in_order(world: &World, runs: usize) {
    let pod = world.spec("web");
    let mut free_from = std::time::Duration::ZERO;
    for container in pod.lasting_containers() {
        let own = world.container_runs(&container.name);
        assert_eq!(own.len(), runs, "{}\n{}", container.name, world.timeline_text());
        let newest = &own[runs - 1];
        assert_before(free_from, newest.began);
        let is_init = container.name.starts_with("init");
        free_from = if is_init { end_of(newest) } else { newest.began };
    }
}

/// SCN-S15, PROC-3.
#[test]
fn all_containers_run_again_after_a_reboot_in_the_right_order() {
    for spec in [PLAIN, WITH_SIDECARS] {
        for remains in [Remains::Dead, Remains::Nothing] {
            let mut world = world(spec);
            world.script("init-1").exits(0).after(secs(3));
            world.script("init-2").exits(0).after(secs(3));
            world.run(secs(30));
            assert_in_order(&world, 1);
            let sandbox = world.sandbox();
            world.reboot(remains).run(secs(20));
            world.start_agent().run(secs(2));
            assert!(!world.holds(ConditionType::Ready), "{remains:?}");
            world.run(secs(40));
            assert_in_order(&world, 2);
            assert_ne!(world.sandbox(), sandbox, "{remains:?}");
            assert_eq!(world.status().phase, Phase::Running, "{remains:?}");
            assert!(world.holds(ConditionType::Ready), "{remains:?}");
            assert_eq!(world.container("main").restart_count, 1, "{remains:?}");
            world.settle();
        }
    }
}

/// SCN-S15.
#[test]
fn a_pod_that_is_changed_during_a_reboot_comes_back_changed() {
    for spec in [PLAIN, WITH_SIDECARS] {
        let mut world = world(spec);
        world.run(secs(30));
        world.reboot(Remains::Dead).run(secs(5));
        world.set_image("main", "app:v2").start_agent().run(secs(40));
        assert_in_order(&world, 2);
        assert_eq!(world.container("main").image_id, "sha256:app:v2");
        world.settle();
    }
}

/// SCN-S15.
#[test]
fn a_pod_that_is_changed_while_the_agent_is_away_is_changed_in_place() {
    for spec in [PLAIN, WITH_SIDECARS] {
        let mut world = world(spec);
        world.run(secs(30));
        let sandbox = world.sandbox();
        world.kill_agent().run(secs(5));
        world.set_image("main", "app:v2").start_agent().run(secs(40));
        assert_eq!(world.starts("main"), 2);
        assert_eq!((world.starts("init-1"), world.starts("init-2")), (1, 1));
        assert_eq!(world.sandbox(), sandbox);
        assert_eq!(world.container("main").image_id, "sha256:app:v2");
        world.settle();
    }
}
