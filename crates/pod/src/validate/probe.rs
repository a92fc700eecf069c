//! Probes and their handlers (API-1 to API-9).

use std::time::Duration;

use k8s_openapi::api::core::v1;

use crate::{
    Container, GrpcProbe, Handler, HttpGet, HttpProtocol, PortRef, Probe, ProbeKind, Scheme, TcpSocket, defaults,
    names,
    path::FieldPath,
    problem::{Detail, forbidden, invalid, quoted, required, suspicious, unsupported},
    review::Review,
};

use super::{choice, port};

const SCHEMES: [(&str, Scheme); 2] = [("HTTP", Scheme::Http), ("HTTPS", Scheme::Https)];
const HTTP_PROTOCOLS: [(&str, HttpProtocol); 2] = [("HTTP1", HttpProtocol::Http1), ("HTTP2", HttpProtocol::Http2)];
const GRPC_MODES: [(&str, bool); 2] = [("Plaintext", false), ("TLS", true)];

/// Checks the three probes of a container and adds them to the model.
pub(super) fn build(raw: &v1::Container, container: &mut Container, path: &FieldPath, review: &mut Review<'_>) {
    let build = |kind, field: &'static str, raw: &Option<v1::Probe>, review: &mut Review<'_>| {
        build_probe(raw.as_ref()?, kind, Some(container), &path.field(field), review)
    };
    let liveness = build(ProbeKind::Liveness, "livenessProbe", &raw.liveness_probe, review);
    let readiness = build(ProbeKind::Readiness, "readinessProbe", &raw.readiness_probe, review);
    let startup = build(ProbeKind::Startup, "startupProbe", &raw.startup_probe, review);
    (container.liveness, container.readiness, container.startup) = (liveness, readiness, startup);
}

/// Checks the probe of a component of the node (VEC-81): it asks over the network, at a port by number. A number that is written has to be
/// a usable one: zero is an error here, not a word for the default.
pub(crate) fn node_probe(raw: &v1::Probe, path: &FieldPath, review: &mut Review<'_>) -> Option<Probe> {
    for (field, value) in [
        ("timeoutSeconds", raw.timeout_seconds),
        ("periodSeconds", raw.period_seconds),
        ("successThreshold", raw.success_threshold),
        ("failureThreshold", raw.failure_threshold),
    ] {
        if value == Some(0) {
            review.object(&path.field(field), invalid(0, "must be greater than 0"));
        }
    }
    for (field, given) in [("exec", raw.exec.is_some()), ("tcpSocket", raw.tcp_socket.is_some())] {
        if given {
            let why = "a probe of the node asks over HTTP or gRPC: one of httpGet, grpc";
            review.refuse(&path.field(field), forbidden(why));
            return None;
        }
    }
    for (index, header) in raw.http_get.iter().flat_map(|get| get.http_headers.iter().flatten()).enumerate() {
        if header.value.chars().any(char::is_control) {
            let path = path.field("httpGet").field("httpHeaders").index(index).field("value");
            review.object(&path, invalid(quoted(&header.value), "must not contain control characters"));
        }
    }
    let mut raw = raw.clone();
    defaults::of_probe(&mut raw);
    let probe = build_probe(&raw, ProbeKind::Readiness, None, path, review)?;
    if let Handler::HttpGet(HttpGet { port: PortRef::Name(name), .. }) = &probe.handler {
        let message = "must be a number between 1 and 65535: a component of the node has no named ports";
        review.refuse(&path.field("httpGet").field("port"), invalid(quoted(name), message));
        return None;
    }
    Some(probe)
}

fn build_probe(
    raw: &v1::Probe,
    kind: ProbeKind,
    container: Option<&Container>,
    path: &FieldPath,
    review: &mut Review<'_>,
) -> Option<Probe> {
    let handler = build_handler(raw, container, path, review);
    let mut seconds = |field: &'static str, value: Option<i32>, default: u32| match u32::try_from(value.unwrap_or(0)) {
        Ok(value) => value,
        Err(_) => {
            review.object(&path.field(field), invalid(value.unwrap_or(0), "must be greater than or equal to 0"));
            default
        }
    };
    let initial_delay = seconds("initialDelaySeconds", raw.initial_delay_seconds, 0);
    let timeout = seconds("timeoutSeconds", raw.timeout_seconds, 1);
    let period = seconds("periodSeconds", raw.period_seconds, 10);
    let mut success_threshold = seconds("successThreshold", raw.success_threshold, 1);
    let failure_threshold = seconds("failureThreshold", raw.failure_threshold, 3);
    if kind != ProbeKind::Readiness && success_threshold != 1 {
        let message = format!("must be 1 for {kind} probes");
        review.object(&path.field("successThreshold"), invalid(success_threshold, message));
        success_threshold = 1;
    }
    let termination_grace = grace(raw, kind, path, review);
    Some(Probe {
        handler: handler?,
        initial_delay: Duration::from_secs(initial_delay.into()),
        timeout: Duration::from_secs(timeout.into()),
        period: Duration::from_secs(period.into()),
        success_threshold,
        failure_threshold,
        termination_grace,
    })
}

/// API-4
fn grace(raw: &v1::Probe, kind: ProbeKind, path: &FieldPath, review: &mut Review<'_>) -> Option<Duration> {
    let seconds = raw.termination_grace_period_seconds?;
    let path = path.field("terminationGracePeriodSeconds");
    if kind == ProbeKind::Readiness {
        review.object(&path, invalid(seconds, "must not be set for readinessProbes"));
        return None;
    }
    match u64::try_from(seconds) {
        Ok(seconds) if seconds > 0 => Some(Duration::from_secs(seconds)),
        _ => {
            review.object(&path, invalid(seconds, "must be greater than 0"));
            None
        }
    }
}

/// API-1: exactly one handler. If there are several, only the first is checked.
fn build_handler(
    raw: &v1::Probe,
    container: Option<&Container>,
    path: &FieldPath,
    review: &mut Review<'_>,
) -> Option<Handler> {
    let given = [
        ("exec", raw.exec.is_some()),
        ("httpGet", raw.http_get.is_some()),
        ("tcpSocket", raw.tcp_socket.is_some()),
        ("grpc", raw.grpc.is_some()),
    ];
    let first = only_one(&given, path, review)?;
    let path = path.field(first);
    if let Some(exec) = &raw.exec {
        return exec_command(exec, &path, review).map(|command| Handler::Exec { command });
    }
    if let Some(http) = &raw.http_get {
        let http = http_get(http, &path, review)?;
        warn_of_unknown_port(&http.port, container, &path, review);
        return Some(Handler::HttpGet(http));
    }
    if let Some(tcp) = &raw.tcp_socket {
        let tcp = tcp_socket(tcp, &path, review)?;
        warn_of_unknown_port(&tcp.port, container, &path, review);
        return Some(Handler::TcpSocket(tcp));
    }
    grpc(raw.grpc.as_ref()?, &path, review).map(Handler::Grpc)
}

/// The name of the only handler given, or of the first one.
pub(super) fn only_one(
    given: &[(&'static str, bool)],
    path: &FieldPath,
    review: &mut Review<'_>,
) -> Option<&'static str> {
    let mut names = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name);
    let Some(first) = names.next() else {
        let all: Vec<_> = given.iter().map(|(name, _)| *name).collect();
        review.refuse(path, required(format!("must specify a handler type: one of {}", all.join(", "))));
        return None;
    };
    for name in names {
        review.object(
            &path.field(name),
            forbidden(format!("may not specify more than one handler type, {first} is given")),
        );
    }
    Some(first)
}

/// API-8: `exec` of a probe or a hook.
pub(super) fn exec_command(exec: &v1::ExecAction, path: &FieldPath, review: &mut Review<'_>) -> Option<Vec<String>> {
    let command = exec.command.clone().unwrap_or_default();
    if command.is_empty() {
        review.refuse(&path.field("command"), required("at least one element"));
        return None;
    }
    Some(command)
}

/// API-6: `httpGet` of a probe or a hook.
pub(super) fn http_get(raw: &v1::HTTPGetAction, path: &FieldPath, review: &mut Review<'_>) -> Option<HttpGet> {
    let port = port::reference(&raw.port, &path.field("port"), review);
    let scheme = raw.scheme.as_deref().unwrap_or_default();
    let scheme = choice(review, &path.field("scheme"), scheme, &SCHEMES).unwrap_or(Scheme::Http);
    let host = raw.host.clone().filter(|host| !host.is_empty());
    for (index, header) in raw.http_headers.iter().flatten().enumerate() {
        if let Err(why) = names::header(&header.name) {
            let path = path.field("httpHeaders").index(index).field("name");
            review.object(&path, invalid(quoted(&header.name), why));
        }
    }
    let protocol = match raw.protocol.as_deref() {
        None => HttpProtocol::Http1,
        Some(word) => choice(review, &path.field("protocol"), word, &HTTP_PROTOCOLS).unwrap_or(HttpProtocol::Http1),
    };
    if protocol == HttpProtocol::Http2 {
        if scheme != Scheme::Http {
            let detail: Detail = unsupported("HTTPS", &["HTTP"]);
            review.object(&path.field("scheme"), with(detail, "protocol HTTP2 is spoken in cleartext only"));
        }
        if let Some(host) = &host {
            let message = "must be empty when protocol is HTTP2: the probe connects to the pod itself";
            review.object(&path.field("host"), invalid(quoted(host), message));
        }
    }
    Some(HttpGet {
        host,
        port: port?,
        path: raw.path.clone().unwrap_or_else(|| "/".to_owned()),
        scheme,
        headers: raw.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect(),
        protocol,
    })
}

/// API-8: `tcpSocket` of a probe or a hook.
pub(super) fn tcp_socket(raw: &v1::TCPSocketAction, path: &FieldPath, review: &mut Review<'_>) -> Option<TcpSocket> {
    let port = port::reference(&raw.port, &path.field("port"), review)?;
    Some(TcpSocket { host: raw.host.clone().filter(|host| !host.is_empty()), port })
}

/// API-8
fn grpc(raw: &v1::GRPCAction, path: &FieldPath, review: &mut Review<'_>) -> Option<GrpcProbe> {
    let tls = match raw.mode.as_deref() {
        None => false,
        Some(mode) => choice(review, &path.field("mode"), mode, &GRPC_MODES).unwrap_or(false),
    };
    let port = port::target(raw.port, &path.field("port"), review)?;
    Some(GrpcProbe { port, service: raw.service.clone().unwrap_or_default(), tls })
}

/// API-7: an unknown name is an error of every attempt, not of the manifest.
fn warn_of_unknown_port(port: &PortRef, container: Option<&Container>, path: &FieldPath, review: &mut Review<'_>) {
    if let Some(Err(error)) = container.map(|container| container.resolve_port(port)) {
        review.warn(&path.field("port"), suspicious(format!("{error}: the probe can never succeed")));
    }
}

fn with(mut detail: Detail, reason: &str) -> Detail {
    detail.message = format!("{}; {reason}", detail.message);
    detail
}
