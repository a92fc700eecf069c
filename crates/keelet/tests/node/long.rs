//! What takes minutes to show (`make soak`): loops of crashes, and probes that go on and on.

use std::time::Duration;

use keelet_harness::{Actor, Node, manifest};
use tokio::time::sleep;

use super::on_a_node;

const HEADER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// A node with a pod that ends as soon as it starts.
async fn loops(node: &mut Node, config: &str) {
    node.put("config.yaml", &format!("{HEADER}{config}"));
    let main = Actor::new("main").does("exit 1");
    node.want("loop", &manifest("loop", &format!("containers:\n{main}")));
    node.start();
    node.written("start loop.main", 1).await;
}

fn restarts(node: &Node) -> usize {
    node.starts("loop", ["main"])[0] - 1
}

async fn minutes(count: u64) {
    sleep(Duration::from_secs(60 * count)).await;
}

/// SCN-B1.
#[test]
#[ignore = "takes minutes; make soak"]
fn a_crash_loop_is_slowed_down_more_and_more() {
    on_a_node(async |node| {
        loops(node, "").await;
        minutes(5).await;
        assert!((3..=7).contains(&restarts(node)), "{}", restarts(node));
        node.leaves_nothing().await;
    });
}

/// SCN-B1.
#[test]
#[ignore = "takes minutes; make soak"]
fn a_cap_of_30_seconds_allows_more_restarts() {
    on_a_node(async |node| {
        let cap =
            "featureGates: {KubeletCrashLoopBackOffMax: true}\ncrashLoopBackOff: {maxContainerRestartPeriod: 30s}\n";
        loops(node, cap).await;
        minutes(5).await;
        assert!((8..=13).contains(&restarts(node)), "{}", restarts(node));
        node.leaves_nothing().await;
    });
}

/// SCN-B1.
#[test]
#[ignore = "takes minutes; make soak"]
fn a_slower_growth_allows_more_restarts() {
    on_a_node(async |node| {
        loops(node, "featureGates: {ReduceDefaultCrashLoopBackOffDecay: true}\n").await;
        minutes(5).await;
        assert!((7..=13).contains(&restarts(node)), "{}", restarts(node));
        node.leaves_nothing().await;
    });
}

/// SCN-B1.
#[test]
#[ignore = "takes minutes; make soak"]
fn a_cap_of_one_second_allows_many_restarts() {
    on_a_node(async |node| {
        let cap =
            "featureGates: {KubeletCrashLoopBackOffMax: true}\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";
        loops(node, cap).await;
        minutes(1).await;
        assert!((20..=61).contains(&restarts(node)), "{}", restarts(node));
        node.leaves_nothing().await;
    });
}

/// SCN-B3: 0, 10, 20, 40, 80 and 160 seconds, which is 310 in all, and then 300 each.
#[test]
#[ignore = "takes a quarter of an hour; make soak"]
fn the_delay_ends_at_300_seconds() {
    on_a_node(async |node| {
        loops(node, "").await;
        minutes(8).await;
        assert_eq!(restarts(node), 6, "{}", node.log());
        assert!(node.log().contains("Back-off 300 s restarting failed container main"), "{}", node.log());
        minutes(4).await;
        assert_eq!(restarts(node), 7, "{}", node.log());
        minutes(3).await;
        assert_eq!(restarts(node), 7, "{}", node.log());
        assert!(!node.log().contains("Back-off 320 s"), "{}", node.log());
        node.leaves_nothing().await;
    });
}

/// SCN-P4, SCN-P27: no container is restarted whose probes pass, for four minutes and with many that are probed every second.
#[test]
#[ignore = "takes minutes; make soak"]
fn probes_that_pass_restart_no_container() {
    const MANY: usize = 24;
    on_a_node(async |node| {
        node.touch("stays");
        let names: Vec<_> = (0..MANY).map(|number| format!("busy-{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            let (actor, handler) = match number % 4 {
                0 => (Actor::new("main").serves_pages(), "httpGet: {path: /, port: 8080}"),
                1 => (Actor::new("main").serves_pages(), "tcpSocket: {port: 8080}"),
                2 => (Actor::new("main").serves_grpc(), "grpc: {port: 5000}"),
                _ => (Actor::new("main"), "exec: {command: [cat, /ctl/stays]}"),
            };
            // So that no container is probed before it listens. Threads of a small machine may wait a second for their turn.
            let startup = format!("startupProbe: {{{handler}, periodSeconds: 1, failureThreshold: 120}}");
            let liveness = format!("livenessProbe: {{{handler}, periodSeconds: 1, timeoutSeconds: 5}}");
            let actor = actor.with(&startup).with(&liveness);
            node.want(name, &manifest(name, &format!("containers:\n{actor}")));
        }
        node.start();
        for name in &names {
            node.ready(name).await;
        }
        minutes(4).await;
        for name in &names {
            let seen = node.see(name).await.expect("the pod");
            assert_eq!(
                (seen.counts(["main"]), seen.is_ready(), node.starts(name, ["main"])),
                ([0], true, [1]),
                "{name}"
            );
        }
        // The same file, and now it is gone.
        node.remove("stays");
        node.pod_until("busy-3", "restarted", |seen| seen.counts(["main"]) >= [1]).await;
        node.leaves_nothing().await;
    });
}
