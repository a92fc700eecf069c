//! Pods of an API server, which accepted them: refused only where no sensible reading is left.

use std::time::Duration;

use k8s_openapi::api::core::v1;
use keelet_pod::{
    Features, Hook, Pod, PullPolicy, Report, RestartPolicy, Severity, Strictness, Trust, parse_one, review_api_pod,
};

use crate::common::{pod, read, with_ephemeral, with_init};

fn from_api(manifest: &str) -> Report {
    let report = read(manifest, Strictness::ApiServer, &Features::default());
    assert!(report.errors.iter().all(|problem| problem.severity == Severity::Error));
    assert!(report.warnings.iter().all(|problem| problem.severity == Severity::Warning));
    report
}

#[track_caller]
fn tolerated(manifest: &str, path: &str) -> Pod {
    let mut report = from_api(manifest);
    assert!(report.is_ok(), "{report}");
    assert!(report.warnings.iter().any(|problem| problem.path == path), "{path}: {report}");
    report.pods.remove(0)
}

#[test]
fn fields_of_a_newer_api_are_no_errors() {
    tolerated(&pod("futureField: 1", ""), "spec.futureField");
    tolerated(&pod("hostname: a\nhostname: b", ""), "spec.hostname");
    tolerated(&pod("hostUsers: maybe", ""), "spec.hostUsers");
}

/// API-13: rules without a policy are ignored.
#[test]
fn rules_without_a_policy_are_ignored() {
    let manifest = pod("", "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]");
    let pod = tolerated(&manifest, "spec.containers[0].restartPolicy");
    assert_eq!(pod.containers[0].rules, []);
}

#[test]
fn values_of_a_newer_api_fall_back() {
    let main = |manifest: &str, path: &str| tolerated(manifest, path).containers.remove(0);
    let rule = |rule: &str| {
        pod(
            "",
            &format!(
                "restartPolicy: Never\nrestartPolicyRules: [{rule}, {{action: Restart, exitCodes: {{operator: In, values: [1]}}}}]"
            ),
        )
    };
    let path = "spec.containers[0].restartPolicyRules[0]";
    let new_action = rule("{action: Hibernate, exitCodes: {operator: In, values: [2]}}");
    assert_eq!(main(&new_action, &format!("{path}.action")).rules.len(), 1);
    let new_operator = rule("{action: Restart, exitCodes: {operator: Between, values: [2]}}");
    assert_eq!(main(&new_operator, &format!("{path}.exitCodes.operator")).rules.len(), 1);
    assert_eq!(main(&rule("{action: Restart}"), &format!("{path}.exitCodes")).rules.len(), 1);
    let container = main(&pod("", "imagePullPolicy: Lazy"), "spec.containers[0].imagePullPolicy");
    assert_eq!(container.pull_policy, PullPolicy::IfNotPresent);
    let container = main(&pod("restartPolicy: Never", "restartPolicy: Maybe"), "spec.containers[0].restartPolicy");
    assert_eq!(container.restart_policy, RestartPolicy::Never);
    assert_eq!(tolerated(&pod("restartPolicy: Maybe", ""), "spec.restartPolicy").restart_policy, RestartPolicy::Always);
    let container = main(
        &pod("", "ports: [{containerPort: 99999}, {containerPort: 1, protocol: QUIC}]"),
        "spec.containers[0].ports[1].protocol",
    );
    assert_eq!((container.ports.len(), container.ports[0].protocol.as_str()), (1, "TCP"));
}

#[test]
fn probes_fall_back_where_they_can() {
    let numbers = "{tcpSocket: {port: 1}, initialDelaySeconds: -1, timeoutSeconds: -1, periodSeconds: -1, successThreshold: -1, \
                   failureThreshold: -1, terminationGracePeriodSeconds: 0}";
    let manifest = pod("", &format!("livenessProbe: {numbers}"));
    let probe =
        tolerated(&manifest, "spec.containers[0].livenessProbe.periodSeconds").containers.remove(0).liveness.unwrap();
    assert_eq!(
        (probe.initial_delay, probe.timeout, probe.period),
        (Duration::ZERO, Duration::from_secs(1), Duration::from_secs(10))
    );
    assert_eq!((probe.success_threshold, probe.failure_threshold, probe.termination_grace), (1, 3, None));
    let manifest = pod("", "startupProbe: {tcpSocket: {port: 1}, successThreshold: 5}");
    let probe =
        tolerated(&manifest, "spec.containers[0].startupProbe.successThreshold").containers.remove(0).startup.unwrap();
    assert_eq!(probe.success_threshold, 1);
    let manifest = pod("", "readinessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 5}");
    let path = "spec.containers[0].readinessProbe.terminationGracePeriodSeconds";
    assert_eq!(tolerated(&manifest, path).containers[0].readiness.as_ref().unwrap().termination_grace, None);
    let manifest = pod("", "livenessProbe: {httpGet: {port: 1, scheme: QUIC, protocol: HTTP3}}");
    tolerated(&manifest, "spec.containers[0].livenessProbe.httpGet.scheme");
    tolerated(&manifest, "spec.containers[0].livenessProbe.httpGet.protocol");
    tolerated(&pod("", "livenessProbe: {grpc: {port: 1, mode: MTLS}}"), "spec.containers[0].livenessProbe.grpc.mode");
}

#[test]
fn hooks_and_placement_fall_back() {
    let manifest = pod("", "lifecycle: {preStop: {sleep: {seconds: 99}}, postStart: {sleep: {seconds: -1}}}");
    let container = tolerated(&manifest, "spec.containers[0].lifecycle.preStop.sleep.seconds").containers.remove(0);
    assert_eq!(container.pre_stop, Some(Hook::Sleep(Duration::from_secs(30))));
    assert_eq!(container.post_start, Some(Hook::Sleep(Duration::ZERO)));
    let pod = tolerated(&with_init("livenessProbe: {tcpSocket: {port: 1}}"), "spec.initContainers[0].livenessProbe");
    assert_eq!(pod.init_containers[0].liveness, None);
    let pod = tolerated(
        &with_ephemeral("livenessProbe: {tcpSocket: {port: 1}}"),
        "spec.ephemeralContainers[0].livenessProbe",
    );
    assert_eq!(pod.ephemeral_containers[0].liveness, None);
}

#[test]
fn sidecar_rules_are_dropped_when_the_gate_is_off() {
    let off = Features::resolve("RestartAllContainersOnContainerExits=false", &Default::default()).unwrap().features;
    let rule = "restartPolicy: Always\nrestartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]";
    let report = read(&with_init(rule), Strictness::ApiServer, &off);
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.pods[0].init_containers[0].rules, []);
}

#[test]
fn what_has_no_reading_is_refused() {
    for (manifest, path) in [
        (pod("", "livenessProbe: {}"), "spec.containers[0].livenessProbe"),
        (pod("", "livenessProbe: {quic: {port: 1}}"), "spec.containers[0].livenessProbe"),
        (pod("", "livenessProbe: {exec: {}}"), "spec.containers[0].livenessProbe.exec.command"),
        (pod("", "livenessProbe: {tcpSocket: {port: 0}}"), "spec.containers[0].livenessProbe.tcpSocket.port"),
        (pod("", "livenessProbe: {grpc: {port: 0}}"), "spec.containers[0].livenessProbe.grpc.port"),
        (pod("", "lifecycle: {preStop: {}}"), "spec.containers[0].lifecycle.preStop"),
        (pod("ephemeralContainers: [{name: main, image: a}]", ""), "spec.ephemeralContainers[0].name"),
        (pod("ephemeralContainers: [{image: a}]", ""), "spec.ephemeralContainers[0].name"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {}\nspec: {containers: [{name: a, image: b}]}\n".to_owned(),
            "metadata.name",
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n".to_owned(), "spec.containers"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n".to_owned(), "spec"),
    ] {
        let report = from_api(&manifest);
        assert!(report.pods.is_empty());
        assert_eq!(report.errors.iter().map(|problem| problem.path.as_str()).collect::<Vec<_>>(), [path], "{report}");
    }
}

#[test]
fn typed_pods_need_no_manifest() {
    let source = v1::Pod::clone(&parse_one(&pod("", "livenessProbe: {tcpSocket: {port: 1}}")).unwrap().source);
    let pod = Pod::from_api(source.clone(), &Features::default()).unwrap();
    assert_eq!((pod.name.as_str(), pod.uid.as_str()), ("web", source.metadata.uid.as_deref().unwrap()));
    assert_eq!(*pod.source, source, "defaults are filled in once");

    let mut broken = source.clone();
    broken.spec.as_mut().unwrap().containers[0].liveness_probe.as_mut().unwrap().tcp_socket = None;
    let problems = Pod::from_api(broken.clone(), &Features::default()).unwrap_err();
    assert_eq!(problems.len(), 1);
    let line = problems[0].to_string();
    assert!(line.starts_with("api: pod default/web: spec.containers[0].livenessProbe: Required value"), "{line}");
    broken.metadata.namespace = Some("n".to_owned());
    assert_eq!(Pod::from_api(broken, &Features::default()).unwrap_err()[0].pod.as_deref(), Some("n/web"));

    let mut newer = source;
    newer.spec.as_mut().unwrap().dns_policy = Some("Future".to_owned());
    let report = review_api_pod(newer.clone(), &Features::default(), Strictness::ApiServer);
    assert_eq!((report.pods.len(), report.warnings.len()), (1, 1));
    let report = review_api_pod(newer, &Features::default(), Strictness::Strict);
    assert_eq!((report.pods.len(), report.errors.len()), (0, 1));
}

/// IMG-6: a directory of the node can be an image, in any field, only for a manifest on the node.
#[test]
fn a_directory_of_the_node_is_not_an_image_for_pods_of_an_api_server() {
    let pod = |spec: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n{spec}");
    let main = "  containers: [{name: main, image: app, volumeMounts: [{name: v, mountPath: /v}]}]\n";
    let other = "  volumes: [{name: v, emptyDir: {}}]\n";
    for (path, spec) in [
        ("spec.containers[0].image", "  containers: [{name: main, image: 'rootfs:/'}]\n".to_owned()),
        (
            "spec.initContainers[0].image",
            format!("{main}{other}  initContainers: [{{name: i, image: 'rootfs:/srv'}}]\n"),
        ),
        (
            "spec.ephemeralContainers[0].image",
            format!("{main}{other}  ephemeralContainers: [{{name: e, image: 'rootfs:/'}}]\n"),
        ),
    ] {
        let written = parse_one(&pod(&spec)).unwrap_or_else(|report| panic!("{path} in a manifest: {report}"));
        assert_eq!(written.trust, Trust::Node);
        let problems = Pod::from_api((*written.source).clone(), &Features::default());
        let problems = problems.expect_err(&format!("{path} was accepted from an API server"));
        assert_eq!(problems.iter().map(|problem| problem.path.as_str()).collect::<Vec<_>>(), [path]);
        assert!(problems[0].message.contains("only for a manifest on the node"), "{}", problems[0]);

        let kept = Pod::from_json(written.to_json().unwrap(), &Features::default());
        assert_eq!(kept.unwrap_or_else(|error| panic!("{path} in a copy: {error}")).trust, Trust::Node);
    }
    // No manifest of a node may have one so far, whatever it names.
    let mut source = (*parse_one(&pod(&format!("{main}{other}"))).unwrap().source).clone();
    let image = v1::ImageVolumeSource { reference: Some("rootfs:/etc".to_owned()), ..Default::default() };
    let volume = v1::Volume { name: "v".to_owned(), image: Some(image), ..Default::default() };
    source.spec.as_mut().unwrap().volumes = Some(vec![volume]);
    let problems = Pod::from_api(source, &Features::default()).expect_err("an image volume of the node was accepted");
    assert!(problems.iter().any(|problem| problem.path == "spec.volumes[0].image.reference"), "{problems:?}");
}

/// IMG-6: a kept copy keeps the trust of the pod, so an agent restart never raises it.
#[test]
fn a_kept_copy_keeps_the_trust_of_the_pod() {
    let source = (*parse_one(&pod("", "")).unwrap().source).clone();
    let pod = Pod::from_api(source, &Features::default()).unwrap();
    assert_eq!(pod.trust, Trust::Cluster);
    let copy = pod.to_json().unwrap();
    assert_eq!(Pod::from_json(copy.clone(), &Features::default()).unwrap(), pod);
    let mut changed = copy;
    changed["spec"]["containers"][0]["image"] = "rootfs:/".into();
    let error = Pod::from_json(changed, &Features::default()).expect_err("a directory of the node was accepted");
    assert!(error.to_string().contains("rootfs:/"), "{error}");
}

/// API-30
#[test]
fn a_uid_is_letters_digits_and_dashes_wherever_a_pod_comes_from() {
    let long = "a".repeat(129);
    for (uid, is_one) in [
        ("2c2ec1b4-5c5c-4b5c-9e0f-0d7c4a1f0b1e", true),
        ("7", true),
        ("ABC", true),
        ("a_b", false),
        ("../../etc", false),
        ("a/b", false),
        ("a b", false),
        ("a.b", false),
        ("ü", false),
        (long.as_str(), false),
    ] {
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, uid: '{uid}'}}\nspec: {{containers: [{{name: a, image: b}}]}}\n"
        );
        for strictness in [Strictness::Strict, Strictness::ApiServer] {
            let report = read(&manifest, strictness, &Features::default());
            let told = report.errors.iter().any(|problem| problem.path == "metadata.uid");
            assert_eq!((report.is_ok(), told), (is_one, !is_one), "{uid} {strictness:?}: {report}");
        }
    }
}
