//! The name a pod calls itself by.

use super::{ConfigError, Placement};

/// The longest name of a host.
const LONGEST_NAME: usize = 63;
/// The longest name the kernel takes.
const LONGEST_FULL_NAME: usize = 64;

/// What `hostname` prints inside the pod. Empty on the node's network: the pod has the node's name there.
pub(super) fn hostname(placement: &Placement<'_>) -> Result<String, ConfigError> {
    let pod = placement.pod;
    let Some(spec) = placement.spec().filter(|_| !pod.host_network) else { return Ok(String::new()) };
    if let Some(name) = &spec.hostname_override {
        return Ok(shortened(name).to_owned());
    }
    let name = given(spec.hostname.as_ref()).unwrap_or(&pod.name);
    let name = shortened(name);
    let Some(subdomain) = given(spec.subdomain.as_ref()).filter(|_| spec.set_hostname_as_fqdn == Some(true)) else {
        return Ok(name.to_owned());
    };
    let mut full = format!("{name}.{subdomain}.{}.svc", pod.namespace);
    if !placement.node.cluster_domain.is_empty() {
        full = format!("{full}.{}", placement.node.cluster_domain);
    }
    if full.len() > LONGEST_FULL_NAME {
        return Err(ConfigError::sandbox(format!(
            "setHostnameAsFQDN: the full name {full} has {} characters, the kernel takes {LONGEST_FULL_NAME}",
            full.len()
        )));
    }
    Ok(full)
}

fn given(text: Option<&String>) -> Option<&String> {
    text.filter(|text| !text.is_empty())
}

/// Cut to what a host may be called, without a loose end. Names are ASCII.
fn shortened(name: &str) -> &str {
    match name.get(..LONGEST_NAME) {
        Some(start) if name.len() > LONGEST_NAME => start.trim_end_matches(['-', '.']),
        _ => name,
    }
}
