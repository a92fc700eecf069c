//! What random play found, each distilled to the few steps that it takes. The doc comment names the seed that first
//! showed it, in the random world of that day: seeds lead to other runs whenever that world learns something new.

use keelet_lifecycle::{
    restart::RestartAllRule,
    status::{ConditionType, Phase},
};
use keelet_pod::ProbeKind;
use keelet_sim::{Answer, CallKind, CallOdds, Death, DiskMood, Fate, InFlight, Remains, Reply, World, millis, secs};

/// Seed 5003624, the agent was wrong. STAT-5, CON-4: a container vanishes, which is counted as a restart at once. Then
/// agent and ledger are lost before it is started again: the next agent counted the same restart once more.
#[test]
fn a_restart_that_was_counted_before_the_ledger_was_lost_is_not_counted_again() {
    let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").cluster().build();
    world.run(secs(10));
    world.image("app").takes(secs(5));
    world.lose("main").run(secs(1));
    assert_eq!((world.container("main").restart_count, world.starts("main")), (1, 1), "{}", world.timeline_text());
    world.kill_agent().run(secs(1)).start_agent_without_ledger().settle();
    assert_eq!((world.container("main").restart_count, world.starts("main")), (1, 2), "{}", world.timeline_text());
}

/// Seed 1794960044, the checker was wrong: a start that the runtime gave up because its agent was gone looks like any failed
/// start to an agent that has lost its ledger, and counts as one.
#[test]
fn a_start_that_was_given_up_counts_where_no_ledger_says_why() {
    let mut world =
        World::new(1).pod("  containers:\n  - {name: main, image: app}\n").cluster().without_agent().build();
    world.script("main").starts_slowly(secs(2));
    world.start_agent().die_at(Death::Before(u64::MAX), InFlight::GivenUp);
    let starts = |world: &World| world.timeline_text().contains("StartContainer web-main-1");
    assert!(world.run_until(secs(10), starts), "{}", world.timeline_text());
    world.kill_agent().run(secs(5)).start_agent_without_ledger().settle();
    assert!(world.timeline_text().contains("web-main-1 is given up"), "{}", world.timeline_text());
    assert_eq!(world.starts("main"), 1, "{}", world.timeline_text());
}

/// Seed 5003936, the world was wrong: a pull hung for ever because the faults ended while it was being carried out, and
/// the pod waited for ever in `RestartingAllContainers`.
#[test]
fn a_pull_that_hangs_is_broken_off_when_the_faults_end() {
    let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").build();
    world.run(secs(10));
    world.image("app").takes(secs(2));
    world.faults(|faults| faults.seal(CallKind::PullImage, "app", Fate::HangsApplied, 1));
    world.request_restart("web", "r1").expect("a node on its own refuses no restart");
    assert!(world.run_until(secs(10), |world| !world.holds(ConditionType::Ready)), "{}", world.timeline_text());
    let hangs = |world: &World| world.timeline_text().contains("PullImage app -> applied, hangs");
    assert!(world.run_until(secs(10), hangs), "{}", world.timeline_text());
    world.run(millis(500)).calm().settle();
    assert_eq!(world.starts("main"), 2, "{}", world.timeline_text());
}

/// Seed 5006455, the checker was wrong: it blamed the agent for a probe that was on its way to a slow runtime when the
/// end of its container was published.
#[test]
fn a_probe_that_was_sent_before_its_container_ended_may_arrive_later() {
    let spec = "  containers:
  - {name: main, image: app, livenessProbe: {exec: {command: [probe]}, periodSeconds: 1, timeoutSeconds: 5}}
";
    let mut world = World::new(1).pod(spec).build();
    world.run(secs(10));
    let slow = CallOdds { slow: secs(3), ..CallOdds::default() };
    world.faults(|faults| faults.calls.extend([(CallKind::ExecSync, slow)]));
    let late = |world: &World| world.timeline_text().contains("liveness main exec probe");
    for _ in 0..40 {
        world.run(secs(20)).exit("main", 1).run(secs(5));
        if late(&world) {
            return;
        }
    }
    panic!("no probe arrived after its container had ended\n{}", world.timeline_text());
}

/// PROBE-19. Seeds 1794957602801 and 1794957603373: commands run out of time on their way to a slow runtime. A runtime that has not answered ten
/// seconds after a command's timeout says nothing about the container, so the pod stays Ready.
#[test]
fn a_probe_that_times_out_before_it_arrives_says_nothing() {
    let spec = "  containers:
  - name: main
    image: app
    readinessProbe: {exec: {command: [probe]}, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 1}
";
    let mut world = World::new(1).pod(spec).build();
    world.run(secs(40));
    let slow = CallOdds { slow: secs(30), ..CallOdds::default() };
    world.faults(|faults| faults.calls.extend([(CallKind::ExecSync, slow)]));
    let unready = |world: &World| !world.holds(ConditionType::Ready);
    assert!(!world.run_until(secs(300), unready), "{}", world.timeline_text());
    world.settle();
    assert!(world.holds(ConditionType::Ready), "{}", world.timeline_text());
}

/// Seed 1794957604096, the agent was wrong. STAT-8: the ledger could not be written, a reboot left nothing but log files, and
/// the restart count that they tell of had no reason that `keelet why` could name.
#[test]
fn a_restart_count_from_log_files_is_explained() {
    let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").without_agent().build();
    world.disk(DiskMood::Full).start_agent().run(secs(10)).reboot(Remains::Nothing).calm().start_agent().settle();
    assert_eq!(world.container("main").restart_count, 1, "{}", world.timeline_text());
}

/// Seeds 1794961815679, 1794961815841 and 1794961816229, the checker was wrong. BACK-3: a container gets another image while it
/// is being started. The backoff is that of the image it was made with; the checker took the one of the spec.
#[test]
fn an_image_that_changes_during_a_start_begins_with_a_backoff_of_its_own() {
    let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").build();
    world.script("main").starts_slowly(secs(2));
    world.run(secs(10)).exit("main", 1).run(secs(1)).set_image("main", "app:2");
    assert!(world.run_until(secs(8), |world| world.starts("main") == 3), "{}", world.timeline_text());
    world.settle();
}

/// Seed 1794961814787, the checker was wrong: the disk is full, and an agent dies while it starts a container again. The next
/// one finds a container that was made and not started, and does not know that its start counts towards the backoff.
#[test]
fn a_start_that_was_not_written_down_does_not_lengthen_the_backoff() {
    let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").build();
    world.run(secs(10)).disk(DiskMood::Full).die_at(Death::Before(u64::MAX), InFlight::Lost);
    world.faults(|faults| faults.seal(CallKind::StartContainer, "web-main-2", Fate::Hangs, 1)).exit("main", 1);
    let made = |world: &World| world.timeline_text().contains("web-main-2 is created");
    assert!(world.run_until(secs(10), made), "{}", world.timeline_text());
    world.kill_agent().run(secs(1)).start_agent();
    assert!(world.run_until(secs(10), |world| world.starts("main") == 2), "{}", world.timeline_text());
    world.calm().run(secs(40)).exit("main", 1).run(secs(5));
    assert_eq!(
        world.starts("main"),
        3,
        "the first restart that this agent knows of is immediate\n{}",
        world.timeline_text()
    );
    world.run(secs(40)).exit("main", 1).run(secs(5));
    assert_eq!(world.waiting_reason("main").as_deref(), Some("CrashLoopBackOff"), "{}", world.timeline_text());
    world.settle();
}

/// Seeds 1794961817439 and 1794962526888, the agent was wrong. SIDE-10: an init container fails for good while the disk is full,
/// and the pod has failed. The next agent finds the exit and a sandbox that was stopped, and ran the pod anew.
#[test]
fn a_pod_whose_init_container_failed_stays_failed_on_a_full_disk() {
    let spec = "  restartPolicy: Never
  initContainers:
  - {name: setup, image: tool}
  containers:
  - {name: main, image: app, restartPolicy: Always}
";
    let mut world = World::new(1).pod(spec).without_agent().build();
    world.script("setup").exits(42).after(secs(2));
    world.disk(DiskMood::Full).start_agent().run(secs(20));
    assert_eq!(world.status().phase, Phase::Failed, "{}", world.timeline_text());
    world.restart_agent(secs(1)).run(secs(10));
    assert_eq!((world.status().phase, world.starts("setup")), (Phase::Failed, 1), "{}", world.timeline_text());
    world.calm().settle();
}

/// Seed 1794962523489, the checker was wrong. RALL-29: with the gate off a trigger is the last container to end, the pod is on
/// its way out, and the agent dies before it says so. With the gate on again the pod stays ended: that was decided and written
/// down.
#[test]
fn a_pod_that_ended_with_the_gate_off_stays_ended() {
    let spec = "  restartPolicy: Never
  containers:
  - name: main
    image: app
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]
";
    for effects in 1..12 {
        let mut world = World::new(1).pod(spec).build();
        world.run(secs(10)).kill_agent();
        world.reconfigure(|settings| settings.rules.restart_all = RestartAllRule::Ignored).start_agent().run(secs(10));
        world.die_at(Death::Before(world.effects() + effects), InFlight::Applied).exit("main", 88).run(secs(10));
        world.kill_agent();
        world.reconfigure(|settings| settings.rules.restart_all = RestartAllRule::Honoured).start_agent().settle();
        let (phase, starts) = (world.status().phase, world.starts("main"));
        assert!(matches!((phase, starts), (Phase::Failed, 1) | (Phase::Running, 2)), "{}", world.timeline_text());
    }
}

/// Seeds 1794962524830 and 1794962526290, the agent was wrong. DIR-1: the disk is full when the first agent starts, so that it
/// has no directory to lock. Once there is room it makes one, and has to lock it: a second agent was not refused.
#[test]
fn a_second_agent_is_refused_also_if_the_disk_was_full() {
    for mood in [DiskMood::Full, DiskMood::DurableFull] {
        let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").without_agent().build();
        world.disk(mood).start_agent().run(secs(10)).try_second_agent();
        world.calm().run(secs(10)).try_second_agent().settle();
    }
}

/// Seed 1794962526635, the checker was wrong: the disk is full, all containers are restarted, and the next agent has a ledger that
/// says nothing of it. The sidecar has run for long, so it has started (CON-3), and the others follow; the last of these starts
/// arrives when that agent is dead.
#[test]
fn a_restart_that_was_not_written_down_reruns_no_startup_probe() {
    let spec = "  initContainers:
  - {name: side, image: proxy, restartPolicy: Always, startupProbe: {tcpSocket: {port: 80}, initialDelaySeconds: 20}}
  containers:
  - {name: main, image: app}
";
    let mut world = World::new(1).pod(spec).without_agent().build();
    world.disk(DiskMood::Full).start_agent().run(secs(60));
    world.request_restart("web", "r1").expect("a node on its own refuses no restart");
    assert!(world.run_until(secs(10), |world| world.starts("side") == 2), "{}", world.timeline_text());
    world.kill_agent().run(secs(15)).start_agent().die_at(Death::Before(u64::MAX), InFlight::Applied);
    let made = |world: &World| world.timeline_text().contains("web-main-2 is created");
    assert!(world.run_until(secs(3), made), "{}", world.timeline_text());
    world.kill_agent().run(secs(1)).calm().start_agent().settle();
    assert_eq!((world.starts("side"), world.starts("main")), (2, 2), "{}", world.timeline_text());
}

/// Seed 1794961814309, `why` was wrong. CON-18: the disk is full, and all containers are restarted. The next agent knows of it by
/// the API server's copy alone, in which the end of each victim names what asked for the restart.
#[test]
fn the_copy_of_a_victim_shows_what_requested_the_restart() {
    let spec = "  containers:
  - {name: main, image: app}
  - name: helper
    image: app
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]
";
    let mut world = World::new(1).pod(spec).cluster().build();
    world.run(secs(10)).disk(DiskMood::Full).exit("helper", 88).run(secs(10));
    assert_eq!(world.starts("main"), 2, "{}", world.timeline_text());
    world.kill_agent().calm().start_agent().run(secs(1)).exit("main", 1).settle();
    assert_eq!(world.starts("main"), 3, "{}", world.timeline_text());
}

/// Seed 1794962525677, `why` was wrong. API-20: where an API server listens, an init container that runs again after a reboot
/// is shown as ended. It is lost in the next reboot, and `why` called that the reason of its success.
#[test]
fn an_init_container_that_is_shown_as_ended_is_explained_by_its_success() {
    let spec = "  restartPolicy: OnFailure
  initContainers:
  - {name: side, image: proxy, restartPolicy: Always}
  - {name: setup, image: tool}
  containers:
  - {name: main, image: app}
";
    let mut world = World::new(1).pod(spec).cluster().build();
    world.run(secs(10)).reboot(Remains::Nothing);
    world.script("setup").exits(0).after(secs(30));
    world.start_agent();
    assert!(world.run_until(secs(10), |world| world.starts("setup") == 2), "{}", world.timeline_text());
    world.run(secs(1)).reboot(Remains::Nothing);
    world.image("proxy").takes(secs(10));
    world.start_agent().run(secs(5)).check_explained();
    assert_eq!(world.violations(), [], "{}", world.timeline_text());
    world.settle();
}

/// Seed 1795100000762, the checker was wrong. RALL-29: the agent dies during a restart of all containers, and the next one has the gate
/// off. If all containers were removed by then they are started, the init container that had succeeded as well; else the restart is
/// given up, and only what it had killed is started.
#[test]
fn a_restart_goes_on_with_the_gate_off_once_its_containers_are_removed() {
    let spec = "  restartPolicy: Never
  initContainers:
  - {name: setup, image: tool}
  containers:
  - {name: other, image: app}
  - name: main
    image: app
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]
";
    for effects in 1..40 {
        let mut world = World::new(1).pod(spec).build();
        world.run(secs(10));
        world.die_at(Death::Before(world.effects() + effects), InFlight::Applied).exit("main", 88).run(secs(1));
        world.kill_agent();
        world.reconfigure(|settings| settings.rules.restart_all = RestartAllRule::Ignored).start_agent().settle();
    }
}

/// Seed 395565945132, the checker was wrong. STAT-20: on a node of its own the disk is full when the pod ends, and a reboot leaves no
/// container behind. Nothing says that the pod has ended, so it runs again; where an API server has its status, it stays ended.
#[test]
fn an_end_that_no_disk_no_runtime_and_no_api_server_remembers_is_forgotten() {
    let spec = "  restartPolicy: Never\n  containers:\n  - {name: main, image: app}\n";
    for (cluster, starts) in [(false, 2), (true, 1)] {
        let world = World::new(1).pod(spec).without_agent();
        let mut world = if cluster { world.cluster() } else { world }.build();
        world.script("main").exits(42).after(secs(5)).times(1);
        world.disk(DiskMood::Full).start_agent().run(secs(20));
        assert_eq!(world.status().phase, Phase::Failed, "{}", world.timeline_text());
        world.reboot(Remains::Nothing);
        world.start_agent().run(secs(20)).calm().settle();
        assert_eq!(world.starts("main"), starts, "{}", world.timeline_text());
    }
}

/// Seed 395565937703, the checker was wrong: the disk refuses the reasons of a status, and the agent dies before it tries again. `why`
/// is asked when the next agent has started and not yet looked.
#[test]
fn a_refused_write_is_not_missed_before_an_agent_can_retry_it() {
    for effects in 1..40 {
        let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").build();
        world.run(secs(10)).reboot(Remains::Dead);
        world.disk(DiskMood::Full).start_agent();
        world.die_at(Death::Before(world.effects() + effects), InFlight::Applied).run(secs(2)).kill_agent();
        world.run(secs(30)).calm().start_agent().check_explained();
        assert_eq!(world.violations(), [], "{}", world.timeline_text());
        world.settle();
    }
}

/// Seed 395565940741, checker and agent were wrong. CON-4: the agent was away for too long, and the next one dies before the runtime
/// answers it. The one after that was not away for long. It forgot the absence, because the heartbeat of the second was younger.
#[test]
fn a_long_absence_counts_although_the_first_agent_after_it_publishes_nothing() {
    let spec = "  containers:\n  - {name: main, image: app, readinessProbe: {tcpSocket: {port: 80}}}\n";
    let mut world = World::new(1).pod(spec).build();
    world.run(secs(30)).kill_agent().run(secs(62)).start_agent().restart_runtime(secs(5));
    world.run(secs(4)).kill_agent().run(secs(40)).start_agent();
    let is_doubted = |world: &World| !world.status().is_true(&ConditionType::Ready);
    assert!(world.run_until(secs(1), is_doubted), "{}", world.timeline_text());
    world.run(secs(1)).settle();
    world.restart_agent(secs(1)).run(secs(5));
    let shown = world.timeline_text();
    assert_eq!(shown.matches("-Ready").count() - shown.matches("Pending").count(), 2, "doubted once\n{shown}");
}

/// Seed 777000000792, the checker was wrong: the disk is full, a container crashes, the node reboots, and the next agent removes
/// what is left. The one after that cannot know that it ever ran, so the first crash that it sees is restarted at once.
#[test]
fn a_crash_that_nothing_remembers_does_not_delay_a_start() {
    let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").without_agent().build();
    world.image("app").takes(secs(5));
    world.disk(DiskMood::Full).start_agent().run(secs(20)).exit("main", 1).run(secs(1)).reboot(Remains::Dead);
    world.start_agent().run(secs(2)).restart_agent(secs(1)).run(secs(20)).exit("main", 1).run(secs(8));
    assert_eq!(world.starts("main"), 3, "{}", world.timeline_text());
    world.calm().settle();
}

/// Seed 777000004185, the checker was wrong. CON-12: the API server goes away while all containers are removed. The agent starts them again
/// although no client can read that the removal is over.
#[test]
fn a_restart_goes_on_while_the_api_server_is_away() {
    let spec = "  containers:
  - name: main
    image: app
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]
";
    let mut world = World::new(1).pod(spec).cluster().build();
    world.run(secs(10)).exit("main", 88);
    let is_restarting = |world: &World| world.status().is_true(&ConditionType::AllContainersRestarting);
    assert!(world.run_until(secs(5), is_restarting), "{}", world.timeline_text());
    world.faults(|faults| faults.api_server_away = true).run(secs(5));
    assert_eq!((world.starts("main"), world.violations()), (2, vec![]), "{}", world.timeline_text());
    world.calm().settle();
}

/// Seed 881000048156, the checker was wrong. PROBE-6: a container exits while it answers a readiness probe, and the runtime is away, so
/// the agent does not know of the exit. The connection is closed, which is a failure that the probe saw.
#[test]
fn an_answer_that_an_exit_cuts_off_is_a_failure() {
    let spec = "  containers:
  - {name: main, image: app, readinessProbe: {httpGet: {port: 80}, periodSeconds: 2, failureThreshold: 1, timeoutSeconds: 3}}
";
    let mut world = World::new(1).pod(spec).build();
    world.run(secs(60)).answer("main", ProbeKind::Readiness, Answer::new(Reply::Pass).after(millis(1400)));
    let asked = |world: &World| world.timeline_text().contains("pass after 1400 ms");
    assert!(world.run_until(secs(5), asked), "{}", world.timeline_text());
    world.run(millis(500)).restart_runtime(secs(2)).exit("main", 1).run(secs(1));
    assert!(!world.status().is_true(&ConditionType::Ready), "{}", world.timeline_text());
    world.settle();
}

/// Seed 881000056340, agent and checker were wrong. API-20, RALL-29: the agent dies in a requested restart of all containers, and the next
/// one has the gate off. It started the containers, and showed them as ended for ever: it took its own gate for the API server's.
#[test]
fn what_was_restarted_is_shown_also_with_the_gate_off() {
    let spec = "  restartPolicy: Never
  containers:
  - {name: helper, image: app, startupProbe: {tcpSocket: {port: 80}}}
  - name: main
    image: app
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]
";
    for effects in 1..30 {
        let mut world = World::new(1).pod(spec).cluster().build();
        world.run(secs(10));
        world.request_restart("web", "r1").expect("the pod has a rule");
        world.die_at(Death::Before(world.effects() + effects), InFlight::Applied).run(secs(1)).kill_agent();
        world.reconfigure(|settings| settings.rules.restart_all = RestartAllRule::Ignored).start_agent().settle();
    }
}

/// Seed 992000086050, the agent was wrong. KEEP-10, PROBE-13: the disk is full when a container exits, and the agent dies when it has
/// written the exit again and not yet that nothing is to be probed. The next one probed what had exited, and showed it as ready.
#[test]
fn what_has_exited_is_not_probed_after_a_full_disk() {
    let spec = "  restartPolicy: OnFailure
  containers:
  - {name: main, image: app, readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}}
  - {name: other, image: app, readinessProbe: {tcpSocket: {port: 81}, periodSeconds: 1}}
";
    let mut world = World::new(1).pod(spec).build();
    world.answer("other", ProbeKind::Readiness, Reply::Refuse);
    world.run(secs(10)).disk(DiskMood::Full).run(millis(100)).exit("main", 0).run(millis(4400)).calm();
    let has_half = |world: &World| {
        world.ledger().iter().any(|found| {
            let exited = found.evidence.durable.container("main").is_some_and(|record| record.running.is_none());
            exited && found.evidence.volatile.instances.contains_key("main")
        })
    };
    assert!(world.run_until(secs(3), has_half), "{}", world.timeline_text());
    world.restart_agent(secs(1)).run(secs(10));
    assert!(!world.container("main").ready, "{}", world.timeline_text());
    world.answer("other", ProbeKind::Readiness, Reply::Pass).settle();
}

/// Seed 992000033020, the agent was wrong. CON-4, RALL-16: a request interrupts a restart of all containers before its trigger is started
/// again, and then the ledger is lost. The API server's copy did not say any more that the trigger was counted.
#[test]
fn a_trigger_is_counted_once_although_a_request_interrupts_its_restart() {
    let spec = "  restartPolicy: Never
  containers:
  - {name: other, image: app}
  - name: main
    image: app
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]
";
    let mut world = World::new(1).pod(spec).cluster().build();
    world.run(secs(10));
    world.image("app").takes(secs(5));
    world.exit("main", 88);
    let is_removed = |world: &World| world.waiting_reason("main").as_deref() == Some("RestartingAllContainers");
    assert!(world.run_until(secs(5), is_removed), "{}", world.timeline_text());
    world.request_restart("web", "r1").expect("the pod has a rule");
    world.run(secs(1)).kill_agent().start_agent_without_ledger().settle();
    assert_eq!((world.starts("main"), world.container("main").restart_count), (2, 1), "{}", world.timeline_text());
}

/// Seed 992000052931, agent and checker were wrong. STAT-8: the disk is full, and a reboot leaves nothing but log files. The first agent
/// reads them and dies before it starts a container. The next one had a ledger, did not read them, and overwrote them. How the container
/// ended before the reboot, no agent can know.
#[test]
fn log_files_count_although_the_agent_that_read_them_starts_nothing() {
    let spec = "  containers:\n  - {name: main, image: app}\n  - {name: other, image: small}\n";
    let mut world = World::new(1).pod(spec).without_agent().build();
    world.disk(DiskMood::Full).start_agent().run(secs(10)).reboot(Remains::Nothing).calm();
    world.image("app").takes(secs(10));
    world.start_agent().run(secs(2)).restart_agent(secs(1)).run(secs(2));
    world.request_restart("web", "r1").expect("a node on its own refuses no restart");
    world.settle();
    assert_eq!((world.starts("main"), world.container("main").restart_count), (2, 1), "{}", world.timeline_text());
}

/// Seed 992000006236, the checker was wrong: a container vanishes before the agent has looked at it, so that its end is in no last state
/// when all containers have been restarted.
#[test]
fn what_vanished_before_it_was_seen_has_no_last_state() {
    let spec = "  containers:\n  - {name: main, image: app}\n  - {name: other, image: small}\n";
    let mut world = World::new(1).pod(spec).build();
    assert!(world.run_until(secs(5), |world| world.starts("main") == 1), "{}", world.timeline_text());
    world.image("app").takes(secs(5));
    world.lose("main").run(secs(1));
    assert_eq!(world.container("main").container_id, None, "{}", world.timeline_text());
    world.request_restart("web", "r1").expect("a node on its own refuses no restart");
    world.settle();
    assert_eq!(world.starts("main"), 2, "{}", world.timeline_text());
}

/// Seed 992000036762, `why` was wrong: the journal keeps the newest changes, and the results of the probe that had a container killed were
/// missed although they were older than its oldest one.
#[test]
fn what_is_older_than_the_journal_is_not_missed() {
    let spec = "  containers:
  - name: main
    image: app
    livenessProbe: {tcpSocket: {port: 80}, periodSeconds: 1, failureThreshold: 1}
    readinessProbe: {tcpSocket: {port: 81}, periodSeconds: 1, failureThreshold: 1}
";
    let mut world = World::new(1).pod(spec).build();
    world.run(secs(10)).answer("main", ProbeKind::Liveness, Reply::Refuse);
    assert!(world.run_until(secs(40), |world| world.starts("main") == 2), "{}", world.timeline_text());
    world.answer("main", ProbeKind::Liveness, Reply::Pass).run(secs(5));
    for _ in 0..40 {
        world.answer("main", ProbeKind::Readiness, Reply::Refuse).run(secs(2)).check_explained();
        world.answer("main", ProbeKind::Readiness, Reply::Pass).run(secs(2)).check_explained();
    }
    world.settle();
    assert_eq!(world.container("main").restart_count, 1, "{}", world.timeline_text());
}

/// Seed 992000074217, the checker was wrong. CON-3: the disk is full, and the agent dies before the startup probe of a sidecar succeeds.
/// The next one knows nothing of it but that it runs for long, so it has started, and the others follow.
#[test]
fn a_sidecar_of_which_nothing_is_known_has_started_if_it_runs_for_long() {
    let spec = "  initContainers:
  - {name: side, image: proxy, restartPolicy: Always, startupProbe: {tcpSocket: {port: 80}, periodSeconds: 1}}
  containers:
  - {name: main, image: app}
";
    for (down, starts) in [(5, 0), (15, 1)] {
        let mut world = World::new(1).pod(spec).without_agent().build();
        world.answer("side", ProbeKind::Startup, Reply::Refuse);
        world.disk(DiskMood::Full).start_agent().run(secs(2)).restart_agent(secs(down)).run(secs(2));
        assert_eq!(world.starts("main"), starts, "{}", world.timeline_text());
        world.answer("side", ProbeKind::Startup, Reply::Pass).settle();
    }
}

/// Seed 881000073963, the checker was wrong. CLU-3: a container in a backoff gets another image, and then the first one again. The
/// agent has seen another image, so the backoff begins anew.
#[test]
fn a_backoff_begins_anew_with_another_image_also_if_the_first_one_returns() {
    let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").build();
    world.run(secs(10)).exit("main", 1).run(secs(5)).exit("main", 1).run(secs(15));
    assert_eq!(world.starts("main"), 3, "{}", world.timeline_text());
    world.image("app:2").takes(secs(4));
    world.set_image("main", "app:2").run(secs(2)).set_image("main", "app");
    assert!(world.run_until(secs(10), |world| world.starts("main") == 4), "{}", world.timeline_text());
    world.settle();
}

/// Seed 1795009332374, the checker was wrong: the disk is full, and a start is given up when its agent is dead. The next one has a ledger
/// that lacks the launch, so that it looks like any failed start, and counts. Where the ledger has it, it does not.
#[test]
fn a_start_that_was_given_up_counts_where_the_disk_refused_its_launch() {
    for (mood, count) in [(DiskMood::Full, 2), (DiskMood::Well, 1)] {
        let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").build();
        world.script("main").starts_slowly(secs(2));
        world.run(secs(10)).disk(mood).die_at(Death::Before(u64::MAX), InFlight::GivenUp).exit("main", 1);
        let starts = |world: &World| world.timeline_text().contains("StartContainer web-main-2");
        assert!(world.run_until(secs(10), starts), "{}", world.timeline_text());
        world.kill_agent().run(secs(5)).start_agent().run(secs(30)).calm().settle();
        assert!(world.timeline_text().contains("web-main-2 is given up"), "{}", world.timeline_text());
        assert_eq!(
            (world.starts("main"), world.container("main").restart_count),
            (2, count),
            "{}",
            world.timeline_text()
        );
    }
}

/// Seed 1795011674218, the checker was wrong. RALL-13: all containers are restarted while a slow runtime starts an ephemeral container,
/// which is not one of them.
#[test]
fn a_restart_does_not_call_an_ephemeral_container_back() {
    let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").build();
    world.script("main").ignores_term();
    world.run(secs(60));
    let slow = CallOdds { slow: secs(5), ..CallOdds::default() };
    world.faults(|faults| faults.calls.extend([(CallKind::CreateContainer, slow), (CallKind::StopContainer, slow)]));
    for number in 1..10 {
        let name = format!("debug-{number}");
        world.add_ephemeral(&name).run(secs(1));
        world.request_restart("web", &name).expect("a node on its own refuses no restart");
        world.run(secs(30));
        assert_eq!(world.starts(&name), 1, "{}", world.timeline_text());
    }
    world.settle();
}
