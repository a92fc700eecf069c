//! Variables.

use std::sync::Arc;

use super::*;
use crate::{ObjectKind, references};

#[test]
fn values_refer_to_variables_before_them() {
    let place = Place::container(
        "env:\n- {name: A, value: a}\n- {name: EARLY, value: $(LATE)}\n- {name: B, value: $(A)-$$(A)-$(NOBODY)}\n\
         - {name: LATE, value: $(B)}\n- {name: EMPTY}\n- {name: A, value: $(A)2}",
    );
    assert_eq!(place.variables(), ["A=a2", "EARLY=$(LATE)", "B=a-$(A)-$(NOBODY)", "LATE=a-$(A)-$(NOBODY)", "EMPTY="]);
}

#[test]
fn a_container_knows_its_pod_by_its_environment() {
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
    assert_eq!(named.variables(), ["V=node-1"], "it runs here, whatever it says");
}

#[test]
fn a_pod_on_the_nodes_network_has_the_nodes_address() {
    let mut place = Place::with("", "hostNetwork: true", &field_ref("status.podIP"));
    place.pod_ips.clear();
    assert_eq!(place.variables(), ["V=192.0.2.1"]);
}

#[test]
fn unknown_fields_are_refused() {
    let mut place = Place::container(&field_ref("status.hostIP"));
    place.node.address = None;
    assert!(place.refusal().contains("environment variable \"V\" of container \"main\" refers to status.hostIP"));
    for field in ["status.phase", "spec.labels['x']"] {
        assert!(Place::container(&field_ref(field)).refusal().contains(field), "{field}");
    }
}

#[test]
fn amounts_are_in_units_of_the_divisor_rounded_up() {
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
fn amounts_of_other_containers_are_available() {
    let spec = "initContainers: [{name: setup, image: a, resources: {limits: {cpu: 3}}}]";
    let reference = |name: &str| {
        format!("env: [{{name: V, valueFrom: {{resourceFieldRef: {{containerName: {name}, resource: limits.cpu}}}}}}]")
    };
    assert_eq!(Place::with("", spec, &reference("setup")).variables(), ["V=3"]);
    assert!(Place::with("", spec, &reference("nobody")).refusal().contains("\"nobody\""));
    assert!(Place::container(&resource_ref("limits.gpu", "")).refusal().contains("limits.gpu"));
}

/// `conf` and `keys` of the pod's namespace.
fn with_objects(container: &str) -> Place {
    let mut place = Place::container(container);
    let data = |pairs: &[(&str, &[u8])]| {
        Arc::new(pairs.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec())).collect())
    };
    place.objects.insert(ObjectKind::ConfigMap, "conf", data(&[("url", b"http://a"), ("A.B", b"c"), ("raw", b"\xff")]));
    place.objects.insert(ObjectKind::Secret, "keys", data(&[("token", b"t"), ("url", b"s")]));
    place.objects.insert(ObjectKind::Secret, "raw", data(&[("k", b"\xff")]));
    place
}

#[test]
fn variables_come_from_config_maps_and_secrets() {
    let cases: [(&str, &[&str]); 5] = [
        ("env: [{name: URL, valueFrom: {configMapKeyRef: {name: conf, key: url}}}]", &["URL=http://a"]),
        ("env: [{name: T, valueFrom: {secretKeyRef: {name: keys, key: token}}}]", &["T=t"]),
        ("envFrom: [{configMapRef: {name: conf}, prefix: P_}]", &["P_A.B=c", "P_url=http://a"]),
        // Later ones win, and those under `env` over all.
        (
            "envFrom: [{configMapRef: {name: conf}}, {secretRef: {name: keys}}]\nenv: [{name: token, value: own}]",
            &["A.B=c", "url=s", "token=own"],
        ),
        ("envFrom: [{secretRef: {name: keys}}]\nenv: [{name: X, value: $(token)!}]", &["token=t", "url=s", "X=t!"]),
    ];
    for (container, variables) in cases {
        assert_eq!(with_objects(container).variables(), variables, "{container}");
    }
}

/// CLU-29: variables of services can be referred to, and what the pod says takes precedence.
#[test]
fn variables_of_services_give_way_to_those_of_the_pod() {
    for (container, variables) in [
        ("", ["DB_SERVICE_HOST=10.0.0.9", "token=service"].as_slice()),
        ("envFrom: [{secretRef: {name: keys}}]", &["DB_SERVICE_HOST=10.0.0.9", "token=t", "url=s"]),
        (
            "env: [{name: token, value: own}, {name: DB, value: $(DB_SERVICE_HOST):1}]",
            &["DB_SERVICE_HOST=10.0.0.9", "token=own", "DB=10.0.0.9:1"],
        ),
    ] {
        let mut place = with_objects(container);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        place.objects.set_services(vec![pair("DB_SERVICE_HOST", "10.0.0.9"), pair("token", "service")]);
        assert_eq!(place.variables(), variables, "{container}");
    }
}

/// CLU-31: a user multiplies the values of objects by references to them; what the kernel does not take is refused before it is put together.
#[test]
fn more_than_the_kernel_takes_is_refused_with_its_name() {
    let long = |container: &str| {
        let mut place = Place::container(container);
        let one = |bytes| Arc::new([("a".to_owned(), vec![b'x'; bytes])].into());
        let many = (0..100_000).map(|number| (format!("k{number}"), b"v".to_vec())).collect();
        place.objects.insert(ObjectKind::ConfigMap, "many", Arc::new(many));
        place.objects.insert(ObjectKind::ConfigMap, "long", one(100_000));
        place.objects.insert(ObjectKind::ConfigMap, "longer", one(200_000));
        place
    };
    let a = "{name: A, valueFrom: {configMapKeyRef: {name: long, key: a}}}";
    for (container, why) in [
        (format!("env: [{a}, {{name: B, value: $(A)$(A)}}]"), "environment variable \"B\" of container"),
        (format!("env: [{a}]\nargs: [\"{}\"]", "$(A)".repeat(1000)), "an argument of container"),
        ("envFrom: [{configMapRef: {name: longer}}]".to_owned(), "key a of ConfigMap"),
        (
            format!(
                "envFrom: [{}]",
                (0..200)
                    .map(|n| format!("{{prefix: p{n}, configMapRef: {{name: long}}}}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            "longer than 6291456 bytes",
        ),
    ] {
        let refusal = long(&container).refusal();
        assert!(refusal.contains(why) && refusal.contains("which the kernel does not take"), "{refusal}");
    }
    assert_eq!(long("envFrom: [{configMapRef: {name: many}}]").variables().len(), 100_000);
}

/// In the kubelet's words.
#[test]
fn variables_whose_object_or_key_is_missing_are_refused() {
    let cases = [
        ("env: [{name: U, valueFrom: {configMapKeyRef: {name: none, key: url}}}]", "configmap \"none\" not found"),
        ("env: [{name: U, valueFrom: {secretKeyRef: {name: none, key: url}}}]", "secret \"none\" not found"),
        (
            "env: [{name: U, valueFrom: {configMapKeyRef: {name: conf, key: x}}}]",
            "couldn't find key x in ConfigMap shop/conf",
        ),
        (
            "env: [{name: U, valueFrom: {secretKeyRef: {name: keys, key: x}}}]",
            "couldn't find key x in Secret shop/keys",
        ),
        ("envFrom: [{configMapRef: {name: none}}]", "configmap \"none\" not found"),
        ("envFrom: [{secretRef: {name: none}}]", "secret \"none\" not found"),
        (
            "envFrom: [{secretRef: {name: raw}}]",
            "key k in Secret shop/raw is not UTF-8 text, so it cannot be an environment variable",
        ),
        (
            "env: [{name: U, valueFrom: {configMapKeyRef: {name: conf, key: raw, optional: true}}}]",
            "key raw in ConfigMap shop/conf is not UTF-8 text, so it cannot be an environment variable",
        ),
    ];
    for (container, message) in cases {
        assert_eq!(with_objects(container).refusal(), message, "{container}");
    }
}

#[test]
fn a_launch_asks_for_the_objects_of_its_variables_alone() {
    let place = Place::container(
        "envFrom: [{configMapRef: {name: conf}}, {secretRef: {name: keys, optional: true}}]\nenv:\n\
         - {name: A, valueFrom: {configMapKeyRef: {name: other, key: a}}}\n- {name: B, value: b}\n\
         - {name: C, valueFrom: {fieldRef: {fieldPath: metadata.name}}}",
    );
    let found = references(&place.pod, "main");
    let found: Vec<_> = found.iter().map(|found| (found.kind, &*found.name, found.key.as_deref())).collect();
    let expected = [
        (ObjectKind::ConfigMap, "conf", None),
        (ObjectKind::Secret, "keys", None),
        (ObjectKind::ConfigMap, "other", Some("a")),
    ];
    assert_eq!(found, expected);
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
