//! What random play found, each distilled to the few steps that it takes. The doc comment names the seed that first
//! showed it, in the random world of that day: seeds change their course whenever that world learns something new.

use keelet_lifecycle::status::ConditionType;
use keelet_sim::{CallKind, CallOdds, Death, DiskMood, Fate, InFlight, Remains, World, millis, secs};

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
fn a_start_that_was_given_up_counts_where_no_ledger_tells_why() {
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

/// Seeds 1794957602801 and 1794957603373, the checker was wrong: a command ran out of time on its way to a slow runtime, and
/// the first attempt of all to be slow had not arrived when the pod was published as unready.
#[test]
fn a_probe_may_time_out_before_it_arrives() {
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
    assert!(world.run_until(secs(30), unready), "{}", world.timeline_text());
    world.settle();
    assert!(world.holds(ConditionType::Ready), "{}", world.timeline_text());
}

/// Seed 1794957604096, the agent was wrong. STAT-8: the ledger could not be written, a reboot left nothing but log files, and
/// the restart count that they tell of had no reason that `keelet why` could name.
#[test]
fn a_restart_count_that_log_files_tell_of_is_explained() {
    let mut world = World::new(1).pod("  containers:\n  - {name: main, image: app}\n").without_agent().build();
    world.disk(DiskMood::Full).start_agent().run(secs(10)).reboot(Remains::Nothing).calm().start_agent().settle();
    assert_eq!(world.container("main").restart_count, 1, "{}", world.timeline_text());
}
