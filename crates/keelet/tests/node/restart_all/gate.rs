//! The feature gate goes off and on again, each time with an agent of its own.

use keelet_harness::{Node, Seen};

use super::{FOUR, assert_same_pod, four, up};
use crate::on_a_node;

/// Starts the agent anew with the gate on or off.
async fn switch(node: &mut Node, on: bool) {
    node.kill().await;
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         featureGates: {{RestartAllContainersOnContainerExits: {on}}}\n"
    );
    node.put("config.yaml", &config);
    node.start();
}

/// RALL-29, SCN-A29: with the gate off a trigger exits and stays down, and the others keep running; with the gate on again all
/// containers restart, and not the trigger alone.
#[test]
fn all_containers_restart_once_the_gate_is_on_again() {
    on_a_node(async |node| {
        node.want("web", &four("web", ""));
        node.start();
        let before = node.ready("web").await;
        switch(node, false).await;
        node.exit("web", "source", 42);
        let down = |seen: &Seen| seen.ended("source").is_some_and(|ended| ended.exit_code == 42);
        let seen = node.pod_when("web", "up without its trigger", down).await;
        assert_eq!(seen.counts(FOUR), [0; 4], "its own policy is Never");
        switch(node, true).await;
        let after = up(node, "web", FOUR, [1; 4]).await;
        assert_same_pod(&before, &after);
        assert_eq!(node.starts("web", FOUR), [2; 4]);
        assert_eq!(after.history("source"), (42, "Error"));
        // It has counted, and does not count again.
        switch(node, false).await;
        switch(node, true).await;
        assert_eq!(up(node, "web", FOUR, [1; 4]).await.running(), after.running());
        node.leaves_nothing().await;
    });
}
