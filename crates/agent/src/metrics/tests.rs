use keelet_lifecycle::{BootId, Moment, Wall};
use keelet_pod::parse_one;

use super::*;

fn pod(uid: &str) -> Pod {
    let manifest = format!(
        "apiVersion: v1
kind: Pod
metadata: {{ name: web, namespace: shop, uid: {uid} }}
spec:
  containers: [{{ name: main, image: nginx }}, {{ name: side, image: nginx }}]
"
    );
    parse_one(&manifest).unwrap()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The value of a series whose labels may come in any order.
fn value(metrics: &Metrics, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let text = metrics.encode();
    is_documented(&text);
    let mut found = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (given, inside) = series.strip_suffix('}').and_then(|s| s.split_once('{')).unwrap_or((series, ""));
        let mut inside: Vec<_> = inside.split(',').filter(|label| !label.is_empty()).map(str::to_owned).collect();
        let mut wanted: Vec<_> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        inside.sort();
        wanted.sort();
        (given == name && inside == wanted).then(|| value.parse().unwrap())
    });
    found.next()
}

/// Whatever has a value is in the document. All of them have one in some test.
fn is_documented(text: &str) {
    let document = include_str!("../../../../docs/agent.md");
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(document.contains(&format!("| `{name}` |")), "docs/agent.md does not tell what {name} is");
    }
}

fn total(metrics: &Metrics, uid: &str, container: &str, kind: &str, result: &str) -> Option<f64> {
    let labels = [
        ("probe_type", kind),
        ("result", result),
        ("container", container),
        ("pod", "web"),
        ("namespace", "shop"),
        ("pod_uid", uid),
    ];
    value(metrics, "prober_probe_total", &labels)
}

fn timed(metrics: &Metrics, container: &str, kind: &str) -> Option<f64> {
    let labels = [("probe_type", kind), ("container", container), ("pod", "web"), ("namespace", "shop")];
    value(metrics, "prober_probe_duration_seconds_count", &labels)
}

/// METR-1, METR-2, PROBE-21.
#[test]
fn probes_are_counted_by_result_and_timed_unless_they_fail() {
    let metrics = Metrics::new();
    let pod = pod("u1");
    for (outcome, times) in [(Outcome::Success, 3), (Outcome::Warning, 1), (Outcome::Failure, 2), (Outcome::Error, 1)] {
        for _ in 0..times {
            metrics.probed(&pod, "main", ProbeKind::Liveness, outcome, ms(20), ms(0));
        }
    }
    metrics.probed(&pod, "main", ProbeKind::Startup, Outcome::Failure, ms(20), ms(0));
    metrics.probed(&pod, "side", ProbeKind::Readiness, Outcome::Success, ms(20), ms(0));
    assert_eq!(total(&metrics, "u1", "main", "Liveness", "successful"), Some(4.0));
    assert_eq!(total(&metrics, "u1", "main", "Liveness", "failed"), Some(2.0));
    assert_eq!(total(&metrics, "u1", "main", "Liveness", "unknown"), Some(1.0));
    assert_eq!(total(&metrics, "u1", "main", "Startup", "failed"), Some(1.0));
    assert_eq!(total(&metrics, "u1", "main", "Startup", "successful"), None, "no series without an attempt");
    assert_eq!(total(&metrics, "u1", "side", "Readiness", "successful"), Some(1.0));
    assert_eq!(timed(&metrics, "main", "Liveness"), Some(5.0));
    assert_eq!(timed(&metrics, "main", "Startup"), None, "a failure's duration says nothing");
    let labels = [("probe_type", "Liveness"), ("container", "main"), ("pod", "web"), ("namespace", "shop")];
    let bucket = |le| value(&metrics, "prober_probe_duration_seconds_bucket", &[&labels[..], &[("le", le)]].concat());
    assert_eq!((bucket("0.01"), bucket("0.025")), (Some(0.0), Some(5.0)));
}

/// METR-10.
#[test]
fn late_attempts_are_counted_apart_and_cancelled_ones_nowhere() {
    let metrics = Metrics::new();
    let pod = pod("u1");
    metrics.probed(&pod, "main", ProbeKind::Readiness, Outcome::Success, ms(1), ms(2));
    metrics.probed(&pod, "main", ProbeKind::Readiness, Outcome::Late, ms(0), ms(600));
    metrics.probed(&pod, "main", ProbeKind::Readiness, Outcome::Cancelled, ms(0), ms(900));
    assert_eq!(value(&metrics, "keelet_late_probes_total", &[("probe_type", "Readiness")]), Some(1.0));
    assert_eq!(total(&metrics, "u1", "main", "Readiness", "successful"), Some(1.0));
    assert_eq!(total(&metrics, "u1", "main", "Readiness", "unknown"), None);
    assert_eq!(value(&metrics, "keelet_probe_queueing_seconds_count", &[]), Some(2.0));
    assert_eq!(value(&metrics, "keelet_probe_queueing_seconds_sum", &[]), Some(0.602));
    for overdue in [3, 0] {
        metrics.overdue_probes(overdue);
        assert_eq!(value(&metrics, "keelet_overdue_probes", &[]), Some(overdue as f64));
    }
}

/// METR-2, PROBE-7.
#[test]
fn series_of_a_probe_go_when_it_ends() {
    let metrics = Metrics::new();
    let pod = pod("u1");
    for kind in [ProbeKind::Liveness, ProbeKind::Readiness] {
        metrics.probed(&pod, "main", kind, Outcome::Success, ms(1), ms(0));
    }
    metrics.forget_probe("u1", "main", ProbeKind::Liveness);
    assert_eq!(total(&metrics, "u1", "main", "Liveness", "successful"), None);
    assert_eq!(timed(&metrics, "main", "Liveness"), None);
    assert_eq!(total(&metrics, "u1", "main", "Readiness", "successful"), Some(1.0));
    assert_eq!(timed(&metrics, "main", "Readiness"), Some(1.0));
    // Should it be made again, it counts from the beginning.
    metrics.probed(&pod, "main", ProbeKind::Liveness, Outcome::Success, ms(1), ms(0));
    assert_eq!(total(&metrics, "u1", "main", "Liveness", "successful"), Some(1.0));
    assert_eq!(timed(&metrics, "main", "Liveness"), Some(1.0));
}

/// METR-1, METR-2.
#[test]
fn series_of_a_pod_go_with_it_and_leave_its_successor_alone() {
    let metrics = Metrics::new();
    for uid in ["old", "new"] {
        metrics.probed(&pod(uid), "main", ProbeKind::Liveness, Outcome::Success, ms(1), ms(0));
    }
    metrics.forget_pod("old");
    assert_eq!(total(&metrics, "old", "main", "Liveness", "successful"), None);
    assert_eq!(total(&metrics, "new", "main", "Liveness", "successful"), Some(1.0));
    assert_eq!(timed(&metrics, "main", "Liveness"), Some(2.0), "they share a name, and so the series");
    metrics.forget_pod("new");
    metrics.forget_pod("never seen");
    assert!(!metrics.encode().contains("shop"), "{}", metrics.encode());
}

/// METR-3.
#[test]
fn containers_are_counted_by_type() {
    let metrics = Metrics::new();
    for role in [Role::Init, Role::Sidecar, Role::Regular, Role::Ephemeral] {
        metrics.started(role);
    }
    let started = |of| value(&metrics, "kubelet_started_containers_total", &[("container_type", of)]);
    assert_eq!(started("init_container"), Some(2.0));
    assert_eq!(started("container"), Some(1.0));
    assert_eq!(started("ephemeral_container"), Some(1.0));
    metrics.start_failed(Role::Regular, "ErrImagePull");
    let labels = [("container_type", "container"), ("code", "ErrImagePull")];
    assert_eq!(value(&metrics, "kubelet_started_containers_errors_total", &labels), Some(1.0));
    metrics.terminated(Role::Sidecar, 137, "OOMKilled");
    let labels = [("container_type", "init_container"), ("exit_code", "137"), ("reason", "OOMKilled")];
    assert_eq!(value(&metrics, "kubelet_terminated_containers_total", &labels), Some(1.0));
}

/// METR-3.
#[test]
fn pods_are_counted() {
    let metrics = Metrics::new();
    metrics.pod_started();
    metrics.pod_start_failed();
    metrics.pod_restarted(true);
    metrics.pod_restarted(false);
    metrics.running(7, ContainerCounts { created: 1, running: 2, exited: 3, unknown: 4 });
    metrics.running(5, ContainerCounts { created: 0, running: 9, exited: 0, unknown: 0 });
    for (name, labels, expected) in [
        ("kubelet_started_pods_total", &[][..], 1.0),
        ("kubelet_started_pods_errors_total", &[], 1.0),
        ("kubelet_restarted_pods_total", &[("static", "true")], 1.0),
        ("kubelet_restarted_pods_total", &[("static", "")], 1.0),
        ("kubelet_running_pods", &[], 5.0),
        ("kubelet_running_containers", &[("container_state", "running")], 9.0),
        ("kubelet_running_containers", &[("container_state", "created")], 0.0),
    ] {
        assert_eq!(value(&metrics, name, labels), Some(expected), "{name}");
    }
}

/// METR-4.
#[test]
fn durations_and_hooks_have_the_kubelets_names() {
    let metrics = Metrics::new();
    metrics.pod_start_took(ms(1500));
    metrics.status_sync_took(ms(20));
    metrics.worker_start_took(ms(2));
    metrics.hook_fell_back_to_http();
    metrics.sleep_cut_short();
    for (name, expected) in [
        ("kubelet_pod_start_duration_seconds_sum", 1.5),
        ("kubelet_pod_status_sync_duration_seconds_sum", 0.02),
        ("kubelet_pod_worker_start_duration_seconds_sum", 0.002),
        ("kubelet_lifecycle_handler_http_fallbacks_total", 1.0),
        ("kubelet_sleep_action_terminated_early_total", 1.0),
    ] {
        assert_eq!(value(&metrics, name, &[]), Some(expected), "{name}");
    }
}

/// METR-5.
#[test]
fn restarts_of_all_containers_are_counted_by_trigger_and_timed() {
    let metrics = Metrics::new();
    let at = Moment { boot_ms: 0, wall: Wall::from_millis(0), boot_id: BootId::from_u128(1) };
    let exit = Trigger::Exit { container: "a".to_owned(), id: "1".to_owned(), exit_code: 42, rule: 0, at };
    metrics.restart_all(&exit);
    metrics.restart_all(&exit);
    metrics.restart_all(&Trigger::Request { id: "r".to_owned(), by: "me".to_owned(), at });
    metrics.restart_all_took(ms(250));
    let count = |trigger| value(&metrics, "keelet_restart_all_containers_total", &[("trigger", trigger)]);
    assert_eq!((count("exit"), count("request"), count("inherited")), (Some(2.0), Some(1.0), None));
    assert_eq!(value(&metrics, "keelet_restart_all_containers_duration_seconds_sum", &[]), Some(0.25));
}

/// METR-6.
#[test]
fn statuses_kept_and_reset_at_an_agent_start_are_counted() {
    let metrics = Metrics::new();
    metrics.kept(12);
    metrics.reset(3);
    let count = |outcome| value(&metrics, "keelet_agent_start_container_statuses_total", &[("outcome", outcome)]);
    assert_eq!((count("kept"), count("reset")), (Some(12.0), Some(3.0)));
}

#[test]
fn metrics_are_shared_between_tasks() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Metrics>();
    assert!(Metrics::new().encode().ends_with("# EOF\n"));
}
