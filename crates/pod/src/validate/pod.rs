//! The pod as a whole.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1;

use crate::{
    Features, Pod, RestartPolicy, Role, names,
    path::FieldPath,
    problem::{forbidden, ignored, invalid, required},
    review::Review,
};

use super::{
    Unique, annotations, choice,
    container::{self, Around},
    metadata, name, one_of, port, resources, security, trust, volume, within,
};

const RESTART_POLICIES: [(&str, RestartPolicy); 3] =
    [("Always", RestartPolicy::Always), ("OnFailure", RestartPolicy::OnFailure), ("Never", RestartPolicy::Never)];

/// Checks a pod with defaults filled in, and builds the model's pod from it.
pub(super) fn build(raw: v1::Pod, features: &Features, review: &mut Review<'_>) -> Option<Pod> {
    metadata::check(&raw.metadata, review);
    let path = FieldPath::root().field("spec");
    let Some(spec) = &raw.spec else {
        review.refuse(&path, required(""));
        return None;
    };
    check_spec(spec, &path, review);
    trust::check(spec, &path, review);
    let policy = spec.restart_policy.as_deref().unwrap_or_default();
    let restart_policy = choice(review, &path.field("restartPolicy"), policy, &RESTART_POLICIES).unwrap_or_default();
    let grace = u64::try_from(spec.termination_grace_period_seconds.unwrap_or(30)).unwrap_or(1);
    let volumes = volume::check(spec.volumes.as_deref().unwrap_or_default(), &path.field("volumes"), review);

    let mut around = Around {
        features,
        restart_policy,
        grace,
        volumes: &volumes,
        spec,
        names: Unique::default(),
        host_ports: port::HostPorts::default(),
    };
    let init_path = path.field("initContainers");
    let init_containers = spec.init_containers.iter().flatten().enumerate().map(|(index, raw)| {
        let role = match raw.restart_policy.as_deref() {
            Some("Always") => Role::Sidecar,
            _ => Role::Init,
        };
        container::build(raw, role, &mut around, &init_path.index(index), review)
    });
    let init_containers: Vec<_> = init_containers.collect();
    let regular_path = path.field("containers");
    if spec.containers.is_empty() {
        review.refuse(&regular_path, required("a pod needs at least one container"));
    }
    let containers = spec
        .containers
        .iter()
        .enumerate()
        .map(|(index, raw)| container::build(raw, Role::Regular, &mut around, &regular_path.index(index), review));
    let containers: Vec<_> = containers.collect();
    let ephemeral_path = path.field("ephemeralContainers");
    let ephemeral_containers = spec
        .ephemeral_containers
        .iter()
        .flatten()
        .enumerate()
        .map(|(index, raw)| container::build_ephemeral(raw, &mut around, &ephemeral_path.index(index), review));
    let ephemeral_containers: Vec<_> = ephemeral_containers.collect();

    let mut pod = Pod {
        namespace: raw.metadata.namespace.clone().unwrap_or_default(),
        name: raw.metadata.name.clone().unwrap_or_default(),
        uid: raw.metadata.uid.clone().unwrap_or_default(),
        generation: raw.metadata.generation,
        trust: review.trust(),
        restart_policy,
        termination_grace: Duration::from_secs(grace),
        restart_all_grace: Duration::ZERO,
        eager_probes: true,
        host_network: spec.host_network.unwrap_or_default(),
        readiness_gates: spec.readiness_gates.iter().flatten().map(|gate| gate.condition_type.clone()).collect(),
        init_containers,
        containers,
        ephemeral_containers,
        source: Arc::default(),
    };
    annotations::apply(&mut pod, &raw.metadata.annotations.clone().unwrap_or_default(), review);
    pod.source = Arc::new(raw);
    Some(pod)
}

/// Checks the fields of a pod that do not depend on each other.
fn check_spec(spec: &v1::PodSpec, path: &FieldPath, review: &mut Review<'_>) {
    if let Some(seconds) = spec.active_deadline_seconds {
        within(review, &path.field("activeDeadlineSeconds"), seconds, 1, i32::MAX.into());
    }
    for (index, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        let path = path.field("readinessGates").index(index).field("conditionType");
        name(review, &path, &gate.condition_type, names::qualified);
    }
    for (field, value) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if let Some(value) = value.as_deref().filter(|value| !value.is_empty()) {
            name(review, &path.field(field), value, names::dns_label);
        }
    }
    let dns = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    one_of(review, &path.field("dnsPolicy"), spec.dns_policy.as_deref(), &dns);
    if let Some(os) = &spec.os {
        one_of(review, &path.field("os").field("name"), Some(&os.name), &["linux"]);
    }
    if spec.host_pid == Some(true) && spec.share_process_namespace == Some(true) {
        let message = "hostPID and shareProcessNamespace cannot both be true";
        review.object(&path.field("shareProcessNamespace"), invalid(true, message));
    }
    // A user namespace of the pod's own has no rights over the node's namespaces.
    if spec.host_users == Some(false) {
        for (field, value) in
            [("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)]
        {
            if value == Some(true) {
                review.object(&path.field(field), forbidden("must be false when hostUsers is false"));
            }
        }
    }
    if spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        review.object(&path.field("resourceClaims"), forbidden(resources::NO_CLAIMS));
    }
    for (field, is_given, why) in [
        ("activeDeadlineSeconds", spec.active_deadline_seconds.is_some(), "keelet does not enforce a deadline"),
        (
            "imagePullSecrets",
            spec.image_pull_secrets.as_ref().is_some_and(|secrets| !secrets.is_empty()),
            "credentials come from the node, see --docker-config",
        ),
        (
            "schedulingGates",
            spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
            "the pod is assigned to this node already",
        ),
    ] {
        if is_given {
            review.warn(&path.field(field), ignored(why));
        }
    }
    if let Some(requirements) = &spec.resources {
        resources::check(requirements, &path.field("resources"), review);
    }
    resources::overhead(spec, path, review);
    if let Some(context) = &spec.security_context {
        security::check_pod(context, &path.field("securityContext"), review);
    }
}
