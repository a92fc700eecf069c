//! Probes and their four handlers.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// A probe with every default resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// How the probe checks the container.
    pub handler: Handler,
    /// The delay of the first attempt, from the container's start.
    pub initial_delay: Duration,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// The interval between attempts. Whole seconds, unless the annotation
    /// `keelet.dev/probe-period-ms.<container>.<type>` sets another one (at least 100 ms).
    pub period: Duration,
    /// Consecutive successes until the probe counts as passed.
    pub success_threshold: u32,
    /// Consecutive failures until the probe counts as failed.
    pub failure_threshold: u32,
    /// Grace period of a kill that this probe causes; the pod's if unset.
    pub termination_grace: Option<Duration>,
}

/// The three kinds of probes, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// Has the container started?
    Startup,
    /// Does it take traffic?
    Readiness,
    /// Does it have to be killed?
    Liveness,
}

/// How a probe checks the container.
#[derive(Clone, Debug, PartialEq)]
pub enum Handler {
    /// Run a command in the container.
    Exec {
        /// The command and its arguments, no shell.
        command: Vec<String>,
    },
    /// Send a GET request.
    HttpGet(HttpGet),
    /// Open a TCP connection.
    TcpSocket(TcpSocket),
    /// Call `grpc.health.v1.Health/Check`.
    Grpc(GrpcProbe),
}

/// `httpGet` of a probe or a hook.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpGet {
    /// The host to connect to; the pod's address if unset.
    pub host: Option<String>,
    /// The port.
    pub port: PortRef,
    /// Path and query, never empty.
    pub path: String,
    /// http or https.
    pub scheme: Scheme,
    /// Header names and values, in order, repeats kept.
    pub headers: Vec<(String, String)>,
    /// The HTTP version spoken over cleartext.
    pub protocol: HttpProtocol,
}

/// `tcpSocket` of a probe or a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// The host to connect to; the pod's address if unset.
    pub host: Option<String>,
    /// The port.
    pub port: PortRef,
}

/// `grpc` of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcProbe {
    /// The port, always a number.
    pub port: u16,
    /// The service to check, possibly empty.
    pub service: String,
    /// Whether to speak TLS (unverified).
    pub tls: bool,
}

/// A port by number or by the name of one of the container's ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRef {
    /// 1 to 65535.
    Number(u16),
    /// Looked up when the probe runs.
    Name(String),
}

/// `scheme` of an `httpGet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Cleartext.
    Http,
    /// TLS, certificates not verified.
    Https,
}

/// `protocol` of an `httpGet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 over cleartext with prior knowledge.
    Http2,
}

/// A port reference that does not resolve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// No port of the container has this name.
    #[error("container {container:?} has no port named {name:?}")]
    UnknownName {
        /// The name in the reference.
        name: String,
        /// The container that was searched.
        container: String,
    },
}

// === impl ProbeKind ===

impl ProbeKind {
    /// All kinds, startup first.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// The name in lower case, as in annotations and kill reasons.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }

    /// The name as events and metrics spell it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
