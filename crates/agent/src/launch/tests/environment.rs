//! Variables.

use super::*;

#[test]
fn values_refer_to_variables_before_them() {
    let place = Place::container(
        "env:\n- {name: A, value: a}\n- {name: EARLY, value: $(LATE)}\n- {name: B, value: $(A)-$$(A)-$(NOBODY)}\n\
         - {name: LATE, value: $(B)}\n- {name: EMPTY}\n- {name: A, value: $(A)2}",
    );
    assert_eq!(place.variables(), ["A=a2", "EARLY=$(LATE)", "B=a-$(A)-$(NOBODY)", "LATE=a-$(A)-$(NOBODY)", "EMPTY="]);
}

#[test]
fn a_container_is_told_of_its_pod() {
    let cases = [
        ("metadata.name", "web"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "front"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['example.com/note']", "hi"),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "10.0.0.7"),
        ("status.podIPs", "10.0.0.7,fd00::7"),
        ("status.hostIP", "192.0.2.1"),
        ("status.hostIPs", "192.0.2.1"),
    ];
    for (field, value) in cases {
        let place = Place::with(
            "labels: {app: front}\nannotations: {example.com/note: hi}",
            "serviceAccountName: robot",
            &field_ref(field),
        );
        assert_eq!(place.variables(), [format!("V={value}")], "{field}");
    }
    let named = Place::with("", "nodeName: other", &field_ref("spec.nodeName"));
    assert_eq!(named.variables(), ["V=other"]);
}

#[test]
fn a_pod_on_the_nodes_network_has_the_nodes_address() {
    let mut place = Place::with("", "hostNetwork: true", &field_ref("status.podIP"));
    place.pod_ips.clear();
    assert_eq!(place.variables(), ["V=192.0.2.1"]);
}

#[test]
fn fields_that_nobody_knows_are_refused() {
    let mut place = Place::container(&field_ref("status.hostIP"));
    place.node.address = None;
    assert!(place.refusal().contains("environment variable \"V\" of container \"main\" refers to status.hostIP"));
    for field in ["status.phase", "spec.labels['x']"] {
        assert!(Place::container(&field_ref(field)).refusal().contains(field), "{field}");
    }
}

#[test]
fn amounts_are_told_in_units_of_the_divisor_rounded_up() {
    let resources = "resources: {limits: {cpu: 1500m, memory: 100Mi}, requests: {cpu: 250m, memory: 1}}";
    let cases = [
        ("limits.cpu", "", "2"),
        ("limits.cpu", "1m", "1500"),
        ("limits.memory", "", "104857600"),
        ("limits.memory", "1Mi", "100"),
        ("limits.memory", "1Gi", "1"),
        ("requests.cpu", "", "1"),
        ("requests.cpu", "1m", "250"),
        ("requests.memory", "0", "1"),
        ("requests.ephemeral-storage", "", "0"),
        ("limits.ephemeral-storage", "1G", "100"),
        ("limits.hugepages-2Mi", "", "0"),
    ];
    for (resource, divisor, value) in cases {
        let place = Place::container(&format!("{resources}\n{}", resource_ref(resource, divisor)));
        assert_eq!(place.variables(), [format!("V={value}")], "{resource} by {divisor}");
    }
}

#[test]
fn where_nothing_limits_a_container_the_pod_or_the_node_does() {
    let cases = [
        ("", "limits.cpu", "4"),
        ("", "limits.memory", "8000000000"),
        ("", "requests.cpu", "0"),
        ("resources: {limits: {cpu: 2, memory: 1M}}", "limits.cpu", "2"),
        ("resources: {limits: {cpu: 2, memory: 1M}}", "limits.memory", "1000000"),
    ];
    for (spec, resource, value) in cases {
        let place = Place::with("", spec, &resource_ref(resource, ""));
        assert_eq!(place.variables(), [format!("V={value}")], "{spec} {resource}");
    }
}

#[test]
fn amounts_of_other_containers_can_be_told() {
    let spec = "initContainers: [{name: setup, image: a, resources: {limits: {cpu: 3}}}]";
    let reference = |name: &str| {
        format!("env: [{{name: V, valueFrom: {{resourceFieldRef: {{containerName: {name}, resource: limits.cpu}}}}}}]")
    };
    assert_eq!(Place::with("", spec, &reference("setup")).variables(), ["V=3"]);
    assert!(Place::with("", spec, &reference("nobody")).refusal().contains("\"nobody\""));
    assert!(Place::container(&resource_ref("limits.gpu", "")).refusal().contains("limits.gpu"));
}

#[test]
fn values_of_the_cluster_are_refused_by_name() {
    let cases = [
        (
            "env: [{name: URL, valueFrom: {configMapKeyRef: {name: conf, key: url}}}]",
            "environment variable \"URL\" of container \"main\" needs key \"url\" of config map \"conf\"",
        ),
        (
            "env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: keys, key: token}}}]",
            "environment variable \"TOKEN\" of container \"main\" needs key \"token\" of secret \"keys\"",
        ),
        ("envFrom: [{configMapRef: {name: conf}}]", "envFrom of container \"main\" needs config map \"conf\""),
        ("envFrom: [{secretRef: {name: keys}}]", "envFrom of container \"main\" needs secret \"keys\""),
    ];
    for (container, start) in cases {
        let message = Place::container(container).refusal();
        assert_eq!(message, format!("{start}: config maps and secrets are not available on this node yet"));
    }
}

#[test]
fn values_that_may_be_absent_are() {
    let place = Place::container(
        "envFrom: [{configMapRef: {name: conf, optional: true}}, {secretRef: {name: keys, optional: true}}]\nenv:\n\
         - {name: A, valueFrom: {configMapKeyRef: {name: conf, key: a, optional: true}}}\n\
         - {name: B, valueFrom: {secretKeyRef: {name: keys, key: b, optional: true}}}\n- {name: C, value: $(A)}",
    );
    assert_eq!(place.variables(), ["C=$(A)"]);
}

fn field_ref(path: &str) -> String {
    format!("env: [{{name: V, valueFrom: {{fieldRef: {{fieldPath: \"{path}\"}}}}}}]")
}

fn resource_ref(resource: &str, divisor: &str) -> String {
    let divisor = if divisor.is_empty() { String::new() } else { format!(", divisor: {divisor}") };
    format!("env: [{{name: V, valueFrom: {{resourceFieldRef: {{resource: {resource}{divisor}}}}}}}]")
}
