//! Liveness by commands, over HTTP and over TCP.

use keelet_harness::{Actor, Node};
use keelet_pod::ProbeKind::{Liveness, Startup};

use super::{Regular, STRICT, Sidecar, Stands, command, kills, named, restarted, says, untouched, want, want_within};
use crate::on_a_node;

/// A page on port 8080, every second.
fn page(path: &str) -> String {
    format!(
        "livenessProbe: {{httpGet: {{path: {path}, port: 8080}}, periodSeconds: 1, initialDelaySeconds: 3{STRICT}}}"
    )
}

/// A startup probe, so that no container is probed before it listens.
const LISTENS: &str =
    "startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 60}";

/// SCN-P3, SCN-P9, SCN-P11, SCN-P18, SCN-P26.
#[test]
fn commands_decide_which_containers_are_restarted() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(
            a_container_is_restarted_when_a_file_disappears(node, Regular),
            a_container_is_restarted_when_a_file_disappears(node, Sidecar),
            a_container_is_restarted_when_its_command_takes_too_long(node, "p9", "sleep 600"),
            a_container_is_restarted_when_its_command_takes_too_long(node, "p11", "sleep 600; false"),
            a_probe_with_a_short_grace_kills_within_it(node, Regular),
            a_probe_with_a_short_grace_kills_within_it(node, Sidecar),
        );
        node.leaves_nothing().await;
    });
}

/// SCN-P3, PROBE-13.
async fn a_container_is_restarted_when_a_file_disappears(node: &Node, stands: Stands) {
    let pod = &named("p3", stands);
    node.touch(&format!("{pod}.health"));
    let probe = command("liveness", pod, &format!("test -e /ctl/{pod}.health"), STRICT);
    want(node, pod, stands, Actor::new("main").on_term(&format!("touch {pod}.health; exit 0")).with(&probe));
    let before = untouched(node, pod, &format!("liveness {pod}"), 3).await;
    node.remove(&format!("{pod}.health"));
    let after = restarted(node, pod, Liveness).await;
    assert_eq!(after.history("main"), (0, "Completed"), "{pod}: it ended well when it was told");
    assert_eq!(node.times(&format!("term {pod}.main")), 1, "{pod}");
    assert_eq!(after.sandbox(), before.sandbox(), "{pod}");
    assert_ne!(after.running_id("main"), before.running_id("main"), "{pod}");
    // The new one is probed anew, and keeps running.
    let asked = node.times(&format!("liveness {pod}"));
    node.written(&format!("liveness {pod}"), asked + 3).await;
    assert_eq!(node.see(pod).await.expect("the pod").restarts("main"), Some(1), "{pod}");
}

/// SCN-P9, SCN-P11.
async fn a_container_is_restarted_when_its_command_takes_too_long(node: &Node, scenario: &str, slow: &str) {
    let pod = &named(scenario, Regular);
    let once = format!("[ -e /ctl/{pod}.once ] && exit 0; touch /ctl/{pod}.once; {slow}");
    want(
        node,
        pod,
        Regular,
        Actor::new("main").with(&command("liveness", pod, &once, ", timeoutSeconds: 1, failureThreshold: 1")),
    );
    restarted(node, pod, Liveness).await;
    says(node, pod, "Liveness probe failed").await;
}

/// SCN-P18, SCN-T6: the pod would give it ten minutes.
async fn a_probe_with_a_short_grace_kills_within_it(node: &Node, stands: Stands) {
    let pod = &named("p18", stands);
    let once = format!("test ! -e /ctl/{pod}.ill");
    // Short beside ten minutes, and long enough for a busy machine to let it say that it was asked.
    let probe = command("liveness", pod, &once, &format!("{STRICT}, terminationGracePeriodSeconds: 10"));
    let main = Actor::new("main").on_term("rm -f $HOSTNAME.ill").with(&probe);
    want_within(node, pod, stands, 600, main);
    node.ready(pod).await;
    node.touch(&format!("{pod}.ill"));
    let after = restarted(node, pod, Liveness).await;
    assert_eq!(after.history("main"), (137, "Error"), "{pod}");
    assert_eq!(node.times(&format!("term {pod}.main")), 1, "{pod}: it was asked first");
    // Deaf as it is, it would keep its pod for ten minutes.
    node.want_no_more(pod);
    node.written(&format!("term {pod}.main"), 2).await;
    node.kill_container(&node.see(pod).await.expect("the pod"), "main");
}

/// SCN-P5, SCN-P6, SCN-P8, SCN-P12, SCN-P13, SCN-P26.
#[test]
fn pages_and_ports_decide_which_containers_are_restarted() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(
            a_page_that_turns_to_500_restarts(node, Regular),
            a_page_that_turns_to_500_restarts(node, Sidecar),
            an_open_port_is_enough(node, Regular),
            a_healthy_page_restarts_nothing(node, Regular),
            a_page_that_leads_to_a_failing_one_restarts(node, Regular),
            a_page_that_leads_elsewhere_is_warned_about(node, Regular),
        );
        node.leaves_nothing().await;
    });
}

/// SCN-P5.
async fn a_page_that_turns_to_500_restarts(node: &Node, stands: Stands) {
    let pod = &named("p5", stands);
    let main = Actor::new("main").does("rm -f $me.page-healthz").serves_pages().with(LISTENS).with(&page("/healthz"));
    want(node, pod, stands, main);
    untouched(node, pod, &format!("asked /healthz {pod}.main"), 2).await;
    node.write(&format!("{pod}.main.page-healthz"), "500\n");
    restarted(node, pod, Liveness).await;
    says(node, pod, "statuscode: 500").await;
    node.ready(pod).await;
}

/// SCN-P6.
async fn an_open_port_is_enough(node: &Node, stands: Stands) {
    let pod = &named("p6", stands);
    node.write(&format!("{pod}.main.page-healthz"), "500\n");
    let tcp = format!("livenessProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1{STRICT}}}");
    let http = format!("readinessProbe: {{httpGet: {{path: /healthz, port: 8080}}, periodSeconds: 1{STRICT}}}");
    want(node, pod, stands, Actor::new("main").serves_pages().with(LISTENS).with(&tcp).with(&http));
    let seen = untouched(node, pod, &format!("asked /healthz {pod}.main"), 5).await;
    assert_eq!(seen.bits("main"), (true, false), "{pod}");
    says(node, pod, "statuscode: 500").await;
}

/// SCN-P8.
async fn a_healthy_page_restarts_nothing(node: &Node, stands: Stands) {
    let pod = &named("p8", stands);
    want(node, pod, stands, Actor::new("main").serves_pages().with(LISTENS).with(&page("/healthz")));
    let seen = untouched(node, pod, &format!("asked /healthz {pod}.main"), 6).await;
    assert_eq!(seen.bits("main"), (true, true), "{pod}");
}

/// SCN-P12.
async fn a_page_that_leads_to_a_failing_one_restarts(node: &Node, stands: Stands) {
    let pod = &named("p12", stands);
    node.write(&format!("{pod}.main.page-redirect"), "302 /healthz\n");
    node.write(&format!("{pod}.main.page-healthz"), "500\n");
    let main = Actor::new("main").does("[ $run = 1 ] || rm -f $me.page-healthz").serves_pages();
    want(node, pod, stands, main.with(LISTENS).with(&page("/redirect")));
    restarted(node, pod, Liveness).await;
    says(node, pod, "statuscode: 500").await;
}

/// SCN-P13.
async fn a_page_that_leads_elsewhere_is_warned_about(node: &Node, stands: Stands) {
    let pod = &named("p13", stands);
    node.write(&format!("{pod}.main.page-redirect"), "302 http://0.0.0.0/\n");
    want(node, pod, stands, Actor::new("main").serves_pages().with(LISTENS).with(&page("/redirect")));
    let seen = untouched(node, pod, &format!("asked /redirect {pod}.main"), 4).await;
    assert_eq!(kills(&seen, Startup), 0);
    says(node, pod, "ProbeWarning").await;
}

/// SCN-P7: the restart count grows one by one, and every restart is later than the one before.
#[test]
#[ignore = "takes minutes; make soak"]
fn the_restart_count_rises_to_five_and_never_falls() {
    on_a_node(async |node| {
        want(node, "p7", Regular, Actor::new("main").with(&command("liveness", "p7", "false", STRICT)));
        node.start();
        for count in 1..=5 {
            node.pod_until("p7", "restarted", |seen| seen.restarts("main") >= Some(count)).await;
        }
        let counts = node.see("p7").await.expect("the pod").noted(|what| match what {
            keelet_lifecycle::journal::What::RestartCount { count, .. } => Some(*count),
            _ => None,
        });
        assert_eq!(counts[..5], [1, 2, 3, 4, 5]);
    });
}
