//! One probe attempt: its turn, its time, its outcome.

use std::{sync::Arc, time::Duration};

use keelet_lifecycle::operation::{Outcome, ProbeReport};
use keelet_pod::{Container, GrpcProbe, Handler, HttpGet, Pod, PortError, Probe, ProbeKind, TcpSocket};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::{
    HOOK_AGENT, PROBE_AGENT,
    door::{Dial, Exec},
    exec, grpc,
    http::{Client, Unanswered},
    tcp, text,
    tls::Tls,
};

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
    /// One permit for each attempt that may run; fair, so nobody waits for ever.
    turns: Semaphore,
}

/// Who is asked.
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

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Who is asked.
    pub target: Target<'a>,
    /// Which of the container's probes it is.
    pub kind: ProbeKind,
    /// The probe.
    pub probe: &'a Probe,
}

/// An attempt that came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempted {
    /// What it showed, with the time the target took.
    pub report: ProbeReport,
    /// How long it waited for its turn before that.
    pub queued: Duration,
}

/// Nobody to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pod has no address")]
pub struct NoAddress;

/// An attempt that could not be made.
#[derive(Debug, thiserror::Error)]
enum Impossible {
    #[error(transparent)]
    NoAddress(#[from] NoAddress),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("port {0} is not between 1 and 65535")]
    PortNumber(u16),
}

// === impl Prober ===

impl Prober {
    /// A prober that makes at most `limit` attempts at a time, one at least.
    pub fn new(dial: Arc<dyn Dial>, exec: Arc<dyn Exec>, limit: usize) -> Self {
        let turns = Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS));
        Self { shared: Arc::new(Shared { dial, exec, tls: Tls::default(), turns }) }
    }

    /// Makes one attempt. Its time begins when it really begins; waiting for its turn is measured apart. If that takes
    /// more than half of the probe's timeout, no attempt is made: it would be late, and show nothing about the target.
    ///
    /// Dropping the future cancels the attempt and closes its connection.
    pub async fn attempt(&self, attempt: Attempt<'_>) -> Attempted {
        let asked = Instant::now();
        let patience = attempt.probe.timeout / 2;
        let turn = timeout(patience, self.shared.turns.acquire()).await;
        let begun = Instant::now();
        let queued = begun - asked;
        let Ok(_turn) = turn else {
            let output = format!("not asked: {} went by before it was this probe's turn", text::limit(queued));
            return Attempted {
                report: ProbeReport { outcome: Outcome::Late, latency: Duration::ZERO, output },
                queued,
            };
        };
        let (mut outcome, mut output) = match self.make(attempt).await {
            Ok(result) => result,
            Err(error) => (Outcome::Error, error.to_string()),
        };
        let latency = begun.elapsed();
        // The target had its time, but nobody was there to see what it did with it: this machine could not keep up.
        let overdue = latency.saturating_sub(attempt.probe.timeout);
        if outcome == Outcome::Failure && overdue > patience && !matches!(attempt.probe.handler, Handler::Exec { .. }) {
            outcome = Outcome::Late;
            output = format!("noticed {} too late: {output}", text::limit(overdue));
        }
        Attempted { report: ProbeReport { outcome, latency, output }, queued }
    }

    async fn make(&self, attempt: Attempt<'_>) -> Result<(Outcome, String), Impossible> {
        let Attempt { target, probe, .. } = attempt;
        match &probe.handler {
            Handler::Exec { command } => Ok(self.run(command, target, probe.timeout).await),
            Handler::HttpGet(get) => self.get(get, target, probe.timeout).await,
            Handler::TcpSocket(socket) => self.knock(socket, target, probe.timeout).await,
            Handler::Grpc(grpc) => self.check(grpc, target, probe.timeout).await,
        }
    }

    async fn run(&self, command: &[String], target: Target<'_>, within: Duration) -> (Outcome, String) {
        let command = exec::expand(command, target.pod, target.container);
        exec::judge(exec::run(self.exec(), target.container_id, &command, within).await)
    }

    async fn get(&self, get: &HttpGet, target: Target<'_>, within: Duration) -> Result<(Outcome, String), Impossible> {
        let host = target.host(get.host.as_deref())?;
        let port = usable(target.container.resolve_port(&get.port)?)?;
        Ok(match self.client(PROBE_AGENT).get(get, host, port, Some(within)).await {
            Ok(reply) => reply.judge(),
            Err(error @ Unanswered::NotSent(_)) => (Outcome::Error, error.to_string()),
            Err(error) => (Outcome::Failure, error.to_string()),
        })
    }

    async fn knock(
        &self,
        socket: &TcpSocket,
        target: Target<'_>,
        within: Duration,
    ) -> Result<(Outcome, String), Impossible> {
        let host = target.host(socket.host.as_deref())?;
        let port = usable(target.container.resolve_port(&socket.port)?)?;
        Ok(match timeout(within, tcp::knock(&*self.shared.dial, host, port)).await {
            Ok(Ok(())) => (Outcome::Success, String::new()),
            Ok(Err(error)) => {
                (Outcome::Failure, format!("connecting to {host} port {port}: {}", text::io_error(&error)))
            }
            Err(_) => (
                Outcome::Failure,
                format!("connecting to {host} port {port}: no answer within {}", text::limit(within)),
            ),
        })
    }

    async fn check(
        &self,
        probe: &GrpcProbe,
        target: Target<'_>,
        within: Duration,
    ) -> Result<(Outcome, String), Impossible> {
        let host = target.host(None)?;
        usable(probe.port)?;
        Ok(match grpc::check(&*self.shared.dial, &self.shared.tls, probe, host, within).await {
            Ok(()) => (Outcome::Success, "SERVING".to_owned()),
            Err(error) => (Outcome::Failure, error.to_string()),
        })
    }

    pub(crate) fn exec(&self) -> &dyn Exec {
        &*self.shared.exec
    }

    pub(crate) fn hook_client(&self) -> Client<'_> {
        self.client(HOOK_AGENT)
    }

    fn client(&self, agent: &'static str) -> Client<'_> {
        Client { dial: &*self.shared.dial, tls: &self.shared.tls, agent }
    }
}

// === impl Target ===

impl<'a> Target<'a> {
    /// The host to connect to: the one that is named, else the pod.
    pub(crate) fn host(&self, named: Option<&'a str>) -> Result<&'a str, NoAddress> {
        named.filter(|host| !host.is_empty()).or(self.address).ok_or(NoAddress)
    }
}

fn usable(port: u16) -> Result<u16, Impossible> {
    if port == 0 { Err(Impossible::PortNumber(port)) } else { Ok(port) }
}
