//! Names, images, ports, digests: API-7, API-23, BACK-10.

use keelet_pod::{Port, PullPolicy};

use crate::common::{accepted, clean, main_of, paths, pod, refused, strict, with_ephemeral, with_init};

/// A pod whose containers are given in full.
fn containers(list: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  containers: {list}\n")
}

/// API-23
#[test]
fn names_are_dns_labels_and_required() {
    let path = "spec.containers[0].name";
    refused(&containers("[{image: a}]"), path, "Required value");
    refused(&containers("[{name: \"\", image: a}]"), path, "Required value");
    refused(
        &containers("[{name: Main, image: a}]"),
        path,
        "Invalid value: \"Main\": must consist of lower case letters",
    );
    refused(&containers(&format!("[{{name: {}, image: a}}]", "x".repeat(64))), path, "no more than 63 characters");
    clean(&containers(&format!("[{{name: {}, image: a}}]", "x".repeat(63))));
}

/// API-23: one space of names for all kinds of containers.
#[test]
fn names_are_unique_among_all_containers() {
    let path = "spec.containers[1].name";
    refused(&containers("[{name: a, image: a}, {name: a, image: b}]"), path, "Duplicate value: \"a\"");
    let init = "initContainers: [{name: main, image: a}]";
    refused(&pod(init, ""), "spec.containers[0].name", "Duplicate value: \"main\"");
    let ephemeral = "ephemeralContainers: [{name: main, image: a}]";
    refused(&pod(ephemeral, ""), "spec.ephemeralContainers[0].name", "Duplicate value: \"main\"");
    clean(&pod("initContainers: [{name: a, image: a}]\nephemeralContainers: [{name: b, image: a}]", ""));
}

#[test]
fn images_are_required_and_trimmed() {
    let path = "spec.containers[0].image";
    refused(&containers("[{name: a}]"), path, "Required value");
    refused(&containers("[{name: a, image: \" b\"}]"), path, "must not begin or end with spaces");
    refused(&containers("[{name: a, image: \"b \"}]"), path, "must not begin or end with spaces");
}

/// BACK-10
#[test]
fn pull_policy_follows_the_tag() {
    let cases = [
        ("app", PullPolicy::Always),
        ("app:latest", PullPolicy::Always),
        ("app:1", PullPolicy::IfNotPresent),
        ("reg:5000/app", PullPolicy::Always),
        ("reg:5000/app:latest", PullPolicy::Always),
        ("reg:5000/app:1", PullPolicy::IfNotPresent),
        ("app@sha256:0123", PullPolicy::IfNotPresent),
        ("app:latest@sha256:0123", PullPolicy::Always),
        ("app:1@sha256:0123", PullPolicy::IfNotPresent),
        ("app:latest2", PullPolicy::IfNotPresent),
    ];
    for (image, policy) in cases {
        let manifest = containers(&format!("[{{name: main, image: \"{image}\"}}]"));
        assert_eq!(main_of(&manifest).pull_policy, policy, "{image}");
    }
    assert_eq!(clean(&with_init("")).init_containers[0].pull_policy, PullPolicy::IfNotPresent);
    assert_eq!(clean(&with_ephemeral("")).ephemeral_containers[0].pull_policy, PullPolicy::IfNotPresent);
}

#[test]
fn pull_policy_may_be_given() {
    let cases = [
        ("Always", PullPolicy::Always),
        ("IfNotPresent", PullPolicy::IfNotPresent),
        ("Never", PullPolicy::Never),
        ("\"\"", PullPolicy::IfNotPresent),
    ];
    for (word, policy) in cases {
        assert_eq!(main_of(&pod("", &format!("imagePullPolicy: {word}"))).pull_policy, policy);
    }
    let path = "spec.containers[0].imagePullPolicy";
    refused(&pod("", "imagePullPolicy: always"), path, "supported values: \"Always\", \"IfNotPresent\", \"Never\"");
}

#[test]
fn termination_message_policy_is_one_of_two() {
    for word in ["File", "FallbackToLogsOnError"] {
        clean(&pod("", &format!("terminationMessagePolicy: {word}")));
    }
    let path = "spec.containers[0].terminationMessagePolicy";
    refused(&pod("", "terminationMessagePolicy: Log"), path, "supported values: \"File\"");
    let source = clean(&pod("", "")).source.spec.clone().unwrap().containers.remove(0);
    assert_eq!(source.termination_message_path.as_deref(), Some("/dev/termination-log"));
    assert_eq!(source.termination_message_policy.as_deref(), Some("File"));
    let source = clean(&with_ephemeral("")).source.spec.clone().unwrap().ephemeral_containers.unwrap().remove(0);
    assert_eq!(source.termination_message_path.as_deref(), Some("/dev/termination-log"));
}

/// API-7
#[test]
fn ports_are_declared_with_number_name_and_protocol() {
    let ports = main_of(&pod("", "ports: [{containerPort: 80}, {containerPort: 53, name: dns, protocol: UDP}]")).ports;
    let port = |name: Option<&str>, number, protocol: &str| Port {
        name: name.map(str::to_owned),
        number,
        protocol: protocol.to_owned(),
    };
    assert_eq!(ports, [port(None, 80, "TCP"), port(Some("dns"), 53, "UDP")]);
    assert_eq!(main_of(&pod("", "ports: [{containerPort: 80, name: \"\"}]")).ports, [port(None, 80, "TCP")]);
}

/// API-7
#[test]
fn port_numbers_names_and_protocols_are_checked() {
    let ports = |text: &str| pod("", &format!("ports: [{text}]"));
    let path = "spec.containers[0].ports[0]";
    refused(&ports("{}"), &format!("{path}.containerPort"), "Required value");
    refused(&ports("{containerPort: 0}"), &format!("{path}.containerPort"), "Required value");
    for number in ["-1", "65536"] {
        let manifest = ports(&format!("{{containerPort: {number}}}"));
        refused(&manifest, &format!("{path}.containerPort"), "must be between 1 and 65535, inclusive");
        let manifest = ports(&format!("{{containerPort: 1, hostPort: {number}}}"));
        refused(&manifest, &format!("{path}.hostPort"), "must be between 1 and 65535, inclusive");
    }
    for number in ["1", "65535"] {
        clean(&ports(&format!("{{containerPort: {number}, hostPort: {number}}}")));
    }
    clean(&ports("{containerPort: 1, hostPort: 0}"));
    refused(&ports("{containerPort: 1, name: a--b}"), &format!("{path}.name"), "must not contain '--'");
    let words = "supported values: \"TCP\", \"UDP\", \"SCTP\"";
    refused(&ports("{containerPort: 1, protocol: tcp}"), &format!("{path}.protocol"), words);
    clean(&ports("{containerPort: 1, protocol: SCTP}"));
}

#[test]
fn port_names_are_unique_within_a_container() {
    let manifest = pod("", "ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]");
    refused(&manifest, "spec.containers[0].ports[1].name", "Duplicate value: \"a\"");
    clean(&pod("", "ports: [{containerPort: 1, name: a}, {containerPort: 1, name: b}, {containerPort: 1}]"));
    clean(&containers(
        "[{name: a, image: a, ports: [{name: x, containerPort: 1}]}, {name: b, image: a, ports: [{name: x, containerPort: 2}]}]",
    ));
}

#[test]
fn host_ports_are_claimed_once() {
    let two = |first: &str, second: &str| {
        containers(&format!("[{{name: a, image: a, ports: [{first}]}}, {{name: b, image: a, ports: [{second}]}}]"))
    };
    let path = "spec.containers[1].ports[0].hostPort";
    let port = "{containerPort: 1, hostPort: 80}";
    refused(&two(port, port), path, "Duplicate value: 80");
    clean(&two(port, "{containerPort: 1, hostPort: 81}"));
    clean(&two(port, "{containerPort: 1, hostPort: 80, protocol: UDP}"));
    clean(&two(port, "{containerPort: 1, hostPort: 80, hostIP: 127.0.0.1}"));
    clean(&two("{containerPort: 1}", "{containerPort: 1}"));
    // Init containers come one after the other.
    clean(&pod(&format!("initContainers: [{{name: a, image: a, ports: [{port}]}}]"), &format!("ports: [{port}]")));
    let twice = format!("initContainers: [{{name: a, image: a, ports: [{port}, {port}]}}]");
    refused(&pod(&twice, ""), "spec.initContainers[0].ports[1].hostPort", "Duplicate value: 80");
}

#[test]
fn host_network_makes_container_ports_host_ports() {
    let pod_of = |ports: &str| pod("hostNetwork: true", &format!("ports: [{ports}]"));
    let source = clean(&pod_of("{containerPort: 80}")).source.spec.clone().unwrap().containers.remove(0);
    assert_eq!(source.ports.unwrap()[0].host_port, Some(80));
    clean(&pod_of("{containerPort: 80, hostPort: 80}"));
    let path = "spec.containers[0].ports[0].hostPort";
    refused(&pod_of("{containerPort: 80, hostPort: 81}"), path, "must equal containerPort when hostNetwork is true");
    assert!(clean(&pod_of("{containerPort: 80}")).host_network);
    let without = clean(&pod("", "ports: [{containerPort: 80}]"));
    assert!(!without.host_network);
    assert_eq!(without.source.spec.as_ref().unwrap().containers[0].ports.as_ref().unwrap()[0].host_port, None);
}

#[test]
fn ephemeral_containers_target_a_container() {
    clean(&with_ephemeral("targetContainerName: main"));
    clean(&with_ephemeral("targetContainerName: \"\""));
    clean(&pod(
        "initContainers: [{name: side, image: a, restartPolicy: Always}]\nephemeralContainers: [{name: d, image: a, targetContainerName: side}]",
        "",
    ));
    let path = "spec.ephemeralContainers[0].targetContainerName";
    refused(&with_ephemeral("targetContainerName: other"), path, "Not found: \"other\"");
}

#[test]
fn ephemeral_containers_are_checked_as_others_are() {
    let report =
        strict(&with_ephemeral("volumeMounts: [{name: x, mountPath: /x}]\nenv: [{name: \"=\"}]\nimagePullPolicy: x"));
    let path = "spec.ephemeralContainers[0]";
    let expected =
        [format!("{path}.volumeMounts[0].name"), format!("{path}.env[0].name"), format!("{path}.imagePullPolicy")];
    assert_eq!(paths(&report), expected);
    let report = strict(&with_ephemeral(
        "securityContext: {runAsUser: -1}\nterminationMessagePolicy: x\nvolumeDevices: [{}]\nenvFrom: [{}]",
    ));
    assert_eq!(report.errors.len(), 4, "{report}");
}

/// The kubelet's hash: name and image, nothing else.
#[test]
fn container_hash_follows_name_and_image_only() {
    let hash = |name: &str, image: &str, more: &str| {
        accepted(&containers(&format!("[{{name: {name}, image: \"{image}\"{more}}}]"))).containers[0].hash
    };
    let base = hash("a", "b:1", "");
    assert_eq!(base, hash("a", "b:1", ", env: [{name: X, value: z}], resources: {limits: {cpu: 1}}"));
    assert_ne!(base, hash("a", "b:2", ""));
    assert_ne!(base, hash("c", "b:1", ""));
}

/// BACK-4
#[test]
fn resources_digest_follows_the_resources_only() {
    let digest = |more: &str| main_of(&pod("", more)).resources_digest;
    let base = digest("resources: {limits: {cpu: 1, memory: 1Gi}}");
    assert_eq!(base, digest("resources: {limits: {memory: 1Gi, cpu: 1}}\nenv: [{name: X}]"));
    assert_ne!(base, digest("resources: {limits: {cpu: 2, memory: 1Gi}}"));
    assert_ne!(base, digest(""));
}
