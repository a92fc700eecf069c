//! One container of any kind.

use k8s_openapi::api::core::v1;

use crate::{
    Container, Features, PullPolicy, RestartPolicy, Role,
    hash::{container_hash, resources_digest},
    names,
    path::FieldPath,
    problem::{forbidden, invalid, not_found, quoted, required},
    review::Review,
};

use super::{
    Unique, choice, env, hook, name, one_of,
    port::{self, HostPorts},
    probe, resources, rules, security, volume,
};

const PULL_POLICIES: [(&str, PullPolicy); 3] =
    [("Always", PullPolicy::Always), ("IfNotPresent", PullPolicy::IfNotPresent), ("Never", PullPolicy::Never)];

/// The context in which a container is checked.
pub(super) struct Around<'a> {
    pub(super) features: &'a Features,
    pub(super) restart_policy: RestartPolicy,
    /// The pod's grace period in seconds.
    pub(super) grace: u64,
    pub(super) volumes: &'a Unique,
    pub(super) spec: &'a v1::PodSpec,
    /// API-23: names are unique among all containers of a pod.
    pub(super) names: Unique,
    pub(super) host_ports: HostPorts,
}

/// Checks a container and builds the model's container from it.
pub(super) fn build(
    raw: &v1::Container,
    role: Role,
    around: &mut Around<'_>,
    path: &FieldPath,
    review: &mut Review<'_>,
) -> Container {
    identity(raw, around, path, review);
    let image = raw.image.clone().unwrap_or_default();
    if image.is_empty() {
        review.object(&path.field("image"), required(""));
    } else if image.trim() != image {
        review.object(&path.field("image"), invalid(quoted(&image), "must not begin or end with spaces"));
    }
    let pull = raw.image_pull_policy.as_deref().unwrap_or_default();
    let pull_policy = choice(review, &path.field("imagePullPolicy"), pull, &PULL_POLICIES);
    let message_policy = raw.termination_message_policy.as_deref();
    let message_policies = ["File", "FallbackToLogsOnError"];
    one_of(review, &path.field("terminationMessagePolicy"), message_policy, &message_policies);

    env::check(raw, path, review);
    volume::check_mounts(raw, around.volumes, path, review);
    if let Some(requirements) = &raw.resources {
        resources::check(requirements, &path.field("resources"), review);
    }
    if let Some(context) = &raw.security_context {
        security::check_container(context, around.spec, &path.field("securityContext"), review);
    }
    let ports = port::build(raw, role, around, path, review);
    let policy = rules::policy(raw, path, review);
    let rules = rules::build(raw, role, policy, around.features, path, review);

    let allowed = permit_probes(raw, role, path, review);
    let mut container = Container {
        name: raw.name.clone(),
        role,
        hash: container_hash(&raw.name, &image),
        image,
        pull_policy: pull_policy.unwrap_or(PullPolicy::IfNotPresent),
        restart_policy: match role {
            Role::Ephemeral => RestartPolicy::Never,
            _ => policy.unwrap_or(around.restart_policy),
        },
        rules,
        startup: None,
        readiness: None,
        liveness: None,
        post_start: None,
        pre_stop: None,
        ports,
        resources_digest: resources_digest(raw.resources.as_ref()),
    };
    if allowed {
        probe::build(raw, &mut container, path, review);
        hook::build(raw, &mut container, around, path, review);
    }
    container
}

/// An ephemeral container has the same fields as others, but most are forbidden.
pub(super) fn build_ephemeral(
    raw: &v1::EphemeralContainer,
    around: &mut Around<'_>,
    path: &FieldPath,
    review: &mut Review<'_>,
) -> Container {
    // API-9
    for (field, given) in [
        ("ports", raw.ports.is_some()),
        ("resources", raw.resources.is_some()),
        ("livenessProbe", raw.liveness_probe.is_some()),
        ("readinessProbe", raw.readiness_probe.is_some()),
        ("startupProbe", raw.startup_probe.is_some()),
        ("lifecycle", raw.lifecycle.is_some()),
        ("restartPolicy", raw.restart_policy.is_some()),
        ("restartPolicyRules", raw.restart_policy_rules.is_some()),
    ] {
        if given {
            review.object(&path.field(field), forbidden("cannot be set for an ephemeral container"));
        }
    }
    if let Some(target) = raw.target_container_name.as_deref().filter(|target| !target.is_empty()) {
        let spec = around.spec;
        let lasting = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        if !lasting.map(|container| &container.name).any(|name| name == target) {
            let message = "must be the name of a container of the pod";
            review.object(&path.field("targetContainerName"), not_found(target, message));
        }
    }
    let raw = v1::Container {
        name: raw.name.clone(),
        image: raw.image.clone(),
        image_pull_policy: raw.image_pull_policy.clone(),
        env: raw.env.clone(),
        env_from: raw.env_from.clone(),
        volume_mounts: raw.volume_mounts.clone(),
        volume_devices: raw.volume_devices.clone(),
        security_context: raw.security_context.clone(),
        termination_message_policy: raw.termination_message_policy.clone(),
        ..v1::Container::default()
    };
    build(&raw, Role::Ephemeral, around, path, review)
}

fn identity(raw: &v1::Container, around: &mut Around<'_>, path: &FieldPath, review: &mut Review<'_>) {
    let path = path.field("name");
    if raw.name.is_empty() {
        // Without a name no further check has a field path that means anything.
        review.refuse(&path, required(""));
        return;
    }
    name(review, &path, &raw.name, names::dns_label);
    around.names.claim(review, &path, &raw.name);
}

/// API-9: containers that run to completion have neither probes nor hooks.
fn permit_probes(raw: &v1::Container, role: Role, path: &FieldPath, review: &mut Review<'_>) -> bool {
    if role != Role::Init {
        return true;
    }
    for (field, given) in [
        ("lifecycle", raw.lifecycle.is_some()),
        ("livenessProbe", raw.liveness_probe.is_some()),
        ("readinessProbe", raw.readiness_probe.is_some()),
        ("startupProbe", raw.startup_probe.is_some()),
    ] {
        if given {
            let message = "may not be set for init containers without restartPolicy=Always";
            review.object(&path.field(field), forbidden(message));
        }
    }
    false
}
