//! Addresses of pods.

use keelet_harness::{Actor, Seen, manifest};

use crate::on_a_node;

fn addresses(seen: &Seen) -> (Option<&str>, Vec<&str>) {
    (seen.status.pod_ip.as_deref(), seen.status.pod_ips.iter().map(|address| address.ip.as_str()).collect())
}

/// STAT-34: a pod in the node's network has the node's address, and one beside it has its own.
#[test]
fn a_pod_in_the_nodes_network_has_the_nodes_address() {
    on_a_node(async |node| {
        // An address for documentation: nothing is sent to it.
        const NODE: &str = "192.0.2.7";
        node.configure(&format!("--node-ip={NODE}"));
        let main = Actor::new("main");
        node.want("outside", &manifest("outside", &format!("hostNetwork: true\ncontainers:\n{main}")));
        node.want("inside", &manifest("inside", &format!("containers:\n{main}")));
        node.start();
        // Its actor is called by the name of the node, so it keeps no diary of its own.
        let outside = node.pod_until("outside", "ready", Seen::is_ready).await;
        assert_eq!(addresses(&outside), (Some(NODE), vec![NODE]));
        let inside = node.ready("inside").await;
        assert_ne!(addresses(&inside), addresses(&outside));
        assert_eq!(addresses(&inside).1.len(), 1, "{:?}", inside.status.pod_ips);
        // Another agent says the same.
        node.kill().await;
        node.start();
        let outside = node.pod_until("outside", "ready", Seen::is_ready).await;
        assert_eq!(addresses(&outside), (Some(NODE), vec![NODE]));
        node.leaves_nothing().await;
    });
}
