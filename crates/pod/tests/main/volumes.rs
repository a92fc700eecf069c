//! Volumes: names, sources, files, modes.

use keelet_pod::{Features, Strictness};

use crate::common::{accepted, clean, pod, read, refused, warned};

/// For each field of a volume: a good value, a bad one, where the error is, and its words.
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
