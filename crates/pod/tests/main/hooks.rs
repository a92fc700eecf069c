//! Lifecycle hooks: API-24.

use std::time::Duration;

use keelet_pod::{Features, Hook, HttpGet, HttpProtocol, PortRef, Scheme, Strictness, TcpSocket};

use crate::common::{accepted, clean, paths, pod, read, refused, strict, warned};

fn hook(name: &str, hook: &str) -> String {
    pod("", &format!("lifecycle: {{{name}: {hook}}}"))
}

const PRE_STOP: &str = "spec.containers[0].lifecycle.preStop";

/// API-24
#[test]
fn hooks_are_taken_over() {
    let exec = Hook::Exec { command: vec!["a".to_owned()] };
    let http = Hook::HttpGet(HttpGet {
        host: None,
        port: PortRef::Name("x".to_owned()),
        path: "/".to_owned(),
        scheme: Scheme::Http,
        headers: vec![],
        protocol: HttpProtocol::Http1,
    });
    let cases = [
        ("{exec: {command: [a]}}", exec),
        ("{httpGet: {port: x}}", http),
        ("{sleep: {seconds: 3}}", Hook::Sleep(Duration::from_secs(3))),
    ];
    for (text, expected) in cases {
        let container = clean(&hook("postStart", text)).containers.remove(0);
        assert_eq!((container.post_start.as_ref(), container.pre_stop.as_ref()), (Some(&expected), None));
        let container = clean(&hook("preStop", text)).containers.remove(0);
        assert_eq!((container.post_start.as_ref(), container.pre_stop.as_ref()), (None, Some(&expected)));
    }
}

/// API-24: accepted but unusable at run time.
#[test]
fn tcp_socket_hooks_are_accepted_with_a_warning() {
    let manifest = hook("preStop", "{tcpSocket: {port: 5}}");
    warned(&manifest, &format!("{PRE_STOP}.tcpSocket"), "they always fail at run time");
    let expected = Hook::TcpSocket(TcpSocket { host: None, port: PortRef::Number(5) });
    assert_eq!(accepted(&manifest).containers[0].pre_stop, Some(expected));
}

/// API-24
#[test]
fn a_hook_has_exactly_one_handler() {
    refused(&hook("preStop", "{}"), PRE_STOP, "must specify a handler type: one of exec, httpGet, tcpSocket, sleep");
    let report = strict(&hook("preStop", "{exec: {command: [a]}, sleep: {seconds: 99}, httpGet: {port: 0}}"));
    assert_eq!(paths(&report), [format!("{PRE_STOP}.sleep"), format!("{PRE_STOP}.httpGet")]);
    refused(&hook("preStop", "{exec: {}}"), &format!("{PRE_STOP}.exec.command"), "Required value");
    refused(&hook("postStart", "{httpGet: {port: 0}}"), "spec.containers[0].lifecycle.postStart.httpGet.port", "65535");
}

/// API-24
#[test]
fn sleep_fits_into_the_grace_period() {
    let sleep =
        |spec: &str, seconds: i64| pod(spec, &format!("lifecycle: {{preStop: {{sleep: {{seconds: {seconds}}}}}}}"));
    let path = format!("{PRE_STOP}.sleep.seconds");
    let words = "must be non-negative and not more than terminationGracePeriodSeconds (30)";
    for seconds in [0, 1, 30] {
        clean(&sleep("", seconds));
    }
    refused(&sleep("", 31), &path, words);
    refused(&sleep("", -1), &path, words);
    clean(&sleep("terminationGracePeriodSeconds: 0", 0));
    refused(&sleep("terminationGracePeriodSeconds: 0", 1), &path, "(0)");
    clean(&sleep("terminationGracePeriodSeconds: 60", 60));
}

/// API-24: gated, and only with spec.os.name.
#[test]
fn stop_signals_need_their_gate_and_an_os() {
    let manifest = |os: &str, signal: &str| pod(os, &format!("lifecycle: {{stopSignal: {signal}}}"));
    let path = "spec.containers[0].lifecycle.stopSignal";
    warned(&manifest("", "SIGUSR1"), path, "Ignored: the feature gate ContainerStopSignals is off");
    let dropped = accepted(&manifest("", "SIGUSR1"));
    assert_eq!(dropped.source.spec.as_ref().unwrap().containers[0].lifecycle, None);
    let kept = pod("", "lifecycle: {stopSignal: SIGUSR1, preStop: {sleep: {seconds: 1}}}");
    assert!(accepted(&kept).containers[0].pre_stop.is_some());
    let kept = pod("", "lifecycle: {stopSignal: SIGUSR1, postStart: {sleep: {seconds: 1}}}");
    assert!(accepted(&kept).containers[0].post_start.is_some());

    let on = Features::resolve("ContainerStopSignals=true", &Default::default()).unwrap().features;
    let read = |manifest: &str| read(manifest, Strictness::Strict, &on);
    for signal in ["SIGUSR1", "SIGTERM", "SIGRTMIN+3", "SIGRTMAX"] {
        let report = read(&manifest("os: {name: linux}", signal));
        assert!(report.is_ok() && report.warnings.is_empty(), "{report}");
        let source = report.pods[0].source.spec.as_ref().unwrap().containers[0].lifecycle.clone().unwrap();
        assert_eq!(source.stop_signal.as_deref(), Some(signal));
    }
    let report = read(&manifest("", "SIGUSR1"));
    assert!(report.to_string().contains("stopSignal: Forbidden: may not be set for containers without spec.os.name"));
    let report = read(&manifest("os: {name: linux}", "USR1"));
    assert!(report.to_string().contains("Unsupported value: \"USR1\": supported values: \"SIGABRT\""), "{report}");
}
