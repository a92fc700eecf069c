//! Many nodes.

use std::time::Duration;

use tokio::time::sleep;

use crate::{secs, simulate, world::World};

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
