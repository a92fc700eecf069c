//! Declared ports, and references to them.

use std::collections::BTreeSet;

use k8s_openapi::{api::core::v1, apimachinery::pkg::util::intstr::IntOrString};

use crate::{
    Port, PortRef, Role, names,
    path::FieldPath,
    problem::{duplicate, invalid, quoted, required},
    review::Review,
};

use super::{Unique, choice, container::Around, within};

const PROTOCOLS: [(&str, &str); 3] = [("TCP", "TCP"), ("UDP", "UDP"), ("SCTP", "SCTP")];

/// The host ports that a pod's regular containers use.
#[derive(Default)]
pub(super) struct HostPorts(BTreeSet<(String, i32, String)>);

/// Checks a container's ports and builds the model's ports from them.
pub(super) fn build(
    raw: &v1::Container,
    role: Role,
    around: &mut Around<'_>,
    path: &FieldPath,
    review: &mut Review<'_>,
) -> Vec<Port> {
    let mut names = Unique::default();
    let host_network = around.spec.host_network.unwrap_or_default();
    // Init containers run one after the other, so each may use the same host ports.
    let mut own = HostPorts::default();
    let claimed = if role == Role::Regular { &mut around.host_ports } else { &mut own };
    let mut ports = Vec::new();
    for (index, raw) in raw.ports.iter().flatten().enumerate() {
        let path = path.field("ports").index(index);
        if let Some(name) = raw.name.as_deref().filter(|name| !name.is_empty()) {
            match names::port_name(name) {
                Err(why) => review.object(&path.field("name"), invalid(quoted(name), why)),
                Ok(()) => {
                    names.claim(review, &path.field("name"), name);
                }
            }
        }
        let protocol = raw.protocol.as_deref().unwrap_or_default();
        let protocol = choice(review, &path.field("protocol"), protocol, &PROTOCOLS).unwrap_or("TCP");
        check_host_port(raw, protocol, host_network, claimed, &path, review);
        let number = match raw.container_port {
            0 => {
                review.object(&path.field("containerPort"), required("must be between 1 and 65535, inclusive"));
                None
            }
            number => declared(number, &path.field("containerPort"), review),
        };
        if let Some(number) = number {
            let name = raw.name.clone().filter(|name| !name.is_empty());
            ports.push(Port { name, number, protocol: protocol.to_owned() });
        }
    }
    ports
}

/// A port that a probe or hook refers to. An unknown name is not an error of the manifest (API-7).
pub(super) fn reference(port: &IntOrString, path: &FieldPath, review: &mut Review<'_>) -> Option<PortRef> {
    match port {
        IntOrString::Int(number) => target(*number, path, review).map(PortRef::Number),
        IntOrString::String(name) => {
            if let Err(why) = names::port_name(name) {
                review.object(path, invalid(quoted(name), why));
            }
            Some(PortRef::Name(name.clone()))
        }
    }
}

/// A port number to connect to. An invalid one refuses the pod, because no sensible reading is left.
pub(super) fn target(number: i32, path: &FieldPath, review: &mut Review<'_>) -> Option<u16> {
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    if port.is_none() {
        review.refuse(path, invalid(number, "must be between 1 and 65535, inclusive"));
    }
    port
}

/// A declared port number. An invalid one is treated as undeclared.
fn declared(number: i32, path: &FieldPath, review: &mut Review<'_>) -> Option<u16> {
    within(review, path, number.into(), 1, u16::MAX.into()).then(|| u16::try_from(number).ok())?
}

fn check_host_port(
    raw: &v1::ContainerPort,
    protocol: &str,
    host_network: bool,
    claimed: &mut HostPorts,
    path: &FieldPath,
    review: &mut Review<'_>,
) {
    let number = raw.host_port.unwrap_or_default();
    if number == 0 {
        return;
    }
    let path = path.field("hostPort");
    if declared(number, &path, review).is_none() {
        return;
    }
    if host_network && number != raw.container_port {
        let message = "must equal containerPort when hostNetwork is true";
        review.object(&path, invalid(number, message));
    }
    let claim = (raw.host_ip.clone().unwrap_or_default(), number, protocol.to_owned());
    if !claimed.0.insert(claim) {
        review.object(&path, duplicate(number));
    }
}
