//! gRPC and HTTP of either version. The simulated network speaks no TLS: what needs a TLS server to answer is tested
//! on real sockets, with the prober.

use keelet_pod::ProbeKind::Liveness;
use keelet_sim::{Reply, Wire, secs};

use super::{PLACES, assert_restarted, assert_untouched, first_attempts};

/// SCN-P20, SCN-P26.
#[test]
fn a_container_that_serves_grpc_health_is_not_restarted() {
    for place in PLACES {
        let mut world = place.world(&["livenessProbe: {grpc: {port: 5000}, periodSeconds: 5, failureThreshold: 1}"]);
        world.run(secs(120));
        assert_untouched(&world, place);
        assert!(first_attempts(&world, Liveness) >= 20, "{place:?}");
    }
}

/// SCN-P21, SCN-P26.
#[test]
fn a_container_asked_for_grpc_health_on_a_wrong_port_is_restarted() {
    for place in PLACES {
        let mut world = place.world(&["livenessProbe: {grpc: {port: 2333}, periodSeconds: 5, failureThreshold: 1}"]);
        world.script("main").answers(Liveness, Reply::Refuse);
        world.run(secs(10));
        assert_restarted(&world, Liveness, place);
        assert!(world.saw_event("Unhealthy", "refused"), "{place:?}");
    }
}

/// SCN-P22: the sides that need no TLS server. Plaintext against TLS, TLS against plaintext, and TLS where no server listens
/// are failures; NOT_SERVING is one in any mode.
#[test]
fn grpc_that_is_not_understood_or_not_served_restarts() {
    let cases = [
        ("Plaintext", Some(Wire::Tls), Reply::Pass),
        ("TLS", Some(Wire::Http2), Reply::Pass),
        ("TLS", None, Reply::Refuse),
        ("Plaintext", None, Reply::Fail),
    ];
    for place in PLACES {
        for (mode, speaks, reply) in cases {
            let probe =
                format!("livenessProbe: {{grpc: {{port: 5000, mode: {mode}}}, periodSeconds: 5, failureThreshold: 1}}");
            let mut world = place.world(&[&probe]);
            world.script("main").answers(Liveness, reply);
            if let Some(wire) = speaks {
                world.script("main").speaks(wire);
            }
            world.run(secs(10));
            assert_restarted(&world, Liveness, place);
        }
    }
}

/// SCN-P23.
#[test]
fn http_is_asked_for_in_the_version_that_the_probe_names() {
    let cases = [
        ("HTTP1", Wire::Http1, Reply::Pass, true),
        ("HTTP2", Wire::Http2, Reply::Pass, true),
        ("HTTP2", Wire::Http1, Reply::Pass, false),
        ("HTTP2", Wire::Http2, Reply::Refuse, false),
        ("HTTP1", Wire::Http2, Reply::Pass, false),
    ];
    for place in PLACES {
        for (protocol, wire, reply, healthy) in cases {
            let probe = format!(
                "livenessProbe: {{httpGet: {{path: /healthz, port: 8080, protocol: {protocol}}}, periodSeconds: 5, failureThreshold: 1}}"
            );
            let mut world = place.world(&[&probe]);
            world.script("main").answers(Liveness, reply).speaks(wire);
            world.run(secs(if healthy { 120 } else { 10 }));
            if healthy {
                assert_untouched(&world, place);
                assert!(first_attempts(&world, Liveness) >= 20, "{place:?} {protocol} {wire:?}");
            } else {
                assert_restarted(&world, Liveness, place);
            }
        }
    }
}
