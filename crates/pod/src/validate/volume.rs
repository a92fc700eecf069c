//! Volumes and where containers mount them.

use k8s_openapi::api::core::v1;

use crate::{
    Pod, names,
    path::FieldPath,
    problem::{forbidden, ignored, invalid, not_found, quoted, required, unsupported},
    review::Review,
};

use super::{Unique, name, one_of, present, resources, within};

/// The highest file mode.
const MODE_MAX: i64 = 0o777;

const HOST_PATH_TYPES: [&str; 8] =
    ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];

/// The volumes that a node can make. All others need another program: a driver, or a controller that binds claims. A pod
/// with one of them would wait for its mount for ever.
const SOURCES: [&str; 6] = ["configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"];

/// What an emptyDir may be kept on.
const MEDIA: [&str; 2] = ["", "Memory"];

/// Why a projected source of an API server is refused.
const NO_API_SERVER: &str = "it needs an API server, and this node has none";

/// The pod fields that a file may contain, besides single labels and annotations.
const DOWNWARD_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Checks the volumes of a pod and returns their names.
pub(super) fn check(volumes: &[v1::Volume], path: &FieldPath, review: &mut Review<'_>) -> Unique {
    let mut known = Unique::default();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        name(review, &path.field("name"), &volume.name, names::dns_label);
        known.claim(review, &path.field("name"), &volume.name);
        let given = volume_types(volume);
        for source in given.iter().skip(1) {
            let message = format!("may not specify more than one volume source, {} is given", given[0]);
            review.object(&path.field(source.clone()), forbidden(message));
        }
        if let Some(source) = given.first().filter(|source| !SOURCES.contains(&source.as_str())) {
            let message = format!(
                "this node has no driver for {source} volumes, the pod would never start; supported are {}",
                SOURCES.join(", ")
            );
            review.object(&path.field(source.clone()), forbidden(message));
        }
        check_source(volume, &path, review);
    }
    known
}

/// Checks the mounts of a container.
pub(super) fn check_mounts(raw: &v1::Container, volumes: &Unique, path: &FieldPath, review: &mut Review<'_>) {
    let mut paths = Unique::default();
    for (index, mount) in raw.volume_mounts.iter().flatten().enumerate() {
        let path = path.field("volumeMounts").index(index);
        volume_name(&mount.name, volumes, &path.field("name"), review);
        let target = path.field("mountPath");
        present(review, &target, &mount.mount_path);
        if mount.mount_path.contains(':') {
            review.object(&target, invalid(quoted(&mount.mount_path), "must not contain ':'"));
        }
        if is_root(&mount.mount_path) {
            review.object(&target, invalid(quoted(&mount.mount_path), "must not be the root directory"));
        }
        paths.claim(review, &target, &mount.mount_path);
        if let Some(sub) = mount.sub_path.as_deref().filter(|sub| !sub.is_empty()) {
            relative(sub, &path.field("subPath"), review);
            if mount.sub_path_expr.as_deref().is_some_and(|expression| !expression.is_empty()) {
                review.object(&path.field("subPathExpr"), forbidden("subPath and subPathExpr exclude each other"));
            }
        }
        if let Some(sub) = &mount.sub_path_expr {
            relative(sub, &path.field("subPathExpr"), review);
        }
        let propagation = mount.mount_propagation.as_deref();
        let spread = path.field("mountPropagation");
        one_of(review, &spread, propagation, &["None", "HostToContainer", "Bidirectional"]);
        let privileged = raw.security_context.as_ref().and_then(|context| context.privileged).unwrap_or_default();
        if propagation == Some("Bidirectional") && !privileged {
            review.object(&spread, forbidden("Bidirectional is available to privileged containers only"));
        }
        let recursive = mount.recursive_read_only.as_deref();
        let recursive_path = path.field("recursiveReadOnly");
        one_of(review, &recursive_path, recursive, &["Disabled", "IfPossible", "Enabled"]);
        if recursive.is_some_and(|word| word != "Disabled") && mount.read_only != Some(true) {
            review.object(&recursive_path, forbidden("may only be used when readOnly is true"));
        }
    }
    if raw.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty()) {
        let message = "this node has no driver for block devices, the container would never start";
        review.object(&path.field("volumeDevices"), forbidden(message));
    }
}

/// Whether a path in a container is its root. A relative path is relative to the root.
fn is_root(path: &str) -> bool {
    let mut depth = 0_usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    depth == 0 && !path.is_empty()
}

fn volume_name(given: &str, volumes: &Unique, path: &FieldPath, review: &mut Review<'_>) {
    if given.is_empty() {
        review.object(path, required(""));
    } else if !volumes.contains(given) {
        review.object(path, not_found(given, "must be the name of one of spec.volumes"));
    }
}

/// The types of a volume, as the manifest spells them; a valid volume has one.
pub fn volume_types(volume: &v1::Volume) -> Vec<String> {
    match serde_json::to_value(volume) {
        Ok(serde_json::Value::Object(fields)) => {
            fields.into_iter().map(|(name, _)| name).filter(|name| name != "name").collect()
        }
        _ => Vec::new(),
    }
}

/// Which of a pod's volumes and devices no node that runs keelet can ever provide, and why; the first one. An API server accepts what
/// a manifest may not have.
pub fn impossible_volume(pod: &Pod) -> Option<String> {
    let spec = pod.source.spec.as_ref()?;
    let impossible = |volume: &v1::Volume| Some(format!("volume {:?}: {}", volume.name, impossible_source(volume)?));
    if let Some(why) = spec.volumes.iter().flatten().find_map(impossible) {
        return Some(why);
    }
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let with_device = containers.find(|container| container.volume_devices.iter().flatten().next().is_some())?;
    Some(format!("container {:?}: this node has no driver for block devices", with_device.name))
}

fn impossible_source(volume: &v1::Volume) -> Option<String> {
    if let Some(kind) = volume_types(volume).into_iter().find(|kind| !SOURCES.contains(&kind.as_str())) {
        return Some(format!("this node has no driver for {kind} volumes; supported are {}", SOURCES.join(", ")));
    }
    let medium = volume.empty_dir.as_ref().and_then(|source| source.medium.as_deref()).unwrap_or_default();
    if !MEDIA.contains(&medium) {
        return Some(format!("this node has no medium {medium:?}; supported are {MEDIA:?}"));
    }
    let mut projections = volume.projected.iter().flat_map(|source| source.sources.iter().flatten());
    projections.find_map(|source| {
        let bundle = source.cluster_trust_bundle.as_ref().is_some_and(|bundle| bundle.optional != Some(true));
        let kind = match source.pod_certificate {
            Some(_) => "podCertificate",
            None if bundle => "clusterTrustBundle",
            None => return None,
        };
        Some(format!("this node cannot provide a projected {kind}"))
    })
}

fn check_source(volume: &v1::Volume, path: &FieldPath, review: &mut Review<'_>) {
    let mode = |mode: Option<i32>, source: &'static str, review: &mut Review<'_>| {
        if let Some(mode) = mode {
            within(review, &path.field(source).field("defaultMode"), mode.into(), 0, MODE_MAX);
        }
    };
    if let Some(source) = &volume.host_path {
        let path = path.field("hostPath");
        present(review, &path.field("path"), &source.path);
        if source.path.split('/').any(|part| part == "..") {
            review.object(&path.field("path"), invalid(quoted(&source.path), "must not contain '..'"));
        } else if !source.path.is_empty() && !source.path.starts_with('/') {
            review.object(&path.field("path"), invalid(quoted(&source.path), "must be an absolute path"));
        }
        one_of(review, &path.field("type"), source.type_.as_deref(), &HOST_PATH_TYPES);
    }
    if let Some(source) = &volume.empty_dir {
        let path = path.field("emptyDir");
        one_of(review, &path.field("medium"), source.medium.as_deref(), &MEDIA);
        if let Some(limit) = &source.size_limit {
            resources::amount(limit, &path.field("sizeLimit"), review);
            if source.medium.as_deref().unwrap_or_default().is_empty() {
                let why = "keelet does not evict pods for disk usage; with medium: Memory it is a limit";
                review.warn(&path.field("sizeLimit"), ignored(why));
            }
        }
    }
    if let Some(source) = &volume.config_map {
        let path = path.field("configMap");
        present(review, &path.field("name"), &source.name);
        key_paths(source.items.as_deref(), &path, review);
        mode(source.default_mode, "configMap", review);
    }
    if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let path = path.field("secret");
        present(review, &path.field("secretName"), name);
        key_paths(source.items.as_deref(), &path, review);
        mode(source.default_mode, "secret", review);
    }
    if let Some(source) = &volume.downward_api {
        downward_files(source.items.as_deref(), &path.field("downwardAPI"), review);
        mode(source.default_mode, "downwardAPI", review);
    }
    if let Some(source) = &volume.projected {
        for (index, source) in source.sources.iter().flatten().enumerate() {
            projection(source, &path.field("projected").field("sources").index(index), review);
        }
        mode(source.default_mode, "projected", review);
    }
}

/// One source of a projected volume.
fn projection(source: &v1::VolumeProjection, path: &FieldPath, review: &mut Review<'_>) {
    let given = match serde_json::to_value(source) {
        Ok(serde_json::Value::Object(fields)) => fields.into_iter().map(|(name, _)| name).collect(),
        _ => Vec::new(),
    };
    for kind in given.iter().skip(1) {
        let message = format!("may not specify more than one source in one entry, {} is given", given[0]);
        review.object(&path.field(kind.clone()), forbidden(message));
    }
    if let Some(source) = &source.config_map {
        let path = path.field("configMap");
        present(review, &path.field("name"), &source.name);
        key_paths(source.items.as_deref(), &path, review);
    }
    if let Some(source) = &source.secret {
        let path = path.field("secret");
        present(review, &path.field("name"), &source.name);
        key_paths(source.items.as_deref(), &path, review);
    }
    if let Some(source) = &source.downward_api {
        downward_files(source.items.as_deref(), &path.field("downwardAPI"), review);
    }
    let optional = source.cluster_trust_bundle.as_ref().is_some_and(|bundle| bundle.optional == Some(true));
    for (kind, is_given) in [
        ("serviceAccountToken", source.service_account_token.is_some()),
        ("clusterTrustBundle", source.cluster_trust_bundle.is_some() && !optional),
        ("podCertificate", source.pod_certificate.is_some()),
    ] {
        if is_given {
            review.object(&path.field(kind), forbidden(NO_API_SERVER));
        }
    }
}

/// Which keys become which files.
fn key_paths(items: Option<&[v1::KeyToPath]>, path: &FieldPath, review: &mut Review<'_>) {
    for (index, item) in items.into_iter().flatten().enumerate() {
        let path = path.field("items").index(index);
        present(review, &path.field("key"), &item.key);
        file_path(&item.path, &path.field("path"), review);
        if let Some(mode) = item.mode {
            within(review, &path.field("mode"), mode.into(), 0, MODE_MAX);
        }
    }
}

/// Files about the pod itself.
fn downward_files(items: Option<&[v1::DownwardAPIVolumeFile]>, path: &FieldPath, review: &mut Review<'_>) {
    for (index, item) in items.into_iter().flatten().enumerate() {
        let path = path.field("items").index(index);
        file_path(&item.path, &path.field("path"), review);
        if let Some(mode) = item.mode {
            within(review, &path.field("mode"), mode.into(), 0, MODE_MAX);
        }
        match (&item.field_ref, &item.resource_field_ref) {
            (Some(_), Some(_)) => {
                let message = "fieldRef and resourceFieldRef exclude each other";
                review.object(&path.field("resourceFieldRef"), forbidden(message));
            }
            (None, None) => {
                review.object(&path, required("one of fieldRef and resourceFieldRef is required"));
            }
            (Some(reference), None) => {
                let path = path.field("fieldRef").field("fieldPath");
                let field = reference.field_path.as_str();
                let entry = ["metadata.labels['", "metadata.annotations['"];
                let known = DOWNWARD_FIELDS.contains(&field)
                    || field.ends_with("']") && entry.iter().any(|start| field.starts_with(start));
                if !known {
                    review.object(&path, unsupported(field, &DOWNWARD_FIELDS));
                }
            }
            (None, Some(reference)) => {
                let path = path.field("resourceFieldRef");
                present(review, &path.field("resource"), &reference.resource);
                present(review, &path.field("containerName"), reference.container_name.as_deref().unwrap_or_default());
                resources::divisor(reference, &path, review);
            }
        }
    }
}

/// The name of a file in a volume that the agent writes. Names that begin with two dots are reserved for the agent.
fn file_path(given: &str, path: &FieldPath, review: &mut Review<'_>) {
    present(review, path, given);
    relative(given, path, review);
    if given.starts_with("..") && !given.split('/').any(|part| part == "..") {
        review.object(path, invalid(quoted(given), "must not start with '..'"));
    }
}

/// A relative path without `..`.
fn relative(sub: &str, path: &FieldPath, review: &mut Review<'_>) {
    if sub.starts_with('/') {
        review.object(path, invalid(quoted(sub), "must be a relative path"));
    }
    if sub.split('/').any(|part| part == "..") {
        review.object(path, invalid(quoted(sub), "must not contain '..'"));
    }
}
