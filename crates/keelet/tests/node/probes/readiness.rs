//! Readiness.

use keelet_harness::{Actor, Node, Seen};
use keelet_pod::ProbeKind;

use super::{Regular, STRICT, Sidecar, Stands, command, kills, named, says, untouched, want, want_within};
use crate::on_a_node;

/// SCN-P1, SCN-P2, SCN-P10, SCN-P26.
#[test]
fn readiness_is_shown_by_a_probe() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(
            a_container_is_not_ready_before_its_initial_delay(node, Regular),
            a_container_is_not_ready_before_its_initial_delay(node, Sidecar),
            a_probe_that_always_fails_never_makes_ready(node, Regular),
            a_probe_that_always_fails_never_makes_ready(node, Sidecar),
            a_command_that_takes_too_long_never_makes_ready(node, Regular),
        );
        node.leaves_nothing().await;
    });
}

/// SCN-P1: nobody asks before the delay is over, and the first answer makes ready.
async fn a_container_is_not_ready_before_its_initial_delay(node: &Node, stands: Stands) {
    let pod = &named("p1", stands);
    let probe = command("readiness", pod, "true", ", timeoutSeconds: 20, initialDelaySeconds: 4");
    want(node, pod, stands, Actor::new("main").does("nap 3; say later").with(&probe));
    let before = node.pod_until(pod, "running", |seen| seen.runs("main")).await;
    assert_eq!((before.bits("main"), before.is_ready()), ((true, false), false), "{pod}");
    let after = node.ready(pod).await;
    node.in_order(&[&format!("later {pod}.main"), &format!("readiness {pod}")]);
    assert_eq!((after.restarts("main"), after.readiness("main").as_slice()), (Some(0), &[true][..]), "{pod}");
    untouched(node, pod, &format!("readiness {pod}"), 3).await;
}

/// SCN-P2.
async fn a_probe_that_always_fails_never_makes_ready(node: &Node, stands: Stands) {
    let pod = &named("p2", stands);
    want(node, pod, stands, Actor::new("main").with(&command("readiness", pod, "false", STRICT)));
    let seen = untouched(node, pod, &format!("readiness {pod}"), 6).await;
    assert!(!seen.readiness("main").contains(&true) && !seen.is_ready(), "{pod}: {:#?}", seen.journal);
    says(node, pod, "Readiness probe failed").await;
}

/// SCN-P10.
async fn a_command_that_takes_too_long_never_makes_ready(node: &Node, stands: Stands) {
    let pod = &named("p10", stands);
    let probe = command("readiness", pod, "sleep 600", ", timeoutSeconds: 1");
    want(node, pod, stands, Actor::new("main").with(&probe));
    let seen = untouched(node, pod, &format!("readiness {pod}"), 4).await;
    assert!(!seen.readiness("main").contains(&true) && !seen.is_ready(), "{pod}: {:#?}", seen.journal);
    says(node, pod, "Readiness probe failed").await;
    // Nobody waits for what was given up.
    let left = node.processes("sleep 600");
    assert!(left <= 1, "{left} commands are left");
}

/// SCN-P24, SCN-P25, SCN-P26, PROBE-42: a container that is told to stop and takes its time turns unready when its
/// readiness probe says so, and no liveness probe speaks up.
#[test]
fn readiness_is_asked_during_termination_and_liveness_is_not() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(terminating(node, Regular), terminating(node, Sidecar));
        node.leaves_nothing().await;
    });
}

async fn terminating(node: &Node, stands: Stands) {
    let pod = &named("p25", stands);
    let file = format!("{pod}.well");
    node.touch(&file);
    let looks = format!("test -e /ctl/{file}");
    let main = Actor::new("main")
        .on_term("await $HOSTNAME.bye; exit 0")
        .with(&command("readiness", pod, &looks, STRICT))
        .with(&command("liveness", pod, &looks, STRICT));
    want_within(node, pod, stands, 600, main);
    node.ready(pod).await;
    node.written(&format!("liveness {pod}"), 1).await;
    node.want_no_more(pod);
    node.written(&format!("term {pod}.main"), 1).await;
    // It is ready for as long as its probe passes.
    let asked = node.times(&format!("readiness {pod}"));
    node.written(&format!("readiness {pod}"), asked + 2).await;
    assert!(node.see(pod).await.expect("the pod").container("main").ready, "{pod}");
    let liveness = node.times(&format!("liveness {pod}"));
    node.remove(&file);
    let unready = |seen: &Seen| !seen.is_ready() && !seen.container("main").ready;
    let seen = node.pod_until(pod, "unready", unready).await;
    assert!(seen.runs("main"), "{pod}");
    let asked = node.times(&format!("readiness {pod}"));
    node.written(&format!("readiness {pod}"), asked + 3).await;
    assert_eq!(node.times(&format!("liveness {pod}")), liveness, "{pod}");
    let seen = node.see(pod).await.expect("the pod");
    assert_eq!((kills(&seen, ProbeKind::Liveness), node.times(&format!("start {pod}.main"))), (0, 1), "{pod}");
    node.touch(&format!("{pod}.bye"));
    node.gone(pod).await;
    assert_eq!(node.times(&format!("end {pod}.main")), 1);
}
