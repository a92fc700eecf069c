//! One container of a validated pod.

use std::{fmt, time::Duration};

use super::{HttpGet, PortError, PortRef, Probe, ProbeKind, TcpSocket};

/// A container with its probes, hooks and restart rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// Unique among all containers of the pod.
    pub name: String,
    /// What kind of container it is.
    pub role: Role,
    /// The image as the manifest names it.
    pub image: String,
    /// When to pull the image.
    pub pull_policy: PullPolicy,
    /// The hash the kubelet stores in `io.kubernetes.container.hash`: it changes with name or image, and with
    /// nothing else.
    pub hash: u32,
    /// The policy that decides when no rule matches: the container's own, else the pod's.
    pub restart_policy: RestartPolicy,
    /// Exit-code rules, first match decides. Empty where the container names no restart policy of its own.
    pub rules: Vec<Rule>,
    /// Holds the other two off until it succeeded once.
    pub startup: Option<Probe>,
    /// Decides whether the container takes traffic.
    pub readiness: Option<Probe>,
    /// Decides whether the container is killed.
    pub liveness: Option<Probe>,
    /// Run after the start, before the next container of the list starts.
    pub post_start: Option<Hook>,
    /// Run before the stop signal, inside the grace period.
    pub pre_stop: Option<Hook>,
    /// Declared ports.
    pub ports: Vec<Port>,
    /// A digest of what resets the crash backoff when it changes besides the image: the resources.
    pub resources_digest: u32,
}

/// The kinds of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs to completion before the next one starts.
    Init,
    /// An init container with restart policy Always: starts in its place in the order and keeps running beside the
    /// others.
    Sidecar,
    /// A regular container.
    Regular,
    /// Added to a running pod for debugging; never restarted.
    Ephemeral,
}

/// `restartPolicy` of a pod or a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Restart whatever the exit code.
    #[default]
    Always,
    /// Restart on a non-zero exit code.
    OnFailure,
    /// Never restart.
    Never,
}

/// One entry of `restartPolicyRules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What a match causes.
    pub action: Action,
    /// What it matches.
    pub exit_codes: ExitCodes,
}

/// What a matching rule causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Restart this container.
    Restart,
    /// Restart every container of the pod in place.
    RestartAllContainers,
}

/// The exit codes a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitCodes {
    /// Whether the values are included or excluded.
    pub operator: Operator,
    /// The values, possibly none.
    pub values: Vec<i32>,
}

/// `operator` of an exit-code rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Matches the listed codes.
    In,
    /// Matches every other code.
    NotIn,
}

/// `imagePullPolicy`, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// Ask the registry before every start.
    Always,
    /// Pull when the node lacks the image.
    IfNotPresent,
    /// Never pull.
    Never,
}

/// A lifecycle hook.
#[derive(Clone, Debug, PartialEq)]
pub enum Hook {
    /// Run a command in the container.
    Exec {
        /// The command and its arguments, no shell.
        command: Vec<String>,
    },
    /// Send a GET request; any response counts as success.
    HttpGet(HttpGet),
    /// The API accepts it; it always fails at run time.
    TcpSocket(TcpSocket),
    /// Wait.
    Sleep(Duration),
}

/// A declared container port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name probes and services refer to it by.
    pub name: Option<String>,
    /// `containerPort`.
    pub number: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

// === impl Container ===

impl Container {
    /// The probe of that kind, if the container has one.
    pub fn probe(&self, kind: ProbeKind) -> Option<&Probe> {
        match kind {
            ProbeKind::Startup => self.startup.as_ref(),
            ProbeKind::Readiness => self.readiness.as_ref(),
            ProbeKind::Liveness => self.liveness.as_ref(),
        }
    }

    /// The port number that a port reference resolves to. Names resolve against this container's own ports only, and an
    /// unknown name is a run-time error of the probe, not of the manifest.
    pub fn resolve_port(&self, port: &PortRef) -> Result<u16, PortError> {
        match port {
            PortRef::Number(number) => Ok(*number),
            PortRef::Name(name) => self
                .ports
                .iter()
                .find(|port| port.name.as_deref() == Some(name))
                .map(|port| port.number)
                .ok_or_else(|| PortError::UnknownName { name: name.clone(), container: self.name.clone() }),
        }
    }
}

// === impl Role ===

impl Role {
    /// Whether containers of this kind may carry probes and are part of readiness.
    pub fn is_probed(self) -> bool {
        matches!(self, Self::Sidecar | Self::Regular)
    }
}

// === impl ExitCodes ===

impl ExitCodes {
    /// Whether an exit code falls under the rule. `In` with no values matches nothing, `NotIn` with none everything.
    pub fn matches(&self, exit_code: i32) -> bool {
        let listed = self.values.contains(&exit_code);
        match self.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
        }
    }
}

impl fmt::Display for RestartPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "Always",
            Self::OnFailure => "OnFailure",
            Self::Never => "Never",
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restart => "Restart",
            Self::RestartAllContainers => "RestartAllContainers",
        })
    }
}
