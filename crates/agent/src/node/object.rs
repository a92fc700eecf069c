//! The `v1.Node`: a pure function of facts and conditions.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, Time},
    },
    jiff::Timestamp,
};
use keelet_lifecycle::{BootId, Wall};
use keelet_pod::Taint;

use super::{
    Condition,
    facts::{Facts, Resources},
};

/// What a node runs, and since which boot.
#[derive(Clone, Copy, Debug)]
pub struct Versions<'a> {
    /// The container runtime, `containerd://2.4.0`; none before it has answered.
    pub runtime: Option<&'a str>,
    /// The boot that the node is in.
    pub boot_id: BootId,
}

/// The node in the shape of the Kubernetes API.
pub fn object(
    facts: &Facts,
    conditions: &[Condition],
    taints: &[&Taint],
    versions: &Versions<'_>,
    started: Wall,
) -> v1::Node {
    let metadata = ObjectMeta {
        name: Some(facts.for_pods.name.clone()),
        creation_timestamp: time(started),
        ..ObjectMeta::default()
    };
    let status = v1::NodeStatus {
        addresses: Some(addresses(facts)),
        capacity: Some(amounts(&facts.capacity)),
        allocatable: Some(amounts(&facts.allocatable())),
        conditions: Some(conditions.iter().map(condition).collect()),
        node_info: Some(node_info(facts, versions)),
        ..v1::NodeStatus::default()
    };
    let taints: Vec<v1::Taint> = taints.iter().map(|held| taint(held)).collect();
    let spec = (!taints.is_empty()).then(|| v1::NodeSpec { taints: Some(taints), ..v1::NodeSpec::default() });
    v1::Node { metadata, spec, status: Some(status) }
}

fn taint(taint: &Taint) -> v1::Taint {
    v1::Taint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
        effect: taint.effect.as_str().to_owned(),
        time_added: None,
    }
}

fn addresses(facts: &Facts) -> Vec<v1::NodeAddress> {
    let address = |type_: &str, address: &str| v1::NodeAddress { type_: type_.to_owned(), address: address.to_owned() };
    let own = facts.for_pods.address.iter().map(|own| address("InternalIP", own));
    own.chain([address("Hostname", &facts.for_pods.name)]).collect()
}

fn amounts(resources: &Resources) -> BTreeMap<String, Quantity> {
    let Resources { cpu_millis, memory_bytes, storage_bytes, huge_pages, pods } = resources;
    let mut amounts = BTreeMap::from([
        ("cpu".to_owned(), Quantity(cpus(*cpu_millis))),
        ("memory".to_owned(), Quantity(kibibytes(*memory_bytes))),
        ("ephemeral-storage".to_owned(), Quantity(kibibytes(*storage_bytes))),
    ]);
    for (size, bytes) in huge_pages {
        amounts.insert(format!("hugepages-{}", binary(*size)), Quantity(binary(*bytes)));
    }
    if let Some(pods) = pods {
        amounts.insert("pods".to_owned(), Quantity(pods.to_string()));
    }
    amounts
}

fn cpus(millis: i64) -> String {
    if millis % 1000 == 0 { (millis / 1000).to_string() } else { format!("{millis}m") }
}

fn kibibytes(bytes: i64) -> String {
    format!("{}Ki", bytes / 1024)
}

/// In the largest unit that leaves a whole number, as resources of huge pages are named.
fn binary(bytes: i64) -> String {
    let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")];
    let fitting = units.into_iter().find(|(shift, _)| bytes != 0 && bytes % (1 << shift) == 0);
    fitting.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

fn condition(condition: &Condition) -> v1::NodeCondition {
    v1::NodeCondition {
        type_: condition.kind.clone(),
        status: condition.status.word().to_owned(),
        reason: Some(condition.reason.clone()),
        message: Some(condition.message.clone()),
        last_heartbeat_time: time(condition.seen),
        last_transition_time: time(condition.since),
    }
}

fn node_info(facts: &Facts, versions: &Versions<'_>) -> v1::NodeSystemInfo {
    let system = &facts.system;
    v1::NodeSystemInfo {
        architecture: system.architecture.clone(),
        boot_id: versions.boot_id.to_string(),
        container_runtime_version: versions.runtime.unwrap_or("unknown").to_owned(),
        kernel_version: system.kernel_version.clone(),
        kubelet_version: format!("keelet/{}", env!("CARGO_PKG_VERSION")),
        machine_id: system.machine_id.clone(),
        operating_system: "linux".to_owned(),
        os_image: system.os_image.clone(),
        system_uuid: system.system_uuid.clone(),
        ..v1::NodeSystemInfo::default()
    }
}

/// To the second, as the API stores times.
fn time(wall: Wall) -> Option<Time> {
    Timestamp::from_millisecond(wall.whole_seconds().as_millis()).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use keelet_launch::NodeFacts;

    use super::*;
    use crate::node::{ConditionStatus, System};

    /// Everything about a node comes from its facts, without a machine.
    #[test]
    fn a_node_is_made_of_its_facts() {
        let mut facts = Facts::from(NodeFacts {
            name: "worker".to_owned(),
            address: Some("192.0.2.7".to_owned()),
            cpu_millis: 4000,
            memory_bytes: 8 << 30,
            storage_bytes: 100 << 30,
            ..NodeFacts::default()
        });
        facts.capacity.huge_pages = [(2 << 20, 512 << 20), (1 << 30, 0)].into();
        facts.capacity.pods = Some(110);
        facts.for_pods.cpu_millis = 3500;
        facts.system = System { kernel_version: "6.18".to_owned(), os_image: "Debian".to_owned(), ..System::default() };
        let ready = Condition {
            kind: "Ready".to_owned(),
            status: ConditionStatus::True,
            reason: "KeeletReady".to_owned(),
            message: "keelet runs".to_owned(),
            since: Wall::from_millis(1_800_000_000_999),
            seen: Wall::from_millis(1_800_000_060_000),
        };
        let versions = Versions { runtime: Some("containerd://2.4.0"), boot_id: BootId::from_u128(1) };
        let node = object(&facts, &[ready], &[], &versions, Wall::from_millis(1_800_000_000_000));
        let expected = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": "worker", "creationTimestamp": "2027-01-15T08:00:00Z" },
            "status": {
                "addresses": [
                    { "type": "InternalIP", "address": "192.0.2.7" }, { "type": "Hostname", "address": "worker" },
                ],
                "capacity": {
                    "cpu": "4", "memory": "8388608Ki", "ephemeral-storage": "104857600Ki", "pods": "110",
                    "hugepages-2Mi": "512Mi", "hugepages-1Gi": "0",
                },
                "allocatable": {
                    "cpu": "3500m", "memory": "8388608Ki", "ephemeral-storage": "104857600Ki", "pods": "110",
                    "hugepages-2Mi": "512Mi", "hugepages-1Gi": "0",
                },
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "KeeletReady", "message": "keelet runs",
                    "lastTransitionTime": "2027-01-15T08:00:00Z", "lastHeartbeatTime": "2027-01-15T08:01:00Z",
                }],
                "nodeInfo": {
                    "architecture": "", "bootID": "00000000-0000-0000-0000-000000000001",
                    "containerRuntimeVersion": "containerd://2.4.0", "kernelVersion": "6.18",
                    "kubeProxyVersion": "", "kubeletVersion": format!("keelet/{}", env!("CARGO_PKG_VERSION")),
                    "machineID": "", "operatingSystem": "linux", "osImage": "Debian", "systemUUID": "",
                },
            },
        });
        assert_eq!(serde_json::to_value(&node).expect("JSON"), expected);
    }

    #[test]
    fn amounts_are_written_as_people_write_them() {
        assert_eq!((cpus(2000), cpus(1500)), ("2".to_owned(), "1500m".to_owned()));
        let written = [2 << 20, 1 << 30, 64 << 10, 1000, 0].map(binary);
        assert_eq!(written, ["2Mi", "1Gi", "64Ki", "1000", "0"]);
    }
}
