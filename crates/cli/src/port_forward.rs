//! `keelet port-forward`: ports of a pod on loopback.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use futures::FutureExt;
use keelet_serve::{Client, ClientError, api::Session};
use keelet_stream::client::Forwarder;
use serde_json::Value;
use tokio::{net::TcpListener, sync::Mutex, task::JoinSet};

use crate::{
    absence::Absence,
    ask::{self, Connection, InNamespace},
    exec::connect,
    exit::ExitStatus,
    output,
    view::pod::PodView,
};

/// Forward local ports to a pod
///
/// Forwards until Ctrl-C. Connections arrive at 127.0.0.1 inside the pod, so servers that listen only there are reached
/// too. If the agent exits, open connections break; new connections wait for the next agent.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 1 forwarding failed, or the pod is gone; 2 wrong usage.\n\n\
                        Examples:\n  keelet port-forward web 8080\n  keelet port-forward web 8000:80 :443\n  \
                        keelet port-forward web 8000:http")]
pub struct Args {
    /// Name of the pod
    #[arg(value_name = "POD")]
    pod: String,
    /// PORT, LOCAL:PORT, or :PORT for a random local port; PORT is a number or the name of a container port
    #[arg(required = true, value_name = "[LOCAL:]PORT", value_parser = Ports::parse)]
    ports: Vec<Ports>,
    #[command(flatten)]
    place: InNamespace,
    #[command(flatten)]
    connection: Connection,
}

/// A port here and a port there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ports {
    local: Local,
    remote: Remote,
}

/// A port of loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Local {
    /// The same number as that of the pod.
    Same,
    /// Any that is free.
    Free,
    This(u16),
}

/// A port of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Remote {
    Number(u16),
    Name(String),
}

/// Text that is not a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum InvalidPort {
    #[error("{0:?} is not a port: 1 to 65535")]
    Local(String),
    #[error("{0:?} is not a port: 1 to 65535, or the name of a port of the pod")]
    Remote(String),
}

/// The way into the pod, made anew when it broke.
struct Tunnel {
    client: Client,
    path: String,
    absence: Absence,
    forwarder: Mutex<Option<Arc<Forwarder>>>,
}

/// Between a way that broke and the next try.
const PAUSE: Duration = Duration::from_millis(100);

// === impl Ports ===

impl Ports {
    fn parse(text: &str) -> Result<Self, InvalidPort> {
        match text.split_once(':') {
            None => Ok(Self { local: Local::Same, remote: Remote::parse(text)? }),
            Some(("", remote)) => Ok(Self { local: Local::Free, remote: Remote::parse(remote)? }),
            Some((local, remote)) => {
                let number = number(local).ok_or_else(|| InvalidPort::Local(local.to_owned()))?;
                Ok(Self { local: Local::This(number), remote: Remote::parse(remote)? })
            }
        }
    }

    /// The ports as numbers, the local one first; 0 is any.
    fn numbers(&self, pod: &PodView) -> Result<(u16, u16)> {
        let remote = self.remote.number(pod)?;
        Ok(match self.local {
            Local::Same => (remote, remote),
            Local::Free => (0, remote),
            Local::This(local) => (local, remote),
        })
    }
}

fn number(text: &str) -> Option<u16> {
    text.parse::<u16>().ok().filter(|port| *port > 0)
}

// === impl Remote ===

impl Remote {
    fn parse(text: &str) -> Result<Self, InvalidPort> {
        if let Some(number) = number(text) {
            return Ok(Self::Number(number));
        }
        // As Kubernetes has it: no name of a port is a number.
        let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        let is_name = text.chars().all(fits) && text.chars().any(|letter| letter.is_ascii_lowercase());
        match is_name && text.len() <= 15 {
            true => Ok(Self::Name(text.to_owned())),
            false => Err(InvalidPort::Remote(text.to_owned())),
        }
    }

    fn number(&self, pod: &PodView) -> Result<u16> {
        let name = match self {
            Self::Number(number) => return Ok(*number),
            Self::Name(name) => name,
        };
        let containers = ["containers", "initContainers"].into_iter().flat_map(|list| pod.specs(list));
        let ports: Vec<&Value> = containers.flat_map(|spec| spec["ports"].as_array().into_iter().flatten()).collect();
        let found = ports.iter().find(|port| port["name"] == name.as_str());
        if let Some(number) = found.and_then(|port| port["containerPort"].as_u64()?.try_into().ok()) {
            return Ok(number);
        }
        let known: Vec<&str> = ports.iter().filter_map(|port| port["name"].as_str()).collect();
        let known =
            if known.is_empty() { "none has a name".to_owned() } else { format!("it has {}", known.join(", ")) };
        bail!("pod {}/{} has no port {name:?}; {known}", pod.namespace, pod.name)
    }
}

/// Forwards until the pod is gone or the user interrupts it.
pub fn run(args: &Args) -> Result<ExitStatus> {
    ask::run(async {
        let client = args.connection.client();
        let pod = ask::pod(&client, args.place.namespace.as_deref(), &args.pod).await?;
        let mut listeners = Vec::new();
        for ports in &args.ports {
            let (local, remote) = ports.numbers(&pod)?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await;
            let listener = listener.with_context(|| format!("cannot listen on port {local} of loopback"))?;
            listeners.push((listener, remote));
        }
        let tunnel = Arc::new(Tunnel {
            path: format!("{}/portforward", ask::path_of(&pod)),
            absence: Absence::new(&client, "connections wait for the next one"),
            client,
            forwarder: Mutex::default(),
        });
        *tunnel.forwarder.lock().await = Some(tunnel.session().await?);
        let mut tasks = JoinSet::new();
        for (listener, remote) in listeners {
            output::out(&format!("Forwarding from {} -> {remote}\n", listener.local_addr()?))?;
            tasks.spawn(serve(listener, remote, Arc::clone(&tunnel)));
        }
        loop {
            let forwarder = tunnel.forwarder().await?;
            tokio::select! {
                () = forwarder.closed() => {}
                ended = tasks.join_next() => return Err(anyhow!("a listener has ended: {ended:?}")),
            }
        }
    })
}

async fn serve(listener: TcpListener, remote: u16, tunnel: Arc<Tunnel>) {
    while let Ok((connection, _)) = listener.accept().await {
        let tunnel = Arc::clone(&tunnel);
        tokio::spawn(async move {
            // `run` waits for the same tunnel and says why there is none.
            let Ok(forwarder) = tunnel.forwarder().await else { return };
            if let Err(error) = forwarder.forward(connection, remote).await {
                output::error(&format!("port {remote}: {error}"));
            }
        });
    }
}

// === impl Tunnel ===

impl Tunnel {
    /// The present way, or the next one as soon as there is an agent. Fails when the pod is gone.
    async fn forwarder(&self) -> Result<Arc<Forwarder>> {
        let mut held = self.forwarder.lock().await;
        loop {
            if let Some(forwarder) = held.as_ref().filter(|forwarder| forwarder.closed().now_or_never().is_none()) {
                return Ok(Arc::clone(forwarder));
            }
            match self.session().await {
                Ok(forwarder) => {
                    self.absence.is_over();
                    *held = Some(forwarder);
                }
                Err(error) if matches!(error.downcast_ref(), Some(ClientError::Refused(_))) => return Err(error),
                Err(_) => self.absence.wait().await?,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn session(&self) -> Result<Arc<Forwarder>> {
        let session: Session = self.client.post(&self.path, &Value::Null).await?;
        Ok(Arc::new(Forwarder::connect(connect(&session.url).await?, &session.url).await?))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> PodView {
        let ports = json!([{ "containerPort": 80 }, { "name": "http", "containerPort": 8080 }]);
        PodView::read(json!({
            "metadata": { "namespace": "shop", "name": "web", "uid": "u" },
            "spec": { "containers": [{ "name": "main" }, { "name": "side", "ports": ports }] },
        }))
        .unwrap()
    }

    #[test]
    fn ports_are_written_as_for_kubectl() {
        for (text, expected) in [
            ("80", (80, 80)),
            ("8000:80", (8000, 80)),
            (":80", (0, 80)),
            ("http", (8080, 8080)),
            ("8000:http", (8000, 8080)),
            (":http", (0, 8080)),
        ] {
            assert_eq!(Ports::parse(text).unwrap().numbers(&pod()).unwrap(), expected, "{text}");
        }
        for bad in ["", "0", "X", "80:", "8000:0", "70000", "1:2:3", "http:80", "-", "a-name-that-is-too-long"] {
            assert!(Ports::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_port_that_the_pod_does_not_have_is_said_with_those_it_has() {
        let error = Ports::parse("https").unwrap().numbers(&pod()).unwrap_err().to_string();
        assert_eq!(error, "pod shop/web has no port \"https\"; it has http");
    }
}
