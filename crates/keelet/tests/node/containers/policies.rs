//! Which container is restarted, and what is not restarted with it.

use keelet_harness::{Actor, Node, Seen};
use keelet_lifecycle::status::Phase;

use super::{pod, sidecar};
use crate::on_a_node;

/// A rule that restarts the container on exit code 42.
const RULE: &str =
    "restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]";

/// SCN-R1..SCN-R5, SCN-S16.
#[test]
fn policies_and_rules_say_which_container_is_restarted() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(
            an_exit(node, "r1", "Never", RULE, 42, None),
            an_exit(node, "r2", "Never", RULE, 1, Some(Phase::Failed)),
            an_exit(node, "r2-well", "Never", RULE, 0, Some(Phase::Succeeded)),
            an_exit(node, "r3", "Always", "restartPolicy: Never", 1, Some(Phase::Failed)),
            an_exit(node, "r4", "Never", "restartPolicy: Always", 1, None),
            an_exit(node, "r5", "Always", "", 1, None),
            a_restart_reruns_no_init_container(node),
        );
        node.leaves_nothing().await;
    });
}

/// SCN-R1..SCN-R5: a container that ends with that code is restarted, or the pod ends in that phase.
async fn an_exit(node: &Node, name: &str, policy: &str, of_container: &str, code: i32, ends: Option<Phase>) {
    let main = Actor::new("main");
    let main = if of_container.is_empty() { main } else { main.with(of_container) };
    node.want(name, &pod(name, &format!("restartPolicy: {policy}"), &[], &[main]));
    let before = node.ready(name).await;
    node.exit(name, "main", code);
    match ends {
        None => {
            let after = node.pod_when(name, "restarted", |seen| seen.is_ready() && seen.counts(["main"]) == [1]).await;
            assert_eq!(after.last("main").exit_code, code, "{name}");
            assert_eq!((&after.uid, after.sandbox()), (&before.uid, before.sandbox()), "{name}: in place");
            assert_eq!(after.phases(), [Phase::Pending, Phase::Running], "{name}");
            assert_eq!(node.starts(name, ["main"]), [2], "{name}");
        }
        Some(phase) => {
            let after = node.pod_until(name, "over", Seen::is_over).await;
            assert_eq!((after.status.phase, after.counts(["main"])), (phase, [0]), "{name}");
            assert_eq!(after.ended("main").map(|ended| ended.exit_code), Some(code), "{name}");
            assert_eq!(node.starts(name, ["main"]), [1], "{name}");
        }
    }
}

/// SCN-S16.
async fn a_restart_reruns_no_init_container(node: &Node) {
    let init = [Actor::new("one").does("exit 0"), sidecar("side"), Actor::new("two").does("exit 0")];
    node.want("s16", &pod("s16", "", &init, &[Actor::new("main"), Actor::new("other")]));
    node.ready("s16").await;
    node.exit("s16", "main", 1);
    let restarted = |seen: &Seen| seen.is_ready() && seen.counts(["main"]) == [1];
    let after = node.pod_when("s16", "restarted", restarted).await;
    assert_eq!(node.starts("s16", ["one", "side", "two", "main", "other"]), [1, 1, 1, 2, 1]);
    assert_eq!(after.counts(["one", "side", "two", "other"]), [0; 4]);
}
