//! What an agent restart starts, and what it does not start again.

use keelet_lifecycle::status::{ConditionType, ContainerState, Phase, PodStatus};
use keelet_sim::{World, secs};

use super::{STARTUP, Way, bits, sidecar, since};

const INIT: &str = "  initContainers:
  - {name: first, image: tool}
  - {name: second, image: tool}
  containers:
  - {name: main, image: app, readinessProbe: {exec: {command: [serving]}, periodSeconds: 3}}
";

/// SCN-K19, KEEP-5: an agent restart, then the main container behind a sidecar with a startup probe is killed: it is
/// restarted, the sidecar is not.
#[test]
fn a_main_container_behind_a_sidecar_is_restarted_after_an_agent_restart() {
    for way in Way::ALL {
        let mut world = way.world(&sidecar(STARTUP));
        world.run(secs(11));
        let proxy = world.running("main");
        way.restart(&mut world, secs(2));
        world.run(secs(11));
        let at = world.elapsed();
        world.exit("more", 137).run(secs(5));
        assert_eq!((world.starts("more"), world.container("more").restart_count), (2, 1), "{way:?}");
        assert!(world.running("more").is_some(), "{way:?}");
        assert_eq!((world.starts("main"), world.running("main")), (1, proxy), "{way:?}");
        for status in since(&world, at) {
            assert_eq!(bits(&status, "main"), (true, true), "{way:?}");
            assert_eq!(status.container("main").unwrap().restart_count, 0, "{way:?}");
        }
        world.settle();
        assert!(world.holds(ConditionType::Ready), "{way:?}");
    }
}

fn completed(status: &PodStatus, container: &str) -> bool {
    let state = &status.container(container).unwrap().state;
    matches!(state, ContainerState::Terminated(ended) if ended.exit_code == 0 && ended.reason == "Completed")
}

fn initialized(way: Way) -> World {
    let mut world = way.world(INIT);
    world.script("first").exits(0).after(secs(1));
    world.script("second").exits(0).after(secs(1));
    world.run(secs(11));
    assert!(world.holds(ConditionType::Ready), "{way:?}\n{}", world.timeline_text());
    world
}

/// SCN-K20: init containers that completed are not run again by another agent, also if their instances have been
/// removed from the runtime, before, during or after its absence. The status stays as it was.
#[test]
fn completed_init_containers_are_not_run_again() {
    for way in Way::ALL {
        for removed in ["never", "before", "during", "after"] {
            let mut world = initialized(way);
            let (before, at) = (world.status(), world.elapsed());
            let lose = |world: &mut World, when: &str| {
                if when == removed {
                    world.lose("first").lose("second");
                }
            };
            lose(&mut world, "before");
            world.run(secs(1));
            way.end(&mut world);
            lose(&mut world, "during");
            world.run(secs(2));
            way.begin(&mut world);
            world.run(secs(5));
            lose(&mut world, "after");
            // Longer than it takes the agent to look at everything again.
            world.run(secs(40));
            for name in ["first", "second", "main"] {
                assert_eq!(world.starts(name), 1, "{name}, {way:?}, removed {removed}");
            }
            for status in since(&world, at) {
                assert_eq!(status, before, "{way:?}, removed {removed}\n{}", world.timeline_text());
            }
        }
    }
}

/// SCN-K20: a long init container is at work when the agent restarts: it is left at work, and not run again; what
/// ended before it neither, removed or not. The pod comes up when it is done.
#[test]
fn an_init_container_at_work_is_left_at_work() {
    for way in Way::ALL {
        for removed in [false, true] {
            let mut world = way.world(INIT);
            world.script("first").exits(0).after(secs(1));
            world.script("second").exits(0).after(secs(30));
            world.run(secs(11));
            assert!(world.running("second").is_some(), "{way:?}");
            way.end(&mut world);
            if removed {
                world.lose("first");
            }
            world.run(secs(2));
            way.begin(&mut world);
            world.run(secs(10));
            assert!(!world.holds(ConditionType::Initialized), "{way:?}");
            assert_eq!((world.status().phase, world.starts("main")), (Phase::Pending, 0), "{way:?}");
            world.run(secs(15));
            assert!(world.holds(ConditionType::Ready), "{way:?}, removed {removed}\n{}", world.timeline_text());
            for name in ["first", "second", "main"] {
                assert_eq!(world.starts(name), 1, "{name}, {way:?}, removed {removed}");
            }
            assert!(completed(&world.status(), "first") && completed(&world.status(), "second"), "{way:?}");
        }
    }
}

/// SCN-K21, STAT-6, KEEP-20: a pod that no API server knows, its init instance removed while the agent was away:
/// reported as completed with exit code 0, and the pod is ready. Also if the ledger is lost with it: a container that
/// comes later has been there.
#[test]
fn an_init_container_of_a_static_pod_is_reported_as_completed() {
    for lost in [false, true] {
        let mut world = initialized(Way::Killed);
        let at = world.elapsed();
        world.kill_agent().lose("first").lose("second").run(secs(2));
        if lost {
            world.start_agent_without_ledger();
        } else {
            world.start_agent();
        }
        world.run(secs(11));
        let published = since(&world, at);
        assert!(!published.is_empty());
        for status in published {
            assert!(completed(&status, "first") && completed(&status, "second"), "{}", world.timeline_text());
            assert!(status.is_true(&ConditionType::Initialized), "lost: {lost}");
        }
        assert!(world.holds(ConditionType::Ready), "lost: {lost}");
        assert_eq!((world.starts("first"), world.starts("second"), world.starts("main")), (1, 1, 1), "lost: {lost}");
    }
}
