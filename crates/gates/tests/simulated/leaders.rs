//! Leaders that stop, are killed, freeze, and have other clocks.

use std::time::Duration;

use jiff::SignedDuration;
use keelet_sim_api::{Happening, Partition};
use tokio::time::sleep;

use crate::{
    secs, simulate,
    world::{Replica, World},
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
