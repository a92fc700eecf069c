//! Pods that have ended, or are to go, when an agent starts.

use keelet_lifecycle::{
    restart::RestartAllRule,
    status::{ContainerState, Phase},
};
use keelet_sim::{Happening, World, secs};

use super::{Way, one, since, wait};

const JOB: &str = "  restartPolicy: Never\n  containers:\n  - {name: main, image: job}\n";

/// A pod that may run here only while restarts of all containers are honoured.
const DEMANDING: &str = "  restartPolicy: Never
  containers:
  - name: main
    image: app
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
";

fn is_gone(world: &World, pod: &str) -> bool {
    let gone = |what: &Happening| matches!(what, Happening::PodGone { pod: of } if of == pod);
    !world.has_remains(pod) && world.timeline().entries().iter().any(|entry| gone(&entry.what))
}

fn pod(name: &str, spec: &str) -> keelet_pod::Pod {
    let head = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, uid: {name}}}\nspec:\n");
    keelet_pod::parse_one(&format!("{head}{spec}")).unwrap()
}

/// SCN-K22: the agent is killed. Pods that had finished and may not restart are not run again, those that finish while
/// it is away neither, pods that always run keep running, and a new pod finds its place.
#[test]
fn finished_pods_stay_finished_and_running_ones_run() {
    for way in Way::ALL {
        let mut world = way.world(&one(""));
        for name in ["done", "broken", "late"] {
            world.add_pod(pod(name, JOB));
        }
        world.script("done/main").exits(0).after(secs(3));
        world.script("broken/main").exits(1).after(secs(3));
        world.script("late/main").exits(0).after(secs(12));
        world.run(secs(11));
        let finished = ["done", "broken"].map(|name| (name, world.status_of(name)));
        assert_eq!((finished[0].1.phase, finished[1].1.phase), (Phase::Succeeded, Phase::Failed), "{way:?}");
        let (running, runs) = (world.status_of("web"), world.running("web/main"));
        let at = world.elapsed();
        way.restart(&mut world, secs(4));
        world.run(secs(10));
        way.restart(&mut world, secs(1));
        world.add_pod(pod("new", &one(""))).run(secs(40));
        let timeline = world.timeline();
        for (name, before) in finished.iter().chain([&("web", running)]) {
            assert_eq!(world.starts(&format!("{name}/main")), 1, "{name}, {way:?}");
            for (_, status) in timeline.statuses(name).filter(|(when, _)| *when >= at) {
                assert_eq!(status, before, "{name}, {way:?}\n{timeline}");
            }
        }
        assert_eq!(world.running("web/main"), runs, "{way:?}");
        assert_eq!((world.status_of("late").phase, world.starts("late/main")), (Phase::Succeeded, 1), "{way:?}");
        assert_eq!(world.status_of("new").phase, Phase::Running, "{way:?}");
        for name in ["done", "broken", "late"] {
            assert_eq!(world.running(&format!("{name}/main")), None, "{name}, {way:?}: nothing of it runs");
        }
    }
}

/// SCN-K23, TERM-12: a pod that has finished is deleted while the agent is away: the next one lets it go, with the
/// phase it had.
#[test]
fn a_finished_pod_that_was_deleted_meanwhile_goes_away() {
    for way in Way::ALL {
        for exit_code in [0, 1] {
            let mut world = way.world(JOB);
            world.script("main").exits(exit_code).after(secs(2));
            world.run(secs(11));
            let (phase, at) = (world.status().phase, world.elapsed());
            assert!(phase.is_terminal());
            way.end(&mut world);
            world.delete_within("web", secs(30)).run(secs(2));
            way.begin(&mut world);
            world.run(secs(5));
            assert!(is_gone(&world, "web"), "{way:?}\n{}", world.timeline_text());
            assert!(since(&world, at).iter().all(|status| status.phase == phase), "{way:?}");
            assert_eq!(world.starts("main"), 1, "{way:?}");
        }
    }
}

/// SCN-K23, TERM-12: a pod is being deleted when the agent is killed: the next one goes on with it, and the grace
/// period does not begin anew.
#[test]
fn a_termination_goes_on_after_an_agent_restart() {
    for way in Way::ALL {
        let mut world = way.world(&one(""));
        world.script("main").ignores_term();
        world.run(secs(11)).delete_within("web", secs(20)).run(secs(5));
        assert!(world.running("main").is_some(), "{way:?}");
        way.restart(&mut world, secs(3));
        // Five seconds before, three without an agent: twelve are left.
        let (left, at) = (secs(12), world.elapsed());
        assert!(wait(&mut world, left + secs(2), |world| is_gone(world, "web")), "{way:?}\n{}", world.timeline_text());
        assert!(world.elapsed() + secs(2) >= at + left, "{way:?}: it had until then");
        assert_eq!(world.starts("main"), 1, "{way:?}");
    }
}

/// SCN-K24, TERM-12: a pod that may not run here is created and deleted while the agent is away: it is finalized, with
/// its reason, and nothing of it is ever started.
#[test]
fn a_pod_created_and_deleted_meanwhile_that_may_not_run_here_is_finalized() {
    for way in Way::ALL {
        let mut world = way.world(&one(""));
        world.reconfigure(|settings| settings.rules.restart_all = RestartAllRule::Ignored);
        way.restart(&mut world, secs(1));
        world.run(secs(5));
        way.end(&mut world);
        world.run(secs(1)).add_pod(pod("demanding", DEMANDING)).run(secs(1));
        world.delete_within("demanding", secs(30)).run(secs(1));
        way.begin(&mut world);
        world.run(secs(5));
        assert!(is_gone(&world, "demanding"), "{way:?}\n{}", world.timeline_text());
        assert_eq!(world.starts("demanding/main"), 0, "{way:?}");
        let timeline = world.timeline();
        let (_, last) = timeline.statuses("demanding").last().expect("a final status");
        assert_eq!((last.phase, last.reason.as_deref()), (Phase::Failed, Some("PodFeatureUnsupported")), "{way:?}");
    }
}

/// SCN-K24, TERM-12, RALL-29, SYNC-6: the same for a pod that ran here and may not any more: deleted while the agent was
/// away, it is stopped and finalized. One that was not deleted keeps running (as decided), with its rule ignored.
#[test]
fn a_pod_that_ran_and_may_not_any_more_is_finalized() {
    for way in Way::ALL {
        let mut world = way.world(DEMANDING);
        world.add_pod(pod("spared", DEMANDING)).run(secs(11));
        let spared = |world: &World| (world.container("spared/main"), world.status_of("spared").phase);
        let before = spared(&world);
        way.end(&mut world);
        world.reconfigure(|settings| settings.rules.restart_all = RestartAllRule::Ignored);
        world.delete_within("web", secs(30)).run(secs(2));
        way.begin(&mut world);
        world.run(secs(5));
        assert!(is_gone(&world, "web"), "{way:?}\n{}", world.timeline_text());
        assert_eq!(world.starts("web/main"), 1, "{way:?}");
        let timeline = world.timeline();
        let (_, last) = timeline.statuses("web").last().expect("a final status");
        assert_eq!(last.phase, Phase::Failed, "{way:?}: it was stopped before it was done");
        let ended = &last.container("main").unwrap().state;
        assert!(matches!(ended, ContainerState::Terminated(ended) if ended.exit_code == 143), "{way:?}: {ended:?}");
        assert_eq!(spared(&world), before, "{way:?}");
        world.exit("spared/main", 42).run(secs(20));
        assert_eq!((world.status_of("spared").phase, world.starts("spared/main")), (Phase::Failed, 1), "{way:?}");
    }
}
