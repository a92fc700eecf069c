//! Variables that tell a container where services are.

use serde::{Deserialize, Serialize};

/// A service with an address of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its address.
    pub ip: String,
    /// Its ports, in the order of the API.
    pub ports: Vec<ServicePort>,
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePort {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// The namespace and name of the service that is the API server.
const API_SERVER: (&str, &str) = ("default", "kubernetes");

/// Whether a pod of this namespace has variables of the service: always of the API server; with links, of all in its own namespace.
pub fn is_linked(service: &Service, namespace: &str, links: bool) -> bool {
    let is_api_server = (service.namespace.as_str(), service.name.as_str()) == API_SERVER;
    is_api_server || (links && service.namespace == namespace)
}

/// The variables for a pod of this namespace. Of two services of one name, the pod's own counts, but never instead of the API server.
pub fn service_variables<'a>(
    services: impl IntoIterator<Item = &'a Service>,
    namespace: &str,
    links: bool,
) -> Vec<(String, String)> {
    let mut linked: Vec<_> = services.into_iter().filter(|service| is_linked(service, namespace, links)).collect();
    let is_master = |service: &Service| service.namespace == API_SERVER.0 && service.name == API_SERVER.1;
    linked.sort_by_key(|service| (&service.name, !is_master(service)));
    linked.dedup_by_key(|service| &service.name);
    linked.into_iter().flat_map(variables).collect()
}

/// As Docker links made them, and shorter ones.
fn variables(service: &Service) -> Vec<(String, String)> {
    let name = variable_name(&service.name);
    let mut found = vec![(format!("{name}_SERVICE_HOST"), service.ip.clone())];
    let Some(first) = service.ports.first() else { return found };
    found.push((format!("{name}_SERVICE_PORT"), first.port.to_string()));
    for port in service.ports.iter().filter(|port| !port.name.is_empty()) {
        found.push((format!("{name}_SERVICE_PORT_{}", variable_name(&port.name)), port.port.to_string()));
    }
    let host = if service.ip.contains(':') { format!("[{}]", service.ip) } else { service.ip.clone() };
    let url = |port: &ServicePort| format!("{}://{host}:{}", port.protocol.to_lowercase(), port.port);
    found.push((format!("{name}_PORT"), url(first)));
    for port in &service.ports {
        let prefix = format!("{name}_PORT_{}_{}", port.port, port.protocol.to_uppercase());
        found.push((prefix.clone(), url(port)));
        found.push((format!("{prefix}_PROTO"), port.protocol.to_lowercase()));
        found.push((format!("{prefix}_PORT"), port.port.to_string()));
        found.push((format!("{prefix}_ADDR"), service.ip.clone()));
    }
    found
}

fn variable_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(namespace: &str, name: &str, ip: &str, ports: &[(&str, i32, &str)]) -> Service {
        let port = |(name, port, protocol): &(&str, i32, &str)| ServicePort {
            name: (*name).to_owned(),
            port: *port,
            protocol: (*protocol).to_owned(),
        };
        let ports = ports.iter().map(port).collect();
        Service { namespace: namespace.to_owned(), name: name.to_owned(), ip: ip.to_owned(), ports }
    }

    fn names(services: &[Service], namespace: &str, links: bool) -> Vec<String> {
        let all = service_variables(services, namespace, links).into_iter();
        all.filter(|(name, _)| name.ends_with("_SERVICE_HOST")).map(|(name, ip)| format!("{name}={ip}")).collect()
    }

    /// CLU-29
    #[test]
    fn a_pod_sees_the_services_of_its_namespace_and_always_the_api_server() {
        let services = [
            service("default", "kubernetes", "10.0.0.1", &[("https", 443, "TCP")]),
            service("default", "web", "10.0.0.2", &[]),
            service("shop", "web", "10.0.0.3", &[]),
            service("shop", "kubernetes", "10.0.0.4", &[]),
            service("home", "web", "10.0.0.5", &[]),
        ];
        let api_server = "KUBERNETES_SERVICE_HOST=10.0.0.1";
        assert_eq!(names(&services, "shop", true), [api_server, "WEB_SERVICE_HOST=10.0.0.3"]);
        assert_eq!(names(&services, "shop", false), [api_server]);
        assert_eq!(names(&services, "default", true), [api_server, "WEB_SERVICE_HOST=10.0.0.2"]);
        assert_eq!(names(&services, "default", false), [api_server]);
    }

    /// CLU-29
    #[test]
    fn variables_of_a_service_are_named_as_the_kubelet_names_them() {
        let found = variables(&service("shop", "my-db", "10.0.0.9", &[("sql", 5432, "TCP"), ("dns-udp", 53, "UDP")]));
        let shown: Vec<_> = found.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            shown,
            [
                "MY_DB_SERVICE_HOST=10.0.0.9",
                "MY_DB_SERVICE_PORT=5432",
                "MY_DB_SERVICE_PORT_SQL=5432",
                "MY_DB_SERVICE_PORT_DNS_UDP=53",
                "MY_DB_PORT=tcp://10.0.0.9:5432",
                "MY_DB_PORT_5432_TCP=tcp://10.0.0.9:5432",
                "MY_DB_PORT_5432_TCP_PROTO=tcp",
                "MY_DB_PORT_5432_TCP_PORT=5432",
                "MY_DB_PORT_5432_TCP_ADDR=10.0.0.9",
                "MY_DB_PORT_53_UDP=udp://10.0.0.9:53",
                "MY_DB_PORT_53_UDP_PROTO=udp",
                "MY_DB_PORT_53_UDP_PORT=53",
                "MY_DB_PORT_53_UDP_ADDR=10.0.0.9",
            ]
        );
        let six = variables(&service("shop", "six", "fd00::9", &[("", 80, "TCP")]));
        assert!(six.contains(&("SIX_PORT".to_owned(), "tcp://[fd00::9]:80".to_owned())), "{six:?}");
    }
}
