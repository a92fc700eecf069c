//! One probe attempt: its permit, its time limit, its outcome.

use std::{sync::Arc, time::Duration};

use keelet_lifecycle::{
    node::LOOPBACK,
    operation::{Outcome, ProbeReport},
};
use keelet_pod::{Container, GrpcProbe, Handler, HttpGet, Pod, PortError, PortRef, Probe, ProbeKind, TcpSocket};
use tokio::time::{Instant, timeout};

use crate::{
    HOOK_AGENT, PROBE_AGENT,
    door::{Dial, Exec},
    exec, grpc,
    grpc::Unhealthy,
    http::{Client, Unanswered},
    permits::{Permit, Permits},
    shortage, tcp, text,
    tls::Tls,
};

/// The longest wait for a permit, where half of the probe's timeout is longer. The next attempt is due soon, and the
/// agent should report that this one was not made.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long an attempt holds its permit, if its timeout is longer. Permits protect the node from many attempts that
/// begin at once. A long attempt costs the node next to nothing, and other pods need its permit.
const LONGEST_HOLD: Duration = Duration::from_secs(10);

/// Probes of components of the node that may be configured. Each has a permit, so none waits for another.
pub const MOST_NODE_PROBES: usize = 32;

/// Runs probe attempts and hooks. Clones share everything.
#[derive(Clone, Debug)]
pub struct Prober {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    dial: Arc<dyn Dial>,
    exec: Arc<dyn Exec>,
    tls: Tls,
    /// Commands and attempts over the network have separate permits, so that neither delays the other. A command costs
    /// processes, and a runtime that hangs blocks all commands.
    exec_permits: Permits,
    network_permits: Permits,
    /// Probes of components of the node have permits of their own: they wait for no pod, and no pod waits for them.
    node_permits: Permits,
}

/// The container to probe.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The container in it.
    pub container: &'a Container,
    /// The container's ID as the runtime knows it, without a scheme.
    pub container_id: &'a str,
    /// The pod's primary address; the node's where the pod uses the node's network.
    pub address: Option<&'a str>,
}

/// The attempt to make.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The container to probe.
    pub target: Target<'a>,
    /// The kind of the probe.
    pub kind: ProbeKind,
    /// The probe.
    pub probe: &'a Probe,
}

/// A completed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempted {
    /// The result, with the time that the target took.
    pub report: ProbeReport,
    /// How long the attempt waited for its permit.
    pub queued: Duration,
}

/// There is no host to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pod has no address")]
pub struct NoAddress;

/// An attempt that cannot be made.
#[derive(Debug, thiserror::Error)]
enum Impossible {
    #[error(transparent)]
    NoAddress(#[from] NoAddress),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("port {0} is not between 1 and 65535")]
    PortNumber(u16),
    #[error("a component of the node is probed with httpGet or grpc, at a port by number")]
    NotOnNode,
}

// === impl Prober ===

impl Prober {
    /// A prober with `limit` permits for commands and as many for attempts over the network, at least one of each. Pods
    /// share them fairly.
    pub fn new(dial: Arc<dyn Dial>, exec: Arc<dyn Exec>, limit: usize) -> Self {
        let shared = Shared {
            dial,
            exec,
            tls: Tls::default(),
            exec_permits: Permits::new(limit),
            network_permits: Permits::new(limit),
            node_permits: Permits::new(MOST_NODE_PROBES),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Makes one attempt. Its timeout starts with the permit; the wait for the permit is measured apart. If the wait
    /// exceeds half of the probe's timeout, no attempt is made: it would be late and say nothing about the target.
    ///
    /// An attempt gives up its permit at its timeout, or after [`LONGEST_HOLD`] if that is sooner, whatever the runtime does.
    ///
    /// Dropping the future cancels the attempt and closes its connection.
    pub async fn attempt(&self, attempt: Attempt<'_>) -> Attempted {
        let is_exec = matches!(attempt.probe.handler, Handler::Exec { .. });
        let permits = if is_exec { &self.shared.exec_permits } else { &self.shared.network_permits };
        let permit = permits.acquire(&attempt.target.pod.uid, patience(attempt.probe));
        // Boxed, because it is large and awaited in two places: operations of all kinds would be as large.
        timed(attempt.probe, permit, || Box::pin(self.make(attempt))).await
    }

    /// Makes one attempt at a component of the node, over the node's own network. Its name tells the components apart. Everything else is as
    /// for a container, but for the permits: those of pods are for pods.
    pub async fn attempt_on_node(&self, name: &str, probe: &Probe) -> Attempted {
        let permit = self.shared.node_permits.acquire(name, patience(probe));
        timed(probe, permit, || Box::pin(self.make_on_node(name, probe))).await
    }

    async fn make_on_node(&self, name: &str, probe: &Probe) -> Result<(Outcome, String), Impossible> {
        let within = probe.timeout;
        match &probe.handler {
            Handler::HttpGet(get) => {
                let PortRef::Number(port) = get.port else { return Err(Impossible::NotOnNode) };
                let host = get.host.as_deref().unwrap_or(LOOPBACK);
                Ok(self.get(get, name, host, usable(port)?, within).await)
            }
            Handler::Grpc(grpc) => {
                usable(grpc.port)?;
                Ok(self.check(grpc, name, LOOPBACK, within).await)
            }
            Handler::Exec { .. } | Handler::TcpSocket(_) => Err(Impossible::NotOnNode),
        }
    }

    async fn make(&self, attempt: Attempt<'_>) -> Result<(Outcome, String), Impossible> {
        let Attempt { target, probe, .. } = attempt;
        match &probe.handler {
            Handler::Exec { command } => Ok(self.run(command, target, probe.timeout).await),
            Handler::HttpGet(get) => {
                let host = target.host(get.host.as_deref())?;
                let port = usable(target.container.resolve_port(&get.port)?)?;
                Ok(self.get(get, &target.pod.uid, host, port, probe.timeout).await)
            }
            Handler::TcpSocket(socket) => self.knock(socket, target, probe.timeout).await,
            Handler::Grpc(grpc) => {
                usable(grpc.port)?;
                Ok(self.check(grpc, &target.pod.uid, target.host(None)?, probe.timeout).await)
            }
        }
    }

    async fn run(&self, command: &[String], target: Target<'_>, within: Duration) -> (Outcome, String) {
        let command = exec::expand(command, target.pod, target.container);
        exec::judge(exec::run(self.exec(), target.container_id, &command, within).await)
    }

    /// `of` is the UID of a pod, or the name of a component of the node.
    async fn get(&self, get: &HttpGet, of: &str, host: &str, port: u16, within: Duration) -> (Outcome, String) {
        match self.client(PROBE_AGENT, of).get(get, host, port, Some(within)).await {
            Ok(reply) => reply.judge(),
            Err(error @ Unanswered::NotSent(_)) => (Outcome::Error, error.to_string()),
            Err(error @ Unanswered::Exhausted { .. }) => (Outcome::Late, error.to_string()),
            // A timeout too.
            Err(error) => (Outcome::Failure, error.to_string()),
        }
    }

    async fn knock(
        &self,
        socket: &TcpSocket,
        target: Target<'_>,
        within: Duration,
    ) -> Result<(Outcome, String), Impossible> {
        let host = target.host(socket.host.as_deref())?;
        let port = usable(target.container.resolve_port(&socket.port)?)?;
        Ok(match timeout(within, tcp::knock(&*self.shared.dial, &target.pod.uid, host, port)).await {
            Ok(Ok(())) => (Outcome::Success, String::new()),
            Ok(Err(error)) if shortage::is_ours(&error) => (
                Outcome::Late,
                format!("this node could not connect to {host} port {port}: {}", text::io_error(&error)),
            ),
            Ok(Err(error)) => {
                (Outcome::Failure, format!("connecting to {host} port {port}: {}", text::io_error(&error)))
            }
            Err(_) => {
                (Outcome::Failure, format!("connecting to {host} port {port}: timed out after {}", text::limit(within)))
            }
        })
    }

    async fn check(&self, probe: &GrpcProbe, of: &str, host: &str, within: Duration) -> (Outcome, String) {
        let (dial, tls) = (&*self.shared.dial, &self.shared.tls);
        match grpc::check(dial, tls, probe, of, host, within).await {
            Ok(()) => (Outcome::Success, "SERVING".to_owned()),
            Err(error @ Unhealthy::Exhausted(..)) => (Outcome::Late, error.to_string()),
            // A timeout too.
            Err(error) => (Outcome::Failure, error.to_string()),
        }
    }

    pub(crate) fn exec(&self) -> &dyn Exec {
        &*self.shared.exec
    }

    pub(crate) fn hook_client<'a>(&'a self, target: Target<'a>) -> Client<'a> {
        self.client(HOOK_AGENT, &target.pod.uid)
    }

    fn client<'a>(&'a self, agent: &'static str, of: &'a str) -> Client<'a> {
        Client { dial: &*self.shared.dial, tls: &self.shared.tls, pod: of, agent }
    }
}

// === impl Target ===

impl<'a> Target<'a> {
    /// The host to connect to: the configured one, or the pod.
    pub(crate) fn host(&self, named: Option<&'a str>) -> Result<&'a str, NoAddress> {
        named.filter(|host| !host.is_empty()).or(self.address).ok_or(NoAddress)
    }
}

/// How long an attempt waits for its permit.
fn patience(probe: &Probe) -> Duration {
    (probe.timeout / 2).min(LONGEST_WAIT)
}

/// Makes an attempt once it has its permit, within its timeout.
async fn timed<F: Future<Output = Result<(Outcome, String), Impossible>> + Unpin>(
    probe: &Probe,
    permit: impl Future<Output = Option<Permit>>,
    make: impl FnOnce() -> F,
) -> Attempted {
    let asked = Instant::now();
    let is_exec = matches!(probe.handler, Handler::Exec { .. });
    let half = probe.timeout / 2;
    let permit = permit.await;
    let begun = Instant::now();
    let queued = begun - asked;
    let Some(permit) = permit else {
        let output = format!("not attempted: no free permit within {}", text::limit(queued));
        return Attempted { report: ProbeReport { outcome: Outcome::Late, latency: Duration::ZERO, output }, queued };
    };
    // An attempt over the network ends by itself at its timeout; a command ends when the runtime says so.
    let made = make();
    let made = if is_exec || probe.timeout > LONGEST_HOLD {
        hold(permit, probe.timeout.min(LONGEST_HOLD), made).await
    } else {
        let _permit = permit;
        made.await
    };
    let (mut outcome, mut output) = match made {
        Ok(result) => result,
        Err(error) => (Outcome::Error, error.to_string()),
    };
    let latency = begun.elapsed();
    // The agent saw the result more than half a timeout after the deadline: the node's CPU was busy, and the target may have
    // answered in time.
    let overdue = latency.saturating_sub(probe.timeout);
    if outcome == Outcome::Failure && overdue > half && !is_exec {
        outcome = Outcome::Late;
        output = format!("observed {} too late: {output}", text::limit(overdue));
    }
    Attempted { report: ProbeReport { outcome, latency, output }, queued }
}

/// Makes an attempt that holds its permit for at most that long.
async fn hold<F: Future>(mut permit: Permit, at_most: Duration, made: F) -> F::Output {
    let mut made = std::pin::pin!(made);
    if let Ok(done) = timeout(at_most, &mut made).await {
        return done;
    }
    permit.give_back();
    made.await
}

fn usable(port: u16) -> Result<u16, Impossible> {
    if port == 0 { Err(Impossible::PortNumber(port)) } else { Ok(port) }
}
