//! The pod as a whole: API-11, metadata, UID.

use std::time::Duration;

use keelet_pod::{Features, Origin, RestartPolicy, Role, Strictness, read_manifest};

use crate::common::{accepted, clean, paths, pod, refused, strict, warned};

fn named(metadata: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {metadata}\nspec: {{containers: [{{name: a, image: b:1}}]}}\n")
}

/// API-11
#[test]
fn defaults_are_resolved() {
    let pod = clean(&pod("", ""));
    assert_eq!((pod.namespace.as_str(), pod.name.as_str(), pod.generation), ("default", "web", None));
    assert_eq!(pod.restart_policy, RestartPolicy::Always);
    assert_eq!(pod.termination_grace, Duration::from_secs(30));
    assert_eq!(pod.restart_all_grace, Duration::ZERO);
    assert!(!pod.host_network && pod.readiness_gates.is_empty());
    assert_eq!(pod.containers[0].role, Role::Regular);
    let spec = pod.source.spec.as_ref().unwrap();
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    assert_eq!(spec.dns_policy.as_deref(), Some("ClusterFirst"));
    assert_eq!(spec.termination_grace_period_seconds, Some(30));
    assert_eq!(spec.enable_service_links, Some(true));
    assert_eq!(pod.source.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(pod.source.metadata.uid.as_deref(), Some(pod.uid.as_str()));
}

/// API-11
#[test]
fn negative_grace_becomes_one_second() {
    for seconds in ["-1", "-30"] {
        let manifest = pod(&format!("terminationGracePeriodSeconds: {seconds}"), "");
        warned(&manifest, "spec.terminationGracePeriodSeconds", &format!("{seconds} is invalid: 1 is used"));
        assert_eq!(accepted(&manifest).termination_grace, Duration::from_secs(1));
    }
    for seconds in [0, 1, 7200] {
        let pod = clean(&pod(&format!("terminationGracePeriodSeconds: {seconds}"), ""));
        assert_eq!(pod.termination_grace, Duration::from_secs(seconds));
    }
}

/// API-11
#[test]
fn readiness_gates_are_qualified_names() {
    let pod_of = |gates: &str| pod(&format!("readinessGates: [{gates}]"), "");
    let pod = clean(&pod_of("{conditionType: example.com/a}, {conditionType: B}"));
    assert_eq!(pod.readiness_gates, ["example.com/a", "B"]);
    let path = "spec.readinessGates[0].conditionType";
    refused(&pod_of("{conditionType: a/b/c}"), path, "Invalid value: \"a/b/c\"");
    refused(&pod_of("{}"), path, "Required value");
}

#[test]
fn pods_have_names() {
    refused(&named("{}"), "metadata.name", "Required value");
    refused(&named("{generateName: web-}"), "metadata.name", "generateName is for API servers");
    refused(&named("{name: Web}"), "metadata.name", "must consist of lower case letters");
    refused(&named("{name: web, namespace: a.b}"), "metadata.namespace", "must consist of lower case letters");
    let pod = clean(&named("{name: web.example, namespace: team-a, generation: 7}"));
    assert_eq!((pod.namespace.as_str(), pod.name.as_str(), pod.generation), ("team-a", "web.example", Some(7)));
    assert_eq!(clean(&named("{name: web, namespace: \"\"}")).namespace, "default");
}

#[test]
fn labels_and_annotations_have_a_syntax() {
    let path = "metadata.labels[a b]";
    refused(&named("{name: a, labels: {a b: x}}"), path, "Invalid value: \"a b\"");
    refused(&named("{name: a, labels: {a: \"x y\"}}"), "metadata.labels[a]", "Invalid value: \"x y\"");
    clean(&named("{name: a, labels: {app.kubernetes.io/name: x, b: \"\"}}"));
    refused(&named("{name: a, annotations: {\"a/b/c\": x}}"), "metadata.annotations[a/b/c]", "Invalid value");
    clean(&named("{name: a, annotations: {Example.com/A: any thing}}"));
}

#[test]
fn annotations_have_a_total_size() {
    let sized = |size: usize| named(&format!("{{name: a, annotations: {{k: \"{}\", l: ab}}}}", "x".repeat(size)));
    clean(&sized((256 << 10) - 4));
    refused(&sized((256 << 10) - 3), "metadata.annotations", "at most 262144 bytes");
}

#[test]
fn a_pod_has_a_spec_and_a_container() {
    refused("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "spec", "Required value");
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n";
    refused(manifest, "spec.containers", "Required value: a pod needs at least one container");
}

#[test]
fn fields_of_the_spec_are_checked() {
    for (good, bad, path, words) in [
        ("resourceClaims: []", "resourceClaims: [{name: a}]", "resourceClaims", "keelet does not allocate devices"),
        ("hostname: web-1", "hostname: Web", "hostname", "lower case letters"),
        ("hostname: \"\"", "hostname: a.b", "hostname", "lower case letters"),
        ("subdomain: web", "subdomain: a_b", "subdomain", "lower case letters"),
        ("dnsPolicy: None", "dnsPolicy: none", "dnsPolicy", "supported values: \"ClusterFirst\""),
        ("dnsPolicy: \"\"", "dnsPolicy: X", "dnsPolicy", "\"Default\""),
        ("os: {name: linux}", "os: {name: windows}", "os.name", "supported values: \"linux\""),
        (
            "hostPID: true",
            "hostPID: true\nshareProcessNamespace: true",
            "shareProcessNamespace",
            "hostPID and shareProcessNamespace cannot both be true",
        ),
        (
            "shareProcessNamespace: true",
            "shareProcessNamespace: true\nhostPID: true",
            "shareProcessNamespace",
            "cannot both be true",
        ),
        ("resources: {limits: {cpu: 1}}", "resources: {limits: {cpu: x}}", "resources.limits[cpu]", "must be a number"),
    ] {
        clean(&pod(good, ""));
        refused(&pod(bad, ""), &format!("spec.{path}"), words);
    }
}

#[test]
fn what_has_no_effect_is_said() {
    for (field, path) in [
        ("activeDeadlineSeconds: 1", "activeDeadlineSeconds"),
        ("activeDeadlineSeconds: 2147483647", "activeDeadlineSeconds"),
        ("imagePullSecrets: [{name: a}]", "imagePullSecrets"),
        ("schedulingGates: [{name: a}]", "schedulingGates"),
        ("volumes: [{name: a, emptyDir: {sizeLimit: 1Gi}}]", "volumes[0].emptyDir.sizeLimit"),
        ("volumes: [{name: a, emptyDir: {medium: \"\", sizeLimit: 1Gi}}]", "volumes[0].emptyDir.sizeLimit"),
    ] {
        warned(&pod(field, ""), &format!("spec.{path}"), "Ignored: ");
    }
    for number in ["0", "2147483648"] {
        let report = strict(&pod(&format!("activeDeadlineSeconds: {number}"), ""));
        assert_eq!(report.errors.len(), 1, "{report}");
        assert!(report.errors[0].to_string().contains("between 1 and 2147483647"), "{report}");
    }
    clean(&pod("imagePullSecrets: []\nschedulingGates: []", ""));
    let limits = "resources: {limits: {example.com/gpu: 1}}";
    warned(&pod("", limits), "spec.containers[0].resources.limits[example.com/gpu]", "runs without it");
    // Said once where the request is the limit.
    for (resources, path) in [
        ("limits: {ephemeral-storage: 1Gi}", "limits"),
        ("limits: {ephemeral-storage: 1Gi}, requests: {ephemeral-storage: 1Gi}", "limits"),
        ("requests: {ephemeral-storage: 1Gi}", "requests"),
    ] {
        let path = format!("spec.containers[0].resources.{path}[ephemeral-storage]");
        warned(&pod("", &format!("resources: {{{resources}}}")), &path, "Ignored: keelet does not evict pods");
    }
}

#[test]
fn user_namespaces_exclude_the_nodes_namespaces() {
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        let manifest = pod(&format!("hostUsers: false\n{field}: true"), "");
        refused(&manifest, &format!("spec.{field}"), "Forbidden: must be false when hostUsers is false");
        clean(&pod(&format!("hostUsers: false\n{field}: false"), ""));
        clean(&pod(&format!("hostUsers: true\n{field}: true"), ""));
        clean(&pod(&format!("{field}: true"), ""));
    }
}

/// NODE-1: the UID of a pod that has none from an API server follows from its content, wherever it is read from.
#[test]
fn uids_follow_content() {
    let uid = |manifest: &str, origin: &str| {
        let report =
            read_manifest(manifest.as_bytes(), &Origin::file(origin), Strictness::Strict, &Features::default());
        report.pods[0].uid.clone()
    };
    let base = uid(&pod("", ""), "a.yaml");
    assert_eq!(base.len(), 32);
    assert!(base.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(base, uid(&format!("# a comment\n{}", pod("", "")), "a.yaml"));
    assert_eq!(base, uid(&pod("", ""), "b.yaml"), "the name of the file is not part of it");
    assert_ne!(base, uid(&pod("", "stdin: true"), "a.yaml"));
    assert_eq!(uid(&named("{name: a, uid: given}"), "a.yaml"), "given");
    assert_eq!(uid(&named("{name: a, uid: \"\"}"), "a.yaml"), uid(&named("{name: a}"), "a.yaml"));
}

/// Errors are a list, not the first one.
#[test]
fn every_mistake_is_reported_at_once() {
    let report = strict(&pod(
        "restartPolicy: Sometimes\nhostname: Web",
        "image2: x\nimagePullPolicy: x\nlivenessProbe: {}\nenv: [{name: A, value: 1}]\nports: [{containerPort: http}]",
    ));
    assert_eq!(
        paths(&report),
        [
            "spec.restartPolicy",
            "spec.hostname",
            "spec.containers[0].image2",
            "spec.containers[0].imagePullPolicy",
            "spec.containers[0].livenessProbe",
            "spec.containers[0].env[0].value",
            "spec.containers[0].ports[0].containerPort",
        ]
    );
    assert!(report.pods.is_empty());
}

#[test]
fn problems_say_where_they_are() {
    let problem = refused(
        &pod("", "livenessProbe:\n  httpGet:\n    port: 99999"),
        "spec.containers[0].livenessProbe.httpGet.port",
        "",
    );
    assert_eq!((problem.line, problem.column, problem.document), (Some(10), Some(15), Some(1)));
    assert_eq!(problem.pod.as_deref(), Some("default/web"));
    assert_eq!(
        problem.to_string(),
        "pod.yaml:10:15: spec.containers[0].livenessProbe.httpGet.port: Invalid value: 99999: must be between 1 and 65535, \
         inclusive"
    );
    // What is missing is looked for where it should have been.
    let problem = refused(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - image: b\n",
        "spec.containers[0].name",
        "",
    );
    assert_eq!((problem.line, problem.column), (Some(6), Some(5)));
    // A map or list is pointed at by its key.
    let problem = refused(&pod("", "livenessProbe:\n  periodSeconds: 1"), "spec.containers[0].livenessProbe", "");
    assert_eq!((problem.line, problem.column), (Some(8), Some(5)));
}

#[test]
fn long_values_are_shortened() {
    let problem =
        refused(&pod("", &format!("imagePullPolicy: {}", "x".repeat(65))), "spec.containers[0].imagePullPolicy", "");
    assert_eq!(problem.value, Some(format!("\"{}...\"", "x".repeat(61))));
    let problem =
        refused(&pod("", &format!("imagePullPolicy: {}", "x".repeat(64))), "spec.containers[0].imagePullPolicy", "");
    assert_eq!(problem.value, Some(format!("\"{}\"", "x".repeat(64))));
}
