//! What keeps a node from filling up, under a runtime that does not always do as it is told.

use keelet_agent::node::ConditionStatus;
use keelet_sim::{CallKind, Fate, World, secs};

const POD: &str = "  containers:\n  - {name: main, image: app}\n  - {name: other, image: app}\n";

/// The size at which a log is rotated.
const FULL: u64 = 10 << 20;

fn times(world: &World, what: &str) -> u32 {
    world.host_calls().get(what).copied().unwrap_or_default()
}

#[test]
fn a_log_that_has_grown_too_large_is_rotated_once() {
    let mut world = World::new(1).pod(POD).build();
    world.run(secs(30)).log_grows("main", FULL - 1).run(secs(30));
    assert_eq!(times(&world, "rotate main"), 0);
    world.log_grows("main", FULL).run(secs(60));
    assert_eq!((times(&world, "rotate main"), times(&world, "rotate other")), (1, 0));
    assert_eq!(times(&world, "unrotate main"), 0);
    assert_eq!(world.starts("main"), 1);
}

/// The log keeps its name if the runtime does not begin another, and is rotated once it does.
#[test]
fn a_log_that_the_runtime_does_not_reopen_gets_its_name_back() {
    let mut world = World::new(1).pod(POD).build();
    world.run(secs(20)).faults(|faults| faults.seal(CallKind::ReopenContainerLog, "main", Fate::Failed, 2));
    world.log_grows("main", FULL).run(secs(60));
    assert_eq!((times(&world, "rotate main"), times(&world, "unrotate main")), (3, 2));
}

/// An agent that dies between the two steps leaves a runtime that writes to a file with another name.
#[test]
fn a_rotation_that_died_half_way_is_finished_by_the_next_agent() {
    let mut world = World::new(1).pod(POD).build();
    world.run(secs(20)).faults(|faults| faults.seal(CallKind::ReopenContainerLog, "main", Fate::Hangs, 1));
    world.log_grows("main", FULL).run(secs(15));
    assert_eq!(times(&world, "rotate main"), 1);
    world.restart_agent(secs(1)).run(secs(30));
    assert_eq!((times(&world, "rotate main"), times(&world, "unrotate main")), (1, 0));
    // It was reopened: what grows now is a new file.
    world.log_grows("main", FULL).run(secs(30));
    assert_eq!(times(&world, "rotate main"), 2);
}

/// Volumes that the agent fills are checked every minute, and on request.
#[test]
fn volumes_are_looked_at_while_their_pod_runs() {
    let pod = "  volumes: [{name: conf, configMap: {name: conf}}]\n  containers:\n  - {name: main, image: app}\n";
    let mut world = World::new(1).pod(pod).build();
    world.run(secs(20));
    let looks = |world: &World| {
        world.host_calls().iter().filter(|(what, _)| what.starts_with("refresh ")).map(|(_, times)| *times).sum::<u32>()
    };
    let before = looks(&world);
    world.run(secs(300));
    let after = looks(&world);
    assert!((4..=6).contains(&(after - before)), "{before} and {after}");
    let mut plain = World::new(1).pod(POD).build();
    plain.run(secs(300));
    assert_eq!(looks(&plain), 0, "there is nothing to look at");
}

/// A pod that neither the ledger nor the runtime knows goes, once. One that runs stays.
#[test]
fn directories_of_an_unknown_pod_are_removed() {
    let mut world = World::new(1).pod(POD).build();
    world.run(secs(20)).leave_directories("ghost").leave_directories("web").run(secs(150));
    assert_eq!(times(&world, "clean up ghost"), 1);
    assert_eq!(times(&world, "clean up web"), 0, "{:?}", world.host_calls());
    assert_eq!(world.starts("main"), 1);
}

/// NODE-8: a disk that fills up is a condition of the node within ten seconds or so. It ends five minutes after there is room
/// again, and pods go on as if nothing were.
#[test]
fn a_full_disk_is_disk_pressure_of_the_node() {
    let mut world = World::new(1).pod(POD).build();
    world.disk_has_left(50).run(secs(30));
    let holds = |world: &World| world.disk_pressure().is_some_and(|pressure| pressure.holds);
    assert!(!holds(&world));
    world.disk_has_left(9);
    assert!(world.run_until(secs(11), holds), "{:?}", world.disk_pressure());
    let message = world.disk_pressure().expect("an agent").message;
    assert!(message.contains("nodefs.available is 9 %, less than 10 %"), "{message}");
    // A new agent finds out by itself.
    world.restart_agent(secs(1));
    assert!(world.run_until(secs(12), holds), "{:?}", world.disk_pressure());
    world.disk_has_left(50).run(secs(280));
    assert!(holds(&world), "{:?}", world.disk_pressure());
    assert!(world.run_until(secs(40), |world| !holds(world)), "{:?}", world.disk_pressure());
    assert_eq!((world.starts("main"), world.starts("other")), (1, 1));
}

/// NODE-9: the node is looked at although no client asks, so a condition has the time of its transition, and keeps it.
#[test]
fn a_node_whose_runtime_is_away_says_since_when() {
    let mut world = World::new(1).pod(POD).build();
    world.run(secs(30));
    let ready = |world: &World| world.node_condition("Ready").expect("a look");
    let begun = ready(&world).since;
    let went_away = world.now().wall;
    world.restart_runtime(secs(60)).run(secs(50));
    let away = ready(&world);
    assert_eq!((away.status, away.reason.as_str()), (ConditionStatus::False, "RuntimeNotAnswering"));
    assert!(away.since > begun && away.since.since(went_away) <= secs(11), "{away:?}, away since {went_away}");
    world.run(secs(40));
    let back = ready(&world);
    assert_eq!(back.status, ConditionStatus::True, "{back:?}");
    assert!(back.since.since(went_away) >= secs(60), "{back:?}, away since {went_away}");
    world.run(secs(300));
    assert_eq!(ready(&world).since, back.since, "nothing has changed");
}
