//! What makes an agent doubt readiness at its start, and the old reset behind its feature gate.

use keelet_lifecycle::status::{ConditionType, ContainerState, Truth};
use keelet_pod::{AgentRestart, ProbeKind};
use keelet_sim::{Answer, Reply, World, millis, secs};

use super::{BOTH, NONE, READINESS, STARTUP, Way, bits, history, one, several, sidecar, since};

fn containers_ready(world: &World) -> bool {
    world.holds(ConditionType::ContainersReady)
}

/// SCN-K27, KEEP-14, KEEP-11, CON-4: during a long outage the node controller writes Ready=False. The next agent calls
/// what has a readiness probe started and not ready, until the probe passes; what has none is ready all along.
#[test]
fn a_pod_that_others_marked_unready_has_to_show_its_readiness() {
    for (shape, probes) in [
        (one as fn(&str) -> String, READINESS),
        (one, BOTH),
        (several, READINESS),
        (several, BOTH),
        (sidecar, READINESS),
        (sidecar, BOTH),
        (one, NONE),
        (one, STARTUP),
    ] {
        for way in [Way::KilledInCluster, Way::LedgerLost] {
            let case = format!("{}{way:?}", shape(probes));
            let mut world = way.world(&shape(probes));
            world.run(secs(11));
            let before = world.status();
            assert!(world.holds(ConditionType::Ready), "{case}");
            way.end(&mut world);
            // Slow answers, so that there is something to see between the start and the first result.
            world.answer("main", ProbeKind::Readiness, Answer::new(Reply::Pass).after(millis(500)));
            world.run(secs(60)).overwrite_ready("web", false).run(secs(60));
            let marked = world.condition(&ConditionType::Ready);
            let at = world.elapsed();
            way.begin(&mut world);
            world.run(secs(5));
            let probed = matches!(probes, READINESS | BOTH);
            let expected: &[(bool, bool)] = if probed { &[(true, false), (true, true)] } else { &[(true, true)] };
            assert_eq!(history(&world, at, "main"), expected, "{case}\n{}", world.timeline_text());
            let first = &since(&world, at)[0];
            let ready = first.condition(&ConditionType::Ready).unwrap();
            assert_eq!(ready.status, Truth::from(!probed), "{case}");
            if probed {
                assert_eq!(ready.last_transition_time, marked.last_transition_time, "{case}: theirs still stands");
            }
            assert!(world.holds(ConditionType::Ready) && containers_ready(&world), "{case}");
            for container in before.all_containers() {
                assert_eq!(world.starts(&container.name), 1, "{case}");
                assert_eq!(world.container(&container.name).restart_count, 0, "{case}");
            }
            // Heeded once: the next restart is one like any other.
            let (before, at) = (world.status(), world.elapsed());
            world.kill_agent().run(secs(2)).start_agent().run(secs(5));
            assert!(since(&world, at).iter().all(|status| *status == before), "{case}\n{}", world.timeline_text());
        }
    }
}

/// KEEP-26, KEEP-14: the node controller writes Ready=False while no agent is there, and the next agent reaches the API server
/// five minutes after its start. Until then its board shows what the ledger knows; then the pod is unready until its probe
/// passes, unless a probe of this agent has passed meanwhile.
#[test]
fn a_foreign_write_is_noticed_when_the_api_server_is_reached_late() {
    for (period, probed) in [(900, false), (5, true)] {
        let spec = format!(
            "  containers:\n  - {{name: main, image: app, readinessProbe: {{exec: {{command: [ready]}}, periodSeconds: {period}}}}}\n"
        );
        let mut world = World::new(1).pod(&spec).cluster().build();
        world.run(secs(11)).kill_agent();
        world.run(secs(60)).overwrite_ready("web", false).run(secs(60));
        world.faults(|faults| faults.api_server_away = true);
        if !probed {
            world.answer("main", ProbeKind::Readiness, Answer::new(Reply::Pass).after(secs(600)));
        }
        let at = world.elapsed();
        world.start_agent().run(secs(300));
        assert!(since(&world, at).is_empty(), "nothing can have been delivered\n{}", world.timeline_text());
        assert!(world.board("web").is_true(&ConditionType::Ready), "not reached is not overwritten");
        assert!(!world.holds(ConditionType::Ready), "others still see what the node controller wrote");
        world.answer("main", ProbeKind::Readiness, Reply::Pass);
        world.faults(|faults| faults.api_server_away = false).run(millis(100));
        assert_eq!(world.holds(ConditionType::Ready), probed, "{}", world.timeline_text());
        assert_eq!(world.board("web").is_true(&ConditionType::Ready), probed);
        world.settle();
        assert_eq!(world.starts("main"), 1);
    }
}

/// SCN-K27, KEEP-15: a node on its own has no controller that marks its pods, so its agent compares its own absence with the
/// node monitor grace. A shorter one is nothing; a longer one makes readiness doubtful, and started never.
#[test]
fn a_long_absence_of_a_lonely_agent_makes_readiness_doubtful() {
    for (down, doubtful) in [(secs(45), false), (secs(60), true), (secs(600), true)] {
        for shape in [one, several, sidecar] {
            for probes in [NONE, READINESS, BOTH] {
                for way in [Way::Killed, Way::Stopped] {
                    let case = format!("{}{way:?}, {down:?}", shape(probes));
                    let mut world = way.world(&shape(probes));
                    world.run(secs(11));
                    let before = world.status();
                    world.answer("main", ProbeKind::Readiness, Answer::new(Reply::Pass).after(millis(500)));
                    way.end(&mut world);
                    world.run(down);
                    let at = world.elapsed();
                    way.begin(&mut world);
                    world.run(secs(5));
                    if doubtful && probes != NONE {
                        assert_eq!(history(&world, at, "main"), [(true, false), (true, true)], "{case}");
                    } else {
                        assert!(since(&world, at).iter().all(|status| *status == before), "{case}");
                    }
                    assert!(world.holds(ConditionType::Ready), "{case}");
                }
            }
        }
    }
}

/// KEEP-15, SCN-K27: in a cluster the agent does not measure its absence: no controller marked the pod, so nothing changes.
#[test]
fn an_absence_that_no_controller_noticed_changes_nothing() {
    for way in [Way::KilledInCluster, Way::LedgerLost] {
        let mut world = way.world(&one(BOTH));
        world.run(secs(11));
        let (before, at) = (world.status(), world.elapsed());
        way.restart(&mut world, secs(600));
        world.run(secs(10));
        assert!(since(&world, at).iter().all(|status| *status == before), "{way:?}\n{}", world.timeline_text());
    }
}

/// SCN-K29, KEEP-24, KEEP-6, CON-1: with the old gate on, everything that runs is first called started and ready,
/// then nothing is, and then probes restore it. A container without probes sees none of it.
#[test]
fn the_old_gate_resets_in_two_steps() {
    for (probes, expected) in [
        (NONE, vec![(true, true)]),
        (READINESS, vec![(true, true), (true, false), (true, true)]),
        (STARTUP, vec![(true, true), (false, false), (true, true)]),
        (BOTH, vec![(true, true), (false, false), (true, false), (true, true)]),
    ] {
        for shape in [one, several, sidecar] {
            for way in Way::ALL {
                let case = format!("{}{way:?}", shape(probes));
                let mut world = way.world(&shape(probes));
                world.reconfigure(|settings| settings.rules.agent_restart = AgentRestart::ResetStatus);
                way.restart(&mut world, secs(1));
                world.run(secs(11));
                let at = world.elapsed();
                way.restart(&mut world, secs(2));
                world.run(secs(10));
                assert_eq!(history(&world, at, "main"), expected, "{case}\n{}", world.timeline_text());
                let status = world.status();
                for container in status.all_containers() {
                    assert_eq!(bits(&status, &container.name), (true, true), "{case}");
                    assert_eq!((world.starts(&container.name), container.restart_count), (1, 0), "{case}");
                    assert!(matches!(container.state, ContainerState::Running(_)), "{case}");
                }
            }
        }
    }
}
