//! What a container may learn of its own pod: `fieldRef` and `resourceFieldRef`.

use std::{collections::BTreeMap, path::Path};

use k8s_openapi::api::core::v1;
use keelet_pod::{Pod, Quantity};

use super::objects::Objects;
use super::{
    NodeFacts, Placement,
    amount::{self, Side},
    container,
};

/// Why there is no value, as the end of a sentence about the variable or the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownwardError {
    /// No container of the pod has the name.
    #[error("refers to container {0:?}, which the pod does not have")]
    NoContainer(String),
    /// The API has no such field, or none that is available at this point.
    #[error("refers to field {0:?}, which is not available")]
    NoField(String),
    /// The API has the field in variables only.
    #[error("refers to field {0:?}, which is not available in a volume")]
    NoFieldInVolume(String),
    /// The field is not a map.
    #[error("refers to field {0:?}, which has no keys")]
    NoKeys(String),
    /// The field is the node's address.
    #[error("refers to {0}: the node's address is not known")]
    NoNodeAddress(String),
    /// The API has no such resource.
    #[error("refers to resource {0:?}, which is not available")]
    NoResource(String),
    /// A divisor of zero or less.
    #[error("has a divisor that is not more than zero")]
    Divisor,
}

/// What a file in a volume contains of the pod.
pub fn file(pod: &Pod, node: &NodeFacts, item: &v1::DownwardAPIVolumeFile) -> Result<String, DownwardError> {
    let (volumes, parts, objects) = (BTreeMap::new(), BTreeMap::new(), Objects::default());
    let placement = Placement {
        pod,
        volumes: &volumes,
        parts: &parts,
        objects: &objects,
        logs: Path::new(""),
        etc_hosts: None,
        termination_file: None,
        target: None,
        pod_ips: &[],
        recursive_read_only: false,
        users: None,
        node,
    };
    if let Some(reference) = &item.resource_field_ref {
        let name = reference.container_name.as_deref().unwrap_or_default();
        let own = container::in_api_form(&placement, name);
        let own = own.ok_or_else(|| DownwardError::NoContainer(name.to_owned()))?;
        return resource(&placement, &own, reference);
    }
    let path = item.field_ref.as_ref().map_or("", |reference| reference.field_path.as_str());
    match path {
        "metadata.labels" => Ok(listing(pod.source.metadata.labels.as_ref())),
        "metadata.annotations" => Ok(listing(pod.source.metadata.annotations.as_ref())),
        path if path.starts_with("metadata.") => field(&placement, path),
        path => Err(DownwardError::NoFieldInVolume(path.to_owned())),
    }
}

/// A line for each entry, the value in quotes, the last line without an end: as the kubelet writes it.
fn listing(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<_> = map.into_iter().flatten().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.join("\n")
}

/// Text in quotes as Go writes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            control if control < ' ' || control == '\u{7f}' => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// The value of a field of the pod.
pub(super) fn field(placement: &Placement<'_>, path: &str) -> Result<String, DownwardError> {
    let (pod, spec) = (placement.pod, placement.spec());
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        return match map {
            "metadata.labels" => Ok(entry(pod.source.metadata.labels.as_ref(), key)),
            "metadata.annotations" => Ok(entry(pod.source.metadata.annotations.as_ref(), key)),
            _ => Err(DownwardError::NoKeys(path.to_owned())),
        };
    }
    Ok(match path {
        "metadata.name" => pod.name.clone(),
        "metadata.namespace" => pod.namespace.clone(),
        "metadata.uid" => pod.uid.clone(),
        // A pod from a manifest runs here, whatever it says.
        "spec.nodeName" => placement.node.name.clone(),
        "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
        "status.podIP" => text(pod_ips(placement).first()),
        "status.podIPs" => pod_ips(placement).join(","),
        "status.hostIP" | "status.hostIPs" => match &placement.node.address {
            Some(address) => address.clone(),
            None => return Err(DownwardError::NoNodeAddress(path.to_owned())),
        },
        _ => return Err(DownwardError::NoField(path.to_owned())),
    })
}

/// On the node's network the pod has the node's address.
fn pod_ips(placement: &Placement<'_>) -> Vec<String> {
    if placement.pod_ips.is_empty() && placement.pod.host_network {
        return placement.node.address.iter().cloned().collect();
    }
    placement.pod_ips.to_vec()
}

fn entry(map: Option<&BTreeMap<String, String>>, key: &str) -> String {
    map.and_then(|map| map.get(key)).cloned().unwrap_or_default()
}

/// An amount of a resource of this or another container, in units of the divisor, rounded up. Where nothing limits a
/// container, the node does.
pub(super) fn resource(
    placement: &Placement<'_>,
    own: &v1::Container,
    reference: &v1::ResourceFieldSelector,
) -> Result<String, DownwardError> {
    let unknown = || DownwardError::NoResource(reference.resource.clone());
    let (side, resource) = reference.resource.split_once('.').ok_or_else(unknown)?;
    let side = match side {
        "limits" => Side::Limits,
        "requests" => Side::Requests,
        _ => return Err(unknown()),
    };
    if !matches!(resource, "cpu" | "memory" | "ephemeral-storage") && !resource.starts_with("hugepages-") {
        return Err(unknown());
    }
    let amount = match reference.container_name.as_deref().filter(|name| !name.is_empty()) {
        None => amount(placement, own, side, resource),
        Some(name) => {
            let other = container::in_api_form(placement, name);
            let other = other.ok_or_else(|| DownwardError::NoContainer(name.to_owned()))?;
            amount(placement, &other, side, resource)
        }
    };
    let divisor = reference.divisor.as_ref().map(amount::read).filter(|divisor| !divisor.is_zero());
    let divisor = divisor.unwrap_or(Quantity::whole(1));
    // Processors are counted in thousandths, everything else in whole pieces.
    let (amount, divisor) = match resource {
        "cpu" => (amount.millis(), divisor.millis()),
        _ => (amount.units(), divisor.units()),
    };
    if divisor <= 0 {
        return Err(DownwardError::Divisor);
    }
    Ok((amount / divisor + i64::from(amount % divisor > 0)).to_string())
}

fn amount(placement: &Placement<'_>, raw: &v1::Container, side: Side, resource: &str) -> Quantity {
    let own = amount::on(side, raw.resources.as_ref(), resource);
    if side == Side::Requests || !own.is_zero() {
        return own;
    }
    let of_pod = placement.spec().and_then(|spec| spec.resources.as_ref());
    let of_pod = amount::on(Side::Limits, of_pod, resource);
    match resource {
        "cpu" | "memory" if !of_pod.is_zero() => of_pod,
        "cpu" => Quantity::thousandths(placement.node.cpu_millis),
        "memory" => Quantity::whole(placement.node.memory_bytes),
        "ephemeral-storage" => Quantity::whole(placement.node.storage_bytes),
        _ => own,
    }
}
