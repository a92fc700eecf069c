//! Probes and their handlers: API-1 to API-9, SCN-U35.

use std::time::Duration;

use keelet_pod::{
    Features, GrpcProbe, Handler, HttpGet, HttpProtocol, PortError, PortRef, Probe, ProbeKind, Scheme, Strictness,
    TcpSocket,
};

use crate::common::{accepted, clean, main_of, paths, pod, read, refused, strict, warned, with_ephemeral, with_init};

const LIVENESS: &str = "spec.containers[0].livenessProbe";

fn liveness(probe: &str) -> String {
    pod("", &format!("livenessProbe: {probe}"))
}

fn readiness(probe: &str) -> String {
    pod("", &format!("readinessProbe: {probe}"))
}

fn startup(probe: &str) -> String {
    pod("", &format!("startupProbe: {probe}"))
}

#[track_caller]
fn handler(probe: &str) -> Handler {
    main_of(&liveness(probe)).liveness.expect("liveness").handler
}

/// API-1
#[test]
fn a_probe_needs_a_handler() {
    let words = "Required value: must specify a handler type: one of exec, httpGet, tcpSocket, grpc";
    refused(&liveness("{}"), LIVENESS, words);
    refused(&liveness("{periodSeconds: 5}"), LIVENESS, words);
    assert_eq!(main_of(&liveness("~")).liveness, None);
}

/// API-1: only the content of the first handler is checked.
#[test]
fn a_probe_has_one_handler_only() {
    let report = strict(&liveness("{grpc: {port: 0}, tcpSocket: {port: 0}, httpGet: {port: 0}, exec: {command: [a]}}"));
    assert_eq!(
        paths(&report),
        [format!("{LIVENESS}.grpc"), format!("{LIVENESS}.tcpSocket"), format!("{LIVENESS}.httpGet")]
    );
    for problem in &report.errors {
        assert!(problem.to_string().contains("Forbidden: may not specify more than one handler type"), "{problem}");
    }
    let report = strict(&liveness("{grpc: {port: 1}, tcpSocket: {port: 0}}"));
    assert_eq!(paths(&report), [format!("{LIVENESS}.grpc"), format!("{LIVENESS}.tcpSocket.port")]);
}

/// API-2
#[test]
fn defaults_stand_for_zero_and_for_silence() {
    let expected = Probe {
        handler: Handler::Exec { command: vec!["a".to_owned()] },
        initial_delay: Duration::ZERO,
        timeout: Duration::from_secs(1),
        period: Duration::from_secs(10),
        success_threshold: 1,
        failure_threshold: 3,
        termination_grace: None,
    };
    let zeros = "{exec: {command: [a]}, initialDelaySeconds: 0, timeoutSeconds: 0, periodSeconds: 0, successThreshold: 0, \
                 failureThreshold: 0}";
    for probe in ["{exec: {command: [a]}}", zeros] {
        assert_eq!(main_of(&liveness(probe)).liveness.as_ref(), Some(&expected));
        assert_eq!(main_of(&readiness(probe)).readiness.as_ref(), Some(&expected));
        assert_eq!(main_of(&startup(probe)).startup.as_ref(), Some(&expected));
    }
    let source = clean(&liveness("{httpGet: {port: 80}}")).source.spec.clone().unwrap().containers.remove(0);
    let probe = source.liveness_probe.unwrap();
    assert_eq!((probe.timeout_seconds, probe.period_seconds), (Some(1), Some(10)));
    assert_eq!((probe.success_threshold, probe.failure_threshold), (Some(1), Some(3)));
    let http = probe.http_get.unwrap();
    assert_eq!((http.path.as_deref(), http.scheme.as_deref()), (Some("/"), Some("HTTP")));
}

/// API-2, API-3
#[test]
fn numbers_are_taken_over() {
    let probe = "{exec: {command: [a]}, initialDelaySeconds: 7, timeoutSeconds: 2, periodSeconds: 4, successThreshold: 5, \
                 failureThreshold: 6}";
    let probe = main_of(&readiness(probe)).readiness.unwrap();
    assert_eq!((probe.initial_delay, probe.timeout), (Duration::from_secs(7), Duration::from_secs(2)));
    assert_eq!((probe.period, probe.success_threshold, probe.failure_threshold), (Duration::from_secs(4), 5, 6));
}

/// API-3
#[test]
fn numbers_are_not_negative_and_have_32_bits() {
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        let path = format!("spec.containers[0].readinessProbe.{field}");
        let probe = |value: &str| readiness(&format!("{{exec: {{command: [a]}}, {field}: {value}}}"));
        refused(&probe("-1"), &path, "Invalid value: -1: must be greater than or equal to 0");
        for value in ["0", "1", "2147483647"] {
            clean(&probe(value));
        }
        refused(&probe("2147483648"), &path, "must be an integer from -2147483648 to 2147483647");
    }
}

/// API-4
#[test]
fn probe_grace_is_positive_and_not_for_readiness() {
    for (manifest, name) in
        [(liveness as fn(&str) -> String, "livenessProbe"), (startup as fn(&str) -> String, "startupProbe")]
    {
        let path = format!("spec.containers[0].{name}.terminationGracePeriodSeconds");
        let probe =
            |value: i64| manifest(&format!("{{exec: {{command: [a]}}, terminationGracePeriodSeconds: {value}}}"));
        refused(&probe(0), &path, "Invalid value: 0: must be greater than 0");
        refused(&probe(-1), &path, "Invalid value: -1: must be greater than 0");
        clean(&probe(1));
        clean(&probe(i64::MAX));
    }
    let probe = main_of(&liveness("{exec: {command: [a]}, terminationGracePeriodSeconds: 5}")).liveness.unwrap();
    assert_eq!(probe.termination_grace, Some(Duration::from_secs(5)));
    refused(
        &readiness("{exec: {command: [a]}, terminationGracePeriodSeconds: 5}"),
        "spec.containers[0].readinessProbe.terminationGracePeriodSeconds",
        "must not be set for readinessProbes",
    );
}

/// API-5
#[test]
fn one_success_is_enough_but_for_readiness() {
    let probe = "{exec: {command: [a]}, successThreshold: 2}";
    let path = "spec.containers[0].livenessProbe.successThreshold";
    refused(&liveness(probe), path, "Invalid value: 2: must be 1 for liveness probes");
    refused(&startup(probe), "spec.containers[0].startupProbe.successThreshold", "must be 1 for startup probes");
    assert_eq!(main_of(&readiness(probe)).readiness.unwrap().success_threshold, 2);
}

/// API-6
#[test]
fn http_get_has_defaults() {
    let expected = HttpGet {
        host: None,
        port: PortRef::Number(80),
        path: "/".to_owned(),
        scheme: Scheme::Http,
        headers: vec![],
        protocol: HttpProtocol::Http1,
    };
    assert_eq!(handler("{httpGet: {port: 80}}"), Handler::HttpGet(expected.clone()));
    assert_eq!(handler("{httpGet: {port: 80, path: \"\", host: \"\", scheme: \"\"}}"), Handler::HttpGet(expected));
}

/// API-6
#[test]
fn http_get_is_taken_over() {
    let probe = "{httpGet: {port: 80, host: h, path: \"/x?y=1\", scheme: HTTPS, protocol: HTTP1, \
                 httpHeaders: [{name: X-A, value: \"1\"}, {name: X-A, value: \"2\"}, {name: Host}]}}";
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = HttpGet {
        host: Some("h".to_owned()),
        port: PortRef::Number(80),
        path: "/x?y=1".to_owned(),
        scheme: Scheme::Https,
        headers: vec![header("X-A", "1"), header("X-A", "2"), header("Host", "")],
        protocol: HttpProtocol::Http1,
    };
    assert_eq!(handler(probe), Handler::HttpGet(expected));
}

/// API-6
#[test]
fn schemes_and_protocols_are_in_upper_case() {
    let path = format!("{LIVENESS}.httpGet.scheme");
    refused(&liveness("{httpGet: {port: 80, scheme: https}}"), &path, "supported values: \"HTTP\", \"HTTPS\"");
    let path = format!("{LIVENESS}.httpGet.protocol");
    for word in ["h2c", "\"\""] {
        let manifest = liveness(&format!("{{httpGet: {{port: 80, protocol: {word}}}}}"));
        refused(&manifest, &path, "supported values: \"HTTP1\", \"HTTP2\"");
    }
}

/// API-6
#[test]
fn header_names_are_tokens() {
    let path = format!("{LIVENESS}.httpGet.httpHeaders[1].name");
    for name in ["\"Host:\"", "X_Forwarded_For", "\"\""] {
        let manifest = liveness(&format!("{{httpGet: {{port: 80, httpHeaders: [{{name: Ok}}, {{name: {name}}}]}}}}"));
        refused(&manifest, &path, "must consist of letters, digits and '-'");
    }
}

/// API-6
#[test]
fn http2_is_cleartext_to_the_pod_itself() {
    let Handler::HttpGet(http) = handler("{httpGet: {port: 80, protocol: HTTP2}}") else { panic!() };
    assert_eq!(http.protocol, HttpProtocol::Http2);
    let manifest = liveness("{httpGet: {port: 80, protocol: HTTP2, scheme: HTTPS}}");
    let path = format!("{LIVENESS}.httpGet.scheme");
    refused(&manifest, &path, "supported values: \"HTTP\"; protocol HTTP2 is spoken in cleartext only");
    let manifest = liveness("{httpGet: {port: 80, protocol: HTTP2, host: h}}");
    refused(&manifest, &format!("{LIVENESS}.httpGet.host"), "must be empty when protocol is HTTP2");
    clean(&liveness("{httpGet: {port: 80, protocol: HTTP1, scheme: HTTPS, host: h}}"));
}

/// API-7, API-8, SCN-U35
#[test]
fn ports_are_numbers_in_range_or_names() {
    for kind in ["httpGet", "tcpSocket"] {
        let path = format!("{LIVENESS}.{kind}.port");
        let probe = |port: &str| liveness(&format!("{{{kind}: {{port: {port}}}}}"));
        for port in ["0", "65536", "-1"] {
            refused(&probe(port), &path, "must be between 1 and 65535, inclusive");
        }
        refused(&liveness(&format!("{{{kind}: {{}}}}")), &path, "Invalid value: 0");
        for port in ["1", "65535"] {
            clean(&probe(port));
        }
        refused(&probe("Http"), &path, "must consist of lower case letters");
        refused(&probe("\"8080\""), &path, "must contain at least one letter (for a number, remove the quotes)");
        refused(&probe("\"\""), &path, "must have 1 to 15 characters");
        refused(&probe("yes"), &path, "must be an integer or a string, is a boolean");
        refused(&probe("1.5"), &path, "must be an integer or a string, is a number");
        refused(&probe("[1]"), &path, "must be an integer or a string, is a list");
        refused(&probe("99999999999"), &path, "must be an integer from");
    }
}

/// API-7, SCN-U35
#[test]
fn names_resolve_against_the_containers_own_ports() {
    let manifest = pod(
        "",
        "ports: [{name: admin, containerPort: 9000}, {name: http, containerPort: 8080}]\nlivenessProbe: {httpGet: {port: http}}",
    );
    let container = clean(&manifest).containers.remove(0);
    let Some(Handler::HttpGet(http)) = container.liveness.as_ref().map(|probe| &probe.handler) else { panic!() };
    assert_eq!(http.port, PortRef::Name("http".to_owned()));
    assert_eq!(container.resolve_port(&http.port), Ok(8080));
    assert_eq!(container.resolve_port(&PortRef::Number(1)), Ok(1));
    let unknown = PortError::UnknownName { name: "x".to_owned(), container: "main".to_owned() };
    assert_eq!(container.resolve_port(&PortRef::Name("x".to_owned())), Err(unknown));
}

/// API-7: a run-time error of the probe, hence only a warning here.
#[test]
fn unknown_port_names_are_warned_about() {
    for kind in ["httpGet", "tcpSocket"] {
        let probe = format!("livenessProbe: {{{kind}: {{port: http}}}}");
        let words = "container \"main\" has no port named \"http\": the probe can never succeed";
        warned(&pod("", &probe), &format!("{LIVENESS}.{kind}.port"), words);
        clean(&pod("", &format!("ports: [{{name: http, containerPort: 80}}]\n{probe}")));
    }
    // Ports of other containers do not count.
    let init =
        "initContainers: [{name: side, image: a, restartPolicy: Always, ports: [{name: http, containerPort: 80}]}]";
    warned(
        &pod(init, "readinessProbe: {tcpSocket: {port: http}}"),
        "spec.containers[0].readinessProbe.tcpSocket.port",
        "no port",
    );
}

/// API-8
#[test]
fn tcp_socket_grpc_and_exec_are_taken_over() {
    let tcp = TcpSocket { host: Some("h".to_owned()), port: PortRef::Number(5) };
    assert_eq!(handler("{tcpSocket: {port: 5, host: h}}"), Handler::TcpSocket(tcp));
    let tcp = TcpSocket { host: None, port: PortRef::Number(5) };
    assert_eq!(handler("{tcpSocket: {port: 5, host: \"\"}}"), Handler::TcpSocket(tcp));
    let grpc = |service: &str, tls| Handler::Grpc(GrpcProbe { port: 5, service: service.to_owned(), tls });
    assert_eq!(handler("{grpc: {port: 5}}"), grpc("", false));
    assert_eq!(handler("{grpc: {port: 5, service: s, mode: Plaintext}}"), grpc("s", false));
    assert_eq!(handler("{grpc: {port: 5, mode: TLS}}"), grpc("", true));
    let exec = Handler::Exec { command: vec!["a".to_owned(), "b c".to_owned()] };
    assert_eq!(handler("{exec: {command: [a, b c]}}"), exec);
}

/// API-8
#[test]
fn grpc_ports_are_numbers_and_modes_are_two() {
    let path = format!("{LIVENESS}.grpc.port");
    for port in ["0", "65536", "-1"] {
        refused(&liveness(&format!("{{grpc: {{port: {port}}}}}")), &path, "must be between 1 and 65535, inclusive");
    }
    for port in ["1", "65535"] {
        clean(&liveness(&format!("{{grpc: {{port: {port}}}}}")));
    }
    refused(&liveness("{grpc: {port: grpc}}"), &path, "must be an integer, is a string");
    let path = format!("{LIVENESS}.grpc.mode");
    refused(&liveness("{grpc: {port: 1, mode: tls}}"), &path, "supported values: \"Plaintext\", \"TLS\"");
}

/// API-8
#[test]
fn exec_needs_a_command() {
    let path = format!("{LIVENESS}.exec.command");
    refused(&liveness("{exec: {command: []}}"), &path, "Required value");
    refused(&liveness("{exec: {}}"), &path, "Required value");
}

/// API-9
#[test]
fn sidecars_and_regular_containers_have_all_three_probes() {
    let probes = "livenessProbe: {tcpSocket: {port: 1}}\nreadinessProbe: {tcpSocket: {port: 2}}\n\
                  startupProbe: {tcpSocket: {port: 3}}";
    let regular = clean(&pod("", probes)).containers.remove(0);
    let sidecar = clean(&with_init(&format!("restartPolicy: Always\n{probes}"))).init_containers.remove(0);
    for container in [regular, sidecar] {
        assert!(container.role.is_probed());
        for (kind, port) in [(ProbeKind::Liveness, 1), (ProbeKind::Readiness, 2), (ProbeKind::Startup, 3)] {
            let tcp = TcpSocket { host: None, port: PortRef::Number(port) };
            assert_eq!(container.probe(kind).map(|probe| &probe.handler), Some(&Handler::TcpSocket(tcp)));
        }
    }
}

/// API-9
#[test]
fn ordinary_init_containers_have_neither_probes_nor_hooks() {
    let fields = [
        ("livenessProbe", "{tcpSocket: {port: 1}}"),
        ("readinessProbe", "{tcpSocket: {port: 1}}"),
        ("startupProbe", "{tcpSocket: {port: 1}}"),
        ("lifecycle", "{postStart: {exec: {command: [a]}}}"),
    ];
    for (field, value) in fields {
        for policy in ["", "restartPolicy: Never\n", "restartPolicy: OnFailure\n"] {
            let manifest = with_init(&format!("{policy}{field}: {value}"));
            let words = "Forbidden: may not be set for init containers without restartPolicy=Always";
            refused(&manifest, &format!("spec.initContainers[0].{field}"), words);
        }
        clean(&with_init(&format!("restartPolicy: Always\n{field}: {value}")));
    }
}

/// API-9
#[test]
fn ephemeral_containers_are_bare() {
    let fields = [
        ("ports", "[{containerPort: 1}]"),
        ("resources", "{limits: {cpu: 1}}"),
        ("livenessProbe", "{tcpSocket: {port: 1}}"),
        ("readinessProbe", "{tcpSocket: {port: 1}}"),
        ("startupProbe", "{tcpSocket: {port: 1}}"),
        ("lifecycle", "{postStart: {exec: {command: [a]}}}"),
        ("restartPolicy", "Always"),
        ("restartPolicyRules", "[{action: Restart, exitCodes: {operator: In, values: [1]}}]"),
    ];
    for (field, value) in fields {
        let path = format!("spec.ephemeralContainers[0].{field}");
        refused(
            &with_ephemeral(&format!("{field}: {value}")),
            &path,
            "Forbidden: cannot be set for an ephemeral container",
        );
    }
    let container = clean(&with_ephemeral("stdin: true")).ephemeral_containers.remove(0);
    assert_eq!((container.name.as_str(), container.role.is_probed()), ("debug", false));
    assert_eq!(container.restart_policy, keelet_pod::RestartPolicy::Never);
}

/// The alpha gates of upstream are on here; switched off, their fields are dropped as the API server drops them.
#[test]
fn fields_of_switched_off_probe_gates_are_dropped() {
    let off =
        Features::resolve("H2CContainerProbe=false,GRPCContainerProbeTLS=false", &Default::default()).unwrap().features;
    let manifest = pod(
        "",
        "livenessProbe: {grpc: {port: 1, mode: TLS}}\nreadinessProbe: {httpGet: {port: 1, protocol: HTTP2}}\n\
         startupProbe: {httpGet: {port: 1, protocol: HTTP2}}",
    );
    let report = read(&manifest, Strictness::Strict, &off);
    let warned: Vec<_> = report.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warned.len(), 3, "{report}");
    assert!(warned[0].contains("livenessProbe.grpc.mode: Ignored: the feature gate GRPCContainerProbeTLS is off"));
    assert!(warned[1].contains("readinessProbe.httpGet.protocol: Ignored: the feature gate H2CContainerProbe is off"));
    assert!(warned[2].contains("startupProbe.httpGet.protocol"));
    let container = &report.pods[0].containers[0];
    let Some(Handler::Grpc(grpc)) = container.liveness.as_ref().map(|probe| &probe.handler) else { panic!() };
    assert!(!grpc.tls);
    let Some(Handler::HttpGet(http)) = container.readiness.as_ref().map(|probe| &probe.handler) else { panic!() };
    assert_eq!(http.protocol, HttpProtocol::Http1);
    assert!(read(&liveness("{grpc: {port: 1}}"), Strictness::Strict, &off).warnings.is_empty());
    assert!(accepted(&manifest).containers[0].probe(ProbeKind::Readiness).is_some());
}
