//! What the runtime side relies on: mounts, environment, resources, security contexts.

use crate::common::{accepted, clean, main_of, pod, refused};

const CONTAINER: &str = "spec.containers[0]";

/// For each field of a container: a good value, a bad one, where the error is, and its words.
#[track_caller]
fn container_table(cases: &[(&str, &str, &str, &str)]) {
    let volumes = "volumes: [{name: v, emptyDir: {}}]";
    for (good, bad, path, words) in cases {
        clean(&pod(volumes, good));
        refused(&pod(volumes, bad), &format!("{CONTAINER}.{path}"), words);
    }
}

/// API-28
#[test]
fn mounts_refer_to_volumes() {
    let mount = |text: &str| format!("volumeMounts: [{{{text}}}]");
    let at = |field: &str| format!("volumeMounts[0].{field}");
    for (good, bad, path, words) in [
        (
            "name: v, mountPath: /x",
            "name: w, mountPath: /x",
            "name",
            "Not found: \"w\": must be the name of one of spec.volumes",
        ),
        ("name: v, mountPath: x", "mountPath: /x", "name", "Required value"),
        ("name: v, mountPath: /x", "name: v", "mountPath", "Required value"),
        ("name: v, mountPath: /x", "name: v, mountPath: \"/x:y\"", "mountPath", "must not contain ':'"),
        ("name: v, mountPath: /x/..x", "name: v, mountPath: /", "mountPath", "must not be the root directory"),
        ("name: v, mountPath: /x/../y", "name: v, mountPath: /x/../.", "mountPath", "must not be the root directory"),
        ("name: v, mountPath: ...", "name: v, mountPath: ..", "mountPath", "must not be the root directory"),
        (
            "name: v, mountPath: /x, subPath: a/b",
            "name: v, mountPath: /x, subPath: /a",
            "subPath",
            "must be a relative path",
        ),
        (
            "name: v, mountPath: /x, subPath: \"\"",
            "name: v, mountPath: /x, subPath: a/../b",
            "subPath",
            "must not contain '..'",
        ),
        (
            "name: v, mountPath: /x, subPathExpr: $(A)",
            "name: v, mountPath: /x, subPathExpr: /$(A)",
            "subPathExpr",
            "must be a relative path",
        ),
        (
            "name: v, mountPath: /x, subPath: \"\", subPathExpr: b",
            "name: v, mountPath: /x, subPath: a, subPathExpr: b",
            "subPathExpr",
            "subPath and subPathExpr exclude each other",
        ),
        (
            "name: v, mountPath: /x, mountPropagation: HostToContainer",
            "name: v, mountPath: /x, mountPropagation: Both",
            "mountPropagation",
            "supported values: \"None\"",
        ),
        (
            "name: v, mountPath: /x, subPath: a, subPathExpr: \"\"",
            "name: v, mountPath: /x, mountPropagation: Bidirectional",
            "mountPropagation",
            "privileged containers only",
        ),
        (
            "name: v, mountPath: /x, readOnly: true, recursiveReadOnly: Enabled",
            "name: v, mountPath: /x, recursiveReadOnly: Enabled",
            "recursiveReadOnly",
            "may only be used when readOnly is true",
        ),
        (
            "name: v, mountPath: /x, recursiveReadOnly: Disabled",
            "name: v, mountPath: /x, readOnly: true, recursiveReadOnly: yep",
            "recursiveReadOnly",
            "supported values: \"Disabled\"",
        ),
    ] {
        container_table(&[(&mount(good), &mount(bad), &at(path), words)]);
    }
    let privileged = "securityContext: {privileged: true}\nvolumeMounts: [{name: v, mountPath: /x, mountPropagation: Bidirectional}]";
    clean(&pod("volumes: [{name: v, emptyDir: {}}]", privileged));
    container_table(&[(
        "volumeMounts: [{name: v, mountPath: /x}, {name: v, mountPath: /y}]",
        "volumeMounts: [{name: v, mountPath: /x}, {name: v, mountPath: /x}]",
        "volumeMounts[1].mountPath",
        "Duplicate value: \"/x\"",
    )]);
}

#[test]
fn environment_is_checked() {
    let source = |text: &str| format!("env: [{{name: A, valueFrom: {text}}}]");
    container_table(&[
        ("env: [{name: A.b-c, value: x}]", "env: [{name: \"A=B\"}]", "env[0].name", "other than '='"),
        ("env: []", "env: [{value: x}]", "env[0].name", "Required value"),
        (
            "env: [{name: A, value: \"\", valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
            "env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
            "env[0].valueFrom",
            "Forbidden: may not be specified when value is not empty",
        ),
        ("env: [{name: A}]", &source("{}"), "env[0].valueFrom", "must specify one of fieldRef"),
        (
            &source("{secretKeyRef: {name: a, key: b}}"),
            &source("{secretKeyRef: {name: a, key: b}, fieldRef: {fieldPath: metadata.name}}"),
            "env[0].valueFrom",
            "may not have more than one of",
        ),
        (
            &source("{secretKeyRef: {name: a, key: b}}"),
            &source("{secretKeyRef: {name: a}}"),
            "env[0].valueFrom.secretKeyRef.key",
            "Required",
        ),
        (
            &source("{secretKeyRef: {name: a, key: b}}"),
            &source("{secretKeyRef: {key: a}}"),
            "env[0].valueFrom.secretKeyRef.name",
            "Required",
        ),
        (
            &source("{configMapKeyRef: {name: a, key: b}}"),
            &source("{configMapKeyRef: {name: a}}"),
            "env[0].valueFrom.configMapKeyRef.key",
            "Required",
        ),
        (
            &source("{configMapKeyRef: {name: a, key: b}}"),
            &source("{configMapKeyRef: {key: a}}"),
            "env[0].valueFrom.configMapKeyRef.name",
            "Required",
        ),
        (
            &source("{resourceFieldRef: {resource: limits.cpu}}"),
            &source("{resourceFieldRef: {}}"),
            "env[0].valueFrom.resourceFieldRef.resource",
            "Required",
        ),
        (
            &source("{fieldRef: {fieldPath: status.podIPs}}"),
            &source("{fieldRef: {}}"),
            "env[0].valueFrom.fieldRef.fieldPath",
            "Required",
        ),
        (
            &source("{fieldRef: {fieldPath: \"metadata.labels['a/b']\"}}"),
            &source("{fieldRef: {fieldPath: \"metadata.labels['a b']\"}}"),
            "env[0].valueFrom.fieldRef.fieldPath",
            "Invalid value",
        ),
        (
            &source("{fieldRef: {fieldPath: \"metadata.annotations['a']\"}}"),
            &source("{fieldRef: {fieldPath: metadata.labels}}"),
            "env[0].valueFrom.fieldRef.fieldPath",
            "Unsupported value: \"metadata.labels\": supported values: \"metadata.name\"",
        ),
        (
            "envFrom: [{configMapRef: {name: a}}]",
            "envFrom: [{configMapRef: {}}]",
            "envFrom[0].configMapRef.name",
            "Required",
        ),
        (
            "envFrom: [{secretRef: {name: a}, prefix: A_}]",
            "envFrom: [{secretRef: {}}]",
            "envFrom[0].secretRef.name",
            "Required",
        ),
        ("envFrom: []", "envFrom: [{}]", "envFrom[0]", "must specify one of configMapRef, secretRef"),
        (
            "envFrom: [{secretRef: {name: a}, prefix: \"\"}]",
            "envFrom: [{secretRef: {name: a}, configMapRef: {name: a}}]",
            "envFrom[0]",
            "may not have more than one of",
        ),
        (
            "envFrom: [{secretRef: {name: a}}]",
            "envFrom: [{secretRef: {name: a}, prefix: \"=\"}]",
            "envFrom[0].prefix",
            "other than '='",
        ),
    ]);
}

#[test]
fn quantities_may_be_numbers() {
    let container = "resources: {limits: {cpu: 2, memory: 1.5Gi}, requests: {cpu: 0.5, memory: 1e3}}";
    let resources = clean(&pod("", container)).source.spec.clone().unwrap().containers.remove(0).resources.unwrap();
    let amount = |amounts: &Option<std::collections::BTreeMap<String, _>>, name: &str| {
        let quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity = &amounts.as_ref().unwrap()[name];
        quantity.0.clone()
    };
    assert_eq!(amount(&resources.limits, "cpu"), "2");
    assert_eq!(amount(&resources.limits, "memory"), "1.5Gi");
    assert_eq!(amount(&resources.requests, "cpu"), "0.5");
    assert_eq!(amount(&resources.requests, "memory"), "1000");
}

#[test]
fn resources_are_checked() {
    container_table(&[
        (
            "resources: {limits: {cpu: 100m}}",
            "resources: {limits: {cpu: 100mm}}",
            "resources.limits[cpu]",
            "must be a number",
        ),
        (
            "resources: {limits: {cpu: 0}}",
            "resources: {limits: {cpu: -1}}",
            "resources.limits[cpu]",
            "greater than or equal to 0",
        ),
        (
            "resources: {requests: {cpu: 1}}",
            "resources: {requests: {cpu: one}}",
            "resources.requests[cpu]",
            "must be a number",
        ),
        (
            "resources: {requests: {a.b/c: 1}}",
            "resources: {requests: {a b: 1}}",
            "resources.requests[a b]",
            "must consist of",
        ),
        (
            "resources: {requests: {cpu: 1000m}, limits: {cpu: 1}}",
            "resources: {requests: {cpu: 1001m}, limits: {cpu: 1}}",
            "resources.requests[cpu]",
            "Invalid value: \"1001m\": must be less than or equal to the cpu limit of 1",
        ),
        (
            "resources: {requests: {cpu: 2}, limits: {memory: 1}}",
            "resources: {limits: {cpu: yes}}",
            "resources.limits[cpu]",
            "must be a quantity",
        ),
        (
            "resources: {limits: {hugepages-2Mi: 2Mi}}",
            "resources: {limits: {a b: 1}}",
            "resources.limits[a b]",
            "must consist of",
        ),
        (
            "resources: {limits: {hugepages-1Gi: 2Gi}}",
            "resources: {limits: {hugepages-large: 2Mi}}",
            "resources.limits[hugepages-large]",
            "\"hugepages-large\": must be hugepages-<size>, such as hugepages-2Mi",
        ),
        (
            "env: [{name: V, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1000m}}}]",
            "env: [{name: V, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1n}}}]",
            "env[0].valueFrom.resourceFieldRef.divisor",
            "Unsupported value: \"1n\": supported values: \"1m\", \"1\"",
        ),
        (
            "env: [{name: V, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}]",
            "env: [{name: V, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: much}}}]",
            "env[0].valueFrom.resourceFieldRef.divisor",
            "Unsupported value: \"much\"",
        ),
        (
            "env: [{name: V, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 0}}}]",
            "env: [{name: V, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: -1}}}]",
            "env[0].valueFrom.resourceFieldRef.divisor",
            "Unsupported value: \"-1\"",
        ),
        (
            "resources: {limits: {memory: 1Gi}}",
            "resources: {limits: {memroy: 1Gi}}",
            "resources.limits[memroy]",
            "\"memroy\": must be cpu, memory, ephemeral-storage or hugepages-<size>",
        ),
        (
            "resources: {claims: []}",
            "resources: {claims: [{name: gpu}]}",
            "resources.claims",
            "keelet does not allocate devices",
        ),
        (
            "resources: {limits: {cpu: \"1\"}}",
            "resources: {limits: {cpu: [1]}}",
            "resources.limits[cpu]",
            "must be a quantity",
        ),
    ]);
}

#[test]
fn what_is_limited_is_requested_to_the_same_amount() {
    let container = "resources: {limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 1}}";
    let resources = clean(&pod("", container)).source.spec.clone().unwrap().containers.remove(0).resources.unwrap();
    let requests = resources.requests.unwrap();
    assert_eq!((requests["cpu"].0.as_str(), requests["memory"].0.as_str()), ("1", "1Gi"));
    let without = clean(&pod("", "resources: {requests: {cpu: 1}}")).source.spec.clone().unwrap().containers.remove(0);
    assert_eq!(without.resources.unwrap().limits, None);
}

#[test]
fn security_contexts_are_checked() {
    let context = |text: &str| format!("securityContext: {{{text}}}");
    for (good, bad, path, words) in [
        ("runAsUser: 0", "runAsUser: -1", "runAsUser", "between 0 and 2147483647"),
        ("runAsUser: 2147483647", "runAsUser: 2147483648", "runAsUser", "between 0 and 2147483647"),
        ("runAsGroup: 0", "runAsGroup: -1", "runAsGroup", "between 0 and"),
        (
            "seccompProfile: {type: Unconfined}",
            "seccompProfile: {type: None}",
            "seccompProfile.type",
            "\"RuntimeDefault\"",
        ),
        (
            "seccompProfile: {type: Localhost, localhostProfile: a}",
            "seccompProfile: {type: Localhost}",
            "seccompProfile.localhostProfile",
            "Required value: must be set when type is Localhost",
        ),
        (
            "seccompProfile: {type: RuntimeDefault}",
            "seccompProfile: {type: Localhost, localhostProfile: \"\"}",
            "seccompProfile.localhostProfile",
            "Required value",
        ),
        (
            "appArmorProfile: {type: RuntimeDefault}",
            "appArmorProfile: {type: RuntimeDefault, localhostProfile: a}",
            "appArmorProfile.localhostProfile",
            "Forbidden: may only be set when type is Localhost",
        ),
        ("procMount: Default", "procMount: Masked", "procMount", "supported values: \"Default\", \"Unmasked\""),
        ("procMount: Default", "procMount: Unmasked", "procMount", "Unmasked needs hostUsers to be false"),
        (
            "privileged: true, allowPrivilegeEscalation: true",
            "privileged: true, allowPrivilegeEscalation: false",
            "allowPrivilegeEscalation",
            "cannot be false when privileged is true",
        ),
        (
            "allowPrivilegeEscalation: false, privileged: false, capabilities: {add: [NET_ADMIN]}",
            "allowPrivilegeEscalation: false, capabilities: {add: [NET_ADMIN, SYS_ADMIN]}",
            "allowPrivilegeEscalation",
            "SYS_ADMIN",
        ),
        (
            "capabilities: {add: [SYS_ADMIN]}",
            "allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}",
            "allowPrivilegeEscalation",
            "SYS_ADMIN",
        ),
    ] {
        container_table(&[(&context(good), &context(bad), &format!("securityContext.{path}"), words)]);
    }
    clean(&pod("hostUsers: false", "securityContext: {procMount: Unmasked}"));
}

#[test]
fn pod_security_contexts_are_checked() {
    for (good, bad, path, words) in [
        ("runAsUser: 0", "runAsUser: -1", "runAsUser", "between 0 and 2147483647"),
        ("runAsGroup: 1", "runAsGroup: -1", "runAsGroup", "between 0 and"),
        ("fsGroup: 1", "fsGroup: -1", "fsGroup", "between 0 and"),
        ("supplementalGroups: [0, 1]", "supplementalGroups: [0, -1]", "supplementalGroups[1]", "between 0 and"),
        ("fsGroupChangePolicy: Always", "fsGroupChangePolicy: Never", "fsGroupChangePolicy", "\"OnRootMismatch\""),
        ("supplementalGroupsPolicy: Strict", "supplementalGroupsPolicy: X", "supplementalGroupsPolicy", "\"Merge\""),
        (
            "seccompProfile: {type: RuntimeDefault}",
            "seccompProfile: {}",
            "seccompProfile.type",
            "Unsupported value: \"\"",
        ),
    ] {
        clean(&pod(&format!("securityContext: {{{good}}}"), ""));
        let path = format!("spec.securityContext.{path}");
        refused(&pod(&format!("securityContext: {{{bad}}}"), ""), &path, words);
    }
    assert_eq!(main_of(&pod("", "")).name, "main");
}

/// What a sandbox needs beside its containers is an amount as well.
#[test]
fn the_overhead_is_checked() {
    accepted(&pod("overhead: {cpu: 100m, memory: 64Mi}", ""));
    refused(&pod("overhead: {memory: plenty}", ""), "spec.overhead[memory]", "must be a number");
    refused(&pod("overhead: {memory: -1}", ""), "spec.overhead[memory]", "greater than or equal to 0");
}
