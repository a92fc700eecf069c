//! What a simulated network has not: TLS, and hosts other than the pod. Probes that need them ask the pod in plain text.

use keelet_pod::{Features, Pod};

/// The pod as it can be simulated, and what is different about it.
pub(super) fn plain(pod: Pod, features: &Features) -> (Pod, Vec<String>) {
    let mut source = (*pod.source).clone();
    let mut remarks = Vec::new();
    let Some(spec) = source.spec.as_mut() else { return (pod, remarks) };
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let probes = [
            ("startup", &mut container.startup_probe),
            ("readiness", &mut container.readiness_probe),
            ("liveness", &mut container.liveness_probe),
        ];
        for (kind, probe) in probes {
            let Some(probe) = probe else { continue };
            let mut left_out = Vec::new();
            if let Some(get) = &mut probe.http_get {
                if get.scheme.take_if(|scheme| scheme.eq_ignore_ascii_case("https")).is_some() {
                    left_out.push("TLS");
                }
                if get.host.take().is_some_and(|host| !host.is_empty()) {
                    left_out.push("host");
                }
            }
            if let Some(socket) = &mut probe.tcp_socket
                && socket.host.take().is_some_and(|host| !host.is_empty())
            {
                left_out.push("host");
            }
            if let Some(grpc) = &mut probe.grpc
                && grpc.mode.take_if(|mode| mode == "TLS").is_some()
            {
                left_out.push("TLS");
            }
            if !left_out.is_empty() {
                remarks.push(format!(
                    "{}: {kind} is simulated without its {}",
                    container.name,
                    left_out.join(" and its ")
                ));
            }
        }
    }
    if remarks.is_empty() {
        return (pod, remarks);
    }
    // What is valid with TLS is valid without.
    match pod.changed(source, features) {
        Ok(plain) => (plain, remarks),
        Err(_) => (pod, Vec::new()),
    }
}
