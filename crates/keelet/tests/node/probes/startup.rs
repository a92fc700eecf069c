//! Startup, and what it holds off.

use keelet_harness::{Actor, Node, Seen};
use keelet_pod::ProbeKind::{Liveness, Startup};

use super::{
    Regular, STRICT, Sidecar, Stands, command, kills, named, once_begun, restarted, untouched, want, want_within,
};
use crate::on_a_node;

/// SCN-P14..SCN-P17, SCN-P19, SCN-P26.
#[test]
fn startup_comes_first() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(
            a_failing_startup_probe_restarts(node, Regular),
            a_failing_startup_probe_restarts(node, Sidecar),
            liveness_waits_for_startup_and_kills_then(node, Regular),
            liveness_waits_for_startup_and_kills_then(node, Sidecar),
            a_slow_readiness_period_does_not_delay(node, Regular),
            a_startup_probe_with_a_short_grace_kills_within_it(node, Regular),
        );
        node.leaves_nothing().await;
    });
}

/// SCN-P14: though liveness would pass.
async fn a_failing_startup_probe_restarts(node: &Node, stands: Stands) {
    let pod = &named("p14", stands);
    let started = once_begun(pod, &format!("test -e /ctl/{pod}.started"));
    let main = Actor::new("main")
        .on_term(&format!("touch {pod}.started; exit 0"))
        .with(&command("startup", pod, &started, ", timeoutSeconds: 20, failureThreshold: 3"))
        .with(&command("liveness", pod, "true", STRICT));
    want(node, pod, stands, main);
    let seen = restarted(node, pod, Startup).await;
    assert_eq!(kills(&seen, Liveness), 0, "{pod}");
    node.ready(pod).await;
    // Three scheduled attempts in the first instance, eager ones between them, and no liveness probe.
    let diary = node.diary();
    let end = node.first(&format!("term {pod}.main"));
    let asked = |kind: &str| diary[..end].iter().filter(|line| **line == format!("{kind} {pod}")).count();
    assert!(asked("startup") >= 3, "{pod}: {diary:#?}");
    assert_eq!(asked("liveness"), 0, "{pod}: {diary:#?}");
}

/// SCN-P15, SCN-P16: liveness fails all through the first instance, and counts only once startup has passed.
async fn liveness_waits_for_startup_and_kills_then(node: &Node, stands: Stands) {
    let pod = &named("p15", stands);
    let main = Actor::new("main")
        .on_term(&format!("touch {pod}.well; exit 0"))
        .with(&command(
            "startup",
            pod,
            &format!("test -e /ctl/{pod}.started"),
            ", timeoutSeconds: 20, failureThreshold: 600",
        ))
        .with(&command("liveness", pod, &format!("test -e /ctl/{pod}.well"), STRICT));
    want(node, pod, stands, main);
    let seen = untouched(node, pod, &format!("startup {pod}"), 5).await;
    assert_eq!((seen.bits("main"), node.times(&format!("liveness {pod}"))), ((false, false), 0), "{pod}");
    node.touch(&format!("{pod}.started"));
    let seen = restarted(node, pod, Liveness).await;
    assert_eq!(kills(&seen, Startup), 0, "{pod}");
    assert!(node.times(&format!("liveness {pod}")) >= 1, "{pod}");
}

/// SCN-P17: the first readiness probe follows startup, not its own period of ten minutes.
async fn a_slow_readiness_period_does_not_delay(node: &Node, stands: Stands) {
    let pod = &named("p17", stands);
    let started = format!("test -e /ctl/{pod}.started");
    let main = Actor::new("main")
        .with(&command("startup", pod, &started, ", timeoutSeconds: 20, failureThreshold: 600"))
        .with("readinessProbe: {exec: {command: [\"true\"]}, periodSeconds: 600, timeoutSeconds: 20}");
    want(node, pod, stands, main);
    untouched(node, pod, &format!("startup {pod}"), 3).await;
    node.touch(&format!("{pod}.started"));
    let seen = node.ready(pod).await;
    assert_eq!(seen.readiness("main"), [true], "{pod}");
    let asked = node.times(&format!("startup {pod}"));
    let is_started = |seen: &Seen| seen.bits("main") == (true, true);
    node.pod_until(pod, "started", is_started).await;
    assert!(node.times(&format!("startup {pod}")) <= asked + 1, "{pod}: startup is asked no more");
}

/// SCN-P19, SCN-T6.
async fn a_startup_probe_with_a_short_grace_kills_within_it(node: &Node, stands: Stands) {
    let pod = &named("p19", stands);
    // Short beside ten minutes, and long enough for a busy machine to let it say that it was asked.
    let probe = command(
        "startup",
        pod,
        &once_begun(pod, &format!("test -e /ctl/{pod}.started")),
        ", timeoutSeconds: 20, failureThreshold: 2, terminationGracePeriodSeconds: 10",
    );
    let main = Actor::new("main").on_term(&format!("touch {pod}.started; [ $run = 1 ] || exit 0")).with(&probe);
    want_within(node, pod, stands, 600, main);
    let after = restarted(node, pod, Startup).await;
    assert_eq!(after.history("main"), (137, "Error"), "{pod}");
    assert_eq!(node.times(&format!("term {pod}.main")), 1, "{pod}: it was asked first");
}
