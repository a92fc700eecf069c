//! Defaults, filled in where the API server would fill them in, and fields dropped that a feature gate switches off.

use k8s_openapi::api::core::v1;

use crate::{
    Features,
    hash::manifest_uid,
    path::FieldPath,
    problem::{ignored, suspicious},
    review::Review,
};

/// Fills in every default.
pub(crate) fn apply(pod: &mut v1::Pod, features: &Features, review: &mut Review<'_>) {
    if pod.metadata.uid.as_deref().unwrap_or_default().is_empty() {
        // The API server treats an empty string as an absent field.
        pod.metadata.uid = None;
        let uid = manifest_uid(pod);
        review.report.derived_uids.insert(uid.clone());
        pod.metadata.uid = Some(uid);
    }
    if pod.metadata.namespace.as_deref().unwrap_or_default().is_empty() {
        pod.metadata.namespace = Some("default".to_owned());
    }
    let Some(spec) = pod.spec.as_mut() else { return };
    let path = FieldPath::root().field("spec");

    set(&mut spec.restart_policy, "Always");
    set(&mut spec.dns_policy, "ClusterFirst");
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_default();
    let grace = spec.termination_grace_period_seconds.get_or_insert(30);
    if *grace < 0 {
        let field = path.field("terminationGracePeriodSeconds");
        review.warn(&field, suspicious(format!("{grace} is invalid: 1 is used, as by the API server")));
        *grace = 1;
    }

    let host_network = spec.host_network.unwrap_or_default();
    let init = spec.init_containers.iter_mut().flatten();
    for (index, container) in init.enumerate() {
        let path = path.field("initContainers").index(index);
        drop_gated(container, Kin::Init, features, &path, review);
        defaults_of(container, host_network);
    }
    for (index, container) in spec.containers.iter_mut().enumerate() {
        let path = path.field("containers").index(index);
        drop_gated(container, Kin::Regular, features, &path, review);
        defaults_of(container, host_network);
    }
    for container in spec.ephemeral_containers.iter_mut().flatten() {
        let pull_policy = pull_policy(container.image.as_deref().unwrap_or_default());
        set(&mut container.image_pull_policy, pull_policy);
        set(&mut container.termination_message_path, "/dev/termination-log");
        set(&mut container.termination_message_policy, "File");
    }
    for (index, volume) in spec.volumes.iter_mut().flatten().enumerate() {
        volume_defaults(volume, &path.field("volumes").index(index), review);
    }
}

/// The two kinds of containers that feature gates treat differently.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kin {
    Init,
    Regular,
}

/// API-18: drops the fields of a feature gate that is off, with a warning for each.
fn drop_gated(container: &mut v1::Container, kin: Kin, features: &Features, path: &FieldPath, review: &mut Review<'_>) {
    let mut dropped = |path: FieldPath, gate: &str| {
        review.warn(&path, ignored(format!("the feature gate {gate} is off")));
    };
    if !features.restart_rules.is_on() {
        if container.restart_policy_rules.take().is_some() {
            dropped(path.field("restartPolicyRules"), "ContainerRestartRules");
        }
        // An init container with Always is a sidecar, which no feature gate covers any more.
        let sidecar = kin == Kin::Init && container.restart_policy.as_deref() == Some("Always");
        if !sidecar && container.restart_policy.take().is_some() {
            dropped(path.field("restartPolicy"), "ContainerRestartRules");
        }
    }
    if let Some(lifecycle) = &mut container.lifecycle
        && !features.stop_signals.is_on()
        && lifecycle.stop_signal.take().is_some()
    {
        dropped(path.field("lifecycle").field("stopSignal"), "ContainerStopSignals");
        // The API server drops a lifecycle without any hook.
        if lifecycle.post_start.is_none() && lifecycle.pre_stop.is_none() {
            container.lifecycle = None;
        }
    }
    let probes = [
        ("livenessProbe", &mut container.liveness_probe),
        ("readinessProbe", &mut container.readiness_probe),
        ("startupProbe", &mut container.startup_probe),
    ];
    for (name, probe) in probes {
        let Some(probe) = probe else { continue };
        if let Some(http) = &mut probe.http_get
            && !features.h2c_probes.is_on()
            && http.protocol.take().is_some()
        {
            dropped(path.field(name).field("httpGet").field("protocol"), "H2CContainerProbe");
        }
        if let Some(grpc) = &mut probe.grpc
            && !features.grpc_tls_probes.is_on()
            && grpc.mode.take().is_some()
        {
            dropped(path.field(name).field("grpc").field("mode"), "GRPCContainerProbeTLS");
        }
    }
}

fn defaults_of(container: &mut v1::Container, host_network: bool) {
    let pull_policy = pull_policy(container.image.as_deref().unwrap_or_default());
    set(&mut container.image_pull_policy, pull_policy);
    set(&mut container.termination_message_path, "/dev/termination-log");
    set(&mut container.termination_message_policy, "File");
    for port in container.ports.iter_mut().flatten() {
        set(&mut port.protocol, "TCP");
        if host_network && port.host_port.unwrap_or_default() == 0 {
            port.host_port = Some(port.container_port);
        }
    }
    // A resource with a limit and no request gets a request of the same amount.
    if let Some(resources) = &mut container.resources
        && let Some(limits) = &resources.limits
    {
        let requests = resources.requests.get_or_insert_default();
        for (name, limit) in limits {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
    let probes = [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    probes.into_iter().flatten().for_each(of_probe);
    if let Some(lifecycle) = &mut container.lifecycle {
        for hook in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
            if let Some(http) = &mut hook.http_get {
                http_defaults(http);
            }
        }
    }
}

/// Fills in the defaults of a probe.
pub(crate) fn of_probe(probe: &mut v1::Probe) {
    // API-2: zero stands for the default.
    for (field, default) in [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ] {
        if field.unwrap_or_default() == 0 {
            *field = Some(default);
        }
    }
    if let Some(http) = &mut probe.http_get {
        http_defaults(http);
    }
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn http_defaults(http: &mut v1::HTTPGetAction) {
    set(&mut http.path, "/");
    set(&mut http.scheme, "HTTP");
}

fn volume_defaults(volume: &mut v1::Volume, path: &FieldPath, review: &mut Review<'_>) {
    const MODE: i32 = 0o644;
    if let Some(source) = &mut volume.config_map {
        source.default_mode.get_or_insert(MODE);
    }
    if let Some(source) = &mut volume.secret {
        source.default_mode.get_or_insert(MODE);
    }
    if let Some(source) = &mut volume.downward_api {
        source.default_mode.get_or_insert(MODE);
    }
    if let Some(source) = &mut volume.projected {
        source.default_mode.get_or_insert(MODE);
    }
    if *volume == (v1::Volume { name: volume.name.clone(), ..v1::Volume::default() }) {
        review.warn(path, suspicious("no volume source given: emptyDir is used, as by the API server"));
        volume.empty_dir = Some(v1::EmptyDirVolumeSource::default());
    }
}

/// BACK-10: the tag `latest`, explicit or implied, may point to another image later.
fn pull_policy(image: &str) -> &'static str {
    let reference = image.split_once('@').map_or(image, |(reference, _)| reference);
    let pinned = reference != image;
    let last = reference.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, "latest")) => "Always",
        None if !pinned => "Always",
        _ => "IfNotPresent",
    }
}

fn set(field: &mut Option<String>, default: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(default.to_owned());
    }
}
