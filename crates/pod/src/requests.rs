//! What a pod takes of a node: resources that it requests, and ports of the node.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1, apimachinery::pkg::api::resource::Quantity as RawQuantity};

use crate::{Pod, Quantity};

/// What a pod requests, with everything that the scheduler counts too: containers that run side by side are added up, init containers that run
/// before them count as far as they need more, the overhead comes on top, and requests of the whole pod win over those of its containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Processors in thousandths.
    pub cpu_millis: i64,
    /// Memory.
    pub memory_bytes: i64,
    /// Room for images, logs and writable layers.
    pub storage_bytes: i64,
}

/// A port of the node that a pod takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// The address; empty for all of the node's.
    pub address: String,
    /// The port.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

type Amounts = Option<BTreeMap<String, RawQuantity>>;

// === impl Pod ===

impl Pod {
    /// What the pod requests.
    pub fn requests(&self) -> Requests {
        let Some(spec) = self.source.spec.as_ref() else { return Requests::default() };
        let own = |container: &v1::Container| Requests::of(container.resources.as_ref().map(|r| &r.requests));
        let is_sidecar = |container: &&v1::Container| container.restart_policy.as_deref() == Some("Always");
        let (mut beside, mut most) = (Requests::default(), Requests::default());
        for container in spec.init_containers.iter().flatten() {
            let needs = own(container).plus(beside);
            most = most.max(needs);
            if is_sidecar(&container) {
                beside = needs;
            }
        }
        let running = spec.containers.iter().map(own).fold(beside, Requests::plus);
        let of_containers = running.max(most);
        let of_pod = spec.resources.as_ref().map(|resources| &resources.requests);
        let named = |name: &str| of_pod.and_then(Option::as_ref).is_some_and(|amounts| amounts.contains_key(name));
        let whole = Requests::of(of_pod);
        let total = Requests {
            cpu_millis: if named("cpu") { whole.cpu_millis } else { of_containers.cpu_millis },
            memory_bytes: if named("memory") { whole.memory_bytes } else { of_containers.memory_bytes },
            storage_bytes: of_containers.storage_bytes,
        };
        total.plus(Requests::of(Some(&spec.overhead)))
    }

    /// The ports of the node that the pod takes while it runs.
    pub fn host_ports(&self) -> Vec<HostPort> {
        let Some(spec) = self.source.spec.as_ref() else { return Vec::new() };
        let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
        let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
        let taken = |port: &v1::ContainerPort| {
            let number = u16::try_from(port.host_port?).ok().filter(|number| *number > 0)?;
            let address = port.host_ip.clone().filter(|ip| !["0.0.0.0", "::"].contains(&ip.as_str()));
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some(HostPort { address: address.unwrap_or_default(), port: number, protocol })
        };
        ports.filter_map(taken).collect()
    }
}

// === impl Requests ===

impl Requests {
    fn of(amounts: Option<&Amounts>) -> Self {
        let amount = |name: &str| {
            let text = amounts.and_then(Option::as_ref).and_then(|amounts| amounts.get(name));
            text.and_then(|text| Quantity::parse(&text.0))
        };
        Self {
            cpu_millis: amount("cpu").map_or(0, Quantity::millis),
            memory_bytes: amount("memory").map_or(0, Quantity::units),
            storage_bytes: amount("ephemeral-storage").map_or(0, Quantity::units),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            storage_bytes: self.storage_bytes.saturating_add(other.storage_bytes),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.max(other.cpu_millis),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            storage_bytes: self.storage_bytes.max(other.storage_bytes),
        }
    }
}

// === impl HostPort ===

impl HostPort {
    /// Whether both cannot be taken at once.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let same_address = self.address.is_empty() || other.address.is_empty() || self.address == other.address;
        same_address && self.port == other.port && self.protocol == other.protocol
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_one;

    fn pod(spec: &str) -> Pod {
        parse_one(&format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {spec}\n")).unwrap()
    }

    /// CLU-20: as the scheduler counts.
    #[test]
    fn requests_are_counted_as_the_scheduler_counts_them() {
        let one = |cpu: &str, more: &str| {
            format!("{{name: c{}, image: i, resources: {{requests: {{cpu: '{cpu}'}}}}{more}}}", cpu.len())
        };
        let cpu = |spec: &str| pod(spec).requests().cpu_millis;
        assert_eq!(cpu("{containers: [{name: a, image: i}]}"), 0);
        let two = "{name: a, image: i, resources: {requests: {cpu: 100m, memory: 1Gi}}}, {name: b, image: i, resources: {limits: {cpu: 2, memory: 1Mi, ephemeral-storage: 5Gi}}}";
        let both = pod(&format!("{{containers: [{two}]}}")).requests();
        assert_eq!(both, Requests { cpu_millis: 2100, memory_bytes: (1 << 30) + (1 << 20), storage_bytes: 5 << 30 });
        let side = one("300m", ", restartPolicy: Always");
        let init = one("1", "");
        let main = one("0.5", "");
        assert_eq!(
            cpu(&format!("{{containers: [{main}], initContainers: [{init}]}}")),
            1000,
            "an init container that needs more"
        );
        assert_eq!(cpu(&format!("{{containers: [{main}], initContainers: [{side}]}}")), 800, "a sidecar runs beside");
        assert_eq!(
            cpu(&format!("{{containers: [{main}], initContainers: [{side}, {init}]}}")),
            1300,
            "and beside init containers"
        );
        assert_eq!(cpu(&format!("{{overhead: {{cpu: 250m}}, containers: [{main}]}}")), 750);
        assert_eq!(cpu(&format!("{{resources: {{requests: {{cpu: 4}}}}, containers: [{main}]}}")), 4000);
    }

    /// CLU-20
    #[test]
    fn ports_of_the_node_conflict_by_address_port_and_protocol() {
        let ports =
            |ports: &str| pod(&format!("{{containers: [{{name: a, image: i, ports: [{ports}]}}]}}")).host_ports();
        assert_eq!(ports("{containerPort: 80}").len(), 0);
        let conflict = |a: &str, b: &str| ports(a)[0].conflicts_with(&ports(b)[0]);
        let any = "{containerPort: 80, hostPort: 80}";
        for (other, expected) in [
            (any, true),
            ("{containerPort: 1, hostPort: 80, hostIP: 192.0.2.1}", true),
            ("{containerPort: 1, hostPort: 80, hostIP: 0.0.0.0}", true),
            ("{containerPort: 1, hostPort: 80, protocol: UDP}", false),
            ("{containerPort: 80, hostPort: 81}", false),
        ] {
            assert_eq!(conflict(any, other), expected, "{other}");
        }
        let [here, there] =
            ["192.0.2.1", "192.0.2.2"].map(|ip| format!("{{containerPort: 1, hostPort: 80, hostIP: {ip}}}"));
        assert!(!conflict(&here, &there) && conflict(&here, &here));
    }
}
