//! What an agent restart leaves as it is.

use std::time::Duration;

use keelet_lifecycle::status::{ConditionType, Phase};
use keelet_pod::ProbeKind;
use keelet_sim::{Reply, World, millis, secs};

use super::{BOTH, NONE, READINESS, STARTUP, Way, bits, history, one, several, sidecar, since};

/// Absences that no other component notices: shorter than the node monitor grace.
const DOWN: [Duration; 3] = [millis(300), millis(2_345), secs(20)];

/// A ready pod, restarted over and over: no version of its status differs, nothing is started, nothing stopped.
fn a_ready_pod_keeps_its_status(shape: fn(&str) -> String) {
    for probes in [NONE, STARTUP, READINESS, BOTH] {
        for way in Way::ALL {
            // Upstream's 10 s make no difference: the container ID is known (CON-3, KEEP-12).
            for age in [secs(3), secs(11)] {
                let case = format!("{probes:?}, {way:?}, {age:?}");
                let mut world = way.world(&shape(probes));
                world.run(age);
                let (before, at) = (world.status(), world.elapsed());
                assert!(world.holds(ConditionType::Ready), "{case}");
                for down in DOWN {
                    way.restart(&mut world, down);
                    world.run(secs(5));
                }
                let published = since(&world, at);
                assert!(published.len() >= DOWN.len(), "{case}: every run publishes what it believes");
                for status in published {
                    assert_eq!(status, before, "{case}\n{}", world.timeline_text());
                }
                for container in before.all_containers() {
                    assert_eq!(world.starts(&container.name), 1, "{case}");
                    assert_eq!(bits(&before, &container.name), (true, true), "{case}");
                }
            }
        }
    }
}

/// SCN-K1 (no probe), SCN-K2 (startup probe), SCN-K3 (readiness probe), SCN-K4 (both), KEEP-1, KEEP-12, KEEP-23,
/// KEEP-25.
#[test]
fn a_pod_of_one_container_stays_as_it_is() {
    a_ready_pod_keeps_its_status(one);
}

/// SCN-K5 (no probe), SCN-K6 (startup probe), SCN-K7 (readiness probe), SCN-K8 (both), KEEP-25: the same with several
/// containers.
#[test]
fn a_pod_of_several_containers_stays_as_it_is() {
    a_ready_pod_keeps_its_status(several);
}

/// SCN-K9 (no probe), SCN-K10 (startup probe), SCN-K11 (readiness probe), SCN-K12 (both), KEEP-5, KEEP-18, KEEP-25:
/// the same on a sidecar.
#[test]
fn a_pod_with_a_sidecar_stays_as_it_is() {
    a_ready_pod_keeps_its_status(sidecar);
}

/// A pod that was ready once and is not any more, restarted over and over: it stays started and unready, and the
/// others in it stay as they are, until its own probe passes.
fn an_unready_pod_keeps_its_status(spec: &str, others: &[&str]) {
    for way in Way::ALL {
        let case = format!("{spec}{way:?}");
        let mut world = way.world(spec);
        world.run(secs(11));
        assert!(world.holds(ConditionType::Ready), "{case}");
        world.answer("main", ProbeKind::Readiness, Reply::Fail).run(secs(12));
        let (before, at) = (world.status(), world.elapsed());
        assert_eq!(bits(&before, "main"), (true, false), "{case}");
        for down in DOWN {
            way.restart(&mut world, down);
            world.run(secs(5));
        }
        for status in since(&world, at) {
            if way == Way::LedgerLost {
                // The pod's Ready condition is all that is known of readiness (KEEP-17), so the others have to show
                // theirs again.
                assert_eq!(status.container("main"), before.container("main"), "{case}");
                for kind in [ConditionType::Ready, ConditionType::ContainersReady, ConditionType::Initialized] {
                    let (now, then) = (status.condition(&kind).unwrap(), before.condition(&kind).unwrap());
                    assert_eq!(now.status, then.status, "{case}");
                    assert_eq!(now.last_transition_time, then.last_transition_time, "{case}");
                }
            } else {
                assert_eq!(status, before, "{case}\n{}", world.timeline_text());
            }
        }
        for other in others {
            assert_eq!(bits(&world.status(), other), (true, true), "{case}");
        }
        assert_eq!(world.starts("main"), 1, "{case}");
        let at = world.elapsed();
        world.answer("main", ProbeKind::Readiness, Reply::Pass).run(secs(4));
        assert_eq!(history(&world, at, "main"), [(true, true)], "{case}: one success is enough");
        assert!(world.holds(ConditionType::Ready), "{case}");
    }
}

/// SCN-K13 (readiness probe), SCN-K14 (startup and readiness probe), KEEP-16.
#[test]
fn an_unready_pod_of_one_container_stays_as_it_is() {
    an_unready_pod_keeps_its_status(&one(READINESS), &[]);
    an_unready_pod_keeps_its_status(&one(BOTH), &[]);
}

/// SCN-K15 (readiness probes), SCN-K16 (startup and readiness probes), KEEP-16, KEEP-17: one of several containers is
/// unready, and stays the only one.
#[test]
fn an_unready_pod_of_several_containers_stays_as_it_is() {
    an_unready_pod_keeps_its_status(&several(READINESS), &["more", "most"]);
    an_unready_pod_keeps_its_status(&several(BOTH), &["more", "most"]);
}

/// SCN-K17 (readiness probe), SCN-K18 (startup and readiness probe), KEEP-16, KEEP-18: the unready one is a sidecar.
#[test]
fn a_pod_with_an_unready_sidecar_stays_as_it_is() {
    an_unready_pod_keeps_its_status(&sidecar(READINESS), &["more"]);
    an_unready_pod_keeps_its_status(&sidecar(BOTH), &["more"]);
}

/// KEEP-19, SCN-K3: a readiness gate that is not met makes the pod unready and no container, before and after.
#[test]
fn an_unmet_readiness_gate_makes_no_container_unready() {
    for way in [Way::Killed, Way::KilledInCluster] {
        let mut world =
            way.world(&format!("  readinessGates: [{{conditionType: example.com/Wired}}]\n{}", one(READINESS)));
        world.run(secs(11));
        let (before, at) = (world.status(), world.elapsed());
        assert_eq!((bits(&before, "main"), world.holds(ConditionType::Ready)), ((true, true), false));
        way.restart(&mut world, secs(2));
        world.run(secs(5));
        assert!(since(&world, at).iter().all(|status| *status == before), "{}", world.timeline_text());
        world.set_condition("web", "example.com/Wired", true).run(secs(1));
        assert!(world.holds(ConditionType::Ready));
    }
}

/// KEEP-23, SCN-K1: restart counts, the last termination and the start time survive, with the ledger or from the
/// API server's copy alone.
#[test]
fn what_a_container_has_been_through_survives() {
    for way in Way::ALL {
        let mut world: World = way.world(&one(READINESS));
        world.run(secs(5)).exit("main", 3).run(secs(12));
        let (before, at) = (world.status(), world.elapsed());
        let main = before.container("main").unwrap();
        assert_eq!((before.phase, main.restart_count), (Phase::Running, 1), "{way:?}");
        assert_eq!(main.last_state.terminated.as_ref().unwrap().exit_code, 3, "{way:?}");
        way.restart(&mut world, secs(2));
        world.run(secs(5));
        assert!(since(&world, at).iter().all(|status| *status == before), "{way:?}\n{}", world.timeline_text());
    }
}
