//! One probe attempt: its turn, its time, its outcome.

use std::{sync::Arc, time::Duration};

use keelet_lifecycle::operation::{Outcome, ProbeReport};
use keelet_pod::{Container, GrpcProbe, Handler, HttpGet, Pod, PortError, Probe, ProbeKind, TcpSocket};
use tokio::time::{Instant, timeout};

use crate::{
    HOOK_AGENT, PROBE_AGENT,
    door::{Dial, Exec},
    exec, grpc,
    grpc::Unhealthy,
    http::{Client, Unanswered},
    shortage, tcp, text,
    tls::Tls,
    turns::{Turn, Turns},
};

/// How long an attempt waits for its turn, if half its timeout is longer: the next one is due soon, and somebody should
/// learn that this one was not made.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long an attempt holds its turn, if its timeout is longer. Turns are there so that many attempts that begin at once
/// do not overwhelm the node; one that goes on and on costs the node next to nothing, and its turn is worth a lot to others.
const LONGEST_TURN: Duration = Duration::from_secs(10);

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
    /// Turns of commands, and of attempts over the network: neither is held up by the other. A command costs processes,
    /// and a runtime that hangs stops all of them.
    exec_turns: Turns,
    network_turns: Turns,
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
    /// A prober that has `limit` turns for commands and as many for attempts over the network, one at least. Pods share
    /// them fairly.
    pub fn new(dial: Arc<dyn Dial>, exec: Arc<dyn Exec>, limit: usize) -> Self {
        let (exec_turns, network_turns) = (Turns::new(limit), Turns::new(limit));
        Self { shared: Arc::new(Shared { dial, exec, tls: Tls::default(), exec_turns, network_turns }) }
    }

    /// Makes one attempt. Its time begins when it really begins; waiting for its turn is measured apart. If that takes
    /// more than half of the probe's timeout, no attempt is made: it would be late, and show nothing about the target.
    ///
    /// An attempt over its time no longer holds its turn, whatever the runtime does.
    ///
    /// Dropping the future cancels the attempt and closes its connection.
    pub async fn attempt(&self, attempt: Attempt<'_>) -> Attempted {
        let asked = Instant::now();
        let Attempt { target, probe, .. } = attempt;
        let is_exec = matches!(probe.handler, Handler::Exec { .. });
        let turns = if is_exec { &self.shared.exec_turns } else { &self.shared.network_turns };
        let half = probe.timeout / 2;
        let turn = turns.turn(&target.pod.uid, half.min(LONGEST_WAIT)).await;
        let begun = Instant::now();
        let queued = begun - asked;
        let Some(turn) = turn else {
            let output = format!("not asked: {} went by before it was this probe's turn", text::limit(queued));
            return Attempted {
                report: ProbeReport { outcome: Outcome::Late, latency: Duration::ZERO, output },
                queued,
            };
        };
        // An attempt over the network ends with its time by itself; a command ends when the runtime says so.
        let made = self.make(attempt);
        let made = if is_exec || probe.timeout > LONGEST_TURN {
            hold(turn, probe.timeout.min(LONGEST_TURN), made).await
        } else {
            let _turn = turn;
            made.await
        };
        let (mut outcome, mut output) = match made {
            Ok(result) => result,
            Err(error) => (Outcome::Error, error.to_string()),
        };
        let latency = begun.elapsed();
        // The target had its time, but nobody was there to see what it did with it: this machine could not keep up.
        let overdue = latency.saturating_sub(probe.timeout);
        if outcome == Outcome::Failure && overdue > half && !is_exec {
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
        Ok(match self.client(PROBE_AGENT, target).get(get, host, port, Some(within)).await {
            Ok(reply) => reply.judge(),
            Err(error @ Unanswered::NotSent(_)) => (Outcome::Error, error.to_string()),
            Err(error @ Unanswered::Exhausted { .. }) => (Outcome::Late, error.to_string()),
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
        Ok(match timeout(within, tcp::knock(&*self.shared.dial, &target.pod.uid, host, port)).await {
            Ok(Ok(())) => (Outcome::Success, String::new()),
            Ok(Err(error)) if shortage::is_ours(&error) => {
                (Outcome::Late, format!("this node could not ask {host} port {port}: {}", text::io_error(&error)))
            }
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
        let (dial, tls) = (&*self.shared.dial, &self.shared.tls);
        Ok(match grpc::check(dial, tls, probe, &target.pod.uid, host, within).await {
            Ok(()) => (Outcome::Success, "SERVING".to_owned()),
            Err(error @ Unhealthy::Exhausted(..)) => (Outcome::Late, error.to_string()),
            Err(error) => (Outcome::Failure, error.to_string()),
        })
    }

    pub(crate) fn exec(&self) -> &dyn Exec {
        &*self.shared.exec
    }

    pub(crate) fn hook_client<'a>(&'a self, target: Target<'a>) -> Client<'a> {
        self.client(HOOK_AGENT, target)
    }

    fn client<'a>(&'a self, agent: &'static str, target: Target<'a>) -> Client<'a> {
        Client { dial: &*self.shared.dial, tls: &self.shared.tls, pod: &target.pod.uid, agent }
    }
}

// === impl Target ===

impl<'a> Target<'a> {
    /// The host to connect to: the one that is named, else the pod.
    pub(crate) fn host(&self, named: Option<&'a str>) -> Result<&'a str, NoAddress> {
        named.filter(|host| !host.is_empty()).or(self.address).ok_or(NoAddress)
    }
}

/// Makes an attempt that holds its turn for at most that long.
async fn hold<F: Future>(mut turn: Turn, at_most: Duration, made: F) -> F::Output {
    let mut made = std::pin::pin!(made);
    if let Ok(done) = timeout(at_most, &mut made).await {
        return done;
    }
    turn.give_back();
    made.await
}

fn usable(port: u16) -> Result<u16, Impossible> {
    if port == 0 { Err(Impossible::PortNumber(port)) } else { Ok(port) }
}
