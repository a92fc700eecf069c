//! Many nodes.

use std::time::Duration;

use keelet_sim_api::Partition;
use tokio::time::sleep;

use crate::{
    secs, simulate,
    world::{Replica, World},
};

/// SCN-G17, GN-10, CTRL-10, PEER-29: a burst of a thousand nodes is a thousand patches, at most 32 at once, and each node is free in time.
#[test]
fn a_thousand_nodes_pass_at_once() {
    simulate(async {
        let world = World::new(1);
        for number in 0..1000 {
            world.gated(&format!("n{number:04}"));
        }
        let replica = world.replica("a");
        world.until("it leads", |_| replica.leads()).await;
        let labelled = |world: &World| {
            world.requests("a", "patch", "nodes") >= 1000 && replica.metric("keelet_gates_queue") == 0.0
        };
        world.until("all have their label", labelled).await;
        sleep(secs(5)).await;
        let (patches, gets) = (world.requests("a", "patch", "nodes"), world.requests("a", "get", "nodes"));
        for number in 0..1000 {
            world.report(&format!("n{number:04}"), "CNIReady", "True");
        }
        let removed = || replica.metric("readiness_gate_controller_taints_removed_total");
        let took = world.until("all are free", |_| removed() >= 1000.0).await;
        // Each patch takes some 10 ms here; 32 at once are 3,000 a second.
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert_eq!(world.requests("a", "patch", "nodes") - patches, 1000);
        assert_eq!(world.requests("a", "get", "nodes") - gets, 0);
        assert_eq!(
            replica.metric("readiness_gate_controller_taint_removal_latency_seconds_bucket{le=\"10.0\"}"),
            1000.0
        );
        world.until("all events are there", |world| world.api.stored_of("events").len() == 1000).await;
    });
}

/// SCN-G17, GN-10, CTRL-14: five thousand nodes and three replicas, of which one is killed and another is cut off in the middle of the burst.
/// None of them stops doing things, and each node is free.
#[test]
fn five_thousand_nodes_outlive_their_leaders() {
    simulate(async {
        const NODES: usize = 5000;
        let world = World::new(1);
        for number in 0..NODES {
            world.gated(&format!("n{number:04}"));
        }
        let replicas = ["a", "b", "c"].map(|name| world.replica(name));
        let leader = || replicas.iter().find(|replica| !replica.process.is_dead() && replica.leads());
        let alive = |replica: &Replica| replica.process.is_dead() || replica.vitals.borrow().is_alive();
        let removed = || -> f64 {
            replicas.iter().map(|replica| replica.metric("readiness_gate_controller_taints_removed_total")).sum()
        };
        world.until("one leads", |_| leader().is_some()).await;
        sleep(secs(10)).await;
        for number in 0..NODES {
            world.report(&format!("n{number:04}"), "CNIReady", "True");
        }
        world.until("some are free", |_| removed() > 500.0).await;
        leader().expect("it leads").process.kill();
        world.until("another one leads", |_| leader().is_some()).await;
        world.until("more are free", |_| removed() > 1500.0).await;
        let cut_off = leader().expect("it leads");
        cut_off.connection.faults(|faults| faults.partition = Partition::Silent);
        world.until("the third one leads", |_| leader().is_some_and(|leader| !std::ptr::eq(leader, cut_off))).await;
        let free = |world: &World| {
            let nodes = world.api.stored_of("nodes");
            nodes.iter().filter(|node| node["metadata"]["annotations"]["readiness.k8s.io/CNIReady"] == "passed").count()
        };
        while free(&world) < NODES {
            assert!(replicas.iter().all(alive), "all of them do something");
            sleep(Duration::from_millis(500)).await;
        }
        let writes =
            world.api.with_log(|log| log.writes().filter(|write| keelet_sim_gates::removes_gate(write)).count());
        assert_eq!(writes, NODES, "each taint is removed once");
    });
}
