//! What is asked: from an address or a command back to the container and the probes it may belong to.

use std::{sync::Arc, time::Duration};

use keelet_pod::{Container, Handler, Hook, HttpProtocol, Pod, ProbeKind, Scheme};

use crate::{
    node::Sandbox,
    script::Answer,
    sim::State,
    timeline::{Attempt, Happening, InstanceRef},
};

/// What listens on a port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) container: String,
    pub(crate) protocol: Protocol,
    /// Probes that only open a connection.
    pub(crate) tcp: Vec<ProbeKind>,
}

/// What is spoken on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Neither side ever sends anything.
    Silence,
    Http1,
    /// HTTP/2 in cleartext: gRPC too.
    Http2,
    /// Not simulated.
    Tls,
}

/// The probes of a container that run this command.
pub(crate) fn by_command(pod: &Pod, container: &str, command: &[String]) -> Vec<ProbeKind> {
    let Some(container) = pod.container(container) else { return Vec::new() };
    let asks = |kind: &ProbeKind| matches!(container.probe(*kind).map(|probe| &probe.handler), Some(Handler::Exec { command: own }) if own == command);
    ProbeKind::ALL.into_iter().filter(asks).collect()
}

/// The probes of a container that ask for this path on this port; of several, those that ask for exactly this path.
pub(crate) fn by_path(pod: &Pod, container: &str, port: u16, path: &str) -> Vec<ProbeKind> {
    let Some(container) = pod.container(container) else { return Vec::new() };
    let asks = |kind: &ProbeKind| match container.probe(*kind).map(|probe| &probe.handler) {
        Some(Handler::HttpGet(get)) => container.resolve_port(&get.port) == Ok(port) && get.path == path,
        Some(Handler::Grpc(grpc)) => grpc.port == port && path == GRPC_PATH,
        Some(Handler::Exec { .. } | Handler::TcpSocket(_)) | None => false,
    };
    ProbeKind::ALL.into_iter().filter(asks).collect()
}

/// Where gRPC asks for health.
pub(crate) const GRPC_PATH: &str = "/grpc.health.v1.Health/Check";

/// What listens on that port of the pod, by its probes and hooks, in the order of the containers.
pub(crate) fn on_port(pod: &Pod, port: u16) -> Vec<Port> {
    pod.all_containers().filter_map(|container| listens(container, port)).collect()
}

fn listens(container: &Container, port: u16) -> Option<Port> {
    let mut found = None;
    let mut tcp = Vec::new();
    for kind in ProbeKind::ALL {
        let protocol = match container.probe(kind).map(|probe| &probe.handler) {
            Some(Handler::HttpGet(get)) if container.resolve_port(&get.port) == Ok(port) => {
                match (get.scheme, get.protocol) {
                    (Scheme::Https, _) => Protocol::Tls,
                    (Scheme::Http, HttpProtocol::Http1) => Protocol::Http1,
                    (Scheme::Http, HttpProtocol::Http2) => Protocol::Http2,
                }
            }
            Some(Handler::TcpSocket(socket)) if container.resolve_port(&socket.port) == Ok(port) => {
                tcp.push(kind);
                Protocol::Silence
            }
            Some(Handler::Grpc(grpc)) if grpc.port == port => {
                if grpc.tls {
                    Protocol::Tls
                } else {
                    Protocol::Http2
                }
            }
            _ => continue,
        };
        found = Some(match found {
            Some(other) if protocol == Protocol::Silence => other,
            _ => protocol,
        });
    }
    for hook in [&container.post_start, &container.pre_stop].into_iter().flatten() {
        if matches!(hook, Hook::HttpGet(get) if container.resolve_port(&get.port) == Ok(port)) {
            found = found.filter(|protocol| *protocol != Protocol::Silence).or(Some(Protocol::Http1));
        }
    }
    found.map(|protocol| Port { container: container.name.clone(), protocol, tcp })
}

// === impl State ===

impl State {
    /// The UID of the pod behind an address. Pods on the node's network share every other address.
    pub(crate) fn pods_at(&self, host: &str) -> Vec<Arc<Pod>> {
        let is_up = |sandbox: &Sandbox| sandbox.ready || sandbox.loss.is_some();
        let own = self.node.sandboxes.values().find(|sandbox| sandbox.ip == host && is_up(sandbox));
        match own {
            Some(sandbox) => self.pods.get(&sandbox.pod).cloned().into_iter().collect(),
            None => {
                let hosts = self.node.sandboxes.values().filter(|sandbox| sandbox.host_network && is_up(sandbox));
                hosts.filter_map(|sandbox| self.pods.get(&sandbox.pod).cloned()).collect()
            }
        }
    }

    /// What the script says to a probe of one of these kinds, with the running instance.
    pub(crate) fn scripted_answer(
        &mut self,
        pod: &Pod,
        container: &str,
        kinds: &[ProbeKind],
    ) -> (Option<Arc<InstanceRef>>, Answer) {
        let runs = self
            .node
            .containers
            .values()
            .find(|found| found.instance.pod == pod.uid && found.instance.name == container && found.is_running());
        let age = runs.map_or(Duration::ZERO, |found| found.age());
        let instance = runs.map(|found| Arc::clone(&found.instance));
        let answer = self.scripts.of(&pod.name, container).answer(kinds, age).unwrap_or_default();
        (instance, answer)
    }

    /// Writes down a probe attempt that has just arrived.
    pub(crate) fn note_attempt(&mut self, attempt: Attempt) {
        self.note(Happening::Probed(Arc::new(attempt)));
    }
}
