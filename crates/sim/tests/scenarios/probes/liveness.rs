//! Liveness by commands, over HTTP and over TCP.

use std::time::Duration;

use keelet_pod::ProbeKind::{Liveness, Readiness};
use keelet_sim::{Answer, Reply, secs};

use super::{PLACES, Place, assert_about, assert_restarted, assert_untouched, first_attempts, first_end, restarts};

/// A liveness probe, what it answers from some age on, and when that kills: at the third failure in a row.
struct Deadly {
    probe: &'static str,
    answer: Answer,
    from: u64,
    dies_at: u64,
}

// === impl Deadly ===

impl Deadly {
    fn kills(&self, place: Place) {
        let mut world = place.world(&[self.probe]);
        world.script("main").answers_from(secs(self.from), Liveness, self.answer);
        world.run(secs(self.dies_at + 5));
        assert_restarted(&world, Liveness, place);
        assert_about(first_end(&world).0, secs(self.dies_at));
    }
}

/// SCN-P3, SCN-P26.
#[test]
fn a_container_is_restarted_when_the_file_its_liveness_probe_looks_for_disappears() {
    for place in PLACES {
        let probe =
            "livenessProbe: {exec: {command: [cat, /tmp/health]}, initialDelaySeconds: 15, failureThreshold: 1}";
        Deadly { probe, answer: Reply::Fail.into(), from: 10, dies_at: 15 }.kills(place);
    }
}

/// SCN-P5, SCN-P26.
#[test]
fn a_container_is_restarted_when_its_liveness_page_turns_to_500() {
    for place in PLACES {
        // Asked every 5 s: it fails at 10, 15 and 20 s.
        let probe = "livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 5}";
        Deadly { probe, answer: Reply::Status(500).into(), from: 10, dies_at: 20 }.kills(place);
    }
}

/// SCN-P9, SCN-P11, SCN-P26.
#[test]
fn a_container_is_restarted_when_its_liveness_command_takes_too_long_whatever_it_says_in_the_end() {
    for place in PLACES {
        for reply in [Reply::Pass, Reply::Fail, Reply::Hang] {
            // Asked at 5, 10 and 15 s, and each time a second goes by.
            let probe = "livenessProbe: {exec: {command: [slow]}, timeoutSeconds: 1, periodSeconds: 5}";
            Deadly { probe, answer: Answer::new(reply).after(secs(10)), from: 0, dies_at: 16 }.kills(place);
        }
    }
}

/// SCN-P4, SCN-P26.
#[test]
fn a_container_is_not_restarted_in_four_minutes_while_the_file_stays() {
    for place in PLACES {
        let mut world = place
            .world(&["livenessProbe: {exec: {command: [cat, /tmp/health]}, periodSeconds: 5, failureThreshold: 1}"]);
        world.run(secs(240));
        assert_untouched(&world, place);
        assert!(first_attempts(&world, Liveness) >= 47, "{place:?}");
    }
}

/// SCN-P6, SCN-P26.
#[test]
fn a_container_whose_port_is_open_is_not_restarted_by_a_tcp_probe_though_its_pages_fail() {
    for place in PLACES {
        let mut world = place.world(&[
            "livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 5, failureThreshold: 1}",
            "readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 5}",
        ]);
        world.script("main").answers(Readiness, Reply::Status(500)).answers(Liveness, Reply::Pass);
        world.run(secs(120));
        assert_untouched(&world, place);
        assert!(world.saw_event("Unhealthy", "statuscode: 500"), "{place:?}: the page did not fail");
        assert!(first_attempts(&world, Liveness) >= 20, "{place:?}");
    }
}

/// SCN-P8, SCN-P26.
#[test]
fn a_container_whose_liveness_page_is_healthy_is_not_restarted() {
    for place in PLACES {
        let mut world = place
            .world(&["livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 5, failureThreshold: 1}"]);
        world.run(secs(240));
        assert_untouched(&world, place);
        assert!(first_attempts(&world, Liveness) >= 47, "{place:?}");
    }
}

/// SCN-P7, SCN-P26.
#[test]
fn the_restart_count_rises_to_five_and_never_falls() {
    for place in PLACES {
        let mut world = place
            .world(&["livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2, failureThreshold: 1}"]);
        world.script("main").answers_from(secs(10), Liveness, Reply::Status(500));
        world.run(secs(230));
        assert!(restarts(&world) >= 5, "{place:?}");
        let counts: Vec<u32> = world
            .statuses()
            .iter()
            .filter_map(|(_, status)| status.container("main").map(|main| main.restart_count))
            .collect();
        assert!(counts.is_sorted(), "{place:?}: {counts:?}");
        let seen: Vec<u32> = counts.into_iter().fold(Vec::new(), |mut seen, count| {
            if seen.last() != Some(&count) {
                seen.push(count);
            }
            seen
        });
        assert_eq!(seen[..6], [0, 1, 2, 3, 4, 5], "{place:?}");
    }
}

/// SCN-P12, SCN-P26.
#[test]
fn a_container_is_restarted_when_its_liveness_page_leads_to_a_failing_page_of_its_own() {
    for place in PLACES {
        let mut world = place
            .world(&["livenessProbe: {httpGet: {path: /redirect, port: 8080}, periodSeconds: 5, failureThreshold: 1}"]);
        world.script("main").answers(Liveness, Reply::Redirect("/healthz")).page("/healthz", Reply::Status(500));
        world.run(secs(10));
        assert_restarted(&world, Liveness, place);
        assert!(world.saw_event("Unhealthy", "statuscode: 500"), "{place:?}");
        assert_about(first_end(&world).0, Duration::from_secs(5));
    }
}

/// SCN-P13, SCN-P26, EVT-2.
#[test]
fn a_container_is_not_restarted_when_its_liveness_page_leads_elsewhere_but_an_event_warns() {
    for place in PLACES {
        let mut world = place
            .world(&["livenessProbe: {httpGet: {path: /redirect, port: 8080}, periodSeconds: 5, failureThreshold: 1}"]);
        world.script("main").answers(Liveness, Reply::Redirect("http://0.0.0.0/"));
        world.run(secs(240));
        assert_untouched(&world, place);
        assert!(world.saw_event("ProbeWarning", "0.0.0.0"), "{place:?}");
        assert!(!world.saw_event("Unhealthy", ""), "{place:?}");
    }
}
