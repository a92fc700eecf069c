//! The example pods of the design documents.

use std::time::Duration;

use keelet_pod::{Action, Handler, PortRef, RestartPolicy, Role, parse_one};

const RESTART_ALL: &str = include_str!("../fixtures/fix-1-restart-all.yaml");
const STARTUP_PROBE: &str = include_str!("../fixtures/fix-2-startup-probe.yaml");

/// FIX-1, CON-18b
#[test]
fn the_restart_all_pod_of_kep_5532_parses() {
    let pod = parse_one(RESTART_ALL).unwrap();
    assert_eq!(pod.restart_policy, RestartPolicy::Never);
    let names: Vec<_> = pod.all_containers().map(|container| (container.name.as_str(), container.role)).collect();
    let expected = [("setup-envs", Role::Init), ("watcher-sidecar", Role::Sidecar), ("main-container", Role::Regular)];
    assert_eq!(names, expected);
    let watcher = pod.container("watcher-sidecar").unwrap();
    assert_eq!(watcher.rules[0].action, Action::RestartAllContainers);
    assert!(watcher.rules[0].exit_codes.matches(88) && !watcher.rules[0].exit_codes.matches(0));
    assert!(pod.has_restart_all_rule() && pod.has_sidecar());
    assert_eq!(pod.container("nobody"), None);
    assert_eq!(pod.lasting_containers().count(), 3);
}

/// FIX-2
#[test]
fn the_startup_probe_container_of_kep_950_parses() {
    let pod = parse_one(STARTUP_PROBE).unwrap();
    let container = &pod.containers[0];
    let (liveness, startup) = (container.liveness.as_ref().unwrap(), container.startup.as_ref().unwrap());
    assert_eq!((liveness.failure_threshold, liveness.period), (1, Duration::from_secs(10)));
    assert_eq!((startup.failure_threshold, startup.period), (30, Duration::from_secs(10)));
    assert_eq!(liveness.handler, startup.handler);
    let Handler::HttpGet(http) = &startup.handler else { panic!("{:?}", startup.handler) };
    assert_eq!((http.path.as_str(), &http.port), ("/healthz", &PortRef::Name("liveness-port".to_owned())));
    assert_eq!(container.resolve_port(&http.port), Ok(8080));
    assert!(!pod.has_restart_all_rule() && !pod.has_sidecar());
}

#[test]
fn parse_one_wants_one_good_pod() {
    let two = format!("{RESTART_ALL}---\n{STARTUP_PROBE}");
    assert_eq!(parse_one(&two).unwrap_err().pods.len(), 2);
    assert_eq!(parse_one("").unwrap_err().errors.len(), 1);
    let broken = format!("{RESTART_ALL}---\n{}", STARTUP_PROBE.replace("8080", "0"));
    let report = parse_one(&broken).unwrap_err();
    assert_eq!((report.pods.len(), report.errors.len()), (1, 1));
}
