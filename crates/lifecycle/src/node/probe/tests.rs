//! Tables over attempts at a component: what its condition is, and when the next attempt is due.

use std::time::Duration;

use keelet_pod::{GrpcProbe, HttpProtocol};

use super::*;
use crate::{
    node::NodeEvidence,
    time::{BootId, Wall},
};

fn at(seconds: i64) -> Moment {
    Moment { boot_ms: seconds * 1000, wall: Wall::from_millis(seconds * 1000), boot_id: BootId::from_u128(1) }
}

fn network() -> NodeProbe {
    let get = HttpGet {
        host: None,
        port: PortRef::Number(9090),
        path: "/healthz".to_owned(),
        scheme: Scheme::Http,
        headers: Vec::new(),
        protocol: HttpProtocol::Http1,
    };
    NodeProbe {
        name: "network".to_owned(),
        condition: "vendor.example.com/NetworkReady".to_owned(),
        probe: Probe {
            handler: Handler::HttpGet(get),
            initial_delay: Duration::from_secs(20),
            timeout: Duration::from_secs(1),
            period: Duration::from_secs(10),
            success_threshold: 2,
            failure_threshold: 3,
            termination_grace: None,
        },
    }
}

fn report(outcome: Outcome, output: &str) -> ProbeReport {
    ProbeReport { outcome, latency: Duration::from_millis(3), output: output.to_owned() }
}

/// GATE-9, GATE-10, GN-11, DEF-15: a condition is Unknown before a threshold is reached, changes at one, and one slow answer changes nothing.
#[test]
fn a_condition_changes_at_its_thresholds() {
    use ConditionStatus::{False, True, Unknown};
    use Outcome::{Failure, Late, Success};
    let probe = network();
    let mut known = probe.begin(None, at(0));
    assert_eq!(known.memory.due, Some(at(20)), "the initial delay counts from the start of the agent");
    for (number, (outcome, expected, changed)) in [
        (Failure, Unknown, false),
        (Success, Unknown, false),
        (Success, True, true),
        (Success, True, false),
        (Failure, True, false),
        (Success, True, false),
        (Failure, True, false),
        (Failure, True, false),
        (Late, True, false),
        (Failure, False, true),
        (Success, False, false),
        (Success, True, true),
    ]
    .into_iter()
    .enumerate()
    {
        let due = known.memory.due.expect("an attempt is due");
        assert_eq!(due, at(20 + 10 * i64::try_from(number).expect("small")), "attempt {number}");
        assert_eq!(probe.take(&mut known, &report(outcome, ""), due), changed, "attempt {number}");
        assert_eq!(known.status(), expected, "attempt {number}");
    }
}

/// GN-11: a container may answer a probe with a redirect to another host; a component of the node may not.
#[test]
fn a_redirect_to_another_host_is_a_failure() {
    let probe = network();
    let mut known = probe.begin(None, at(0));
    for attempt in 1..=3 {
        probe.take(
            &mut known,
            &report(Outcome::Warning, "302 Found to http://other/ was not followed"),
            at(10 * attempt),
        );
    }
    assert_eq!(known.status(), ConditionStatus::False);
    assert_eq!(known.output(), "302 Found to http://other/ was not followed");
}

/// GATE-16, GATE-17: an agent restart keeps verdict and streak, and asks again at once; a reboot or another target begins anew.
#[test]
fn a_verdict_is_carried_over_an_agent_restart_and_not_over_a_reboot() {
    let probe = network();
    let mut known = probe.begin(None, at(0));
    for attempt in 1..=2 {
        probe.take(&mut known, &report(Outcome::Success, "ok"), at(10 + 10 * attempt));
    }
    probe.take(&mut known, &report(Outcome::Failure, "connection refused"), at(40));
    let evidence = NodeEvidence {
        boot_id: BootId::from_u128(1),
        probes: [(probe.name.clone(), known.clone())].into(),
        ..NodeEvidence::default()
    };
    let resumed = |evidence: NodeEvidence, probe: &NodeProbe, now: Moment| {
        NodeEvidence::begin(Some(evidence), std::slice::from_ref(probe), now).probes.remove("network").expect("begun")
    };
    let mut after = resumed(evidence.clone(), &probe, at(42));
    assert_eq!((after.status(), after.attempts.len()), (ConditionStatus::True, 3));
    let due = after.memory.due.expect("due");
    assert!(due.since(&at(42)) <= Duration::from_secs(1), "{due:?}");
    // The streak of failures goes on; an attempt that only the restart caused does not count twice in one period.
    probe.take(&mut after, &report(Outcome::Failure, ""), at(43));
    probe.take(&mut after, &report(Outcome::Failure, ""), at(53));
    assert_eq!(after.status(), ConditionStatus::True);
    assert!(probe.take(&mut after, &report(Outcome::Failure, ""), at(63)));
    assert_eq!(after.status(), ConditionStatus::False);

    let rebooted = Moment { boot_id: BootId::from_u128(2), ..at(42) };
    assert_eq!(resumed(evidence.clone(), &probe, rebooted).status(), ConditionStatus::Unknown);
    let mut elsewhere = network();
    elsewhere.probe.handler = Handler::Grpc(GrpcProbe { port: 19808, service: String::new(), tls: false });
    assert_eq!(resumed(evidence, &elsewhere, at(42)).status(), ConditionStatus::Unknown);
}

/// GATE-11: what is kept of answers is bounded, whatever a component sends.
#[test]
fn what_is_kept_of_answers_is_bounded() {
    let probe = network();
    let mut known = probe.begin(None, at(0));
    for attempt in 0..100 {
        probe.take(&mut known, &report(Outcome::Failure, &"ä\n\u{7}".repeat(4000)), at(attempt));
    }
    assert_eq!(known.attempts.len(), KEPT);
    let longest = known.attempts.iter().map(|attempt| attempt.output.len()).max().unwrap_or_default();
    assert!(longest <= LONGEST_OUTPUT && known.output().len() <= LONGEST_OUTPUT, "{longest}");
    assert!(!known.output().contains(char::is_control));
}

#[test]
fn a_target_is_shown_as_people_write_it() {
    let mut probe = network();
    assert_eq!(probe.to_string(), "http://127.0.0.1:9090/healthz");
    if let Handler::HttpGet(get) = &mut probe.probe.handler {
        get.host = Some("::1".to_owned());
        get.scheme = Scheme::Https;
        get.path = "ready".to_owned();
    }
    assert_eq!(probe.to_string(), "https://[::1]:9090/ready");
    probe.probe.handler = Handler::Grpc(GrpcProbe { port: 19808, service: "csi".to_owned(), tls: true });
    assert_eq!(probe.to_string(), "grpcs://127.0.0.1:19808/csi");
}

/// GATE-13: the condition of a probe that was taken out of the configuration is remembered, so that it can be taken back.
#[test]
fn conditions_of_probes_that_are_no_longer_configured_are_retired() {
    let first = NodeEvidence::begin(None, &[network()], at(0));
    assert_eq!((first.probes.len(), first.retired.len()), (1, 0));
    let without = NodeEvidence::begin(Some(first), &[], Moment { boot_id: BootId::from_u128(2), ..at(9) });
    assert_eq!((without.probes.len(), &without.retired), (0, &vec!["vendor.example.com/NetworkReady".to_owned()]));
    let again = NodeEvidence::begin(Some(without), &[network()], at(20));
    assert_eq!((again.probes.len(), again.retired.len()), (1, 0));
}
