//! Init containers: one by one, before all others, each to its success.

use keelet_harness::{Actor, Node, Seen};
use keelet_lifecycle::status::{ConditionType, Phase};

use super::{pod, sidecar};
use crate::on_a_node;

/// SCN-S1..SCN-S4, SCN-S8.
#[test]
fn init_containers_come_first() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(
            init_containers_run_one_by_one(node, "Never"),
            init_containers_run_one_by_one(node, "Always"),
            a_failing_one_fails_the_pod_under_never(node, "one"),
            a_failing_one_fails_the_pod_under_never(node, "two"),
            a_failing_one_is_tried_again_under_always(node),
            init_containers_and_sidecars_start_in_order(node),
            a_failing_one_beside_a_sidecar(node, true, "Never"),
            a_failing_one_beside_a_sidecar(node, false, "Never"),
            a_failing_one_beside_a_sidecar(node, true, "OnFailure"),
            a_failing_one_beside_a_sidecar(node, false, "Always"),
        );
        node.leaves_nothing().await;
    });
}

/// SCN-S1.
async fn init_containers_run_one_by_one(node: &Node, policy: &str) {
    let name = &format!("s1-{}", policy.to_lowercase());
    let init = [Actor::new("one").does(&format!("await {name}.go; exit 0")), Actor::new("two").does("exit 0")];
    let regular = [Actor::new("main"), Actor::new("other")];
    node.want(name, &pod(name, &format!("restartPolicy: {policy}"), &init, &regular));
    let during = node.pod_until(name, "initializing", |seen| seen.runs("one")).await;
    assert_eq!(during.status.phase, Phase::Pending, "{name}");
    assert!(!during.status.is_true(&ConditionType::Initialized), "{name}");
    node.touch(&format!("{name}.go"));
    let after = node.ready(name).await;
    let lines =
        ["end NAME.one", "start NAME.two", "end NAME.two", "start NAME.main"].map(|line| line.replace("NAME", name));
    node.in_order(&lines.each_ref().map(String::as_str));
    node.in_order(&[&lines[2], &format!("start {name}.other")]);
    for container in ["one", "two"] {
        assert_eq!(after.ended(container).map(|ended| ended.reason.as_str()), Some("Completed"), "{name}");
        assert!(after.container(container).ready, "{name}: {container}");
    }
    assert_eq!(after.phases(), [Phase::Pending, Phase::Running], "{name}");
}

/// SCN-S2.
async fn a_failing_one_fails_the_pod_under_never(node: &Node, failing: &str) {
    let name = &format!("s2-{failing}");
    let ends = |container: &str| Actor::new(container).does(if container == failing { "exit 1" } else { "exit 0" });
    node.want(name, &pod(name, "restartPolicy: Never", &[ends("one"), ends("two")], &[Actor::new("main")]));
    let seen = node.pod_until(name, "over", |seen| seen.status.phase.is_terminal()).await;
    assert_eq!((seen.status.phase, node.starts(name, ["main"])), (Phase::Failed, [0]), "{name}");
    assert_eq!(seen.ended(failing).map(|ended| ended.exit_code), Some(1), "{name}");
    assert_eq!(
        (node.starts(name, ["two"]), seen.restarts(failing)),
        ([usize::from(failing == "two")], Some(0)),
        "{name}"
    );
    assert!(!seen.status.is_true(&ConditionType::Initialized), "{name}");
    assert_eq!(node.times(&format!("start {name}.main")), 0);
}

/// SCN-S3.
async fn a_failing_one_is_tried_again_under_always(node: &Node) {
    let one = Actor::new("one").does("[ -e s3.well ] && exit 0; exit 1");
    node.want("s3", &pod("s3", "", &[one, Actor::new("two").does("exit 0")], &[Actor::new("main")]));
    let waits = |seen: &Seen| seen.restarts("one") >= Some(1) && seen.waits_for("one") == Some("CrashLoopBackOff");
    let seen = node.pod_until("s3", "in a loop", waits).await;
    assert_eq!(node.starts("s3", ["two", "main"]), [0, 0]);
    assert_eq!(seen.phases(), [Phase::Pending]);
    assert_eq!(seen.waits_for("main"), Some("PodInitializing"));
    node.touch("s3.well");
    node.ready("s3").await;
    assert_eq!(node.starts("s3", ["two", "main"]), [1, 1]);
}

/// SCN-S4.
async fn init_containers_and_sidecars_start_in_order(node: &Node) {
    let init = |name: &str| Actor::new(name).does("nap 0.5; exit 0");
    let all = [init("init-1"), sidecar("side-1"), init("init-2"), sidecar("side-2"), init("init-3")];
    node.want("s4", &pod("s4", "", &all, &[Actor::new("main")]));
    let seen = node.ready("s4").await;
    node.in_order(&["end s4.init-1", "start s4.side-1"]);
    node.in_order(&["end s4.init-1", "start s4.init-2", "end s4.init-2", "start s4.side-2"]);
    node.in_order(&["end s4.init-2", "start s4.init-3", "end s4.init-3", "start s4.main"]);
    for side in ["side-1", "side-2"] {
        // One instance that has not ended overlaps with all that came later.
        assert_eq!((node.starts("s4", [side]), seen.running().contains_key(side)), ([1], true));
    }
    for init in ["init-1", "init-2", "init-3"] {
        assert_eq!(node.starts("s4", [init]), [1]);
    }
}

/// SCN-S8.
async fn a_failing_one_beside_a_sidecar(node: &Node, before: bool, policy: &str) {
    let name = &format!("s8-{}-{}", if before { "before" } else { "after" }, policy.to_lowercase());
    // A sidecar before it has begun by then, so that it can tell.
    let failing = Actor::new("init").does(if before { "exit 1" } else { "hear \"start $HOSTNAME.side\"; exit 1" });
    let init = if before { [failing, sidecar("side")] } else { [sidecar("side"), failing] };
    node.want(name, &pod(name, &format!("restartPolicy: {policy}"), &init, &[Actor::new("main")]));
    if policy == "Never" {
        let seen = node.pod_until(name, "over", Seen::is_over).await;
        assert_eq!((seen.status.phase, seen.restarts("init")), (Phase::Failed, Some(0)), "{name}");
    } else {
        let seen = node.pod_until(name, "in a loop", |seen| seen.restarts("init") >= Some(1)).await;
        assert_eq!(seen.phases(), [Phase::Pending], "{name}");
        assert_eq!(seen.running().contains_key("side"), !before, "{name}");
    }
    assert_eq!(node.times(&format!("start {name}.main")), 0, "{name}");
    assert_eq!(node.times(&format!("start {name}.side")), usize::from(!before), "{name}");
    if !before {
        node.in_order(&[&format!("start {name}.side"), &format!("end {name}.init")]);
    }
}
