//! What the runtime side relies on: volumes, environment, resources, security contexts.

use keelet_pod::{Features, Strictness};

use crate::common::{accepted, clean, main_of, pod, read, refused, warned};

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

/// The same for volumes.
#[track_caller]
fn volume_table(cases: &[(&str, &str, &str, &str)]) {
    for (good, bad, path, words) in cases {
        clean(&pod(&format!("volumes: [{good}]"), ""));
        refused(&pod(&format!("volumes: [{bad}]"), ""), &format!("spec.volumes[0].{path}"), words);
    }
}

#[test]
fn volumes_have_names_and_one_source() {
    volume_table(&[
        ("{name: a, emptyDir: {}}", "{emptyDir: {}}", "name", "Required value"),
        ("{name: a-b, emptyDir: {}}", "{name: a.b, emptyDir: {}}", "name", "lower case letters"),
        (
            "{name: a, hostPath: {path: /x}}",
            "{name: a, hostPath: {path: /x}, emptyDir: {}}",
            "hostPath",
            "Forbidden: may not specify more than one volume source, emptyDir is given",
        ),
    ]);
    let two = "volumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]";
    refused(&pod(two, ""), "spec.volumes[1].name", "Duplicate value: \"a\"");
    let manifest = pod("volumes: [{name: a}]", "");
    warned(&manifest, "spec.volumes[0]", "no volume source given: emptyDir is used");
    let volume = accepted(&manifest).source.spec.clone().unwrap().volumes.unwrap().remove(0);
    assert!(volume.empty_dir.is_some());
}

/// What the agent writes into a volume stays in it, and never looks like the agent's own `..data`.
#[test]
fn files_of_volumes_are_checked() {
    let config_map = |items: &str| format!("{{name: a, configMap: {{name: c, items: [{items}]}}}}");
    let downward = |items: &str| format!("{{name: a, downwardAPI: {{items: [{items}]}}}}");
    let projected = |sources: &str| format!("{{name: a, projected: {{sources: [{sources}]}}}}");
    let item = "configMap.items[0]";
    for (good, bad, path, words) in [
        (config_map("{key: k, path: a/b}"), config_map("{path: a}"), format!("{item}.key"), "Required"),
        (config_map("{key: k, path: a..b}"), config_map("{key: k, path: a/../b}"), format!("{item}.path"), "'..'"),
        (
            config_map("{key: k, path: .a}"),
            config_map("{key: k, path: ..a}"),
            format!("{item}.path"),
            "start with '..'",
        ),
        (config_map("{key: k, path: a}"), config_map("{key: k, path: /a}"), format!("{item}.path"), "relative"),
        (
            config_map("{key: k, path: a, mode: 0400}"),
            config_map("{key: k, path: a, mode: 01000}"),
            format!("{item}.mode"),
            "between 0 and 511",
        ),
        (
            downward("{path: l, fieldRef: {fieldPath: metadata.labels}}"),
            downward("{path: l, fieldRef: {fieldPath: status.podIP}}"),
            "downwardAPI.items[0].fieldRef.fieldPath".to_owned(),
            "supported values: \"metadata.annotations\"",
        ),
        (
            downward("{path: l, fieldRef: {fieldPath: \"metadata.labels['x']\"}}"),
            downward("{path: l}"),
            "downwardAPI.items[0]".to_owned(),
            "one of fieldRef and resourceFieldRef",
        ),
        (
            downward("{path: l, resourceFieldRef: {containerName: main, resource: limits.cpu}}"),
            downward("{path: l, resourceFieldRef: {resource: limits.cpu}}"),
            "downwardAPI.items[0].resourceFieldRef.containerName".to_owned(),
            "Required",
        ),
        (
            projected("{configMap: {name: c}}, {secret: {name: s}}"),
            projected("{configMap: {name: c}, secret: {name: s}}"),
            "projected.sources[0].secret".to_owned(),
            "more than one source",
        ),
        (
            projected("{secret: {name: s, items: [{key: k, path: p}]}}"),
            projected("{secret: {name: s, items: [{key: k, path: ../p}]}}"),
            "projected.sources[0].secret.items[0].path".to_owned(),
            "'..'",
        ),
    ] {
        volume_table(&[(&good, &bad, &path, words)]);
    }
}

#[test]
fn volume_sources_are_checked() {
    volume_table(&[
        (
            "{name: a, hostPath: {path: /x, type: Socket}}",
            "{name: a, hostPath: {type: Socket}}",
            "hostPath.path",
            "Required",
        ),
        ("{name: a, hostPath: {path: /x..y}}", "{name: a, hostPath: {path: /x/../y}}", "hostPath.path", "'..'"),
        (
            "{name: a, hostPath: {path: /x, type: \"\"}}",
            "{name: a, hostPath: {path: /x, type: Dir}}",
            "hostPath.type",
            "supported values: \"\", \"DirectoryOrCreate\"",
        ),
        (
            "{name: a, emptyDir: {medium: Memory, sizeLimit: 1Gi}}",
            "{name: a, emptyDir: {medium: RAM}}",
            "emptyDir.medium",
            "supported values: \"\", \"Memory\"",
        ),
        (
            "{name: a, emptyDir: {medium: Memory, sizeLimit: 0}}",
            "{name: a, emptyDir: {sizeLimit: 1GB}}",
            "emptyDir.sizeLimit",
            "must be a number with an optional suffix",
        ),
        (
            "{name: a, emptyDir: {}}",
            "{name: a, emptyDir: {sizeLimit: -1}}",
            "emptyDir.sizeLimit",
            "greater than or equal to 0",
        ),
        ("{name: a, configMap: {name: c}}", "{name: a, configMap: {}}", "configMap.name", "Required value"),
        ("{name: a, secret: {secretName: c}}", "{name: a, secret: {}}", "secret.secretName", "Required value"),
    ]);
}

/// NODE-6: a path that could lead elsewhere is refused wherever the two dots stand, and a name with two dots in it is none.
#[test]
fn a_host_path_never_goes_up() {
    for path in ["/x/../y", "/x/..", "/..", "../x", "..", "x/..", "/x/../..", "/../"] {
        let manifest = pod(&format!("volumes: [{{name: a, hostPath: {{path: {path:?}}}}}]"), "");
        refused(&manifest, "spec.volumes[0].hostPath.path", "must not contain '..'");
    }
    for path in ["/x..", "/..x", "/x/..y/z", "/...", "/x/.../y", "/.", "/"] {
        clean(&pod(&format!("volumes: [{{name: a, hostPath: {{path: {path:?}}}}}]"), ""));
    }
    // The parts of volumes that containers mount.
    for path in ["a/../b", "a/..", "..", "../a"] {
        for field in ["subPath", "subPathExpr"] {
            let mount = format!("volumeMounts: [{{name: v, mountPath: /x, {field}: {path:?}}}]");
            let manifest = pod("volumes: [{name: v, emptyDir: {}}]", &mount);
            refused(&manifest, &format!("spec.containers[0].volumeMounts[0].{field}"), "must not contain '..'");
        }
    }
}

/// NODE-5: what this node has no program for is refused with the reason, and not a pod that waits for ever.
#[test]
fn volumes_that_this_node_can_never_make_are_refused() {
    for (source, content) in [
        ("persistentVolumeClaim", "{claimName: c}"),
        ("ephemeral", "{volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}"),
        ("csi", "{driver: d.example}"),
        ("nfs", "{server: s, path: /x}"),
        ("iscsi", "{targetPortal: p, iqn: i, lun: 0}"),
        ("awsElasticBlockStore", "{volumeID: v}"),
        ("image", "{reference: app}"),
    ] {
        let manifest = pod(&format!("volumes: [{{name: a, {source}: {content}}}]"), "");
        let words = format!("this node has no driver for {source} volumes");
        refused(&manifest, &format!("spec.volumes[0].{source}"), &words);
        // An API server has taken it, and may know a driver: the pod says so itself when it comes to it.
        let report = read(&manifest, Strictness::ApiServer, &Features::default());
        assert!(report.is_ok() && report.warnings.iter().any(|problem| problem.message.contains(&words)), "{report}");
    }
    volume_table(&[
        (
            "{name: a, projected: {sources: [{configMap: {name: c}}]}}",
            "{name: a, projected: {sources: [{serviceAccountToken: {path: token}}]}}",
            "projected.sources[0].serviceAccountToken",
            "it needs an API server",
        ),
        (
            "{name: a, projected: {sources: [{clusterTrustBundle: {name: c, path: p, optional: true}}]}}",
            "{name: a, projected: {sources: [{clusterTrustBundle: {name: c, path: p}}]}}",
            "projected.sources[0].clusterTrustBundle",
            "it needs an API server",
        ),
        (
            "{name: a, projected: {sources: [{secret: {name: c}}]}}",
            "{name: a, projected: {sources: [{podCertificate: {signerName: s.example/x, keyType: ED25519}}]}}",
            "projected.sources[0].podCertificate",
            "it needs an API server",
        ),
        (
            "{name: a, emptyDir: {medium: Memory}}",
            "{name: a, emptyDir: {medium: HugePages}}",
            "emptyDir.medium",
            "supported values: \"\", \"Memory\"",
        ),
        (
            "{name: a, hostPath: {path: /etc}}",
            "{name: a, hostPath: {path: etc/passwd}}",
            "hostPath.path",
            "must be an absolute path",
        ),
    ]);
    let devices = "volumeDevices: [{name: v, devicePath: /dev/x}]";
    let manifest = pod("volumes: [{name: v, emptyDir: {}}]", devices);
    refused(&manifest, "spec.containers[0].volumeDevices", "no driver for block devices");
    refused(&pod("resourceClaims: [{name: gpu}]", ""), "spec.resourceClaims", "keelet does not allocate devices");
}

/// `defaultMode: 0644` behaves as kubectl users expect.
#[test]
fn modes_are_octal_and_at_most_0777() {
    for (source, field) in [
        ("configMap: {name: c, defaultMode: MODE}", "configMap"),
        ("secret: {secretName: c, defaultMode: MODE}", "secret"),
        ("downwardAPI: {defaultMode: MODE}", "downwardAPI"),
        ("projected: {defaultMode: MODE}", "projected"),
    ] {
        let volume = |mode: &str| format!("{{name: a, {}}}", source.replace("MODE", mode));
        let path = format!("{field}.defaultMode");
        volume_table(&[
            (&volume("0777"), &volume("01000"), &path, "Invalid value: 512: must be between 0 and 511, inclusive"),
            (&volume("0"), &volume("-1"), &path, "Invalid value: -1"),
        ]);
        let manifest = |mode: &str| pod(&format!("volumes: [{}]", volume(mode)), "");
        for (text, mode) in [("0644", 0o644), ("0o600", 0o600), ("420", 420), ("0x1a4", 420), ("~", 0o644)] {
            let volume = clean(&manifest(text)).source.spec.clone().unwrap().volumes.unwrap().remove(0);
            let found = match field {
                "configMap" => volume.config_map.unwrap().default_mode,
                "secret" => volume.secret.unwrap().default_mode,
                "downwardAPI" => volume.downward_api.unwrap().default_mode,
                _ => volume.projected.unwrap().default_mode,
            };
            assert_eq!(found, Some(mode), "{field} {text}");
        }
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
