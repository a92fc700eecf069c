//! What a runtime is asked for when a pod gets its sandbox.

use k8s_openapi::api::core::v1 as api;
use keelet_cri::v1;
use keelet_pod::Role;

use super::{ConfigError, Placement, container, dns, hostname, marks, resources, security};

/// The sandbox of a pod; `attempt` counts those it has had.
pub fn sandbox_config(placement: &Placement<'_>, attempt: u32) -> Result<v1::PodSandboxConfig, ConfigError> {
    let pod = placement.pod;
    // A pod that wants user IDs of its own must not get the node's instead.
    if super::has_own_users(pod) && placement.users.is_none() {
        return Err(ConfigError::sandbox("hostUsers: false: the pod has no user IDs of its own"));
    }
    Ok(v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            attempt,
        }),
        hostname: hostname::hostname(placement)?,
        log_directory: placement.logs.to_string_lossy().into_owned(),
        dns_config: Some(dns::dns_config(placement)),
        port_mappings: port_mappings(placement),
        labels: marks::sandbox_labels(pod),
        annotations: marks::sandbox_annotations(pod),
        linux: Some(linux(placement)),
    })
}

fn linux(placement: &Placement<'_>) -> v1::LinuxPodSandboxConfig {
    let sysctls = placement.security().into_iter().flat_map(|context| context.sysctls.iter().flatten());
    v1::LinuxPodSandboxConfig {
        // The runtime chooses its own.
        cgroup_parent: String::new(),
        security_context: Some(security::sandbox(placement)),
        sysctls: sysctls.map(|sysctl| (sysctl.name.clone(), sysctl.value.clone())).collect(),
        overhead: Some(resources::overhead(placement)),
        resources: Some(resources::pod(placement)),
    }
}

/// Ports of the node that lead into the pod: those of containers that run side by side. On the node's network there is
/// nothing to map.
fn port_mappings(placement: &Placement<'_>) -> Vec<v1::PortMapping> {
    if placement.pod.host_network {
        return Vec::new();
    }
    let lasting = placement.pod.lasting_containers().filter(|container| container.role != Role::Init);
    let raw = lasting.filter_map(|container| container::in_api_form(placement, &container.name));
    let mut mappings = Vec::new();
    for mapping in raw.flat_map(|raw| raw.ports.clone().unwrap_or_default()).filter_map(mapping) {
        if !mappings.contains(&mapping) {
            mappings.push(mapping);
        }
    }
    mappings
}

fn mapping(port: api::ContainerPort) -> Option<v1::PortMapping> {
    let protocol = match port.protocol.as_deref() {
        Some("UDP") => v1::Protocol::Udp,
        Some("SCTP") => v1::Protocol::Sctp,
        _ => v1::Protocol::Tcp,
    };
    Some(v1::PortMapping {
        protocol: protocol.into(),
        container_port: port.container_port,
        host_port: port.host_port.filter(|port| *port > 0)?,
        host_ip: port.host_ip.unwrap_or_default(),
    })
}
