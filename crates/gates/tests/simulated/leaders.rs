//! Leaders that stop, are killed, freeze, and have other clocks.

use std::time::Duration;

use jiff::SignedDuration;
use keelet_gates::{
    controller::Options,
    settings::{Enforcement, MaxHeld, Settings},
};
use keelet_sim_api::{Fate, Happening, Partition, Verb};
use tokio::time::sleep;

use crate::{
    rules, secs, simulate,
    world::{Replica, World, options, watch_over},
};

/// CTRL-14, CON-33, GN-5: of three replicas one writes, the others only watch.
#[test]
fn only_the_leader_writes() {
    simulate(async {
        let world = World::new(1);
        let replicas = ["a", "b", "c"].map(|name| world.replica(name));
        world.until("one leads", |_| replicas.iter().filter(|replica| replica.leads()).count() == 1).await;
        for number in 0..20 {
            world.gated(&format!("n{number}"));
            world.report(&format!("n{number}"), "CNIReady", "True");
        }
        world.until("all are free", |world| (0..20).all(|number| world.taints(&format!("n{number}")).is_empty())).await;
        sleep(secs(30)).await;
        let writers = ["a", "b", "c"]
            .map(|name| world.requests(name, "patch", "nodes") + world.requests(name, "create", "events"));
        assert_eq!(writers.iter().filter(|count| **count > 0).count(), 1, "{writers:?}");
        let removed: f64 =
            replicas.iter().map(|replica| replica.metric("readiness_gate_controller_taints_removed_total")).sum();
        assert_eq!(removed, 20.0);
        let managed: f64 =
            replicas.iter().map(|replica| replica.metric("readiness_gate_controller_nodes_managed_total")).sum();
        assert_eq!(managed, 20.0, "a sum over replicas is right");
    });
}

/// CTRL-14: a graceful stop hands over in well under a second.
#[test]
fn a_leader_that_stops_hands_over_at_once() {
    simulate(async {
        let world = World::new(1);
        let mut a = world.replica("a");
        world.until("a leads", |_| a.leads()).await;
        let b = world.replica("b");
        sleep(secs(7)).await;
        a.terminate();
        let took = world.until("b leads", |_| b.leads()).await;
        assert!(took < Duration::from_millis(300), "{took:?}");
        world.until("a has ended", |_| a.has_ended()).await;
        world.gated("n");
        world.report("n", "CNIReady", "True");
        let took = world.until("the gate is open", |world| world.taints("n").is_empty()).await;
        assert!(took < secs(1), "{took:?}");
    });
}

/// CTRL-14
#[test]
fn a_leader_that_is_killed_is_followed_when_its_lease_is_over() {
    simulate(async {
        let world = World::new(1);
        let a = world.replica("a");
        world.until("a leads", |_| a.leads()).await;
        let b = world.replica("b");
        sleep(secs(10)).await;
        a.process.kill();
        world.gated("n");
        world.report("n", "CNIReady", "True");
        let took = world.until("the gate is open", |world| world.taints("n").is_empty()).await;
        assert!(b.leads() && took > secs(10) && took < secs(17), "{took:?}");
    });
}

/// CTRL-14, GN-5: a process that stood still for longer than its lease writes nothing when it goes on.
#[test]
fn a_leader_that_freezes_writes_nothing_afterwards() {
    simulate(async {
        let world = World::new(1);
        let a = world.replica("a");
        world.until("a leads", |_| a.leads()).await;
        let b = world.replica("b");
        sleep(secs(5)).await;
        for number in 0..100 {
            world.gated(&format!("n{number}"));
        }
        sleep(secs(5)).await;
        // Frozen in the middle of a burst.
        for number in 0..100 {
            world.report(&format!("n{number}"), "CNIReady", "True");
        }
        sleep(Duration::from_millis(3)).await;
        a.process.freeze();
        world.until("b leads", |_| b.leads()).await;
        let before = world.requests("a", "patch", "nodes");
        a.process.thaw();
        world
            .until("all are free", |world| (0..100).all(|number| world.taints(&format!("n{number}")).is_empty()))
            .await;
        sleep(secs(60)).await;
        assert_eq!(world.requests("a", "patch", "nodes"), before);
        assert!(b.leads() && !a.leads());
    });
}

/// CTRL-14, GN-5: the same with events still to be written: nothing but its lease.
#[test]
fn a_leader_that_freezes_writes_no_event_afterwards() {
    simulate(async {
        let world = World::new(1);
        rules::install(&world);
        rules::create(&world, "net", "continuous");
        let a = world.replica("a");
        world.until("a leads", |_| a.leads()).await;
        let b = world.replica("b");
        for number in 0..100 {
            world.gated(&format!("n{number}"));
            world.report(&format!("n{number}"), "CNIReady", "True");
        }
        world.until("a writes events", |world| world.api.stored_of("events").len() > 20).await;
        a.process.freeze();
        let written = |world: &World| {
            world.api.with_log(|log| {
                let writes = log.requests().filter(|(client, request)| {
                    *client == "a"
                        && request.verb.is_some_and(Verb::is_write)
                        && !request.resource.starts_with("leases")
                });
                writes.count()
            })
        };
        world.until("b leads", |_| b.leads()).await;
        let before = written(&world);
        assert!(before < 250, "{before}: some are still to be written");
        a.process.thaw();
        world.report("n1", "CNI", "True");
        sleep(secs(60)).await;
        assert_eq!(written(&world), before);
    });
}

/// SCN-G3: a new leader whose watch of nodes is dead counts what the last leader held before it holds more.
#[test]
fn a_new_leader_counts_what_its_watch_did_not_say() {
    simulate(async {
        let world = World::new(1);
        let settings =
            Settings { enforcement: Enforcement::Continuous, max_held: MaxHeld::Nodes(2), ..Settings::default() };
        let faults = watch_over(&world, &settings);
        let start = |name: &str| world.start(name, Options { settings: settings.clone(), ..options(name) });
        let a = start("a");
        world.until("a leads", |_| a.leads()).await;
        let names: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
        for name in &names {
            world.gated(name);
            world.report(name, "CNIReady", "True");
        }
        world.until("all are free", |world| names.iter().all(|name| world.taints(name).is_empty())).await;
        let b = start("b");
        b.connection.faults(|faults| faults.watches.stalls = 1000);
        sleep(secs(2)).await;
        // b sees that the conditions are False, and its watch is dead before it sees which nodes a holds.
        a.connection.faults(|faults| faults.seal(Verb::Patch, "nodes", Fate::TooManyRequests(60), 2));
        for name in names.iter().rev() {
            world.report(name, "CNIReady", "False");
        }
        let held = |world: &World| names.iter().filter(|name| !world.taints(name).is_empty()).count();
        world.until("two are held", |world| held(world) == 2).await;
        a.process.kill();
        world.until("b leads", |_| b.leads()).await;
        sleep(secs(300)).await;
        assert_eq!(held(&world), 2);
        assert_eq!(faults.faults(), Vec::<String>::new());
    });
}

/// CTRL-14: etcd is restored from a backup of half an hour ago: one of the replicas leads again, asks for little meanwhile, and gates open.
#[test]
fn a_restored_api_server_gets_a_leader_again() {
    simulate(async {
        let world = World::new(1);
        let replicas = ["a", "b"].map(|name| world.replica(name));
        world.until("one leads", |_| replicas.iter().any(Replica::leads)).await;
        for name in ["n1", "n2"] {
            world.gated(name);
        }
        sleep(secs(60)).await;
        let backup = world.api.revision();
        sleep(secs(1800)).await;
        world.report("n1", "CNIReady", "True");
        world.until("n1 is free", |world| world.taints("n1").is_empty()).await;
        sleep(secs(60)).await;
        let asked = ["a", "b"].map(|name| world.requests(name, "get", "leases"));
        world.api.restore(backup);
        assert_eq!(world.taints("n1").len(), 1, "the backup is older");
        for name in ["n1", "n2"] {
            world.report(name, "CNIReady", "True");
        }
        let took =
            world.until("both are free", |world| ["n1", "n2"].iter().all(|name| world.taints(name).is_empty())).await;
        assert!(took < secs(90), "{took:?}");
        let asked = ["a", "b"].map(|name| world.requests(name, "get", "leases")).into_iter().sum::<usize>()
            - asked.into_iter().sum::<usize>();
        assert!(asked < 300, "{asked} reads of the lease");
        sleep(secs(60)).await;
        assert_eq!(replicas.iter().filter(|replica| replica.leads()).count(), 1);
    });
}

/// GN-5: a leader that cannot renew stops before another one begins.
#[test]
fn a_leader_that_is_cut_off_stops_before_another_one_begins() {
    for partition in [Partition::Silent, Partition::Refused] {
        simulate(async {
            let world = World::new(1);
            let a = world.replica("a");
            world.until("a leads", |_| a.leads()).await;
            let b = world.replica("b");
            sleep(secs(5)).await;
            a.connection.faults(|faults| faults.partition = partition);
            world.until("a has stepped down", |_| !a.leads() || b.leads()).await;
            assert!(!b.leads());
            world.until("b leads", |_| b.leads()).await;
            a.connection.faults(|faults| faults.partition = Partition::Open);
            sleep(secs(300)).await;
            assert!(b.leads() && !a.leads(), "and it stays so when the partition is over");
        });
    }
}

/// Clocks of days apart change neither who leads nor how fast.
#[test]
fn skewed_clocks_do_not_matter() {
    simulate(async {
        let world = World::new(1);
        let start = |name: &str, days: i64| -> Replica {
            let replica = world.replica(name);
            replica.connection.set_skew(SignedDuration::from_hours(24 * days));
            replica
        };
        let replicas = [start("a", 3), start("b", -3), start("c", 0)];
        world.until("one leads", |_| replicas.iter().any(Replica::leads)).await;
        let transitions =
            |world: &World| world.api.stored_of("leases.coordination.k8s.io")[0]["spec"]["leaseTransitions"].as_u64();
        sleep(secs(3600)).await;
        assert_eq!(transitions(&world), Some(0), "the same one for an hour");
        let leader = replicas.iter().find(|replica| replica.leads()).unwrap();
        leader.process.kill();
        let took = world
            .until("another one leads", |_| {
                replicas.iter().any(|replica| !replica.process.is_dead() && replica.leads())
            })
            .await;
        assert!(took < secs(18), "{took:?}");
        world.gated("n");
        world.report("n", "CNIReady", "True");
        world.until("the gate is open", |world| world.taints("n").is_empty()).await;
    });
}

/// A leader at rest costs a renewal every two seconds, and a follower a watch.
#[test]
fn replicas_at_rest_ask_for_little() {
    simulate(async {
        let world = World::new(1);
        let a = world.replica("a");
        world.until("a leads", |_| a.leads()).await;
        let _b = world.replica("b");
        sleep(secs(10)).await;
        let count = |world: &World| {
            let of = |name: &'static str| {
                move |entry: &&keelet_sim_api::LogEntry| {
                    &*entry.client == name && matches!(entry.what, Happening::Request(_))
                }
            };
            ["a", "b"].map(|name| world.api.log().entries().iter().filter(of(name)).count())
        };
        let before = count(&world);
        sleep(secs(3600)).await;
        let after = count(&world);
        let (leader, follower) = (after[0] - before[0], after[1] - before[1]);
        assert!((1790..2000).contains(&leader), "{leader} requests of the leader in an hour");
        assert!(follower < 200, "{follower} requests of the follower in an hour");
    });
}
