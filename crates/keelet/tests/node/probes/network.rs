//! gRPC and HTTP of either version. There is no TLS server on a bare machine: TLS is tested with the prober.

use keelet_harness::{Actor, Node};
use keelet_pod::ProbeKind::Liveness;

use super::{Regular, named, restarted, untouched, want};
use crate::on_a_node;

/// SCN-P20..SCN-P23 without TLS servers.
#[test]
fn grpc_and_http2_are_spoken() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(
            keeps_running(node, "p20", "grpc: {port: 5000}", "grpc"),
            dies(node, "p21", "grpc: {port: 2333}"),
            dies(node, "p22-tls", "grpc: {port: 5000, mode: TLS}"),
            not_serving(node, "p22-unwell"),
            keeps_running(node, "p23-h1", "httpGet: {path: /, port: 8080, protocol: HTTP1}", "/"),
            keeps_running(node, "p23-h2", "httpGet: {path: /, port: 5000, protocol: HTTP2}", "page"),
            dies(node, "p23-old", "httpGet: {path: /, port: 8080, protocol: HTTP2}"),
            dies(node, "p23-port", "httpGet: {path: /, port: 2333, protocol: HTTP2}"),
        );
        node.leaves_nothing().await;
    });
}

/// A container that speaks HTTP/1.1 on one port and HTTP/2 on another, with this liveness probe.
fn speaker(handler: &str) -> Actor {
    let ports = "(exec 3<>/dev/tcp/127.0.0.1/8080) && (exec 3<>/dev/tcp/127.0.0.1/5000)";
    let startup = format!(
        "startupProbe: {{exec: {{command: [bash, -c, {ports:?}]}}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 60}}"
    );
    let liveness = format!("livenessProbe: {{{handler}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1}}");
    Actor::new("main").does("rm -f $me.unwell").serves_pages().serves_grpc().with(&startup).with(&liveness)
}

/// SCN-P20, SCN-P23.
async fn keeps_running(node: &Node, scenario: &str, handler: &str, asked: &str) {
    let pod = &named(scenario, Regular);
    want(node, pod, Regular, speaker(handler));
    node.ready(pod).await;
    untouched(node, pod, &format!("asked {asked} {pod}.main"), 4).await;
}

/// SCN-P21, SCN-P22, SCN-P23.
async fn dies(node: &Node, scenario: &str, handler: &str) {
    let pod = &named(scenario, Regular);
    want(node, pod, Regular, speaker(handler));
    restarted(node, pod, Liveness).await;
}

/// SCN-P22: a health service that says that it is not serving.
async fn not_serving(node: &Node, scenario: &str) {
    let pod = &named(scenario, Regular);
    want(node, pod, Regular, speaker("grpc: {port: 5000}"));
    untouched(node, pod, &format!("asked grpc {pod}.main"), 2).await;
    node.touch(&format!("{pod}.main.unwell"));
    restarted(node, pod, Liveness).await;
}
