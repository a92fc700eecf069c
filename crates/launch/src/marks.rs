//! Labels and annotations by which a sandbox or container is known for what it is. Names and forms are the kubelet's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1;
use keelet_pod::{Container, Pod};

use super::labels::{
    CONTAINER_HASH, CONTAINER_MESSAGE_PATH, CONTAINER_MESSAGE_POLICY, CONTAINER_NAME, CONTAINER_PORTS,
    CONTAINER_PRE_STOP, CONTAINER_RESTART_COUNT, POD_DELETION_GRACE, POD_NAME, POD_NAMESPACE, POD_TERMINATION_GRACE,
    POD_UID,
};

/// A sandbox has the pod's labels, and those it is found by.
pub(super) fn sandbox_labels(pod: &Pod) -> BTreeMap<String, String> {
    let mut labels = pod.source.metadata.labels.clone().unwrap_or_default();
    labels.extend(identity(pod));
    labels
}

/// A sandbox has the pod's annotations.
pub(super) fn sandbox_annotations(pod: &Pod) -> BTreeMap<String, String> {
    pod.source.metadata.annotations.clone().unwrap_or_default()
}

/// A container has the labels it is found by.
pub(super) fn container_labels(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    let name = (CONTAINER_NAME.to_owned(), container.name.clone());
    identity(pod).into_iter().chain([name]).collect()
}

/// A container carries what an agent needs to stop it and to report its end, should the pod itself be gone by then.
pub(super) fn container_annotations(
    pod: &Pod,
    container: &Container,
    raw: &v1::Container,
    attempt: u32,
) -> BTreeMap<String, String> {
    let hook = raw.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    let ports = raw.ports.as_ref().filter(|ports| !ports.is_empty());
    let grace = pod.source.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let marks = [
        (CONTAINER_HASH, Some(format!("{:x}", container.hash))),
        (CONTAINER_RESTART_COUNT, Some(attempt.to_string())),
        (CONTAINER_MESSAGE_PATH, Some(raw.termination_message_path.clone().unwrap_or_default())),
        (CONTAINER_MESSAGE_POLICY, Some(raw.termination_message_policy.clone().unwrap_or_default())),
        (CONTAINER_PRE_STOP, hook.and_then(|hook| serde_json::to_string(hook).ok())),
        (CONTAINER_PORTS, ports.and_then(|ports| serde_json::to_string(ports).ok())),
        (POD_DELETION_GRACE, pod.source.metadata.deletion_grace_period_seconds.map(|grace| grace.to_string())),
        (POD_TERMINATION_GRACE, grace.map(|grace| grace.to_string())),
    ];
    marks.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn identity(pod: &Pod) -> [(String, String); 3] {
    [(POD_NAME, &pod.name), (POD_NAMESPACE, &pod.namespace), (POD_UID, &pod.uid)]
        .map(|(name, value)| (name.to_owned(), value.clone()))
}
