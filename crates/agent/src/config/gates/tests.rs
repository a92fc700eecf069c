//! Probes and taints in configuration files, in tables.

use std::{path::Path, time::Duration};

use keelet_pod::{GrpcProbe, Handler, HttpGet, Probe, Scheme};

use super::*;
use crate::config::{ReadConfig, read};

fn of(fields: &str) -> Result<ReadConfig, Vec<String>> {
    let text = format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{fields}\n");
    read(text.as_bytes(), Path::new("/etc/kubelet/config.yaml"))
}

fn probes(list: &str) -> Result<Vec<NodeProbe>, Vec<String>> {
    of(&format!("nodeReadinessProbes:\n{list}")).map(|read| {
        assert_eq!(read.warnings, [""; 0]);
        read.config.node_probes
    })
}

/// VEC-80, GATE-9, CON-31, API-27, FIX-3: the example of the KEP; numbers beside and inside `probe`; loopback where no host is given.
#[test]
fn the_probes_of_the_kep_are_read() {
    let read = probes(
        r#"
  - name: "NetworkReady"
    conditionType: "vendor.example.com/NetworkReady"
    probe:
      httpGet:
        host: "127.0.0.1"
        port: 9090
        path: "/healthz"
    periodSeconds: 15
    failureThreshold: 3
  - name: "StorageReady"
    conditionType: "abc.other-vendor.example.com/StorageReady"
    probe:
      grpc:
        port: 19808
      periodSeconds: 10
      successThreshold: 2
    initialDelaySeconds: 20
    periodSeconds: 10
  - name: secure
    conditionType: Secure
    probe: {httpGet: {port: 8443, scheme: HTTPS}, timeoutSeconds: 5}"#,
    )
    .unwrap();
    let [network, storage, secure] = read.as_slice() else { panic!("{read:?}") };
    assert_eq!(
        (network.name.as_str(), network.condition.as_str()),
        ("NetworkReady", "vendor.example.com/NetworkReady")
    );
    let seconds = Duration::from_secs;
    let numbers = |probe: &NodeProbe| {
        let Probe { initial_delay, period, timeout, success_threshold, failure_threshold, .. } = &probe.probe;
        (*initial_delay, *period, *timeout, *success_threshold, *failure_threshold)
    };
    assert_eq!(numbers(network), (seconds(0), seconds(15), seconds(1), 1, 3));
    assert_eq!(numbers(storage), (seconds(20), seconds(10), seconds(1), 2, 3));
    assert_eq!(numbers(secure), (seconds(0), seconds(10), seconds(5), 1, 3));
    let grpc = GrpcProbe { port: 19808, service: String::new(), tls: false };
    assert_eq!(storage.probe.handler, Handler::Grpc(grpc));
    assert!(
        matches!(&secure.probe.handler, Handler::HttpGet(HttpGet { scheme: Scheme::Https, path, .. }) if path == "/")
    );
    assert_eq!(secure.to_string(), "https://127.0.0.1:8443/");
}

/// VEC-81, GATE-8, GN-11, SCN-G18, API-27: each is refused by field and line, and the agent does not start with it.
#[test]
fn probes_that_cannot_be_meant_are_refused() {
    let http = "{httpGet: {port: 80}}";
    let one =
        |name: &str, kind: &str, probe: &str| format!("  - {{name: {name}, conditionType: {kind}, probe: {probe}}}\n");
    let with = |numbers: &str| format!("  - {{name: a, conditionType: A, probe: {http}, {numbers}}}\n");
    for (list, words) in [
        (
            one("a", "A", "{exec: {command: [x]}}"),
            "nodeReadinessProbes[0].probe.exec: Forbidden: a probe of the node asks",
        ),
        (one("a", "A", "{tcpSocket: {port: 80}}"), "nodeReadinessProbes[0].probe.tcpSocket: Forbidden"),
        (one("a", "A", "{httpGet: {port: 80}, grpc: {port: 81}}"), "may not specify more than one handler type"),
        (one("a", "A", "{}"), "must specify a handler type"),
        (
            "  - {name: a, conditionType: A}\n".to_owned(),
            "nodeReadinessProbes[0].probe: Invalid value: : must be a probe",
        ),
        (one("''", "A", http), "nodeReadinessProbes[0].name: Invalid value: \"\": must be 1 to 63 letters"),
        (
            one("a", "A", http) + &one("a", "B", http),
            "nodeReadinessProbes[1].name: Invalid value: \"a\": another probe has",
        ),
        (
            one("a", "''", http),
            "nodeReadinessProbes[0].conditionType: Invalid value: \"\": must be the type of a condition",
        ),
        (one("a", "a/b/c", http), "nodeReadinessProbes[0].conditionType: Invalid value: \"a/b/c\""),
        (
            one("a", "A", http) + &one("b", "A", http),
            "nodeReadinessProbes[1].conditionType: Invalid value: \"A\": another",
        ),
        (one("a", "Ready", http), "\"Ready\": the agent itself reports this condition"),
        (one("a", "DiskPressure", http), "\"DiskPressure\": the agent itself"),
        (one("a", "ProbePressure", http), "\"ProbePressure\": the agent itself"),
        (one("a", "MemoryPressure", http), "\"MemoryPressure\": this condition of the node belongs to Kubernetes"),
        (one("a", "PIDPressure", http), "\"PIDPressure\": this condition"),
        (one("a", "NetworkUnavailable", http), "\"NetworkUnavailable\": this condition"),
        (one("a", "A", "{httpGet: {port: 0}}"), "httpGet.port: Invalid value: 0: must be between 1 and 65535"),
        (one("a", "A", "{grpc: {port: 65536}}"), "grpc.port: Invalid value: 65536: must be between 1 and 65535"),
        (one("a", "A", "{httpGet: {port: web}}"), "httpGet.port: Invalid value: \"web\": must be a number"),
        (one("a", "A", "{httpGet: {port: 80, scheme: FTP}}"), "httpGet.scheme: Unsupported value: \"FTP\""),
        (with("periodSeconds: 0"), "nodeReadinessProbes[0].periodSeconds: Invalid value: 0: must be greater than 0"),
        (with("periodSeconds: -1"), "nodeReadinessProbes[0].periodSeconds: Invalid value: -1: must be greater than 0"),
        (with("successThreshold: 0"), "nodeReadinessProbes[0].successThreshold: Invalid value: 0: must be greater"),
        (with("failureThreshold: -3"), "nodeReadinessProbes[0].failureThreshold: Invalid value: -3: must be greater"),
        (
            one("a", "A", "{httpGet: {port: 80}, failureThreshold: 0}"),
            "probe.failureThreshold: Invalid value: 0: must be",
        ),
        (
            "  - {name: a, conditionType: A, probe: {httpGet: {port: 80}, periodSeconds: 5}, periodSeconds: 6}\n"
                .to_owned(),
            "nodeReadinessProbes[0].periodSeconds: Invalid value: 6: probe.periodSeconds is 5: give it once",
        ),
        (
            one("a", "A", "{httpGet: {port: 80, httpHeaders: [{name: X, value: \"a\\r\\nHost: b\"}]}}"),
            "httpHeaders[0].value: Invalid value: \"a\\r\\nHost: b\": must not contain control characters",
        ),
        (
            one("a", "A", "{httpGet: {port: 80, httpHeaders: [{name: 'X: y', value: z}]}}"),
            "httpHeaders[0].name: Invalid value",
        ),
        (
            (0..33).map(|n| one(&format!("p{n}"), &format!("C{n}"), http)).collect(),
            "nodeReadinessProbes: Invalid value: 33: must have at most 32 probes",
        ),
    ] {
        let errors = probes(&list).expect_err(&list);
        assert_eq!(errors.len(), 1, "{list}: {errors:?}");
        assert!(errors[0].contains(words), "{list}: {}", errors[0]);
        assert!(errors[0].starts_with("/etc/kubelet/config.yaml:"), "{}", errors[0]);
    }
}

/// VEC-82: a gate that nothing opens, a probe that opens nothing, and two conditions that one gate may mean.
#[test]
fn gates_without_probes_and_probes_without_gates_are_named() {
    let warnings = |taints: &[&str], conditions: &[&str]| {
        let taints: Vec<Taint> = taints.iter().map(|taint| taint.parse().expect("a taint")).collect();
        let one = |(index, kind): (usize, &&str)| {
            let mut probes =
                probes(&format!("  - {{name: p{index}, conditionType: {kind}, probe: {{grpc: {{port: 80}}}}}}\n"))
                    .expect("a probe");
            probes.remove(0)
        };
        let probes: Vec<NodeProbe> = conditions.iter().enumerate().map(one).collect();
        gate_warnings(&taints, &probes)
    };
    let net = "readiness.k8s.io/Net:NoSchedule";
    assert_eq!(warnings(&[net], &["Net"]), [""; 0]);
    assert_eq!(warnings(&[net], &["a.io/Net"]), [""; 0]);
    assert_eq!(warnings(&["readiness.k8s.io/RuntimeReady:NoSchedule"], &[]), [""; 0], "the agent reports it");
    assert_eq!(warnings(&["example.com/Net:NoSchedule", "readiness.k8s.io/Net:NoExecute"], &[]), [""; 0], "no gates");
    let without_probe = warnings(&[net], &[]);
    assert!(without_probe[0].starts_with("gate readiness.k8s.io/Net: no probe"), "{without_probe:?}");
    let without_gate = warnings(&[], &["Net"]);
    assert!(without_gate[0].contains("probe p0: no taint"), "{without_gate:?}");
    let ambiguous = warnings(&[net], &["a.io/Net", "b.io/Net"]);
    assert!(ambiguous[0].contains("a.io/Net and b.io/Net"), "{ambiguous:?}");
}

/// GN-12: what the runtime says of itself is a condition of its own only where a gate names it, and no probe of that name is configured.
#[test]
fn built_in_conditions_are_off_unless_a_gate_names_them() {
    let network: Taint = "readiness.k8s.io/NetworkReady:NoSchedule".parse().expect("a taint");
    let probe =
        probes("  - {name: p, conditionType: example.com/NetworkReady, probe: {grpc: {port: 80}}}\n").expect("a probe");
    let taints = std::slice::from_ref(&network);
    assert_eq!(built_in_conditions(&[], &[]), [""; 0]);
    assert_eq!(built_in_conditions(taints, &[]), ["NetworkReady"]);
    assert_eq!(built_in_conditions(taints, &probe), [""; 0], "the gate of the KEP's example means the probe");
    assert_eq!(gate_warnings(taints, &probe), [""; 0]);
}

/// GATE-1
#[test]
fn taints_of_the_file_are_read() {
    let taints = |list: &str| of(&format!("registerWithTaints: [{list}]")).map(|read| read.config.taints);
    let gate: Taint = "readiness.k8s.io/Net:NoSchedule".parse().expect("a taint");
    assert_eq!(taints("{key: readiness.k8s.io/Net, effect: NoSchedule}"), Ok(vec![gate]));
    for (list, words) in [
        ("{key: a, effect: Never}", "registerWithTaints[0].effect: Invalid value: \"Never\": must be NoSchedule"),
        ("{key: '', effect: NoSchedule}", "registerWithTaints[0].key: Invalid value: \"\": must not be empty"),
    ] {
        let errors = taints(list).expect_err(list);
        assert!(errors[0].contains(words), "{errors:?}");
    }
}
