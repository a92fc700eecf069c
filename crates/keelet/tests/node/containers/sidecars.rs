//! Sidecars: restarted whatever the policy, and in the way of no other container.

use keelet_harness::{Actor, Node, Seen};
use keelet_lifecycle::status::Phase;

use super::{pod, sidecar};
use crate::on_a_node;

const STRICT: &str = "periodSeconds: 1, timeoutSeconds: 20, failureThreshold";

/// A hook that writes `hook POD` into the diary.
fn hook(name: &str) -> String {
    format!("lifecycle: {{preStop: {{exec: {{command: [sh, -c, echo hook {name} >>/ctl/diary]}}}}}}")
}

/// A probe of that kind that passes while a file is there.
fn probe(kind: &str, file: &str, threshold: u32) -> String {
    format!("{kind}Probe: {{exec: {{command: [test, -e, /ctl/{file}]}}, {STRICT}: {threshold}}}")
}

/// SCN-S5..SCN-S7, SCN-S9..SCN-S12, SCN-T2.
#[test]
fn sidecars_start_in_order_and_delay_no_other_container() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(
            a_pod_completes_beside_a_sidecar(node, "Never"),
            a_pod_completes_beside_a_sidecar(node, "OnFailure"),
            a_sidecar_that_exits_is_restarted(node, 0),
            a_sidecar_that_exits_is_restarted(node, 1),
            nothing_after_a_sidecar_with_a_bad_image_starts(node),
            sidecars_with_startup_probes_start_one_by_one(node),
            a_sidecar_whose_startup_fails_holds_up_the_others(node),
            a_sidecar_whose_liveness_fails_delays_no_other_container(node),
        );
        node.leaves_nothing().await;
    });
}

/// SCN-S5.
async fn a_pod_completes_beside_a_sidecar(node: &Node, policy: &str) {
    let name = &format!("s5-{}", policy.to_lowercase());
    node.want(name, &pod(name, &format!("restartPolicy: {policy}"), &[sidecar("side")], &[Actor::new("main")]));
    node.ready(name).await;
    node.exit(name, "main", 0);
    let seen = node.pod_until(name, "over", Seen::is_over).await;
    assert_eq!(seen.phases(), [Phase::Pending, Phase::Running, Phase::Succeeded], "{name}");
    node.in_order(&[&format!("end {name}.main"), &format!("term {name}.side"), &format!("end {name}.side")]);
    assert_eq!(node.times(&format!("start {name}.side")), 1, "{name}");
}

/// SCN-S6: before and after the others start, under Never, whatever its exit code.
async fn a_sidecar_that_exits_is_restarted(node: &Node, code: i32) {
    let name = &format!("s6-{code}");
    let init = [sidecar("side"), Actor::new("init").does(&format!("await {name}.go; exit 0"))];
    node.want(name, &pod(name, "restartPolicy: Never", &init, &[Actor::new("main")]));
    node.pod_until(name, "initializing", |seen| seen.runs("side") && seen.runs("init")).await;
    node.exit(name, "side", code);
    let again = |count: u32| move |seen: &Seen| seen.runs("side") && seen.restarts("side") == Some(count);
    let seen = node.pod_when(name, "with a new sidecar", again(1)).await;
    assert_eq!((seen.last("side").exit_code, node.starts(name, ["init"])), (code, [1]), "{name}");
    node.touch(&format!("{name}.go"));
    node.ready(name).await;
    node.exit(name, "side", code);
    node.pod_when(name, "with a third sidecar", again(2)).await;
    assert_eq!(node.starts(name, ["init", "main"]), [1, 1], "{name}");
    node.exit(name, "main", 0);
    let seen = node.pod_until(name, "over", Seen::is_over).await;
    assert_eq!(seen.phases(), [Phase::Pending, Phase::Running, Phase::Succeeded], "{name}");
    assert_eq!(node.times(&format!("start {name}.side")), 3, "{name}");
}

/// SCN-S7.
async fn nothing_after_a_sidecar_with_a_bad_image_starts(node: &Node) {
    let before = Actor::new("before").does("exit 0");
    let bad = "- {name: side, image: 127.0.0.1:1/none:1, restartPolicy: Always}\n";
    let after = Actor::new("after").does("exit 0");
    let manifest = pod("s7", "restartPolicy: Never", &[before, after], &[Actor::new("main")]);
    // Between the two.
    let manifest = manifest.replacen("  - {name: after", &format!("  {bad}  - {{name: after"), 1);
    node.want("s7", &manifest);
    let bad = |seen: &Seen| matches!(seen.waits_for("side"), Some("ErrImagePull" | "ImagePullBackOff"));
    node.pod_until("s7", "without an image", bad).await;
    let bad = |seen: &Seen| seen.waits_for("side") == Some("ImagePullBackOff");
    let seen = node.pod_until("s7", "waiting for its image", bad).await;
    assert_eq!(seen.phases(), [Phase::Pending]);
    assert_eq!(node.starts("s7", ["before", "side", "after", "main"]), [1, 0, 0, 0]);
    assert_eq!(seen.waits_for("main"), Some("PodInitializing"));
}

/// SCN-S9.
async fn sidecars_with_startup_probes_start_one_by_one(node: &Node) {
    let side = |name: &str| sidecar(name).with(&probe("startup", &format!("s9.{name}.up"), 600));
    node.want("s9", &pod("s9", "", &[side("first"), side("second")], &[Actor::new("main")]));
    node.pod_when("s9", "starting", |seen| seen.runs("first")).await;
    assert_eq!(node.starts("s9", ["second", "main"]), [0, 0]);
    node.touch("s9.first.up");
    let seen = node.pod_when("s9", "starting on", |seen| seen.runs("second")).await;
    assert_eq!((seen.bits("first").0, node.starts("s9", ["main"])), (true, [0]));
    node.touch("s9.second.up");
    node.ready("s9").await;
    assert_eq!(node.starts("s9", ["first", "second", "main"]), [1, 1, 1]);
    node.in_order(&["start s9.first", "start s9.second", "start s9.main"]);
}

/// SCN-S10, SCN-S12, SCN-T2: it is stopped with its hook, nothing after it starts; and once it passes, everything does.
async fn a_sidecar_whose_startup_fails_holds_up_the_others(node: &Node) {
    // It fails once the sidecar is at work, so that the sidecar can tell of its end.
    let looks = "until grep -qx 'start s10.side' /ctl/diary; do sleep 0.1; done; test -e /ctl/s10.up";
    let probe = format!("startupProbe: {{exec: {{command: [sh, -c, {looks:?}]}}, {STRICT}: 2}}");
    let side = sidecar("side").with(&probe).with(&hook("s10"));
    node.want("s10", &pod("s10", "", &[side, Actor::new("init").does("exit 0")], &[Actor::new("main")]));
    node.written("start s10.side", 2).await;
    node.in_order(&["start s10.side", "hook s10", "term s10.side", "end s10.side"]);
    node.pod_until("s10", "restarted", |seen| seen.restarts("side") >= Some(1)).await;
    assert_eq!(node.starts("s10", ["init", "main"]), [0, 0]);
    node.touch("s10.up");
    node.ready("s10").await;
    assert_eq!(node.starts("s10", ["init", "main"]), [1, 1]);
}

/// SCN-S11, SCN-T2: it is restarted with its hook while the next one starts, which goes on all the same.
async fn a_sidecar_whose_liveness_fails_delays_no_other_container(node: &Node) {
    let alive = "[sh, -c, 'test ! -e /ctl/s11.init || test -e /ctl/s11.alive']";
    let side = sidecar("side")
        .on_term("touch s11.alive; exit 0")
        .with(&format!("livenessProbe: {{exec: {{command: {alive}}}, {STRICT}: 1}}"))
        .with(&hook("s11"));
    let init = Actor::new("init").does("hear 'start s11.side'; touch s11.init; hear 'start s11.side' 2; exit 0");
    node.want("s11", &pod("s11", "", &[side, init], &[Actor::new("main")]));
    let seen = node.ready("s11").await;
    node.in_order(&["start s11.init", "hook s11", "term s11.side", "end s11.init"]);
    assert!(seen.restarts("side") >= Some(1));
    assert_eq!(node.starts("s11", ["init", "main"]), [1, 1]);
}
