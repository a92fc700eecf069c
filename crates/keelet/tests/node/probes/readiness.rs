//! Readiness.

use std::time::Duration;

use keelet_harness::{Actor, Node, Seen, eventually};
use keelet_lifecycle::{
    Wall,
    journal::What,
    status::{ConditionType, ContainerState},
};
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

/// SCN-P1: no probe runs before the delay is over, and the first answer makes ready.
async fn a_container_is_not_ready_before_its_initial_delay(node: &Node, stands: Stands) {
    let pod = &named("p1", stands);
    let asked = format!("{pod}.asked");
    let notes = format!("test -e /ctl/{asked} || date +%s%3N >/ctl/{asked}");
    let probe = command("readiness", pod, &notes, ", timeoutSeconds: 20, initialDelaySeconds: 4");
    want(node, pod, stands, Actor::new("main").with(&probe));
    let after = node.ready(pod).await;
    let ContainerState::Running(running) = &after.container("main").state else { panic!("{pod}: {:#?}", after.status) };
    let asked = std::fs::read_to_string(node.path("ctl").join(asked)).expect("the time of the first attempt");
    let asked = Wall::from_millis(asked.trim().parse().expect("a number"));
    let delay = asked.since(running.started_at);
    assert!(delay >= Duration::from_secs(4), "{pod}: asked after {delay:?}");
    // It ran and had started up before it was ready.
    let runs = after.place_of("a start", |what| matches!(what, What::Running { container, .. } if container == "main"));
    let ready =
        after.place_of("readiness", |what| matches!(what, What::Ready { container, .. } if container == "main"));
    let started = after
        .place_of("startup", |what| matches!(what, What::Started { container, value: true } if container == "main"));
    assert!(runs.max(started) < ready, "{pod}: {:#?}", after.journal);
    assert_eq!(after.transitions(&ConditionType::Ready), [false, true], "{pod}");
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
    // No task waits for an attempt that was given up.
    eventually("commands that were given up to be gone", async || match node.processes("sleep 600") {
        0 | 1 => Ok(()),
        left => Err(format!("{left} are left")),
    })
    .await;
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
    node.written(&format!("readiness {pod}"), asked + 5).await;
    // One that had begun before may write late.
    assert!(node.times(&format!("liveness {pod}")) <= liveness + 1, "{pod}: {:#?}", node.diary());
    let seen = node.see(pod).await.expect("the pod");
    assert_eq!((kills(&seen, ProbeKind::Liveness), node.times(&format!("start {pod}.main"))), (0, 1), "{pod}");
    node.touch(&format!("{pod}.bye"));
    node.gone(pod).await;
    assert_eq!(node.times(&format!("end {pod}.main")), 1);
}
